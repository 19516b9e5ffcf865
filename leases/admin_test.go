package leases

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/leases/store"
	"github.com/forebaymq/forebay/metadata"
)

func wantCode(t *testing.T, err error, code api.Code) *api.Error {
	t.Helper()
	var e *api.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("got %v, want %s", err, code)
	}
	return e
}

func TestStartOfASubscription(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		n := f.node(nil)
		n.topic("orders", 3, nil)
		n.publish("orders", 0, "a0", "a1")
		time.Sleep(time.Second)
		at := time.Now().UnixMilli()
		n.publish("orders", 0, "a2")
		n.publish("orders", 2, "c0")
		put := func(name string, start Start) *metadata.Subscription {
			s, created, err := n.engine.PutSubscription(t.Context(), sub("orders", name), start, func(current *metadata.Subscription) (api.SubscriptionConfig, error) {
				if current != nil {
					t.Errorf("%s exists", name)
				}
				return api.DefaultSubscriptionConfig(), nil
			})
			if err != nil || !created {
				t.Fatalf("%s: created %v, %v", name, created, err)
			}
			return s
		}
		for _, tt := range []struct {
			name   string
			start  Start
			starts []api.PartitionOffset
			values []string
		}{
			{"zero", Start{}, []api.PartitionOffset{{Partition: 0, Offset: 3}, {Partition: 2, Offset: 1}}, nil},
			{"latest", Start{Latest: true}, []api.PartitionOffset{{Partition: 0, Offset: 3}, {Partition: 2, Offset: 1}}, nil},
			{"earliest", Start{Earliest: true}, nil, []string{"a0", "a1", "a2", "c0"}},
			{"time", Start{Time: &at}, []api.PartitionOffset{{Partition: 0, Offset: 2}}, []string{"a2", "c0"}},
		} {
			s := put(tt.name, tt.start)
			if diff := cmp.Diff(tt.starts, s.Starts); diff != "" {
				t.Errorf("%s: starts (-want +got):\n%s", tt.name, diff)
			}
			got := n.ackAll(sub("orders", tt.name))
			slices.Sort(got)
			if diff := cmp.Diff(tt.values, got); diff != "" {
				t.Errorf("%s: delivered (-want +got):\n%s", tt.name, diff)
			}
		}
		_, _, err := n.engine.PutSubscription(t.Context(), sub("orders", "x"), Start{Offsets: map[int32]int64{0: 1}}, func(*metadata.Subscription) (api.SubscriptionConfig, error) {
			return api.DefaultSubscriptionConfig(), nil
		})
		wantCode(t, err, api.CodeInvalidRequest)
		// What is published after the answer is delivered, whatever node serves it.
		other := f.node(nil)
		other.publish("orders", 1, "b0")
		if got := n.ackAll(sub("orders", "latest")); !slices.Equal(got, []string{"b0"}) {
			t.Errorf("after the answer: %q", got)
		}
	})
}

func TestDeadLetterTopicIsChecked(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		n := f.node(nil)
		n.topic("orders", 1, nil)
		n.topic("dlq", 1, nil)
		n.topic("home", 1, func(c *api.TopicConfig) { c.Residency = "eu" })
		n.topic("homedlq", 1, func(c *api.TopicConfig) { c.Residency = "eu" })
		put := func(topic, dlq string) error {
			_, _, err := n.engine.PutSubscription(t.Context(), sub(topic, "w"), Start{}, func(*metadata.Subscription) (api.SubscriptionConfig, error) {
				c := api.DefaultSubscriptionConfig()
				c.DeadLetterTopic = dlq
				return c, nil
			})
			return err
		}
		for _, bad := range [][2]string{{"orders", "orders"}, {"orders", "nope"}, {"orders", "__journal"}, {"home", "dlq"}} {
			e := wantCode(t, put(bad[0], bad[1]), api.CodeInvalidRequest)
			if len(e.Fields) != 1 || e.Fields[0].Pointer != "/deadLetter/topic" {
				t.Errorf("%v: fields %v", bad, e.Fields)
			}
		}
		wantCode(t, put("nope", "dlq"), api.CodeUnknownTopic)
		for _, good := range [][2]string{{"orders", "dlq"}, {"home", "homedlq"}, {"orders", ""}} {
			if err := put(good[0], good[1]); err != nil {
				t.Errorf("%v: %v", good, err)
			}
		}
	})
}

// decide's refusal is the answer, and nothing is made.
func TestPutSubscriptionRefused(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		n := f.node(nil)
		n.topic("orders", 1, nil)
		_, _, err := n.engine.PutSubscription(t.Context(), sub("orders", "w"), Start{}, func(*metadata.Subscription) (api.SubscriptionConfig, error) {
			return api.SubscriptionConfig{}, api.Errorf(api.CodeConflict, "no")
		})
		wantCode(t, err, api.CodeConflict)
		if _, err := n.engine.Subscription(t.Context(), sub("orders", "w")); err == nil {
			t.Error("it was made all the same")
		}
	})
}

func TestListSubscriptions(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		a, b := f.node(nil), f.node(nil)
		a.topic("orders", 1, nil)
		for i := range 5 {
			a.subscribe(sub("orders", fmt.Sprintf("w%d", i)), nil)
		}
		var got []string
		for after := ""; ; {
			page, next, err := b.engine.Subscriptions(t.Context(), fabricTenant, "orders", after, 2)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range page {
				got = append(got, s.Name)
			}
			if after = next; after == "" {
				break
			}
		}
		if !slices.Equal(got, []string{"w0", "w1", "w2", "w3", "w4"}) {
			t.Errorf("got %q", got)
		}
		_, _, err := b.engine.Subscriptions(t.Context(), fabricTenant, "nope", "", 2)
		wantCode(t, err, api.CodeUnknownTopic)
	})
}

// A subscription that is deleted and made again with the same name shares nothing with the first: leases, dead letters, tasks, progress.
func TestDeletedIsDeleted(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		a, b := f.node(nil), f.node(nil)
		a.topic("orders", 1, nil)
		name := sub("orders", "w")
		first := a.subscribe(name, func(c *api.SubscriptionConfig) { c.MaxAttempts = 1 })
		a.publish("orders", 0, "v0", "v1", "v2", "v3")
		a.settle(name, Nack, "bad", a.lease(name, 1))
		a.settle(name, Ack, "", b.lease(name, 1))
		held := b.lease(name, 1)
		task, err := a.engine.Redrive(t.Context(), name, DeadLetterSelection{All: true}, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.engine.DeleteSubscription(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		for _, n := range []*fabricNode{a, b} {
			_, err := n.engine.Subscription(t.Context(), name)
			wantCode(t, err, api.CodeUnknownSubscription)
			_, err = n.engine.Task(t.Context(), name, task.ID)
			wantCode(t, err, api.CodeUnknownSubscription)
		}
		wantCode(t, a.engine.DeleteSubscription(t.Context(), name), api.CodeUnknownSubscription)
		second := a.subscribe(name, nil)
		if second.ID == first.ID {
			t.Fatal("the ID was used again")
		}
		rs, err := b.engine.Settle(t.Context(), SettleRequest{Name: name, Kind: Ack, Receipts: receipts(held)})
		if err != nil || rs[0].Code != api.CodeLeaseLost {
			t.Fatalf("old receipt: %v %v", rs, err)
		}
		if got := a.deadLetters(name, true); len(got) != 0 {
			t.Fatalf("old dead letters: %v", got)
		}
		_, err = a.engine.Task(t.Context(), name, task.ID)
		wantCode(t, err, api.CodeNotFound)
		if got := b.ackAll(name); !slices.Equal(got, []string{"v0", "v1", "v2", "v3"}) {
			t.Fatalf("delivered %q", got)
		}
		// A node that has not heard of it puts something back. Nobody can reach it, and it does not stay.
		late := journal.Entry{Key: journal.ShardKey{Subscription: first.ID}, Shard: &journal.Shard{Frontier: 3}, Open: true}
		offsets, err := b.engine.o.Journal.Write(t.Context(), fabricTenant, []journal.Entry{late})
		if err != nil {
			t.Fatal(err)
		}
		put := store.LoadRequest{Incarnation: offsets[0] + 1, Shard: journal.Shard{Version: journal.Version{Incarnation: offsets[0] + 1}, Frontier: 3}}
		if err := b.store.Load(t.Context(), &store.Queue{ID: first.ID}, []store.LoadRequest{put}); err != nil {
			t.Fatal(err)
		}
		if got := a.stats(name); got.Subscription.ID != second.ID || got.Partitions[0].Frontier != 4 {
			t.Fatalf("statistics %+v", got)
		}
		time.Sleep(45 * time.Second)
		synctest.Wait()
		loaded, err := a.engine.o.Journal.Load(t.Context(), fabricTenant, first.ID)
		if err != nil || len(loaded.Shards)+len(loaded.Pointers)+len(loaded.Tasks) != 0 {
			t.Fatalf("the journal still has %+v, %v", loaded, err)
		}
		for _, key := range f.redis.Keys() {
			if hasID(key, first.ID) {
				t.Errorf("Redis still has %s", key)
			}
		}
	})
}

// hasID says whether a key is one of a subscription's own: its ID is one of the parts.
func hasID(key string, id metadata.SubscriptionID) bool {
	return slices.Contains(strings.Split(key, ":"), strconv.FormatUint(uint64(id), 10))
}

// A topic takes its subscriptions with it, and what they left is removed.
func TestTopicDeletionBuriesItsSubscriptions(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		n := f.node(nil)
		n.topic("orders", 1, nil)
		name := sub("orders", "w")
		s := n.subscribe(name, func(c *api.SubscriptionConfig) { c.MaxAttempts = 1 })
		n.publish("orders", 0, "v0")
		n.killAll(name, "bad")
		time.Sleep(10 * time.Second) // a round of custody has seen it
		if err := n.log.DeleteTopic(t.Context(), fabricTenant, "orders"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(45 * time.Second)
		loaded, err := n.engine.o.Journal.Load(t.Context(), fabricTenant, s.ID)
		if err != nil || len(loaded.Shards)+len(loaded.Pointers) != 0 {
			t.Fatalf("the journal still has %+v, %v", loaded, err)
		}
		for _, key := range f.redis.Keys() {
			if hasID(key, s.ID) {
				t.Errorf("Redis still has %s", key)
			}
		}
	})
}

func subscriptionDefaults(*metadata.Subscription) (api.SubscriptionConfig, error) {
	return api.DefaultSubscriptionConfig(), nil
}
