package leases

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/segment"
)

// A poison record fails five times, becomes a dead letter that says why, is redriven with its attempts reset, and acked.
func TestPoisonToDeadToRedrivenToAcked(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		a, b := f.node(nil), f.node(nil)
		a.topic("orders", 1, nil)
		name := sub("orders", "w")
		a.subscribe(name, nil)
		a.publish("orders", 0, "poison", "good")
		first := time.Now().UnixMilli()
		for attempt := int32(1); attempt <= 5; attempt++ {
			n := []*fabricNode{a, b}[attempt%2]
			var poison, good []Message
			for _, m := range n.lease(name, 10) {
				if string(m.Record.Value) == "poison" {
					poison = append(poison, m)
				} else {
					good = append(good, m)
				}
			}
			n.settle(name, Ack, "", good)
			if len(poison) != 1 || poison[0].Attempt != attempt {
				t.Fatalf("delivery %d: %+v", attempt, poison)
			}
			n.settle(name, Nack, fmt.Sprintf("failure %d", attempt), poison)
			time.Sleep(time.Second)
		}
		if ms := a.lease(name, 10); len(ms) != 0 {
			t.Fatalf("a sixth delivery: %+v", ms)
		}
		dead := b.deadLetters(name, true)
		if len(dead) != 1 || dead[0].Attempts != 5 || dead[0].Reason != "failure 5" || dead[0].Record == nil || string(dead[0].Record.Value) != "poison" ||
			dead[0].FirstFailedAt < first || dead[0].DeadAt <= dead[0].FirstFailedAt || dead[0].Expired {
			t.Fatalf("dead letters: %+v", dead)
		}
		s := a.stats(name).Partitions[0]
		if s.DeadLetters != 1 || s.Frontier != 2 || s.Lag != 0 || s.OldestUnackedAge != 0 {
			t.Fatalf("statistics: %+v", s)
		}
		task, err := a.engine.Redrive(t.Context(), name, DeadLetterSelection{Offsets: []Target{{0, 0}, {0, 1}, {0, 0}}}, 0)
		if err != nil || task.Total != 1 {
			t.Fatalf("task %+v, %v", task, err)
		}
		b.awaitTask(name, task.ID, taskDone)
		ms := b.lease(name, 10)
		if len(ms) != 1 || ms[0].Attempt != 1 || ms[0].Record.Offset != 0 {
			t.Fatalf("redriven: %+v", ms)
		}
		if s := a.stats(name).Partitions[0]; s.Frontier != 2 || s.InFlight != 1 || s.Lag != 1 || s.OldestUnackedAge <= 0 {
			t.Fatalf("statistics while redriven: %+v", s)
		}
		b.settle(name, Ack, "", ms)
		if got := a.deadLetters(name, false); len(got) != 0 {
			t.Fatalf("dead letters after the ack: %+v", got)
		}
		if s := a.stats(name).Partitions[0]; s.DeadLetters != 0 || s.Lag != 0 {
			t.Fatalf("statistics at the end: %+v", s)
		}
	})
}

// The limit is exact, and the dead letter is there without anybody polling: for lapses and for nacks, for three attempts and for one.
func TestDeadLettersAreEager(t *testing.T) {
	for _, lapse := range []bool{true, false} {
		for _, limit := range []int{1, 3} {
			t.Run(fmt.Sprintf("lapse=%v,limit=%d", lapse, limit), func(t *testing.T) {
				inFabric(t, func(t *testing.T, f *fabric) {
					n := f.node(nil)
					n.topic("orders", 1, nil)
					name := sub("orders", "w")
					n.subscribe(name, func(c *api.SubscriptionConfig) { c.MaxAttempts, c.VisibilityTimeout = limit, 2*time.Second })
					n.publish("orders", 0, "v")
					for attempt := 1; attempt <= limit; attempt++ {
						ms := n.lease(name, 1)
						if len(ms) != 1 || int(ms[0].Attempt) != attempt {
							t.Fatalf("delivery %d: %+v", attempt, ms)
						}
						if lapse {
							time.Sleep(2 * time.Second)
						} else {
							n.settle(name, Nack, "bad", ms)
						}
					}
					time.Sleep(2 * time.Second)
					// Look at what is there without a touch of the queue.
					dead := n.stats(name).Partitions[0].DeadLetters
					if dead != 1 {
						t.Fatalf("%d dead letters within 2 s", dead)
					}
					if ms := n.lease(name, 1); len(ms) != 0 {
						t.Fatalf("delivery %d: %+v", limit+1, ms)
					}
					got := n.deadLetters(name, false)
					if len(got) != 1 || int(got[0].Attempts) != limit {
						t.Fatalf("dead letters %+v", got)
					}
				})
			})
		}
	}
}

func TestDeadLettersSurviveFlushall(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		a, b := f.node(nil), f.node(nil)
		a.topic("orders", 3, nil)
		name := sub("orders", "w")
		a.subscribe(name, func(c *api.SubscriptionConfig) { c.MaxAttempts = 2 })
		for p := range int32(3) {
			var values []string
			for i := range 20 {
				values = append(values, fmt.Sprint(p, "-", i))
			}
			a.publish("orders", p, values...)
		}
		a.killAll(name, "bad")
		before := a.deadLetters(name, true)
		if len(before) != 60 {
			t.Fatalf("%d dead letters", len(before))
		}
		time.Sleep(150 * time.Millisecond)
		f.redis.FlushAll()
		for _, n := range []*fabricNode{b, a} {
			if diff := cmp.Diff(before, n.deadLetters(name, true)); diff != "" {
				t.Fatalf("after FLUSHALL (-before +after):\n%s", diff)
			}
		}
		if ms := a.lease(name, 10); len(ms) != 0 {
			t.Fatalf("delivered %+v", ms)
		}
	})
}

func TestDeadLettersOfDeletedRecords(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		n := f.node(nil)
		topic := n.topic("orders", 1, nil)
		name := sub("orders", "w")
		n.subscribe(name, func(c *api.SubscriptionConfig) { c.MaxAttempts = 1 })
		n.publish("orders", 0, "v0", "v1", "v2")
		n.killAll(name, "bad")
		n.trim(topic, 0, 2)
		check := func() {
			t.Helper()
			got := n.deadLetters(name, true)
			if len(got) != 3 || !got[0].Expired || got[0].Record != nil || !got[1].Expired || got[2].Expired || string(got[2].Record.Value) != "v2" {
				t.Fatalf("dead letters %+v", got)
			}
		}
		check()
		time.Sleep(15 * time.Second) // a round of custody marks them
		check()
		if got := counter(t, n, "forebay_leases_dead_letters_expired_total"); got != 2 {
			t.Fatalf("%v are counted as expired", got)
		}
	})
}

// A page ends where its records weigh enough; none of its elements lacks its record for it, and the next page goes on there.
func TestPagesOfLargeDeadLetters(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		n := f.node(nil)
		n.topic("orders", 1, nil)
		name := sub("orders", "w")
		n.subscribe(name, func(c *api.SubscriptionConfig) { c.MaxAttempts = 1 })
		const size, records = 900 << 10, 30
		for i := range records {
			v := make([]byte, size)
			v[0] = byte(i)
			n.append("orders", 0, []segment.Record{{ProducerTime: segment.NoTime, DeliverAt: segment.NoTime, Kind: segment.KindData, Value: v}})
		}
		n.killAll(name, "bad")
		var got []byte
		pages := 0
		for after := ""; ; {
			page, next, err := n.engine.DeadLetters(t.Context(), name, after, 1000, true)
			if err != nil {
				t.Fatal(err)
			}
			pages++
			bytes := 0
			for _, d := range page {
				if d.Record == nil {
					t.Fatalf("page %d: offset %d has no record", pages, d.Offset)
				}
				bytes += len(d.Record.Value)
				got = append(got, d.Record.Value[0])
			}
			if bytes > api.MaxReadBytes+size {
				t.Fatalf("page %d has %d bytes", pages, bytes)
			}
			if after = next; after == "" {
				break
			}
		}
		_, _, err := n.engine.DeadLetters(t.Context(), name, "nonsense", 10, false)
		wantCode(t, err, api.CodeInvalidRequest)
		if len(got) != records || !slices.IsSorted(got) || pages < 2 {
			t.Fatalf("%d records in %d pages: %v", len(got), pages, got)
		}
	})
}

func TestDiscard(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		a, b := f.node(nil), f.node(nil)
		a.topic("orders", 2, nil)
		name := sub("orders", "w")
		a.subscribe(name, func(c *api.SubscriptionConfig) { c.MaxAttempts = 1 })
		values := make([]string, 2500)
		for i := range values {
			values[i] = fmt.Sprint(i)
		}
		a.publish("orders", 0, values...)
		a.publish("orders", 1, "x", "y")
		a.killAll(name, "bad")
		discard := func(n *fabricNode, sel DeadLetterSelection) int64 {
			t.Helper()
			got, err := n.engine.Discard(t.Context(), name, sel)
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		if got := discard(a, DeadLetterSelection{Offsets: []Target{{1, 0}, {0, 7}, {0, 7}, {1, 99}}}); got != 2 {
			t.Fatalf("discarded %d of two", got)
		}
		if got := discard(b, DeadLetterSelection{All: true}); got != 2500 {
			t.Fatalf("discarded %d of all", got)
		}
		if got := discard(b, DeadLetterSelection{All: true}); got != 0 {
			t.Fatalf("discarded %d of none", got)
		}
		time.Sleep(time.Second)
		f.redis.FlushAll()
		if got := a.deadLetters(name, false); len(got) != 0 {
			t.Fatalf("after FLUSHALL there are %d dead letters", len(got))
		}
		if got := a.ackAll(name); len(got) != 0 {
			t.Fatalf("delivered again: %q", got)
		}
		for _, bad := range []DeadLetterSelection{{}, {All: true, Offsets: []Target{{0, 0}}}, {Offsets: []Target{{2, 0}}}, {Offsets: []Target{{0, -1}}},
			{Offsets: make([]Target, api.MaxRedriveOffsets+1)}} {
			_, err := a.engine.Discard(t.Context(), name, bad)
			wantCode(t, err, api.CodeInvalidRequest)
		}
	})
}
