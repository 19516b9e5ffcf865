package leases

import (
	"context"
	"sync"
	"time"

	"github.com/forebaymq/forebay/leases/store"
	"github.com/forebaymq/forebay/metadata"
)

// listenAgain is the pause before this node listens again after it could not.
const listenAgain = time.Second

// wakes are messages to other nodes that are not sent yet. While one is being sent those of the same subscription come together.
type wakes struct {
	mu struct {
		sync.Mutex
		waiting map[metadata.SubscriptionID]store.Wake
	}
	some chan struct{}
}

func newWakes() *wakes {
	w := &wakes{some: make(chan struct{}, 1)}
	w.mu.waiting = map[metadata.SubscriptionID]store.Wake{}
	return w
}

func (w *wakes) add(m store.Wake) {
	w.mu.Lock()
	if have, ok := w.mu.waiting[m.Subscription]; ok {
		have.Freed += m.Freed
		if m.Due > 0 && (have.Due == 0 || m.Due < have.Due) {
			have.Due = m.Due
		}
		m = have
	}
	w.mu.waiting[m.Subscription] = m
	w.mu.Unlock()
	select {
	case w.some <- struct{}{}:
	default:
	}
}

func (w *wakes) take() map[metadata.SubscriptionID]store.Wake {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.mu.waiting
	w.mu.waiting = map[metadata.SubscriptionID]store.Wake{}
	return out
}

// announce tells every node that something of q is due after d; negative: nothing is.
func (e *Engine) announce(q *queue, d time.Duration) {
	if d > 0 {
		e.wakes.add(store.Wake{Subscription: q.id, Due: d})
	}
}

// notifyLoop tells the other nodes.
func (e *Engine) notifyLoop(ctx context.Context) {
	for {
		select {
		case <-e.wakes.some:
		case <-ctx.Done():
			return
		}
		for _, m := range e.wakes.take() {
			bounded, cancel := e.bounded(ctx, e.o.CallTimeout)
			if err := e.o.Store.Notify(bounded, m); err != nil {
				e.m.unsaid.Inc() // their sweeps find it within a second or two
			}
			cancel()
		}
	}
}

// deletionLoop answers who waits for a subscription that is deleted. One of the same name made at once is another one.
func (e *Engine) deletionLoop(ctx context.Context) {
	for {
		changed := e.o.View.SubscriptionsChanged()
		for _, a := range e.all() {
			if a.line.waiting.Load() == 0 {
				continue
			}
			if _, err := e.o.View.SubscriptionByID(a.id); gone(err) {
				a.line.dismiss(&deletedError{err})
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// deletedError is the answer to a request that waited when its subscription was deleted.
type deletedError struct{ error }

// Unwrap gives the error that the client sees.
func (e *deletedError) Unwrap() error { return e.error }

// listenLoop hears what the other nodes tell.
func (e *Engine) listenLoop(ctx context.Context) {
	for {
		if err := e.o.Store.Listen(ctx, e.heard); ctx.Err() == nil {
			e.o.Logger.Warn("cannot listen to other nodes", "error", err)
		}
		t := e.o.Clock.NewTimer(listenAgain)
		select {
		case <-t.Chan():
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
}

func (e *Engine) heard(m store.Wake) {
	a := e.existing(m.Subscription)
	if a == nil || a.line.waiting.Load() == 0 {
		return
	}
	if m.Freed > 0 {
		a.forget() // it may have been a seek
		a.line.stir()
	}
	if m.Due > 0 {
		a.line.dueAt(e.o.Clock.Now().Add(m.Due))
	}
}
