package segment_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/forebaymq/forebay/segment"
)

// damage gives seeds made from good bytes: truncations and bit flips.
func damage(b []byte) [][]byte {
	out := [][]byte{b, nil, b[:1]}
	for _, n := range []int{2, 3, 10, 50} {
		out = append(out, b[:len(b)/n], b[len(b)/n:])
	}
	for i := 0; i < len(b); i += 1 + len(b)/20 {
		flipped := bytes.Clone(b)
		flipped[i] ^= 1 << (i % 8)
		out = append(out, flipped)
	}
	return append(out, b[:len(b)-1], append(bytes.Clone(b), 0))
}

// known says whether err is of a kind that decoders may return for bad bytes.
func known(err error) bool {
	var short *segment.ShortTailError
	return errors.Is(err, segment.ErrCorrupt) || errors.Is(err, segment.ErrUnsupportedVersion) || errors.As(err, &short)
}

// FuzzDecodeBatch: no bytes make DecodeBatch or a scan panic or allocate beyond bounds; errors are of known kinds; a batch that decodes is
// written again with the same records. The fuzzer cannot guess checksums, so each input is tried as it is and with its checksum mended.
func FuzzDecodeBatch(f *testing.F) {
	for _, g := range goldens() {
		object := readGolden(f, g.name)
		x, err := segment.OpenIndex(object, int64(len(object)))
		if err != nil {
			f.Fatal(err)
		}
		for _, b := range x.Batches {
			for _, seed := range damage(stored(object, b.Ref)) {
				f.Add(seed)
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		decodeAny(t, data)
		decodeAny(t, segment.MendBatch(bytes.Clone(data)))
	})
}

func decodeAny(t *testing.T, data []byte) {
	b, err := segment.DecodeBatch(data)
	if err != nil {
		if !known(err) {
			t.Fatalf("error of an unknown kind: %v", err)
		}
		return
	}
	again := &segment.Batch{TopicID: b.Header().TopicID, Partition: b.Header().Partition}
	h := b.Header()
	again.ProducerID, again.ProducerEpoch, again.Sequence = h.ProducerID, h.ProducerEpoch, h.Sequence
	var records []segment.Record
	err = b.Scan(func(i int, r *segment.Record) bool {
		records = append(records, *r)
		again.Chunks = append(again.Chunks, segment.AppendRecord(nil, r))
		if h.Sparse {
			again.Offsets, again.AppendTimes = append(again.Offsets, r.Offset), append(again.AppendTimes, r.AppendTime)
		}
		return true
	})
	if err != nil {
		if !known(err) {
			t.Fatalf("error of an unknown kind: %v", err)
		}
		return
	}
	if again.Records = len(records); again.Records != h.Records {
		t.Fatalf("%d records, the header says %d", again.Records, h.Records)
	}
	object, refs := build(t, segment.WriterOptions{}, again)
	requireEqual(t, read(t, stored(object, refs[0])), records)
}

// FuzzOpenIndex: no tail makes OpenIndex, Verify or Dump panic; an index that opens lies within the object.
func FuzzOpenIndex(f *testing.F) {
	for _, g := range goldens() {
		for _, seed := range damage(readGolden(f, g.name)) {
			f.Add(seed, int64(len(seed)))
			f.Add(seed, int64(1<<40))
			f.Add(seed[len(seed)/2:], int64(len(seed)))
		}
	}
	f.Fuzz(func(t *testing.T, tail []byte, size int64) {
		openAny(t, tail, size)
		mended := segment.MendObject(bytes.Clone(tail))
		openAny(t, mended, size)
		openAny(t, mended, int64(len(mended)))
	})
}

func openAny(t *testing.T, tail []byte, size int64) {
	x, err := segment.OpenIndex(tail, size)
	if err == nil {
		end := uint64(segment.HeaderSize)
		for _, b := range x.Batches {
			if b.Ref.Pos != end || b.Records < 1 || b.Partition < 0 {
				t.Fatalf("batch %+v after %d", b, end)
			}
			end += uint64(b.Ref.Len)
		}
		if end > uint64(size) {
			t.Fatalf("batches end at %d of %d", end, size)
		}
	} else if !known(err) && int64(len(tail)) <= size {
		t.Fatalf("error of an unknown kind: %v", err)
	}
	var short *segment.ShortTailError
	if errors.As(err, &short) && (short.Need <= int64(len(tail)) || short.Need > size) {
		t.Fatalf("needs %d bytes of %d, has %d", short.Need, size, len(tail))
	}
	if int64(len(tail)) == size {
		if err := segment.Verify(tail); err != nil && !known(err) {
			t.Fatalf("verify: error of an unknown kind: %v", err)
		}
		var out bytes.Buffer
		if err := segment.Dump(&out, tail, segment.DumpOptions{JSON: len(tail)%2 == 0, Records: true, Values: true}); err != nil && !known(err) {
			t.Fatalf("dump: error of an unknown kind: %v", err)
		}
	}
}

// FuzzRecord: bytes that decode to a record are the only encoding of it, and a record decodes to itself.
func FuzzRecord(f *testing.F) {
	for _, r := range variety() {
		for _, seed := range damage(segment.AppendRecord(nil, &r)) {
			f.Add(seed)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var r segment.Record
		if !segment.DecodeRecord(data, &r) {
			return
		}
		again := segment.AppendRecord(nil, &r)
		if !bytes.Equal(data, again) {
			t.Fatalf("%x decodes to %+v, which is %x", data, r, again)
		}
		if len(again) != segment.RecordSize(&r) {
			t.Fatalf("RecordSize is %d of %d", segment.RecordSize(&r), len(again))
		}
	})
}
