package segment_test

import (
	"testing"

	"github.com/forebaymq/forebay/segment"
)

const benchRecords = 1000

func benchSets() map[string][]segment.Record {
	return map[string][]segment.Record{"json": jsonRecords(benchRecords, 1024), "random": randomRecords(benchRecords, 1024)}
}

func payloadBytes(records []segment.Record) (n int64) {
	for i := range records {
		n += int64(segment.RecordSize(&records[i]))
	}
	return n
}

// BenchmarkAppendRecord is what ingest does with each record of a request.
func BenchmarkAppendRecord(b *testing.B) {
	for name, records := range benchSets() {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(payloadBytes(records))
			b.ReportAllocs()
			var buf []byte
			for b.Loop() {
				buf = buf[:0]
				for i := range records {
					buf = segment.AppendRecord(buf, &records[i])
				}
			}
		})
	}
}

// BenchmarkWriter builds segments of one batch of 1000 records of 1 KiB.
func BenchmarkWriter(b *testing.B) {
	for name, records := range benchSets() {
		batch := dense(1, 0, records...)
		for _, c := range []struct {
			name  string
			level segment.Compression
		}{{"fastest", segment.CompressFastest}, {"better", segment.CompressBetter}, {"none", segment.CompressNone}} {
			b.Run(name+"/"+c.name, func(b *testing.B) {
				b.SetBytes(payloadBytes(records))
				b.ReportAllocs()
				var buf, scratch []byte
				for b.Loop() {
					w := segment.NewWriter(segment.WriterOptions{ID: testID, Buf: buf, Scratch: scratch, Compression: c.level})
					if _, _, err := w.Append(batch); err != nil {
						b.Fatal(err)
					}
					object, err := w.Finish()
					if err != nil {
						b.Fatal(err)
					}
					buf, scratch = object, w.Scratch()
				}
				b.ReportMetric(float64(len(buf))/float64(payloadBytes(records)), "stored/raw")
			})
		}
	}
}

// BenchmarkDecode verifies, decompresses and scans one batch of 1000 records of 1 KiB.
func BenchmarkDecode(b *testing.B) {
	for name, records := range benchSets() {
		for i := range records {
			records[i].Offset = int64(i)
		}
		for form, batch := range map[string]*segment.Batch{"dense": dense(1, 0, records...), "sparse": sparse(1, 0, records...)} {
			object, refs := build(b, segment.WriterOptions{}, batch)
			batch := stored(object, refs[0])
			b.Run(name+"/"+form, func(b *testing.B) {
				b.SetBytes(payloadBytes(records))
				b.ReportAllocs()
				for b.Loop() {
					d, err := segment.DecodeBatch(batch)
					if err != nil {
						b.Fatal(err)
					}
					n := 0
					if err := d.Scan(func(int, *segment.Record) bool { n++; return true }); err != nil || n != len(records) {
						b.Fatal(n, err)
					}
				}
			})
		}
	}
}
