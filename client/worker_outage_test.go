package client

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forebaymq/forebay/api"
)

// TestWorkerOutlivesAnOutage: the lease store is away for ten minutes. The worker tells of it, goes on by itself, and asks with the same request ID
// until it has an answer.
func TestWorkerOutlivesAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeWorkerQueue(3)
		q.failLease = errWorkerAway
		q.failVisibility = errWorkerAway
		const away = 10 * time.Minute
		time.AfterFunc(away, func() { q.set(func() { q.failVisibility = nil }) })
		time.AfterFunc(2*away, func() { q.set(func() { q.failLease = nil }) })
		var told atomic.Int32
		begin := time.Now()
		runWorker(t, q, WorkerStats{Leased: 3, Acked: 3}, succeed, WithWorkerBatch(3), WithWorkerOnce(), WithWorkerNotify(func(m *Message, err error) {
			if m == nil && errors.Is(err, ErrLeasesUnavailable) {
				told.Add(1)
			}
		}))
		// Pauses grow to 15 s, give or take a half.
		if took := time.Since(begin); took < 2*away || took > 2*away+30*time.Second || told.Load() < 50 || told.Load() > 200 {
			t.Errorf("told %d times in %s", told.Load(), took)
		}
		for _, id := range q.asked {
			if id == "" || id != q.asked[0] {
				t.Errorf("request IDs %v", q.asked)
				break
			}
		}
	})
}

// TestWorkerSettlesAfterAnOutage: acks are sent again as long as their leases may live. Meanwhile nothing is leased that could not be settled.
func TestWorkerSettlesAfterAnOutage(t *testing.T) {
	for _, c := range []struct {
		name   string
		away   time.Duration
		inVain int64 // at most
	}{
		{"in time", 4 * time.Second, 0},
		{"too late", 3 * workerVisibility, 30}, // a few in the life of a lease: those that were under way when the first ack failed
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newFakeWorkerQueue(100)
				q.failAck = errWorkerAway
				time.AfterFunc(c.away, func() { q.set(func() { q.failAck = nil }) })
				w := mustWorker(t, q, succeed)
				time.AfterFunc(time.Minute, w.Stop)
				stats, err := w.Run(t.Context())
				if err != nil || stats.Acked != 100 || stats.Leased != 100+stats.Unsettled || (stats.Unsettled > 0) != (c.inVain > 0) || stats.Unsettled > c.inVain {
					t.Errorf("%+v, %v", stats, err)
				}
				q.expect(t, 100)
			})
		})
	}
}

// TestWorkerGivesUp: at once where the server refuses for good, after the limit where it is away.
func TestWorkerGivesUp(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault func(q *fakeWorkerQueue, err error)
		err   error
		after time.Duration
		want  WorkerStats
		opts  []WorkerOption
	}{
		{"a lease is refused", func(q *fakeWorkerQueue, err error) { q.failLease = err }, errWorkerRefused, 0, WorkerStats{}, nil},
		{"an ack is refused", func(q *fakeWorkerQueue, err error) { q.failAck = err }, errWorkerRefused, 0, WorkerStats{Leased: 1, Unsettled: 1}, nil},
		{"retention was faster", func(q *fakeWorkerQueue, err error) { q.failLease = err }, &Error{Status: 409, Code: api.CodeRetentionGap}, 0, WorkerStats{}, nil},
		{"leases fail", func(q *fakeWorkerQueue, err error) { q.failLease = err }, errWorkerAway, 0, WorkerStats{}, []WorkerOption{WithWorkerOutage(0)}},
		{"acks fail", func(q *fakeWorkerQueue, err error) { q.failAck = err }, errWorkerAway, 0, WorkerStats{Leased: 1, Unsettled: 1}, []WorkerOption{WithWorkerOutage(0)}},
		{"for a minute", func(q *fakeWorkerQueue, err error) { q.failLease = err }, errWorkerAway, time.Minute, WorkerStats{}, []WorkerOption{WithWorkerOutage(time.Minute)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newFakeWorkerQueue(1)
				c.fault(q, c.err)
				begin := time.Now()
				stats, err := mustWorker(t, q, succeed, c.opts...).Run(t.Context())
				took := time.Since(begin)
				if diff := cmp.Diff(c.want, stats); !errors.Is(err, c.err) || diff != "" || took > c.after || took < c.after/2 {
					t.Errorf("%v after %s\n%s", err, took, diff)
				}
			})
		})
	}
}

// TestWorkerWithARunOutToken: one that ran out on its way is no reason to end, one that is never taken is.
func TestWorkerWithARunOutToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeWorkerQueue(1)
		q.failLease = &Error{Op: "x", Status: 401, Code: api.CodeUnauthenticated}
		timer := time.AfterFunc(time.Millisecond, func() { q.set(func() { q.failLease = nil }) })
		runWorker(t, q, WorkerStats{Leased: 1, Acked: 1}, succeed, WithWorkerOnce())
		timer.Stop()
		q.failLease = &Error{Op: "x", Status: 401, Code: api.CodeUnauthenticated}
		if _, err := mustWorker(t, q, succeed).Run(t.Context()); !errors.Is(err, q.failLease) {
			t.Errorf("got %v", err)
		}
	})
}

// TestWorkerStopsDuringAnOutage: neither a pause nor an ack that cannot be sent holds it up beyond its lease.
func TestWorkerStopsDuringAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeWorkerQueue(1)
		q.failLease = errWorkerAway
		w := mustWorker(t, q, succeed)
		time.AfterFunc(time.Minute, w.Stop)
		begin := time.Now()
		if stats, err := w.Run(t.Context()); err != nil || stats != (WorkerStats{}) || time.Since(begin) != time.Minute {
			t.Errorf("%+v, %v after %s", stats, err, time.Since(begin))
		}

		q = newFakeWorkerQueue(1)
		q.failAck = errWorkerAway
		w = mustWorker(t, q, func(context.Context, *Message) error { w.Stop(); return nil })
		begin = time.Now()
		stats, err := w.Run(t.Context())
		if took := time.Since(begin); err != nil || stats != (WorkerStats{Leased: 1, Unsettled: 1}) || took > workerVisibility {
			t.Errorf("%+v, %v after %s", stats, err, took)
		}
	})
}

// TestWorkerExtendsOldLeases: leases whose first answer was lost are older than they look, and are extended before they lapse.
func TestWorkerExtendsOldLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeWorkerQueue(1)
		q.slowLease = workerVisibility / 2
		runWorker(t, q, WorkerStats{Leased: 1, Acked: 1}, func(ctx context.Context, _ *Message) error { return spend(ctx, 3*workerVisibility) }, WithWorkerOnce())
		q.expect(t, 1)
	})
}
