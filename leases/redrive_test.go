package leases

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases/journal"
)

// manyDead publishes records to two partitions and lets them all die.
func (n *fabricNode) manyDead(name Name, records int) {
	n.f.t.Helper()
	n.subscribe(name, func(c *api.SubscriptionConfig) { c.MaxAttempts = 1 })
	values := make([]string, records/2)
	for i := range values {
		values[i] = fmt.Sprint(i)
	}
	n.publish(name.Topic, 0, values...)
	n.publish(name.Topic, 1, values...)
	n.killAll(name, "bad")
	n.subscribe(name, nil)
}

func (n *fabricNode) redrive(name Name, sel DeadLetterSelection, rate int) *Task {
	n.f.t.Helper()
	t, err := n.engine.Redrive(n.f.t.Context(), name, sel, rate)
	if err != nil {
		n.f.t.Fatal(err)
	}
	return t
}

func (n *fabricNode) cancelTask(name Name, id string) *Task {
	n.f.t.Helper()
	t, err := n.engine.CancelTask(n.f.t.Context(), name, id)
	if err != nil {
		n.f.t.Fatal(err)
	}
	return t
}

// A redrive keeps its rate, can be watched and cancelled from any node, and what it did not do stays dead.
func TestRedriveIsPacedAndCancelled(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		a, b := f.node(nil), f.node(nil)
		a.topic("orders", 2, nil)
		name := sub("orders", "w")
		const records, rate = 1200, 100
		a.manyDead(name, records)
		begun := time.Now()
		task := a.redrive(name, DeadLetterSelection{All: true}, rate)
		if task.Total != records || task.State != taskRunning {
			t.Fatalf("task %+v", task)
		}
		time.Sleep(3*time.Second - time.Since(begun))
		seen, err := b.engine.Task(t.Context(), name, task.ID)
		if err != nil || seen.State != taskRunning || seen.Done < rate || seen.Done > 7*rate/2 {
			t.Fatalf("after 3 s another node says %+v, %v", seen, err)
		}
		cancelled := b.cancelTask(name, task.ID)
		if cancelled.State != taskCancelled {
			t.Fatalf("cancelled: %+v", cancelled)
		}
		time.Sleep(1500 * time.Millisecond)
		left := int64(len(a.deadLetters(name, false)))
		if left < records-11*rate/2 || left > records-5*rate/2 {
			t.Fatalf("%d are dead still", left)
		}
		time.Sleep(10 * time.Second)
		if again := int64(len(a.deadLetters(name, false))); again != left {
			t.Fatalf("%d of %d are dead 10 s after the end", again, left)
		}
		end := a.cancelTask(name, task.ID) // again: only shown
		if end.State != taskCancelled || end.Done != records-left {
			t.Fatalf("at the end %+v, with %d left", end, left)
		}
		if got := len(a.ackAll(name)); int64(got) != end.Done {
			t.Fatalf("%d were delivered, %d redriven", got, end.Done)
		}
		// The rest, as fast as it goes.
		rest := b.redrive(name, DeadLetterSelection{All: true}, api.MaxRedriveRate)
		if done := b.awaitTask(name, rest.ID, taskDone); done.Done != left || done.Total != left {
			t.Fatalf("the rest: %+v", done)
		}
		if got := len(a.ackAll(name)); int64(got) != left {
			t.Fatalf("%d of the rest were delivered", got)
		}
	})
}

// The node that works on a redrive is killed, and so is Redis's memory: another node goes on by itself, nothing is redriven twice, all of it once.
func TestRedriveSurvivesItsNode(t *testing.T) {
	for _, flush := range []bool{false, true} {
		for _, all := range []bool{true, false} {
			t.Run(fmt.Sprintf("flushall=%v,all=%v", flush, all), func(t *testing.T) {
				inFabric(t, func(t *testing.T, f *fabric) {
					a := f.node(nil)
					a.topic("orders", 2, nil)
					name := sub("orders", "w")
					const records, rate = 1000, 100
					a.manyDead(name, records)
					sel := DeadLetterSelection{All: all}
					if !all {
						for i := range int64(records / 2) {
							sel.Offsets = append(sel.Offsets, Target{0, i}, Target{1, i})
						}
					}
					task := a.redrive(name, sel, rate)
					time.Sleep(4300 * time.Millisecond)
					a.kill()
					if flush {
						f.redis.FlushAll()
					}
					time.Sleep(10 * time.Second) // nobody is there
					b := f.node(nil)
					time.Sleep(20 * time.Second) // nobody asks
					seen := map[string]int{}
					for ms := b.lease(name, 1000); len(ms) > 0; ms = b.lease(name, 1000) {
						for i := range ms {
							seen[fmt.Sprint(ms[i].Partition, "/", ms[i].Record.Offset)]++
						}
						b.settle(name, Ack, "", ms)
					}
					end := b.awaitTask(name, task.ID, taskDone)
					if end.Done != records || end.Total != records {
						t.Errorf("task at the end: %+v", end)
					}
					if dead := b.deadLetters(name, false); len(dead) != 0 {
						t.Errorf("%d are dead still", len(dead))
					}
					if len(seen) != records {
						t.Errorf("%d records were delivered", len(seen))
					}
					for at, times := range seen {
						if times != 1 {
							t.Fatalf("%s was delivered %d times", at, times)
						}
					}
				})
			})
		}
	}
}

// A record that dies again while its task still runs is not redriven again by it.
func TestRedriveTakesWhatWasDeadAtItsStart(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		n := f.node(nil)
		n.topic("orders", 1, nil)
		name := sub("orders", "w")
		n.subscribe(name, func(c *api.SubscriptionConfig) { c.MaxAttempts = 1 })
		n.publish("orders", 0, "v0", "v1", "v2", "v3", "v4", "v5")
		n.killAll(name, "bad")
		time.Sleep(time.Second)
		task := n.redrive(name, DeadLetterSelection{All: true}, 10)
		delivered := 0
		for range 40 {
			ms := n.lease(name, 10)
			delivered += len(ms)
			if len(ms) > 0 {
				n.settle(name, Nack, "again", ms)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if end := n.awaitTask(name, task.ID, taskDone); end.Done != 6 || delivered != 6 {
			t.Fatalf("%d deliveries for %+v", delivered, end)
		}
		if dead := n.deadLetters(name, false); len(dead) != 6 || dead[0].Reason != "again" {
			t.Fatalf("dead letters %+v", dead)
		}
	})
}

func TestRedriveOfNothing(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		n := f.node(nil)
		n.topic("orders", 1, nil)
		name := sub("orders", "w")
		n.subscribe(name, nil)
		task := n.redrive(name, DeadLetterSelection{All: true}, 0)
		if task.State != taskDone || task.Total != 0 {
			t.Fatalf("task %+v", task)
		}
		if got := n.cancelTask(name, task.ID); got.State != taskDone {
			t.Fatalf("what is done was cancelled: %+v", got)
		}
		for _, rate := range []int{-1, api.MaxRedriveRate + 1} {
			_, err := n.engine.Redrive(t.Context(), name, DeadLetterSelection{All: true}, rate)
			wantCode(t, err, api.CodeInvalidRequest)
		}
		for _, id := range []string{"", "nope", task.ID + cancelSuffix} {
			_, err := n.engine.Task(t.Context(), name, id)
			wantCode(t, err, api.CodeNotFound)
			_, err = n.engine.CancelTask(t.Context(), name, id)
			wantCode(t, err, api.CodeNotFound)
		}
	})
}

// Tasks that ended are kept to be looked at, and not for ever.
func TestEndedTasksAreForgotten(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		n := f.node(nil)
		n.topic("orders", 1, nil)
		name := sub("orders", "w")
		s := n.subscribe(name, nil)
		task := n.redrive(name, DeadLetterSelection{All: true}, 0)
		old := journal.Task{ID: "old", Subscription: s.ID, State: taskDone, Updated: n.engine.now() - 8*24*3600*1000}
		for _, t2 := range []journal.Task{old, cancelMark(&old, old.Updated)} {
			if err := n.engine.o.Journal.PutTask(t.Context(), fabricTenant, t2); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second)
		n.awaitTask(name, task.ID, taskDone)
		_, err := n.engine.Task(t.Context(), name, "old")
		wantCode(t, err, api.CodeNotFound)
		loaded, err := n.engine.o.Journal.Load(t.Context(), fabricTenant, s.ID)
		if err != nil || len(loaded.Tasks) != 1 {
			t.Fatalf("the journal has the tasks %v, %v", loaded.Tasks, err)
		}
	})
}

func TestDistinct(t *testing.T) {
	got := distinct([]Target{{1, 2}, {0, 5}, {1, 2}, {0, 4}})
	if len(got) != 3 || got[0].Offset != 2 || got[1].Offset != 5 || got[2].Offset != 4 {
		t.Errorf("got %v", got)
	}
	if !slices.Equal(distinct(nil), nil) {
		t.Error("nothing is nothing")
	}
}
