package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forebaymq/forebay/client"
)

// TestDevWorksOffAQueue walks through what a newcomer does with a queue: create, publish, work with a command that fails on one record
// until it is a dead letter, redrive it, and print it.
func TestDevWorksOffAQueue(t *testing.T) {
	dir := t.TempDir()
	p := startDev(t, dir)
	p.must(t, dir, "", "topics", "create", "orders", "--partitions", "2")
	p.must(t, dir, "", "subscriptions", "create", "emails", "--topic", "orders", "--start", "earliest", "--max-attempts", "2", "--backoff-initial", "0s")
	if r := p.run(t, dir, "", "subscriptions", "create", "emails", "--topic", "orders"); r.code != exitFailure || !strings.Contains(r.err, "exists") {
		t.Errorf("created twice: %+v", r)
	}
	var in strings.Builder
	for i := range 20 {
		fmt.Fprintf(&in, "{\"id\":\"o-%d\"}\n", i)
	}
	p.must(t, dir, in.String(), "publish", "orders", "--key-field", "id")
	if r := p.must(t, dir, "", "subscriptions", "peek", "emails", "--topic", "orders", "--max", "100"); len(lines(r.out)) != 20 {
		t.Errorf("%+v", r)
	}

	// The output is a line a record and run; a record that failed comes again at once, and so within the same command.
	r := forebay(t, []string{"PATH=/usr/bin:/bin", "FOREBAY_SERVER=" + p.base, "FOREBAY_TOKEN_FILE=" + filepath.Join(dir, "token")}, "",
		"work", "emails", "--topic", "orders", "--until-empty", "--concurrency", "4", "--", "sh", "-c", `echo "$RECORD_KEY $RECORD_ATTEMPT"; [ "$RECORD_KEY" != o-7 ] || { echo "no such customer" >&2; exit 1; }`)
	if r.code != exitFailure || len(lines(r.out)) != 21 || !strings.Contains(r.out, "o-7 2\n") || !strings.Contains(r.err, "19 acked, 2 nacked") {
		t.Errorf("%+v", r)
	}
	var dead struct {
		Attempts int
		Reason   string
		Record   struct{ Key string }
	}
	list := p.must(t, dir, "", "dlq", "list", "emails", "--topic", "orders", "--records", "--output", "json")
	if err := json.Unmarshal([]byte(list.out), &dead); err != nil || dead.Attempts != 2 || dead.Reason != "exit status 1: no such customer" || dead.Record.Key != "o-7" {
		t.Errorf("%s, %v", list.out, err)
	}
	if r := p.must(t, dir, "", "dlq", "redrive", "emails", "--topic", "orders", "--all", "--poll", "10ms"); !strings.Contains(r.out, "done, 1 of 1") {
		t.Errorf("%+v", r)
	}
	if r := p.must(t, dir, "", "work", "emails", "--topic", "orders", "--until-empty"); len(lines(r.out)) != 1 || !strings.Contains(r.out, `"key":"o-7"`) || !strings.Contains(r.out, `"attempt":1`) {
		t.Errorf("%+v", r)
	}
	var s client.Subscription
	if err := json.Unmarshal([]byte(p.must(t, dir, "", "subscriptions", "describe", "emails", "--topic", "orders", "--output", "json").out), &s); err != nil {
		t.Fatal(err)
	}
	for _, part := range s.Partitions {
		if part.Frontier != part.Head || part.Lag != 0 || part.InFlight != 0 || part.DeadLetters != 0 {
			t.Errorf("at the end: %+v", part)
		}
	}
	// The same, measured: the queue is verified in passing.
	var report struct {
		Verified struct{ Settled, Duplicates int64 }
	}
	r = p.must(t, dir, "", "bench", "queue", "--topic", "load", "--partitions", "3", "--backlog", "3000", "--record-size", "50", "--batch", "100", "--clients", "4", "--warmup", "0s", "--duration", "0s", "--output", "json")
	if err := json.Unmarshal([]byte(r.out), &report); err != nil || report.Verified.Settled < 3000 || report.Verified.Duplicates != 0 {
		t.Errorf("%s, %v", r.out, err)
	}
	if r := p.must(t, dir, "", "bench", "queue", "--topic", "pick", "--pickup", "--count", "3", "--interval", "10ms", "--clients", "2", "--output", "json"); !strings.Contains(r.out, `"pickupMillis":{"count":3`) {
		t.Errorf("%s", r.out)
	}
	p.must(t, dir, "", "subscriptions", "delete", "emails", "--topic", "orders")
	if r := p.run(t, dir, "", "work", "emails", "--topic", "orders"); r.code != exitFailure || !strings.Contains(r.err, "UNKNOWN_SUBSCRIPTION") {
		t.Errorf("%+v", r)
	}
}
