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
		if stale(err) {
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
//  2. read the journal, and ask Redis what it has
//  3. write the openings to the journal: from here on every earlier incarnation is history. A crash leaves openings that nobody
//     uses, which harms nothing: they carry the state that was there
//  4. load: what Redis has and is no older than the journal stays, leases included; the rest is rebuilt
//  5. say that it is ready
func (e *Engine) openOnce(ctx context.Context, q *queue, partitions []int32) (int, error) {
	life := e.o.Store.Life()
	// The subscription may have been deleted, which is why Redis does not have it. Opening it would leave state that nobody removes.
	if err := e.o.View.Sync(ctx); err != nil {
		return 0, err
	}
	if _, err := e.o.View.SubscriptionByID(q.id); err != nil {
		return 0, err
	}
	loaded, err := e.o.Journal.Load(ctx, q.sub.Tenant, q.id)
	if err != nil {
		return 0, err
	}
	have, err := e.o.Store.Survey(ctx, &q.store)
	if err != nil {
		return 0, err
	}
	which := partitions
	if which == nil {
		if which, err = e.toOpen(q, loaded, have); err != nil {
			return 0, err
		}
	}
	loads, err := e.writeOpenings(ctx, q, which, loaded, have)
	if err != nil {
		return 0, err
	}
	for chunk := range loadChunks(loads) {
		if err := e.o.Store.Load(ctx, &q.store, chunk); err != nil {
			return 0, err
		}
	}
	if partitions == nil {
		if err := e.o.Store.Ready(ctx, &q.store, life); err != nil {
			return 0, err
		}
	}
	q.forget()
	// Leases that were lost with Redis are deliverable records now, here and on every node.
	if slices.ContainsFunc(loads, func(l store.LoadRequest) bool { return !l.Keep }) {
		q.line.stir()
		e.wakes.add(store.Wake{Subscription: q.id, Freed: len(loads)})
	}
	return len(loads), nil
}

// toOpen gives the partitions that have any state, or records that the subscription has not seen. Others are opened when they get one.
func (e *Engine) toOpen(q *queue, loaded *journal.Loaded, have map[int32]journal.Version) ([]int32, error) {
	infos, err := e.o.View.PartitionInfos(q.sub.TopicID)
	if err != nil {
		return nil, err
	}
	set := map[int32]struct{}{}
	for p := range loaded.Shards {
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

// writeOpenings starts a new incarnation of each shard in the journal and gives what is to be loaded.
func (e *Engine) writeOpenings(ctx context.Context, q *queue, which []int32, loaded *journal.Loaded, have map[int32]journal.Version) ([]store.LoadRequest, error) {
	loads := make([]store.LoadRequest, 0, len(which))
	entries := make([]journal.Entry, 0, len(which))
	for _, p := range which {
		state := loaded.Shards[p]
		if state == nil {
			state = &journal.Shard{Frontier: q.sub.Start(p)}
		}
		has, ok := have[p]
		l := store.LoadRequest{Partition: p, Keep: ok && !has.Less(state.Version), Shard: *state}
		if !l.Keep {
			for _, o := range slices.Sorted(maps.Keys(loaded.Pointers[p])) {
				l.Pointers = append(l.Pointers, loaded.Pointers[p][o])
			}
		}
		loads = append(loads, l)
		// A kept shard's opening carries what the journal knows, too. What Redis knows beyond that is marked there and follows within 100 ms; until
		// then a loss of Redis costs what it would have cost before.
		opening := *state
		if l.Keep {
			opening.Version = has
		}
		entries = append(entries, journal.Entry{Key: journal.ShardKey{Subscription: q.id, Partition: p}, Shard: &opening, Open: true})
	}
	done := 0
	for chunk := range slices.Chunk(entries, openEntries) {
		offsets, err := e.o.Journal.Write(ctx, q.sub.Tenant, chunk)
		if err != nil {
			return nil, err
		}
		for _, o := range offsets {
			loads[done].Incarnation = o + 1 // the first record of a journal is at offset 0, and 0 means never opened
			loads[done].Shard.Version = journal.Version{Incarnation: o + 1}
			done++
		}
	}
	return loads, nil
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
