package metadata

import (
	"context"

	"github.com/oklog/ulid/v2"
)

// What compaction, collection and reports read of the log. All of it is as far as this node has applied, and each call holds the read lock
// of one shard for a bounded time.

// Shards is the number of shards of the fabric.
func (l *Log) Shards() int { return len(l.shards) }

// ShardStats counts what a shard holds.
func (l *Log) ShardStats(shard int) Stats {
	s := l.shards[shard]
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mu.state.Stats()
}

// Segments lists up to limit live segments of a shard with an ID above after, ascending.
func (l *Log) Segments(shard int, after ulid.ULID, limit int) []SegmentUse {
	s := l.shards[shard]
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mu.state.Segments(after, limit)
}

// Segment says whether live batches of any shard refer to the segment, and how many.
func (l *Log) Segment(id ulid.ULID) (use SegmentUse, live bool) {
	for _, s := range l.shards {
		s.mu.RLock()
		u, ok := s.mu.state.Segment(id)
		s.mu.RUnlock()
		if ok {
			u.Batches += use.Batches
			use, live = u, true
		}
	}
	return use, live
}

// GCBoundary is the lowest boundary of all shards, Unix ms: no segment with an ID below it that is not live can ever become live.
func (l *Log) GCBoundary() int64 {
	var lowest int64
	for i, s := range l.shards {
		s.mu.RLock()
		b := s.mu.state.GCBoundary()
		s.mu.RUnlock()
		if i == 0 || b < lowest {
			lowest = b
		}
	}
	return lowest
}

// ScanPartitions is State.Scan of one shard.
func (l *Log) ScanPartitions(shard int, after PartitionKey, budget int, want func(*Topic, SegmentRef) bool) (found []PartitionScan, next PartitionKey, done bool) {
	s := l.shards[shard]
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mu.state.Scan(after, budget, want)
}

// DoAll submits commands that take effect in one transaction, in their order, and gives the result of each; one may be refused while others
// are not. The commands must be of one shard each (no GCBoundary, no Commit), and together fit a transaction. Errors are as of Do.
func (l *Log) DoAll(ctx context.Context, cmds []Command, guard *Guard) ([]Result, error) {
	parts := make([]part, len(cmds))
	for i, cmd := range cmds {
		shards, err := l.commandShards(cmd)
		if err != nil {
			return nil, err
		}
		parts[i] = part{shards[0], cmd}
	}
	if len(parts) == 0 {
		return nil, nil
	}
	return l.doParts(ctx, parts, guard)
}
