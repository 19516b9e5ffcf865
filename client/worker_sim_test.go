package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// roughQueue is a queue behind a network that loses requests and answers, is slow, and is away for a while now and then.
type roughQueue struct {
	*fakeWorkerQueue
	mu   sync.Mutex
	rand *rand.Rand
	away time.Time // until then
}

// chance gives what happens to a call.
func (q *roughQueue) chance() (delay time.Duration, before, after bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.rand.IntN(100) == 0 {
		q.away = time.Now().Add(time.Duration(q.rand.Int64N(int64(4 * workerVisibility))))
	}
	return time.Duration(q.rand.Int64N(int64(300 * time.Millisecond))), time.Now().Before(q.away) || q.rand.IntN(20) == 0, q.rand.IntN(20) == 0
}

func rough[T any](ctx context.Context, q *roughQueue, fn func() (T, error)) (none T, err error) {
	delay, before, after := q.chance()
	lost := &Error{Op: "x", Cause: errors.New("connection reset")}
	if !pass(ctx, delay) || before {
		return none, lost
	}
	v, err := fn()
	if after || !pass(ctx, delay) {
		return none, lost
	}
	return v, err
}

func (q *roughQueue) Visibility(ctx context.Context) (time.Duration, error) {
	return rough(ctx, q, func() (time.Duration, error) { return q.fakeWorkerQueue.Visibility(ctx) })
}

func (q *roughQueue) Lease(ctx context.Context, o LeaseOptions) ([]Message, error) {
	return rough(ctx, q, func() ([]Message, error) { return q.fakeWorkerQueue.Lease(ctx, o) })
}

func (q *roughQueue) Ack(ctx context.Context, receipts []string) ([]SettleResult, error) {
	return rough(ctx, q, func() ([]SettleResult, error) { return q.fakeWorkerQueue.Ack(ctx, receipts) })
}

func (q *roughQueue) Nack(ctx context.Context, receipts []string, o NackOptions) ([]SettleResult, error) {
	return rough(ctx, q, func() ([]SettleResult, error) { return q.fakeWorkerQueue.Nack(ctx, receipts, o) })
}

func (q *roughQueue) Extend(ctx context.Context, receipts []string, visibility time.Duration) ([]SettleResult, error) {
	return rough(ctx, q, func() ([]SettleResult, error) { return q.fakeWorkerQueue.Extend(ctx, receipts, visibility) })
}

// TestWorkerSimulation: workers come and go over a rough network, handlers take their time, fail, panic and end their goroutines. By seed. Each record is
// settled once, no more handlers run than may, every record that was leased is in the counts once, and nothing is left behind.
func TestWorkerSimulation(t *testing.T) {
	const records, concurrency = 60, 4
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := &roughQueue{fakeWorkerQueue: newFakeWorkerQueue(records), rand: rand.New(rand.NewPCG(seed, 0))}
				var mu sync.Mutex
				random := rand.New(rand.NewPCG(seed, 1))
				running := 0
				roll := func(n int64) int64 {
					mu.Lock()
					defer mu.Unlock()
					return random.Int64N(n)
				}
				handle := func(ctx context.Context, m *Message) error {
					mu.Lock()
					if running++; running > concurrency {
						t.Errorf("%d handlers", running)
					}
					mu.Unlock()
					defer func() {
						mu.Lock()
						defer mu.Unlock()
						running--
					}()
					if err := spend(ctx, time.Duration(roll(int64(2*workerVisibility)))); err != nil {
						return err
					}
					switch roll(20) {
					case 0:
						return RetryAfter(errors.New("busy"), time.Second)
					case 1:
						panic("boom")
					case 2:
						runtime.Goexit()
					}
					return nil
				}
				settled := func() int {
					q.fakeWorkerQueue.mu.Lock()
					defer q.fakeWorkerQueue.mu.Unlock()
					return len(q.acked)
				}
				for settled() < records {
					w := mustWorker(t, q, handle, WithWorkerConcurrency(concurrency), WithWorkerBatch(int(roll(3))*5), WithWorkerWait(5*time.Second), WithWorkerGrace(2*workerVisibility))
					ctx, cancel := context.WithCancel(t.Context())
					end := cancel
					if roll(2) == 0 {
						end = w.Stop
					}
					time.AfterFunc(time.Duration(roll(int64(time.Minute))), end)
					s, err := w.Run(ctx)
					if ctx.Err() == nil && err != nil {
						t.Error(err)
					}
					cancel()
					if s.Leased != s.Acked+s.Nacked+s.Lost+s.GivenBack+s.Unsettled {
						t.Errorf("the counts do not add up: %+v", s)
					}
					if len(w.mu.held) != 0 || w.mu.waiting != 0 || w.mu.running != 0 || w.mu.settling != 0 {
						t.Errorf("left behind: %d held, %d waiting, %d running, %d settling", len(w.mu.held), w.mu.waiting, w.mu.running, w.mu.settling)
					}
				}
				q.expect(t, records)
			})
		})
	}
}
