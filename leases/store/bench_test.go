package store

import (
	"fmt"
	"math"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/forebaymq/forebay/internal/redistest"
)

// BenchmarkLeaseAck leases and acks against a real Redis with an endless backlog: batch × workers. The metrics: records/s, and the microseconds of
// Redis's own time for each lease and each ack.
func BenchmarkLeaseAck(b *testing.B) {
	for _, c := range []struct{ batch, workers int }{{1, 1}, {1, 16}, {10, 8}, {100, 1}, {100, 4}, {1000, 4}} {
		b.Run(fmt.Sprintf("batch=%d/workers=%d", c.batch, c.workers), func(b *testing.B) {
			server := redistest.Start(b)
			s := mustStore(b, Options{URL: server.URL(), Instance: "bench"})
			q := queue(1)
			q.MaxInFlight, q.MaxAckedAhead = 100_000, 100_000
			var fresh []Fresh
			for p := range int32(8) {
				if err := s.Load(b.Context(), q, []LoadRequest{{Partition: p, Incarnation: 1}}); err != nil {
					b.Fatal(err)
				}
				fresh = append(fresh, at(p, math.MaxInt32))
			}
			if err := s.Ready(b.Context(), q, s.Life()); err != nil {
				b.Fatal(err)
			}
			server.Must("CONFIG", "RESETSTAT")
			before := cpu(b, server)
			b.ResetTimer()
			var wg sync.WaitGroup
			for w := range c.workers {
				n := b.N / c.workers
				if w < b.N%c.workers {
					n++
				}
				wg.Go(func() {
					mine := fresh[w%8:]
					for range n {
						a, err := s.Acquire(b.Context(), q, AcquireRequest{Max: c.batch, Visibility: time.Minute, Fresh: mine[:1]})
						if err != nil {
							b.Error(err)
							return
						}
						out, err := s.Settle(b.Context(), q, OpAck, receipts(a.Grants...), SettleOptions{})
						if err != nil || !out.OK[0] {
							b.Error(out, err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N*c.batch)/b.Elapsed().Seconds(), "records/s")
			stats, err := server.Info("commandstats")
			if err != nil {
				b.Fatal(err)
			}
			var calls, usec float64
			if _, err := fmt.Sscanf(stats["cmdstat_evalsha"], "calls=%f,usec=%f,", &calls, &usec); err != nil {
				b.Fatal(err, stats["cmdstat_evalsha"])
			}
			b.ReportMetric(usec/calls, "redis-µs/script")
			b.ReportMetric((cpu(b, server)-before)*1e6/calls, "redis-cpu-µs/script")
		})
	}
}

// cpu is the seconds of processor time that a server has used.
func cpu(b *testing.B, server *redistest.Server) (sum float64) {
	b.Helper()
	info, err := server.Info("cpu")
	if err != nil {
		b.Fatal(err)
	}
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		v, err := strconv.ParseFloat(info[name], 64)
		if err != nil {
			b.Fatal(err)
		}
		sum += v
	}
	return sum
}

// BenchmarkKeyed admits, leases and acks a thousand records of a keyed queue in batches of 100.
func BenchmarkKeyed(b *testing.B) {
	for _, kind := range []string{"ordered", "fair"} {
		b.Run(kind, func(b *testing.B) {
			server := redistest.Start(b)
			s := mustStore(b, Options{URL: server.URL(), Instance: "bench"})
			q := queue(1)
			q.Ordered, q.Fair, q.MaxInFlight, q.MaxAckedAhead = kind == "ordered", kind == "fair", 5000, 5000
			if err := s.Load(b.Context(), q, []LoadRequest{{Partition: 0, Incarnation: 1}}); err != nil {
				b.Fatal(err)
			}
			if err := s.Ready(b.Context(), q, s.Life()); err != nil {
				b.Fatal(err)
			}
			before := cpu(b, server)
			b.ResetTimer()
			for n := range int64(b.N) {
				r := AdmitRequest{Partition: 0, Cursor: n * 1000, Through: (n + 1) * 1000}
				for o := r.Cursor; o < r.Through; o++ {
					r.Records = append(r.Records, Candidate{Offset: o, KeyHash: uint64(o)*0x9e3779b97f4a7c15 | 1})
				}
				if moved, _, err := s.Admit(b.Context(), q, r); !moved || err != nil {
					b.Fatal(moved, err)
				}
				for range 10 {
					a, err := s.Acquire(b.Context(), q, AcquireRequest{Max: 100, Visibility: time.Minute})
					if err != nil {
						b.Fatal(err)
					}
					if out, err := s.Settle(b.Context(), q, OpAck, receipts(a.Grants...), SettleOptions{}); err != nil || len(out.OK) != 100 {
						b.Fatal(out, err)
					}
				}
			}
			b.StopTimer()
			b.ReportMetric(float64(b.N*1000)/b.Elapsed().Seconds(), "records/s")
			b.ReportMetric((cpu(b, server)-before)*1e6/float64(b.N*1000), "redis-cpu-µs/record")
		})
	}
}
