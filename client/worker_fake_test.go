package client

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/forebaymq/forebay/api"
)

// fakeWorkerQueue is a queue in memory, as honest about time as a server is.
type fakeWorkerQueue struct {
	mu      sync.Mutex
	ready   []int64
	leases  map[string]*fakeWorkerLease
	acked   map[int64]int
	reasons map[int64][]string
	delays  []time.Duration
	tries   map[int64]int32
	serial  int
	leased  []int // sizes
	extends int
	wake    chan struct{}
	asked   []string             // request IDs of leases
	given   map[string][]Message // by request ID
	done    map[string]bool      // receipts that were acked
	// What goes wrong.
	failLease, failAck, failExtend, failVisibility error
	slowAck                                        chan struct{}
	slowLease                                      time.Duration // how long after the leases have begun their answer comes
}

type fakeWorkerLease struct {
	offset  int64
	expires time.Time
}

func newFakeWorkerQueue(n int64) *fakeWorkerQueue {
	q := &fakeWorkerQueue{leases: map[string]*fakeWorkerLease{}, given: map[string][]Message{}, done: map[string]bool{}, acked: map[int64]int{}, reasons: map[int64][]string{}, tries: map[int64]int32{}, wake: make(chan struct{}, 1)}
	for i := range n {
		q.ready = append(q.ready, i)
	}
	return q
}

func (q *fakeWorkerQueue) lapseLocked() {
	for r, l := range q.leases {
		if !time.Now().Before(l.expires) {
			delete(q.leases, r)
			q.ready = append(q.ready, l.offset)
		}
	}
}

func (q *fakeWorkerQueue) take(o LeaseOptions) ([]Message, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.asked = append(q.asked, o.RequestID)
	if q.failLease != nil {
		return nil, q.failLease
	}
	q.lapseLocked()
	if before := q.given[o.RequestID]; before != nil { // an answer was lost: what of it lives still
		return slices.DeleteFunc(slices.Clone(before), func(m Message) bool { return q.leases[m.Receipt] == nil }), nil
	}
	n := min(o.Max, len(q.ready))
	var out []Message
	for _, offset := range q.ready[:n] {
		q.serial++
		q.tries[offset]++
		receipt := fmt.Sprintf("0:%d:%d", offset, q.serial)
		q.leases[receipt] = &fakeWorkerLease{offset, time.Now().Add(o.Visibility)}
		out = append(out, Message{Receipt: receipt, Attempt: q.tries[offset], Record: Record{Offset: offset, Value: fmt.Appendf(nil, "v%d", offset)}})
	}
	q.ready = q.ready[n:]
	if n > 0 {
		q.leased = append(q.leased, n)
		q.given[o.RequestID] = out
	}
	return out, nil
}

func (q *fakeWorkerQueue) Lease(ctx context.Context, o LeaseOptions) ([]Message, error) {
	timer := time.NewTimer(o.Wait)
	defer timer.Stop()
	for {
		out, err := q.take(o)
		if len(out) > 0 {
			pass(ctx, q.slowLease)
		}
		if len(out) > 0 || err != nil || o.Wait == 0 {
			return out, err
		}
		select {
		case <-q.wake:
		case <-timer.C:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (q *fakeWorkerQueue) settle(ack bool, receipts []string, fn func(string, *fakeWorkerLease) SettleResult) []SettleResult {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lapseLocked()
	out := make([]SettleResult, len(receipts))
	for i, r := range receipts {
		if l := q.leases[r]; l != nil {
			out[i] = fn(r, l)
		} else if !ack || !q.done[r] { // an ack may be repeated

			out[i].Code = api.CodeLeaseLost
		}
		out[i].Receipt = r
	}
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return out
}

func (q *fakeWorkerQueue) Ack(ctx context.Context, receipts []string) ([]SettleResult, error) {
	if q.slowAck != nil {
		select {
		case <-q.slowAck:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if err := q.failure(&q.failAck); err != nil {
		return nil, err
	}
	return q.settle(true, receipts, func(r string, l *fakeWorkerLease) SettleResult {
		delete(q.leases, r)
		q.done[r] = true
		q.acked[l.offset]++
		return SettleResult{}
	}), nil
}

func (q *fakeWorkerQueue) Nack(_ context.Context, receipts []string, o NackOptions) ([]SettleResult, error) {
	return q.settle(false, receipts, func(r string, l *fakeWorkerLease) SettleResult {
		delete(q.leases, r)
		q.reasons[l.offset] = append(q.reasons[l.offset], o.Reason)
		if o.Delay != nil {
			q.delays = append(q.delays, *o.Delay)
		}
		q.ready = append(q.ready, l.offset)
		return SettleResult{}
	}), nil
}

func (q *fakeWorkerQueue) Extend(_ context.Context, receipts []string, visibility time.Duration) ([]SettleResult, error) {
	if err := q.failure(&q.failExtend); err != nil {
		return nil, err
	}
	return q.settle(false, receipts, func(_ string, l *fakeWorkerLease) SettleResult {
		q.extends++
		l.expires = time.Now().Add(visibility)
		return SettleResult{}
	}), nil
}

func (q *fakeWorkerQueue) Visibility(context.Context) (time.Duration, error) {
	return workerVisibility, q.failure(&q.failVisibility)
}

// failure gives one of the fields of what goes wrong.
func (q *fakeWorkerQueue) failure(field *error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return *field
}

// set changes what goes wrong, or anything else, while a worker runs.
func (q *fakeWorkerQueue) set(change func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	change()
}

// lose ends all leases, as an operator's seek would.
func (q *fakeWorkerQueue) lose() {
	q.mu.Lock()
	defer q.mu.Unlock()
	clear(q.leases)
}

var (
	errWorkerAway    = &Error{Op: "x", Status: 503, Code: api.CodeLeasesUnavailable}
	errWorkerRefused = &Error{Op: "x", Status: 403, Code: api.CodeForbidden}
)
