package leases

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/leases/store"
	"github.com/forebaymq/forebay/metadata"
)

// timeLookups is how many partitions are asked for a time at once.
const timeLookups = 16

// targets gives the offset of every partition that a target names, linearizably: all of the topic's, or those of target.Offsets.
// INVALID_REQUEST, UNKNOWN_PARTITION, OFFSET_OUT_OF_RANGE.
func (e *Engine) targets(ctx context.Context, topic *metadata.Topic, to SeekTarget) (map[int32]int64, error) {
	named := 0
	for _, is := range []bool{to.Earliest, to.Latest, to.Time != nil, to.Offsets != nil} {
		if is {
			named++
		}
	}
	if named != 1 {
		return nil, api.Errorf(api.CodeInvalidRequest, "name one target: earliest, latest, a timestamp, or offsets")
	}
	if err := e.o.View.Sync(ctx); err != nil {
		return nil, err
	}
	infos, err := e.o.View.PartitionInfos(topic.ID)
	if err != nil {
		return nil, err
	}
	if to.Offsets != nil {
		return to.Offsets, checkSeekOffsets(to.Offsets, infos)
	}
	out := make(map[int32]int64, len(infos))
	for p, info := range infos {
		if to.Earliest {
			out[int32(p)] = info.LogStart
		} else {
			out[int32(p)] = info.Head
		}
	}
	if to.Time != nil {
		return out, e.targetsForTime(ctx, topic.ID, infos, *to.Time, out)
	}
	return out, nil
}

// targetsForTime lowers the offsets in out from the heads to the first record at or after ms, where there is one.
func (e *Engine) targetsForTime(ctx context.Context, topic metadata.TopicID, infos []metadata.PartitionInfo, ms int64, out map[int32]int64) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		mu    sync.Mutex
		wg    sync.WaitGroup
		first error
		slots = make(chan struct{}, timeLookups)
	)
	for p, info := range infos {
		if info.LogStart == info.Head || info.LastAppend < ms {
			continue // nothing is there, or nothing so late
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			offset, found, err := e.o.Reader.OffsetForTime(ctx, topic, int32(p), ms)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				if first == nil {
					first = err
					cancel(err)
				}
			case found:
				// Whatever came since the heads were read is to be delivered.
				out[int32(p)] = min(offset, info.Head)
			}
		})
	}
	wg.Wait()
	return first
}

// Seek moves a subscription. Everything below the target counts as settled and nothing above it; dead letters below it stay, those above it go,
// because their records are delivered again. Leases end: their receipts are lost. It is the only way by which a frontier moves back.
//
// The seek takes effect with the journal's opening of a new incarnation of each shard. What consumers settle between the state it was computed
// from and that moment is as if it had come before the seek. It goes on when ctx ends: OUTCOME_UNKNOWN then.
func (e *Engine) Seek(ctx context.Context, n Name, to SeekTarget) (*Stats, error) {
	q, err := e.resolve(ctx, n)
	if err != nil {
		return nil, err
	}
	targets, err := e.targets(ctx, q.topic, to)
	if err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	started := e.spawn(func() {
		// Between the journal and Redis nobody may leave: Redis would go on with an incarnation that the journal calls void.
		bounded, cancel := e.bounded(e.ctx, e.o.CallTimeout)
		defer cancel()
		err := e.seekAll(bounded, q, targets)
		if err != nil && bounded.Err() != nil {
			err = unavailable(err)
		}
		done <- err
	})
	if !started {
		return nil, errDraining()
	}
	select {
	case err := <-done:
		if err != nil {
			return nil, err
		}
	case <-ctx.Done():
		return nil, &api.Error{Code: api.CodeOutcomeUnknown, Detail: "the request ended before the seek had: look where the subscription stands, or repeat it", Cause: context.Cause(ctx)}
	}
	return e.stats(ctx, q)
}

// seekAll seeks all the partitions, some at a time.
func (e *Engine) seekAll(ctx context.Context, q *queue, targets map[int32]int64) error {
	infos, err := e.o.View.PartitionInfos(q.sub.TopicID)
	if err != nil {
		return err
	}
	var partitions []int32
	for _, p := range slices.Sorted(maps.Keys(targets)) {
		if int(p) < len(infos) && infos[p].Head > 0 { // where nothing was ever written the subscription stands at 0, wherever it is to go
			partitions = append(partitions, p)
		}
	}
	for some := range slices.Chunk(partitions, loadShards) {
		if err := e.seekAgain(ctx, q, some, targets); err != nil {
			return err
		}
	}
	q.forget()
	e.effects(q, &store.Effects{Dirty: partitions, Freed: len(partitions) * q.store.MaxInFlight, NextDue: -1})
	return nil
}

// seekAgain seeks until no other seek is in the way.
func (e *Engine) seekAgain(ctx context.Context, q *queue, partitions []int32, targets map[int32]int64) error {
	for range maxOpens {
		err := e.seekOnce(ctx, q, partitions, targets)
		switch {
		case errors.Is(err, store.ErrStale):
		case api.CodeOf(err) == api.CodeOutcomeUnknown && ctx.Err() == nil: // it may be in the journal: then another one overtakes it
		default:
			return err
		}
	}
	return &api.Error{Code: api.CodeConflict, Detail: "the subscription is being sought by others: repeat the seek", RetryAfter: time.Second}
}

// seekOnce seeks some partitions:
//
//  1. have them loaded, so that what Redis knows and the journal does not is known
//  2. read what both know
//  3. write the openings, and the dead letters that stay, to the journal in one request: from here on the seek has happened, whatever becomes
//     of this node. Another node's opening that was built on the state before it is refused by the journal
//  4. load the new incarnation, which purges the old one from Redis, leases included
func (e *Engine) seekOnce(ctx context.Context, q *queue, partitions []int32, targets map[int32]int64) error {
	shards, pointers, err := e.present(ctx, q, partitions)
	if err != nil {
		return err
	}
	var entries []journal.Entry
	loads := make([]store.LoadRequest, len(partitions))
	opened := make([]int, len(partitions)) // where the opening of each is among the entries
	for i, p := range partitions {
		key := journal.ShardKey{Subscription: q.id, Partition: p}
		shard, kept, removed := seekShard(shards[p], pointers[p], targets[p])
		loads[i] = store.LoadRequest{Partition: p, Shard: shard, Pointers: kept}
		opened[i] = len(entries)
		entries = append(entries, journal.Entry{Key: key, Shard: &loads[i].Shard, Open: true, Seek: true})
		for j := range kept {
			kept[j].Version = journal.Version{} // the new incarnation's
			entries = append(entries, journal.Entry{Key: key, Pointer: &kept[j]})
		}
		for _, o := range removed {
			entries = append(entries, journal.Entry{Key: key, Remove: o})
		}
	}
	offsets, err := e.o.Journal.Write(ctx, q.sub.Tenant, entries)
	if err != nil {
		return err
	}
	for i := range loads {
		version := journal.Version{Incarnation: offsets[opened[i]] + 1}
		loads[i].Incarnation, loads[i].Shard.Version = version.Incarnation, version
		for j := range loads[i].Pointers {
			loads[i].Pointers[j].Version = version
		}
	}
	for chunk := range loadChunks(loads) {
		if err := e.o.Store.Load(ctx, &q.store, chunk); err != nil {
			return err
		}
	}
	return nil
}

// present gives the state of shards and their pointers, those that are no more as a pointer without a kind, as Redis and the journal know them together, at one moment after the call began. The
// shards are opened first where they are not.
func (e *Engine) present(ctx context.Context, q *queue, partitions []int32) (map[int32]journal.Shard, map[int32][]journal.Pointer, error) {
	var exported []store.Exported
	if _, err := e.positions(ctx, q, partitions); err != nil {
		return nil, nil, err
	}
	err := e.call(ctx, q, func(ctx context.Context) (err error) {
		exported, err = e.o.Store.Export(ctx, &q.store, partitions)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if len(exported) != len(partitions) {
		return nil, nil, store.ErrStale // a shard went away after it was opened: again
	}
	// The journal is read after Redis: what another node journals and marks clean in between is in what is read, not in neither.
	loaded, err := e.o.Journal.Load(ctx, q.sub.Tenant, q.id)
	if err != nil {
		return nil, nil, err
	}
	shards, pointers := map[int32]journal.Shard{}, map[int32][]journal.Pointer{}
	for i := range exported {
		x := &exported[i]
		shards[x.Partition] = x.Shard
		all := maps.Clone(loaded.Pointers[x.Partition])
		if all == nil {
			all = map[int64]journal.Pointer{}
		}
		for _, o := range x.Removed {
			if p, ok := all[o]; ok && !x.Shard.Version.Less(p.Version) {
				all[o] = journal.Pointer{Offset: o, Version: x.Shard.Version}
			}
		}
		for _, p := range x.Changed {
			if was, ok := all[p.Offset]; !ok || !p.Version.Less(was.Version) {
				all[p.Offset] = p
			}
		}
		pointers[x.Partition] = slices.Collect(maps.Values(all))
	}
	return shards, pointers, nil
}
