package compactor

import (
	"math"
	"strings"
	"time"

	"github.com/forebaymq/forebay/metadata"
)

// cleanTask is one partition to be compacted by key: its live batches from the first to the last that may be looked at.
type cleanTask struct {
	topic     *metadata.Topic
	partition int32
	logStart  int64
	entries   []metadata.IndexEntry
	clean     int // of the entries, at the front, are clean
	dirty     int64
	bytes     int64
}

const (
	// internalPrefix begins the names of internal topics.
	internalPrefix = "__"
	// cleanLittle: less than that can wait for more.
	cleanLittle  = 1 << 20
	cleanLatest  = 24 * time.Hour // what is dirty for so long is due, however little
	cleanJobSize = 4              // times JobBytes
)

// compactedWant takes what planClean has to see.
func compactedWant(t *metadata.Topic, s metadata.SegmentRef) bool {
	return t.Config.Cleanup.Compacts() && s.Level > 0
}

// planCleaning gives the partitions of a scan that are due, by their share of dirty data. now is Unix ms.
func planCleaning(found []metadata.PartitionScan, now int64, p Policy) []cleanTask {
	var out []cleanTask
	for i := range found {
		if t, ok := newCleanTask(&found[i], now); ok && t.due(now, p) {
			out = append(out, t)
		}
	}
	return out
}

// newCleanTask takes the batches from the first on that are old enough and not of level 0, without a gap. ok is false when none of them is
// dirty.
func newCleanTask(x *metadata.PartitionScan, now int64) (t cleanTask, ok bool) {
	t = cleanTask{topic: x.Topic, partition: x.Partition, logStart: x.Info.LogStart}
	tail := now - x.Topic.Config.MinCompactionLag.Milliseconds()
	for j := range x.Entries {
		e := &x.Entries[j]
		if x.Ordinals[j] != j || e.AppendTime > tail {
			break
		}
		t.bytes += int64(e.Ref.Len)
		if e.Segment.Level == cleanLevel && t.clean == len(t.entries) {
			t.clean++
		} else {
			t.dirty += int64(e.Ref.Len)
		}
		t.entries = append(t.entries, *e)
	}
	return t, t.clean < len(t.entries)
}

// due goes by the age of the first dirty record, not by that of the batch that it is in: merging with what comes makes batches young again.
func (t *cleanTask) due(now int64, p Policy) bool {
	age := time.Duration(now-t.entries[t.clean].FirstTime) * time.Millisecond
	if age >= cleanLatest || t.bytes <= cleanLittle && age >= 10*p.CleanAge {
		return true
	}
	share := float64(t.dirty) / float64(t.bytes)
	if strings.HasPrefix(t.topic.Name, internalPrefix) {
		return share >= p.EagerFraction
	}
	return share >= p.DirtyFraction && (t.dirty >= cleanLittle || age >= p.CleanAge)
}

// limitCleaning takes tasks from the front until they fill a job: one at least.
func limitCleaning(tasks []cleanTask, p Policy) []cleanTask {
	var size int64
	for i := range tasks {
		if size += tasks[i].bytes; size > cleanJobSize*p.JobBytes && i > 0 {
			return tasks[:i]
		}
	}
	return tasks
}

// groups cuts the task's batches to groups of about an object each, so that what was rewritten is committed piece by piece. They must be
// replaced in their order: then the clean batches are clean at every moment.
func (t *cleanTask) groups(p Policy) []Group {
	var out []Group
	var size int64
	for i := range t.entries {
		if i == 0 || size >= p.ObjectBytes {
			out = append(out, Group{Topic: t.topic, Partition: t.partition, LogStart: t.logStart, Class: ClassFor(t.topic.Config), Level: cleanLevel})
			size = 0
		}
		g := &out[len(out)-1]
		g.Entries = append(g.Entries, t.entries[i])
		size += int64(t.entries[i].Ref.Len)
	}
	return out
}

// horizon is when a tombstone that becomes clean now may be dropped, Unix ms. It is rounded up to a sixteenth of the retention, so that few
// different ones exist at a time and batches can be merged; a tombstone never gets a later one.
func horizon(now int64, retention time.Duration) int64 {
	step := max(retention.Milliseconds()/16, 1)
	at := now + max(retention.Milliseconds(), 0)
	if at > math.MaxInt64-step {
		return at
	}
	return (at + step - 1) / step * step
}
