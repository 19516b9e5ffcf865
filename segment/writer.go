package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// WriterOptions say what segment to write. Only ID is required.
type WriterOptions struct {
	ID      [16]byte // ULID
	Level   uint8
	Created int64  // Unix ms
	Buf     []byte // its memory is used for the object, from its start, and grown as needed; the object shares it
	// Scratch is memory for one uncompressed payload at a time; see Writer.Scratch.
	Scratch     []byte
	Compression Compression
	// MinGainPercent is what compression must save for a batch to be stored compressed. 0 = 6, at most 99.
	MinGainPercent int
}

// Writer builds one segment in memory. It belongs to one goroutine. When Append returns an error, the segment is as it was before.
type Writer struct {
	o        WriterOptions
	buf      []byte // the object so far
	scratch  []byte // payload of the batch at hand
	index    []byte
	batches  int
	finished bool
}

// ErrFinished is returned by a Writer after Finish.
var ErrFinished = errors.New("segment is finished")

// ErrEmptySegment is returned by Finish when there is no batch: an object without batches has no meaning.
var ErrEmptySegment = errors.New("segment has no batch")

// NewWriter starts a segment.
func NewWriter(o WriterOptions) *Writer {
	if o.MinGainPercent <= 0 || o.MinGainPercent > 99 {
		o.MinGainPercent = minGainPercent
	}
	w := &Writer{o: o, scratch: o.Scratch[:0]}
	var h [HeaderSize]byte
	copy(h[:], headerMagic)
	h[headerVersion] = Version
	h[headerLevel] = o.Level
	copy(h[headerID:], o.ID[:])
	binary.LittleEndian.PutUint64(h[headerCreated:], uint64(o.Created))
	binary.LittleEndian.PutUint32(h[headerCRC:], checksum(h[:headerCRC]))
	w.buf = append(o.Buf[:0], h[:]...)
	return w
}

// Append adds a batch and says where it stands and how many bytes its payload has before compression. The batches of one
// topic-partition should follow each other. It keeps no reference to b. Errors are ErrInvalidBatch or ErrFinished.
func (w *Writer) Append(b *Batch) (BatchRef, uint32, error) {
	if w.finished {
		return BatchRef{}, 0, ErrFinished
	}
	if err := b.check(); err != nil {
		return BatchRef{}, 0, err
	}
	if w.batches == MaxBatches {
		return BatchRef{}, 0, fmt.Errorf("%w: the segment has %d batches already", ErrInvalidBatch, w.batches)
	}
	payload, err := b.appendPayload(w.scratch[:0])
	if err != nil {
		return BatchRef{}, 0, err
	}
	w.scratch = payload[:0]
	start := len(w.buf)
	w.buf = b.appendBatchHeader(w.buf, CodecRaw, len(payload))
	stored, ok := compress(w.buf, payload, w.o.Compression, w.o.MinGainPercent)
	if ok {
		stored[start+batchCodec] = byte(CodecZstd)
	} else {
		stored = append(w.buf, payload...)
	}
	w.buf = stored
	sealBatch(w.buf[start:])
	ref := BatchRef{Pos: uint64(start), Len: uint32(len(w.buf) - start)}
	w.index = appendIndexEntry(w.index, b, ref, len(payload))
	w.batches++
	return ref, uint32(len(payload)), nil
}

// Size is how many bytes the object would have if it were finished now.
func (w *Writer) Size() int { return len(w.buf) + len(w.index) + FooterSize }

// Batches is how many batches there are so far.
func (w *Writer) Batches() int { return w.batches }

// Scratch gives back the scratch memory after Finish, for WriterOptions.Scratch of the next Writer.
func (w *Writer) Scratch() []byte { return w.scratch[:0] }

// Finish writes index and footer and returns the object. The Writer takes nothing more.
func (w *Writer) Finish() ([]byte, error) {
	if w.finished {
		return nil, ErrFinished
	}
	if w.batches == 0 {
		return nil, ErrEmptySegment
	}
	if uint64(len(w.index)) > math.MaxUint32 {
		return nil, fmt.Errorf("%w: index of %d bytes", ErrInvalidBatch, len(w.index))
	}
	w.finished = true
	var f [FooterSize]byte
	copy(f[footerID:], w.o.ID[:])
	binary.LittleEndian.PutUint64(f[footerCreated:], uint64(w.o.Created))
	binary.LittleEndian.PutUint64(f[footerIndexPos:], uint64(len(w.buf)))
	binary.LittleEndian.PutUint32(f[footerIndexLen:], uint32(len(w.index)))
	binary.LittleEndian.PutUint32(f[footerIndexCRC:], checksum(w.index))
	binary.LittleEndian.PutUint32(f[footerBatches:], uint32(w.batches))
	f[footerLevel] = w.o.Level
	binary.LittleEndian.PutUint32(f[footerCRC:], checksum(f[:footerCRC]))
	copy(f[footerMagicAt:], footerMagic)
	f[footerVersion] = Version
	w.buf = append(append(w.buf, w.index...), f[:]...)
	return w.buf, nil
}
