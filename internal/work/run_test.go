package work

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forebaymq/forebay/client"
)

const visibility = 6 * time.Second

// pass is a moment for a handler that ends with its context.
func pass(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (q *fakeQueue) expect(t *testing.T, acked int) {
	t.Helper()
	if len(q.acked) != acked {
		t.Errorf("%d records are settled, want %d", len(q.acked), acked)
	}
	for offset, n := range q.acked {
		if n != 1 {
			t.Errorf("record %d is settled %d times", offset, n)
		}
	}
}

func TestRunHandlesAll(t *testing.T) {
	for _, c := range []struct {
		name               string
		concurrency, batch int
		most               int // of a lease
	}{
		{"one at a time", 1, 0, 1},
		{"idle handlers ask for as many as they are", 4, 0, 4},
		{"a batch waits for its handlers", 2, 10, 10},
		{"fewer than handlers", 8, 3, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newFakeQueue(100)
				var now, most atomic.Int32
				stats, err := Run(t.Context(), Options{
					Queue: q, Concurrency: c.concurrency, Batch: c.batch, Visibility: visibility, UntilEmpty: true,
					Handle: func(ctx context.Context, m *client.Message) error {
						n := now.Add(1)
						defer now.Add(-1)
						for seen := most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
						}
						return pass(ctx, time.Second)
					},
				})
				if diff := cmp.Diff(Stats{Leased: 100, Acked: 100}, stats); err != nil || diff != "" {
					t.Errorf("%v\n%s", err, diff)
				}
				q.expect(t, 100)
				if int(most.Load()) > c.concurrency {
					t.Errorf("%d handlers at a time, want %d at most", most.Load(), c.concurrency)
				}
				for _, n := range q.leased {
					if n > c.most {
						t.Errorf("a lease of %d, want %d at most", n, c.most)
					}
				}
			})
		})
	}
}

// TestRunExtends: a handler that takes ten times the visibility keeps its lease, and so do the records that wait behind it.
func TestRunExtends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(3)
		stats, err := Run(t.Context(), Options{
			Queue: q, Batch: 3, Visibility: visibility, UntilEmpty: true,
			Handle: func(ctx context.Context, _ *client.Message) error { return pass(ctx, 10*visibility) },
		})
		if diff := cmp.Diff(Stats{Leased: 3, Acked: 3}, stats); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
		q.expect(t, 3)
		if q.extends < 60 || q.extends > 180 {
			t.Errorf("%d extensions", q.extends)
		}
	})
}

// TestRunWithALostLease: the handler hears of it, what it did does not count, and nothing is said to the server about it.
func TestRunWithALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(2)
		var cause error
		var told atomic.Int32
		begin := time.Now()
		stats, err := Run(t.Context(), Options{
			Queue: q, Batch: 2, Visibility: visibility, Once: true,
			Handle: func(ctx context.Context, _ *client.Message) error {
				q.lose()
				<-ctx.Done()
				cause = context.Cause(ctx)
				return cause
			},
			Notify: func(_ *client.Message, err error) {
				if errors.Is(err, ErrLeaseLost) {
					told.Add(1)
				}
			},
		})
		if diff := cmp.Diff(Stats{Leased: 2, Lost: 2}, stats); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
		if !errors.Is(cause, ErrLeaseLost) || told.Load() != 2 || time.Since(begin) > visibility {
			t.Errorf("%v, told of %d, after %s", cause, told.Load(), time.Since(begin))
		}
		q.expect(t, 0)
		if len(q.reasons) != 0 {
			t.Errorf("nacked: %v", q.reasons)
		}
	})
}

// TestRunWhenExtensionsFail: without an answer the lease counts as lost when its time is up, not later.
func TestRunWhenExtensionsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(1)
		q.failExtend = errAway
		begin := time.Now()
		stats, err := Run(t.Context(), Options{
			Queue: q, Visibility: visibility, Once: true,
			Handle: func(ctx context.Context, _ *client.Message) error { <-ctx.Done(); return context.Cause(ctx) },
		})
		if diff := cmp.Diff(Stats{Leased: 1, Lost: 1}, stats); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
		if took := time.Since(begin); took != visibility {
			t.Errorf("the handler ended after %s", took)
		}
	})
}

// TestRunNacks: a failure is told with its reason, the record comes again, and the run ends when it went well.
func TestRunNacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(5)
		delay := 3 * time.Second
		stats, err := Run(t.Context(), Options{
			Queue: q, Batch: 5, Visibility: visibility, UntilEmpty: true, NackDelay: &delay,
			Handle: func(_ context.Context, m *client.Message) error {
				if m.Offset == 3 && m.Attempt < 3 {
					return errors.New("bad \xff" + strings.Repeat("ä", 2000))
				}
				return nil
			},
		})
		if diff := cmp.Diff(Stats{Leased: 7, Acked: 5, Nacked: 2}, stats); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
		q.expect(t, 5)
		if reasons := q.reasons[3]; len(reasons) != 2 || !strings.HasPrefix(reasons[0], "bad \uFFFDää") || len(reasons[0]) > 1024 || len(reasons[0]) < 1020 {
			t.Errorf("%d reasons: %q", len(reasons), reasons)
		}
		if diff := cmp.Diff([]time.Duration{delay, delay}, q.delays); diff != "" {
			t.Error(diff)
		}
	})
}

// TestRunDrains: what runs is finished, what waits is given back at once, nothing new is leased.
func TestRunDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(20)
		drain := make(chan struct{})
		var begun atomic.Int32
		stats, err := Run(t.Context(), Options{
			Queue: q, Concurrency: 2, Batch: 10, Visibility: visibility, Wait: time.Second, Drain: drain,
			Handle: func(ctx context.Context, _ *client.Message) error {
				if begun.Add(1) == 2 {
					close(drain)
				}
				return pass(ctx, time.Minute)
			},
		})
		if diff := cmp.Diff(Stats{Leased: 10, Acked: 2, GivenBack: 8}, stats); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
		q.expect(t, 2)
		if len(q.leases) != 0 || len(q.ready) != 18 {
			t.Errorf("%d leases are left, %d records ready", len(q.leases), len(q.ready))
		}
	})
}

// TestRunDrainsWhileParked: a long poll that waits does not hold up the end.
func TestRunDrainsWhileParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drain := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(drain) })
		begin := time.Now()
		stats, err := Run(t.Context(), Options{Queue: newFakeQueue(0), Visibility: visibility, Wait: 20 * time.Second, Drain: drain})
		if err != nil || stats != (Stats{}) || time.Since(begin) != time.Second {
			t.Errorf("%+v, %v after %s", stats, err, time.Since(begin))
		}
	})
}

// TestRunIsAborted: handlers are ended, and what they did not finish is given back.
func TestRunIsAborted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(4)
		ctx, cancel := context.WithCancel(t.Context())
		var cause error
		stats, err := Run(ctx, Options{
			Queue: q, Batch: 4, Visibility: visibility, Wait: time.Second,
			Handle: func(ctx context.Context, _ *client.Message) error {
				cancel()
				<-ctx.Done()
				cause = context.Cause(ctx)
				return cause
			},
		})
		if diff := cmp.Diff(Stats{Leased: 4, GivenBack: 4}, stats); err != nil || diff != "" || !errors.Is(cause, ErrStopped) {
			t.Errorf("%v, %v\n%s", err, cause, diff)
		}
		if len(q.ready) != 4 {
			t.Errorf("%d records are ready", len(q.ready))
		}
	})
}

// TestRunIsAbortedWhileTheServerIsAway: the last words are bounded.
func TestRunIsAbortedWhileTheServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(1)
		q.slowAck = make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		begin := time.Now()
		stats, err := Run(ctx, Options{
			Queue: q, Visibility: visibility, Wait: time.Second,
			Handle: func(context.Context, *client.Message) error { cancel(); return nil },
		})
		if diff := cmp.Diff(Stats{Leased: 1, Unsettled: 1}, stats); err == nil || diff != "" || time.Since(begin) != lastWords {
			t.Errorf("%v after %s\n%s", err, time.Since(begin), diff)
		}
	})
}

func TestRunWhenTheQueueFails(t *testing.T) {
	t.Run("lease", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			q := newFakeQueue(1)
			q.failLease = errAway
			if stats, err := Run(t.Context(), Options{Queue: q, Visibility: visibility}); !errors.Is(err, errAway) || stats != (Stats{}) {
				t.Errorf("%+v, %v", stats, err)
			}
		})
	})
	t.Run("ack", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			q := newFakeQueue(2)
			q.failAck = errAway
			stats, err := Run(t.Context(), Options{Queue: q, Visibility: visibility, Wait: time.Second, Handle: func(context.Context, *client.Message) error { return nil }})
			if !errors.Is(err, errAway) || stats.Unsettled == 0 || stats.Acked != 0 || stats.Whole() {
				t.Errorf("%+v, %v", stats, err)
			}
		})
	})
}

// TestAckAfterTheLeaseLapsed: an ack that came too late is counted as lost.
func TestAckAfterTheLeaseLapsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(1)
		q.slowAck = make(chan struct{})
		time.AfterFunc(2*visibility, func() { close(q.slowAck) })
		stats, err := Run(t.Context(), Options{Queue: q, Visibility: visibility, Once: true, Handle: func(context.Context, *client.Message) error { return nil }})
		if diff := cmp.Diff(Stats{Leased: 1, Lost: 1}, stats); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
	})
}
