package etcd

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/forebaymq/forebay/metadata"
	objmem "github.com/forebaymq/forebay/objectstore/mem"
)

// BenchmarkLogOverEtcd measures partition deltas through the whole log on an embedded member, fsync on, and the 99th percentile of a
// commit's latency.
func BenchmarkLogOverEtcd(b *testing.B) {
	for _, batches := range []int{24, 500, 2000} {
		for _, inFlight := range []int{1, 4} {
			b.Run(fmt.Sprintf("batches=%d/inflight=%d", batches, inFlight), func(b *testing.B) {
				d, err := OpenEmbedded(b.Context(), ServerConfig{Dir: b.TempDir()}, DriverOptions{})
				if err != nil {
					b.Fatal(err)
				}
				l := openLog(b, d, objmem.New(objmem.Options{}), "n")
				defer func() { _ = l.Close(); _ = d.Close() }()
				topic := putTopic(b, l, "orders", 2000)
				tokens := make(chan struct{}, inFlight)
				results := make(chan time.Duration, inFlight)
				var took []time.Duration
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
					p := l.SubmitCommit(commitOf(topic, batches))
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
				b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
				b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
			})
		}
	}
}

// BenchmarkHead measures a linearizable read, in process and over a connection.
func BenchmarkHead(b *testing.B) {
	s := startServer(b, ServerConfig{ListenClient: "127.0.0.1:0"})
	for name, d := range map[string]*Driver{"local": s.Driver(b.Context(), DriverOptions{}), "dialled": dial(b, ClientConfig{Endpoints: s.Endpoints()})} {
		b.Run(name, func(b *testing.B) {
			for shard := range 16 {
				if _, err := d.Append(b.Context(), []metadata.LogEntry{{Shard: shard, Stream: metadata.Stream(name), Seq: uint64(b.N), Value: []byte{1}}}, nil); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				if _, err := d.Head(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
		if err := d.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
