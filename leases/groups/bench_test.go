package groups

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebaymq/forebay/internal/redistest"
)

// BenchmarkThousandGroups is 1,000 groups of 10 members each on one node over a real Redis: what their heartbeats and commits cost. Everything but Redis
// is in memory.
func BenchmarkThousandGroups(b *testing.B) {
	const groups, members = 1000, 10
	f := newFabric(b)
	f.url = redistest.Start(b).URL()
	n := f.nodeWith(func(o *Options) { o.LagInterval = time.Hour })
	n.makeTopic("orders", members)
	for p := range int32(members) {
		n.publish("orders", p, "a", "b", "c")
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	peers := make([]*peer, groups*members)
	begun := time.Now()
	each(groups, 256, func(g int) {
		var wg sync.WaitGroup
		for m := range members {
			p := n.peer(fmt.Sprintf("g%d", g), "orders")
			p.session = MaxSessionTimeout
			peers[g*members+m] = p
			wg.Go(func() { p.join() })
		}
		wg.Wait()
		calm(b, peers[g*members:(g+1)*members]...)
	})
	joined := time.Since(begun)
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.Run("heartbeat", func(b *testing.B) {
		var i atomic.Int64
		b.SetParallelism(64)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				p := peers[int(i.Add(1))%len(peers)]
				if _, err := n.Heartbeat(b.Context(), HeartbeatRequest{Name: named(p.group), MemberID: p.id, Generation: p.generation, Owned: p.owned(), OwnedSet: true}); err != nil {
					b.Error(err)
					return
				}
			}
		})
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "heartbeats/s")
	})
	b.Run("commit", func(b *testing.B) {
		var i atomic.Int64
		b.SetParallelism(1000)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := peers[int(i.Add(1))%len(peers)].commitAll(b); err != nil {
					b.Error(err)
					return
				}
			}
		})
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
		b.ReportMetric(joined.Seconds(), "s-to-join-all")
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/groups, "B/group")
	})
}

func (p *peer) commitAll(b *testing.B) error {
	r := CommitRequest{Name: named(p.group), MemberID: p.id, Generation: p.generation}
	for at, offset := range p.at {
		r.Offsets = append(r.Offsets, Offset{TopicPartition: at, Offset: offset})
	}
	return p.n.Commit(b.Context(), r)
}

// each calls f for 0 to n-1, some at a time.
func each(n, together int, f func(i int)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, together)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			f(i)
		})
	}
	wg.Wait()
}
