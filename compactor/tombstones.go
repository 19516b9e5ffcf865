package compactor

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/segment"
)

// segmentSet remembers segments of which something was found out. What is forgotten is found out again.
type segmentSet struct {
	mu struct {
		sync.Mutex
		ids map[ulid.ULID]bool
	}
}

// maxSegmentSet bounds it.
const maxSegmentSet = 1 << 16

func (u *segmentSet) has(id ulid.ULID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.mu.ids[id]
}

func (u *segmentSet) add(id ulid.ULID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.mu.ids == nil || len(u.mu.ids) >= maxSegmentSet {
		u.mu.ids = map[ulid.ULID]bool{}
	}
	u.mu.ids[id] = true
}

// staleTask gives a partition whose clean batches are so old that the horizons of tombstones in them have passed. Partitions with much dirty
// data lose their tombstones when they are cleaned for that.
func (c *Compactor) staleTask(x *metadata.PartitionScan, now time.Time) (cleanTask, bool) {
	if !x.Topic.Config.Cleanup.Compacts() {
		return cleanTask{}, false
	}
	t, _ := newCleanTask(x, now.UnixMilli())
	if t.clean == 0 {
		return t, false
	}
	t.entries = t.entries[:t.clean]
	t.bytes, t.dirty = 0, 0
	old := false
	// An object made at a time has no horizon beyond that of its time.
	for i := range t.entries {
		e := &t.entries[i]
		t.bytes += int64(e.Ref.Len)
		if horizon(int64(e.Segment.ID.Time()), x.Topic.Config.TombstoneRetention) <= now.UnixMilli() && !c.untag.has(e.Segment.ID) {
			old = true
		}
	}
	return t, old
}

// expired gives the tasks of which an object really has tombstones whose horizon has passed, by the indexes of the objects: one GET each.
func (c *Compactor) expired(ctx context.Context, tasks []cleanTask, now time.Time) []cleanTask {
	var out []cleanTask
	for i := range tasks {
		t := &tasks[i]
		for j := range t.entries {
			e := &t.entries[j]
			if c.untag.has(e.Segment.ID) || horizon(int64(e.Segment.ID.Time()), t.topic.Config.TombstoneRetention) > now.UnixMilli() {
				continue
			}
			tagged, whole, err := c.tagged(ctx, e)
			if err != nil {
				c.o.Logger.Debug("cannot look for tombstones", "object", objectKey(&e.Segment), "error", err)
				continue
			}
			if !whole {
				c.untag.add(e.Segment.ID)
			}
			if tagged {
				out = append(out, *t)
				break
			}
		}
		if ctx.Err() != nil {
			return nil
		}
	}
	return out
}

// tagged says whether a run has a batch with tombstones, and whether its object has one at all.
func (c *Compactor) tagged(ctx context.Context, e *metadata.IndexEntry) (run, object bool, err error) {
	x, err := c.index(ctx, &e.Segment)
	if err != nil {
		return false, false, err
	}
	for i := range x.Batches {
		b := &x.Batches[i]
		if !b.Producer {
			continue
		}
		object = true
		run = run || b.Ref.Pos >= e.Ref.Pos && b.Ref.Pos < e.Ref.Pos+uint64(e.Ref.Len)
	}
	return run, object, nil
}

// indexTail is how much of an object's end is read for its index at first.
const indexTail = 16 << 10

// index reads the index of an object.
func (c *Compactor) index(ctx context.Context, s *metadata.SegmentRef) (*segment.Index, error) {
	need := int64(indexTail)
	for {
		tail, info, err := c.o.Store.GetTail(ctx, objectKey(s), need)
		if err != nil {
			return nil, err
		}
		x, err := segment.OpenIndex(tail, info.Size)
		var short *segment.ShortTailError
		if errors.As(err, &short) && short.Need > need {
			need = short.Need
			continue
		}
		if err == nil && ulid.ULID(x.ID) != s.ID {
			return nil, copied(objectKey(s), x.ID)
		}
		return x, err
	}
}

// batch reads one batch of an object.
func (c *Compactor) batch(ctx context.Context, s *metadata.SegmentRef, ref segment.BatchRef) (*segment.DecodedBatch, error) {
	stored, err := c.o.Store.GetRange(ctx, objectKey(s), int64(ref.Pos), int64(ref.Len))
	if err != nil {
		return nil, err
	}
	if len(stored) != int(ref.Len) {
		return nil, objectstore.ErrTruncated
	}
	return segment.DecodeBatch(stored)
}
