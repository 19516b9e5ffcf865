package client

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestConsumerGap(t *testing.T) {
	consumerBubble(t, func(t *testing.T) {
		f := newFakeGroups(t, map[string]int{"a": 1})
		for range 20 {
			f.publish("a", 0, "k", "v")
		}
		f.set(func() { f.topics["a"][0].start = 8; f.committed[TopicPartition{"a", 0}] = 3 })
		got := &handled{}
		k := f.run(t, got.handle)
		err := <-k.ended
		var gap *GapError
		if !errors.As(err, &gap) || gap.Gap != (Gap{Topic: "a", From: 3, To: 8}) || !errors.Is(err, ErrRetentionGap) || got.len() != 0 || f.at("a", 0) != 3 {
			t.Errorf("%v, handled %d", err, got.len())
		}
		asked := 0
		k = f.run(t, got.handle, WithConsumerGap(func(_ context.Context, g Gap) GapAction { asked++; return GapSkip }))
		within(t, 2*time.Second, "the rest is committed", func() bool { return f.lag() == 0 })
		if s := k.Stats(); asked != 1 || got.len() != 12 || s.Gaps != 1 || s.GapRecords != 5 {
			t.Errorf("asked %d, handled %d, %+v", asked, got.len(), s)
		}
		k.close()
		// A skip is committed where nothing else is.
		f.set(func() { f.topics["a"][0].start = 20; f.committed[TopicPartition{"a", 0}] = 10 })
		k = f.run(t, got.handle, WithConsumerGap(func(context.Context, Gap) GapAction { return GapSkip }), WithConsumerCommit(time.Hour, 0))
		within(t, time.Second, "the skip is committed", func() bool { return f.at("a", 0) == 20 })
		k.close()
	})
}

// TestConsumerStarvesNobody: one partition has much and is slow, the buffer is small, and the others are read all the same.
func TestConsumerStarvesNobody(t *testing.T) {
	consumerBubble(t, func(t *testing.T) {
		f := newFakeGroups(t, map[string]int{"a": 8})
		big := strings.Repeat("x", 10_000)
		for range 500 {
			f.publish("a", 0, "k", big)
		}
		got := &handled{}
		highest := int64(0)
		k := f.run(t, func(ctx context.Context, r *GroupRecord) error {
			if r.Partition == 0 {
				time.Sleep(100 * time.Millisecond)
				return nil
			}
			return got.handle(ctx, r)
		}, WithConsumerBuffer(1<<20))
		for i := range 40 {
			time.Sleep(200 * time.Millisecond)
			highest = max(highest, k.Stats().Buffered)
			f.publish("a", 1+i%7, "k", "v")
			within(t, 20*time.Millisecond, "another partition is read", func() bool { return got.len() == i+1 })
		}
		if highest > 1<<20 || highest < 1<<14 {
			t.Errorf("buffered %d bytes", highest)
		}
		k.close()
	})
}

// TestConsumerTakesTurns: with more partitions than reads at a time, each is read within a few turns.
func TestConsumerTakesTurns(t *testing.T) {
	consumerBubble(t, func(t *testing.T) {
		const partitions = 3 * consumerSlots
		f := newFakeGroups(t, map[string]int{"a": partitions})
		got := &handled{}
		k := f.run(t, got.handle)
		within(t, time.Second, "it has them", func() bool { return k.Stats().Partitions == partitions })
		for i := range 5 {
			time.Sleep(137 * time.Millisecond)
			for p := range partitions {
				f.publish("a", p, "k", "v")
			}
			within(t, 5*consumerTurn, "all are read", func() bool { return got.len() == (i+1)*partitions })
		}
		k.close()
		if f.lag() != 0 || len(got.twice()) != 0 {
			t.Errorf("lag %d, twice %v", f.lag(), got.twice())
		}
	})
}

// TestConsumerAndRubbish: an answer of a read that contradicts itself moves nobody beyond the head, and a heartbeat interval that would end the session, or
// flood the server, is not taken.
func TestConsumerAndRubbish(t *testing.T) {
	consumerBubble(t, func(t *testing.T) {
		f := newFakeGroups(t, map[string]int{"a": 1})
		k := f.make(t)
		for given, want := range map[time.Duration]time.Duration{
			0: 10 * time.Second / 3, -1: 10 * time.Second / 3, time.Hour: 10 * time.Second / 3, 1: consumerBeatPause, 2 * time.Second: 2 * time.Second,
		} {
			if got := k.joined(time.Now(), &Membership{Generation: 1, HeartbeatInterval: given}); got != want {
				t.Errorf("an interval of %s becomes %s", given, got)
			}
		}
		k.mu.Lock()
		k.mu.phase = phaseRunning
		k.base = t.Context()
		p := k.addLocked(TopicPartition{"a", 0}, "", 10)
		p.state = partitionReading
		k.assignLocked([]GroupOffset{{Topic: "a", Partition: 1, Offset: -1}}, nil)
		if len(k.mu.owned) != 1 {
			t.Error("a partition without a place was taken")
		}
		k.mu.Unlock()
		for _, c := range []struct {
			result ReadResult
			next   int64
		}{
			{ReadResult{NextOffset: 3, Head: 20}, 10},
			{ReadResult{NextOffset: 1 << 40, Head: 12}, 12},
			{ReadResult{Records: []Record{{Offset: 4}, {Offset: 12}, {Offset: 11}}, NextOffset: 0, Head: 0}, 13},
			{ReadResult{NextOffset: 15, Head: 15}, 15},
		} {
			if next := k.accept(p, p.window.next, &c.result); next != c.next || p.window.next != c.next {
				t.Errorf("%+v: read on at %d, want %d", c.result, next, c.next)
			}
		}
		if p.window.len() != 1 {
			t.Errorf("%d records were taken", p.window.len())
		}
		p.end(nil)
	})
}
