package compactor

import (
	"context"
	"maps"
	"slices"
	"time"

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

// scan calls fn with the partitions of a shard that have live batches in what want takes, some at a time.
func (c *Compactor) scan(ctx context.Context, shard int, want func(*metadata.Topic, metadata.SegmentRef) bool, fn func([]metadata.PartitionScan)) {
	var after metadata.PartitionKey
	for done := false; !done && ctx.Err() == nil; {
		var found []metadata.PartitionScan
		found, after, done = c.o.Log.ScanPartitions(shard, after, scanBudget, want)
		if len(found) > 0 {
			fn(found)
		}
	}
}

// dueSince says whether the time of something has come, and takes note that it is being done.
func (c *Compactor) dueSince(shard int, at func(*shardState) *time.Time, every time.Duration) bool {
	s := &c.shards[shard]
	now := c.o.Clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	last := at(s)
	if !last.IsZero() && now.Sub(*last) < every {
		return false
	}
	*last = now
	return true
}

func lastCleaned(s *shardState) *time.Time { return &s.mu.cleaned }
func lastSwept(s *shardState) *time.Time   { return &s.mu.swept }
func lastShallow(s *shardState) *time.Time { return &s.mu.forgot }

// shallowFor is how long objects that are too shallow to be merged are believed to be so.
const shallowFor = time.Minute

// again lets something be looked at once more at the next opportunity: there was more than one job of it.
func (c *Compactor) again(shard int, at func(*shardState) *time.Time) {
	s := &c.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	*at(s) = time.Time{}
}

// findings is the work that was found in a shard before it is claimed, and is planned anew under the claim.
type findings struct {
	clean bool // partitions are due to be compacted by key
	sweep bool // a look at everything has found something
}

// due says whether a look at a shard under its claim may find work. It reads the metadata of this node, which may be late, and writes
// nothing.
func (c *Compactor) due(ctx context.Context, shard int) (f findings, ok bool) {
	if c.o.Log.ShardStats(shard).Segments == 0 {
		return f, false
	}
	segs, skip := c.segments(shard), c.skipped(shard)
	_, merge := pickLevel0(segs, skip, c.o.Clock.Now(), c.o.Policy)
	_, level := pickLevel(segs, skip, c.shallow(shard), c.o.Policy)
	if c.dueSince(shard, lastCleaned, c.o.CleanEvery) {
		f.clean = len(c.cleaning(ctx, shard, skip)) > 0
	}
	if c.dueSince(shard, lastShallow, shallowFor) {
		c.forgetShallow(shard)
	}
	if c.dueSince(shard, lastSwept, c.o.MoveEvery) {
		f.sweep = c.look(ctx, shard, segs, skip).any()
	}
	return f, merge || level || f.clean || f.sweep
}

// plan gives the most urgent job of a shard, or nil. What f says is done is taken off it.
func (c *Compactor) plan(ctx context.Context, claim *metadata.HeldClaim, shard int, f *findings) (*Job, error) {
	segs, skip := c.segments(shard), c.skipped(shard)
	if f.sweep {
		f.sweep = false
		job, err := c.sweepShard(ctx, claim, shard, segs, skip)
		if job != nil || err != nil {
			f.sweep = job != nil // there may be more
			return job, err
		}
	}
	if k, ok := pickLevel0(segs, skip, c.o.Clock.Now(), c.o.Policy); ok {
		if job := c.planPick(ctx, shard, k); job != nil {
			return job, nil
		}
	}
	if f.clean {
		tasks := c.cleaning(ctx, shard, skip)
		if len(tasks) > 0 {
			tasks = limitCleaning(tasks, c.o.Policy)
			job := &Job{Kind: KindClean, Shard: shard, tasks: tasks}
			for i := range tasks {
				job.Bytes += tasks[i].bytes
			}
			return job, nil
		}
		f.clean = false
	}
	for ctx.Err() == nil {
		k, ok := pickLevel(segs, skip, c.shallow(shard), c.o.Policy)
		if !ok {
			break
		}
		if job := c.planPick(ctx, shard, k); job != nil {
			return job, nil
		}
		c.noteShallow(shard, k)
	}
	return nil, nil
}

// shallow gives how many objects of a class and level were found not to be worth merging.
func (c *Compactor) shallow(shard int) map[bucket]int {
	s := &c.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.mu.shallow)
}

func (c *Compactor) forgetShallow(shard int) {
	s := &c.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.mu.shallow)
}

func (c *Compactor) noteShallow(shard int, k pick) {
	s := &c.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.shallow[bucket{k.class, k.level}] = len(k.ids)
}

// planPick makes the job of a pick, or nil when nothing of it is live any more or merging it is of no use.
func (c *Compactor) planPick(ctx context.Context, shard int, k pick) *Job {
	var found []metadata.PartitionScan
	c.scan(ctx, shard, func(_ *metadata.Topic, s metadata.SegmentRef) bool { return k.ids[s.ID] }, func(some []metadata.PartitionScan) {
		found = append(found, some...)
	})
	if k.deep && !deepEnough(found, c.o.Policy) {
		return nil
	}
	job := planMerge(shard, k, found, c.o.Policy)
	if len(job.Groups) == 0 {
		return nil
	}
	return &job
}

// cleaning gives the partitions of a shard that are due to be compacted by key.
func (c *Compactor) cleaning(ctx context.Context, shard int, skip map[ulid.ULID]bool) []cleanTask {
	var out []cleanTask
	now := c.o.Clock.Now().UnixMilli()
	want := func(t *metadata.Topic, s metadata.SegmentRef) bool { return compactedWant(t, s) && !skip[s.ID] }
	c.scan(ctx, shard, want, func(found []metadata.PartitionScan) { out = append(out, planCleaning(found, now, c.o.Policy)...) })
	return out
}

// swept is what a look at every partition of a shard found.
type swept struct {
	moves []Group         // data that outlives its objects
	trims []trimCandidate // logStarts that belong within a run
	stale []cleanTask     // tombstones whose horizon may have passed
	waste pick            // objects that are mostly dead
}

func (s *swept) any() bool {
	return len(s.moves) > 0 || len(s.trims) > 0 || len(s.stale) > 0 || len(s.waste.ids) > 0
}

// look goes through every partition of a shard once. It reads the metadata only.
func (c *Compactor) look(ctx context.Context, shard int, segs []metadata.SegmentUse, skip map[ulid.ULID]bool) *swept {
	out := &swept{}
	live := map[ulid.ULID]int64{}
	now := c.o.Clock.Now()
	want := func(_ *metadata.Topic, s metadata.SegmentRef) bool { return s.Level > 0 && !skip[s.ID] }
	c.scan(ctx, shard, want, func(found []metadata.PartitionScan) {
		out.moves = append(out.moves, moveGroups(found, c.o.Policy)...)
		for i := range found {
			x := &found[i]
			for j := range x.Entries {
				live[x.Entries[j].Segment.ID] += int64(x.Entries[j].Ref.Len)
			}
			if t, ok := newTrimCandidate(x, now.UnixMilli()); ok && !c.trims.done(&t) {
				out.trims = append(out.trims, t)
			}
			if t, ok := c.staleTask(x, now); ok {
				out.stale = append(out.stale, t)
			}
		}
	})
	out.waste, _ = pickWaste(segs, live, skip, now, c.o.Policy)
	return out
}

// sweepShard looks at every partition of a shard, trims, and gives the most urgent job of what else there is to do.
func (c *Compactor) sweepShard(ctx context.Context, claim *metadata.HeldClaim, shard int, segs []metadata.SegmentUse, skip map[ulid.ULID]bool) (*Job, error) {
	found := c.look(ctx, shard, segs, skip)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(found.moves) > 0 {
		job := planMoves(shard, found.moves, c.o.Policy)
		return &job, nil
	}
	if err := c.trimExactly(ctx, claim, shard, found.trims); err != nil {
		return nil, err
	}
	if tasks := c.expired(ctx, found.stale, c.o.Clock.Now()); len(tasks) > 0 {
		return &Job{Kind: KindClean, Shard: shard, tasks: limitCleaning(tasks, c.o.Policy)}, nil
	}
	if k := found.waste; len(k.ids) > 0 {
		var found []metadata.PartitionScan
		c.scan(ctx, shard, func(_ *metadata.Topic, s metadata.SegmentRef) bool { return k.ids[s.ID] }, func(some []metadata.PartitionScan) {
			found = append(found, slices.Clone(some)...)
		})
		if job := newJob(KindWaste, shard, groupEntries(found, k, c.o.Policy)); len(job.Groups) > 0 {
			return &job, nil
		}
	}
	return nil, nil
}
