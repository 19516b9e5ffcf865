package main

import (
	"strings"
	"testing"
)

func TestSubscriptionCommands(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		call string // the last one
		out  string
	}{
		{"create", []string{"create", "new", "--start", "earliest", "--max-attempts", "3", "--backoff-initial", "1s", "--no-backoff-jitter", "--dead-letter-topic", "dead", "--fair-share", "header:tenant"},
			`PUT /new {"maxAttempts":3,"backoff":{"initial":"1s","jitter":false},"start":"earliest","deadLetter":{"topic":"dead"},"fairShare":{"by":"header","header":"tenant"}}`, `"name": "q"`},
		{"create if it is not there", []string{"create", "q", "--if-not-exists", "--output", "json"}, "GET /q", queueJSON + "\n"},
		{"update", []string{"update", "q", "--visibility-timeout", "1m", "--dead-letter-topic", "none", "--fair-share", "none", "--ordering", "key"},
			`PUT /q {"visibilityTimeout":"1m","deadLetter":{"topic":null},"ordering":"key","fairShare":null}`, `"name": "q"`},
		{"list", []string{"list"}, "GET", "q             3    1"},
		{"list as JSON", []string{"list", "--output", "json"}, "GET", queueJSON + "\n"},
		{"describe", []string{"describe", "q"}, "GET /q", `"lag": 3`},
		{"delete", []string{"delete", "q"}, "DELETE /q", ""},
		{"seek", []string{"seek", "q", "--to", "latest"}, `POST /q/seek {"to":"latest"}`, `"name"`},
		{"seek to a time", []string{"seek", "q", "--timestamp", "2026-01-02T03:04:05.0001Z"}, `POST /q/seek {"timestamp":"2026-01-02T03:04:05.001Z"}`, `"name"`},
		{"seek to offsets", []string{"seek", "q", "--offset", "0:5", "--offset", "3:0"}, `POST /q/seek {"offsets":{"0":5,"3":0}}`, `"name"`},
		{"peek", []string{"peek", "q", "--max", "3"}, "GET /q/peek", `{"partition":0,"offset":7,"attempt":1,"dueAt":null,"value":{"a":1}}` + "\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := newFakeQueue(t, 0)
			r := q.run(t, append([]string{"subscriptions"}, c.args...)...)
			if r.code != exitOK || r.err != "" || !strings.Contains(r.out, c.out) {
				t.Errorf("%+v", r)
			}
			if n := len(q.mu.calls); n == 0 || q.mu.calls[n-1] != c.call {
				t.Errorf("calls %q, want %q", q.mu.calls, c.call)
			}
		})
	}
}

func TestSubscriptionCommandsFail(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"create", "q"}, exitFailure, "exists already"},
		{[]string{"create", "q", "--topic", "other"}, exitFailure, "UNKNOWN_TOPIC"},
		{[]string{"create", "new", "--fair-share", "luck"}, exitUsage, "--fair-share"},
		{[]string{"create", "new", "--fair-share", "header:"}, exitUsage, "--fair-share"},
		{[]string{"update", "q"}, exitUsage, "at least one"},
		{[]string{"update", "new", "--max-attempts", "3"}, exitFailure, "UNKNOWN_SUBSCRIPTION"},
		{[]string{"describe", "new"}, exitFailure, "UNKNOWN_SUBSCRIPTION"},
		{[]string{"seek", "q"}, exitUsage, "where to"},
		{[]string{"seek", "q", "--to", "tomorrow"}, exitUsage, "--to"},
		{[]string{"seek", "q", "--to", "latest", "--offset", "0:1"}, exitUsage, "--offset"},
		{[]string{"seek", "q", "--offset", "0:1", "--offset", "0:2"}, exitUsage, "twice"},
		{[]string{"seek", "q", "--offset", "0"}, exitUsage, "PARTITION:OFFSET"},
		{[]string{"seek", "q", "--offset=-1:2"}, exitUsage, "PARTITION:OFFSET"},
		{[]string{"seek", "q", "--timestamp", "noon"}, exitUsage, "RFC 3339"},
		{[]string{"peek", "q", "--max", "101"}, exitUsage, "--max"},
	} {
		q := newFakeQueue(t, 0)
		if r := q.run(t, append([]string{"subscriptions"}, c.args...)...); r.code != c.code || !strings.Contains(r.err, c.want) || r.out != "" {
			t.Errorf("%v: %+v", c.args, r)
		}
	}
}
