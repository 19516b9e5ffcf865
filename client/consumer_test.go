package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// consumerBubble runs a test in fake time.
func consumerBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// handled notes what handlers have done.
type handled struct {
	mu   sync.Mutex
	list []string // "topic/partition@offset"
}

func (h *handled) handle(_ context.Context, r *GroupRecord) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = append(h.list, fmt.Sprintf("%s/%d@%d", r.Topic, r.Partition, r.Offset))
	return nil
}

func (h *handled) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.list)
}

// twice lists what was handled more than once.
func (h *handled) twice() (out []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	seen := map[string]bool{}
	for _, s := range h.list {
		if seen[s] {
			out = append(out, s)
		}
		seen[s] = true
	}
	return out
}

// running is a consumer whose Run goes on.
type running struct {
	*Consumer
	t     *testing.T
	wire  *fakeWire
	ended chan error
}

func (f *fakeGroups) run(t *testing.T, handle func(context.Context, *GroupRecord) error, opts ...ConsumerOption) *running {
	t.Helper()
	r := f.make(t, opts...)
	go func() { r.ended <- r.Run(t.Context(), handle) }()
	return r
}

func (f *fakeGroups) make(t *testing.T, opts ...ConsumerOption) *running {
	t.Helper()
	c, wire := f.client(nil)
	var topics []string
	for topic := range f.topics {
		topics = append(topics, topic)
	}
	slices.Sort(topics)
	k, err := NewConsumer(c, "g", topics, append([]ConsumerOption{WithConsumerStart("earliest")}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return &running{k, t, wire, make(chan error, 1)}
}

// close ends it and wants no error.
func (r *running) close() {
	r.t.Helper()
	if err := r.Close(); err != nil {
		r.t.Error(err)
	}
	if err := <-r.ended; err != nil {
		r.t.Error(err)
	}
	if s := r.Stats(); s.State != "closed" || s.Partitions != 0 {
		r.t.Errorf("%+v", s)
	}
}

// within waits, in fake time, until f is true.
func within(t *testing.T, d time.Duration, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(d); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %s", what, d)
		}
	}
}

func TestConsumerHandlesAndCommits(t *testing.T) {
	consumerBubble(t, func(t *testing.T) {
		f := newFakeGroups(t, map[string]int{"a": 3, "b": 1})
		for i := range 90 {
			f.publish("a", i%3, fmt.Sprint("k", i%7), "v")
		}
		f.publish("b", 0, "", "v")
		got := &handled{}
		var assigned []GroupOffset
		var revoked, lost []TopicPartition
		k := f.run(t, got.handle, WithConsumerOnAssigned(func(p []GroupOffset) { assigned = append(assigned, p...) }),
			WithConsumerOnRevoked(func(p []TopicPartition) { revoked = append(revoked, p...) }),
			WithConsumerOnLost(func(p []TopicPartition) { lost = append(lost, p...) }))
		within(t, 3*time.Second, "everything is committed", func() bool { return f.lag() == 0 })
		f.publish("b", 0, "", "w") // a long poll has it at once
		within(t, 50*time.Millisecond, "the record is handled", func() bool { return got.len() == 92 })
		s := k.Stats()
		if s.State != "stable" || s.Partitions != 4 || s.Records != 92 || s.Read != 92 || s.Lag != 0 || s.Buffered != 0 || s.Bytes == 0 {
			t.Errorf("%+v", s)
		}
		for _, p := range k.Partitions() {
			if p.Done != p.Head || p.Lag != 0 || p.Revoked {
				t.Errorf("%+v", p)
			}
		}
		begun := time.Now()
		k.close()
		if took := time.Since(begun); took > 100*time.Millisecond {
			t.Errorf("closing took %s", took)
		}
		if f.lag() != 0 || f.memberCount() != 0 || len(got.twice()) != 0 {
			t.Errorf("lag %d, %d members, twice %v", f.lag(), f.memberCount(), got.twice())
		}
		if len(assigned) != 4 || len(revoked) != 4 || len(lost) != 0 {
			t.Errorf("assigned %v, revoked %v, lost %v", assigned, revoked, lost)
		}
	})
}

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

func TestConsumerFailures(t *testing.T) {
	bad := errors.New("bad record")
	consumerBubble(t, func(t *testing.T) {
		f := newFakeGroups(t, map[string]int{"a": 1})
		for i := range 10 {
			f.publish("a", 0, fmt.Sprint("k", i%2), "v")
		}
		got, times := &handled{}, 0
		failing := func(ctx context.Context, r *GroupRecord) error {
			if r.Offset == 4 {
				if times++; times < 4 {
					return bad
				}
			}
			return got.handle(ctx, r)
		}
		k := f.run(t, failing, WithConsumerConcurrency(1))
		err := <-k.ended
		var failed *HandlerError
		if !errors.As(err, &failed) || !errors.Is(err, bad) || failed.Offset != 4 || f.at("a", 0) != 4 || f.memberCount() != 0 {
			t.Errorf("%v, committed %d", err, f.at("a", 0))
		}
		// Again with pauses, in place.
		begun := time.Now()
		var attempts []int
		k = f.run(t, failing, WithConsumerBackoff(time.Second, 10*time.Second), WithConsumerFailure(func(_ context.Context, _ *GroupRecord, _ error, n int) FailureAction {
			attempts = append(attempts, n)
			return FailureRetry
		}))
		within(t, 10*time.Second, "all is committed", func() bool { return f.lag() == 0 })
		if took := time.Since(begun); took < 1500*time.Millisecond || !slices.Equal(attempts, []int{1, 2}) {
			t.Errorf("%v in %s", attempts, took)
		}
		k.close()
		if len(got.twice()) > 0 || got.len() != 10 {
			t.Errorf("%v", got.list)
		}
		// Passed over.
		f.publish("a", 0, "k", "v")
		k = f.run(t, func(context.Context, *GroupRecord) error { return bad },
			WithConsumerFailure(func(context.Context, *GroupRecord, error, int) FailureAction { return FailureSkip }))
		within(t, 3*time.Second, "it is committed", func() bool { return f.lag() == 0 })
		if s := k.Stats(); s.Skipped != 1 || s.Failures != 1 {
			t.Errorf("%+v", s)
		}
		k.close()
	})
}

// TestConsumerPoll: the loop is the caller's.
func TestConsumerPoll(t *testing.T) {
	consumerBubble(t, func(t *testing.T) {
		f := newFakeGroups(t, map[string]int{"a": 2})
		for i := range 50 {
			f.publish("a", i%2, "k", "v")
		}
		k := f.make(t, WithConsumerPollRecords(10), WithConsumerCommit(time.Hour, 0), WithConsumerGrace(3*time.Second))
		seen := map[int32]int64{}
		var held []*GroupRecord
		for n := 0; n < 50; {
			batches, err := k.Poll(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range batches {
				for _, r := range b.Records {
					if r.Offset != seen[b.Partition] || r.Partition != b.Partition || b.Context().Err() != nil {
						t.Fatalf("%d of partition %d, want %d", r.Offset, b.Partition, seen[b.Partition])
					}
					seen[b.Partition]++
					n++
					if b.Partition == 1 && r.Offset == 20 {
						held = append(held, r)
					} else {
						k.Mark(r)
					}
				}
			}
		}
		if f.lag() != 50 {
			t.Errorf("committed already: lag %d", f.lag())
		}
		if err := k.Commit(t.Context()); err != nil || f.at("a", 0) != 25 || f.at("a", 1) != 20 {
			t.Errorf("%v, committed %d and %d", err, f.at("a", 0), f.at("a", 1))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if batches, err := k.Poll(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, %v", batches, err)
		}
		cancel()
		k.Mark(held...)
		k.Mark(held...)
		if err := k.Close(); err != nil || f.lag() != 0 || f.memberCount() != 0 {
			t.Errorf("%v, lag %d", err, f.lag())
		}
		if _, err := k.Poll(t.Context()); !errors.Is(err, ErrConsumerClosed) {
			t.Errorf("a poll after the end: %v", err)
		}
		if err := k.Run(t.Context(), nil); !errors.Is(err, ErrConsumerClosed) {
			t.Errorf("a run after the end: %v", err)
		}
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestConsumerEndsHandlers: those that do not return in time when the consumer is closed, or a partition is revoked, and only those.
func TestConsumerEndsHandlers(t *testing.T) {
	consumerBubble(t, func(t *testing.T) {
		f := newFakeGroups(t, map[string]int{"a": 2})
		causes := make(chan error, 10)
		stuck := func(ctx context.Context, r *GroupRecord) error {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return ctx.Err()
		}
		a := f.run(t, stuck, WithConsumerGrace(5*time.Second))
		within(t, time.Second, "it has them", func() bool { return a.Stats().Partitions == 2 })
		f.publish("a", 0, "k", "v")
		f.publish("a", 1, "k", "v")
		synctest.Wait()
		b := f.run(t, stuck, WithConsumerGrace(2*time.Second))
		begun := time.Now()
		if err := <-causes; !errors.Is(err, ErrPartitionRevoked) || time.Since(begun) < 5*time.Second {
			t.Errorf("%v after %s", err, time.Since(begun))
		}
		within(t, 10*time.Second, "b has one", func() bool { return b.Stats().Partitions == 1 && b.Stats().Read == 1 })
		begun = time.Now()
		a.close()
		if err := <-causes; !errors.Is(err, ErrConsumerClosed) || time.Since(begun) < 5*time.Second || time.Since(begun) > 6*time.Second {
			t.Errorf("%v after %s", err, time.Since(begun))
		}
		b.close()
		if f.lag() != 2 || len(causes) < 1 {
			t.Errorf("lag %d: what was ended is committed", f.lag())
		}
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

// TestConsumerCommitsAgain: a commit that nobody waits for any more comes into effect behind a later one. The group gets its place back.
func TestConsumerCommitsAgain(t *testing.T) {
	consumerBubble(t, func(t *testing.T) {
		f := newFakeGroups(t, map[string]int{"a": 1})
		got := &handled{}
		k := f.run(t, got.handle)
		once := false
		k.wire.cause = func(op string) wireFault {
			if op != "offsets" || once {
				return wireFault{}
			}
			once = true
			return wireFault{late: true, delay: 15 * time.Second}
		}
		f.publish("a", 0, "k", "v")
		time.Sleep(5 * time.Second)
		f.publish("a", 0, "k", "v")
		time.Sleep(8 * time.Second)
		if f.at("a", 0) != 2 {
			t.Errorf("committed %d", f.at("a", 0))
		}
		time.Sleep(5 * time.Second)
		if f.set(func() {}); f.back != 1 || f.at("a", 0) != 2 {
			t.Errorf("went back %d times, committed %d", f.back, f.at("a", 0))
		}
		time.Sleep(time.Minute)
		n := k.Stats().Commits
		if time.Sleep(time.Minute); k.Stats().Commits != n {
			t.Error("it commits without an end")
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
		if err := k.Run(ctx, nil); err != nil || time.Since(begun) > 9*time.Second {
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

// TestConsumerBatches: in order, up to so many, as a whole.
func TestConsumerBatches(t *testing.T) {
	consumerBubble(t, func(t *testing.T) {
		f := newFakeGroups(t, map[string]int{"a": 2})
		for i := range 100 {
			f.publish("a", i%2, "", "v")
		}
		k := f.make(t)
		next, largest := map[int32]int64{}, 0
		var mu sync.Mutex
		go func() {
			k.ended <- k.RunBatches(t.Context(), 7, func(_ context.Context, records []*GroupRecord) error {
				mu.Lock()
				defer mu.Unlock()
				largest = max(largest, len(records))
				for _, r := range records {
					if r.Offset != next[r.Partition] {
						t.Errorf("%d of partition %d, want %d", r.Offset, r.Partition, next[r.Partition])
					}
					next[r.Partition]++
				}
				if records[0].Offset == 0 && records[0].Partition == 1 {
					panic("the first batch of partition 1")
				}
				return nil
			})
		}()
		err := <-k.ended
		var p *PanicError
		if !errors.As(err, &p) || f.at("a", 1) != 0 || largest != 7 {
			t.Errorf("%v, committed %d, batches of up to %d", err, f.at("a", 1), largest)
		}
		if err := k.RunBatches(t.Context(), 0, nil); err == nil {
			t.Error("batches of nothing")
		}
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
		var k *running
		k = f.run(t, func(ctx context.Context, r *GroupRecord) error {
			if r.Partition == 0 {
				time.Sleep(100 * time.Millisecond)
				highest = max(highest, k.Stats().Buffered)
				return nil
			}
			return got.handle(ctx, r)
		}, WithConsumerBuffer(1<<20))
		for i := range 40 {
			time.Sleep(200 * time.Millisecond)
			f.publish("a", 1+i%7, "k", "v")
			within(t, 20*time.Millisecond, "another partition is read", func() bool { return got.len() == i+1 })
		}
		if highest > 1<<20 || highest < 1<<14 {
			t.Errorf("buffered %d bytes", highest)
		}
		k.close()
	})
}

// TestConsumerStartAndClose: in any order, from anywhere, again.
func TestConsumerStartAndClose(t *testing.T) {
	consumerBubble(t, func(t *testing.T) {
		f := newFakeGroups(t, map[string]int{"a": 3})
		for i := range 30 {
			k := f.make(t)
			var all sync.WaitGroup
			ctx, cancel := context.WithCancel(t.Context())
			for j := range 6 {
				all.Go(func() {
					time.Sleep(time.Duration((i*7+j*13)%11) * time.Millisecond)
					switch j {
					case 0, 1:
						_ = k.Close()
					case 2:
						cancel()
					case 3:
						_ = k.Commit(ctx)
						_ = k.Stats()
						_ = k.Partitions()
					case 4:
						_ = k.Run(ctx, func(context.Context, *GroupRecord) error { return nil })
					case 5:
						_, _ = k.Poll(ctx)
					}
				})
			}
			all.Wait()
			cancel()
			if err := k.Close(); err != nil {
				t.Error(err)
			}
			if n := f.memberCount(); n != 0 {
				t.Fatalf("%d members are left", n)
			}
		}
	})
}
