package leases

import (
	"slices"
	"testing"
	"time"

	"github.com/forebaymq/forebay/leases/journal"
)

func TestTaskIsCancelledByItsMark(t *testing.T) {
	running := journal.Task{ID: "a", State: taskRunning, Done: 3, Created: 10, Updated: 20}
	done := journal.Task{ID: "b", State: taskDone, Done: 9, Created: 10, Updated: 20}
	all := map[string]journal.Task{"a": running, "b": done}
	if got, ok := taskOf(all, "a"); !ok || got.State != taskRunning {
		t.Fatalf("got %+v", got)
	}
	for _, task := range []journal.Task{running, done} {
		mark := cancelMark(&task, 30)
		all[mark.ID] = mark
	}
	if got, ok := taskOf(all, "a"); !ok || got.State != taskCancelled || got.Done != 3 || got.Updated != 30 {
		t.Fatalf("cancelled: %+v", got)
	}
	// The runner's next progress does not bring it back.
	running.Done, running.Updated = 4, 31
	all["a"] = running
	if got, _ := taskOf(all, "a"); got.State != taskCancelled || got.Done != 4 || got.Updated != 31 {
		t.Fatalf("cancelled, with progress: %+v", got)
	}
	if got, _ := taskOf(all, "b"); got.State != taskDone || got.Updated != 20 {
		t.Fatalf("what was done cannot be cancelled: %+v", got)
	}
	if _, ok := taskOf(all, "a"+cancelSuffix); ok {
		t.Fatal("a mark is not a task")
	}
	if _, ok := taskOf(all, "c"); ok {
		t.Fatal("there is no such task")
	}
}

func TestExpiredTasks(t *testing.T) {
	all := map[string]journal.Task{}
	add := func(id, state string, updated int64) { all[id] = journal.Task{ID: id, State: state, Updated: updated} }
	add("old-running", taskRunning, 1)
	add("old-done", taskDone, 100)
	add("old-cancelled", taskRunning, 100)
	add("old-cancelled"+cancelSuffix, taskCancelled, 101)
	add("orphan"+cancelSuffix, taskCancelled, 5)
	add("new1", taskDone, 950)
	add("new2", taskDone, 960)
	add("new3", taskDone, 970)
	got := expiredTasks(all, 1000, 500, 2)
	slices.Sort(got)
	want := []string{"new1", "old-cancelled", "old-cancelled" + cancelSuffix, "old-done", "orphan" + cancelSuffix}
	if !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
}

// A pace keeps its rate over any time, in few steps, and does not make up for time away.
func TestPace(t *testing.T) {
	for _, rate := range []int32{1, 7, 50, 1000, 100_000} {
		now := time.Unix(1_700_000_000, 0)
		p := newPace(rate, now)
		end := now.Add(20 * time.Second)
		total, steps := 0, 0
		for now.Before(end) {
			n, wait := p.take(now, 10_000)
			if n == 0 {
				if wait <= 0 {
					t.Fatalf("rate %d: neither records nor a wait", rate)
				}
				now = now.Add(wait)
				continue
			}
			p.took(n)
			total += n
			steps++
		}
		want := 20 * int(rate)
		if total < want-int(rate)/5-1 || total > want+int(rate)/5+1 {
			t.Errorf("rate %d: %d records in 20 s, want about %d", rate, total, want)
		}
		if steps > 20*21+1 {
			t.Errorf("rate %d: %d steps in 20 s", rate, steps)
		}
		now = now.Add(time.Hour)
		if n, _ := p.take(now, 1<<30); n > max(int(rate)/5, 1) {
			t.Errorf("rate %d: %d at once after an hour away", rate, n)
		}
	}
}
