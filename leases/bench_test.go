package leases

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/fetch"
	"github.com/forebaymq/forebay/ingest"
	"github.com/forebaymq/forebay/internal/redistest"
	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/leases/store"
	"github.com/forebaymq/forebay/metadata"
	objmem "github.com/forebaymq/forebay/objectstore/mem"
	"github.com/forebaymq/forebay/segment"
)

// realNodes makes nodes over a real Redis, with everything else in memory.
func realNodes(b testing.TB, server *redistest.Server, count int) []*fabricNode {
	meta, objects := metadata.NewMemDriver(metadata.MemOptions{}), objmem.New(objmem.Options{})
	b.Cleanup(func() {
		if err := meta.Close(); err != nil {
			b.Error(err)
		}
	})
	var ns []*fabricNode
	for i := range count {
		ns = append(ns, realNode(b, server, meta.Peer(), objects, fmt.Sprintf("n%d", i)))
	}
	return ns
}

func realNode(b testing.TB, server *redistest.Server, meta *metadata.MemDriver, objects *objmem.Store, name string) *fabricNode {
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	n := &fabricNode{cut: make(chan struct{})}
	var err error
	n.log, err = metadata.Open(b.Context(), metadata.Options{Driver: meta, Store: objects, NodeID: name, Shards: 2, NoHousekeeping: true})
	must(err)
	n.read, err = fetch.New(fetch.Options{View: n.log, Store: objects, CacheBytes: 1 << 30})
	must(err)
	n.in, err = ingest.New(ingest.Options{Store: objects, Committer: n.log, Sink: n.read, Linger: 5 * time.Millisecond})
	must(err)
	n.store, err = store.New(b.Context(), store.Options{URL: server.URL(), Fabric: "f", Instance: name, Logger: slog.New(slog.DiscardHandler)})
	must(err)
	j, err := journal.New(journal.Options{Log: &fabricLog{n}})
	must(err)
	n.engine, err = New(Options{Store: n.store, Journal: j, View: n.log, Catalog: n.log, Reader: fabricReader{n}, Publisher: fabricPublisher{n}})
	must(err)
	n.engine.Start()
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		must(n.engine.Close(ctx))
		must(n.store.Close())
		must(n.in.Close(ctx))
		must(n.read.Close())
		must(n.log.Close())
		must(meta.Close())
	})
	return n
}

// BenchmarkLeaseAck works off a backlog of records of 1 KiB: lease, ack, until nothing is left. One iteration is one record.
func BenchmarkLeaseAck(b *testing.B) {
	for _, c := range []struct{ batch, workers int }{{1, 1}, {1, 16}, {10, 8}, {100, 1}, {100, 4}, {100, 8}} {
		b.Run(fmt.Sprintf("batch=%d/workers=%d", c.batch, c.workers), func(b *testing.B) {
			n := realNodes(b, redistest.Start(b), 1)[0]
			const partitions = 8
			topic, _, err := n.log.PutTopic(b.Context(), fabricTenant, "orders", func(*metadata.Topic) (api.TopicConfig, error) {
				c := api.DefaultTopicConfig()
				c.Partitions = partitions
				return c, nil
			})
			if err != nil {
				b.Fatal(err)
			}
			_, _, err = n.engine.PutSubscription(b.Context(), work, Start{Earliest: true}, func(*metadata.Subscription) (api.SubscriptionConfig, error) {
				return api.DefaultSubscriptionConfig(), nil
			})
			if err != nil {
				b.Fatal(err)
			}
			value := bytes.Repeat([]byte("x"), 1024)
			for left, turn := b.N, 0; left > 0; turn++ {
				rs := make([]segment.Record, min(left, 1000))
				ps := make([]int32, len(rs))
				for i := range rs {
					rs[i] = segment.Record{ProducerTime: segment.NoTime, DeliverAt: segment.NoTime, Kind: segment.KindData, Value: value}
					ps[i] = int32((turn + i/250) % partitions)
				}
				if _, err := (fabricPublisher{n}).Publish(b.Context(), topic, rs, ps); err != nil {
					b.Fatal(err)
				}
				left -= len(rs)
			}
			var left atomic.Int64
			left.Store(int64(b.N))
			b.ReportAllocs()
			b.ResetTimer()
			var all sync.WaitGroup
			for range c.workers {
				all.Go(func() {
					for left.Load() > 0 {
						ms, err := n.engine.Lease(b.Context(), LeaseRequest{Name: work, Max: c.batch})
						if err != nil {
							b.Error(err)
							return
						}
						if len(ms) == 0 {
							time.Sleep(time.Millisecond) // what is left others have in hand
							continue
						}
						rs, err := n.engine.Settle(b.Context(), SettleRequest{Name: work, Kind: Ack, Receipts: receipts(ms)})
						if err != nil || rs[0].Code != "" {
							b.Error(rs, err)
							return
						}
						left.Add(-int64(len(ms)))
					}
				})
			}
			all.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
}
