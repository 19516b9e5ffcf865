package client

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

const workerVisibility = 6 * time.Second

// spend is a moment for a handler that ends with its context.
func spend(ctx context.Context, d time.Duration) error {
	if pass(ctx, d) {
		return nil
	}
	return context.Cause(ctx)
}

func succeed(context.Context, *Message) error { return nil }

func (q *fakeWorkerQueue) expect(t *testing.T, acked int) {
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

func mustWorker(t *testing.T, q workerQueue, handle MessageHandler, opts ...WorkerOption) *Worker {
	t.Helper()
	w, err := newWorker(q, handle, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// runWorker runs a worker to its end, which comes without an error.
func runWorker(t *testing.T, q workerQueue, want WorkerStats, handle MessageHandler, opts ...WorkerOption) {
	t.Helper()
	stats, err := mustWorker(t, q, handle, opts...).Run(t.Context())
	if diff := cmp.Diff(want, stats); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestWorkerHandlesAll(t *testing.T) {
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
				q := newFakeWorkerQueue(100)
				var now, most atomic.Int32
				runWorker(t, q, WorkerStats{Leased: 100, Acked: 100}, func(ctx context.Context, m *Message) error {
					n := now.Add(1)
					defer now.Add(-1)
					for seen := most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
					}
					return spend(ctx, time.Second)
				}, WithWorkerConcurrency(c.concurrency), WithWorkerBatch(c.batch), WithWorkerUntilEmpty())
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

// TestWorkerExtends: a handler that takes ten times the visibility keeps its lease, and so do the records that wait behind it.
func TestWorkerExtends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeWorkerQueue(3)
		runWorker(t, q, WorkerStats{Leased: 3, Acked: 3}, func(ctx context.Context, _ *Message) error { return spend(ctx, 10*workerVisibility) },
			WithWorkerBatch(3), WithWorkerUntilEmpty())
		q.expect(t, 3)
		if q.extends < 60 || q.extends > 180 {
			t.Errorf("%d extensions", q.extends)
		}
	})
}

// TestWorkerVisibility: the option decides, and the subscription is not asked then.
func TestWorkerVisibility(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeWorkerQueue(1)
		q.failVisibility = errWorkerRefused
		q.failExtend = errWorkerAway
		begin := time.Now()
		runWorker(t, q, WorkerStats{Leased: 1, Lost: 1}, func(ctx context.Context, _ *Message) error { <-ctx.Done(); return nil },
			WithWorkerVisibility(17*time.Second), WithWorkerOnce())
		if took := time.Since(begin); took != 17*time.Second {
			t.Errorf("the lease counted as lost after %s", took)
		}
		stats, err := mustWorker(t, q, succeed).Run(t.Context())
		if !errors.Is(err, errWorkerRefused) || stats != (WorkerStats{}) {
			t.Errorf("%+v, %v", stats, err)
		}
	})
}

// TestWorkerWithALostLease: the handler hears of it, what it did does not count, and nothing is said to the server about it.
func TestWorkerWithALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeWorkerQueue(2)
		var cause error
		var told atomic.Int32
		begin := time.Now()
		runWorker(t, q, WorkerStats{Leased: 2, Lost: 2}, func(ctx context.Context, _ *Message) error {
			q.lose()
			<-ctx.Done()
			cause = context.Cause(ctx)
			return cause
		}, WithWorkerBatch(2), WithWorkerOnce(), WithWorkerNotify(func(_ *Message, err error) {
			if errors.Is(err, ErrLeaseLost) {
				told.Add(1)
			}
		}))
		if !errors.Is(cause, ErrLeaseLost) || told.Load() != 2 || time.Since(begin) > workerVisibility {
			t.Errorf("%v, told of %d, after %s", cause, told.Load(), time.Since(begin))
		}
		q.expect(t, 0)
		if len(q.reasons) != 0 {
			t.Errorf("nacked: %v", q.reasons)
		}
	})
}

// TestWorkerWhenExtensionsFail: without an answer the lease counts as lost when its time is up, not later.
func TestWorkerWhenExtensionsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeWorkerQueue(1)
		q.failExtend = errWorkerAway
		begin := time.Now()
		runWorker(t, q, WorkerStats{Leased: 1, Lost: 1}, func(ctx context.Context, _ *Message) error { <-ctx.Done(); return context.Cause(ctx) }, WithWorkerOnce())
		if took := time.Since(begin); took != workerVisibility {
			t.Errorf("the handler ended after %s", took)
		}
	})
}

// TestWorkerNacks: a failure is told with its reason, the record comes again, and the run ends when it went well.
func TestWorkerNacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeWorkerQueue(5)
		runWorker(t, q, WorkerStats{Leased: 7, Acked: 5, Nacked: 2}, func(_ context.Context, m *Message) error {
			if m.Offset == 3 && m.Attempt < 3 {
				return errors.New("bad \xff" + strings.Repeat("ä", 2000))
			}
			return nil
		}, WithWorkerBatch(5), WithWorkerUntilEmpty())
		q.expect(t, 5)
		if reasons := q.reasons[3]; len(reasons) != 2 || !strings.HasPrefix(reasons[0], "bad \uFFFDää") || len(reasons[0]) > 1024 || len(reasons[0]) < 1020 {
			t.Errorf("%d reasons: %q", len(reasons), reasons)
		}
		if len(q.delays) != 0 {
			t.Errorf("the subscription's backoff was overruled: %v", q.delays)
		}
	})
}

// TestWorkerNackDelays: the error's own delay goes before the option's, and the option's before the subscription's.
func TestWorkerNackDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeWorkerQueue(1)
		errs := []error{
			RetryAfter(errors.New("busy"), 7*time.Second), RetryAfter(errors.New("busy"), -time.Second), RetryAfter(errors.New("busy"), 1000*time.Hour),
			errors.New("plain"), errors.New("plain"), errors.New(""), RetryAfter(nil, time.Second),
		}
		runWorker(t, q, WorkerStats{Leased: 7, Acked: 1, Nacked: 6}, func(_ context.Context, m *Message) error { return errs[m.Attempt-1] },
			WithWorkerUntilEmpty(), WithWorkerNackDelay(func(m *Message, err error) time.Duration {
				if err.Error() == "" {
					return -1
				}
				return time.Duration(m.Attempt) * 10 * time.Hour
			}))
		if diff := cmp.Diff([]time.Duration{7 * time.Second, 0, 12 * time.Hour, 12 * time.Hour, 12 * time.Hour}, q.delays); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"busy", "busy", "busy", "plain", "plain", "failed"}, q.reasons[0]); diff != "" {
			t.Error(diff)
		}
	})
}

// TestWorkerOutlivesPanics: what a handler does to its goroutine is a failure of its record, and no handler is missing afterwards.
func TestWorkerOutlivesPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeWorkerQueue(6)
		cause := errors.New("boom")
		var told struct {
			sync.Mutex
			errs []error
		}
		runWorker(t, q, WorkerStats{Leased: 12, Acked: 6, Nacked: 6}, func(_ context.Context, m *Message) error {
			switch {
			case m.Attempt > 1:
			case m.Offset == 0:
				panic(cause)
			case m.Offset%2 == 0:
				panic("boom")
			default:
				runtime.Goexit()
			}
			return nil
		}, WithWorkerUntilEmpty(), WithWorkerNotify(func(_ *Message, err error) {
			told.Lock()
			defer told.Unlock()
			told.errs = append(told.errs, err)
		}))
		q.expect(t, 6)
		if q.reasons[0][0] != "panic: boom" || q.reasons[1][0] != errGoexit.Error() {
			t.Errorf("reasons %v", q.reasons)
		}
		var p *PanicError
		if len(told.errs) != 6 || !errors.As(told.errs[0], &p) || !errors.Is(p, cause) || !strings.Contains(string(p.Stack), "worker_test.go") {
			t.Errorf("told %v", told.errs)
		}
	})
}

// TestWorkerDrains: what runs is finished, what waits is given back at once, nothing new is leased.
func TestWorkerDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeWorkerQueue(20)
		var w *Worker
		var begun atomic.Int32
		w = mustWorker(t, q, func(ctx context.Context, _ *Message) error {
			if begun.Add(1) == 2 {
				w.Stop()
			}
			return spend(ctx, time.Minute)
		}, WithWorkerConcurrency(2), WithWorkerBatch(10))
		stats, err := w.Run(t.Context())
		if diff := cmp.Diff(WorkerStats{Leased: 10, Acked: 2, GivenBack: 8}, stats); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
		q.expect(t, 2)
		if len(q.leases) != 0 || len(q.ready) != 18 {
			t.Errorf("%d leases are left, %d records ready", len(q.leases), len(q.ready))
		}
		if w.Stats() != stats {
			t.Errorf("at the end: %+v", w.Stats())
		}
	})
}

// TestWorkerStopsAtAnyTime: while a long poll waits, again, before Run; and Run is for once.
func TestWorkerStopsAtAnyTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := mustWorker(t, newFakeWorkerQueue(0), succeed)
		time.AfterFunc(time.Second, w.Stop)
		begin := time.Now()
		stats, err := w.Run(t.Context())
		if err != nil || stats != (WorkerStats{}) || time.Since(begin) != time.Second {
			t.Errorf("%+v, %v after %s", stats, err, time.Since(begin))
		}
		w.Stop()
		if _, err := w.Run(t.Context()); err == nil {
			t.Error("it ran a second time")
		}
		q := newFakeWorkerQueue(1)
		w = mustWorker(t, q, succeed)
		w.Stop()
		if stats, err := w.Run(t.Context()); err != nil || stats.Acked != 0 {
			t.Errorf("stopped before it ran: %+v, %v", stats, err)
		}
	})
}

// TestWorkerEndsWithItsContext: handlers may go on for a while, with their leases extended, and what they did not finish by then is given back.
func TestWorkerEndsWithItsContext(t *testing.T) {
	for _, c := range []struct {
		name        string
		grace, work time.Duration
		took        time.Duration
		want        WorkerStats
	}{
		{"at once", 0, time.Hour, 0, WorkerStats{Leased: 4, GivenBack: 4}},
		{"in time", 10 * workerVisibility, 9 * workerVisibility, 9 * workerVisibility, WorkerStats{Leased: 4, Acked: 1, GivenBack: 3}},
		{"too late", 10 * workerVisibility, time.Hour, 10 * workerVisibility, WorkerStats{Leased: 4, GivenBack: 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newFakeWorkerQueue(4)
				ctx, cancel := context.WithCancel(context.WithValue(t.Context(), q, "value"))
				var cause error
				begin := time.Now()
				stats, err := mustWorker(t, q, func(ctx context.Context, _ *Message) error {
					cancel()
					if ctx.Value(q) != "value" {
						t.Error("the values of the context are lost")
					}
					cause = spend(ctx, c.work)
					return cause
				}, WithWorkerBatch(4), WithWorkerGrace(c.grace)).Run(ctx)
				if diff := cmp.Diff(c.want, stats); err != nil || diff != "" || time.Since(begin) != c.took || c.want.Acked == 0 && !errors.Is(cause, ErrWorkerStopped) {
					t.Errorf("%v, %v after %s\n%s", err, cause, time.Since(begin), diff)
				}
				if len(q.ready) != int(c.want.GivenBack) || len(q.leases) != 0 {
					t.Errorf("%d records are ready, %d leased", len(q.ready), len(q.leases))
				}
			})
		})
	}
}

// TestWorkerEndsWhileTheServerIsAway: the last words are bounded.
func TestWorkerEndsWhileTheServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeWorkerQueue(1)
		q.slowAck = make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		begin := time.Now()
		stats, err := mustWorker(t, q, func(context.Context, *Message) error { cancel(); return nil }, WithWorkerGrace(time.Second)).Run(ctx)
		if diff := cmp.Diff(WorkerStats{Leased: 1, Unsettled: 1}, stats); err == nil || diff != "" || time.Since(begin) != time.Second+lastWords {
			t.Errorf("%v after %s\n%s", err, time.Since(begin), diff)
		}
	})
}

// TestWorkerAcksAfterTheLeaseLapsed: an ack that came too late is counted as lost.
func TestWorkerAcksAfterTheLeaseLapsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeWorkerQueue(1)
		q.slowAck = make(chan struct{})
		time.AfterFunc(2*workerVisibility, func() { close(q.slowAck) })
		runWorker(t, q, WorkerStats{Leased: 1, Lost: 1}, succeed, WithWorkerOnce())
	})
}

func TestNewWorkerRefuses(t *testing.T) {
	for want, opt := range map[string]WorkerOption{
		"concurrency": WithWorkerConcurrency(0), "batch": WithWorkerBatch(1001), "wait": WithWorkerWait(time.Hour),
		"visibility": WithWorkerVisibility(time.Millisecond), "notify": WithWorkerNotify(nil), "grace": WithWorkerGrace(-1),
	} {
		if _, err := newWorker(newFakeWorkerQueue(0), succeed, opt); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, err := newWorker(newFakeWorkerQueue(0), nil, WithWorkerWait(-1)); err == nil || !strings.Contains(err.Error(), "handler") || !strings.Contains(err.Error(), "wait") {
		t.Errorf("not every fault is told: %v", err)
	}
}
