package client

import (
	"context"
	"sync"
)

// producerBudget bounds bytes. Who waits is served first come, first served, so that a large record is not starved by small ones.
type producerBudget struct {
	limit int64
	mu    struct {
		sync.Mutex
		used    int64
		waiters []*budgetWaiter
		ended   error
	}
}

type budgetWaiter struct {
	n     int64
	err   error         // read after ready
	ready chan struct{} // closed when the bytes are the waiter's, or err is set
}

// acquire takes n bytes, or waits for them. It gives the error of end, or the cause of the context's end.
func (b *producerBudget) acquire(ctx context.Context, n int64) error {
	b.mu.Lock()
	if b.mu.ended != nil {
		b.mu.Unlock()
		return b.mu.ended
	}
	if len(b.mu.waiters) == 0 && b.fitsLocked(n) {
		b.mu.used += n
		b.mu.Unlock()
		return nil
	}
	w := &budgetWaiter{n: n, ready: make(chan struct{})}
	b.mu.waiters = append(b.mu.waiters, w)
	b.mu.Unlock()
	select {
	case <-w.ready:
		return w.err
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, other := range b.mu.waiters {
		if other == w {
			b.mu.waiters = append(b.mu.waiters[:i], b.mu.waiters[i+1:]...)
			b.serveLocked() // the one behind may be smaller
			return context.Cause(ctx)
		}
	}
	if w.err == nil { // it was served at the same moment
		b.releaseLocked(n)
	}
	return context.Cause(ctx)
}

// fitsLocked: one always fits when nothing else is there, so that no record waits for ever.
func (b *producerBudget) fitsLocked(n int64) bool {
	return b.mu.used == 0 || b.mu.used+n <= b.limit
}

func (b *producerBudget) release(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.releaseLocked(n)
}

func (b *producerBudget) releaseLocked(n int64) {
	b.mu.used -= n
	b.serveLocked()
}

func (b *producerBudget) serveLocked() {
	for len(b.mu.waiters) > 0 && b.fitsLocked(b.mu.waiters[0].n) {
		w := b.mu.waiters[0]
		b.mu.waiters = b.mu.waiters[1:]
		b.mu.used += w.n
		close(w.ready)
	}
}

// end refuses everybody from now on, those who wait included.
func (b *producerBudget) end(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.ended != nil {
		return
	}
	b.mu.ended = err
	for _, w := range b.mu.waiters {
		w.err = err
		close(w.ready)
	}
	b.mu.waiters = nil
}

func (b *producerBudget) inUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.used
}
