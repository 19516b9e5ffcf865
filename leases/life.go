package leases

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errClosed is why the engine's context ends.
var errClosed = errors.New("the lease engine was closed")

// life is when the engine starts and ends.
type life struct {
	sync.Mutex
	started  bool
	closing  bool
	closed   bool           // no goroutines any more
	running  sync.WaitGroup // of every goroutine; grows only while closed is false
	ended    chan struct{}  // closed when Close has done everything
	err      error          // of Close
	loops    context.Context
	endLoops context.CancelCauseFunc
}

// Start starts the background work. It is idempotent. Requests are served without it too, but nothing is journalled, swept or rescued.
func (e *Engine) Start() {
	e.life.Lock()
	started := e.life.started
	e.life.started = true
	e.life.Unlock()
	if started {
		return
	}
	for _, loop := range e.loops() {
		e.spawn(func() { loop(e.life.loops) })
	}
}

// loops are the background work. Each returns when its context ends.
func (e *Engine) loops() []func(ctx context.Context) {
	return append([]func(context.Context){e.flushLoop, e.sweepLoop, e.rescueLoop, e.auditLoop, e.evictLoop, e.notifyLoop, e.listenLoop, e.deletionLoop}, e.adminLoops()...)
}

// Close ends the engine, in this order:
//
//  1. no leases any more: whoever waits is answered with nothing
//  2. the background work ends, and nothing new is started
//  3. what is under way ends: reads, acks, openings. When ctx ends it is cut short
//  4. what has changed is journalled, unless ctx has ended: then another node does it
//
// It may be called more than once; the store, the journal and the log stay open.
func (e *Engine) Close(ctx context.Context) error {
	e.life.Lock()
	first := !e.life.closing
	e.life.closing = true
	e.life.Unlock()
	if !first {
		<-e.life.ended
		return e.life.err
	}
	e.actives.Lock()
	e.actives.draining = true
	e.actives.Unlock()
	for _, a := range e.all() {
		a.line.drain()
	}
	e.life.endLoops(errClosed)
	e.life.Lock()
	e.life.closed = true
	e.life.Unlock()
	stop := context.AfterFunc(ctx, func() { e.cancel(errClosed) })
	defer stop()
	e.life.running.Wait()
	e.life.err = e.flushAll(e.ctx)
	if ctx.Err() != nil {
		e.life.err = context.Cause(ctx)
	}
	e.cancel(errClosed)
	close(e.life.ended)
	return e.life.err
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

// every calls f at each interval until ctx ends.
func (e *Engine) every(ctx context.Context, d time.Duration, f func(ctx context.Context)) {
	t := e.o.Clock.NewTicker(d)
	defer t.Stop()
	for {
		select {
		case <-t.Chan():
			f(ctx)
		case <-ctx.Done():
			return
		}
	}
}
