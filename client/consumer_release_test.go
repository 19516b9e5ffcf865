package client

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"
)

// slowKey is a handler that takes long for one key and no time for others.
func slowKey(got *handled, d time.Duration) func(context.Context, *GroupRecord) error {
	return func(ctx context.Context, r *GroupRecord) error {
		if string(r.Key) == "slow" && !consumerSleep(ctx, d) {
			return ctx.Err()
		}
		return got.handle(ctx, r)
	}
}

func (f *fakeGroups) publishSlow(partition, slow, fast int) {
	for range slow {
		f.publish("a", partition, "slow", "v")
	}
	for i := range fast {
		f.publish("a", partition, fmt.Sprint("fast", i%20), "v")
	}
}

// TestConsumerRepeatsNothing: one key is slow, and most of what is behind it is done, when the consumer is closed, its Run ends, or another one joins. What waits
// for its key is still handled, so that all that is done is committed.
func TestConsumerRepeatsNothing(t *testing.T) {
	for _, concurrency := range []int{1, 16} {
		t.Run(fmt.Sprint("concurrency ", concurrency), func(t *testing.T) {
			consumerBubble(t, func(t *testing.T) {
				f := newFakeGroups(t, map[string]int{"a": 2})
				f.publishSlow(0, 3, 997)
				f.publishSlow(1, 3, 997)
				got := &handled{}
				a := f.run(t, slowKey(got, 400*time.Millisecond), WithConsumerConcurrency(concurrency), WithConsumerCommit(time.Hour, 0))
				within(t, 2*time.Second, "many are done", func() bool { return got.len() > 10 })
				var atRevoke []int64
				b := f.run(t, slowKey(got, 400*time.Millisecond), WithConsumerOnRevoked(func(p []TopicPartition) { atRevoke = append(atRevoke, f.at("a", int(p[0].Partition))) }))
				within(t, 10*time.Second, "each has one", func() bool { return a.Stats().Partitions == 1 && b.Stats().Partitions == 1 })
				f.publishSlow(0, 3, 100)
				f.publishSlow(1, 3, 100)
				time.Sleep(600 * time.Millisecond)
				a.close()
				within(t, 10*time.Second, "b has both", func() bool { return b.Stats().Partitions == 2 })
				f.publishSlow(0, 3, 100)
				time.Sleep(600 * time.Millisecond)
				b.close()
				if len(atRevoke) != 2 || atRevoke[0]+atRevoke[1] < 2200 {
					t.Errorf("committed %v at the end", atRevoke)
				}
				c := f.run(t, got.handle)
				within(t, 2*time.Second, "all is committed", func() bool { return c.Stats().Partitions == 2 && f.lag() == 0 })
				c.close()
				if again := got.twice(); len(again) != 0 || got.len() != 2*1103+103 {
					t.Errorf("%d handled, %d twice", got.len(), len(again))
				}
			})
		})
	}
}

// TestConsumerReleaseBeginsNothingBehind: what comes after the last record that was begun is left to the next owner.
func TestConsumerReleaseBeginsNothingBehind(t *testing.T) {
	consumerBubble(t, func(t *testing.T) {
		f := newFakeGroups(t, map[string]int{"a": 1})
		f.publishSlow(0, 2, 1)
		f.publishSlow(0, 50, 0)
		got := &handled{}
		a := f.run(t, slowKey(got, time.Second))
		time.Sleep(500 * time.Millisecond)
		begun := time.Now()
		a.close()
		if took := time.Since(begun); f.at("a", 0) != 3 || got.len() != 3 || took > 2*time.Second {
			t.Errorf("committed %d, handled %v, in %s", f.at("a", 0), got.list, took)
		}
	})
}

// TestConsumerSaysWhatComesAgain: the time to finish is over before what waits for its key is done. Close and Run say so, or, where the partition goes to
// somebody else, the counts.
func TestConsumerSaysWhatComesAgain(t *testing.T) {
	consumerBubble(t, func(t *testing.T) {
		f := newFakeGroups(t, map[string]int{"a": 2})
		got := &handled{}
		var told []error
		f.publishSlow(0, 100, 50)
		f.publishSlow(1, 100, 50)
		a := f.run(t, slowKey(got, time.Second), WithConsumerGrace(3*time.Second), WithConsumerNotify(func(err error) { told = append(told, err) }))
		time.Sleep(500 * time.Millisecond)
		b := f.run(t, slowKey(got, time.Second))
		within(t, 20*time.Second, "b has one", func() bool { return b.Stats().Partitions == 1 })
		var unfinished *UnfinishedError
		if s := a.Stats(); s.Repeats != 50 || len(told) != 1 || !errors.As(told[0], &unfinished) || unfinished.Repeats != 50 {
			t.Errorf("%d come again, told %v", s.Repeats, told)
		}
		err := a.Close()
		if !errors.As(err, &unfinished) || unfinished.Repeats != 50 || unfinished.Offset != f.at("a", int(unfinished.Partition)) || <-a.ended != err {
			t.Errorf("close: %v", err)
		}
		if s := a.Stats(); s.Repeats != 100 || len(told) != 1 {
			t.Errorf("%d come again, told %v", s.Repeats, told)
		}
		b.wire.setCut(true)
		within(t, 12*time.Second, "b has lost all", func() bool { return b.Stats().Lapses == 1 })
		if s := b.Stats(); s.Repeats < 50 {
			t.Errorf("%d of b come again", s.Repeats)
		}
		_ = b.Close()
	})
}

// TestConsumerFailureKeepsWhatItCan: a handler fails for good. What is before its record is done and committed, nothing more behind it is begun, and what
// was done there is counted.
func TestConsumerFailureKeepsWhatItCan(t *testing.T) {
	bad := errors.New("bad")
	consumerBubble(t, func(t *testing.T) {
		for name, fail := range map[string]func() error{
			"an error": func() error { return bad },
			"a panic":  func() error { panic(bad) },
			"an end":   func() error { runtime.Goexit(); return nil },
		} {
			f := newFakeGroups(t, map[string]int{"a": 1})
			f.publishSlow(0, 3, 1)
			f.publish("a", 0, "bad", "v") // 4
			f.publishSlow(0, 40, 10)
			got := &handled{}
			slow := slowKey(got, time.Second)
			k := f.run(t, func(ctx context.Context, r *GroupRecord) error {
				if string(r.Key) == "bad" {
					consumerSleep(ctx, 500*time.Millisecond)
					return fail()
				}
				return slow(ctx, r)
			}, WithConsumerConcurrency(2))
			err := <-k.ended
			failed, ok := errors.AsType[*HandlerError](err)
			if !ok || failed.Offset != 4 || f.at("a", 0) != 4 || k.Stats().Repeats != int64(got.len()-4) {
				t.Errorf("%s: %v, committed %d, handled %v, %+v", name, err, f.at("a", 0), got.list, k.Stats())
			}
			if _, more := errors.AsType[*UnfinishedError](err); more {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// TestConsumerRetriesOnceMore: a record that waits to be handled again when the consumer is closed is tried at once. Then nothing comes again, or what is behind it.
func TestConsumerRetriesOnceMore(t *testing.T) {
	consumerBubble(t, func(t *testing.T) {
		for _, better := range []bool{true, false} {
			f := newFakeGroups(t, map[string]int{"a": 1})
			f.publishSlow(0, 1, 10)
			got, times := &handled{}, 0
			k := f.run(t, func(ctx context.Context, r *GroupRecord) error {
				if string(r.Key) == "slow" {
					if times++; times == 1 || !better {
						return errors.New("not now")
					}
				}
				return got.handle(ctx, r)
			}, WithConsumerBackoff(time.Hour, time.Hour), WithConsumerGrace(time.Hour),
				WithConsumerFailure(func(context.Context, *GroupRecord, error, int) FailureAction { return FailureRetry }))
			within(t, time.Second, "the others are done", func() bool { return got.len() == 10 })
			begun := time.Now()
			err := k.Close()
			if took := time.Since(begun); took > time.Second || times != 2 || <-k.ended != err {
				t.Errorf("%v in %s, %d attempts", err, took, times)
			}
			var unfinished *UnfinishedError
			switch s := k.Stats(); {
			case better && (err != nil || f.lag() != 0 || s.Repeats != 0):
				t.Errorf("%v, lag %d, %+v", err, f.lag(), s)
			case !better && (!errors.As(err, &unfinished) || unfinished.Repeats != 10 || s.Repeats != 10 || f.at("a", 0) != 0):
				t.Errorf("%v, lag %d, %+v", err, f.lag(), s)
			}
		}
	})
}

// TestConsumerCountsMarks: what was marked behind a record that was not comes again.
func TestConsumerCountsMarks(t *testing.T) {
	consumerBubble(t, func(t *testing.T) {
		f := newFakeGroups(t, map[string]int{"a": 1})
		f.publishSlow(0, 0, 10)
		k := f.make(t)
		batches, err := k.Poll(t.Context())
		if err != nil || len(batches) != 1 || len(batches[0].Records) != 10 {
			t.Fatal(batches, err)
		}
		k.Mark(slices.Concat(batches[0].Records[:2], batches[0].Records[5:])...)
		var unfinished *UnfinishedError
		if err := k.Close(); !errors.As(err, &unfinished) || *unfinished != (UnfinishedError{"a", 0, 2, 5}) || k.Stats().Repeats != 5 || f.at("a", 0) != 2 {
			t.Errorf("%v, %+v", err, k.Stats())
		}
	})
}

// TestConsumerIsQuietAboutGenerations: commits that meet a generation which has begun since are as usual, and nothing to tell of.
func TestConsumerIsQuietAboutGenerations(t *testing.T) {
	consumerBubble(t, func(t *testing.T) {
		f := newFakeGroups(t, map[string]int{"a": 1})
		var told []error
		k := f.run(t, (&handled{}).handle, WithConsumerNotify(func(err error) { told = append(told, err) }))
		within(t, time.Second, "it is one", func() bool { return k.Stats().Partitions == 1 })
		for range 3 {
			f.set(f.changeLocked)
			f.publish("a", 0, "k", "v")
			within(t, 5*time.Second, "it is committed", func() bool { return f.lag() == 0 })
		}
		k.close()
		if f.refused["STALE_GENERATION"] == 0 || len(told) != 0 {
			t.Errorf("%v refused, told of %v", f.refused, told)
		}
		// A group that refuses to have it: nothing to leave.
		c, wire := f.client(nil)
		left := false
		wire.setCause(func(op string) wireFault { left = left || op == "leave"; return wireFault{} })
		if k, err := NewConsumer(c, "g", []string{"none"}); err != nil {
			t.Fatal(err)
		} else if err := k.Run(t.Context(), nil); !errors.Is(err, ErrUnknownTopic) || left {
			t.Errorf("%v, left %v", err, left)
		}
	})
}
