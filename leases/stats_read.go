package leases

import (
	"context"
	"errors"

	"github.com/forebaymq/forebay/leases/store"
)

// maxAgeReads bounds how many records one call of statistics reads to learn their time. Most times are in the index; beyond the bound the age
// is that of the batch, which is older.
const maxAgeReads = 64

// Subscription gives a subscription with its statistics, linearizably as to what was published and settled before the call.
func (e *Engine) Subscription(ctx context.Context, n Name) (*Stats, error) {
	q, err := e.resolve(ctx, n)
	if err != nil {
		return nil, err
	}
	return e.stats(ctx, q)
}

// stats computes the statistics of a subscription in what this node has applied. It opens nothing: what is not in Redis is computed from the journal.
func (e *Engine) stats(ctx context.Context, q *queue) (*Stats, error) {
	shards, err := e.shardStats(ctx, q)
	if err != nil {
		return nil, err
	}
	// After the shards, so that no cursor is ahead of its head.
	infos, err := e.o.View.PartitionInfos(q.sub.TopicID)
	if err != nil {
		return nil, err
	}
	out := &Stats{Subscription: q.sub, Partitions: make([]PartitionStats, len(infos))}
	now := e.now()
	reads := maxAgeReads
	for i := range infos {
		p := int32(i)
		s, ok := shards[p]
		if !ok {
			s = journalStats(p, nil, nil, q.sub.Start(p))
		}
		ps, oldest, eldest := partitionCounts(&s, infos[i], q.sub.Config.GapPolicy)
		if oldest != none {
			if at, ok := e.appendTime(ctx, q, p, oldest, &reads); ok {
				ps.setAge(at, now)
				if eldest == oldest {
					ps.setHeadroom(at, now, q.topic.Config)
				}
			}
		}
		if eldest != none && eldest != oldest {
			if at, ok := e.appendTime(ctx, q, p, eldest, &reads); ok {
				ps.setHeadroom(at, now, q.topic.Config)
			}
		}
		out.Partitions[i] = ps
	}
	return out, nil
}

// shardStats gives the numbers of the shards that have any state, by partition: of Redis, or of the journal where Redis does not have them.
func (e *Engine) shardStats(ctx context.Context, q *queue) (map[int32]store.ShardStats, error) {
	out := map[int32]store.ShardStats{}
	found, err := e.o.Store.Stats(ctx, &q.store)
	var absent *store.NotLoadedError
	if errors.As(err, &absent) { // so it says, too, when it meets another Redis than before
		absent = nil
		found, err = e.o.Store.Stats(ctx, &q.store)
	}
	if err != nil && !errors.As(err, &absent) {
		return nil, err
	}
	for _, s := range found {
		out[s.Partition] = s
	}
	infos, err := e.o.View.PartitionInfos(q.sub.TopicID)
	if err != nil {
		return nil, err
	}
	missing := absent != nil
	for p, info := range infos {
		_, ok := out[int32(p)]
		missing = missing || !ok && info.Head > q.sub.Start(int32(p))
	}
	if !missing {
		return out, nil
	}
	loaded, err := e.o.Journal.Load(ctx, q.sub.Tenant, q.id)
	if err != nil {
		return nil, err
	}
	for p, s := range loaded.Shards {
		if _, ok := out[p]; !ok {
			out[p] = journalStats(p, s, loaded.Pointers[p], q.sub.Start(p))
		}
	}
	return out, nil
}

// appendTime gives the append time (Unix ms) of the first record at or after an offset, from the index where it says it. reads is how many records
// may still be read for it.
func (e *Engine) appendTime(ctx context.Context, q *queue, partition int32, offset int64, reads *int) (ms int64, ok bool) {
	entries, _, err := e.o.Catalog.Locate(q.sub.TopicID, partition, offset, 1)
	if err != nil || len(entries) == 0 {
		return 0, false
	}
	b := &entries[0]
	switch {
	case !b.Sparse:
		return b.AppendTime, true
	case offset <= b.Base || b.FirstTime == b.AppendTime || *reads <= 0:
		return b.FirstTime, true
	}
	*reads--
	records, _, err := e.o.Reader.Read(ctx, q.sub.Tenant, q.sub.TopicID, partition, offset, 1, 1)
	if err != nil || len(records) == 0 {
		return b.FirstTime, true // statistics answer when storage does not: this is the most that the age can be
	}
	return records[0].AppendTime, true
}
