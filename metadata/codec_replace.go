package metadata

import (
	"encoding/binary"
	"fmt"

	"github.com/oklog/ulid/v2"
)

const (
	minSegmentBytes = 19 // ULID, level, class length, size
	minRemoveBytes  = 2
	minAddBytes     = 9
)

// appendReplace writes the segments that it names once, and refers to them by index. Removed batches name theirs by ID only.
func appendReplace(dst []byte, c *Replace) ([]byte, error) {
	if c.Partition < 0 {
		return dst, fmt.Errorf("negative partition %d", c.Partition)
	}
	dst = binary.AppendUvarint(dst, uint64(c.TopicID))
	dst = binary.AppendUvarint(dst, uint64(c.Partition))
	dst = appendVarint(dst, c.From)
	dst = appendVarint(dst, c.Through)
	dst = appendString(dst, c.Claim)
	dst = appendVarint(dst, c.ClaimEpoch)

	removed := map[ulid.ULID]uint64{}
	var removedIDs []byte
	for i := range c.Remove {
		id := c.Remove[i].Segment
		if _, ok := removed[id]; !ok {
			removed[id] = uint64(len(removed))
			removedIDs = append(removedIDs, id[:]...)
		}
	}
	dst = binary.AppendUvarint(dst, uint64(len(removed)))
	dst = append(dst, removedIDs...)
	dst = binary.AppendUvarint(dst, uint64(len(c.Remove)))
	for i := range c.Remove {
		dst = binary.AppendUvarint(dst, removed[c.Remove[i].Segment])
		dst = binary.AppendUvarint(dst, c.Remove[i].Pos)
	}

	added := map[SegmentRef]uint64{}
	var segments []SegmentRef
	for i := range c.Add {
		if _, ok := added[c.Add[i].Segment]; !ok {
			added[c.Add[i].Segment] = uint64(len(added))
			segments = append(segments, c.Add[i].Segment)
		}
	}
	dst = binary.AppendUvarint(dst, uint64(len(segments)))
	var err error
	for i := range segments {
		if dst, err = appendSegment(dst, &segments[i]); err != nil {
			return dst, err
		}
	}
	dst = binary.AppendUvarint(dst, uint64(len(c.Add)))
	var next int64
	for i := range c.Add {
		e := &c.Add[i]
		if err := checkEntry(e); err != nil {
			return dst, fmt.Errorf("added batch %d: %w", i, err)
		}
		dst = binary.AppendUvarint(dst, added[e.Segment])
		dst = binary.AppendUvarint(dst, e.Ref.Pos)
		dst = binary.AppendUvarint(dst, uint64(e.Ref.Len))
		dst = appendVarint(dst, e.Base-next)
		dst = binary.AppendUvarint(dst, uint64(e.Last-e.Base))
		dst = binary.AppendUvarint(dst, uint64(e.Records))
		dst = appendVarint(dst, e.AppendTime)
		dst = appendVarint(dst, e.AppendTime-e.FirstTime)
		dst = appendDropped(dst, e.Sparse, e.Dropped)
		next = e.Last
	}
	return dst, nil
}

// checkEntry says why nothing could hold e.
func checkEntry(e *IndexEntry) error {
	if e.Base < 0 || e.Last < e.Base {
		return fmt.Errorf("offsets %d to %d", e.Base, e.Last)
	}
	if e.Records < 1 {
		return fmt.Errorf("%d records", e.Records)
	}
	for i, d := range e.Dropped {
		if d < 0 || d >= e.Records || i > 0 && d <= e.Dropped[i-1] {
			return fmt.Errorf("dropped ordinals not rising within %d records", e.Records)
		}
	}
	if visible := int64(e.Records) - int64(len(e.Dropped)); visible < 1 || visible-1 > e.Last-e.Base ||
		!e.Sparse && visible-1 != e.Last-e.Base {
		return fmt.Errorf("offsets %d to %d do not fit %d visible records", e.Base, e.Last, visible)
	}
	return nil
}

// appendDropped writes count<<1|sparse, then the ordinals as differences.
func appendDropped(dst []byte, sparse bool, dropped []int32) []byte {
	n := uint64(len(dropped)) << 1
	if sparse {
		n |= 1
	}
	dst = binary.AppendUvarint(dst, n)
	var prev int32
	for _, d := range dropped {
		dst = binary.AppendUvarint(dst, uint64(d-prev))
		prev = d
	}
	return dst
}

func readDropped(r *reader) (sparse bool, dropped []int32) {
	n := r.uvarint()
	sparse = n&1 != 0
	if n >>= 1; n > uint64(r.left()) {
		r.fail("count exceeds the data")
		return false, nil
	}
	if n == 0 {
		return sparse, nil
	}
	dropped = make([]int32, n)
	var prev int64
	for i := range dropped {
		prev += int64(r.int32())
		if prev > int64(1)<<31-1 {
			r.fail("ordinal out of range")
			return false, nil
		}
		dropped[i] = int32(prev)
	}
	return sparse, dropped
}

func readReplace(r *reader) *Replace {
	r.structure = "replace"
	c := &Replace{TopicID: TopicID(r.uvarint()), Partition: r.int32(), From: r.varint(), Through: r.varint(),
		Claim: r.string(), ClaimEpoch: r.varint()}
	ids := make([]ulid.ULID, r.count(len(ulid.ULID{})))
	for i := range ids {
		ids[i] = r.ulid()
	}
	if n := r.count(minRemoveBytes); n > 0 {
		c.Remove = make([]ReplaceRef, n)
		for i := 0; i < n && r.err == nil; i++ {
			seg := r.uvarint()
			if seg >= uint64(len(ids)) {
				r.fail("segment reference out of range")
				break
			}
			c.Remove[i] = ReplaceRef{Segment: ids[seg], Pos: r.uvarint()}
		}
	}
	segments := make([]SegmentRef, r.count(minSegmentBytes))
	for i := 0; i < len(segments) && r.err == nil; i++ {
		segments[i] = readSegment(r)
	}
	n := r.count(minAddBytes)
	if n == 0 {
		return c
	}
	c.Add = make([]IndexEntry, n)
	var next int64
	for i := 0; i < n && r.err == nil; i++ {
		e := &c.Add[i]
		seg := r.uvarint()
		if seg >= uint64(len(segments)) {
			r.fail("segment reference out of range")
			break
		}
		e.Segment = segments[seg]
		e.Ref.Pos = r.uvarint()
		e.Ref.Len = r.uint32()
		e.Base = next + r.varint()
		e.Last = e.Base + r.int63()
		e.Records = r.int32()
		e.AppendTime = r.varint()
		e.FirstTime = e.AppendTime - r.varint()
		e.Sparse, e.Dropped = readDropped(r)
		next = e.Last
		if r.err == nil {
			if err := checkEntry(e); err != nil {
				r.fail(err.Error())
			}
		}
	}
	return c
}
