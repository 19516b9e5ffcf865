package metadata_test

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// BenchmarkLog measures partition deltas through the whole log on the memory driver: submit, encode, append, watch, decode, apply, answer.
// A delta is one batch of one partition. It reports the 99th percentile of a commit's latency beside the rate.
func BenchmarkLog(b *testing.B) {
	for _, batches := range []int{100, 1000} {
		for _, inFlight := range []int{1, 4} {
			b.Run(fmt.Sprintf("batches=%d/inflight=%d", batches, inFlight), func(b *testing.B) {
				f := newFabric(b)
				n := f.open()
				topic := n.topic(b, "acme", "orders", 1000)
				var list []batch
				for i := range batches {
					list = append(list, batch{topic, int32(i), 10})
				}
				tokens := make(chan struct{}, inFlight)
				var took []time.Duration
				results := make(chan time.Duration, inFlight)
				done := make(chan struct{})
				go func() {
					defer close(done)
					for range b.N {
						took = append(took, <-results)
					}
				}()
				b.ResetTimer()
				for range b.N {
					tokens <- struct{}{}
					begin := time.Now()
					p := n.SubmitCommit(commitOf(list...))
					go func() {
						<-p.Done()
						results <- time.Since(begin)
						<-tokens
					}()
				}
				<-done
				b.StopTimer()
				slices.Sort(took)
				b.ReportMetric(float64(b.N*batches)/b.Elapsed().Seconds(), "deltas/s")
				b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
			})
		}
	}
}

// BenchmarkSync measures a linearizable barrier when nobody shares it.
func BenchmarkSync(b *testing.B) {
	n := newFabric(b).open()
	for b.Loop() {
		if err := n.Sync(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
