package leases

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/internal/redistest"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

// TestRealRedisIsLostAgainAndAgain works off a topic on two nodes while their redis-server is emptied, loses its scripts, and is killed and
// started empty. Nothing is lost, and what was settled well before a loss does not come again.
func TestRealRedisIsLostAgainAndAgain(t *testing.T) {
	server := redistest.Start(t)
	nodes := realNodes(t, server, 2)
	topic, _, err := nodes[0].log.PutTopic(t.Context(), fabricTenant, "orders", func(*metadata.Topic) (api.TopicConfig, error) {
		c := api.DefaultTopicConfig()
		c.Partitions = 4
		return c, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := nodes[0].engine.PutSubscription(t.Context(), work, Start{Earliest: true}, func(*metadata.Subscription) (api.SubscriptionConfig, error) {
		c := api.DefaultSubscriptionConfig()
		c.VisibilityTimeout = time.Second
		c.MaxAttempts = 100
		return c, nil
	}); err != nil {
		t.Fatal(err)
	}
	const records = 5000
	rs, ps := make([]segment.Record, records), make([]int32, records)
	for i := range rs {
		rs[i] = segment.Record{ProducerTime: segment.NoTime, DeliverAt: segment.NoTime, Kind: segment.KindText, Value: fmt.Append(nil, i)}
		ps[i] = int32(i % 4)
	}
	if _, err := (fabricPublisher{nodes[0]}).Publish(t.Context(), topic, rs, ps); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	settled := map[Target]time.Time{}
	var lost time.Time // when Redis last lost something, or is about to
	var all sync.WaitGroup
	for w := range 6 {
		n := nodes[w%2]
		all.Go(func() {
			for {
				mu.Lock()
				left := records - len(settled)
				mu.Unlock()
				if left == 0 {
					return
				}
				ms, err := n.engine.Lease(t.Context(), LeaseRequest{Name: work, Max: 10, Wait: 200 * time.Millisecond})
				if err != nil {
					if c := api.CodeOf(err); c != api.CodeLeasesUnavailable {
						t.Errorf("lease: %v", err)
						return
					}
					continue
				}
				mu.Lock()
				for _, m := range ms {
					at := Target{m.Partition, m.Record.Offset}
					if when, ok := settled[at]; ok && lost.Sub(when) > 500*time.Millisecond {
						t.Errorf("%v came again, settled %s before the last loss", at, lost.Sub(when))
					}
				}
				mu.Unlock()
				after(t, 20*time.Millisecond) // it works
				results, err := n.engine.Settle(t.Context(), SettleRequest{Name: work, Kind: Ack, Receipts: receipts(ms)})
				if err != nil {
					continue
				}
				mu.Lock()
				for i, r := range results {
					if r.Code == "" {
						settled[Target{ms[i].Partition, ms[i].Record.Offset}] = time.Now()
					}
				}
				mu.Unlock()
			}
		})
	}
	loss := func(what func()) {
		mu.Lock()
		lost = time.Now()
		if len(settled) == records {
			t.Error("everything was settled before the loss: it tests nothing")
		}
		mu.Unlock()
		what()
		after(t, 300*time.Millisecond)
	}
	loss(server.Flush)
	loss(server.FlushScripts)
	loss(func() { server.Kill(); server.Restart() })
	loss(server.Flush)
	all.Wait()
	for _, n := range nodes {
		s, err := n.engine.Subscription(t.Context(), work)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range s.Partitions {
			if p.Frontier != p.Head || p.Lag != 0 {
				t.Errorf("partition %d is not worked off: %+v", p.Partition, p)
			}
		}
	}
}

// after lets real time pass: redis-server has no other clock.
func after(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
		t.Fatal("the test ended")
	}
}
