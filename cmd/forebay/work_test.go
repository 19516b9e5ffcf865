package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func (q *fakeQueue) ackedInOrder() []int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Sorted(slices.Values(q.mu.acked))
}

func TestWorkPrints(t *testing.T) {
	q := newFakeQueue(t, 5)
	r := q.run(t, "work", "q", "--until-empty", "--batch", "2")
	if r.code != exitOK || len(lines(r.out)) != 5 || !strings.Contains(r.out, `"text":"v4"`) || !strings.Contains(r.err, "5 records leased from t/q: 5 acked, in ") {
		t.Errorf("%+v", r)
	}
	if got := q.ackedInOrder(); len(got) != 5 {
		t.Errorf("acked %v", got)
	}
	if r := q.run(t, "work", "q", "--once"); r.code != exitOK || r.out != "" {
		t.Errorf("an empty queue: %+v", r)
	}
}

// TestWorkRunsCommands: success is acked, failure is nacked with what the command said, and the exit status tells of it (case K1).
func TestWorkRunsCommands(t *testing.T) {
	q := newFakeQueue(t, 4)
	r := q.run(t, "work", "q", "--until-empty", "--concurrency", "2", "--nack-delay", "7s", "--output", "json", "--", "sh", "-c",
		`v=$(cat); echo "$RECORD_TOPIC $RECORD_SUBSCRIPTION $RECORD_OFFSET $RECORD_KEY $v"; [ "$v" != v2 ] || { echo "v2 is bad" >&2; exit 9; }`)
	if r.code != exitFailure || !strings.Contains(r.out, "t q 3 k v3\n") || len(lines(r.out)) != 4 {
		t.Errorf("%+v", r)
	}
	var sum workSummary
	for _, line := range lines(r.err) {
		_ = json.Unmarshal([]byte(line), &sum) // the summary is the only line that is JSON
	}
	if sum.Leased != 4 || sum.Acked != 3 || sum.Nacked != 1 || !strings.Contains(sum.Error, "1 of 4") || !strings.Contains(r.err, "record 0:2, attempt 1: exit status 9: v2 is bad") {
		t.Errorf("%+v\n%s", sum, r.err)
	}
	if got := fmt.Sprint(q.ackedInOrder(), q.mu.nacked, q.mu.delays); got != "[0 1 3] map[2:exit status 9: v2 is bad] [7000]" {
		t.Errorf("got %s", got)
	}
}

// TestWorkWithLostLeases: the work was done, but does not count.
func TestWorkWithLostLeases(t *testing.T) {
	for _, command := range [][]string{nil, {"--", "true"}} {
		q := newFakeQueue(t, 2)
		q.mu.lost = true
		if r := q.run(t, append([]string{"work", "q", "--once", "--batch", "2"}, command...)...); r.code != exitFailure || !strings.Contains(r.err, "LEASE_LOST") || !strings.Contains(r.err, "2 lost") {
			t.Errorf("%+v", r)
		}
	}
}

// TestWorkStops: at the first signal what runs is finished and what waits is given back.
func TestWorkStops(t *testing.T) {
	q := newFakeQueue(t, 3)
	ctx, cancel := context.WithCancel(t.Context())
	out, w := io.Pipe()
	go func() {
		buf := make([]byte, 100)
		_, _ = out.Read(buf)
		cancel() // as a signal would
		_, _ = io.Copy(io.Discard, out)
	}()
	var errs strings.Builder
	code := run(ctx, []string{"work", "q", "--topic", "t", "--server", q.URL, "--token", "x", "--batch", "3", "--", "sh", "-c", "echo begun; sleep 0.2"}, stdio{
		in: strings.NewReader(""), out: w, err: &errs, environ: []string{"PATH=/usr/bin:/bin"},
	})
	_ = w.Close()
	if got := fmt.Sprint(q.ackedInOrder(), q.mu.nacked); code != exitOK || got != "[0] map[1:the worker was stopped 2:the worker was stopped]" {
		t.Errorf("status %d, %s\n%s", code, got, errs.String())
	}
}

// watchedText closes seen when it has been told its text.
type watchedText struct {
	strings.Builder
	text string
	seen chan struct{}
}

func (w *watchedText) Write(p []byte) (int, error) {
	before := strings.Contains(w.String(), w.text)
	n, err := w.Builder.Write(p)
	if !before && strings.Contains(w.String(), w.text) {
		close(w.seen)
	}
	return n, err
}

// TestWorkIsEnded: at the second signal what runs is ended and given back.
func TestWorkIsEnded(t *testing.T) {
	q := newFakeQueue(t, 1)
	out, w := io.Pipe()
	errs := &watchedText{text: "a second signal", seen: make(chan struct{})}
	go func() {
		buf := make([]byte, 100)
		_, _ = out.Read(buf)
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGTERM) // the handler is there: the command has begun
		<-errs.seen
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGTERM)
		_, _ = io.Copy(io.Discard, out)
	}()
	begin := time.Now()
	code := run(t.Context(), []string{"work", "q", "--topic", "t", "--server", q.URL, "--token", "x", "--", "sh", "-c", "echo begun; exec sleep 60"}, stdio{
		in: strings.NewReader(""), out: w, err: errs, environ: []string{"PATH=/usr/bin:/bin"},
	})
	_ = w.Close()
	if got := fmt.Sprint(q.ackedInOrder(), q.mu.nacked); code != exitOK || got != "[] map[0:the worker was stopped]" || time.Since(begin) > 30*time.Second {
		t.Errorf("status %d after %s, %s\n%s", code, time.Since(begin), got, errs.String())
	}
}

func TestWorkFails(t *testing.T) {
	q := newFakeQueue(t, 0)
	q.mu.problem = `{"code":"RETENTION_GAP","detail":"lost","gaps":[{"partition":2,"from":5,"to":9}]}`
	r := q.run(t, "work", "q")
	if r.code != exitFailure || !strings.Contains(r.err, "5 to 8 of partition 2") || !strings.Contains(r.err, "seek") {
		t.Errorf("%+v", r)
	}
	q.Close()
	for _, args := range [][]string{{"work", "q"}, {"work", "q", "--", "true"}, {"work", "q", "--visibility", "5s", "--", "true"}, {"subscriptions", "describe", "q"}, {"dlq", "list", "q"}} {
		if r := q.run(t, args...); r.code != exitFailure || !strings.Contains(r.err, "no answer") {
			t.Errorf("%v: %+v", args, r)
		}
	}
}

func TestWorkUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--batch", "1001"}, "--batch"},
		{[]string{"--concurrency", "0"}, "--concurrency"},
		{[]string{"--concurrency", "2"}, "there is none"},
		{[]string{"--visibility", "1ms"}, "--visibility"},
		{[]string{"--wait", "31s"}, "--wait"},
		{[]string{"--nack-delay", "-1s"}, "--nack-delay"},
		{[]string{"--once", "--until-empty"}, "--until-empty"},
		{[]string{"--", "no-such-program-here"}, "no-such-program-here"},
	} {
		q := newFakeQueue(t, 1)
		if r := q.run(t, append([]string{"work", "q"}, c.args...)...); r.code != exitUsage || !strings.Contains(r.err, c.want) {
			t.Errorf("%v: %+v", c.args, r)
		}
		if len(q.mu.calls) != 0 || len(q.mu.leased) != 0 {
			t.Errorf("%v: the server was asked: %v", c.args, q.mu.calls)
		}
	}
	if r := forebay(t, nil, "", "work", "q"); r.code != exitUsage || !strings.Contains(r.err, "--topic") {
		t.Errorf("%+v", r)
	}
}
