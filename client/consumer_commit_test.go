package client

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// TestConsumerCommitsThePrefix: records done behind one that is not are not committed, and the window bounds them.
func TestConsumerCommitsThePrefix(t *testing.T) {
	consumerBubble(t, func(t *testing.T) {
		f := newFakeGroups(t, map[string]int{"a": 1})
		for i := range 1000 {
			f.publish("a", 0, fmt.Sprint("k", i), "v")
		}
		got, release := &handled{}, make(chan struct{})
		k := f.run(t, func(ctx context.Context, r *GroupRecord) error {
			if r.Offset == 5 {
				<-release
			}
			return got.handle(ctx, r)
		}, WithConsumerWindow(100))
		time.Sleep(5 * time.Second)
		if f.at("a", 0) != 5 || got.len() < 40 || got.len() > 100 {
			t.Errorf("committed %d, handled %d", f.at("a", 0), got.len())
		}
		close(release)
		within(t, 3*time.Second, "all is committed", func() bool { return f.lag() == 0 })
		k.close()
	})
}

// TestConsumerCommitsAgain: a commit that nobody waits for any more comes into effect behind a later one. The group gets its place back.
func TestConsumerCommitsAgain(t *testing.T) {
	consumerBubble(t, func(t *testing.T) {
		f := newFakeGroups(t, map[string]int{"a": 1})
		got := &handled{}
		k := f.run(t, got.handle)
		once := false
		k.wire.setCause(func(op string) wireFault {
			if op != "offsets" || once {
				return wireFault{}
			}
			once = true
			return wireFault{late: true, delay: 15 * time.Second}
		})
		f.publish("a", 0, "k", "v")
		time.Sleep(5 * time.Second)
		f.publish("a", 0, "k", "v")
		time.Sleep(8 * time.Second)
		if f.at("a", 0) != 2 {
			t.Errorf("committed %d", f.at("a", 0))
		}
		time.Sleep(5 * time.Second)
		if back := f.wentBack(); back != 1 || f.at("a", 0) != 2 {
			t.Errorf("went back %d times, committed %d", back, f.at("a", 0))
		}
		time.Sleep(time.Minute)
		n := k.Stats().Commits
		if time.Sleep(time.Minute); k.Stats().Commits != n {
			t.Error("it commits without an end")
		}
		k.close()
	})
}

// TestConsumerFencesItself: the session lapses for the consumer, but not for the server, which had the heartbeats and whose answers were lost. A commit
// of before, still on its way, does not put back what is committed after the consumer has joined again.
func TestConsumerFencesItself(t *testing.T) {
	consumerBubble(t, func(t *testing.T) {
		f := newFakeGroups(t, map[string]int{"a": 1})
		got := &handled{}
		k := f.run(t, got.handle, WithConsumerSession(4*time.Second))
		within(t, time.Second, "it has it", func() bool { return k.Stats().Partitions == 1 })
		k.wire.setCause(func(op string) wireFault {
			if op == "offsets" {
				return wireFault{late: true, delay: 7 * time.Second}
			}
			return wireFault{after: op == "heartbeat"}
		})
		f.publish("a", 0, "k", "v")
		within(t, 5*time.Second, "the session lapses", func() bool { return k.Stats().Lapses == 1 })
		k.wire.setCause(nil)
		f.publish("a", 0, "k", "v")
		f.publish("a", 0, "k", "v")
		within(t, 4*time.Second, "all is committed", func() bool { return f.lag() == 0 })
		f.late.Wait()
		if back := f.wentBack(); back != 0 || f.refused["STALE_GENERATION"] == 0 || f.at("a", 0) != 3 {
			t.Errorf("went back %d times, refused %v, committed %d", back, f.refused, f.at("a", 0))
		}
		k.close()
	})
}
