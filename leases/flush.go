package leases

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/leases/store"
	"github.com/forebaymq/forebay/metadata"
)

const (
	// flushFlights is how many flushes of one subscription may be under way: with more than one, a change need not wait for the flush that began
	// just before it. Their order does not matter: each carries all that is marked, and a mark is taken away only where nothing changed since.
	flushFlights = 3
	// flushEntries is about how many records one append to the journal has.
	flushEntries = 4000
	// flushRetry and flushRetryMax bound the pause after a flush that failed.
	flushRetry    = 100 * time.Millisecond
	flushRetryMax = time.Second
)

// flusher knows which subscriptions have changes that are not in the journal. The store has marks of them too, for the case that this node
// dies.
type flusher struct {
	clock clockwork.Clock
	mu    struct {
		sync.Mutex
		dirty    map[metadata.SubscriptionID]*change // not taken by a flush
		flights  map[metadata.SubscriptionID]int     // flushes under way
		airborne map[*flight]struct{}
		failures int       // in a row
		notUntil time.Time // after a failure
	}
	some chan struct{} // holds a token while something may be dirty
}

// change is a subscription with changes.
type change struct {
	q     *queue
	since time.Time // of the oldest
}

// flight is one flush of subscriptions of one tenant.
type flight struct {
	tenant  string
	changes []*change
}

func newFlusher(clock clockwork.Clock) *flusher {
	f := &flusher{clock: clock, some: make(chan struct{}, 1)}
	f.mu.dirty = map[metadata.SubscriptionID]*change{}
	f.mu.flights = map[metadata.SubscriptionID]int{}
	f.mu.airborne = map[*flight]struct{}{}
	return f
}

// mark says that q has changed.
func (f *flusher) mark(q *queue) { f.markSince(q, f.clock.Now()) }

func (f *flusher) markSince(q *queue, since time.Time) {
	f.mu.Lock()
	c, marked := f.mu.dirty[q.id]
	if !marked {
		f.mu.dirty[q.id] = &change{q: q, since: since}
	} else if since.Before(c.since) {
		c.since = since
	}
	f.mu.Unlock()
	if !marked {
		f.wake()
	}
}

func (f *flusher) wake() {
	select {
	case f.some <- struct{}{}:
	default:
	}
}

// knows says whether this node is going to journal the subscription's changes.
func (f *flusher) knows(id metadata.SubscriptionID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.dirty[id] != nil || f.mu.flights[id] > 0
}

// oldest is how old the oldest change is that is not journalled.
func (f *flusher) oldest() time.Duration {
	now := f.clock.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	var age time.Duration
	for _, c := range f.mu.dirty {
		age = max(age, now.Sub(c.since))
	}
	for flight := range f.mu.airborne {
		for _, c := range flight.changes {
			age = max(age, now.Sub(c.since))
		}
	}
	return age
}

// depart takes what is dirty, one flight a tenant. Subscriptions with enough flushes under way stay behind.
func (f *flusher) depart() []*flight {
	f.mu.Lock()
	defer f.mu.Unlock()
	byTenant := map[string]*flight{}
	var out []*flight
	for id, c := range f.mu.dirty {
		if f.mu.flights[id] >= flushFlights {
			continue
		}
		delete(f.mu.dirty, id)
		f.mu.flights[id]++
		t := byTenant[c.q.sub.Tenant]
		if t == nil {
			t = &flight{tenant: c.q.sub.Tenant}
			byTenant[t.tenant] = t
			f.mu.airborne[t] = struct{}{}
			out = append(out, t)
		}
		t.changes = append(t.changes, c)
	}
	return out
}

// arrive ends a flight. What failed is dirty again.
func (f *flusher) arrive(t *flight, failed []*change) {
	f.mu.Lock()
	delete(f.mu.airborne, t)
	for _, c := range t.changes {
		if f.mu.flights[c.q.id]--; f.mu.flights[c.q.id] == 0 {
			delete(f.mu.flights, c.q.id)
		}
	}
	if len(failed) > 0 {
		pause := min(flushRetry<<min(f.mu.failures, 10), flushRetryMax)
		f.mu.failures++
		f.mu.notUntil = f.clock.Now().Add(pause)
	} else {
		f.mu.failures, f.mu.notUntil = 0, time.Time{}
	}
	left := len(f.mu.dirty) > 0
	f.mu.Unlock()
	for _, c := range failed {
		f.markSince(c.q, c.since)
	}
	if left {
		f.wake()
	}
}

// pause is how long to wait before the next flush begins: for company, and after a failure longer.
func (f *flusher) pause(delay time.Duration) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.notUntil.IsZero() {
		return delay
	}
	return max(delay, f.mu.notUntil.Sub(f.clock.Now()))
}

// flushLoop journals what changes, soon after it has.
func (e *Engine) flushLoop(ctx context.Context) {
	for {
		select {
		case <-e.flusher.some:
		case <-ctx.Done():
			return
		}
		t := e.o.Clock.NewTimer(e.flusher.pause(e.o.FlushDelay))
		select {
		case <-t.Chan():
		case <-ctx.Done():
			t.Stop()
			return
		}
		for _, flight := range e.flusher.depart() {
			if !e.spawn(func() { e.fly(e.ctx, flight) }) {
				e.flusher.arrive(flight, flight.changes)
			}
		}
	}
}

// fly journals the changes of a flight.
func (e *Engine) fly(ctx context.Context, t *flight) error {
	ctx, cancel := e.bounded(ctx, e.o.CallTimeout)
	defer cancel()
	begun := e.o.Clock.Now()
	failed, err := e.journal(ctx, t)
	if err != nil {
		e.m.flushes.failed.Inc()
		e.o.Logger.Warn("changes of subscriptions are not journalled yet", "tenant", t.tenant, "subscriptions", len(failed), "oldest", e.flusher.oldest(), "error", err)
	} else {
		e.m.flushes.done.Inc()
		e.m.flushSeconds.Observe(e.o.Clock.Since(begun).Seconds())
	}
	e.flusher.arrive(t, failed)
	return err
}

// export is the changes of one subscription.
type export struct {
	c       *change
	shards  []store.Exported
	entries []journal.Entry
}

// journal writes the changes of a flight and takes their marks away. failed are those for which that is to be done again.
func (e *Engine) journal(ctx context.Context, t *flight) (failed []*change, err error) {
	var errs []error
	var batch []export
	entries := 0
	send := func() {
		if len(batch) == 0 {
			return
		}
		if err := e.commit(ctx, t.tenant, batch); err != nil {
			errs = append(errs, err)
			for _, x := range batch {
				failed = append(failed, x.c)
			}
		}
		batch, entries = nil, 0
	}
	for _, c := range t.changes {
		x := export{c: c}
		err := e.call(ctx, c.q, func(ctx context.Context) (err error) {
			x.shards, err = e.o.Store.Export(ctx, &c.q.store, nil)
			return err
		})
		switch {
		case gone(err): // there is nothing left to remember
			continue
		case err != nil:
			errs = append(errs, fmt.Errorf("export subscription %d: %w", c.q.id, err))
			failed = append(failed, c)
			continue
		case len(x.shards) == 0: // another node has done it
			continue
		}
		x.entries = entriesOf(c.q.id, x.shards)
		if entries > 0 && entries+len(x.entries) > flushEntries {
			send()
		}
		batch = append(batch, x)
		entries += len(x.entries)
	}
	send()
	return failed, errors.Join(errs...)
}

// commit writes the changes of some subscriptions in one append, as far as it takes them, and takes their marks away.
func (e *Engine) commit(ctx context.Context, tenant string, batch []export) error {
	var entries []journal.Entry
	for _, x := range batch {
		entries = append(entries, x.entries...)
	}
	for len(entries) > 0 {
		n := min(len(entries), 2*flushEntries)
		if _, err := e.o.Journal.Write(ctx, tenant, entries[:n]); err != nil {
			return fmt.Errorf("write the journal: %w", err)
		}
		e.m.journalled.Add(float64(n))
		entries = entries[n:]
	}
	for _, x := range batch {
		if err := e.o.Store.Clean(ctx, &x.c.q.store, x.shards); err != nil {
			var absent *store.NotLoadedError
			if errors.As(err, &absent) {
				continue // Redis was lost meanwhile, and the marks with it
			}
			return fmt.Errorf("clean subscription %d: %w", x.c.q.id, err)
		}
	}
	return nil
}

// entriesOf is what the journal is told about shards.
func entriesOf(id metadata.SubscriptionID, shards []store.Exported) []journal.Entry {
	n := 0
	for i := range shards {
		n += 1 + len(shards[i].Changed) + len(shards[i].Removed)
	}
	entries := make([]journal.Entry, 0, n)
	for i := range shards {
		x := &shards[i]
		key := journal.ShardKey{Subscription: id, Partition: x.Partition}
		entries = append(entries, journal.Entry{Key: key, Shard: &x.Shard})
		for j := range x.Changed {
			entries = append(entries, journal.Entry{Key: key, Pointer: &x.Changed[j]})
		}
		for _, o := range x.Removed {
			entries = append(entries, journal.Entry{Key: key, Remove: o, Version: x.Shard.Version})
		}
	}
	return entries
}

// flushAll journals what is left, when the engine ends.
func (e *Engine) flushAll(ctx context.Context) error {
	var errs []error
	for _, flight := range e.flusher.depart() {
		errs = append(errs, e.fly(ctx, flight))
	}
	return errors.Join(errs...)
}
