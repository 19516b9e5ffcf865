package segment_test

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/forebaymq/forebay/segment"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew instead of comparing")

var testID = [16]byte{0x01, 0x8f, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}

const testCreated = 1_700_000_000_000

// record gives a plain JSON record.
func record(key, value string) segment.Record {
	return segment.Record{ProducerTime: segment.NoTime, DeliverAt: segment.NoTime, Kind: segment.KindJSON, Key: []byte(key), Value: []byte(value)}
}

// variety has every form that a record can take (case L6 among them).
func variety() []segment.Record {
	none := segment.NoTime
	r := func(r segment.Record) segment.Record {
		if r.ProducerTime == 0 {
			r.ProducerTime = none
		}
		if r.DeliverAt == 0 {
			r.DeliverAt = none
		}
		return r
	}
	return []segment.Record{
		r(segment.Record{}), // no key, tombstone
		r(segment.Record{Key: []byte{}, Kind: segment.KindText, Value: []byte{}}),          // empty key, empty text
		r(segment.Record{Key: []byte("k"), Kind: segment.KindData, Value: []byte{}}),       // empty data
		r(segment.Record{Key: []byte("k"), Kind: segment.KindJSON, Value: []byte("null")}), // JSON null
		r(segment.Record{Key: []byte("k"), Kind: segment.KindText, Value: []byte("null")}), // the text null
		r(segment.Record{Key: []byte("k")}),                                                // tombstone
		r(segment.Record{Key: []byte{}, KeyBinary: true}),                                  // empty key, published as base64
		r(segment.Record{Key: []byte{0, 0xff}, KeyBinary: true, Kind: segment.KindData, Value: []byte{0xfe, 0, 1}}),
		r(segment.Record{ProducerTime: 1_700_000_000_123, DeliverAt: 1_800_000_000_000, Kind: segment.KindText, Value: []byte("later")}),
		r(segment.Record{ProducerTime: -1, DeliverAt: 1<<63 - 1, Kind: segment.KindText, Value: []byte("odd times")}),
		r(segment.Record{ID: "event-1", Kind: segment.KindText, Value: []byte("with id")}),
		r(segment.Record{Headers: []segment.Header{{Name: "a", Value: "1"}, {Name: "a", Value: "2"}, {Name: "", Value: ""}}, Kind: segment.KindJSON, Value: []byte(`{"n":12345678901234567890}`)}),
		r(segment.Record{Key: []byte("all"), ID: "event-2", ProducerTime: 1, DeliverAt: 2, KeyBinary: true, Kind: segment.KindText, Value: bytes.Repeat([]byte("long "), 100),
			Headers: []segment.Header{{Name: "traceparent", Value: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}}),
	}
}

func encode(records ...segment.Record) [][]byte {
	var chunks [][]byte
	for i := range records {
		chunks = append(chunks, segment.AppendRecord(nil, &records[i]))
	}
	return chunks
}

func dense(topic uint64, partition int32, records ...segment.Record) *segment.Batch {
	return &segment.Batch{TopicID: topic, Partition: partition, Records: len(records), Chunks: encode(records...)}
}

func sparse(topic uint64, partition int32, records ...segment.Record) *segment.Batch {
	b := dense(topic, partition, records...)
	for i := range records {
		b.Offsets = append(b.Offsets, records[i].Offset)
		b.AppendTimes = append(b.AppendTimes, records[i].AppendTime)
	}
	return b
}

// build writes a segment and fails the test if it cannot.
func build(t testing.TB, o segment.WriterOptions, batches ...*segment.Batch) ([]byte, []segment.BatchRef) {
	t.Helper()
	o.ID, o.Created = testID, testCreated
	w := segment.NewWriter(o)
	var refs []segment.BatchRef
	for _, b := range batches {
		ref, _, err := w.Append(b)
		if err != nil {
			t.Fatalf("append batch: %v", err)
		}
		refs = append(refs, ref)
	}
	object, err := w.Finish()
	if err != nil {
		t.Fatalf("finish: %v", err)
	}
	return object, refs
}

func stored(object []byte, ref segment.BatchRef) []byte {
	return object[ref.Pos : ref.Pos+uint64(ref.Len)]
}

// read decodes a stored batch to copies of its records.
func read(t testing.TB, stored []byte) []segment.Record {
	t.Helper()
	b, err := segment.DecodeBatch(stored)
	if err != nil {
		t.Fatalf("decode batch: %v", err)
	}
	var out []segment.Record
	if err := b.Scan(func(i int, r *segment.Record) bool {
		out = append(out, *r)
		return true
	}); err != nil {
		t.Fatalf("scan: %v", err)
	}
	if len(out) != b.Header().Records {
		t.Fatalf("scan gave %d records, the header says %d", len(out), b.Header().Records)
	}
	return out
}

// diff says where two records differ, absent and empty told apart; "" = equal.
func diff(a, b *segment.Record) string {
	same := func(x, y []byte) bool { return (x == nil) == (y == nil) && bytes.Equal(x, y) }
	switch {
	case !same(a.Key, b.Key):
		return fmt.Sprintf("key %#v and %#v", a.Key, b.Key)
	case !same(a.Value, b.Value):
		return fmt.Sprintf("value %#v and %#v", a.Value, b.Value)
	case a.Kind != b.Kind || a.KeyBinary != b.KeyBinary || a.ID != b.ID:
		return fmt.Sprintf("kind, key form or ID: %+v and %+v", a, b)
	case a.ProducerTime != b.ProducerTime || a.DeliverAt != b.DeliverAt || a.AppendTime != b.AppendTime || a.Offset != b.Offset:
		return fmt.Sprintf("times or offset: %+v and %+v", a, b)
	case !slices.Equal(a.Headers, b.Headers):
		return fmt.Sprintf("headers %v and %v", a.Headers, b.Headers)
	}
	return ""
}

func requireEqual(t testing.TB, got, want []segment.Record) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	for i := range got {
		if d := diff(&got[i], &want[i]); d != "" {
			t.Fatalf("record %d: %s", i, d)
		}
	}
}

// jsonRecords gives n records with JSON values of about size bytes that compress as events do.
func jsonRecords(n, size int) []segment.Record {
	rng := rand.New(rand.NewPCG(1, 2))
	out := make([]segment.Record, n)
	for i := range out {
		var v []byte
		v = fmt.Appendf(v, `{"event":"page_view","id":%d,"user":"u-%08x","items":[`, i, rng.Uint32())
		for len(v) < size-40 {
			v = fmt.Appendf(v, `{"sku":"%06d","qty":%d,"price":%d.%02d},`, rng.IntN(100000), rng.IntN(9), rng.IntN(500), rng.IntN(100))
		}
		v = append(v[:len(v)-1], "]}"...)
		out[i] = record(fmt.Sprintf("key-%d", rng.IntN(1000)), string(v))
	}
	return out
}

// randomRecords gives n records with incompressible values of size bytes.
func randomRecords(n, size int) []segment.Record {
	rng := rand.NewChaCha8([32]byte{1})
	out := make([]segment.Record, n)
	for i := range out {
		v := make([]byte, size)
		rng.Read(v)
		out[i] = segment.Record{ProducerTime: segment.NoTime, DeliverAt: segment.NoTime, Kind: segment.KindData, Key: fmt.Appendf(nil, "key-%d", i%1000), Value: v}
	}
	return out
}
