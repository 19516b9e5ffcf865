package metadata

import (
	"fmt"
	"math"
	"reflect"
	"testing"

	"github.com/forebaymq/forebay/api"
)

func TestCreateSubscription(t *testing.T) {
	w := newWorld(t)
	orders := w.topic("orders", stConfig(5))
	w.one(w.commit(nil, free(orders, 0, 10), free(orders, 1, 10), free(orders, 3, 10)))
	w.one(&Trim{TopicID: orders.ID, Partition: 1, LogStart: 10})

	c := stFullSubscription()
	got := w.subscription(orders, "work", c, api.PartitionOffset{Partition: 0, Offset: 7}, api.PartitionOffset{Partition: 1, Offset: 3},
		api.PartitionOffset{Partition: 2, Offset: 50}, api.PartitionOffset{Partition: 3, Offset: math.MaxInt64}, api.PartitionOffset{Partition: 4})
	want := &Subscription{ID: 1, Tenant: "acme", TopicID: orders.ID, Topic: "orders", Name: "work", Config: c, Created: w.now, Version: w.rev,
		Starts: []api.PartitionOffset{{Partition: 0, Offset: 7}, {Partition: 1, Offset: 10}, {Partition: 3, Offset: 10}}}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v, want %+v: starts lie within what the partitions hold", got, want)
	}
	for p, start := range []int64{7, 10, 0, 10, 0} {
		if got.Start(int32(p)) != start {
			t.Errorf("partition %d starts at %d, want %d", p, got.Start(int32(p)), start)
		}
	}
	if !reflect.DeepEqual(w.last.Subscriptions, []SubscriptionID{1}) || w.last.Changed != nil {
		t.Errorf("changed %v and %v", w.last.Subscriptions, w.last.Changed)
	}

	again := w.refused(&CreateSubscription{TopicID: orders.ID, Name: "work", Config: api.DefaultSubscriptionConfig(), Now: w.now}, api.CodeConflict)
	if again.Subscription != got || w.last.Subscriptions != nil {
		t.Errorf("the existing one is %+v, changed %v", again.Subscription, w.last.Subscriptions)
	}
	w.refused(&CreateSubscription{TopicID: 99, Name: "x"}, api.CodeUnknownTopic)
	w.refused(&CreateSubscription{TopicID: orders.ID, Name: "x", Starts: []api.PartitionOffset{{Partition: 5}}}, api.CodeInvalidRequest)
}

func TestUpdateAndDeleteSubscription(t *testing.T) {
	w := newWorld(t)
	orders := w.topic("orders", stConfig(1))
	w.one(w.commit(nil, free(orders, 0, 10)))
	first := w.subscription(orders, "work", api.DefaultSubscriptionConfig(), api.PartitionOffset{Offset: 4})
	before := *first
	c := stFullSubscription()
	changed := w.one(&UpdateSubscription{ID: first.ID, Version: first.Version, Config: c}).Subscription
	want := before
	want.Config, want.Version = c, w.rev
	if !reflect.DeepEqual(*changed, want) || !reflect.DeepEqual(*first, before) {
		t.Fatalf("%+v, want %+v; the earlier description is %+v", changed, want, first)
	}
	if !reflect.DeepEqual(w.last.Subscriptions, []SubscriptionID{first.ID}) {
		t.Errorf("changed %v", w.last.Subscriptions)
	}
	if byName, err := w.s.Subscription("acme", "orders", "work"); err != nil || byName != changed {
		t.Errorf("by name %+v, %v", byName, err)
	}
	if byID, ok := w.s.SubscriptionByID(first.ID); !ok || byID != changed {
		t.Errorf("by ID %+v", byID)
	}
	if r := w.refused(&UpdateSubscription{ID: first.ID, Version: first.Version, Config: before.Config}, api.CodeConflict); r.Subscription != changed {
		t.Errorf("the present one is %+v", r.Subscription)
	}
	w.refused(&UpdateSubscription{ID: 99}, api.CodeUnknownSubscription)
	w.refused(&DeleteSubscription{ID: 99}, api.CodeUnknownSubscription)

	if r := w.one(&DeleteSubscription{ID: first.ID}); r.Subscription != changed || !reflect.DeepEqual(w.last.Subscriptions, []SubscriptionID{first.ID}) {
		t.Errorf("deleted %+v, changed %v", r.Subscription, w.last.Subscriptions)
	}
	_, err := w.s.Subscription("acme", "orders", "work")
	wantCode(t, err, api.CodeUnknownSubscription)
	_, err = w.s.Subscription("acme", "bills", "work")
	wantCode(t, err, api.CodeUnknownTopic)

	// IDs are never given twice, not even after a snapshot.
	loaded, err := UnmarshalSnapshot(w.s.MarshalSnapshot())
	if err != nil {
		t.Fatal(err)
	}
	w.s = loaded
	if next := w.subscription(orders, "work", c); next.ID != first.ID+1 {
		t.Errorf("the next ID is %d after %d", next.ID, first.ID)
	}
}

// An ID names the shard of its tenant, as topic IDs do.
func TestSubscriptionIDsNameTheirShard(t *testing.T) {
	const shards = 4
	shard := ShardOf("acme", shards)
	s := NewState(shard, shards)
	a, err := s.Apply(LogEntry{Revision: 1, Shard: shard, Value: stEntry(t,
		&CreateTopic{Tenant: "acme", Name: "orders", Config: stConfig(1)},
		&CreateSubscription{TopicID: TopicID(shards + shard), Name: "a"},
		&CreateSubscription{TopicID: TopicID(shards + shard), Name: "b"})})
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range a.Results[1:] {
		if want := SubscriptionID((i+1)*shards + shard); r.Err != nil || r.Subscription.ID != want {
			t.Errorf("%+v, %v, want ID %d", r.Subscription, r.Err, want)
		}
	}
}

func TestSubscriptionsGoWithTheirTopic(t *testing.T) {
	w := newWorld(t)
	orders, bills := w.topic("orders", stConfig(1)), w.topic("bills", stConfig(1))
	a := w.subscription(orders, "a", api.DefaultSubscriptionConfig())
	kept := w.subscription(bills, "a", api.DefaultSubscriptionConfig())
	b := w.subscription(orders, "b", api.DefaultSubscriptionConfig())
	w.one(&DeleteTopic{TopicID: orders.ID})
	if want := []SubscriptionID{a.ID, b.ID}; !reflect.DeepEqual(w.last.Subscriptions, want) {
		t.Errorf("changed %v, want %v", w.last.Subscriptions, want)
	}
	if all := w.s.ScanSubscriptions(0, 10); len(all) != 1 || all[0] != kept || w.s.Stats().Subscriptions != 1 {
		t.Errorf("%v are left", all)
	}
	if _, ok := w.s.SubscriptionByID(b.ID); ok {
		t.Error("found by ID after its topic was deleted")
	}
	w.refused(&UpdateSubscription{ID: a.ID, Version: a.Version}, api.CodeUnknownSubscription)
}

func TestATopicHasSoManySubscriptions(t *testing.T) {
	w := newWorld(t)
	orders := w.topic("orders", stConfig(1))
	var cmds []Command
	for i := range api.MaxSubscriptionsPerTopic {
		cmds = append(cmds, &CreateSubscription{TopicID: orders.ID, Name: fmt.Sprintf("s%04d", i*7%api.MaxSubscriptionsPerTopic), Config: api.DefaultSubscriptionConfig()})
	}
	for _, r := range w.apply(cmds...) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	if r := w.refused(&CreateSubscription{TopicID: orders.ID, Name: "more"}, api.CodeConflict); r.Subscription != nil {
		t.Errorf("refused for %+v", r.Subscription)
	}
	for _, limit := range []int{1, 99, 1000, 5000} {
		n := 0
		for after := ""; ; {
			page, next, err := w.s.Subscriptions("acme", "orders", after, limit)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range page {
				if want := fmt.Sprintf("s%04d", n); x.Name != want {
					t.Fatalf("limit %d: %s, want %s", limit, x.Name, want)
				}
				n++
			}
			if next == "" {
				break
			}
			if len(page) != limit || next != page[limit-1].Name {
				t.Fatalf("limit %d: a page of %d, next %q", limit, len(page), next)
			}
			after = next
		}
		if n != api.MaxSubscriptionsPerTopic {
			t.Errorf("limit %d: %d listed", limit, n)
		}
	}
	if _, _, err := w.s.Subscriptions("acme", "nothing", "", 5); api.CodeOf(err) != api.CodeUnknownTopic {
		t.Errorf("of no topic: %v", err)
	}
	if page, next, err := w.s.Subscriptions("acme", "orders", "", 0); page != nil || next != "" || err != nil {
		t.Errorf("limit 0: %v, %q, %v", page, next, err)
	}
}

// A snapshot whose subscriptions are not what apply makes is refused.
func TestSnapshotRefusesBadSubscriptions(t *testing.T) {
	for name, damage := range map[string]func(*State, *Subscription){
		"of no topic":          func(_ *State, x *Subscription) { x.TopicID = 99 },
		"ID above the counter": func(s *State, _ *Subscription) { s.subs.counter-- },
		"ID of 0":              func(_ *State, x *Subscription) { x.ID = 0 },
		"named twice":          func(_ *State, x *Subscription) { x.Name = "audit" },
		"start out of range":   func(_ *State, x *Subscription) { x.Starts = []api.PartitionOffset{{Partition: 4, Offset: 1}} },
	} {
		s := subscribedWorld(t).s
		x, err := s.Subscription("acme", "orders", "work")
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range s.subs.order {
			if other.ID > x.ID && name == "ID above the counter" {
				x = other
			}
		}
		damage(s, x)
		if _, err := UnmarshalSnapshot(s.MarshalSnapshot()); err == nil {
			t.Errorf("%s: was taken", name)
		}
	}
}
