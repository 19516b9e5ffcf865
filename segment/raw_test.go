package segment

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
)

// sparseBatch makes a sparse batch of n records of random shape.
func sparseBatch(rng *rand.Rand, n int, producer string) (*Batch, []Record) {
	b := &Batch{TopicID: 3, Partition: 2, Records: n, ProducerID: producer}
	var records []Record
	offset, at := int64(rng.IntN(5)), int64(1000)
	for i := range n {
		r := Record{ProducerTime: NoTime, DeliverAt: NoTime, Kind: KindText, Value: bytes.Repeat([]byte{'v'}, rng.IntN(60))}
		if rng.IntN(4) > 0 {
			r.Key = []byte(fmt.Sprint("key", rng.IntN(9)))[:rng.IntN(5)]
		}
		if rng.IntN(3) == 0 {
			r.ProducerTime = -int64(rng.IntN(1 << 30))
		}
		if rng.IntN(3) == 0 {
			r.DeliverAt = int64(rng.IntN(1 << 30))
		}
		if rng.IntN(4) == 0 {
			r.Value, r.Kind = nil, KindNone
		}
		if rng.IntN(3) == 0 {
			r.ID, r.Headers = "id", []Header{{Name: "a", Value: "b"}}
		}
		r.Offset, r.AppendTime = offset, at
		offset += 1 + int64(rng.IntN(4))
		at += int64(rng.IntN(3))
		records = append(records, r)
		b.Chunks = append(b.Chunks, AppendRecord(nil, &records[i]))
		b.Offsets = append(b.Offsets, r.Offset)
		b.AppendTimes = append(b.AppendTimes, r.AppendTime)
	}
	return b, records
}

// TestRaw: NextRaw gives the encodings as they were appended, with offset and time; RawKey reads key and kind of each.
func TestRaw(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		b, records := sparseBatch(rng, 1+rng.IntN(40), "")
		w := NewWriter(WriterOptions{ID: [16]byte{1}, Level: 1})
		ref, _, err := w.Append(b)
		if err != nil {
			t.Fatal(err)
		}
		object, err := w.Finish()
		if err != nil {
			t.Fatal(err)
		}
		d, err := DecodeBatch(object[ref.Pos : ref.Pos+uint64(ref.Len)])
		if err != nil {
			t.Fatal(err)
		}
		it := d.Iter()
		var r RawRecord
		i := 0
		for ; it.NextRaw(&r); i++ {
			want := &records[i]
			if !bytes.Equal(r.Encoding, b.Chunks[i]) || r.Offset != want.Offset || r.AppendTime != want.AppendTime {
				t.Fatalf("record %d: %+v, want %+v", i, r, want)
			}
			key, tombstone, err := RawKey(r.Encoding)
			if err != nil || !bytes.Equal(key, want.Key) || (key == nil) != (want.Key == nil) || tombstone != (want.Value == nil) {
				t.Fatalf("record %d: key %q, %v, %v, want %+v", i, key, tombstone, err, want)
			}
			for cut := range len(r.Encoding) {
				if _, _, err := RawKey(r.Encoding[:cut]); !errors.Is(err, ErrCorrupt) {
					t.Fatalf("record cut to %d bytes: %v", cut, err)
				}
			}
		}
		if it.Err() != nil || i != len(records) {
			t.Fatalf("%d records, %v", i, it.Err())
		}
	}
}

// TestRun: batches moved as they are stand in the new object byte for byte, with the same index; the run is split again; bit flips are found.
func TestRun(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 1))
	src := NewWriter(WriterOptions{ID: [16]byte{1}, Level: 1})
	var refs []BatchRef
	next := int64(0)
	for i := range 5 {
		b, _ := sparseBatch(rng, 3+rng.IntN(30), []string{"", "compactor"}[i%2])
		for j := range b.Offsets {
			b.Offsets[j] += next
		}
		next = b.Offsets[len(b.Offsets)-1] + 1
		ref, _, err := src.Append(b)
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, ref)
	}
	from, err := src.Finish()
	if err != nil {
		t.Fatal(err)
	}
	want, err := OpenIndex(from, int64(len(from)))
	if err != nil {
		t.Fatal(err)
	}
	dst := NewWriter(WriterOptions{ID: [16]byte{2}, Level: 2})
	for i, ref := range refs {
		info, err := dst.AppendStored(from[ref.Pos : ref.Pos+uint64(ref.Len)])
		if err != nil {
			t.Fatal(err)
		}
		if info != want.Batches[i] {
			t.Errorf("batch %d: %+v, want %+v", i, info, want.Batches[i])
		}
	}
	to, err := dst.Finish()
	if err != nil {
		t.Fatal(err)
	}
	if err := Verify(to); err != nil {
		t.Fatal(err)
	}
	got, err := OpenIndex(to, int64(len(to)))
	if err != nil || fmt.Sprint(got.Batches) != fmt.Sprint(want.Batches) {
		t.Errorf("index %+v, %v", got, err)
	}
	last := refs[len(refs)-1]
	run := to[HeaderSize : last.Pos+uint64(last.Len)]
	parts, err := SplitRun(run)
	if err != nil || len(parts) != len(refs) {
		t.Fatalf("%d parts, %v", len(parts), err)
	}
	for i, p := range parts {
		b := want.Batches[i]
		if p.Ref.Pos+HeaderSize != b.Ref.Pos || p.Ref.Len != b.Ref.Len || p.Header.FirstOffset != b.FirstOffset || p.Header.Records != b.Records {
			t.Errorf("part %d: %+v, want %+v", i, p, b)
		}
	}
	for i := range len(run) {
		bad := bytes.Clone(run)
		bad[i] ^= 1 << rng.IntN(8)
		if _, err := SplitRun(bad); err == nil {
			t.Fatalf("a flipped bit in byte %d was not found", i)
		}
	}
	if _, err := SplitRun(run[:len(run)-1]); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a run cut short: %v", err)
	}
}

// TestAppendStoredRefuses: what is not a whole sparse batch leaves the segment as it was.
func TestAppendStoredRefuses(t *testing.T) {
	w := NewWriter(WriterOptions{ID: [16]byte{1}})
	ref, _, err := w.Append(&Batch{TopicID: 1, Records: 1, Chunks: [][]byte{AppendRecord(nil, &Record{ProducerTime: NoTime, DeliverAt: NoTime})}})
	if err != nil {
		t.Fatal(err)
	}
	dense := w.buf[ref.Pos : ref.Pos+uint64(ref.Len)]
	size := w.Size()
	if _, err := w.AppendStored(bytes.Clone(dense)); !errors.Is(err, ErrInvalidBatch) {
		t.Errorf("a dense batch: %v", err)
	}
	if _, err := w.AppendStored(dense[:50]); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a cut batch: %v", err)
	}
	if w.Size() != size || w.Batches() != 1 {
		t.Error("the segment has changed")
	}
	if _, err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.AppendStored(dense); !errors.Is(err, ErrFinished) {
		t.Errorf("after Finish: %v", err)
	}
}

func FuzzRawKey(f *testing.F) {
	rng := rand.New(rand.NewPCG(3, 1))
	for range 20 {
		b, _ := sparseBatch(rng, 1, "")
		f.Add(b.Chunks[0])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		key, _, err := RawKey(b)
		if err != nil && !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
		if err == nil && len(key) > len(b) {
			t.Fatal("the key is longer than the record")
		}
	})
}

func FuzzSplitRun(f *testing.F) {
	rng := rand.New(rand.NewPCG(4, 1))
	w := NewWriter(WriterOptions{ID: [16]byte{1}, Level: 1})
	b, _ := sparseBatch(rng, 5, "")
	for range 2 {
		if _, _, err := w.Append(b); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(bytes.Clone(w.buf[HeaderSize:]))
	f.Add(bytes.Clone(w.buf[HeaderSize : len(w.buf)-1]))
	f.Fuzz(func(t *testing.T, run []byte) {
		parts, err := SplitRun(run)
		if err != nil {
			return
		}
		total := 0
		for _, p := range parts {
			total += int(p.Ref.Len)
		}
		if total != len(run) {
			t.Fatalf("parts of %d bytes in a run of %d", total, len(run))
		}
	})
}
