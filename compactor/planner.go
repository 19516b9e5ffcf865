package compactor

import (
	"context"

	"github.com/oklog/ulid/v2"

	"github.com/forebaymq/forebay/metadata"
)

// Bounds of what is read of the log under one hold of its read lock.
const (
	scanBudget  = 16 << 10 // partitions and live batches
	segmentPage = 4096
)

// segments lists all live segments of a shard.
func (c *Compactor) segments(shard int) []metadata.SegmentUse {
	var out []metadata.SegmentUse
	var after ulid.ULID
	for {
		page := c.o.Log.Segments(shard, after, segmentPage)
		out = append(out, page...)
		if len(page) < segmentPage {
			return out
		}
		after = page[len(page)-1].ID
	}
}

// scan gives the partitions of a shard that have live batches in what want takes.
func (c *Compactor) scan(ctx context.Context, shard int, want func(*metadata.Topic, metadata.SegmentRef) bool) []metadata.PartitionScan {
	var out []metadata.PartitionScan
	var after metadata.PartitionKey
	for done := false; !done && ctx.Err() == nil; {
		var found []metadata.PartitionScan
		found, after, done = c.o.Log.ScanPartitions(shard, after, scanBudget, want)
		out = append(out, found...)
	}
	return out
}

// due says whether a look at a shard under its claim may find work.
func (c *Compactor) due(shard int) bool {
	if c.o.Log.ShardStats(shard).Segments == 0 {
		return false
	}
	segs, skip := c.segments(shard), c.skipped(shard)
	if _, ok := pickLevel0(segs, skip, c.o.Clock.Now(), c.o.Policy); ok {
		return true
	}
	if _, ok := pickLevel(segs, skip, c.o.Policy); ok {
		return true
	}
	return false
}

// plan gives the most urgent job of a shard, or nil.
func (c *Compactor) plan(ctx context.Context, shard int) *Job {
	segs, skip := c.segments(shard), c.skipped(shard)
	k, ok := pickLevel0(segs, skip, c.o.Clock.Now(), c.o.Policy)
	if !ok {
		k, ok = pickLevel(segs, skip, c.o.Policy)
	}
	if !ok {
		return nil
	}
	found := c.scan(ctx, shard, func(_ *metadata.Topic, s metadata.SegmentRef) bool { return k.ids[s.ID] })
	job := planMerge(shard, k, found, c.o.Policy)
	if len(job.Groups) == 0 {
		return nil
	}
	return &job
}
