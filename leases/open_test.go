package leases

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/leases/store"
	"github.com/forebaymq/forebay/metadata"
)

// TestOpeningOfUnknownOutcome: an opening whose answer is lost is made again; consumers do not see it.
func TestOpeningOfUnknownOutcome(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		lossy := &brokenJournal{}
		n := f.node(func(o *Options) { lossy.Journal = o.Journal; o.Journal = lossy })
		n.topic("orders", 2, nil)
		n.subscribe(work, nil)
		n.publish("orders", 0, numbered("", 10)...)
		lossy.mu.Lock()
		lossy.hidden = 3
		lossy.mu.Unlock()
		if got := n.ackAll(work); len(got) != 10 {
			t.Errorf("%d records", len(got))
		}
		n.done(work)
	})
}

// TestNewNodeLeavesLeasesAlone: a node that starts does not disturb what others have in hand, and writes nothing.
func TestNewNodeLeavesLeasesAlone(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		a := queueOf(f, 3, nil)
		for p := range int32(3) {
			a.publish("orders", p, numbered("", 10)...)
		}
		held := a.lease(work, 15)
		time.Sleep(time.Second)
		counted := &brokenJournal{}
		b := f.node(func(o *Options) { counted.Journal = o.Journal; o.Journal = counted })
		more := b.lease(work, 100)
		if len(more) != 15 {
			t.Errorf("the new node leased %d, 15 were left", len(more))
		}
		if n := counted.count(); n != 0 {
			t.Errorf("the new node wrote %d times to the journal", n)
		}
		b.settle(work, Ack, "", held)
		a.settle(work, Ack, "", more)
		a.done(work)
	})
}

// TestNodesComeAndGo: each node leaves a state of its own in the journal. They do not add up for ever, and what others have in hand is not disturbed
// when they are cleared away.
func TestNodesComeAndGo(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		a := f.node(nil)
		a.topic("orders", 1, nil)
		id := a.subscribe(work, nil).ID
		a.publish("orders", 0, numbered("", 40)...)
		held, done := a.lease(work, 10), a.lease(work, 10)
		seen := append(values(held), values(done)...)
		a.settle(work, Ack, "", done)
		time.Sleep(time.Second) // it is in the journal
		load := func() *journal.Loaded {
			t.Helper()
			known, _, err := a.engine.o.Journal.LoadReported(t.Context(), fabricTenant, id)
			if err != nil {
				t.Fatal(err)
			}
			return known
		}
		// Nodes of the past, whose states are no newer than what is there.
		for gone := 0; !load().Crowded[0]; gone++ {
			if gone > 100 {
				t.Fatal("100 nodes are no crowd")
			}
			j, err := journal.New(journal.Options{Log: &fabricLog{a}})
			if err != nil {
				t.Fatal(err)
			}
			state := *load().Shards[0]
			if _, err := j.Write(t.Context(), fabricTenant, []journal.Entry{{Key: journal.ShardKey{Subscription: id}, Shard: &state}}); err != nil {
				t.Fatal(err)
			}
		}
		b := f.node(nil)
		got := b.lease(work, 10)
		seen = append(seen, values(got)...)
		a.settle(work, Ack, "", held)
		b.settle(work, Ack, "", got)
		seen = append(seen, a.ackAll(work)...)
		slices.Sort(seen)
		if !slices.Equal(seen, numbered("", 40)) {
			t.Errorf("%d records were delivered, want each of 40 once", len(seen))
		}
		a.done(work)
		time.Sleep(time.Second)
		if load().Crowded[0] {
			t.Error("a node that found a crowd of states has left it there")
		}
	})
}

// TestWideTopic: records are found in whatever of a thousand partitions they are, also after a seek on another node, at a cost that does not grow
// with the partitions.
func TestWideTopic(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		a := queueOf(f, 1000, nil)
		b := f.node(nil)
		where := []int32{0, 17, 500, 999}
		for _, p := range where {
			a.publish("orders", p, "x", "y")
		}
		if got := b.ackAll(work); len(got) != 8 {
			t.Errorf("%d records of 8", len(got))
		}
		if _, err := a.engine.Seek(t.Context(), work, SeekTarget{Offsets: map[int32]int64{500: 1}}); err != nil {
			t.Fatal(err)
		}
		if got := b.ask(LeaseRequest{Max: 10, Wait: 3 * time.Second}); len(got) != 1 || got[0].Partition != 500 {
			t.Errorf("after the seek: %+v", got)
		} else {
			b.settle(work, Ack, "", got)
		}
		done := make(chan []Message)
		go func() { done <- b.ask(LeaseRequest{Max: 10, Wait: 10 * time.Second}) }()
		time.Sleep(100 * time.Millisecond)
		begun := time.Now()
		a.publish("orders", 998, "z")
		if got := <-done; len(got) != 1 || time.Since(begun) > 100*time.Millisecond {
			t.Errorf("who waited got %+v after %s", got, time.Since(begun))
		}
	})
}

// TestAuditMakesStuckRecordsDeliverable is case Q6: pieces of the state are removed by hand.
func TestAuditMakesStuckRecordsDeliverable(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		n := queueOf(f, 1, nil)
		n.publish("orders", 0, numbered("", 20)...)
		n.settle(work, Ack, "", n.lease(work, 3))
		n.ask(LeaseRequest{Max: 5, Visibility: time.Hour})
		n.settle(work, Nack, "bad", n.lease(work, 2))
		removed := 0
		for _, key := range f.redis.Keys() {
			if strings.HasSuffix(key, ":L:0") || strings.HasSuffix(key, ":O:0") {
				f.redis.Del(key)
				removed++
			}
		}
		if removed != 2 {
			t.Fatalf("%d keys of leases and owed records among %q", removed, f.redis.Keys())
		}
		var got []string
		for range 10 {
			time.Sleep(2 * time.Second)
			got = append(got, n.ackAll(work)...)
		}
		slices.Sort(got)
		if want := numbered("", 20)[3:]; !slices.Equal(got, want) {
			t.Errorf("deliverable became %q, want %q", got, want)
		}
		n.done(work)
	})
}

// TestAgain decides what to do about shards that another node has loaded meanwhile.
func TestAgain(t *testing.T) {
	base := journal.Version{Incarnation: 5, Sequence: 7}
	for _, c := range []struct {
		name string
		has  *journal.Version
		want string
	}{
		{"nothing there", nil, "load over -1"},
		{"ours", &journal.Version{Incarnation: 10}, "nothing"},
		{"another's, as new as the journal", &journal.Version{Incarnation: 9}, "keep"},
		{"what the journal has", &base, "keep"},
		{"older than the journal", &journal.Version{Incarnation: 5, Sequence: 6}, "load over 5"},
		{"another's, later than ours", &journal.Version{Incarnation: 11}, "stale"},
	} {
		have := map[int32]journal.Version{}
		if c.has != nil {
			have[3] = *c.has
		}
		o := shardOpening{LoadRequest: store.LoadRequest{Partition: 3, Incarnation: 10, Over: 4}, base: base}
		ls, err := again([]shardOpening{o}, have)
		got := "nothing"
		switch {
		case err != nil:
			got = "stale"
		case len(ls) == 1 && ls[0].Keep:
			got = "keep"
		case len(ls) == 1:
			got = fmt.Sprintf("load over %d", ls[0].Over)
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestDeletedSubscriptionsLeaveRedis: what a node that died in the middle of a deletion left is found by the sweeps.
func TestDeletedSubscriptionsLeaveRedis(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		n := queueOf(f, 1, nil)
		n.publish("orders", 0, "x")
		n.ask(LeaseRequest{Max: 1, Visibility: time.Second})
		if len(f.redis.Keys()) == 0 {
			t.Fatal("nothing is in Redis")
		}
		if _, err := n.log.DeleteSubscription(t.Context(), fabricTenant, "orders", "work"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if keys := f.redis.Keys(); len(keys) != 0 {
			t.Errorf("left in Redis: %q", keys)
		}
		if _, err := n.engine.Lease(t.Context(), LeaseRequest{Name: work, Max: 1}); api.CodeOf(err) != api.CodeUnknownSubscription {
			t.Errorf("lease: %v", err)
		}
	})
}

func TestToAudit(t *testing.T) {
	mk := func(id metadata.SubscriptionID, used, audited int64, waiting bool) *active {
		a := &active{id: id, line: newLine()}
		a.used.Store(used)
		a.audited.Store(audited)
		if waiting {
			a.line.waiting.Store(1)
		}
		return a
	}
	all := []*active{mk(1, 100, 30, false), mk(2, 10, 20, true), mk(3, 10, 10, false), mk(4, 200, 10, false), mk(5, 100, 0, false)}
	if got := toAudit(slices.Clone(all), 50, 10); !slices.Equal(got, []metadata.SubscriptionID{5, 4, 2, 1}) {
		t.Errorf("%v", got)
	}
	if got := toAudit(slices.Clone(all), 50, 2); !slices.Equal(got, []metadata.SubscriptionID{5, 4}) {
		t.Errorf("at most two: %v", got)
	}
}
