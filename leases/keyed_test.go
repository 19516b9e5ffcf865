package leases

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/segment"
)

func ordered(c *api.SubscriptionConfig) { c.Ordering = api.OrderingKey }

// keyed makes records "key:value".
func keyed(keysAndValues ...string) []segment.Record {
	var out []segment.Record
	for i := 0; i < len(keysAndValues); i += 2 {
		r := segment.Record{ProducerTime: segment.NoTime, DeliverAt: segment.NoTime, Kind: segment.KindText, Value: []byte(keysAndValues[i+1])}
		if k := keysAndValues[i]; k != "" {
			r.Key = []byte(k)
		}
		out = append(out, r)
	}
	return out
}

// TestOrderedByKey: while a record of a key is in hand, owed or delayed, no later one of that key is handed out; others go on.
func TestOrderedByKey(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		a := queueOf(f, 1, ordered)
		b := f.node(nil)
		a.append("orders", 0, keyed("k", "k1", "k", "k2", "l", "l1", "", "free1", "", "free2", "l", "l2", "k", "k3"))
		first := a.lease(work, 10)
		if got := values(first); !slices.Equal(got, []string{"k1", "l1", "free1", "free2"}) {
			t.Fatalf("first %q", got)
		}
		if got := b.lease(work, 10); len(got) != 0 {
			t.Errorf("out of turn: %q", values(got))
		}
		by := map[string]Message{}
		for _, m := range first {
			by[string(m.Record.Value)] = m
		}
		b.settle(work, Ack, "", []Message{by["k1"]})
		second := b.lease(work, 10)
		if got := values(second); !slices.Equal(got, []string{"k2"}) {
			t.Fatalf("after k1 was acked: %q", got)
		}
		b.settle(work, Nack, "not now", second)
		again := a.lease(work, 10)
		if got := values(again); !slices.Equal(got, []string{"k2"}) || again[0].Attempt != 2 {
			t.Fatalf("after k2 was nacked: %q", got)
		}
		// Someone waits for the key while its record is in hand.
		done := make(chan []Message)
		go func() { done <- b.ask(LeaseRequest{Max: 10, Wait: 10 * time.Second}) }()
		synctest.Wait()
		begun := time.Now()
		a.settle(work, Ack, "", again)
		if got := <-done; !slices.Equal(values(got), []string{"k3"}) || time.Since(begun) > 100*time.Millisecond {
			t.Errorf("who waited got %q after %s", values(got), time.Since(begun))
		} else {
			a.settle(work, Ack, "", got)
		}
		a.settle(work, Ack, "", []Message{by["l1"], by["free1"], by["free2"]})
		if got := a.ackAll(work); !slices.Equal(got, []string{"l2"}) {
			t.Errorf("in the end %q", got)
		}
		a.done(work)
	})
}

// TestKeyedQueuesPassHoles: holes, bad and delayed records of a keyed queue are passed like any others.
func TestKeyedQueuesPassHoles(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		n, r := tricky(f, 1, ordered)
		var rs []segment.Record
		for i := range 3000 {
			rs = append(rs, keyed(fmt.Sprintf("k%d", i%7), fmt.Sprintf("v%04d", i))...)
		}
		rs[2900].DeliverAt = time.Now().Add(10 * time.Second).UnixMilli()
		n.append("orders", 0, rs)
		r.holes = map[int64]bool{}
		for o := range int64(3000) {
			r.holes[o] = o%10 != 0
		}
		r.bad = []span{{500, 520}}
		got := n.ackAll(work)
		// 300 survive compaction, two of them unreadable; one is delayed, and holds up the others of its key behind it.
		key := 2900 % 7
		behind := 0
		for o := 2910; o < 3000; o += 10 {
			if o%7 == key {
				behind++
			}
		}
		if want := 300 - 2 - 1 - behind; len(got) != want {
			t.Errorf("%d records, want %d", len(got), want)
		}
		time.Sleep(11 * time.Second)
		if late := n.ackAll(work); len(late) != 1+behind || late[0] != "v2900" {
			t.Errorf("later came %q, want v2900 and %d behind it", late, behind)
		}
		n.done(work)
	})
}

// TestFairShare: the records of a quiet tenant do not wait behind all of a noisy one.
func TestFairShare(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		n := queueOf(f, 1, func(c *api.SubscriptionConfig) { c.FairShare.Header = "customer" })
		var rs []segment.Record
		customer := func(name string, count int) {
			for i := range count {
				r := keyed("", fmt.Sprintf("%s%d", name, i))[0]
				r.Headers = []segment.Header{{Name: "customer", Value: name}}
				rs = append(rs, r)
			}
		}
		customer("noisy", 400)
		customer("quiet", 20)
		n.append("orders", 0, rs)
		var held []Message
		quiet := 0
		for range 12 {
			ms := n.lease(work, 10)
			for _, v := range values(ms) {
				if v[0] == 'q' {
					quiet++
				}
			}
			held = append(held, ms...)
		}
		if quiet != 20 {
			t.Errorf("of the first %d records handed out %d are of the quiet one, want 20", len(held), quiet)
		}
		n.settle(work, Ack, "", held)
		if got := n.ackAll(work); len(held)+len(got) != 420 {
			t.Errorf("%d records in all", len(held)+len(got))
		}
		n.done(work)
	})
}

// TestOrderedUnderLoad: many workers on two nodes, and per key every record is acked before the next one is handed out.
func TestOrderedUnderLoad(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		nodes := []*fabricNode{queueOf(f, 2, ordered), f.node(nil)}
		for p := range int32(2) {
			var rs []segment.Record
			for i := range 400 {
				rs = append(rs, keyed(fmt.Sprintf("p%dk%d", p, i%23), fmt.Sprint(i))...)
			}
			nodes[0].append("orders", p, rs)
		}
		var mu sync.Mutex
		inHand, last, seen := map[string]bool{}, map[string]int64{}, 0
		var all sync.WaitGroup
		for w := range 8 {
			n := nodes[w%2]
			all.Go(func() {
				for {
					ms := n.ask(LeaseRequest{Max: 7, Wait: time.Second})
					if len(ms) == 0 {
						return
					}
					mu.Lock()
					for i := range ms {
						key := string(ms[i].Record.Key)
						if before, ok := last[key]; inHand[key] || ok && before >= ms[i].Record.Offset {
							t.Errorf("key %s: offset %d after %d, in hand %v", key, ms[i].Record.Offset, before, inHand[key])
						}
						inHand[key], last[key] = true, ms[i].Record.Offset
						seen++
					}
					mu.Unlock()
					time.Sleep(5 * time.Millisecond)
					mu.Lock()
					for i := range ms {
						delete(inHand, string(ms[i].Record.Key))
					}
					mu.Unlock()
					n.settle(work, Ack, "", ms)
				}
			})
		}
		all.Wait()
		if seen != 800 {
			t.Errorf("%d records, want 800", seen)
		}
		nodes[0].done(work)
	})
}
