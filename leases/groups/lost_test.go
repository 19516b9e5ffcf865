package groups

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebaymq/forebay/api"
)

// Redis is lost with all it had: generations rise, offsets are where they were, and nobody gets what another one may still be processing.
func TestRedisIsLost(t *testing.T) {
	bubble(t, func(t *testing.T, f *fabric) {
		n, m := f.node(), f.node()
		n.makeTopic("orders", 4)
		for p := range int32(4) {
			n.publish("orders", p, "a", "b", "c")
		}
		a, b, silent := n.peer("g", "orders").join(), m.peer("g", "orders").join(), m.peer("g", "orders").join()
		calm(t, a, b, silent)
		for _, p := range []*peer{a, b, silent} {
			for at := range p.at {
				p.at[at] = 2
			}
			if err := p.commit(p.owned()...); err != nil {
				t.Fatal(err)
			}
		}
		was, theirs := a.generation, silent.owned()
		lost := time.Now()
		f.redis.FlushAll()
		// What was committed last is refused or not, and never lost.
		_, err := a.tryBeat()
		wantCode(t, err, api.CodeStaleGeneration)
		wantCode(t, b.commit(b.owned()...), api.CodeStaleGeneration)
		a.join()
		b.join()
		if a.generation <= was || b.generation <= was {
			t.Fatal(a.generation, b.generation, was)
		}
		calm(t, a, b)
		for _, p := range theirs {
			if _, ok := a.at[p]; ok {
				t.Fatalf("%v was given away at once", p)
			}
			if _, ok := b.at[p]; ok {
				t.Fatalf("%v was given away at once", p)
			}
		}
		for len(a.at)+len(b.at) < 4 {
			time.Sleep(500 * time.Millisecond)
			a.beat()
			b.beat()
			if time.Since(lost) > 2*DefaultSession {
				t.Fatal("what the silent one had is never given away")
			}
		}
		if time.Since(lost) < DefaultSession {
			t.Fatalf("what the silent one had was given away after %s", time.Since(lost))
		}
		calm(t, a, b)
		for at, offset := range n.committed("g") {
			if offset != 2 {
				t.Fatalf("%v is at %d", at, offset)
			}
		}
		for _, p := range []*peer{a, b} {
			for at, offset := range p.at {
				if offset != 2 {
					t.Fatalf("%v is given at %d", at, offset)
				}
			}
		}
		wantCode(t, silent.commit(theirs...), api.CodeStaleGeneration)
	})
}

// Redis is rolled back to what it had some generations ago: whoever has heard of a later one makes that known.
func TestRedisIsRolledBack(t *testing.T) {
	bubble(t, func(t *testing.T, f *fabric) {
		n := f.node()
		n.makeTopic("orders", 4)
		a := n.peer("g", "orders").join()
		dump := map[string]string{}
		var key string
		for _, k := range f.redis.Keys() {
			if fields, err := f.redis.HKeys(k); err == nil && k[len(k)-2:] == ":s" {
				key = k
				for _, field := range fields {
					dump[field] = f.redis.HGet(k, field)
				}
			}
		}
		b := n.peer("g", "orders").join()
		calm(t, a, b)
		f.redis.Del(key)
		for field, v := range dump {
			f.redis.HSet(key, field, v)
		}
		m := f.node() // it has seen nothing
		b.n = m
		_, err := b.tryBeat()
		wantCode(t, err, api.CodeStaleGeneration)
		was := a.generation
		b.join()
		if _, err := a.tryBeat(); err != nil {
			a.join()
		}
		calm(t, a, b)
		if a.generation <= was || len(a.at) != 2 || len(b.at) != 2 {
			t.Fatalf("%+v %+v", a, b)
		}
	})
}

// Redis is rolled back, and neither the node nor the member that asks it has heard of what came since: the journal has.
func TestRolledBackRedisDeceivesNobody(t *testing.T) {
	for _, ask := range []string{"heartbeat", "join", "commit"} {
		t.Run(ask, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fabric) {
				n := f.node()
				n.makeTopic("orders", 4)
				n.publish("orders", 0, "a")
				a := n.peer("g", "orders").join()
				var key string
				dump := map[string]string{}
				for _, k := range f.redis.Keys() {
					if fields, err := f.redis.HKeys(k); err == nil && k[len(k)-2:] == ":s" {
						key = k
						for _, field := range fields {
							dump[field] = f.redis.HGet(k, field)
						}
					}
				}
				b := n.peer("g", "orders").join()
				f.redis.Del(key)
				for field, v := range dump {
					f.redis.HSet(key, field, v)
				}
				a.n = f.node() // it has seen nothing
				switch ask {
				case "heartbeat":
					if _, err := a.tryBeat(); err == nil && a.generation <= b.generation {
						t.Fatalf("it is told generation %d after %d", a.generation, b.generation)
					}
				case "commit":
					wantCode(t, a.commit(TopicPartition{"orders", 0}), api.CodeStaleGeneration)
				}
				if a.join(); a.generation <= b.generation {
					t.Fatalf("it joins generation %d after %d", a.generation, b.generation)
				}
			})
		})
	}
}

// A node dies at each step of a generation. Whoever comes next goes on, and the old members with it.
func TestCoordinatorDies(t *testing.T) {
	for _, step := range []string{"after the fence", "after the write"} {
		t.Run(step, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fabric) {
				n, m := f.node(), f.node()
				n.makeTopic("orders", 4)
				n.publish("orders", 0, "a", "b")
				a := n.peer("g", "orders").join()
				p0 := TopicPartition{"orders", 0}
				var once sync.Once
				died := make(chan struct{})
				end := func() { once.Do(func() { close(died) }) }
				switch step {
				case "after the fence":
					m.jlog.onAppend(func(int64) error {
						end()
						<-m.cut
						return errCut
					})
				case "after the write":
					m.jlog.onAppend(func(int64) error {
						f.redis.SetError("LOADING")
						end()
						return nil
					})
				}
				b := m.peer("g", "orders")
				go func() { _ = b.tryJoin() }()
				<-died
				synctest.Wait()
				m.kill()
				f.redis.SetError("")
				synctest.Wait()
				a.at[p0] = 1
				// The first commit may find its generation fenced; then the next one comes by itself.
				deadline := time.Now().Add(3 * DefaultSession)
				for {
					err := a.commit(p0)
					if err == nil {
						break
					}
					wantCode(t, err, api.CodeStaleGeneration)
					if time.Now().After(deadline) {
						t.Fatal("the group never goes on")
					}
					time.Sleep(100 * time.Millisecond)
					if _, err := a.tryBeat(); err != nil {
						wantCode(t, err, api.CodeStaleGeneration)
						a.join()
					}
					a.letGo()
					a.at[p0] = 1
				}
				if got := n.committed("g")[p0]; got != 1 {
					t.Fatal(got)
				}
				// What became a member in the dead node's last generation, and never heard of it, is gone after a session.
				for range 3 * int(DefaultSession/time.Second) {
					time.Sleep(time.Second)
					a.beat()
					a.letGo()
				}
				if d := n.describe("g"); len(d.Members) != 1 || d.State != stateStable || len(a.at) != 4 {
					t.Fatalf("%+v %+v", d, a)
				}
			})
		})
	}
}

// An append whose outcome is not known is made good by another turn.
func TestUnknownOutcome(t *testing.T) {
	bubble(t, func(t *testing.T, f *fabric) {
		n := f.node()
		n.makeTopic("orders", 2)
		failed := false
		n.jlog.onAppend(func(int64) error {
			if !failed {
				failed = true
				return &api.Error{Code: api.CodeOutcomeUnknown, Cause: errors.New("who knows")}
			}
			return nil
		})
		a := n.peer("g", "orders").join()
		if !failed || len(a.at) != 2 || a.generation < 2 {
			t.Fatalf("%+v", a)
		}
	})
}

// Without a quorum sessions live on; with Redis away requests say so, and what was decided stays.
func TestRedisIsAway(t *testing.T) {
	bubble(t, func(t *testing.T, f *fabric) {
		n := f.node()
		n.makeTopic("orders", 2)
		n.publish("orders", 0, "a")
		a := n.peer("g", "orders").join()
		p0 := TopicPartition{"orders", 0}
		f.redis.SetError("LOADING")
		_, err := a.tryBeat()
		wantCode(t, err, api.CodeLeasesUnavailable)
		wantCode(t, a.commit(p0), api.CodeLeasesUnavailable)
		if got := n.committed("g"); got[p0] != 0 || len(got) != 2 {
			t.Fatal(got)
		}
		if d := n.describe("g"); len(d.Members) != 1 || d.Partitions[0].Lag != 1 {
			t.Fatalf("%+v", d)
		}
		f.redis.SetError("")
		a.beat()
		a.at[p0] = 1
		if err := a.commit(p0); err != nil {
			t.Fatal(err)
		}
	})
}
