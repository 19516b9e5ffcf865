package leases

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases/store"
	"github.com/forebaymq/forebay/metadata"
)

const (
	// sweepParallel is how many subscriptions are swept, audited or evicted at a time.
	sweepParallel = 8
	// recheckParked: a subscription for which somebody waits is looked at so often, whatever is heard of it. Redis may have been emptied, or
	// a message lost.
	recheckParked = 2 * time.Second
	// recheckCost keeps that from being all that a node does when thousands of subscriptions are waited for: so long for each.
	recheckCost = 2 * time.Millisecond
	// auditMost is how many subscriptions one round audits: those whose last audit is longest ago.
	auditMost = 500
)

// forEach calls f for each subscription, some at a time. Those that do not exist any more are removed from Redis.
func (e *Engine) forEach(ctx context.Context, ids []metadata.SubscriptionID, what string, f func(ctx context.Context, q *queue) error) {
	var all sync.WaitGroup
	slots := make(chan struct{}, sweepParallel)
	synced := false
	for _, id := range ids {
		if ctx.Err() != nil {
			break
		}
		q, err := e.byID(id)
		if gone(err) {
			// It was deleted, or this node has not heard of it. Redis named it before, so that a look at the log tells.
			if !synced {
				if e.o.View.Sync(ctx) != nil {
					continue
				}
				synced = true
			}
			if q, err = e.byID(id); gone(err) {
				if err := e.o.Store.Drop(ctx, &store.Queue{ID: id}); err != nil {
					e.o.Logger.Warn("a deleted subscription could not be removed from the lease store", "id", id, "error", err)
				}
				continue
			}
		}
		if err != nil {
			continue
		}
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			bounded, cancel := e.bounded(ctx, e.o.CallTimeout)
			defer cancel()
			if err := f(bounded, q); err != nil && ctx.Err() == nil && !gone(err) {
				e.m.background.Inc()
				e.o.Logger.Warn("background work on a subscription failed", "what", what, "id", q.id, "error", err)
			}
		})
	}
	all.Wait()
}

// sweepLoop finds what has lapsed or become due, and wakes who waits for it.
func (e *Engine) sweepLoop(ctx context.Context) {
	e.every(ctx, e.o.SweepInterval, e.sweep)
}

func (e *Engine) sweep(ctx context.Context) {
	bounded, cancel := e.bounded(ctx, e.o.CallTimeout)
	defer cancel()
	ids, err := e.o.Store.DueSubscriptions(bounded)
	if err != nil {
		if ctx.Err() == nil {
			e.m.background.Inc()
			e.o.Logger.Warn("the lease store cannot be swept", "error", err)
		}
		for _, a := range e.all() {
			a.line.stir() // whoever waits learns of it
		}
		return
	}
	e.forEach(ctx, ids, "sweep", func(ctx context.Context, q *queue) error {
		var f *store.Effects
		err := e.call(ctx, q, func(ctx context.Context) (err error) {
			f, err = e.o.Store.Sweep(ctx, &q.store)
			return err
		})
		if err == nil {
			e.effects(q, f)
		}
		q.line.stir() // something is due: that is enough of a reason
		return err
	})
	var parked []*line
	for _, a := range e.all() {
		if a.line.waiting.Load() > 0 {
			parked = append(parked, a.line)
		}
	}
	before := e.o.Clock.Now().Add(-max(recheckParked, time.Duration(len(parked))*recheckCost))
	for _, l := range parked {
		l.recheck(before)
	}
}

// recheck stirs a line that has not been looked at since before.
func (l *line) recheck(before time.Time) {
	l.mu.Lock()
	old := !l.mu.lookedAt.After(before)
	l.mu.Unlock()
	if old {
		l.stir()
	}
}

// rescueLoop journals the changes of nodes that died before they could.
func (e *Engine) rescueLoop(ctx context.Context) {
	e.every(ctx, e.o.SweepInterval, func(ctx context.Context) {
		bounded, cancel := e.bounded(ctx, e.o.CallTimeout)
		defer cancel()
		ids, err := e.o.Store.DirtySubscriptions(bounded, e.o.RescueAge)
		if err != nil {
			return // the sweep says so
		}
		e.forEach(ctx, ids, "rescue", func(_ context.Context, q *queue) error {
			if !e.flusher.knows(q.id) {
				e.m.rescues.Inc()
				e.flusher.markSince(q, e.o.Clock.Now().Add(-e.o.RescueAge))
			}
			return nil
		})
	})
}

// auditLoop checks the state of the subscriptions in use. An audit finds, too, that Redis was emptied.
func (e *Engine) auditLoop(ctx context.Context) {
	e.every(ctx, e.o.AuditInterval, func(ctx context.Context) {
		since := e.now() - 2*e.o.AuditInterval.Milliseconds()
		e.forEach(ctx, toAudit(e.all(), since, auditMost), "audit", e.audit)
	})
}

// toAudit gives the subscriptions that were used since a moment, or are waited for: at most so many, those whose last audit is longest ago.
func toAudit(all []*active, since int64, most int) []metadata.SubscriptionID {
	inUse := slices.DeleteFunc(all, func(a *active) bool { return a.used.Load() < since && a.line.waiting.Load() == 0 })
	slices.SortFunc(inUse, func(a, b *active) int { return cmp.Compare(a.audited.Load(), b.audited.Load()) })
	var ids []metadata.SubscriptionID
	for _, a := range inUse[:min(len(inUse), most)] {
		ids = append(ids, a.id)
	}
	return ids
}

func (e *Engine) audit(ctx context.Context, q *queue) error {
	q.audited.Store(e.now())
	var r store.Repairs
	var f *store.Effects
	err := e.call(ctx, q, func(ctx context.Context) (err error) {
		r, f, err = e.o.Store.Audit(ctx, &q.store)
		return err
	})
	if err != nil {
		return err
	}
	e.effects(q, f)
	if r != (store.Repairs{}) {
		e.m.repaired(r)
		q.forget()
		q.line.stir()
		e.o.Logger.Warn("the state of a subscription was repaired", "tenant", q.sub.Tenant, "topic", q.sub.Topic, "subscription", q.sub.Name,
			"redelivered", r.Redelivered, "dangling", r.Dangling, "counters", r.Counters)
	}
	return nil
}

// evictLoop takes out of Redis, and out of memory, what nobody uses.
func (e *Engine) evictLoop(ctx context.Context) {
	e.every(ctx, e.o.EvictInterval, func(ctx context.Context) {
		bounded, cancel := e.bounded(ctx, e.o.CallTimeout)
		defer cancel()
		before := e.now() - e.o.IdleAfter.Milliseconds()
		if ids, err := e.o.Store.IdleSubscriptions(bounded, e.o.IdleAfter); err == nil {
			e.forEach(ctx, ids, "evict", func(ctx context.Context, q *queue) error {
				if q.line.waiting.Load() > 0 {
					return nil
				}
				evicted, err := e.o.Store.Evict(ctx, &q.store)
				if evicted {
					e.m.evictions.Inc()
				}
				if api.CodeOf(err) == "" {
					return nil // not loaded: then there is nothing to evict, or another node's opening is under way
				}
				return err
			})
		}
		e.retire(before)
	})
}
