package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestConsumersHandOver: one that comes gets its share, nothing is handled twice, and what stays is read on meanwhile, even while a handler takes its time
// with what is to go.
func TestConsumersHandOver(t *testing.T) {
	consumerBubble(t, func(t *testing.T) {
		f := newFakeGroups(t, map[string]int{"a": 4})
		got, release := &handled{}, make(chan struct{})
		slow := func(ctx context.Context, r *GroupRecord) error {
			if string(r.Value) == "slow" {
				<-release
			}
			return got.handle(ctx, r)
		}
		a := f.run(t, slow)
		within(t, time.Second, "a has them", func() bool { return a.Stats().Partitions == 4 })
		for p := range 4 {
			f.publish("a", p, "k", "slow")
			f.publish("a", p, "k", "next")
		}
		synctest.Wait()
		b := f.run(t, slow)
		within(t, 5*time.Second, "a is asked for two", func() bool { return a.Stats().State == "revoking" })
		var stays []int32
		for _, p := range a.Partitions() {
			if !p.Revoked {
				stays = append(stays, p.Partition)
			}
		}
		f.publish("a", int(stays[0]), "other", "v")
		within(t, 50*time.Millisecond, "what stays goes on", func() bool { return got.len() == 1 })
		time.Sleep(8 * time.Second)
		if b.Stats().Partitions != 0 || got.len() != 1 {
			t.Errorf("b has %d partitions, %d handled", b.Stats().Partitions, got.len())
		}
		close(release)
		within(t, 5*time.Second, "b has its share", func() bool { return b.Stats().Partitions == 2 && f.lag() == 0 })
		if len(got.twice()) > 0 || got.len() != 9 {
			t.Errorf("%v", got.list)
		}
		a.close()
		within(t, 5*time.Second, "b has all", func() bool { return b.Stats().Partitions == 4 })
		b.close()
		if f.refused["NOT_OWNER"] > 0 {
			t.Errorf("refused %v", f.refused)
		}
	})
}

// TestConsumerLosesItsSession: no heartbeat comes through for a session. Handlers end with the cause, nothing of theirs is committed, and the
// consumer begins again where the group is committed.
func TestConsumerLosesItsSession(t *testing.T) {
	consumerBubble(t, func(t *testing.T) {
		f := newFakeGroups(t, map[string]int{"a": 2})
		for i := range 20 {
			f.publish("a", i%2, "k", "v")
		}
		var mu sync.Mutex
		var causes []error
		var lost []TopicPartition
		lostAt := time.Time{}
		blocked := true
		got := &handled{}
		k := f.run(t, func(ctx context.Context, r *GroupRecord) error {
			mu.Lock()
			b := blocked
			mu.Unlock()
			if b && r.Offset == 3 {
				<-ctx.Done()
				mu.Lock()
				defer mu.Unlock()
				causes, lostAt = append(causes, context.Cause(ctx)), time.Now()
				return nil // it does not help: this is not done
			}
			return got.handle(ctx, r)
		}, WithConsumerOnLost(func(p []TopicPartition) {
			mu.Lock()
			defer mu.Unlock()
			lost = append(lost, p...)
		}), WithConsumerOrder(OrderByPartition))
		time.Sleep(2 * time.Second)
		other := f.run(t, got.handle)
		k.wire.setCut(true)
		begun := time.Now()
		within(t, 12*time.Second, "the session lapses", func() bool { mu.Lock(); defer mu.Unlock(); return len(causes) == 2 })
		mu.Lock()
		if took := lostAt.Sub(begun); took > 10*time.Second {
			t.Errorf("noticed after %s", took)
		}
		if len(lost) != 2 || !errors.Is(causes[0], ErrPartitionLost) || k.Stats().Lapses != 1 {
			t.Errorf("lost %v, %v, %+v", lost, causes, k.Stats())
		}
		mu.Unlock()
		within(t, 5*time.Second, "the other one has finished", func() bool { return f.lag() == 0 })
		mu.Lock()
		blocked = false
		mu.Unlock()
		k.wire.setCut(false)
		within(t, 30*time.Second, "it is back", func() bool { return k.Stats().Partitions == 1 && other.Stats().Partitions == 1 })
		if len(got.twice()) > 0 || got.len() != 20 {
			t.Errorf("twice %v", got.twice())
		}
		k.close()
		other.close()
	})
}

// TestConsumerSurvivesTheLossOfLeases: all sessions are forgotten while a handler runs. The consumer joins again and goes on where it was.
func TestConsumerSurvivesTheLossOfLeases(t *testing.T) {
	consumerBubble(t, func(t *testing.T) {
		f := newFakeGroups(t, map[string]int{"a": 2})
		got, release := &handled{}, make(chan struct{})
		k := f.run(t, func(ctx context.Context, r *GroupRecord) error {
			select {
			case <-release:
			case <-ctx.Done():
				t.Error("the handler was ended")
			}
			return got.handle(ctx, r)
		})
		f.publish("a", 0, "k", "v")
		f.publish("a", 1, "k", "v")
		time.Sleep(time.Second)
		f.set(func() { f.away = true })
		time.Sleep(4 * time.Second)
		f.loseLeases()
		f.set(func() { f.away = false })
		within(t, 5*time.Second, "it has joined again", func() bool { return k.Stats().Rebalances > 1 && k.Stats().State == "stable" })
		close(release)
		within(t, 2*time.Second, "all is committed", func() bool { return f.lag() == 0 })
		if s := k.Stats(); s.Lost != 0 || s.Lapses != 0 || len(got.twice()) != 0 {
			t.Errorf("%+v", s)
		}
		// Away for longer than the session: all is lost, and comes back by itself.
		f.set(func() { f.away = true })
		time.Sleep(25 * time.Second)
		if s := k.Stats(); s.State != "joining" || s.Partitions != 0 || s.Lapses != 1 {
			t.Errorf("%+v", s)
		}
		f.set(func() { f.away = false })
		f.publish("a", 0, "k", "v")
		within(t, 10*time.Second, "it is back", func() bool { return f.lag() == 0 })
		k.close()
	})
}

// TestConsumerWaitsForItsOwnHandlers: a handler that does not notice that its partition was lost holds up the partition when it comes back to the same
// process.
func TestConsumerWaitsForItsOwnHandlers(t *testing.T) {
	consumerBubble(t, func(t *testing.T) {
		f := newFakeGroups(t, map[string]int{"a": 1})
		f.publish("a", 0, "k", "v")
		begun, release := make(chan context.Context, 2), make(chan struct{})
		k := f.run(t, func(ctx context.Context, r *GroupRecord) error {
			begun <- ctx
			<-release
			return nil
		})
		first := <-begun
		k.wire.setCut(true)
		time.Sleep(11 * time.Second)
		k.wire.setCut(false)
		within(t, 30*time.Second, "it is back", func() bool { return k.Stats().Partitions == 1 })
		time.Sleep(30 * time.Second)
		if !errors.Is(context.Cause(first), ErrPartitionLost) || len(begun) != 0 || f.lag() != 1 {
			t.Errorf("%v, %d more handlers, lag %d", context.Cause(first), len(begun), f.lag())
		}
		close(release)
		within(t, 3*time.Second, "it is handled again", func() bool { return len(begun) == 1 && f.lag() == 0 })
		k.close()
	})
}

// TestConsumerRejoinsBehindAnother: while leases were lost, somebody else has put the group on. What the consumer had is not its any more.
func TestConsumerRejoinsBehindAnother(t *testing.T) {
	consumerBubble(t, func(t *testing.T) {
		f := newFakeGroups(t, map[string]int{"a": 2})
		for i := range 20 {
			f.publish("a", i%2, fmt.Sprint("k", i%5), "v")
		}
		var causes []error
		got := &handled{}
		k := f.run(t, func(ctx context.Context, r *GroupRecord) error {
			if r.Offset == 5 && r.Partition == 0 {
				<-ctx.Done()
				causes = append(causes, context.Cause(ctx))
				return nil
			}
			return got.handle(ctx, r)
		}, WithConsumerOrder(OrderByPartition))
		time.Sleep(3 * time.Second)
		f.loseLeases()
		f.set(func() { f.committed[TopicPartition{"a", 0}] = 9 })
		within(t, 20*time.Second, "it has noticed", func() bool { return k.Stats().Lost == 1 })
		within(t, 5*time.Second, "it goes on there", func() bool { return f.at("a", 0) == 10 })
		if len(causes) != 1 || !errors.Is(causes[0], ErrPartitionLost) || f.at("a", 1) != 10 || len(got.twice()) != 0 || got.len() != 16 {
			t.Errorf("%v, committed %d, %v", causes, f.at("a", 1), got.list)
		}
		k.close()
	})
}

// TestConsumerStatic: a process that starts with the instance of another one has its partitions at once; the one before ends.
func TestConsumerStatic(t *testing.T) {
	consumerBubble(t, func(t *testing.T) {
		f := newFakeGroups(t, map[string]int{"a": 4})
		got := &handled{}
		a := f.run(t, got.handle, WithConsumerInstanceID("pod-0"))
		b := f.run(t, got.handle, WithConsumerInstanceID("pod-1"))
		calm := func(x, y *running) func() bool {
			return func() bool { return x.Stats().Partitions == 2 && y.Stats().Partitions == 2 }
		}
		within(t, 20*time.Second, "two each", calm(a, b))
		a.close()
		if f.memberCount() != 2 {
			t.Errorf("%d members after a static one was closed", f.memberCount())
		}
		again := f.run(t, got.handle, WithConsumerInstanceID("pod-0"))
		within(t, 100*time.Millisecond, "its successor has what it had", calm(again, b))
		if b.Stats().Lost != 0 {
			t.Errorf("%+v", b.Stats())
		}
		rival := f.run(t, got.handle, WithConsumerInstanceID("pod-0"), WithConsumerLeave(true))
		if err := <-again.ended; !errors.Is(err, ErrInstanceReplaced) {
			t.Errorf("the one before: %v", err)
		}
		f.loseLeases()
		within(t, 20*time.Second, "two each, again", calm(rival, b))
		rival.close()
		if f.memberCount() != 1 {
			t.Errorf("%d members", f.memberCount())
		}
		b.close()
	})
}

// TestConsumerTopicsChange: a topic gets partitions, another one is deleted; a third is not touched by that.
func TestConsumerTopicsChange(t *testing.T) {
	consumerBubble(t, func(t *testing.T) {
		f := newFakeGroups(t, map[string]int{"a": 2, "b": 2, "c": 1})
		got := &handled{}
		var lost []TopicPartition
		k := f.run(t, got.handle, WithConsumerOnLost(func(p []TopicPartition) { lost = append(lost, p...) }))
		within(t, time.Second, "it has all", func() bool { return k.Stats().Partitions == 5 })
		f.grow("a", 4)
		f.publish("a", 3, "k", "v")
		within(t, 4*time.Second, "the new ones are read", func() bool { return got.len() == 1 })
		f.publish("b", 0, "k", "v")
		f.publish("c", 0, "k", "v")
		time.Sleep(20 * time.Millisecond)
		f.set(func() {
			delete(f.topics, "b")
			close(f.news)
			f.news = make(chan struct{})
		})
		time.Sleep(1500 * time.Millisecond) // the commit of both is refused, that of c is not
		if f.at("c", 0) != 1 {
			t.Errorf("committed %d", f.at("c", 0))
		}
		f.set(func() {
			delete(f.slots, TopicPartition{"b", 0})
			delete(f.slots, TopicPartition{"b", 1})
			f.changeLocked()
		})
		within(t, 4*time.Second, "its partitions are gone", func() bool { return k.Stats().Partitions == 5 })
		if synctest.Wait(); len(lost) != 2 || k.Stats().Lapses != 0 {
			t.Errorf("lost %v", lost)
		}
		k.close()
	})
}

// TestConsumerOfATopicMadeAgain: a topic that was deleted and created again between two heartbeats is read from where the group says, whatever the consumer has
// read of its predecessor.
func TestConsumerOfATopicMadeAgain(t *testing.T) {
	for _, published := range []int{3, 30} { // fewer than the consumer has read, and more
		consumerBubble(t, func(t *testing.T) {
			f := newFakeGroups(t, map[string]int{"a": 1})
			var mu sync.Mutex
			seen := map[string]bool{}
			c := f.run(t, func(_ context.Context, r *GroupRecord) error {
				mu.Lock()
				defer mu.Unlock()
				seen[string(r.Value)] = true
				return nil
			})
			for i := range 9 {
				f.publish("a", 0, "k", fmt.Sprint("old", i))
			}
			within(t, 5*time.Second, "the first is read", func() bool { return f.lag() == 0 })
			f.again("a")
			for i := range published {
				f.publish("a", 0, "k", fmt.Sprint("new", i))
			}
			within(t, 20*time.Second, "the second is read", func() bool { return f.lag() == 0 })
			c.close()
			for i := range published {
				if !seen[fmt.Sprint("new", i)] {
					t.Errorf("of %d records of the new topic, record %d was skipped", published, i)
				}
			}
		})
	}
}

// TestConsumerRefused: what the server refuses for good ends the consumer, and what is away at the first join ends it as the retry policy says.
func TestConsumerRefused(t *testing.T) {
	consumerBubble(t, func(t *testing.T) {
		f := newFakeGroups(t, map[string]int{"a": 1})
		c, wire := f.client(nil)
		run := func(topic string) error {
			k, err := NewConsumer(c, "g", []string{topic})
			if err != nil {
				t.Fatal(err)
			}
			return k.Run(t.Context(), func(context.Context, *GroupRecord) error { return nil })
		}
		if err := run("unknown"); !errors.Is(err, ErrUnknownTopic) {
			t.Errorf("got %v", err)
		}
		f.set(func() { f.away = true })
		begun := time.Now()
		if err := run("a"); !errors.Is(err, ErrLeasesUnavailable) || time.Since(begun) > 2*time.Minute || time.Since(begun) < 2*time.Second {
			t.Errorf("%v after %s", err, time.Since(begun))
		}
		f.set(func() { f.away = false })
		wire.setCut(true)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		k := f.make(t)
		k.wire.setCut(true)
		begun = time.Now()
		if err := k.Run(ctx, nil); err != nil || time.Since(begun) > 14*time.Second {
			t.Errorf("%v after %s", err, time.Since(begun))
		}
		for _, opt := range []ConsumerOption{WithConsumerStart("now"), WithConsumerSession(time.Millisecond), WithConsumerConcurrency(0), WithConsumerOrder(7),
			WithConsumerBuffer(0), WithConsumerWindow(0), WithConsumerPollRecords(0), WithConsumerCommit(0, 1), WithConsumerCommit(1, -1),
			WithConsumerGrace(-1), WithConsumerBackoff(0, 1), WithConsumerBackoff(2, 1)} {
			if _, err := NewConsumer(c, "g", []string{"a"}, opt); err == nil {
				t.Error("a faulty option was taken")
			}
		}
		if _, err := NewConsumer(c, "", nil); err == nil {
			t.Error("a consumer of nothing was made")
		}
	})
}

// TestConsumerHearsLate: a partition is to go and then stays after all. The answer that says so was given before the consumer had let it go, with the
// offset of then; the consumer has come further since.
func TestConsumerHearsLate(t *testing.T) {
	consumerBubble(t, func(t *testing.T) {
		f := newFakeGroups(t, map[string]int{"a": 2})
		got, release := &handled{}, make(chan struct{})
		slow := func(ctx context.Context, r *GroupRecord) error {
			<-release
			return got.handle(ctx, r)
		}
		a := f.run(t, slow)
		within(t, time.Second, "a has them", func() bool { return a.Stats().Partitions == 2 })
		f.publish("a", 0, "k", "v")
		f.publish("a", 1, "k", "v")
		b := f.run(t, slow)
		within(t, 5*time.Second, "a is asked for one", func() bool { return a.Stats().State == "revoking" })
		b.close()
		heard := make(chan struct{})
		once := false
		a.wire.setCause(func(op string) wireFault {
			if op != "heartbeat" || once {
				return wireFault{}
			}
			once = true
			close(heard)
			return wireFault{back: 2 * time.Second}
		})
		<-heard
		time.Sleep(100 * time.Millisecond) // the answer is on its way
		close(release)
		within(t, 8*time.Second, "it has both again", func() bool { return a.Stats().Partitions == 2 && a.Stats().State == "stable" && f.lag() == 0 })
		a.close()
		if len(got.twice()) != 0 || got.len() != 2 {
			t.Errorf("%v", got.list)
		}
	})
}

// TestConsumerGivesUpRetries: a record that waits to be handled again does not hold up its partition when that is revoked, nor the end.
func TestConsumerGivesUpRetries(t *testing.T) {
	consumerBubble(t, func(t *testing.T) {
		f := newFakeGroups(t, map[string]int{"a": 2})
		f.publish("a", 0, "k", "v")
		f.publish("a", 1, "k", "v")
		again := []ConsumerOption{WithConsumerBackoff(time.Hour, time.Hour), WithConsumerGrace(time.Hour),
			WithConsumerFailure(func(context.Context, *GroupRecord, error, int) FailureAction { return FailureRetry })}
		fails := func(context.Context, *GroupRecord) error { return errors.New("not now") }
		a := f.run(t, fails, again...)
		within(t, time.Second, "both have failed", func() bool { return a.Stats().Failures == 2 })
		b := f.run(t, fails, again...)
		within(t, 10*time.Second, "b has one", func() bool { return b.Stats().Failures == 1 })
		begun := time.Now()
		a.close()
		b.close()
		if took := time.Since(begun); took > time.Second || f.lag() != 2 {
			t.Errorf("closing took %s, lag %d", took, f.lag())
		}
	})
}
