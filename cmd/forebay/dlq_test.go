package main

import (
	"context"
	"strings"
	"testing"
	"time"
)

func TestDeadLetterCommands(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		call string // the last one
		out  string
	}{
		{"list", []string{"list", "q"}, "GET /q/dead-letters", "0:7     5         2026-01-02T03:04:05Z  2026-01-02T04:04:05Z  exit status 1: bad (the record has expired)\n1:8     5         -"},
		{"list as JSON", []string{"list", "q", "--output", "json", "--records", "--limit", "1"}, "GET /q/dead-letters", `{"partition":0,"offset":7,`},
		{"redrive", []string{"redrive", "q", "--all", "--rate", "50", "--poll", "10ms"}, "GET /q/tasks/k1", "task k1: done, 2 of 2\n"},
		{"redrive without waiting", []string{"redrive", "q", "--offset", "0:7", "--offset", "1:8", "--no-wait", "--output", "json"},
			`POST /q/dead-letters/redrive {"offsets":[{"partition":0,"offset":7},{"partition":1,"offset":8}]}`, `{"id":"k1","total":2,"done":0,"state":"running"}` + "\n"},
		{"discard", []string{"discard", "q", "--all"}, `POST /q/dead-letters/discard {"all":true}`, "2 dead letters discarded\n"},
		{"discard as JSON", []string{"discard", "q", "--offset", "0:7", "--output", "json"}, `POST /q/dead-letters/discard {"offsets":[{"partition":0,"offset":7}]}`, `{"discarded":2}` + "\n"},
		{"task", []string{"task", "q", "k1"}, "GET /q/tasks/k1", "task k1: running, 1 of 2\n"},
		{"cancel", []string{"cancel", "q", "k1"}, "DELETE /q/tasks/k1", "task k1: cancelled, 1 of 2\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := newFakeQueue(t, 0)
			r := q.run(t, append([]string{"dlq"}, c.args...)...)
			if r.code != exitOK || r.err != "" || !strings.Contains(r.out, c.out) {
				t.Errorf("%+v", r)
			}
			if n := len(q.mu.calls); n == 0 || q.mu.calls[n-1] != c.call {
				t.Errorf("calls %q, want %q", q.mu.calls, c.call)
			}
		})
	}
	q := newFakeQueue(t, 0)
	if r := q.run(t, "dlq", "list", "q", "--limit", "1"); len(lines(r.out)) != 2 {
		t.Errorf("%+v", r)
	}
}

func TestDeadLetterCommandsFail(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"list", "q", "--records"}, exitUsage, "json"},
		{[]string{"list", "q", "--limit", "-1"}, exitUsage, "--limit"},
		{[]string{"redrive", "q"}, exitUsage, "which"},
		{[]string{"redrive", "q", "--all", "--offset", "0:1"}, exitUsage, "--offset"},
		{[]string{"redrive", "q", "--offset", "x"}, exitUsage, "PARTITION:OFFSET"},
		{[]string{"redrive", "q", "--all", "--rate", "-1"}, exitUsage, "--rate"},
		{[]string{"redrive", "q", "--all", "--poll", "0s"}, exitUsage, "--poll"},
		{[]string{"discard", "q"}, exitUsage, "which"},
		{[]string{"task", "q", "k2"}, exitFailure, "NOT_FOUND"},
		{[]string{"list", "q", "--topic", "other"}, exitFailure, "UNKNOWN_TOPIC"},
	} {
		q := newFakeQueue(t, 0)
		if r := q.run(t, append([]string{"dlq"}, c.args...)...); r.code != c.code || !strings.Contains(r.err, c.want) {
			t.Errorf("%v: %+v", c.args, r)
		}
	}
}

// TestRedriveThatIsNotWaitedFor: an interrupted command says that the redrive goes on, and how to stop it.
func TestRedriveThatIsNotWaitedFor(t *testing.T) {
	q := newFakeQueue(t, 0)
	ctx, cancel := context.WithCancel(t.Context())
	q.redriven = func() { time.AfterFunc(50*time.Millisecond, cancel) } // when the answer has been read, or else it is the request that fails
	r := forebayIn(t, ctx, nil, strings.NewReader(""), "dlq", "redrive", "q", "--topic", "t", "--server", q.URL, "--token", "x", "--all", "--poll", "1h")
	if r.code != exitFailure || !strings.Contains(r.err, "forebay dlq cancel q --topic t k1 stops it") || r.out != "" {
		t.Errorf("%+v", r)
	}
}
