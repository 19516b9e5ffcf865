package metadata

import (
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/forebaymq/forebay/api"
)

func TestCreateTopic(t *testing.T) {
	const shards = 4
	shard := ShardOf("acme", shards)
	s := NewState(shard, shards)
	w := &stWorld{t: t, s: s, now: stEpoch}
	apply := func(c Command) Result {
		t.Helper()
		w.rev += 10
		a, err := s.Apply(LogEntry{Revision: w.rev, Shard: shard, Value: stEntry(t, c)})
		if err != nil {
			t.Fatal(err)
		}
		return a.Results[0]
	}
	first := apply(&CreateTopic{Tenant: "acme", Name: "orders", Config: stConfig(3), Now: 77})
	want := &Topic{ID: TopicID(shards + shard), Tenant: "acme", Name: "orders", Config: stConfig(3), Created: 77, Version: 10}
	if first.Err != nil || !reflect.DeepEqual(first.Topic, want) {
		t.Fatalf("%+v, %v", first.Topic, first.Err)
	}
	again := apply(&CreateTopic{Tenant: "acme", Name: "orders", Config: stConfig(5), Now: 78})
	wantCode(t, again.Err, api.CodeConflict)
	if !reflect.DeepEqual(again.Topic, want) {
		t.Fatalf("the existing topic is %+v", again.Topic)
	}
	for name, c := range map[string]*CreateTopic{
		"another shard's tenant": {Tenant: "other", Name: "x", Config: stConfig(1)},
		"no partitions":          {Tenant: "acme", Name: "x", Config: stConfig(0)},
		"too many partitions":    {Tenant: "acme", Name: "x", Config: stConfig(api.MaxPartitions + 1)},
	} {
		if name == "another shard's tenant" && ShardOf(c.Tenant, shards) == shard {
			t.Fatal("pick another name")
		}
		wantCode(t, apply(c).Err, api.CodeInvalidRequest)
	}
	wantCode(t, apply(&ProducerEpoch{Tenant: "other", ID: "p"}).Err, api.CodeInvalidRequest)

	// IDs are never given twice, not even after a snapshot.
	if r := apply(&DeleteTopic{TopicID: want.ID}); r.Err != nil {
		t.Fatal(r.Err)
	}
	if _, ok := s.Topic("acme", "orders"); ok {
		t.Fatal("a deleted topic is found by name")
	}
	if _, ok := s.TopicByID(want.ID); ok {
		t.Fatal("a deleted topic is found by ID")
	}
	if len(s.tenants) != 0 {
		t.Fatal("a tenant without anything is kept")
	}
	loaded, err := UnmarshalSnapshot(s.MarshalSnapshot())
	if err != nil {
		t.Fatal(err)
	}
	s = loaded
	if r := apply(&CreateTopic{Tenant: "acme", Name: "orders", Config: stConfig(3)}); r.Err != nil || r.Topic.ID != TopicID(2*shards+shard) {
		t.Fatalf("%+v, %v", r.Topic, r.Err)
	}
}

func TestUpdateTopic(t *testing.T) {
	w := newWorld(t)
	orders := w.topic("orders", stConfig(3))
	c := orders.Config
	c.Partitions, c.RetentionTime = 5, time.Hour
	updated := w.one(&UpdateTopic{TopicID: orders.ID, Version: orders.Version, Config: c}).Topic
	if updated.Config != c || updated.Version != w.rev || updated.ID != orders.ID || updated.Created != orders.Created {
		t.Fatalf("%+v", updated)
	}
	if got, _ := w.s.Topic("acme", "orders"); !reflect.DeepEqual(got, updated) {
		t.Fatalf("%+v", got)
	}
	if r := w.refused(&UpdateTopic{TopicID: orders.ID, Version: orders.Version, Config: orders.Config}, api.CodeConflict); !reflect.DeepEqual(r.Topic, updated) {
		t.Fatalf("%+v", r.Topic)
	}
	c.Partitions = 4
	w.refused(&UpdateTopic{TopicID: orders.ID, Version: updated.Version, Config: c}, api.CodePartitionsCannotShrink)
	c.Partitions = 0
	w.refused(&UpdateTopic{TopicID: orders.ID, Version: updated.Version, Config: c}, api.CodeInvalidRequest)
	w.refused(&UpdateTopic{TopicID: 99, Config: orders.Config}, api.CodeUnknownTopic)
	w.refused(&DeleteTopic{TopicID: 99}, api.CodeUnknownTopic)
	if n := len(w.s.configs); n != 1 {
		t.Fatalf("%d configurations are kept for one topic", n)
	}
	wantBase(t, w.one(w.commit(nil, free(orders, 4, 1))).Batches[0], 0, false)
}

func TestDeleteTopicFreesEverything(t *testing.T) {
	w := richWorld(t)
	for _, name := range []string{"orders", "bills", "events"} {
		x, ok := w.s.Topic("acme", name)
		if !ok {
			t.Fatal(name)
		}
		w.one(&DeleteTopic{TopicID: x.ID})
		if want := []PartitionKey{{x.ID, -1}}; !reflect.DeepEqual(w.last.Changed, want) {
			t.Fatalf("changed %v", w.last.Changed)
		}
		wantCode(t, w.one(w.commit(nil, free(x, 0, 1))).Batches[0].Err, api.CodeUnknownTopic)
	}
	st := w.s.Stats()
	if st.Topics != 1 || st.Partitions != 0 || st.IndexEntries != 0 || st.Segments != 0 || st.Windows != 0 || w.s.dedupes.n != 0 {
		t.Fatalf("%+v", st)
	}
	if _, err := UnmarshalSnapshot(w.s.MarshalSnapshot()); err != nil {
		t.Fatal(err)
	}
}

func TestTopicsAreListedByName(t *testing.T) {
	w := newWorld(t)
	for i := range 25 {
		w.topic(fmt.Sprintf("t%02d", i*7%25), stConfig(1))
	}
	w.one(&CreateTopic{Tenant: "other", Name: "t99", Config: stConfig(1)})
	for _, limit := range []int{1, 10, 25, 100} {
		var names []string
		pages := 0
		for after := ""; ; pages++ {
			page, next := w.s.Topics("acme", after, limit)
			for _, x := range page {
				names = append(names, x.Name)
			}
			if next == "" {
				break
			}
			if len(page) != limit || next != page[limit-1].Name {
				t.Fatalf("limit %d: a page of %d, next %q", limit, len(page), next)
			}
			after = next
		}
		if pages != (25-1)/limit || len(names) != 25 {
			t.Fatalf("limit %d: %d pages, %d names", limit, pages, len(names))
		}
		for i, n := range names {
			if n != fmt.Sprintf("t%02d", i) {
				t.Fatalf("limit %d: %v", limit, names)
			}
		}
	}
	if page, next := w.s.Topics("nobody", "", 5); page != nil || next != "" {
		t.Fatalf("%v, %q", page, next)
	}
	if page, next := w.s.Topics("acme", "t24", 5); page != nil || next != "" {
		t.Fatalf("%v, %q", page, next)
	}
}

// Readers may share a state: under the race detector, this fails if a read method writes.
func TestReadsDoNotWrite(t *testing.T) {
	w := richWorld(t)
	orders, _ := w.s.Topic("acme", "orders")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range int64(20) {
				w.s.SnapshotBody()
				w.s.Hash()
				_, _, _ = w.s.Locate(orders.ID, 0, i, 3)
				_, _, _ = w.s.LocateTime(orders.ID, 0, stEpoch+i)
				_, _ = w.s.PartitionInfos(orders.ID)
				w.s.Topics("acme", "", 2)
				w.s.ProducerPositions("acme", "p", "")
				w.s.ProducerEpoch("acme", "p")
				w.s.PlanTrim(stEpoch, PartitionKey{}, 3)
				w.s.Segments(stULID(0, 0), 3)
				w.s.Stats()
			}
		})
	}
	wg.Wait()
}
