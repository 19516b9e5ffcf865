package work

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeQueue is a queue in memory, as honest about time as a server is.
type fakeQueue struct {
	mu      sync.Mutex
	ready   []int64
	leases  map[string]*fakeLease
	acked   map[int64]int
	reasons map[int64][]string
	delays  []time.Duration
	tries   map[int64]int32
	serial  int
	leased  []int // sizes
	extends int
	wake    chan struct{}
	// What goes wrong.
	failLease, failAck, failExtend error
	slowAck                        chan struct{}
}

type fakeLease struct {
	offset  int64
	expires time.Time
}

func newFakeQueue(n int64) *fakeQueue {
	q := &fakeQueue{leases: map[string]*fakeLease{}, acked: map[int64]int{}, reasons: map[int64][]string{}, tries: map[int64]int32{}, wake: make(chan struct{}, 1)}
	for i := range n {
		q.ready = append(q.ready, i)
	}
	return q
}

func (q *fakeQueue) lapseLocked() {
	for r, l := range q.leases {
		if !time.Now().Before(l.expires) {
			delete(q.leases, r)
			q.ready = append(q.ready, l.offset)
		}
	}
}

func (q *fakeQueue) take(o client.LeaseOptions) ([]client.Message, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.failLease != nil {
		return nil, q.failLease
	}
	q.lapseLocked()
	n := min(o.Max, len(q.ready))
	var out []client.Message
	for _, offset := range q.ready[:n] {
		q.serial++
		q.tries[offset]++
		receipt := fmt.Sprintf("0:%d:%d", offset, q.serial)
		q.leases[receipt] = &fakeLease{offset, time.Now().Add(o.Visibility)}
		out = append(out, client.Message{Receipt: receipt, Attempt: q.tries[offset], Record: client.Record{Offset: offset, Value: fmt.Appendf(nil, "v%d", offset)}})
	}
	q.ready = q.ready[n:]
	if n > 0 {
		q.leased = append(q.leased, n)
	}
	return out, nil
}

func (q *fakeQueue) Lease(ctx context.Context, o client.LeaseOptions) ([]client.Message, error) {
	timer := time.NewTimer(o.Wait)
	defer timer.Stop()
	for {
		out, err := q.take(o)
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

func (q *fakeQueue) LeaseRaw(ctx context.Context, o client.LeaseOptions) ([]client.RawMessage, error) {
	o.Visibility = time.Minute
	messages, err := q.Lease(ctx, o)
	out := make([]client.RawMessage, len(messages))
	for i, m := range messages {
		out[i] = client.RawMessage{Receipt: m.Receipt, Offset: m.Offset, JSON: m.Value}
	}
	return out, err
}

func (q *fakeQueue) settle(receipts []string, fn func(string, *fakeLease) client.SettleResult) []client.SettleResult {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lapseLocked()
	out := make([]client.SettleResult, len(receipts))
	for i, r := range receipts {
		if l := q.leases[r]; l != nil {
			out[i] = fn(r, l)
		} else {
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

func (q *fakeQueue) Ack(ctx context.Context, receipts []string) ([]client.SettleResult, error) {
	if q.slowAck != nil {
		select {
		case <-q.slowAck:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if q.failAck != nil {
		return nil, q.failAck
	}
	return q.settle(receipts, func(r string, l *fakeLease) client.SettleResult {
		delete(q.leases, r)
		q.acked[l.offset]++
		return client.SettleResult{}
	}), nil
}

func (q *fakeQueue) Nack(_ context.Context, receipts []string, o client.NackOptions) ([]client.SettleResult, error) {
	return q.settle(receipts, func(r string, l *fakeLease) client.SettleResult {
		delete(q.leases, r)
		q.reasons[l.offset] = append(q.reasons[l.offset], o.Reason)
		if o.Delay != nil {
			q.delays = append(q.delays, *o.Delay)
		}
		q.ready = append(q.ready, l.offset)
		return client.SettleResult{}
	}), nil
}

func (q *fakeQueue) Extend(_ context.Context, receipts []string, visibility time.Duration) ([]client.SettleResult, error) {
	if q.failExtend != nil {
		return nil, q.failExtend
	}
	return q.settle(receipts, func(_ string, l *fakeLease) client.SettleResult {
		q.extends++
		l.expires = time.Now().Add(visibility)
		return client.SettleResult{}
	}), nil
}

// lose ends all leases, as an operator's seek would.
func (q *fakeQueue) lose() {
	q.mu.Lock()
	defer q.mu.Unlock()
	clear(q.leases)
}

var errAway = errors.New("the server is away")
