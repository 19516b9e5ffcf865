package leases

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/segment"
)

// What statistics say, whether Redis has the subscription, has lost it, or never had it.
func TestStats(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		a, b := f.node(calm), f.node(calm)
		a.topic("orders", 3, func(c *api.TopicConfig) { c.RetentionTime = 100 * time.Minute })
		name := sub("orders", "w")
		a.subscribe(name, func(c *api.SubscriptionConfig) { c.MaxAttempts, c.VisibilityTimeout = 2, 30*time.Minute })
		minute := int64(time.Minute / time.Millisecond)
		later := segment.Record{ProducerTime: segment.NoTime, DeliverAt: time.Now().UnixMilli() + 5*minute, Kind: segment.KindText, Value: []byte("later")}
		a.append("orders", 0, []segment.Record{later})
		time.Sleep(time.Minute)
		a.publish("orders", 0, "poison", "dead", "leased", "acked")
		time.Sleep(time.Minute)
		by := map[string]Message{}
		for _, m := range a.lease(name, 4) {
			by[string(m.Record.Value)] = m
		}
		if len(by) != 4 {
			t.Fatalf("leased %v", by)
		}
		a.publish("orders", 0, "new")
		a.publish("orders", 1, "idle")
		a.settle(name, Ack, "", []Message{by["acked"]})
		a.settle(name, Nack, "bad", []Message{by["dead"]})
		delay := time.Minute
		if _, err := a.engine.Settle(t.Context(), SettleRequest{Name: name, Kind: Nack, Receipts: []string{by["poison"].Receipt}, Delay: &delay}); err != nil {
			t.Fatal(err)
		}
		for _, m := range a.lease(name, 1) { // owed goes out first
			if string(m.Record.Value) != "dead" {
				t.Fatalf("leased %s", m.Record.Value)
			}
			a.settle(name, Nack, "bad", []Message{m})
		}
		head := func(d time.Duration) *time.Duration { return &d }
		want := []PartitionStats{
			{Partition: 0, Frontier: 1, Head: 6, InFlight: 1, AckedAhead: 2, Owed: 1, Delayed: 1, Lag: 3, DeadLetters: 1, OldestUnackedAge: time.Minute,
				RetentionHeadroom: head(98 * time.Minute)},
			{Partition: 1, Head: 1, Lag: 1, OldestUnackedAge: 0, RetentionHeadroom: head(100 * time.Minute)},
			{Partition: 2},
		}
		rough := cmp.Comparer(func(x, y time.Duration) bool { return (x - y).Abs() < 5*time.Second })
		got := b.stats(name)
		if diff := cmp.Diff(want, got.Partitions, rough); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
		// Redis loses everything: the lease is gone, what it held is owed; the rest is as before. Nothing is opened for the look.
		time.Sleep(time.Second)
		f.redis.FlushAll()
		want[0].InFlight, want[0].Owed = 0, 2
		if diff := cmp.Diff(want, b.stats(name).Partitions, rough); diff != "" {
			t.Fatalf("after FLUSHALL (-want +got):\n%s", diff)
		}
		if keys := f.redis.Keys(); slices.ContainsFunc(keys, func(k string) bool { return hasID(k, got.Subscription.ID) && strings.HasSuffix(k, ":H") }) {
			t.Fatalf("looking opened the subscription: %v", keys)
		}
		// All settled: no lag, no age.
		time.Sleep(6 * time.Minute)
		if got := a.ackAll(name); len(got) != 5 {
			t.Fatalf("delivered %q", got)
		}
		for _, p := range a.stats(name).Partitions {
			if p.Lag != 0 || p.OldestUnackedAge != 0 || p.Delayed != 0 || p.Frontier != p.Head {
				t.Errorf("at the end: %+v", p)
			}
		}
	})
}

// A subscription nobody has touched stands where it started.
func TestStatsOfANewSubscription(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		n := f.node(nil)
		n.topic("orders", 2, func(c *api.TopicConfig) { c.RetentionTime = 0 })
		n.publish("orders", 0, "before")
		name := sub("orders", "w")
		if _, _, err := n.engine.PutSubscription(t.Context(), name, Start{}, subscriptionDefaults); err != nil {
			t.Fatal(err)
		}
		n.publish("orders", 0, "after")
		n.publish("orders", 1, "first")
		want := []PartitionStats{{Partition: 0, Frontier: 1, Head: 2, Lag: 1}, {Partition: 1, Head: 1, Lag: 1}}
		if diff := cmp.Diff(want, n.stats(name).Partitions); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
		_, err := n.engine.Subscription(t.Context(), sub("orders", "nope"))
		wantCode(t, err, api.CodeUnknownSubscription)
		_, err = n.engine.Subscription(t.Context(), sub("nope", "w"))
		wantCode(t, err, api.CodeUnknownTopic)
	})
}

// Redis away: statistics say so instead of telling half of the truth.
func TestStatsWithoutRedis(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		n := f.node(nil)
		n.topic("orders", 1, nil)
		name := sub("orders", "w")
		n.subscribe(name, nil)
		f.redis.SetError("LOADING Redis is loading the dataset in memory")
		_, err := n.engine.Subscription(t.Context(), name)
		wantCode(t, err, api.CodeLeasesUnavailable)
		if err := n.engine.DeleteSubscription(t.Context(), name); err != nil {
			t.Fatalf("deleting does not need Redis: %v", err)
		}
		f.redis.SetError("")
		time.Sleep(45 * time.Second)
		_, err = n.engine.Subscription(t.Context(), name)
		wantCode(t, err, api.CodeUnknownSubscription)
	})
}

func TestPeek(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		a, b := f.node(nil), f.node(nil)
		a.topic("orders", 1, nil)
		name := sub("orders", "w")
		a.subscribe(name, nil)
		peek := func(n *fabricNode, max int) (out []string) {
			t.Helper()
			rs, err := n.engine.Peek(t.Context(), name, max)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rs {
				out = append(out, fmt.Sprint(string(r.Record.Value), "#", r.Attempt))
			}
			return out
		}
		if got := peek(a, 10); len(got) != 0 {
			t.Fatalf("nothing was published: %q", got)
		}
		a.publish("orders", 0, "v0", "v1", "v2", "v3")
		for range 2 { // looking changes nothing
			if got := peek(b, 3); !slices.Equal(got, []string{"v0#1", "v1#1", "v2#1"}) {
				t.Fatalf("peeked %q", got)
			}
		}
		if s := a.stats(name).Partitions[0]; s.InFlight != 0 || s.Owed != 0 {
			t.Fatalf("statistics %+v", s)
		}
		ms := a.lease(name, 2)
		a.settle(name, Nack, "bad", ms[1:])
		if got := peek(b, 10); !slices.Equal(got, []string{"v1#2", "v2#1", "v3#1"}) {
			t.Fatalf("peeked %q", got)
		}
		_, err := a.engine.Peek(t.Context(), name, 0)
		wantCode(t, err, api.CodeInvalidRequest)
	})
}

// A key with a record out shows no other one.
func TestPeekOfAnOrderedQueue(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		n := f.node(nil)
		n.topic("orders", 1, nil)
		name := sub("orders", "w")
		n.subscribe(name, func(c *api.SubscriptionConfig) { c.Ordering = api.OrderingKey })
		var rs []segment.Record
		for _, v := range []string{"a0", "a1", "b0", "c0", "b1"} {
			rs = append(rs, segment.Record{ProducerTime: segment.NoTime, DeliverAt: segment.NoTime, Kind: segment.KindText, Key: []byte(v[:1]), Value: []byte(v)})
		}
		n.append("orders", 0, rs)
		peek := func() (out []string) {
			rs, err := n.engine.Peek(t.Context(), name, 10)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rs {
				out = append(out, string(r.Record.Value))
			}
			slices.Sort(out)
			return out
		}
		for range 2 {
			if got := peek(); !slices.Equal(got, []string{"a0", "b0", "c0"}) {
				t.Fatalf("peeked %q", got)
			}
		}
		ms := n.lease(name, 1)
		if len(ms) != 1 || ms[0].Attempt != 1 {
			t.Fatalf("leased %+v", ms)
		}
		if got := peek(); len(got) != 2 {
			t.Fatalf("peeked %q with %s out", got, ms[0].Record.Value)
		}
		n.settle(name, Ack, "", ms)
		if got := peek(); len(got) != 3 && string(ms[0].Record.Value) != "c0" {
			t.Fatalf("peeked %q after %s", got, ms[0].Record.Value)
		}
		if s := n.stats(name).Partitions[0]; s.Lag != 4 || s.InFlight != 0 {
			t.Fatalf("statistics %+v", s)
		}
	})
}

// Holes and deleted records do not hide what comes after them.
func TestPeekPassesHoles(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		n := f.node(nil)
		topic := n.topic("orders", 1, nil)
		name := sub("orders", "w")
		n.subscribe(name, func(c *api.SubscriptionConfig) { c.GapPolicy = api.GapSkip })
		for i := range 6 {
			n.publish("orders", 0, fmt.Sprint("v", i))
		}
		n.hole(topic, 0, 3)
		n.trim(topic, 0, 2)
		rs, err := n.engine.Peek(t.Context(), name, 3)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range rs {
			got = append(got, string(r.Record.Value))
		}
		if !slices.Equal(got, []string{"v2", "v4", "v5"}) {
			t.Fatalf("peeked %q", got)
		}
	})
}

// The numbers of the metrics are those of the subscriptions that exist, each on one node; those of deleted ones go.
func TestMetricsOfSubscriptions(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		a, b := f.node(nil), f.node(nil)
		a.topic("orders", 2, func(c *api.TopicConfig) { c.RetentionTime = 10 * time.Hour })
		for i := range 4 {
			a.subscribe(sub("orders", fmt.Sprint("w", i)), nil)
		}
		a.publish("orders", 1, "v0", "v1")
		total := func(name string) float64 {
			x, _ := gathered(t, a, name)
			y, _ := gathered(t, b, name)
			return x + y
		}
		time.Sleep(time.Minute)
		if got := total("forebay_leases_subscriptions"); got != 4 {
			t.Errorf("%v subscriptions, want 4", got)
		}
		if got := total("forebay_leases_records"); got != 8 { // only lag
			t.Errorf("%v records, want a lag of 8", got)
		}
		if got := total("forebay_leases_oldest_unacked_age_seconds"); got < 40 || got > 130 {
			t.Errorf("oldest is %v s", got)
		}
		a.kill()
		time.Sleep(20 * time.Second)
		if got, _ := gathered(t, b, "forebay_leases_subscriptions"); got != 4 {
			t.Errorf("the node that is left looks after %v subscriptions", got)
		}
		for i := range 4 {
			if err := b.engine.DeleteSubscription(t.Context(), sub("orders", fmt.Sprint("w", i))); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(20 * time.Second)
		for _, name := range []string{"forebay_leases_subscriptions", "forebay_leases_records", "forebay_leases_oldest_unacked_age_seconds", "forebay_leases_retention_gaps"} {
			if got, _ := gathered(t, b, name); got != 0 {
				t.Errorf("%s is %v when all are deleted", name, got)
			}
		}
		if _, found := gathered(t, b, "forebay_leases_retention_headroom_seconds"); found {
			t.Error("there is headroom of nothing")
		}
	})
}
