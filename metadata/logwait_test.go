package metadata_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebaymq/forebay/metadata"
)

func TestChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(t)
		a, b := f.open(), f.open()
		topic := a.topic(t, "acme", "orders", 2)
		a.commit(t, batch{topic, 0, 3})
		b.head(t, topic, 0)
		closed := func(ch <-chan struct{}) bool {
			synctest.Wait()
			select {
			case <-ch:
				return true
			default:
				return false
			}
		}
		below, release := b.Changed(topic.ID, 0, 2)
		defer release()
		if !closed(below) {
			t.Error("the head is above the offset already, and the waiter was not woken")
		}
		if ch, release := b.Changed(topic.ID+4, 0, 0); !closed(ch) {
			t.Error("the topic does not exist, and the waiter was not woken")
		} else {
			release()
		}
		next, releaseNext := b.Changed(topic.ID, 0, 3)
		defer releaseNext()
		far, releaseFar := b.Changed(topic.ID, 0, 5)
		defer releaseFar()
		other, releaseOther := b.Changed(topic.ID, 1, 0)
		defer releaseOther()
		gone, releaseGone := b.Changed(topic.ID, 0, 3)
		releaseGone()
		releaseGone() // twice does no harm
		if closed(next) || closed(far) || closed(other) {
			t.Error("a waiter was woken without a change")
		}
		a.commit(t, batch{topic, 0, 1})
		if !closed(next) || closed(far) || closed(other) || closed(gone) {
			t.Error("after one record: want the waiter at 3 woken, and only that one")
		}
		a.commit(t, batch{topic, 0, 2})
		if !closed(far) || closed(other) {
			t.Error("after the head has passed 5: want the waiter at 5 woken")
		}
		if _, err := a.Do(t.Context(), &metadata.Trim{TopicID: topic.ID, LogStart: 2}, nil); err != nil {
			t.Fatal(err)
		}
		if closed(other) {
			t.Error("a trim of partition 0 woke a waiter of partition 1")
		}
		trimmed, releaseTrimmed := b.Changed(topic.ID, 0, 6)
		defer releaseTrimmed()
		if closed(trimmed) {
			t.Error("woken without a change")
		}
		if _, err := a.Do(t.Context(), &metadata.Trim{TopicID: topic.ID, LogStart: 3}, nil); err != nil {
			t.Fatal(err)
		}
		if !closed(trimmed) {
			t.Error("logStart has moved, and the waiter was not woken")
		}
		if err := a.DeleteTopic(t.Context(), "acme", "orders"); err != nil {
			t.Fatal(err)
		}
		if !closed(other) {
			t.Error("the topic was deleted, and the waiter was not woken")
		}
	})
}

// Waiters that come and go beside commits are never left behind.
func TestChangedRace(t *testing.T) {
	f := newFabric(t)
	a := f.open()
	topic := a.topic(t, "acme", "orders", 1)
	const n = 300
	done := make(chan int64)
	for range 8 {
		go func() {
			var at int64
			for at < n {
				ch, release := a.Changed(topic.ID, 0, at)
				select {
				case <-ch:
				case <-time.After(30 * time.Second):
					t.Error("a waiter was left behind")
					release()
					done <- at
					return
				}
				release()
				info, err := a.Partition(topic.ID, 0)
				if err != nil || info.Head <= at {
					t.Errorf("woken at %d with %+v, %v", at, info, err)
				}
				at = info.Head
			}
			done <- at
		}()
	}
	for range n {
		a.commit(t, batch{topic, 0, 1})
	}
	for range 8 {
		if at := <-done; at != n {
			t.Errorf("a waiter ended at %d, want %d", at, n)
		}
	}
}
