package segment

import (
	"encoding/binary"
	"fmt"
)

// Batch is what a Writer stores as one unit of compression, checksum and commit: records of one topic-partition.
type Batch struct {
	TopicID   uint64
	Partition int32
	Records   int
	// Chunks, concatenated, are the encodings (AppendRecord) of the records. A chunk may end anywhere.
	Chunks [][]byte
	// Offsets and AppendTimes (Unix ms) are both nil in a dense batch. In a sparse one they have one value a record: offsets at or above
	// zero that rise strictly, times that never fall.
	Offsets, AppendTimes []int64
	// The producer is information for people and tools: "" = none. De-duplication is metadata's.
	ProducerID              string
	ProducerEpoch, Sequence int64
}

func (b *Batch) sparse() bool { return b.Offsets != nil || b.AppendTimes != nil }

// check says why b cannot be written, looking at everything but the chunks.
func (b *Batch) check() error {
	switch {
	case b.Partition < 0:
		return fmt.Errorf("%w: partition %d is negative", ErrInvalidBatch, b.Partition)
	case b.Records < 1 || b.Records > MaxBatchRecords:
		return fmt.Errorf("%w: %d records, must be 1 to %d", ErrInvalidBatch, b.Records, MaxBatchRecords)
	case len(b.ProducerID) > MaxProducerBytes:
		return fmt.Errorf("%w: producer ID of %d bytes, at most %d", ErrInvalidBatch, len(b.ProducerID), MaxProducerBytes)
	case !b.sparse():
		return nil
	case len(b.Offsets) != b.Records || len(b.AppendTimes) != b.Records:
		return fmt.Errorf("%w: %d offsets and %d append times for %d records", ErrInvalidBatch, len(b.Offsets), len(b.AppendTimes), b.Records)
	case b.Offsets[0] < 0:
		return fmt.Errorf("%w: offset %d is negative", ErrInvalidBatch, b.Offsets[0])
	case b.AppendTimes[0] == NoTime:
		return fmt.Errorf("%w: record 0 has no append time", ErrInvalidBatch)
	}
	for i := 1; i < b.Records; i++ {
		if b.Offsets[i] <= b.Offsets[i-1] {
			return fmt.Errorf("%w: offset %d of record %d is not above %d before it", ErrInvalidBatch, b.Offsets[i], i, b.Offsets[i-1])
		}
		// The difference of two int64 may need 64 bits and would wrap. The column holds 63.
		if d := b.AppendTimes[i] - b.AppendTimes[i-1]; b.AppendTimes[i] < b.AppendTimes[i-1] || d < 0 {
			return fmt.Errorf("%w: append time %d of record %d falls below %d before it or is too far from it",
				ErrInvalidBatch, b.AppendTimes[i], i, b.AppendTimes[i-1])
		}
	}
	return nil
}

// appendPayload appends the payload before compression: in a sparse batch the columns, and the records.
//
//	varint  offset minus the offset before it, of records 1 to n-1    sparse only
//	varint  append time minus the one before it, of records 1 to n-1  sparse only
//	bytes   the encodings of the records
func (b *Batch) appendPayload(dst []byte) ([]byte, error) {
	start := len(dst)
	for i := 1; i < len(b.Offsets); i++ {
		dst = binary.AppendUvarint(dst, uint64(b.Offsets[i]-b.Offsets[i-1]))
	}
	for i := 1; i < len(b.AppendTimes); i++ {
		dst = binary.AppendUvarint(dst, uint64(b.AppendTimes[i]-b.AppendTimes[i-1]))
	}
	size := len(dst) - start
	for _, c := range b.Chunks {
		size += len(c)
	}
	if size > MaxPayloadBytes {
		return nil, fmt.Errorf("%w: payload of %d bytes, at most %d", ErrInvalidBatch, size, MaxPayloadBytes)
	}
	records := len(dst)
	for _, c := range b.Chunks {
		dst = append(dst, c...)
	}
	if n, ok := countRecords(dst[records:]); !ok || n != b.Records {
		return nil, fmt.Errorf("%w: the chunks hold %d whole records, not exactly %d", ErrInvalidBatch, n, b.Records)
	}
	return dst, nil
}

// appendBatchHeader appends the header and the producer ID. Stored length and checksum are filled in by sealBatch.
func (b *Batch) appendBatchHeader(dst []byte, codec Codec, raw int) []byte {
	var h [BatchHeaderSize]byte
	var flags uint16
	if b.ProducerID != "" {
		flags |= FlagProducer
		binary.LittleEndian.PutUint16(h[batchProducer:], uint16(len(b.ProducerID)))
		binary.LittleEndian.PutUint64(h[batchEpoch:], uint64(b.ProducerEpoch))
		binary.LittleEndian.PutUint64(h[batchSequence:], uint64(b.Sequence))
	}
	if b.sparse() {
		flags |= FlagSparse
		binary.LittleEndian.PutUint64(h[batchFirstOffset:], uint64(b.Offsets[0]))
		binary.LittleEndian.PutUint64(h[batchFirstTime:], uint64(b.AppendTimes[0]))
	}
	copy(h[:], batchMagic)
	h[batchVersion] = Version
	h[batchCodec] = byte(codec)
	binary.LittleEndian.PutUint16(h[batchFlags:], flags)
	binary.LittleEndian.PutUint32(h[batchRaw:], uint32(raw))
	binary.LittleEndian.PutUint32(h[batchRecords:], uint32(b.Records))
	binary.LittleEndian.PutUint64(h[batchTopic:], b.TopicID)
	binary.LittleEndian.PutUint32(h[batchPartition:], uint32(b.Partition))
	return append(append(dst, h[:]...), b.ProducerID...)
}

// sealBatch fills in stored length and checksum of a complete batch.
func sealBatch(stored []byte) {
	binary.LittleEndian.PutUint32(stored[batchStored:], uint32(len(stored)))
	binary.LittleEndian.PutUint32(stored[batchCRC:], checksum(stored[batchVersion:]))
}

// BatchHeader is what a batch says about itself.
type BatchHeader struct {
	TopicID                 uint64
	Partition               int32
	Records                 int
	Codec                   Codec
	Sparse                  bool
	StoredBytes             int // header, producer ID and payload as stored
	RawBytes                int // payload before compression
	ProducerID              string
	ProducerEpoch, Sequence int64
	FirstOffset             int64 // sparse: of the first record, else 0
	FirstTime               int64 // sparse: append time of the first record, Unix ms, else 0
}

// parseBatchHeader checks a stored batch, from its first to its last byte, against its checksum and reads its header. The payload as
// stored is the rest of it.
func parseBatchHeader(stored []byte) (h BatchHeader, payload []byte, err error) {
	if len(stored) < BatchHeaderSize {
		return h, nil, corrupt("batch", 0, "%d bytes are less than a batch header", len(stored))
	}
	if string(stored[:len(batchMagic)]) != batchMagic {
		return h, nil, corrupt("batch", 0, "no batch begins here")
	}
	if v := stored[batchVersion]; v != Version {
		return h, nil, &VersionError{Structure: "batch", Version: v}
	}
	if n := binary.LittleEndian.Uint32(stored[batchStored:]); uint64(n) != uint64(len(stored)) {
		return h, nil, corrupt("batch", batchStored, "stored length is %d, but there are %d bytes", n, len(stored))
	}
	if want, got := binary.LittleEndian.Uint32(stored[batchCRC:]), checksum(stored[batchVersion:]); want != got {
		return h, nil, corrupt("checksum", batchCRC, "CRC-32C is %08x, stored %08x", got, want)
	}
	flags := binary.LittleEndian.Uint16(stored[batchFlags:])
	partition := binary.LittleEndian.Uint32(stored[batchPartition:])
	raw := binary.LittleEndian.Uint32(stored[batchRaw:])
	records := binary.LittleEndian.Uint32(stored[batchRecords:])
	producer := int(binary.LittleEndian.Uint16(stored[batchProducer:]))
	h = BatchHeader{
		TopicID:       binary.LittleEndian.Uint64(stored[batchTopic:]),
		Partition:     int32(partition),
		Records:       int(records),
		Codec:         Codec(stored[batchCodec]),
		Sparse:        flags&FlagSparse != 0,
		StoredBytes:   len(stored),
		RawBytes:      int(raw),
		ProducerEpoch: int64(binary.LittleEndian.Uint64(stored[batchEpoch:])),
		Sequence:      int64(binary.LittleEndian.Uint64(stored[batchSequence:])),
		FirstOffset:   int64(binary.LittleEndian.Uint64(stored[batchFirstOffset:])),
		FirstTime:     int64(binary.LittleEndian.Uint64(stored[batchFirstTime:])),
	}
	switch {
	case flags&^knownFlags != 0:
		return h, nil, corrupt("batch", batchFlags, "unknown flags %#x", flags)
	case partition > MaxBatchRecords:
		return h, nil, corrupt("batch", batchPartition, "partition %d is beyond int32", partition)
	case raw > MaxPayloadBytes:
		return h, nil, corrupt("batch", batchRaw, "payload of %d bytes, at most %d", raw, MaxPayloadBytes)
	case records < 1 || uint64(records)*minRecordSize > uint64(raw):
		return h, nil, corrupt("batch", batchRecords, "%d records in a payload of %d bytes", records, raw)
	case !allZero(stored[batchReserved : batchReserved+2]):
		return h, nil, corrupt("batch", batchReserved, "reserved bytes are not zero")
	case producer > MaxProducerBytes || producer > len(stored)-BatchHeaderSize:
		return h, nil, corrupt("batch", batchProducer, "producer ID of %d bytes", producer)
	case (producer > 0) != (flags&FlagProducer != 0):
		return h, nil, corrupt("batch", batchProducer, "producer flag and length disagree")
	case producer == 0 && !allZero(stored[batchEpoch:batchFirstOffset]):
		return h, nil, corrupt("batch", batchEpoch, "producer fields without a producer")
	case !h.Sparse && !allZero(stored[batchFirstOffset:BatchHeaderSize]):
		return h, nil, corrupt("batch", batchFirstOffset, "a dense batch names an offset or a time")
	case h.Sparse && h.FirstOffset < 0:
		return h, nil, corrupt("batch", batchFirstOffset, "first offset %d is negative", h.FirstOffset)
	case h.Sparse && h.FirstTime == NoTime:
		return h, nil, corrupt("batch", batchFirstTime, "no first append time")
	}
	h.ProducerID = string(stored[BatchHeaderSize : BatchHeaderSize+producer])
	return h, stored[BatchHeaderSize+producer:], nil
}
