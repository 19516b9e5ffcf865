package leases

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/leases/store"
)

const (
	// maxOpens is how often one call opens its subscription before it gives up: each time Redis was replaced, or another node was faster.
	maxOpens = 8
	// firstLife is the life of a store that has not seen Redis replaced.
	firstLife = 1
	// openEntries, loadShards and loadPointers bound one request to the journal and to Redis while a subscription is opened.
	openEntries  = 2000
	loadShards   = 256
	loadPointers = 2000
)

// call runs a call to the store. When Redis does not have the subscription, or has lost it, it is opened and the call repeated. f
// may therefore run several times; the store has done nothing when it answers that it does not have the subscription.
func (e *Engine) call(ctx context.Context, q *queue, f func(ctx context.Context) error) error {
	for range maxOpens {
		err := f(ctx)
		var absent *store.NotLoadedError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &absent):
			if err := e.open(ctx, q, absent.Partitions); err != nil {
				return err
			}
		case stale(err): // overtaken by another opening: what it left is looked at in the next round
		default:
			return err
		}
	}
	return errLosing()
}

// opening is one attempt to open a subscription, shared by the calls of this node that need it.
type opening struct {
	done chan struct{}
	err  error // once done is closed
}

// open brings the state of a subscription from the journal to Redis; partitions nil = all of it. One opening runs at a time; who comes
// meanwhile waits for it and tries its call again, whatever that one opened.
func (e *Engine) open(ctx context.Context, q *queue, partitions []int32) error {
	a := q.active
	a.opening.Lock()
	o := a.opening.now
	if o == nil {
		o = &opening{done: make(chan struct{})}
		started := e.spawn(func() {
			bounded, cancel := e.bounded(e.ctx, e.o.CallTimeout)
			defer cancel()
			o.err = e.openAgain(bounded, q, partitions)
			if o.err != nil && bounded.Err() != nil {
				o.err = unavailable(o.err)
			}
			a.opening.Lock()
			a.opening.now = nil
			a.opening.Unlock()
			close(o.done)
		})
		if !started {
			a.opening.Unlock()
			return errDraining()
		}
		a.opening.now = o
	}
	a.opening.Unlock()
	select {
	case <-o.done:
		return o.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// openAgain opens until no other opening is in the way.
func (e *Engine) openAgain(ctx context.Context, q *queue, partitions []int32) error {
	begun := e.o.Clock.Now()
	for range maxOpens {
		n, err := e.openOnce(ctx, q, partitions)
		if stale(err) || api.CodeOf(err) == api.CodeOutcomeUnknown {
			// Overtaken; or the openings may be in the journal or not: others after them make that all the same.
			e.m.opens.stale.Inc()
			continue
		}
		if err != nil {
			e.m.opens.failed.Inc()
			return err
		}
		e.m.opens.done.Inc()
		e.m.openSeconds.Observe(e.o.Clock.Since(begun).Seconds())
		e.o.Logger.Debug("subscription opened", "tenant", q.sub.Tenant, "subscription", q.sub.Name, "id", q.id, "shards", n)
		return nil
	}
	return &api.Error{Code: api.CodeLeasesUnavailable, Detail: "the subscription is being opened by others", RetryAfter: time.Second}
}

// openOnce opens the subscription, or the named partitions of it:
//
//  1. note the life of Redis; what follows is void in another one
//  2. read the journal, and ask Redis what it has. Shards of which Redis has all that the journal has are left alone if this process is just new
//     here, unless many were new before it; their leases live on in either case
//  3. write openings of the others to the journal: from here on every earlier incarnation of them is history. A crash leaves openings that
//     nobody uses, which harms nothing: they carry the state that was there
//  4. load them
//  5. say that it is ready
func (e *Engine) openOnce(ctx context.Context, q *queue, partitions []int32) (loaded int, err error) {
	life := e.o.Store.Life()
	// The subscription may have been deleted, which is why Redis does not have it. Opening it would leave state that nobody removes.
	if err := e.o.View.Sync(ctx); err != nil {
		return 0, err
	}
	if _, err := e.o.View.SubscriptionByID(q.id); err != nil {
		return 0, err
	}
	known, reported, err := e.o.Journal.LoadReported(ctx, q.sub.Tenant, q.id)
	if err != nil {
		return 0, err
	}
	have, err := e.o.Store.Survey(ctx, &q.store)
	if err != nil {
		return 0, err
	}
	which := partitions
	if which == nil {
		if which, err = e.toOpen(q, known, have); err != nil {
			return 0, err
		}
	}
	os, err := e.writeOpenings(ctx, q, life, which, known, reported, have)
	if err != nil {
		return 0, err
	}
	if err := e.load(ctx, q, os); err != nil {
		return 0, err
	}
	if partitions == nil {
		if err := e.o.Store.Ready(ctx, &q.store, life); err != nil {
			return 0, err
		}
	}
	q.forget()
	if slices.ContainsFunc(os, func(o shardOpening) bool { return !o.Keep }) {
		// Leases that were lost with Redis are deliverable records now, here and on every node.
		q.line.stir()
		e.wakes.add(store.Wake{Subscription: q.id, Freed: len(os)})
	}
	return len(os), nil
}

// toOpen gives the partitions that have any state, or records that the subscription has not seen. Others are opened when they get one.
func (e *Engine) toOpen(q *queue, known *journal.Loaded, have map[int32]journal.Version) ([]int32, error) {
	infos, err := e.o.View.PartitionInfos(q.sub.TopicID)
	if err != nil {
		return nil, err
	}
	set := map[int32]struct{}{}
	for p := range known.Shards {
		set[p] = struct{}{}
	}
	for p := range have {
		set[p] = struct{}{}
	}
	for p := range infos {
		if infos[p].Head > q.sub.Start(int32(p)) {
			set[int32(p)] = struct{}{}
		}
	}
	return slices.Sorted(maps.Keys(set)), nil
}

// shardOpening is the opening of one shard.
type shardOpening struct {
	store.LoadRequest
	base journal.Version // of what is in the journal: whatever Redis has that is not older may stay
}

// writeOpenings begins a new incarnation of each shard that Redis does not have as the journal has it.
func (e *Engine) writeOpenings(ctx context.Context, q *queue, life uint64, which []int32, known *journal.Loaded,
	reported, have map[int32]journal.Version) ([]shardOpening, error) {
	var os []shardOpening
	var entries []journal.Entry
	for _, p := range which {
		state := known.Shards[p]
		if state == nil {
			state = &journal.Shard{Frontier: q.sub.Start(p)}
		}
		has, ok := have[p]
		whole := ok && state.Incarnation > 0 && !has.Less(reported[p])
		if whole && life == firstLife && !known.Crowded[p] {
			continue
		}
		o := shardOpening{LoadRequest: store.LoadRequest{Partition: p, Shard: *state, Over: -1}, base: reported[p]}
		opening := *state
		switch {
		case whole:
			// Redis was replaced since this process knows it: it may lack changes that are not in the journal either, and what has their numbers from
			// now on must not be taken for them. Or so many nodes have come and gone that their states in the journal would add up for ever.
			o.Keep, o.Over = true, 0
			if state.Less(has) {
				opening.Version = has
			}
		case ok:
			o.Over = has.Incarnation
		}
		if !whole {
			for _, offset := range slices.Sorted(maps.Keys(known.Pointers[p])) {
				o.Pointers = append(o.Pointers, known.Pointers[p][offset])
			}
		}
		os = append(os, o)
		entries = append(entries, journal.Entry{Key: journal.ShardKey{Subscription: q.id, Partition: p}, Shard: &opening, Open: true})
	}
	done := 0
	for chunk := range slices.Chunk(entries, openEntries) {
		offsets, err := e.o.Journal.Write(ctx, q.sub.Tenant, chunk)
		if err != nil {
			return nil, err
		}
		for _, offset := range offsets {
			os[done].Incarnation = offset + 1 // the first record of a journal is at offset 0, and 0 means never opened
			os[done].Shard.Version = journal.Version{Incarnation: offset + 1}
			done++
		}
	}
	return os, nil
}

// load puts the opened shards in place. Another node may be doing the same at this moment, with an incarnation before or after this one, and hand
// out leases already. It loads what it read from the journal, as this node does; so where it was faster, its state is carried on instead of
// being purged. Where this node's incarnation is the older one, it starts over and will find nothing to do.
func (e *Engine) load(ctx context.Context, q *queue, os []shardOpening) error {
	for len(os) > 0 {
		n, pointers := 0, 0
		var chunk []store.LoadRequest
		for n < len(os) && n < loadShards && (n == 0 || pointers+len(os[n].Pointers) <= loadPointers) {
			pointers += len(os[n].Pointers)
			chunk = append(chunk, os[n].LoadRequest)
			n++
		}
		err := e.o.Store.Load(ctx, &q.store, chunk)
		for attempt := 1; errors.Is(err, store.ErrStale) && attempt < maxOpens; attempt++ {
			have, surveyErr := e.o.Store.Survey(ctx, &q.store)
			if surveyErr != nil {
				return surveyErr
			}
			if chunk, err = again(os[:n], have); err != nil {
				return err
			}
			err = e.o.Store.Load(ctx, &q.store, chunk)
		}
		if err != nil {
			return err
		}
		os = os[n:]
	}
	return nil
}

// again is what is left to load of openings, after another node was found to load as well.
func again(os []shardOpening, have map[int32]journal.Version) ([]store.LoadRequest, error) {
	var out []store.LoadRequest
	for i := range os {
		l := os[i].LoadRequest
		has, ok := have[l.Partition]
		switch {
		case ok && has.Incarnation == l.Incarnation: // done
			continue
		case ok && has.Incarnation > l.Incarnation:
			return nil, store.ErrStale
		case ok && !has.Less(os[i].base):
			l.Keep, l.Over, l.Pointers = true, 0, nil
		case ok:
			l.Over = has.Incarnation
		default:
			l.Over = -1
		}
		out = append(out, l)
	}
	return out, nil
}

// loadChunks cuts loads into what one request may carry. A shard is never cut: it is loaded whole or not at all.
func loadChunks(loads []store.LoadRequest) func(yield func([]store.LoadRequest) bool) {
	return func(yield func([]store.LoadRequest) bool) {
		for len(loads) > 0 {
			n, pointers := 0, 0
			for n < len(loads) && n < loadShards && (n == 0 || pointers+len(loads[n].Pointers) <= loadPointers) {
				pointers += len(loads[n].Pointers)
				n++
			}
			if !yield(loads[:n]) {
				return
			}
			loads = loads[n:]
		}
	}
}

// stale says that another opening of a shard came between.
func stale(err error) bool {
	return errors.Is(err, store.ErrStale) || errors.Is(err, journal.ErrStale)
}

// unavailable is the answer for work that did not end in time.
func unavailable(err error) error {
	var coded *api.Error
	if errors.As(err, &coded) {
		return err
	}
	return &api.Error{Code: api.CodeLeasesUnavailable, Detail: "the lease store or the journal did not answer in time", RetryAfter: time.Second, Cause: err}
}

func errDraining() error {
	return &api.Error{Code: api.CodeOverloaded, Detail: "the node is shutting down: ask another one", RetryAfter: time.Second}
}

// gone says that the subscription was deleted while the request ran.
func gone(err error) bool {
	c := api.CodeOf(err)
	return c == api.CodeUnknownSubscription || c == api.CodeUnknownTopic
}

func errLosing() error {
	return &api.Error{Code: api.CodeLeasesUnavailable, Detail: "the lease store keeps losing the subscription's state", RetryAfter: time.Second}
}
