package metadata_test

import (
	"testing"
	"testing/synctest"
)

func TestTopicChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(t)
		a, b := f.open(), f.open()
		topic, other := a.topic(t, "acme", "orders", 3), a.topic(t, "acme", "bills", 1)
		b.head(t, topic, 0)
		b.head(t, other, 0)
		closed := func(ch <-chan struct{}) bool {
			synctest.Wait()
			select {
			case <-ch:
				return true
			default:
				return false
			}
		}
		for p := range int32(3) {
			ch, release := b.TopicChanged(topic.ID)
			gone, releaseGone := b.TopicChanged(topic.ID)
			releaseGone()
			if closed(ch) {
				t.Fatalf("partition %d: woken before a change", p)
			}
			a.commit(t, batch{other, 0, 1})
			if closed(ch) {
				t.Fatalf("partition %d: woken by another topic", p)
			}
			a.commit(t, batch{topic, p, 1})
			if !closed(ch) {
				t.Errorf("partition %d: its commit did not wake who waits for the topic", p)
			}
			if closed(gone) {
				t.Errorf("partition %d: a released waiter was woken", p)
			}
			release()
		}
		ch, release := b.TopicChanged(topic.ID)
		defer release()
		if err := a.DeleteTopic(t.Context(), "acme", "orders"); err != nil {
			t.Fatal(err)
		}
		if !closed(ch) {
			t.Error("the topic's end did not wake who waits for it")
		}
		if ch, release := b.TopicChanged(topic.ID); !closed(ch) {
			t.Error("there is no topic, and the channel is open")
		} else {
			release()
		}
	})
}
