package proof

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/forebaymq/forebay/internal/failpoint"
)

const queuePartitions = 24

// newQueue publishes the real input into a new topic of a node and subscribes to it.
func newQueue(ctx context.Context, t *testing.T, node *rest, addr, tokenFile, topic string, config map[string]any) *queueLoad {
	t.Helper()
	if err := node.createTopic(ctx, topic, queuePartitions); err != nil {
		t.Fatal(err)
	}
	publishChanges(t, addr, tokenFile, topic)
	config["start"] = "earliest"
	l := &queueLoad{topic: topic, sub: "workers", workers: 8, batch: 40, visibility: time.Second, seed: 1, nodes: []*rest{node}, h: newQueueHistory()}
	if err := node.call(ctx, "PUT", l.path(""), config, nil); err != nil {
		t.Fatal(err)
	}
	l.records = origins(ctx, t, node, topic, queuePartitions)
	if len(l.records) != 30481 {
		t.Fatalf("%d records stand, want 30481", len(l.records))
	}
	return l
}

// verdict fails the test for what the checker found, and says what the history was worth.
func (l *queueLoad) verdict(t *testing.T, rules queueRules) *queueReport {
	t.Helper()
	r := l.h.Check(rules)
	t.Logf("%d deliveries of %d records, %d lost leases, %d repeats (settled at most %v before a break)", r.deliveries, len(l.records), r.lost, r.repeats, r.worstRepeat)
	for _, p := range r.problems {
		t.Error(p)
	}
	unknown := map[slot]bool{}
	for _, d := range l.h.deliveries {
		if d.settle == "ack" && d.fate == fateUnknown {
			unknown[d.slot] = true
		}
	}
	for s := range l.records {
		if r.acked[s] == 0 && !unknown[s] {
			t.Errorf("%v was never acked", s)
		}
	}
	if r.lost == 0 {
		t.Error("no lease was ever lost: the history proves little")
	}
	return r
}

// TestQueue works the real input off with eight competing workers that ack, nack, stall past their leases and forget them: every record is
// settled once, and no two leases of one are live at a time. In the ordered queue the same holds per key, and keys stay in order.
func TestQueue(t *testing.T) {
	for _, tc := range []struct {
		name    string
		config  map[string]any
		ordered bool
	}{
		{"unordered", map[string]any{"maxAttempts": 1000}, false},
		{"ordered", map[string]any{"maxAttempts": 1000, "ordering": "key"}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel() // they wait most of the time
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
			defer cancel()
			dir := t.TempDir()
			addrs := ports(t, 2)
			startDev(ctx, t, dir, addrs, "")
			node := newRest("http://"+addrs[0], token(t, filepath.Join(dir, "token")))
			l := newQueue(ctx, t, node, addrs[0], filepath.Join(dir, "token"), "changes", tc.config)
			l.nack, l.stall, l.die = 5, 3, 3
			l.run(ctx, t)
			l.verdict(t, queueRules{maxAttempts: 1000, ordered: tc.ordered})
		})
	}
}

// TestPoison: records that every worker refuses become dead letters with the attempts that the limit says, survive a kill -9 of the node
// with everything in memory, are redriven by a task, and settled.
func TestPoison(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	dir := t.TempDir()
	addrs := ports(t, 2)
	server := startDev(ctx, t, dir, addrs, "")
	node := newRest("http://"+addrs[0], token(t, filepath.Join(dir, "token")))
	l := newQueue(ctx, t, node, addrs[0], filepath.Join(dir, "token"), "changes", map[string]any{"maxAttempts": 5})
	l.poison = func(s slot) bool { return s.offset%101 == 7 }
	l.run(ctx, t)
	poisoned := 0
	for s := range l.records {
		if l.poison(s) {
			poisoned++
		}
	}
	deadLetters := func() map[slot]bool {
		found := map[slot]bool{}
		for cursor := ""; ; {
			var out struct {
				Items []struct {
					Partition int
					Offset    int64
					Attempts  int
					Reason    string
					Record    *struct{ Key string }
				} `json:"items"`
				NextCursor *string `json:"nextCursor"`
			}
			path := l.path("/dead-letters?limit=50")
			if cursor != "" {
				path += "&cursor=" + cursor
			}
			if err := node.call(ctx, "GET", path, nil, &out); err != nil {
				t.Fatal(err)
			}
			for _, d := range out.Items {
				s := slot{d.Partition, d.Offset}
				if !l.poison(s) || found[s] || d.Attempts != 5 || d.Reason != "refused by the worker" || d.Record == nil || d.Record.Key != l.records[s].key {
					t.Errorf("dead letter %+v (listed before: %v)", d, found[s])
				}
				found[s] = true
			}
			if out.NextCursor == nil {
				return found
			}
			cursor = *out.NextCursor
		}
	}
	if n := len(deadLetters()); n != poisoned {
		t.Errorf("%d dead letters, want %d", n, poisoned)
	}
	// Durable means journalled; that is promised at most 100 ms after the death. The last settle is long answered when the statistics above
	// came back, but a kill right here may be sooner than that.
	pause(ctx, nil, 150*time.Millisecond)
	server.kill()
	startDev(ctx, t, dir, addrs, "")
	if n := len(deadLetters()); n != poisoned {
		t.Errorf("%d dead letters after a restart, want %d", n, poisoned)
	}
	var task struct {
		ID    string `json:"id"`
		Total int    `json:"total"`
		Done  int    `json:"done"`
		State string `json:"state"`
	}
	if err := node.call(ctx, "POST", l.path("/dead-letters/redrive"), map[string]any{"all": true, "ratePerSecond": 5000}, &task); err != nil {
		t.Fatal(err)
	}
	if task.Total != poisoned {
		t.Errorf("the task has %d records, want %d", task.Total, poisoned)
	}
	first := l.h.Check(queueRules{maxAttempts: 5})
	l.h, l.poison = newQueueHistory(), nil
	if err := within(ctx, func() error {
		if err := node.call(ctx, "GET", l.path("/tasks/"+task.ID), nil, &task); err != nil {
			return err
		}
		if task.State != "done" {
			return fmt.Errorf("the task is %+v", task)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if task.Done != poisoned {
		t.Errorf("redriven: %+v, want %d", task, poisoned)
	}
	l.run(ctx, t)
	if err := within(ctx, func() error { // the redriven ones are below the frontier: look for their acks
		if n := len(l.h.Check(queueRules{maxAttempts: 5}).acked); n != poisoned {
			return fmt.Errorf("%d redriven records acked, want %d", n, poisoned)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	second := l.h.Check(queueRules{maxAttempts: 5})
	for _, p := range append(first.problems, second.problems...) {
		t.Error(p)
	}
	for s := range second.acked {
		if first.acked[s] > 0 {
			t.Errorf("%v was settled before the redrive and after it", s)
		}
	}
	if n := len(first.acked) + len(second.acked); n != len(l.records) {
		t.Errorf("%d records settled in all, want %d", n, len(l.records))
	}
	if n := len(deadLetters()); n != 0 {
		t.Errorf("%d dead letters are left", n)
	}
	var p *problem
	if err := node.call(ctx, "POST", l.path("/ack?receipt=0:7:nonsense"), nil, nil); !errors.As(err, &p) || p.Status != 410 && p.Status != 400 {
		t.Errorf("a made-up receipt: %v", err)
	}
}

// TestBrokenQueuesAreCaught works the input off with builds that lack a fence. A judge that passes them proves nothing.
func TestBrokenQueuesAreCaught(t *testing.T) {
	for _, tc := range []struct {
		fence  string
		config map[string]any
	}{
		{failpoint.NoNonceCheck, map[string]any{"maxAttempts": 1000}},
		{failpoint.NoKeyLock, map[string]any{"maxAttempts": 1000, "ordering": "key"}},
	} {
		t.Run(tc.fence, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			dir := t.TempDir()
			addrs := ports(t, 2)
			startDev(ctx, t, dir, addrs, tc.fence+"=off")
			node := newRest("http://"+addrs[0], token(t, filepath.Join(dir, "token")))
			l := newQueue(ctx, t, node, addrs[0], filepath.Join(dir, "token"), "changes", tc.config)
			l.nack, l.stall, l.die, l.pace = 5, 10, 5, 5*time.Millisecond
			_ = l.workUntil(ctx, t, func() error { pause(ctx, nil, 6*time.Second); return nil }) // such a queue may never end
			r := l.h.Check(queueRules{maxAttempts: 1000, ordered: tc.config["ordering"] == "key"})
			if len(r.problems) == 0 {
				t.Errorf("%d deliveries of a build without the fence were accepted", r.deliveries)
			} else {
				t.Logf("caught: %s", r.problems[0])
			}
		})
	}
}
