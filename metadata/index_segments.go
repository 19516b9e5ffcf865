package metadata

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/oklog/ulid/v2"
)

// segInfo is one segment that live batches refer to: 32 bytes.
type segInfo struct {
	id    ulid.ULID
	size  int64
	refs  uint32 // live batches of this shard in it
	class uint16 // index into segmentTable.classes
	level uint8
}

type segKey struct {
	id  ulid.ULID
	idx uint32 // into infos; deadSegment after the last reference went
}

const deadSegment = math.MaxUint32

// segmentTable holds the live segments of a shard. Index entries name a segment by its place in infos, which is private to the node;
// order is sorted by ID, so that lookups need no map and snapshots and listings come out in one order. IDs rise with time, so inserts
// are near the end; removals leave a tombstone, and half of tombstones is swept at once.
type segmentTable struct {
	infos   []segInfo
	free    []uint32
	order   []segKey
	dead    int
	classes []string // interned, [0] is ""
}

func (t *segmentTable) live() int { return len(t.order) - t.dead }

func (t *segmentTable) search(id ulid.ULID) (int, bool) {
	n := len(t.order)
	if n == 0 || bytes.Compare(t.order[n-1].id[:], id[:]) < 0 {
		return n, false
	}
	i := sort.Search(n, func(i int) bool { return bytes.Compare(t.order[i].id[:], id[:]) >= 0 })
	return i, i < n && t.order[i].id == id
}

// find gives the place of a live segment.
func (t *segmentTable) find(id ulid.ULID) (uint32, bool) {
	i, ok := t.search(id)
	if !ok || t.order[i].idx == deadSegment {
		return 0, false
	}
	return t.order[i].idx, true
}

// put gives the place of the segment and makes one, without references, where there is none. A segment that is there keeps what is
// known of it.
func (t *segmentTable) put(ref SegmentRef) uint32 {
	i, ok := t.search(ref.ID)
	if ok && t.order[i].idx != deadSegment {
		return t.order[i].idx
	}
	info := segInfo{id: ref.ID, size: ref.Size, class: t.classIndex(ref.Class), level: ref.Level}
	var idx uint32
	if n := len(t.free); n > 0 {
		idx = t.free[n-1]
		t.free = t.free[:n-1]
		t.infos[idx] = info
	} else {
		idx = uint32(len(t.infos))
		t.infos = append(t.infos, info)
	}
	if ok {
		t.order[i].idx = idx
		t.dead--
	} else {
		t.order = slices.Insert(t.order, i, segKey{id: ref.ID, idx: idx})
	}
	return idx
}

// classIndex interns a retention class. There are about ten; the type allows 65,536.
func (t *segmentTable) classIndex(class string) uint16 {
	if len(t.classes) == 0 {
		t.classes = []string{""}
	}
	for i, c := range t.classes {
		if c == class {
			return uint16(i)
		}
	}
	if len(t.classes) > math.MaxUint16 {
		panic(fmt.Sprintf("assertion failed: more than %d retention classes", math.MaxUint16))
	}
	t.classes = append(t.classes, class)
	return uint16(len(t.classes) - 1)
}

func (t *segmentTable) ref(idx uint32) { t.infos[idx].refs++ }

// unref gives up one reference, and forgets the segment with its last.
func (t *segmentTable) unref(idx uint32) {
	if t.infos[idx].refs--; t.infos[idx].refs == 0 {
		t.drop(idx)
	}
}

// drop forgets a segment that has no references.
func (t *segmentTable) drop(idx uint32) {
	i, ok := t.search(t.infos[idx].id)
	if !ok {
		panic("assertion failed: segment without a place in the order")
	}
	t.order[i].idx = deadSegment
	t.dead++
	t.infos[idx] = segInfo{}
	t.free = append(t.free, idx)
	if t.dead > 64 && t.dead > len(t.order)/2 {
		t.order = slices.DeleteFunc(t.order, func(k segKey) bool { return k.idx == deadSegment })
		t.dead = 0
	}
}

func (t *segmentTable) get(idx uint32) SegmentRef {
	i := &t.infos[idx]
	return SegmentRef{ID: i.id, Level: i.level, Class: t.classes[i.class], Size: i.size}
}

// SegmentUse is a segment and how many live batches of the shard are in it.
type SegmentUse struct {
	SegmentRef
	Batches int
}

// Segments lists up to limit live segments with an ID above after, ascending.
func (s *State) Segments(after ulid.ULID, limit int) []SegmentUse {
	t := &s.segments
	i, ok := t.search(after)
	if ok {
		i++
	}
	var out []SegmentUse
	for ; i < len(t.order) && len(out) < limit; i++ {
		if idx := t.order[i].idx; idx != deadSegment {
			out = append(out, SegmentUse{SegmentRef: t.get(idx), Batches: int(t.infos[idx].refs)})
		}
	}
	return out
}

// Segment says whether live batches refer to the segment.
func (s *State) Segment(id ulid.ULID) (SegmentUse, bool) {
	idx, ok := s.segments.find(id)
	if !ok {
		return SegmentUse{}, false
	}
	return SegmentUse{SegmentRef: s.segments.get(idx), Batches: int(s.segments.infos[idx].refs)}, true
}
