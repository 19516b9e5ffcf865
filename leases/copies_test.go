package leases

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

func copiedTo(topic string) func(*api.SubscriptionConfig) {
	return func(c *api.SubscriptionConfig) { c.MaxAttempts, c.DeadLetterTopic = 2, topic }
}

// ids counts the copies by event ID.
func ids(records []segment.Record) map[string]int {
	out := map[string]int{}
	for _, r := range records {
		out[r.ID]++
	}
	return out
}

func header(r *segment.Record, name string) string {
	for _, h := range r.Headers {
		if h.Name == name {
			return h.Value
		}
	}
	return ""
}

// Each death is copied with where it comes from and why, before the frontier passes it; another death of the same record is another copy.
func TestCopies(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		a, b := f.node(nil), f.node(nil)
		a.topic("orders", 2, nil)
		a.topic("dlq", 3, nil)
		name := sub("orders", "w")
		a.subscribe(name, copiedTo("dlq"))
		a.append("orders", 1, []segment.Record{{ProducerTime: 5, DeliverAt: segment.NoTime, Kind: segment.KindJSON, Key: []byte("k"), Value: []byte(`{}`),
			ID: "evt", Headers: []segment.Header{{Name: "traceparent", Value: "00-1-2-01"}}}})
		var values []string
		for i := range 50 {
			values = append(values, fmt.Sprint("v", i))
		}
		a.publish("orders", 0, values...)
		b.killAll(name, "no good")
		time.Sleep(5 * time.Second)
		copies := a.contents("dlq")
		if got := ids(copies); len(copies) != 51 || len(got) != 51 {
			t.Fatalf("%d copies with %d IDs", len(copies), len(got))
		}
		i := slices.IndexFunc(copies, func(r segment.Record) bool { return string(r.Value) == "{}" })
		c := &copies[i]
		for name, want := range map[string]string{HeaderOriginTopic: "orders", HeaderOriginPartition: "1", HeaderOriginOffset: "0", HeaderOriginSubscription: "w",
			HeaderOriginID: "evt", HeaderDeadAttempts: "2", HeaderDeadReason: "no good", "traceparent": "00-1-2-01"} {
			if got := header(c, name); got != want {
				t.Errorf("header %s is %q, want %q", name, got, want)
			}
		}
		s := a.stats(name)
		for _, p := range s.Partitions {
			if p.Frontier != p.Head || p.Waiting != 0 || p.Lag != 0 || p.DeadLetters != p.Head {
				t.Errorf("statistics %+v", p)
			}
		}
		// Dead again: another copy.
		task := a.redrive(name, DeadLetterSelection{Offsets: []Target{{1, 0}}}, 0)
		a.awaitTask(name, task.ID, taskDone)
		time.Sleep(time.Second)
		a.killAll(name, "still no good")
		time.Sleep(5 * time.Second)
		copies = a.contents("dlq")
		if got := ids(copies); len(copies) != 52 || len(got) != 52 {
			t.Fatalf("%d copies with %d IDs after a second death", len(copies), len(got))
		}
	})
}

// A node dies between publishing copies and settling what it copied: every death has one event ID, and a topic that compares them has one copy.
func TestCopiesAreMadeOnce(t *testing.T) {
	for _, dedupe := range []bool{true, false} {
		t.Run(fmt.Sprintf("dedupe=%v", dedupe), func(t *testing.T) {
			inFabric(t, func(t *testing.T, f *fabric) {
				var a *fabricNode
				a = f.node(func(o *Options) {
					o.Publisher = publisherFunc(func(ctx context.Context, topic *metadata.Topic, rs []segment.Record, ps []int32) ([]int64, error) {
						got, err := fabricPublisher{a}.Publish(ctx, topic, rs, ps)
						if topic.Name == "dlq" {
							close(a.cut) // as if killed at this moment: nothing that it does from now on reaches anybody
						}
						return got, err
					})
				})
				a.topic("orders", 1, nil)
				a.topic("dlq", 2, func(c *api.TopicConfig) {
					if dedupe {
						c.DedupeWindow = time.Hour
					}
				})
				name := sub("orders", "w")
				a.subscribe(name, copiedTo("dlq"))
				a.publish("orders", 0, "v0", "v1", "v2", "v3")
				// Until the copies are under way.
				for range 2 {
					ms := a.lease(name, 10)
					a.settle(name, Nack, "bad", ms)
				}
				<-a.cut
				a.abandon()
				time.Sleep(time.Minute) // longer than the copier keeps others away
				b := f.node(nil)
				time.Sleep(20 * time.Second)
				copies := b.contents("dlq")
				got := ids(copies)
				if len(got) != 4 {
					t.Fatalf("%d event IDs for 4 deaths: %v", len(got), got)
				}
				if dedupe && len(copies) != 4 {
					t.Fatalf("%d copies where IDs are compared", len(copies))
				}
				if p := b.stats(name).Partitions[0]; p.Frontier != 4 || p.DeadLetters != 4 {
					t.Fatalf("statistics %+v", p)
				}
			})
		})
	}
}

type publisherFunc func(context.Context, *metadata.Topic, []segment.Record, []int32) ([]int64, error)

func (f publisherFunc) Publish(ctx context.Context, topic *metadata.Topic, rs []segment.Record, ps []int32) ([]int64, error) {
	return f(ctx, topic, rs, ps)
}

// Copies that cannot be made for a while are made later; the record is not settled before.
func TestCopiesWaitForTheLog(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		var n *fabricNode
		var broken atomic.Bool
		broken.Store(true)
		n = f.node(func(o *Options) {
			o.Publisher = publisherFunc(func(ctx context.Context, topic *metadata.Topic, rs []segment.Record, ps []int32) ([]int64, error) {
				if broken.Load() {
					return nil, api.Errorf(api.CodeStorageUnavailable, "not now")
				}
				return fabricPublisher{n}.Publish(ctx, topic, rs, ps)
			})
		})
		n.topic("orders", 1, nil)
		n.topic("dlq", 1, nil)
		name := sub("orders", "w")
		n.subscribe(name, copiedTo("dlq"))
		n.publish("orders", 0, "v0")
		n.killAll(name, "bad")
		time.Sleep(10 * time.Second)
		if p := n.stats(name).Partitions[0]; p.Frontier != 0 || p.DeadLetters != 1 || p.Lag != 0 {
			t.Fatalf("before the copy: %+v", p)
		}
		broken.Store(false)
		time.Sleep(5 * time.Second)
		if p := n.stats(name).Partitions[0]; p.Frontier != 1 || p.Waiting != 0 {
			t.Fatalf("after the copy: %+v", p)
		}
		if got := n.contents("dlq"); len(got) != 1 {
			t.Fatalf("%d copies", len(got))
		}
	})
}

// Copies that wait survive the loss of Redis, and a seek beyond them.
func TestWaitingCopiesSurvive(t *testing.T) {
	for _, what := range []string{"flushall", "seek"} {
		t.Run(what, func(t *testing.T) {
			inFabric(t, func(t *testing.T, f *fabric) {
				var n *fabricNode
				var broken atomic.Bool
				broken.Store(true)
				n = f.node(func(o *Options) {
					o.Publisher = publisherFunc(func(ctx context.Context, topic *metadata.Topic, rs []segment.Record, ps []int32) ([]int64, error) {
						if broken.Load() {
							return nil, api.Errorf(api.CodeStorageUnavailable, "not now")
						}
						return fabricPublisher{n}.Publish(ctx, topic, rs, ps)
					})
				})
				n.topic("orders", 1, nil)
				n.topic("dlq", 1, nil)
				name := sub("orders", "w")
				n.subscribe(name, copiedTo("dlq"))
				n.publish("orders", 0, "v0", "v1", "v2")
				n.killAll(name, "bad")
				time.Sleep(200 * time.Millisecond)
				if what == "seek" {
					if _, err := n.engine.Seek(t.Context(), name, SeekTarget{Latest: true}); err != nil {
						t.Fatal(err)
					}
				} else {
					f.redis.FlushAll()
				}
				broken.Store(false)
				time.Sleep(20 * time.Second)
				if got := ids(n.contents("dlq")); len(got) != 3 {
					t.Fatalf("copies of %d deaths, want 3", len(got))
				}
				if p := n.stats(name).Partitions[0]; p.Frontier != 3 || p.DeadLetters != 3 || p.Lag != 0 {
					t.Fatalf("statistics %+v", p)
				}
				if ms := n.lease(name, 10); len(ms) != 0 {
					t.Fatalf("delivered %+v", ms)
				}
			})
		})
	}
}

// A record that compaction took away before it was copied is buried without a copy, as expired, and counted.
func TestCopiesOfWhatIsGone(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		var n *fabricNode
		var broken atomic.Bool
		broken.Store(true)
		n = f.node(func(o *Options) {
			o.Publisher = publisherFunc(func(ctx context.Context, topic *metadata.Topic, rs []segment.Record, ps []int32) ([]int64, error) {
				if broken.Load() {
					return nil, api.Errorf(api.CodeStorageUnavailable, "not now")
				}
				return fabricPublisher{n}.Publish(ctx, topic, rs, ps)
			})
		})
		topic := n.topic("orders", 1, nil)
		n.topic("dlq", 1, nil)
		name := sub("orders", "w")
		n.subscribe(name, copiedTo("dlq"))
		for i := range 3 {
			n.publish("orders", 0, fmt.Sprint("v", i))
		}
		n.killAll(name, "bad")
		time.Sleep(5 * time.Second)
		n.hole(topic, 0, 1)
		broken.Store(false)
		time.Sleep(5 * time.Second)
		if got := n.contents("dlq"); len(got) != 2 {
			t.Fatalf("%d copies of two that are there", len(got))
		}
		if p := n.stats(name).Partitions[0]; p.Frontier != 3 || p.DeadLetters != 3 {
			t.Fatalf("statistics %+v", p)
		}
		dead := n.deadLetters(name, true)
		if len(dead) != 3 || dead[0].Expired || !dead[1].Expired || dead[1].Record != nil || dead[2].Expired {
			t.Fatalf("dead letters %+v", dead)
		}
		// It cannot be redriven, and a redrive of all ends all the same.
		task := n.redrive(name, DeadLetterSelection{All: true}, 0)
		if end := n.awaitTask(name, task.ID, taskDone); end.Done != 2 {
			t.Fatalf("redriven: %+v", end)
		}
	})
}

// Somebody deletes the dead-letter topic: the queue goes on, and the dead letters are there. So does a queue that has no such topic any more.
func TestCopiesWithoutATopic(t *testing.T) {
	for _, how := range []string{"topic deleted", "configuration changed"} {
		t.Run(how, func(t *testing.T) {
			inFabric(t, func(t *testing.T, f *fabric) {
				n := f.node(nil)
				n.topic("orders", 1, nil)
				n.topic("dlq", 1, nil)
				name := sub("orders", "w")
				n.subscribe(name, copiedTo("dlq"))
				n.publish("orders", 0, "v0", "v1")
				if how == "topic deleted" {
					if err := n.log.DeleteTopic(t.Context(), fabricTenant, "dlq"); err != nil {
						t.Fatal(err)
					}
				}
				n.killAll(name, "bad")
				if how == "configuration changed" {
					n.subscribe(name, nil)
				}
				time.Sleep(20 * time.Second)
				if p := n.stats(name).Partitions[0]; p.Frontier != 2 || p.Waiting != 0 || p.DeadLetters != 2 {
					t.Fatalf("statistics %+v", p)
				}
				if got := n.deadLetters(name, true); len(got) != 2 || got[0].Record == nil {
					t.Fatalf("dead letters %+v", got)
				}
			})
		})
	}
}

// A record that died before its subscription had a dead-letter topic is copied before retention deletes it. One without such a topic is marked
// expired and counted.
func TestRescueBeforeRetention(t *testing.T) {
	for _, dlq := range []string{"dlq", ""} {
		t.Run(fmt.Sprintf("dlq=%q", dlq), func(t *testing.T) {
			inFabric(t, func(t *testing.T, f *fabric) {
				n := f.node(calm)
				topic := n.topic("orders", 1, func(c *api.TopicConfig) { c.RetentionTime = 10 * time.Minute })
				n.topic("dlq", 1, nil)
				name := sub("orders", "w")
				n.subscribe(name, func(c *api.SubscriptionConfig) { c.MaxAttempts = 1 })
				n.publish("orders", 0, "v0", "v1")
				n.killAll(name, "bad")
				n.subscribe(name, func(c *api.SubscriptionConfig) { c.DeadLetterTopic = dlq })
				time.Sleep(8 * time.Minute)
				if got := n.contents("dlq"); len(got) != 0 {
					t.Fatalf("%d copies minutes before", len(got))
				}
				time.Sleep(90 * time.Second)
				want := 0
				if dlq != "" {
					want = 2
				}
				if got := n.contents("dlq"); len(got) != want {
					t.Fatalf("%d copies half a minute before, want %d", len(got), want)
				}
				n.trim(topic, 0, 2)
				time.Sleep(20 * time.Second)
				if got := n.contents("dlq"); len(got) != want {
					t.Fatalf("%d copies afterwards, want %d", len(got), want)
				}
				if got := n.deadLetters(name, true); len(got) != 2 || !got[0].Expired {
					t.Fatalf("dead letters %+v", got)
				}
				if got := counter(t, n, "forebay_leases_dead_letters_expired_total"); got != 2 {
					t.Errorf("%v counted as expired", got)
				}
			})
		})
	}
}
