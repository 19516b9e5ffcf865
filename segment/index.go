package segment

import (
	"encoding/binary"
	"fmt"
)

// BatchInfo is what the index says about one batch.
type BatchInfo struct {
	TopicID   uint64
	Partition int32
	Records   int
	Ref       BatchRef
	RawBytes  uint32 // payload before compression
	Sparse    bool
	Producer  bool // its header has producer fields
	// Of sparse batches only, else zero. Times are append times in Unix ms.
	FirstOffset, LastOffset int64
	FirstTime, LastTime     int64
}

// Index is the table of contents of a segment.
type Index struct {
	ID      [16]byte
	Level   uint8
	Created int64 // Unix ms
	Batches []BatchInfo
}

// ShortTailError says that the index begins before the tail that was given.
type ShortTailError struct {
	Need int64 // bytes from the end of the object that OpenIndex needs
}

func (e *ShortTailError) Error() string {
	return fmt.Sprintf("tail too short to open the segment: %d bytes are needed", e.Need)
}

func appendIndexEntry(dst []byte, b *Batch, ref BatchRef, raw int) []byte {
	var e [IndexEntrySize + IndexSparseSize]byte
	size := IndexEntrySize
	var flags uint16
	if b.ProducerID != "" {
		flags |= FlagProducer
	}
	if b.sparse() {
		flags |= FlagSparse
		size += IndexSparseSize
		last := b.Records - 1
		binary.LittleEndian.PutUint64(e[indexFirstOffset:], uint64(b.Offsets[0]))
		binary.LittleEndian.PutUint64(e[indexLastOffset:], uint64(b.Offsets[last]))
		binary.LittleEndian.PutUint64(e[indexFirstTime:], uint64(b.AppendTimes[0]))
		binary.LittleEndian.PutUint64(e[indexLastTime:], uint64(b.AppendTimes[last]))
	}
	binary.LittleEndian.PutUint64(e[indexTopic:], b.TopicID)
	binary.LittleEndian.PutUint32(e[indexPartition:], uint32(b.Partition))
	binary.LittleEndian.PutUint32(e[indexRecords:], uint32(b.Records))
	binary.LittleEndian.PutUint64(e[indexPos:], ref.Pos)
	binary.LittleEndian.PutUint32(e[indexLen:], ref.Len)
	binary.LittleEndian.PutUint32(e[indexRaw:], uint32(raw))
	binary.LittleEndian.PutUint16(e[indexFlags:], flags)
	return append(dst, e[:size]...)
}

// OpenIndex reads the index from the last bytes of an object of objectSize bytes: tail may be the whole object. When tail does not
// reach back to the index, the error is a *ShortTailError that says how much is needed. Other errors are *CorruptError, with offsets
// in the object, or *VersionError.
func OpenIndex(tail []byte, objectSize int64) (*Index, error) {
	if objectSize < HeaderSize+BatchHeaderSize+IndexEntrySize+FooterSize {
		return nil, corrupt("footer", 0, "%d bytes are less than the smallest segment", objectSize)
	}
	if int64(len(tail)) > objectSize {
		return nil, fmt.Errorf("open segment: a tail of %d bytes of an object of %d", len(tail), objectSize)
	}
	if len(tail) < FooterSize {
		return nil, &ShortTailError{Need: FooterSize}
	}
	f := tail[len(tail)-FooterSize:]
	at := objectSize - FooterSize
	if string(f[footerMagicAt:footerVersion]) != footerMagic {
		return nil, shift(corrupt("footer", footerMagicAt, "no segment ends here"), at)
	}
	if v := f[footerVersion]; v != Version {
		return nil, &VersionError{Structure: "footer", Version: v}
	}
	if want, got := binary.LittleEndian.Uint32(f[footerCRC:]), checksum(f[:footerCRC]); want != got {
		return nil, shift(corrupt("checksum", footerCRC, "CRC-32C of the footer is %08x, stored %08x", got, want), at)
	}
	x := &Index{
		ID:      [16]byte(f[footerID:footerCreated]),
		Created: int64(binary.LittleEndian.Uint64(f[footerCreated:])),
		Level:   f[footerLevel],
	}
	pos := binary.LittleEndian.Uint64(f[footerIndexPos:])
	size := binary.LittleEndian.Uint32(f[footerIndexLen:])
	batches := binary.LittleEndian.Uint32(f[footerBatches:])
	switch {
	case !allZero(f[footerReserved:footerLevel]) || !allZero(f[footerReserve2:footerCRC]):
		return nil, shift(corrupt("footer", footerReserved, "reserved bytes are not zero"), at)
	case pos < HeaderSize || pos > uint64(at) || uint64(at)-pos != uint64(size):
		return nil, shift(corrupt("footer", footerIndexPos, "an index of %d bytes at %d does not end at the footer", size, pos), at)
	case batches < 1 || batches > MaxBatches || uint64(batches)*IndexEntrySize > uint64(size):
		return nil, shift(corrupt("footer", footerBatches, "%d batches in an index of %d bytes", batches, size), at)
	}
	if need := int64(size) + FooterSize; need > int64(len(tail)) {
		return nil, &ShortTailError{Need: need}
	}
	index := tail[len(tail)-FooterSize-int(size) : len(tail)-FooterSize]
	if want, got := binary.LittleEndian.Uint32(f[footerIndexCRC:]), checksum(index); want != got {
		return nil, shift(corrupt("checksum", footerIndexCRC, "CRC-32C of the index is %08x, stored %08x", got, want), at)
	}
	x.Batches = make([]BatchInfo, batches)
	if err := x.parse(index, pos); err != nil {
		return nil, shift(err, int64(pos))
	}
	return x, nil
}

// parse reads the entries. The batches must fill the object from its header to the index, without a gap.
func (x *Index) parse(index []byte, end uint64) error {
	p := 0
	next := uint64(HeaderSize)
	for i := range x.Batches {
		e := index[p:]
		if len(e) < IndexEntrySize {
			return corrupt("index", p, "entry %d ends early", i)
		}
		flags := binary.LittleEndian.Uint16(e[indexFlags:])
		partition := binary.LittleEndian.Uint32(e[indexPartition:])
		records := binary.LittleEndian.Uint32(e[indexRecords:])
		b := BatchInfo{
			TopicID:   binary.LittleEndian.Uint64(e[indexTopic:]),
			Partition: int32(partition),
			Records:   int(records),
			Ref:       BatchRef{Pos: binary.LittleEndian.Uint64(e[indexPos:]), Len: binary.LittleEndian.Uint32(e[indexLen:])},
			RawBytes:  binary.LittleEndian.Uint32(e[indexRaw:]),
			Sparse:    flags&FlagSparse != 0,
			Producer:  flags&FlagProducer != 0,
		}
		switch {
		case flags&^knownFlags != 0 || !allZero(e[indexReserved:IndexEntrySize]):
			return corrupt("index", p+indexFlags, "entry %d has unknown flags %#x or reserved bytes", i, flags)
		case partition > MaxBatchRecords || records < 1 || records > MaxBatchRecords || b.RawBytes > MaxPayloadBytes:
			return corrupt("index", p+indexPartition, "entry %d has numbers out of range", i)
		case b.Ref.Pos != next || b.Ref.Len < BatchHeaderSize || uint64(b.Ref.Len) > end-next:
			return corrupt("index", p+indexPos, "entry %d (%d bytes at %d) does not follow the batch before it", i, b.Ref.Len, b.Ref.Pos)
		}
		next += uint64(b.Ref.Len)
		p += IndexEntrySize
		if b.Sparse {
			if len(e) < IndexEntrySize+IndexSparseSize {
				return corrupt("index", p, "entry %d ends early", i)
			}
			b.FirstOffset = int64(binary.LittleEndian.Uint64(e[indexFirstOffset:]))
			b.LastOffset = int64(binary.LittleEndian.Uint64(e[indexLastOffset:]))
			b.FirstTime = int64(binary.LittleEndian.Uint64(e[indexFirstTime:]))
			b.LastTime = int64(binary.LittleEndian.Uint64(e[indexLastTime:]))
			if b.FirstOffset < 0 || b.LastOffset < b.FirstOffset || b.LastTime < b.FirstTime || b.FirstTime == NoTime {
				return corrupt("index", p, "entry %d has offsets or times out of order", i)
			}
			p += IndexSparseSize
		}
		x.Batches[i] = b
	}
	if p != len(index) {
		return corrupt("index", p, "bytes after the last entry")
	}
	if next != end {
		return corrupt("index", 0, "the batches end at %d, the index begins at %d", next, end)
	}
	return nil
}
