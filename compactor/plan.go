package compactor

import (
	"cmp"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/forebaymq/forebay/metadata"
)

// cleanLevel is the level of objects that hold records compacted by key. Merging never makes it, so the level of a batch says whether it is
// clean: no record in it has a newer one of the same key in the clean batches of its partition.
const cleanLevel = 16

// Kind says what a job is for.
type Kind string

// The kinds of jobs, most urgent first.
const (
	KindMove  Kind = "move"  // to a longer retention class, before a rule deletes the object
	KindMerge Kind = "merge" // level 0 to level 1
	KindClean Kind = "clean" // by key
	KindLevel Kind = "level" // a level to the next
	KindWaste Kind = "waste" // what is live in objects that are mostly dead
)

// Group is a stretch of neighbouring live batches of one partition that becomes one run, or several where an object is full.
type Group struct {
	Topic     *metadata.Topic
	Partition int32
	LogStart  int64
	Entries   []metadata.IndexEntry // ascending
	Class     string                // of the run
	Level     uint8                 // of the run
}

// bytes is what the batches of the group are stored in.
func (g *Group) bytes() int64 {
	var n int64
	for i := range g.Entries {
		n += int64(g.Entries[i].Ref.Len)
	}
	return n
}

// Job is what one worker does under one claim.
type Job struct {
	Kind   Kind
	Shard  int
	Groups []Group // by class, level, topic, partition, offset
	Bytes  int64   // stored bytes that it reads
	tasks  []cleanTask
}

// pick is a choice of objects, before the partitions are looked at.
type pick struct {
	kind  Kind
	class string // KindLevel
	level uint8  // of the objects
	deep  bool   // only if deepEnough
	ids   map[ulid.ULID]bool
}

// maxJobObjects bounds how many objects one job reads.
const maxJobObjects = 1024

// pickLevel0 chooses the level-0 objects of a shard to be merged, or none when it is not time yet. segs are live segments of the shard,
// ascending; skip holds those that cannot be read.
func pickLevel0(segs []metadata.SegmentUse, skip map[ulid.ULID]bool, now time.Time, p Policy) (pick, bool) {
	out := pick{kind: KindMerge, ids: map[ulid.ULID]bool{}}
	var size int64
	oldest := int64(-1)
	for i := range segs {
		s := &segs[i]
		if s.Level != 0 || skip[s.ID] {
			continue
		}
		if oldest < 0 {
			oldest = int64(s.ID.Time())
		}
		size += s.Size
		if len(out.ids) < maxJobObjects {
			out.ids[s.ID] = true
		}
	}
	if len(out.ids) == 0 {
		return out, false
	}
	due := len(out.ids) >= p.MergeObjects || size >= p.MergeBytes || now.UnixMilli()-oldest >= p.MergeAge.Milliseconds()
	return out, due
}

// bucket is the objects of one class and level.
type bucket struct {
	class string
	level uint8
}

// pickLevel chooses objects of one class and level to be merged, of the lowest level that has some: FanIn or more small ones, or, to be judged
// by deepEnough, all of those whose runs are still short. shallow says of how many objects of a class and level that was found not to be
// so: an object more is worth another look.
func pickLevel(segs []metadata.SegmentUse, skip map[ulid.ULID]bool, shallow map[bucket]int, p Policy) (pick, bool) {
	type count struct{ all, small int }
	counts := map[bucket]count{}
	short := func(s *metadata.SegmentUse) bool {
		return s.Level > 0 && int(s.Level) < p.MaxLevel && !skip[s.ID] && s.Size/int64(max(s.Batches, 1)) < p.GoodRunBytes
	}
	small := func(s *metadata.SegmentUse) bool { return 2*s.Size < p.ObjectBytes }
	for i := range segs {
		if s := &segs[i]; short(s) {
			b := bucket{s.Class, s.Level}
			c := counts[b]
			c.all++
			if small(s) {
				c.small++
			}
			counts[b] = c
		}
	}
	var due []bucket
	for b, c := range counts {
		if c.small >= p.FanIn || c.all >= p.FanIn && c.all > shallow[b] {
			due = append(due, b)
		}
	}
	if len(due) == 0 {
		return pick{}, false
	}
	b := slices.MinFunc(due, func(x, y bucket) int { return cmp.Or(cmp.Compare(x.level, y.level), cmp.Compare(x.class, y.class)) })
	out := pick{kind: KindLevel, class: b.class, level: b.level, deep: counts[b].small < p.FanIn, ids: map[ulid.ULID]bool{}}
	var size int64
	for i := range segs {
		s := &segs[i]
		if !short(s) || s.Class != b.class || s.Level != b.level || !out.deep && !small(s) {
			continue
		}
		if !out.deep && len(out.ids) >= p.FanIn && size+s.Size > levelJobBytes(p) {
			break
		}
		out.ids[s.ID] = true
		size += s.Size
	}
	return out, true
}

// levelJobBytes bounds a job that merges a level.
func levelJobBytes(p Policy) int64 { return 2 * int64(p.FanIn) * p.ObjectBytes }

// deepEnough says whether merging these objects makes runs much longer: a partition has FanIn of them on average. Objects that were made
// together have different partitions, and merging those would be of no use.
func deepEnough(found []metadata.PartitionScan, p Policy) bool {
	entries := 0
	for i := range found {
		entries += len(found[i].Entries)
	}
	return entries > 0 && entries >= p.FanIn*len(found)
}

// groupEntries makes groups of what a scan found of the picked objects: of each partition, neighbours together. Long runs that
// fill more than half of their object stay where they are.
func groupEntries(found []metadata.PartitionScan, k pick, p Policy) []Group {
	var out []Group
	for i := range found {
		x := &found[i]
		class := ClassFor(x.Topic.Config)
		last := -2
		for j := range x.Entries {
			e := &x.Entries[j]
			if k.kind == KindLevel && int64(e.Ref.Len) >= p.GoodRunBytes && 2*int64(e.Ref.Len) > e.Segment.Size {
				continue
			}
			n := len(out) - 1
			if x.Ordinals[j] == last+1 && (k.kind == KindMerge || k.kind == KindLevel || out[n].Level == e.Segment.Level) && len(out[n].Entries) < maxGroupEntries {
				out[n].Entries = append(out[n].Entries, *e)
			} else {
				g := Group{Topic: x.Topic, Partition: x.Partition, LogStart: x.Info.LogStart, Class: class, Level: e.Segment.Level}
				if k.kind == KindMerge || k.kind == KindLevel {
					g.Level = k.level + 1
				}
				g.Entries = append(g.Entries, *e)
				out = append(out, g)
			}
			last = x.Ordinals[j]
		}
	}
	return out
}

// maxGroupEntries bounds one Replace, so that it fits a transaction of the log.
const maxGroupEntries = 20_000

// limitJob drops the newest objects of a level-0 job until what is left is within limit, and at least one object.
func limitJob(groups []Group, limit int64) map[ulid.ULID]bool {
	size := map[ulid.ULID]int64{}
	for i := range groups {
		for j := range groups[i].Entries {
			e := &groups[i].Entries[j]
			size[e.Segment.ID] += int64(e.Ref.Len)
		}
	}
	ids := make([]ulid.ULID, 0, len(size))
	for id := range size {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, ulid.ULID.Compare)
	keep := map[ulid.ULID]bool{}
	var total int64
	for _, id := range ids {
		if total += size[id]; total > limit && len(keep) > 0 {
			break
		}
		keep[id] = true
	}
	return keep
}

// without gives what the scan found but for the objects that are not in keep.
func without(found []metadata.PartitionScan, keep map[ulid.ULID]bool) []metadata.PartitionScan {
	var out []metadata.PartitionScan
	for i := range found {
		x := found[i]
		x.Entries, x.Ordinals = nil, nil
		for j := range found[i].Entries {
			if keep[found[i].Entries[j].Segment.ID] {
				x.Entries = append(x.Entries, found[i].Entries[j])
				x.Ordinals = append(x.Ordinals, found[i].Ordinals[j])
			}
		}
		if len(x.Entries) > 0 {
			out = append(out, x)
		}
	}
	return out
}

// planMerge makes the job of a pick of level 0 or of a level.
func planMerge(shard int, k pick, found []metadata.PartitionScan, p Policy) Job {
	groups := groupEntries(found, k, p)
	if k.kind == KindMerge {
		groups = groupEntries(without(found, limitJob(groups, p.JobBytes)), k, p)
	}
	job := newJob(k.kind, shard, groups)
	if k.kind == KindLevel {
		job.limit(levelJobBytes(p))
	}
	return job
}

// limit drops groups from the end until what is left is within limit bytes, and at least one group.
func (j *Job) limit(limit int64) {
	var size int64
	for i := range j.Groups {
		n := j.Groups[i].bytes()
		if i > 0 && size+n > limit {
			j.Groups, j.Bytes = j.Groups[:i], size
			return
		}
		size += n
	}
}

// newJob orders the groups.
func newJob(kind Kind, shard int, groups []Group) Job {
	slices.SortStableFunc(groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(a.Class, b.Class), cmp.Compare(a.Level, b.Level), cmp.Compare(a.Topic.ID, b.Topic.ID), cmp.Compare(a.Partition, b.Partition),
			cmp.Compare(a.Entries[0].Base, b.Entries[0].Base))
	})
	j := Job{Kind: kind, Shard: shard, Groups: groups}
	for i := range groups {
		j.Bytes += groups[i].bytes()
	}
	return j
}

// moveGroups makes groups of the batches of a scan that live longer than their objects.
func moveGroups(found []metadata.PartitionScan, p Policy) []Group {
	var out []Group
	for i := range found {
		x := found[i]
		var entries []metadata.IndexEntry
		var ordinals []int
		for j := range x.Entries {
			if e := &x.Entries[j]; outlives(x.Topic.Config, e.Segment.Class, int64(e.Segment.ID.Time()), e.AppendTime) {
				entries, ordinals = append(entries, *e), append(ordinals, x.Ordinals[j])
			}
		}
		x.Entries, x.Ordinals = entries, ordinals
		out = append(out, groupEntries([]metadata.PartitionScan{x}, pick{kind: KindMove}, p)...)
	}
	return out
}

// planMoves makes a job of the most urgent groups, up to JobBytes.
func planMoves(shard int, groups []Group, p Policy) Job {
	slices.SortStableFunc(groups, func(a, b Group) int { return cmp.Compare(groupDeadline(&a), groupDeadline(&b)) })
	var size int64
	n := 0
	for n < len(groups) && (n == 0 || size < p.JobBytes) {
		size += groups[n].bytes()
		n++
	}
	return newJob(KindMove, shard, groups[:n])
}

func groupDeadline(g *Group) int64 {
	at := int64(1<<63 - 1)
	for i := range g.Entries {
		s := &g.Entries[i].Segment
		at = min(at, moveBy(s.Class, int64(s.ID.Time())))
	}
	return at
}

// pickWaste chooses objects of level 1 and higher that are mostly dead, from the live bytes of each. Young ones are left alone: what
// killed them may be at work still.
func pickWaste(segs []metadata.SegmentUse, live map[ulid.ULID]int64, skip map[ulid.ULID]bool, now time.Time, p Policy) (pick, bool) {
	out := pick{kind: KindWaste, ids: map[ulid.ULID]bool{}}
	var size int64
	for i := range segs {
		s := &segs[i]
		if s.Level == 0 || skip[s.ID] || now.UnixMilli()-int64(s.ID.Time()) < wasteAge.Milliseconds() {
			continue
		}
		if float64(live[s.ID]) < float64(s.Size)*(1-p.WasteFraction) && size+live[s.ID] <= p.JobBytes {
			out.ids[s.ID] = true
			size += live[s.ID]
		}
	}
	return out, len(out.ids) > 0
}

const wasteAge = 10 * time.Minute
