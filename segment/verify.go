package segment

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// ObjectHeader is what an object says about itself in its first bytes.
type ObjectHeader struct {
	Level   uint8
	ID      [16]byte
	Created int64 // Unix ms
}

// ParseHeader reads the first HeaderSize bytes of an object.
func ParseHeader(b []byte) (ObjectHeader, error) {
	if len(b) < HeaderSize {
		return ObjectHeader{}, corrupt("header", 0, "%d bytes are less than a header", len(b))
	}
	if string(b[:headerVersion]) != headerMagic {
		return ObjectHeader{}, corrupt("header", 0, "no segment begins here")
	}
	if v := b[headerVersion]; v != Version {
		return ObjectHeader{}, &VersionError{Structure: "header", Version: v}
	}
	if want, got := binary.LittleEndian.Uint32(b[headerCRC:]), checksum(b[:headerCRC]); want != got {
		return ObjectHeader{}, corrupt("checksum", headerCRC, "CRC-32C of the header is %08x, stored %08x", got, want)
	}
	if !allZero(b[headerReserved:headerID]) || !allZero(b[headerReserve2:headerCRC]) {
		return ObjectHeader{}, corrupt("header", headerReserved, "reserved bytes are not zero")
	}
	return ObjectHeader{Level: b[headerLevel], ID: [16]byte(b[headerID:headerCreated]), Created: int64(binary.LittleEndian.Uint64(b[headerCreated:]))}, nil
}

// Verify reads everything in a whole object: header, footer, index, each batch and each record, and that they agree. It returns the
// first fault, with its offset in the object.
func Verify(object []byte) error {
	return walk(object, func(int, BatchInfo, *DecodedBatch) error { return nil })
}

// walk verifies an object and calls fn with each batch after its records have been verified.
func walk(object []byte, fn func(i int, info BatchInfo, b *DecodedBatch) error) error {
	h, err := ParseHeader(object)
	if err != nil {
		return err
	}
	x, err := OpenIndex(object, int64(len(object)))
	if err != nil {
		return err
	}
	if h.Level != x.Level || !bytes.Equal(h.ID[:], x.ID[:]) || h.Created != x.Created {
		return corrupt("footer", len(object)-FooterSize, "level, ID or creation time differ from the header's")
	}
	for i, info := range x.Batches {
		pos := int64(info.Ref.Pos)
		b, err := DecodeBatch(object[pos : pos+int64(info.Ref.Len)])
		if err != nil {
			return shift(err, pos)
		}
		if reason := info.compare(b); reason != "" {
			return shift(corrupt("index", 0, "batch %d: %s", i, reason), pos)
		}
		if err := b.Scan(func(int, *Record) bool { return true }); err != nil {
			return shift(err, pos)
		}
		if err := fn(i, info, b); err != nil {
			return err
		}
	}
	return nil
}

// compare says where the index and the batch disagree, or "".
func (x *BatchInfo) compare(b *DecodedBatch) string {
	h := b.Header()
	last, lastAt := b.Last()
	switch {
	case x.TopicID != h.TopicID || x.Partition != h.Partition:
		return fmt.Sprintf("the index says topic %d partition %d, the batch %d and %d", x.TopicID, x.Partition, h.TopicID, h.Partition)
	case x.Records != h.Records:
		return fmt.Sprintf("the index says %d records, the batch %d", x.Records, h.Records)
	case int(x.RawBytes) != h.RawBytes || x.Sparse != h.Sparse:
		return "index and batch differ in payload length or form"
	case x.FirstOffset != h.FirstOffset || x.FirstTime != h.FirstTime || x.LastOffset != last || x.LastTime != lastAt:
		return fmt.Sprintf("the index says offsets %d to %d, the batch %d to %d, or times differ", x.FirstOffset, x.LastOffset, h.FirstOffset, last)
	}
	return ""
}
