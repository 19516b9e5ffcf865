package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
		var unfinished *UnfinishedError
		if err := a.Close(); !errors.As(err, &unfinished) || unfinished.Offset != 0 || unfinished.Repeats != 0 || <-a.ended != err {
			t.Errorf("close: %v", err)
		}
		if err := <-causes; !errors.Is(err, ErrConsumerClosed) || time.Since(begun) < 5*time.Second || time.Since(begun) > 6*time.Second {
			t.Errorf("%v after %s", err, time.Since(begun))
		}
		if err := b.Close(); !errors.As(err, &unfinished) || <-b.ended != err {
			t.Errorf("close: %v", err)
		}
		if f.lag() != 2 || len(causes) < 1 {
			t.Errorf("lag %d: what was ended is committed", f.lag())
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
