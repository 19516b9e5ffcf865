package metadata

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/forebaymq/forebay/segment"
)

const (
	minGroupBytes = 2 // tenant reference, flag
	minBatchBytes = 7 // seven varints
	idHashBytes   = 16
)

// stringTable writes a string once and refers to it afterwards: 0 = a new string follows, n = the nth string of this command.
type stringTable map[string]uint64

func (t stringTable) append(dst []byte, s string) []byte {
	if n, ok := t[s]; ok {
		return binary.AppendUvarint(dst, n)
	}
	t[s] = uint64(len(t) + 1)
	return appendString(append(dst, 0), s)
}

func readTabled(r *reader, table *[]string) string {
	n := r.uvarint()
	if n == 0 {
		s := r.string()
		*table = append(*table, s)
		return s
	}
	if n > uint64(len(*table)) {
		r.fail("string reference out of range")
		return ""
	}
	return (*table)[n-1]
}

func appendSegment(dst []byte, s *SegmentRef) ([]byte, error) {
	if s.Size < 0 {
		return dst, fmt.Errorf("negative segment size %d", s.Size)
	}
	dst = append(dst, s.ID[:]...)
	dst = append(dst, s.Level)
	dst = appendString(dst, s.Class)
	return binary.AppendUvarint(dst, uint64(s.Size)), nil
}

func readSegment(r *reader) SegmentRef {
	return SegmentRef{ID: r.ulid(), Level: r.byte(), Class: r.string(), Size: r.int63()}
}

// appendCommit writes batches as differences to the batch before, in the order given. Sorted by topic and partition and contiguous in
// the object, as segments are, a batch takes about 12 bytes.
func appendCommit(dst []byte, c *Commit) ([]byte, error) {
	dst, err := appendSegment(dst, &c.Segment)
	if err != nil {
		return dst, err
	}
	dst = appendVarint(dst, c.AppendTime)
	dst = binary.AppendUvarint(dst, uint64(len(c.Groups)))
	if len(c.Groups) > 0 {
		table := stringTable{}
		for i := range c.Groups {
			g := &c.Groups[i]
			dst = table.append(dst, g.Tenant)
			dst = appendProducer(dst, table, g.Producer)
		}
	}
	dst = binary.AppendUvarint(dst, uint64(len(c.Batches)))
	var topic TopicID
	var partition int32
	var end uint64
	group := int32(-1)
	for i := range c.Batches {
		b := &c.Batches[i]
		switch {
		case b.Partition < 0:
			return dst, fmt.Errorf("batch %d: negative partition %d", i, b.Partition)
		case b.Records < 1:
			return dst, fmt.Errorf("batch %d: %d records", i, b.Records)
		case b.Group < -1 || int(b.Group) >= len(c.Groups):
			return dst, fmt.Errorf("batch %d: group %d of %d", i, b.Group, len(c.Groups))
		case b.IDHashes != nil && len(b.IDHashes) != int(b.Records):
			return dst, fmt.Errorf("batch %d: %d ID hashes for %d records", i, len(b.IDHashes), b.Records)
		}
		if b.TopicID != topic {
			partition = 0
		}
		dst = appendVarint(dst, int64(b.TopicID-topic))
		dst = appendVarint(dst, int64(b.Partition)-int64(partition))
		dst = binary.AppendUvarint(dst, uint64(b.Records))
		dst = appendVarint(dst, int64(b.Ref.Pos-end))
		dst = binary.AppendUvarint(dst, uint64(b.Ref.Len))
		dst = binary.AppendUvarint(dst, uint64(b.RawBytes))
		g := zigzag(int64(b.Group)-int64(group)) << 1
		if b.IDHashes != nil {
			g |= 1
		}
		dst = binary.AppendUvarint(dst, g)
		for j := range b.IDHashes {
			dst = append(dst, b.IDHashes[j][:]...)
		}
		topic, partition, end, group = b.TopicID, b.Partition, b.Ref.Pos+uint64(b.Ref.Len), b.Group
	}
	return dst, nil
}

// What the flag of a group says about its producer.
const (
	noProducer    byte = 0
	withSequence  byte = 1
	producerFence byte = 2 // the sequence is NoSequence and left out
)

func appendProducer(dst []byte, table stringTable, p *Producer) []byte {
	switch {
	case p == nil:
		return append(dst, noProducer)
	case p.Sequence == NoSequence:
		dst = table.append(append(dst, producerFence), p.ID)
		return appendVarint(dst, p.Epoch)
	}
	dst = table.append(append(dst, withSequence), p.ID)
	dst = appendVarint(dst, p.Epoch)
	return appendVarint(dst, p.Sequence)
}

func readProducer(r *reader, table *[]string) *Producer {
	switch r.byte() {
	case noProducer:
	case withSequence:
		return &Producer{ID: readTabled(r, table), Epoch: r.varint(), Sequence: r.varint()}
	case producerFence:
		return &Producer{ID: readTabled(r, table), Epoch: r.varint(), Sequence: NoSequence}
	default:
		r.fail("bad flag")
	}
	return nil
}

func readCommit(r *reader) *Commit {
	r.structure = "commit"
	c := &Commit{Segment: readSegment(r), AppendTime: r.varint()}
	if n := r.count(minGroupBytes); n > 0 {
		c.Groups = make([]Group, n)
		var table []string
		for i := 0; i < n && r.err == nil; i++ {
			g := &c.Groups[i]
			g.Tenant = readTabled(r, &table)
			g.Producer = readProducer(r, &table)
		}
	}
	n := r.count(minBatchBytes)
	c.Batches = make([]BatchDelta, n)
	var topic TopicID
	var partition int64
	var end uint64
	group := int64(-1)
	for i := 0; i < n && r.err == nil; i++ {
		b := &c.Batches[i]
		if d := r.varint(); d != 0 {
			topic += TopicID(d)
			partition = 0
		}
		partition += r.varint()
		records := r.uvarint()
		pos := end + uint64(r.varint())
		b.Ref = segment.BatchRef{Pos: pos, Len: r.uint32()}
		b.RawBytes = r.uint32()
		g := r.uvarint()
		group += unzigzag(g >> 1)
		if partition < 0 || partition > math.MaxInt32 || records < 1 || records > math.MaxInt32 ||
			group < -1 || group >= int64(len(c.Groups)) {
			r.fail("batch out of range")
			break
		}
		b.TopicID, b.Partition, b.Records, b.Group = topic, int32(partition), int32(records), int32(group)
		if g&1 != 0 {
			raw := r.bytes(int(min(records*idHashBytes, math.MaxInt32*idHashBytes)))
			b.IDHashes = make([][idHashBytes]byte, len(raw)/idHashBytes)
			for j := range b.IDHashes {
				copy(b.IDHashes[j][:], raw[j*idHashBytes:])
			}
		}
		end = pos + uint64(b.Ref.Len)
	}
	return c
}
