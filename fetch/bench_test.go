package fetch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

// eventRecords gives n records of about size bytes that compress as events do.
func eventRecords(n, size int) []segment.Record {
	rng := rand.New(rand.NewPCG(1, 2))
	out := make([]segment.Record, n)
	for i := range out {
		v := fmt.Appendf(nil, `{"event":"page_view","id":%d,"user":"u-%08x","items":[`, i, rng.Uint32())
		for len(v) < size-40 {
			v = fmt.Appendf(v, `{"sku":"%06d","qty":%d,"price":%d.%02d},`, rng.IntN(100000), rng.IntN(9), rng.IntN(500), rng.IntN(100))
		}
		out[i] = rec(fmt.Sprintf("key-%d", rng.IntN(1000)), string(append(v[:len(v)-1], "]}"...)))
		out[i].Kind = segment.KindJSON
	}
	return out
}

// BenchmarkReplay scans a partition of 64 MiB of records of 1 KiB by reads of 4 MiB. Cold: with a cache that is empty at the start of each
// scan, from a store in memory. Warm: with everything cached. Level 0 has four objects of 8 MiB of which this partition has a quarter.
func BenchmarkReplay(b *testing.B) {
	for name, make := range map[string]func(n, size int) []segment.Record{"json": eventRecords, "random": bigRecords} {
		w := newWorld(b)
		const perBatch, batches = 2000, 32
		records := make(perBatch, 1024)
		var size int64
		for i := range records {
			size += recordBytes(&records[i])
		}
		other := &segment.Batch{TopicID: 23, Partition: 0, Records: 2 * perBatch, Chunks: append(encode(records), encode(records)...)}
		for range batches / 2 {
			seg, refs := w.write(0, other, &segment.Batch{TopicID: uint64(testTopic), Partition: testPartition, Records: perBatch, Chunks: encode(records)},
				&segment.Batch{TopicID: uint64(testTopic), Partition: testPartition, Records: perBatch, Chunks: encode(records)})
			for _, ref := range refs[1:] {
				w.view.entries = append(w.view.entries, metadata.IndexEntry{Segment: seg, Ref: ref, Base: w.view.info.Head,
					Last: w.view.info.Head + perBatch - 1, Records: perBatch, AppendTime: testNow, FirstTime: testNow})
				w.view.info.Head += perBatch
			}
		}
		scan := func(b *testing.B, f *Fetcher) {
			r := request(0)
			r.MaxRecords, r.MaxBytes = 10_000, 4<<20
			n := 0
			for r.Offset < w.view.info.Head {
				res, err := f.Read(context.Background(), r)
				if err != nil {
					b.Fatal(err)
				}
				n += len(res.Records)
				r.Offset = res.NextOffset
			}
			if n != perBatch*batches {
				b.Fatalf("%d records", n)
			}
		}
		for age, old := range map[string]time.Duration{"recent": 0, "old": 1} {
			b.Run(name+"/cold/"+age, func(b *testing.B) {
				b.SetBytes(size * batches)
				b.ReportAllocs()
				before := w.store.bytes.Load()
				for b.Loop() {
					f := w.fetcher(Options{OldAge: old, OldBytesPerSecond: -1})
					scan(b, f)
					f.Close()
				}
				b.ReportMetric(float64(w.store.bytes.Load()-before)/float64(b.N)/float64(size*batches), "GETbytes/raw")
			})
		}
		b.Run(name+"/warm", func(b *testing.B) {
			f := w.fetcher(Options{CacheBytes: 1 << 30})
			scan(b, f)
			b.SetBytes(size * batches)
			b.ReportAllocs()
			for b.Loop() {
				scan(b, f)
			}
		})
	}
}

// BenchmarkTail reads what was just flushed, ten readers an object, as tailing readers do.
func BenchmarkTail(b *testing.B) {
	w := newWorld(b)
	records := eventRecords(100, 1024)
	w.commit(records)
	f := w.fetcher(Options{})
	f.Put(w.lastKey, w.last)
	b.SetBytes(100 * 1024)
	b.ReportAllocs()
	for b.Loop() {
		if res, err := f.Read(context.Background(), request(0)); err != nil || len(res.Records) != 100 {
			b.Fatal(err)
		}
	}
}
