package metadata

import (
	"fmt"
	"testing"
)

const benchBatches = 5000

// benchWorld has the topics that benchCommit names, all of one tenant.
func benchWorld(b *testing.B) (*stWorld, TopicID) {
	w := newWorld(b)
	var first TopicID
	for i := range (benchBatches + 7) / 8 {
		r := w.one(&CreateTopic{Tenant: "tenant-with-a-name", Name: fmt.Sprint("t", i), Config: stConfig(8), Now: w.now})
		if i == 0 {
			first = r.Topic.ID
		}
	}
	return w, first
}

func benchApply(b *testing.B, producers bool) {
	w, first := benchWorld(b)
	c := benchCommit(benchBatches, producers, first, 1)
	for i := range c.Groups {
		c.Groups[i].Producer.Epoch = 0
		c.Groups[i].Producer.ID = fmt.Sprint("producer-", i)
	}
	b.ReportAllocs()
	for n := int64(0); b.Loop(); n++ {
		b.StopTimer()
		if n%200 == 199 { // as compaction and retention would, keep the index from growing without end
			var trims []Command
			for _, t := range w.s.order {
				for _, p := range t.parts {
					trims = append(trims, &Trim{TopicID: t.id, Partition: p.num, LogStart: p.head})
				}
			}
			w.apply(trims...)
			w.log = nil
		}
		c.Segment.ID = stULID(stEpoch+n, 1)
		for i := range c.Groups {
			c.Groups[i].Producer.Sequence = n
		}
		w.rev++
		e := LogEntry{Revision: w.rev, Value: stEntry(b, c)}
		b.StartTimer()
		a, err := w.s.Apply(e)
		if err != nil || a.Results[0].Err != nil || a.Results[0].Batches[0].Err != nil {
			b.Fatal(a.Results[0].Err, a.Results[0].Batches[0].Err, err)
		}
	}
	b.ReportMetric(float64(b.N)*benchBatches/b.Elapsed().Seconds(), "deltas/s")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchBatches, "ns/delta")
}

func BenchmarkApply(b *testing.B)          { benchApply(b, false) }
func BenchmarkApplyProducers(b *testing.B) { benchApply(b, true) }

func BenchmarkEncodeCommit(b *testing.B) {
	c := []Command{benchCommit(benchBatches, true, 1<<20, 16)}
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if buf, err = AppendCommands(buf[:0], c); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*benchBatches/b.Elapsed().Seconds(), "deltas/s")
	b.ReportMetric(float64(len(buf))/benchBatches, "B/delta")
}

func BenchmarkDecodeCommit(b *testing.B) {
	buf := stEntry(b, benchCommit(benchBatches, true, 1<<20, 16))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeCommands(buf); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*benchBatches/b.Elapsed().Seconds(), "deltas/s")
}

func BenchmarkLocate(b *testing.B) {
	w := newWorld(b)
	x := w.topic("t", stConfig(1))
	for range 2000 {
		w.one(w.commit(nil, free(x, 0, 10), free(x, 0, 10), free(x, 0, 10), free(x, 0, 10), free(x, 0, 10)))
	}
	b.ReportAllocs()
	for i := int64(0); b.Loop(); i += 7919 {
		if e, _, err := w.s.Locate(x.ID, 0, i%100_000, 1); err != nil || len(e) != 1 {
			b.Fatal(len(e), err)
		}
	}
}

func BenchmarkSnapshot(b *testing.B) {
	s := idleState(b, 100_000, 100, 500)
	b.Run("body", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s.SnapshotBody()
		}
	})
	body := s.SnapshotBody()
	b.Run("seal", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		for b.Loop() {
			SealSnapshot(body)
		}
	})
	b.Run("load", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := decodeBody(body, snapshotVersion); err != nil {
				b.Fatal(err)
			}
		}
	})
}
