package leases

import (
	"context"
	"errors"
	"time"
)

// errClosed is why the engine's context ends.
var errClosed = errors.New("the lease engine was closed")

// Start starts the background work. It is idempotent. Requests are served without it too, but nothing is swept, woken or rescued.
func (e *Engine) Start() {
	e.life.Lock()
	started := e.life.started
	e.life.started = true
	e.life.Unlock()
	if started {
		return
	}
	for _, loop := range e.loops() {
		e.spawn(func() { loop(e.ctx) })
	}
}

// loops are the background work. Each returns when its context ends.
func (e *Engine) loops() []func(ctx context.Context) {
	return append([]func(context.Context){}, e.adminLoops()...)
}

// spawn runs f in a goroutine that Close waits for; false when the engine is closed.
func (e *Engine) spawn(f func()) bool {
	e.life.Lock()
	defer e.life.Unlock()
	if e.life.closed {
		return false
	}
	e.life.running.Go(f)
	return true
}

// bounded is context.WithTimeout by the engine's clock. The fake clock's own WithTimeout blocks in Err.
func (e *Engine) bounded(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	bounded, cancel := context.WithCancelCause(ctx)
	t := e.o.Clock.AfterFunc(d, func() { cancel(context.DeadlineExceeded) })
	return bounded, func() { t.Stop(); cancel(context.Canceled) }
}
