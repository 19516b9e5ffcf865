package segment

import (
	"encoding/binary"
	"fmt"
)

// RawRecord is one record of a batch without a look into it: what a compactor moves.
type RawRecord struct {
	Encoding   []byte // as AppendRecord made it; shares memory with the batch
	Offset     int64  // sparse batches only, else 0
	AppendTime int64  // Unix ms; sparse batches only, else 0
}

// NextRaw reads the next record into r without decoding it. It returns false at the end or at a fault: see Err.
func (it *Iter) NextRaw(r *RawRecord) bool {
	body, ok := it.body()
	if !ok {
		return false
	}
	start := it.pos
	r.Offset, r.AppendTime = it.offset, it.time
	it.advance(body)
	r.Encoding = it.b.payload[start:it.pos:it.pos]
	return true
}

// RawKey gives the key of an encoded record (nil = it has none), and whether the record is a tombstone. The key shares memory with the
// encoding. Errors are *CorruptError.
func RawKey(encoding []byte) (key []byte, tombstone bool, err error) {
	size, n := uvarint(encoding)
	if n == 0 || size == 0 || size != uint64(len(encoding)-n) {
		return nil, false, corrupt("record", 0, "bad length")
	}
	body := encoding[n:]
	flags, p := uvarint(body)
	if p == 0 || flags > recordKnownFlags {
		return nil, false, corrupt("record", n, "bad flags")
	}
	tombstone = flags&recordValue == 0
	if flags&recordKey == 0 {
		return nil, tombstone, nil
	}
	for _, f := range []uint64{recordProducerTime, recordDeliverAt} {
		if flags&f == 0 {
			continue
		}
		_, n := uvarint(body[p:])
		if n == 0 {
			return nil, false, corrupt("record", p, "bad time")
		}
		p += n
	}
	l, n := uvarint(body[p:])
	if n == 0 || l > uint64(len(body)-p-n) {
		return nil, false, corrupt("record", p, "bad key length")
	}
	p += n
	return body[p : p+int(l) : p+int(l)], tombstone, nil
}

// StoredLength reads how many bytes the batch has that begins at b, of which the first BatchHeaderSize bytes are enough. Nothing is
// verified but that a batch begins here.
func StoredLength(b []byte) (int, error) {
	if len(b) < BatchHeaderSize {
		return 0, corrupt("batch", 0, "%d bytes are less than a batch header", len(b))
	}
	if string(b[:len(batchMagic)]) != batchMagic {
		return 0, corrupt("batch", 0, "no batch begins here")
	}
	if v := b[batchVersion]; v != Version {
		return 0, &VersionError{Structure: "batch", Version: v}
	}
	n := binary.LittleEndian.Uint32(b[batchStored:])
	if n < BatchHeaderSize || uint64(n) > 1<<31-1 {
		return 0, corrupt("batch", batchStored, "stored length is %d", n)
	}
	return int(n), nil
}

// ReadBatchHeader reads the header of a stored batch, from its first byte to its last, after it has verified it against its checksum. Errors are
// as of DecodeBatch.
func ReadBatchHeader(stored []byte) (BatchHeader, error) {
	h, _, err := parseBatchHeader(stored)
	return h, err
}

// RunPart is one batch of a run.
type RunPart struct {
	Ref    BatchRef // Pos counts from the start of the run
	Header BatchHeader
}

// SplitRun finds the batches that stand one after the other in run, which they must fill, and verifies each against its checksum. Errors are
// *CorruptError with offsets from the start of the run, or *VersionError.
func SplitRun(run []byte) ([]RunPart, error) {
	var parts []RunPart
	for pos := 0; pos < len(run); {
		n, err := StoredLength(run[pos:])
		if err != nil {
			return nil, shift(err, int64(pos))
		}
		if n > len(run)-pos {
			return nil, corrupt("batch", pos+batchStored, "stored length is %d, but the run has %d more bytes", n, len(run)-pos)
		}
		h, _, err := parseBatchHeader(run[pos : pos+n])
		if err != nil {
			return nil, shift(err, int64(pos))
		}
		parts = append(parts, RunPart{Ref: BatchRef{Pos: uint64(pos), Len: uint32(n)}, Header: h})
		pos += n
	}
	return parts, nil
}

// AppendStored adds a batch that another segment holds, byte for byte: stored is the batch from its first byte to its last, which is
// verified. It is for sparse batches: a dense one gets its offsets from metadata that names its place. The result is its index entry.
func (w *Writer) AppendStored(stored []byte) (BatchInfo, error) {
	if w.finished {
		return BatchInfo{}, ErrFinished
	}
	if w.batches == MaxBatches {
		return BatchInfo{}, fmt.Errorf("%w: the segment has %d batches already", ErrInvalidBatch, w.batches)
	}
	b, err := DecodeBatchTo(w.scratch, stored)
	if err != nil {
		return BatchInfo{}, err
	}
	h := &b.header
	if !h.Sparse {
		return BatchInfo{}, fmt.Errorf("%w: a dense batch cannot be moved as it is", ErrInvalidBatch)
	}
	if h.Codec != CodecRaw {
		w.scratch = b.payload[:0]
	}
	ref := BatchRef{Pos: uint64(len(w.buf)), Len: uint32(len(stored))}
	w.buf = append(w.buf, stored...)
	w.index = appendIndexOf(w.index, b, ref)
	w.batches++
	return BatchInfo{TopicID: h.TopicID, Partition: h.Partition, Records: h.Records, Ref: ref, RawBytes: uint32(h.RawBytes), Sparse: true, Producer: h.ProducerID != "",
		FirstOffset: h.FirstOffset, LastOffset: b.last, FirstTime: h.FirstTime, LastTime: b.lastAt}, nil
}

// appendIndexOf appends the index entry of a stored sparse batch.
func appendIndexOf(dst []byte, b *DecodedBatch, ref BatchRef) []byte {
	h := &b.header
	x := Batch{TopicID: h.TopicID, Partition: h.Partition, Records: h.Records, ProducerID: h.ProducerID,
		Offsets: []int64{h.FirstOffset}, AppendTimes: []int64{h.FirstTime}}
	at := len(dst)
	x.Records = 1
	dst = appendIndexEntry(dst, &x, ref, h.RawBytes)
	e := dst[at:]
	binary.LittleEndian.PutUint32(e[indexRecords:], uint32(h.Records))
	binary.LittleEndian.PutUint64(e[indexLastOffset:], uint64(b.last))
	binary.LittleEndian.PutUint64(e[indexLastTime:], uint64(b.lastAt))
	return dst
}
