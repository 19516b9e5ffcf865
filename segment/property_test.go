package segment_test

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/forebaymq/forebay/segment"
)

func drawRecord(t *rapid.T) segment.Record {
	bytes := rapid.SliceOfN(rapid.Byte(), 0, 300)
	maybe := func(name string) []byte {
		if rapid.Bool().Draw(t, name) {
			b := bytes.Draw(t, name+" bytes")
			if b == nil {
				b = []byte{}
			}
			return b
		}
		return nil
	}
	r := segment.Record{
		ProducerTime: segment.NoTime, DeliverAt: segment.NoTime,
		Key: maybe("key"), Value: maybe("value"), KeyBinary: rapid.Bool().Draw(t, "binary"),
		Kind: segment.Kind(rapid.IntRange(0, 3).Draw(t, "kind")),
		ID:   string(rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "id")),
	}
	if rapid.Bool().Draw(t, "time") {
		r.ProducerTime = rapid.Int64().Draw(t, "producer time")
	}
	if rapid.Bool().Draw(t, "delay") {
		r.DeliverAt = rapid.Int64().Draw(t, "deliver at")
	}
	for range rapid.IntRange(0, 4).Draw(t, "headers") {
		r.Headers = append(r.Headers, segment.Header{Name: rapid.String().Draw(t, "name"), Value: rapid.String().Draw(t, "header value")})
	}
	return r
}

// What is written is read: any records, dense or sparse, in any number of batches, and the index agrees.
func TestRoundTripProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var batches []*segment.Batch
		var want [][]segment.Record
		for range rapid.IntRange(1, 4).Draw(t, "batches") {
			records := rapid.SliceOfN(rapid.Custom(drawRecord), 1, 20).Draw(t, "records")
			make := dense
			if rapid.Bool().Draw(t, "sparse") {
				make = sparse
				offset := rapid.Int64Range(0, math.MaxInt64/2).Draw(t, "offset")
				at := rapid.Int64Range(math.MinInt64/2, math.MaxInt64/2).Draw(t, "append time")
				for i := range records {
					records[i].Offset, records[i].AppendTime = offset, at
					offset += rapid.Int64Range(1, math.MaxInt64/64).Draw(t, "step")
					at += rapid.Int64Range(0, math.MaxInt64/64).Draw(t, "time step")
				}
			}
			b := make(rapid.Uint64().Draw(t, "topic"), rapid.Int32Range(0, math.MaxInt32).Draw(t, "partition"), records...)
			if rapid.Bool().Draw(t, "producer") {
				b.ProducerID, b.ProducerEpoch, b.Sequence = "p", rapid.Int64().Draw(t, "epoch"), rapid.Int64().Draw(t, "sequence")
			}
			batches, want = append(batches, b), append(want, records)
		}
		w := segment.NewWriter(segment.WriterOptions{ID: testID, Level: rapid.Uint8().Draw(t, "level"), Created: rapid.Int64().Draw(t, "created"),
			Compression: segment.Compression(rapid.IntRange(0, 2).Draw(t, "compression"))})
		for _, b := range batches {
			if _, _, err := w.Append(b); err != nil {
				t.Fatal(err)
			}
		}
		object, err := w.Finish()
		if err != nil {
			t.Fatal(err)
		}
		if err := segment.Verify(object); err != nil {
			t.Fatalf("verify: %v", err)
		}
		// A tail GET of any length: either it suffices, or the error says what would.
		tail := object[rapid.IntRange(0, len(object)-1).Draw(t, "cut"):]
		x, err := segment.OpenIndex(tail, int64(len(object)))
		for range 2 {
			var short *segment.ShortTailError
			if errors.As(err, &short) {
				tail = object[int64(len(object))-short.Need:]
				x, err = segment.OpenIndex(tail, int64(len(object)))
			}
		}
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		for i, info := range x.Batches {
			b, err := segment.DecodeBatch(stored(object, info.Ref))
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			if err := b.Scan(func(j int, r *segment.Record) bool {
				if d := diff(r, &want[i][j]); d != "" {
					t.Fatalf("batch %d record %d: %s", i, j, d)
				}
				n++
				return true
			}); err != nil || n != len(want[i]) {
				t.Fatalf("batch %d: %d records, %v", i, n, err)
			}
		}
	})
}

// Skipping ends where reading would.
func TestIterSkipProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 50).Draw(t, "records")
		records := make([]segment.Record, n)
		offset := int64(0)
		for i := range records {
			offset += rapid.Int64Range(1, 5).Draw(t, "step")
			records[i] = record("k", "value")
			records[i].Offset, records[i].AppendTime = offset, offset/3
		}
		w := segment.NewWriter(segment.WriterOptions{ID: testID, Level: 1})
		ref, _, err := w.Append(sparse(1, 0, records...))
		if err != nil {
			t.Fatal(err)
		}
		object, err := w.Finish()
		if err != nil {
			t.Fatal(err)
		}
		b, err := segment.DecodeBatch(stored(object, ref))
		if err != nil {
			t.Fatal(err)
		}
		to := rapid.Int64Range(0, offset+2).Draw(t, "to")
		byTime := rapid.Bool().Draw(t, "by time")
		want := 0
		for want < n && (byTime && records[want].AppendTime < to || !byTime && records[want].Offset < to) {
			want++
		}
		it := b.Iter()
		ok := false
		if byTime {
			ok = it.SkipToTime(to)
		} else {
			ok = it.SkipTo(to)
		}
		if ok != (want < n) || it.Ordinal() != want {
			t.Fatalf("skip to %d: %v at %d, want %d of %d", to, ok, it.Ordinal(), want, n)
		}
		var r segment.Record
		for i := want; it.Next(&r); i++ {
			if r.Offset != records[i].Offset || r.AppendTime != records[i].AppendTime {
				t.Fatalf("record %d is %+v", i, r)
			}
		}
		if it.Ordinal() != n || it.Err() != nil || it.Next(&r) || it.Skip(1) {
			t.Fatalf("the end: %d of %d, %v", it.Ordinal(), n, it.Err())
		}
	})
}

// Key and ParseKey are inverses, and ParseKey takes nothing that Key does not make.
func TestNameProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := segment.Name{ID: [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id")), Level: rapid.Uint8().Draw(t, "level")}
		if n.Level > 0 {
			n.Class = rapid.StringMatching(`[a-z0-9=_-][a-z0-9=._-]{0,20}`).Draw(t, "class")
		}
		if n.Check() != nil {
			t.Skip("not a name")
		}
		key := n.Key()
		got, err := segment.ParseKey(key)
		if err != nil || got != n {
			t.Fatalf("%s parses to %+v, %v", key, got, err)
		}
		i := rapid.IntRange(0, len(key)-1).Draw(t, "at")
		bad := key[:i] + string(rune(rapid.IntRange(32, 126).Draw(t, "byte"))) + key[i+1:]
		if other, err := segment.ParseKey(bad); err == nil && other.Key() != bad {
			t.Fatalf("%s parses, but its name has key %s", bad, other.Key())
		}
	})
}

func TestParseKeyRefuses(t *testing.T) {
	good := segment.Name{ID: testID, Level: 2, Class: "ttl=7d"}
	zero := segment.Name{ID: testID}
	if _, err := segment.ParseKey(good.Key()); err != nil {
		t.Fatal(err)
	}
	k0, k2 := zero.Key(), good.Key()
	for _, key := range []string{
		"", "/", "l0", "x/" + k0, k0 + "/", "/" + k0, k0[:len(k0)-4], k0 + ".seg", "snap/0001/x.snap",
		"l00" + k0[2:], "l256/" + k0[3:], "l1" + k0[2:], "L0" + k0[2:], "ttl=7d/l0" + k2[len("ttl=7d/l2"):], "l0/l2" + k2[len("ttl=7d/l2"):],
		"snap/l2" + k2[len("ttl=7d/l2"):], "TTL/l2" + k2[len("ttl=7d/l2"):], "../l2" + k2[len("ttl=7d/l2"):],
		k0[:3] + "00" + k0[5:], k0[:6] + "8" + k0[7:], k0[:6] + "u" + k0[7:],
	} {
		if n, err := segment.ParseKey(key); err == nil {
			t.Errorf("%q parses to %+v", key, n)
		}
	}
	for _, n := range []segment.Name{{Class: "keep"}, {Level: 1}, {Level: 1, Class: "snap"}, {Level: 1, Class: "l0"}, {Level: 1, Class: "a/b"}, {Level: 1, Class: ".a"}} {
		if n.Check() == nil {
			t.Errorf("%+v is a name", n)
		}
	}
}
