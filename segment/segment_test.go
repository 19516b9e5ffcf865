package segment_test

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/forebaymq/forebay/segment"
)

func TestRoundTripOfEveryForm(t *testing.T) {
	want := variety()
	for _, c := range []segment.Compression{segment.CompressFastest, segment.CompressBetter, segment.CompressNone} {
		object, refs := build(t, segment.WriterOptions{Compression: c}, dense(7, 3, want...), dense(8, 0, want[4]))
		requireEqual(t, read(t, stored(object, refs[0])), want)
		requireEqual(t, read(t, stored(object, refs[1])), want[4:5])
		if err := segment.Verify(object); err != nil {
			t.Fatalf("verify: %v", err)
		}
	}
}

// Case L6: null, empty and absent stay apart. Every pair of forms must differ in bytes, as it differs in meaning.
func TestFormsHaveDistinctEncodings(t *testing.T) {
	seen := map[string]int{}
	for i, r := range variety() {
		e := segment.AppendRecord(nil, &r)
		if j, ok := seen[string(e)]; ok {
			t.Errorf("forms %d and %d have one encoding", i, j)
		}
		seen[string(e)] = i
		if len(e) != segment.RecordSize(&r) {
			t.Errorf("form %d: RecordSize %d, encoding has %d bytes", i, segment.RecordSize(&r), len(e))
		}
	}
}

// Case L5: spans beyond 32 bits survive, and what cannot be encoded is refused.
func TestWideSpans(t *testing.T) {
	offsets := []int64{0, 1, 1 << 31, 1 << 32, math.MaxInt64 - 1, math.MaxInt64}
	times := []int64{-5, -5, 0, 1 << 33, 1 << 62, 1<<63 - 6}
	var want []segment.Record
	for i := range offsets {
		r := record("k", "v")
		r.Offset, r.AppendTime = offsets[i], times[i]
		want = append(want, r)
	}
	object, refs := build(t, segment.WriterOptions{Level: 1}, sparse(1, 0, want...))
	requireEqual(t, read(t, stored(object, refs[0])), want)
	x, err := segment.OpenIndex(object, int64(len(object)))
	if err != nil {
		t.Fatal(err)
	}
	b := x.Batches[0]
	if b.FirstOffset != 0 || b.LastOffset != math.MaxInt64 || b.FirstTime != -5 || b.LastTime != 1<<63-6 || !b.Sparse {
		t.Errorf("index entry: %+v", b)
	}
	if err := segment.Verify(object); err != nil {
		t.Error(err)
	}
}

func TestWriterRefusesInvalidBatches(t *testing.T) {
	r := record("k", "v")
	two := func(change func(*segment.Batch)) *segment.Batch {
		b := sparse(1, 0, r, r)
		b.Offsets, b.AppendTimes = []int64{4, 5}, []int64{1, 1}
		change(b)
		return b
	}
	cases := map[string]*segment.Batch{
		"negative partition":   two(func(b *segment.Batch) { b.Partition = -1 }),
		"no records":           two(func(b *segment.Batch) { b.Records = 0 }),
		"fewer chunks":         two(func(b *segment.Batch) { b.Chunks = b.Chunks[:1] }),
		"more chunks":          two(func(b *segment.Batch) { b.Chunks = append(b.Chunks, b.Chunks[0]) }),
		"cut record":           two(func(b *segment.Batch) { b.Chunks[1] = b.Chunks[1][:len(b.Chunks[1])-1] }),
		"empty record":         two(func(b *segment.Batch) { b.Chunks[1] = []byte{0} }),
		"times only":           two(func(b *segment.Batch) { b.Offsets = nil }),
		"offsets only":         two(func(b *segment.Batch) { b.AppendTimes = nil }),
		"short offsets":        two(func(b *segment.Batch) { b.Offsets = b.Offsets[:1] }),
		"equal offsets":        two(func(b *segment.Batch) { b.Offsets = []int64{5, 5} }),
		"falling offsets":      two(func(b *segment.Batch) { b.Offsets = []int64{5, 4} }),
		"negative offset":      two(func(b *segment.Batch) { b.Offsets = []int64{-1, 4} }),
		"falling time":         two(func(b *segment.Batch) { b.AppendTimes = []int64{2, 1} }),
		"absent time":          two(func(b *segment.Batch) { b.AppendTimes = []int64{segment.NoTime, 1} }),
		"span beyond 63 bits":  two(func(b *segment.Batch) { b.AppendTimes = []int64{-2, math.MaxInt64} }),
		"long producer":        two(func(b *segment.Batch) { b.ProducerID = string(make([]byte, segment.MaxProducerBytes+1)) }),
		"payload beyond limit": two(func(b *segment.Batch) { b.Chunks = [][]byte{make([]byte, segment.MaxPayloadBytes+1)} }),
	}
	for name, b := range cases {
		t.Run(name, func(t *testing.T) {
			w := segment.NewWriter(segment.WriterOptions{ID: testID})
			if _, _, err := w.Append(dense(9, 0, r)); err != nil {
				t.Fatal(err)
			}
			size := w.Size()
			if _, _, err := w.Append(b); !errors.Is(err, segment.ErrInvalidBatch) {
				t.Fatalf("error is %v, want ErrInvalidBatch", err)
			}
			if w.Size() != size || w.Batches() != 1 {
				t.Errorf("the refused batch left traces: %d bytes, %d batches", w.Size(), w.Batches())
			}
			object, err := w.Finish()
			if err != nil {
				t.Fatal(err)
			}
			if err := segment.Verify(object); err != nil {
				t.Errorf("the segment is damaged: %v", err)
			}
		})
	}
}

func TestWriterFinish(t *testing.T) {
	w := segment.NewWriter(segment.WriterOptions{ID: testID})
	if _, err := w.Finish(); !errors.Is(err, segment.ErrEmptySegment) {
		t.Errorf("an empty segment: %v", err)
	}
	b := dense(1, 0, record("k", "v"))
	if _, _, err := w.Append(b); err != nil {
		t.Fatal(err)
	}
	size := w.Size()
	object, err := w.Finish()
	if err != nil || len(object) != size {
		t.Fatalf("finish: %v, %d bytes, Size said %d", err, len(object), size)
	}
	if _, err := w.Finish(); !errors.Is(err, segment.ErrFinished) {
		t.Errorf("second Finish: %v", err)
	}
	if _, _, err := w.Append(b); !errors.Is(err, segment.ErrFinished) {
		t.Errorf("Append after Finish: %v", err)
	}
}

func TestWriterReusesBuffers(t *testing.T) {
	batch := dense(1, 0, jsonRecords(200, 1024)...)
	first, _ := build(t, segment.WriterOptions{}, batch)
	w := segment.NewWriter(segment.WriterOptions{ID: testID, Created: testCreated, Buf: make([]byte, 0, 1<<20)})
	if _, _, err := w.Append(batch); err != nil {
		t.Fatal(err)
	}
	second, err := w.Finish()
	if err != nil || !bytes.Equal(first, second) {
		t.Fatalf("a reused buffer changes the object (%v)", err)
	}
	scratch := w.Scratch()
	if cap(scratch) < 200*1024 {
		t.Fatalf("scratch has %d bytes", cap(scratch))
	}
	again := bytes.Clone(second)
	w = segment.NewWriter(segment.WriterOptions{ID: testID, Created: testCreated, Buf: second, Scratch: scratch})
	if _, _, err := w.Append(batch); err != nil {
		t.Fatal(err)
	}
	third, err := w.Finish()
	if err != nil || !bytes.Equal(again, third) || &third[0] != &second[0] {
		t.Fatalf("buffers were not reused, or the object changed (%v)", err)
	}
}

func TestChunksMayEndAnywhere(t *testing.T) {
	want := variety()
	whole := bytes.Join(encode(want...), nil)
	for _, size := range []int{1, 2, 3, 7, 100} {
		b := &segment.Batch{TopicID: 1, Records: len(want)}
		for rest := whole; len(rest) > 0; {
			n := min(size, len(rest))
			b.Chunks = append(b.Chunks, rest[:n])
			rest = rest[n:]
		}
		object, refs := build(t, segment.WriterOptions{}, b)
		requireEqual(t, read(t, stored(object, refs[0])), want)
	}
}

func TestBatchHeader(t *testing.T) {
	b := dense(math.MaxUint64, math.MaxInt32, jsonRecords(50, 500)...)
	b.ProducerID, b.ProducerEpoch, b.Sequence = "svc-1", 4, math.MaxInt64
	object, refs := build(t, segment.WriterOptions{}, b)
	d, err := segment.DecodeBatch(stored(object, refs[0]))
	if err != nil {
		t.Fatal(err)
	}
	h := d.Header()
	if h.TopicID != math.MaxUint64 || h.Partition != math.MaxInt32 || h.Records != 50 || h.Codec != segment.CodecZstd || h.Sparse ||
		h.StoredBytes != int(refs[0].Len) || h.RawBytes != d.Size() || h.ProducerID != "svc-1" || h.ProducerEpoch != 4 || h.Sequence != math.MaxInt64 {
		t.Errorf("header: %+v", h)
	}
}
