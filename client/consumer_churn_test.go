package client

import (
	"fmt"
	"testing"
	"time"
)

// TestConsumerInARestlessGroup: every commit meets a generation that has begun since, for many sessions. The consumer goes on, and commits when there is peace.
func TestConsumerInARestlessGroup(t *testing.T) {
	consumerBubble(t, func(t *testing.T) {
		f := newFakeGroups(t, map[string]int{"a": 2})
		for i := range 50 {
			f.publish("a", i%2, fmt.Sprint("k", i), "v")
		}
		got := &handled{}
		k := f.run(t, got.handle, WithConsumerSession(time.Second))
		k.wire.setCause(func(op string) wireFault {
			if op == "offsets" {
				f.set(f.changeLocked)
			}
			return wireFault{}
		})
		time.Sleep(20 * time.Second)
		if got.len() != 50 || f.lag() != 50 {
			t.Errorf("handled %d, lag %d", got.len(), f.lag())
		}
		k.wire.setCause(nil)
		within(t, 2*time.Second, "all is committed", func() bool { return f.lag() == 0 })
		k.close()
		if again := got.twice(); len(again) != 0 {
			t.Errorf("handled twice: %v", again)
		}
	})
}
