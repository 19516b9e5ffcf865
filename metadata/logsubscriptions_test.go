package metadata_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/metadata/metafault"
)

func (n *node) subscription(t testing.TB, topic, name string, attempts int, starts ...api.PartitionOffset) (*metadata.Subscription, bool) {
	t.Helper()
	x, created, err := n.PutSubscription(t.Context(), "acme", topic, name, func(*metadata.Subscription) (api.SubscriptionConfig, []api.PartitionOffset, error) {
		c := api.DefaultSubscriptionConfig()
		c.MaxAttempts = attempts
		return c, starts, nil
	})
	if err != nil {
		t.Fatalf("put subscription %s of %s: %v", name, topic, err)
	}
	return x, created
}

func TestPutSubscription(t *testing.T) {
	f := newFabric(t)
	a, b := f.open(), f.open()
	topic := a.topic(t, "acme", "orders", 4)
	a.commit(t, batch{topic, 1, 5})
	start := api.PartitionOffset{Partition: 1, Offset: 3}
	x, created := b.subscription(t, "orders", "work", 3, start)
	if !created || x.TopicID != topic.ID || x.Topic != "orders" || x.Tenant != "acme" || x.Start(1) != 3 || x.Start(0) != 0 {
		t.Errorf("created %v: %+v", created, x)
	}
	if same, created := a.subscription(t, "orders", "work", 3, api.PartitionOffset{Partition: 1, Offset: 5}); created || same.Version != x.Version || same.Start(1) != 3 {
		t.Errorf("the same configuration made %+v, created %v", same, created)
	}
	changed, created := a.subscription(t, "orders", "work", 4, api.PartitionOffset{Partition: 1, Offset: 5})
	if created || changed.ID != x.ID || changed.Version <= x.Version || changed.Config.MaxAttempts != 4 || changed.Start(1) != 3 {
		t.Errorf("changed %+v, created %v", changed, created)
	}
	refuse := errors.New("no")
	if _, _, err := b.PutSubscription(t.Context(), "acme", "orders", "work", func(cur *metadata.Subscription) (api.SubscriptionConfig, []api.PartitionOffset, error) {
		if cur == nil || cur.Version != changed.Version {
			t.Errorf("decide saw %+v", cur)
		}
		return api.SubscriptionConfig{}, nil, refuse
	}); !errors.Is(err, refuse) {
		t.Errorf("refusal of decide: %v", err)
	}
	nothing := func(*metadata.Subscription) (api.SubscriptionConfig, []api.PartitionOffset, error) {
		return api.DefaultSubscriptionConfig(), nil, nil
	}
	if _, _, err := b.PutSubscription(t.Context(), "acme", "none", "work", nothing); api.CodeOf(err) != api.CodeUnknownTopic {
		t.Errorf("of no topic: %v", err)
	}
	if got, err := b.Subscription("acme", "orders", "work"); err != nil || got.Version != changed.Version {
		t.Errorf("read %+v, %v", got, err)
	}
	if got, err := b.SubscriptionByID(x.ID); err != nil || got.Version != changed.Version {
		t.Errorf("read by ID %+v, %v", got, err)
	}
	for code, err := range map[api.Code]error{
		api.CodeUnknownTopic:        func() error { _, err := a.Subscription("acme", "none", "work"); return err }(),
		api.CodeUnknownSubscription: func() error { _, err := a.Subscription("acme", "orders", "none"); return err }(),
	} {
		if api.CodeOf(err) != code {
			t.Errorf("%v, want %s", err, code)
		}
	}

	gone, err := b.DeleteSubscription(t.Context(), "acme", "orders", "work")
	if err != nil || gone.ID != x.ID || gone.Version != changed.Version {
		t.Fatalf("deleted %+v, %v", gone, err)
	}
	if _, err := a.DeleteSubscription(t.Context(), "acme", "orders", "work"); api.CodeOf(err) != api.CodeUnknownSubscription {
		t.Errorf("second delete: %v", err)
	}
	if _, err := a.SubscriptionByID(x.ID); api.CodeOf(err) != api.CodeUnknownSubscription {
		t.Errorf("old ID: %v", err)
	}
	if again, created := a.subscription(t, "orders", "work", 3); !created || again.ID == x.ID {
		t.Errorf("created %v again as %d after %d", created, again.ID, x.ID)
	}
	sameState(t, a, b)
}

// Creators and changers on several nodes: one creation, and every change is seen by its successor.
func TestPutSubscriptionRace(t *testing.T) {
	f := newFabric(t)
	nodes := []*node{f.open(), f.open(), f.open()}
	nodes[0].topic(t, "acme", "orders", 1)
	var wg sync.WaitGroup
	var mu sync.Mutex
	creations, changes, ids := 0, 0, map[metadata.SubscriptionID]bool{}
	for _, n := range nodes {
		for range 5 {
			wg.Go(func() {
				x, created, err := n.PutSubscription(t.Context(), "acme", "orders", "raced", func(cur *metadata.Subscription) (api.SubscriptionConfig, []api.PartitionOffset, error) {
					c := api.DefaultSubscriptionConfig()
					c.MaxAttempts = 1
					if cur != nil {
						c.MaxAttempts = cur.Config.MaxAttempts + 1
					}
					return c, nil, nil
				})
				if api.CodeOf(err) == api.CodeConflict {
					return // gave up, said so
				}
				if err != nil {
					t.Errorf("put: %v", err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				ids[x.ID] = true
				changes++
				if created {
					creations++
				}
			})
		}
	}
	wg.Wait()
	if creations != 1 || len(ids) != 1 {
		t.Errorf("%d creations, %d IDs, want one of each", creations, len(ids))
	}
	sameState(t, nodes[0], nodes[2])
	if x, err := nodes[2].Subscription("acme", "orders", "raced"); err != nil || x.Config.MaxAttempts != changes {
		t.Errorf("%d changes ended in %+v, %v", changes, x, err)
	}
}

func TestTooManySubscriptionsAreRefusedOnce(t *testing.T) {
	a := newFabric(t).open()
	topic := a.topic(t, "acme", "orders", 1)
	var cmds []metadata.Command
	for i := range api.MaxSubscriptionsPerTopic {
		cmds = append(cmds, &metadata.CreateSubscription{TopicID: topic.ID, Name: fmt.Sprint("s", i), Config: api.DefaultSubscriptionConfig()})
	}
	if _, err := a.DoAll(t.Context(), cmds, nil); err != nil {
		t.Fatal(err)
	}
	calls := 0
	_, _, err := a.PutSubscription(t.Context(), "acme", "orders", "more", func(*metadata.Subscription) (api.SubscriptionConfig, []api.PartitionOffset, error) {
		calls++
		return api.DefaultSubscriptionConfig(), nil, nil
	})
	if api.CodeOf(err) != api.CodeConflict || calls != 1 {
		t.Errorf("%v after %d decisions", err, calls)
	}
	n := 0
	for x := range a.AllSubscriptions() {
		if n++; x.TopicID != topic.ID {
			t.Errorf("%+v", x)
		}
	}
	if n != api.MaxSubscriptionsPerTopic || len(a.TopicSubscriptions(topic.ID)) != n {
		t.Errorf("%d in all, %d of the topic", n, len(a.TopicSubscriptions(topic.ID)))
	}
	page, next, err := a.Subscriptions("acme", "orders", "s998", 10)
	if err != nil || len(page) != 1 || next != "" || page[0].Name != "s999" {
		t.Errorf("last page %v, %q, %v", page, next, err)
	}
	for range a.AllSubscriptions() {
		break // must not go on
	}
}

// Lost answers: a creation that is retried by the log has one effect.
func TestSubscriptionsWithLostAnswers(t *testing.T) {
	f := newFabric(t)
	a := f.open()
	a.topic(t, "acme", "orders", 1)
	lost := 0
	a.faults.SetHook(func(c metafault.Call) metafault.Action {
		if c.Op == metafault.Append && lost < 3 {
			lost++
			return metafault.Action{Lost: true}
		}
		return metafault.Action{}
	})
	x, created := a.subscription(t, "orders", "work", 3)
	if !created || lost == 0 {
		t.Errorf("created %v after %d lost answers", created, lost)
	}
	b := f.open()
	if seen, err := b.Subscription("acme", "orders", "work"); err != nil || seen.ID != x.ID {
		t.Errorf("another node sees %+v, %v", seen, err)
	}
	sameState(t, a, b)
}

func TestSubscriptionsChanged(t *testing.T) {
	f := newFabric(t)
	a, b := f.open(), f.open()
	a.topic(t, "acme", "orders", 1)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for _, c := range []struct {
		name   string
		change func()
	}{
		{"create", func() { a.subscription(t, "orders", "work", 1) }},
		{"change", func() { a.subscription(t, "orders", "work", 2) }},
		{"delete", func() {
			if _, err := a.DeleteSubscription(t.Context(), "acme", "orders", "work"); err != nil {
				t.Fatal(err)
			}
		}},
		{"create again", func() { a.subscription(t, "orders", "work", 1) }},
		{"delete the topic", func() {
			if err := a.DeleteTopic(t.Context(), "acme", "orders"); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		one, two := b.SubscriptionsChanged(), b.SubscriptionsChanged()
		c.change()
		for _, ch := range []<-chan struct{}{one, two} {
			select {
			case <-ch:
			case <-ctx.Done():
				t.Fatalf("%s: nobody was told", c.name)
			}
		}
	}
	still := b.SubscriptionsChanged()
	topic := a.topic(t, "acme", "bills", 1)
	a.commit(t, batch{topic, 0, 1})
	if err := b.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-still:
		t.Error("a commit counts as a change of subscriptions")
	default:
	}
}
