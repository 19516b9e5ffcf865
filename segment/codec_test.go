package segment_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/forebaymq/forebay/segment"
)

// What does not shrink is stored raw; what does is compressed, where only a repetition of random bytes shows it as well.
func TestCompressionDecision(t *testing.T) {
	random := randomRecords(500, 1024)
	copies := slices.Repeat(randomRecords(1, 1024), 500)
	mixed := slices.Concat(randomRecords(250, 1024), jsonRecords(250, 1024))
	for name, c := range map[string]struct {
		records []segment.Record
		o       segment.WriterOptions
		want    segment.Codec
	}{
		"random":                  {random, segment.WriterOptions{}, segment.CodecRaw},
		"random, better":          {random, segment.WriterOptions{Compression: segment.CompressBetter}, segment.CodecRaw},
		"copies of random":        {copies, segment.WriterOptions{}, segment.CodecZstd},
		"events":                  {jsonRecords(500, 1024), segment.WriterOptions{}, segment.CodecZstd},
		"events, none":            {jsonRecords(500, 1024), segment.WriterOptions{Compression: segment.CompressNone}, segment.CodecRaw},
		"mixed":                   {mixed, segment.WriterOptions{}, segment.CodecZstd},
		"mixed, gain too small":   {mixed, segment.WriterOptions{MinGainPercent: 60}, segment.CodecRaw},
		"small random":            {randomRecords(3, 1024), segment.WriterOptions{}, segment.CodecRaw},
		"tiny":                    {jsonRecords(1, 60), segment.WriterOptions{}, segment.CodecRaw},
		"gain out of range":       {jsonRecords(500, 1024), segment.WriterOptions{MinGainPercent: 200}, segment.CodecZstd},
		"random with a long tail": {slices.Concat(random, jsonRecords(500, 1024)), segment.WriterOptions{}, segment.CodecZstd},
	} {
		t.Run(name, func(t *testing.T) {
			object, refs := build(t, c.o, dense(1, 0, c.records...))
			b, err := segment.DecodeBatch(stored(object, refs[0]))
			if err != nil {
				t.Fatal(err)
			}
			h := b.Header()
			if h.Codec != c.want {
				t.Errorf("codec is %s, want %s; %d of %d bytes", h.Codec, c.want, h.StoredBytes, h.RawBytes)
			}
			requireEqual(t, read(t, stored(object, refs[0])), c.records)
		})
	}
}

// A buffer for decompression is used when it is large enough, and never written beyond the payload.
func TestDecodeBatchTo(t *testing.T) {
	want := jsonRecords(100, 500)
	object, refs := build(t, segment.WriterOptions{}, dense(1, 0, want...))
	for _, size := range []int{0, 10, 1 << 20} {
		buf := make([]byte, size)
		for i := range buf {
			buf[i] = 0xaa
		}
		b, err := segment.DecodeBatchTo(buf, stored(object, refs[0]))
		if err != nil {
			t.Fatal(err)
		}
		var got []segment.Record
		if err := b.Scan(func(_ int, r *segment.Record) bool { got = append(got, *r); return true }); err != nil {
			t.Fatal(err)
		}
		requireEqual(t, got, want)
		if size > b.Size() {
			if buf[0] == 0xaa {
				t.Error("the buffer was not used")
			}
			for i := b.Size(); i < size; i++ {
				if buf[i] != 0xaa {
					t.Fatalf("byte %d beyond the payload was written", i)
				}
			}
		}
	}
}

// Records keep their bytes: what a caller appends to one never reaches its neighbour.
func TestRecordsDoNotOverlap(t *testing.T) {
	for _, c := range []segment.Compression{segment.CompressFastest, segment.CompressNone} {
		want := jsonRecords(50, 300)
		object, refs := build(t, segment.WriterOptions{Compression: c}, dense(1, 0, want...))
		b, err := segment.DecodeBatch(stored(object, refs[0]))
		if err != nil {
			t.Fatal(err)
		}
		var got []segment.Record
		if err := b.Scan(func(_ int, r *segment.Record) bool {
			_ = append(r.Key, "xxxxxxxxxx"...)
			_ = append(r.Value, "xxxxxxxxxx"...)
			got = append(got, *r)
			return true
		}); err != nil {
			t.Fatal(err)
		}
		requireEqual(t, got, want)
	}
}

// Encoders and decoders are pooled: many goroutines at once do not disturb each other.
func TestConcurrentUse(t *testing.T) {
	for i := range 8 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(uint64(i), 0))
			for range 10 {
				want := jsonRecords(1+rng.IntN(200), 100+rng.IntN(500))
				object, refs := build(t, segment.WriterOptions{}, dense(1, 0, want...))
				requireEqual(t, read(t, stored(object, refs[0])), want)
			}
		})
	}
}
