package leases

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/segment"
)

var work = sub("orders", "work")

// inFabric runs a test in a fabric of its own, within a synctest bubble.
func inFabric(t *testing.T, f func(t *testing.T, f *fabric)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newFabric(t)) })
}

// queueOf makes a node with a topic and a subscription on it.
func queueOf(f *fabric, partitions int, change func(*api.SubscriptionConfig)) *fabricNode {
	n := f.node(nil)
	n.topic("orders", partitions, nil)
	n.subscribe(work, change)
	return n
}

// ask leases with everything that a request may say.
func (n *fabricNode) ask(r LeaseRequest) []Message {
	n.f.t.Helper()
	r.Name = work
	ms, err := n.engine.Lease(n.f.t.Context(), r)
	if err != nil {
		n.f.t.Fatal(err)
	}
	return ms
}

// codes settles and gives the codes, "" being OK.
func (n *fabricNode) codes(kind SettleKind, visibility time.Duration, receipts ...string) []api.Code {
	n.f.t.Helper()
	now := time.Duration(0)
	rs, err := n.engine.Settle(n.f.t.Context(), SettleRequest{Name: work, Kind: kind, Receipts: receipts, Visibility: visibility, Delay: &now})
	if err != nil {
		n.f.t.Fatal(err)
	}
	out := make([]api.Code, len(rs))
	for i, r := range rs {
		out[i] = r.Code
		if r.Receipt != receipts[i] {
			n.f.t.Errorf("result %d is of receipt %s, asked for %s", i, r.Receipt, receipts[i])
		}
	}
	return out
}

func values(ms []Message) []string {
	out := make([]string, len(ms))
	for i := range ms {
		out[i] = string(ms[i].Record.Value)
	}
	return out
}

func numbered(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s%04d", prefix, i)
	}
	return out
}

// done fails the test unless everything in the subscription is settled, and the frontiers are at the heads.
func (n *fabricNode) done(name Name) {
	n.f.t.Helper()
	for _, p := range n.stats(name).Partitions {
		if p.Frontier != p.Head || p.InFlight+p.Owed+p.AckedAhead+p.Waiting+p.Delayed+p.Lag != 0 {
			n.f.t.Errorf("partition %d is not worked off: %+v", p.Partition, p)
		}
	}
}

func TestLeaseAndAckEverything(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		n := queueOf(f, 3, nil)
		var want []string
		for p := range int32(3) {
			vs := numbered(fmt.Sprintf("p%d-", p), 250)
			n.publish("orders", p, vs...)
			want = append(want, vs...)
		}
		var got []string
		for {
			ms := n.lease(work, 70)
			if len(ms) == 0 {
				break
			}
			for _, m := range ms {
				if m.Attempt != 1 || m.ExpiresAt < time.Now().UnixMilli()+29_000 {
					t.Fatalf("message %+v", m)
				}
			}
			got = append(got, values(ms)...)
			n.settle(work, Ack, "", ms)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%d records were handed out, %d published, or not the same", len(got), len(want))
		}
		n.done(work)
	})
}

// TestLapsedReceipt is case Q1.
func TestLapsedReceipt(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		n := queueOf(f, 1, nil)
		n.publish("orders", 0, "a")
		first := n.ask(LeaseRequest{Max: 1, Visibility: 2 * time.Second})
		time.Sleep(2100 * time.Millisecond)
		lost := []api.Code{api.CodeLeaseLost}
		for _, kind := range []SettleKind{Ack, Nack, Extend} {
			if got := n.codes(kind, 0, first[0].Receipt); !slices.Equal(got, lost) {
				t.Errorf("kind %d with a lapsed receipt: %q", kind, got)
			}
		}
		second := n.ask(LeaseRequest{Max: 1})
		if len(second) != 1 || second[0].Attempt != 2 {
			t.Fatalf("second lease %+v", second)
		}
		if got := n.codes(Ack, 0, first[0].Receipt); !slices.Equal(got, lost) {
			t.Errorf("ack with a superseded receipt: %q", got)
		}
		for range 2 { // a repeated ack is a success
			if got := n.codes(Ack, 0, second[0].Receipt); !slices.Equal(got, []api.Code{""}) {
				t.Errorf("ack of the second lessee: %q", got)
			}
		}
		if got := n.codes(Ack, 0, first[0].Receipt); !slices.Equal(got, lost) {
			t.Errorf("ack with a lapsed receipt of a settled record: %q", got)
		}
		n.done(work)
	})
}

// TestExtend is case Q2.
func TestExtend(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		n := queueOf(f, 1, nil)
		n.publish("orders", 0, "a", "b")
		a := n.ask(LeaseRequest{Max: 1, Visibility: 2 * time.Second})
		time.Sleep(time.Second)
		rs, err := n.engine.Settle(t.Context(), SettleRequest{Name: work, Kind: Extend, Receipts: receipts(a), Visibility: 10 * time.Second})
		if err != nil || rs[0].Code != "" || rs[0].ExpiresAt != time.Now().UnixMilli()+10_000 {
			t.Fatalf("extend: %+v, %v", rs, err)
		}
		time.Sleep(4 * time.Second)
		if got := n.codes(Ack, 0, a[0].Receipt); got[0] != "" {
			t.Errorf("ack within the extended lease: %q", got)
		}
		b := n.ask(LeaseRequest{Max: 1, Visibility: 2 * time.Second})
		for i := range 5 {
			time.Sleep(1500 * time.Millisecond)
			if got := n.codes(Extend, 2*time.Second, b[0].Receipt); got[0] != "" {
				t.Errorf("extend %d in a row: %q", i, got)
			}
		}
		time.Sleep(2100 * time.Millisecond)
		if got := n.codes(Extend, 10*time.Second, b[0].Receipt); got[0] != api.CodeLeaseLost {
			t.Errorf("extend of a lapsed lease: %q", got)
		}
		if again := n.lease(work, 1); len(again) != 1 || again[0].Attempt != 2 {
			t.Errorf("after the lapse: %+v", again)
		}
	})
}

// TestAttemptsAreCounted is case Q3.
func TestAttemptsAreCounted(t *testing.T) {
	for _, limit := range []int{1, 3} {
		for _, how := range []string{"lapse", "nack"} {
			t.Run(fmt.Sprintf("%s/%d", how, limit), func(t *testing.T) {
				inFabric(t, func(t *testing.T, f *fabric) {
					n := queueOf(f, 1, func(c *api.SubscriptionConfig) { c.MaxAttempts = limit })
					n.publish("orders", 0, "poison", "good")
					for attempt := 1; attempt <= limit; attempt++ {
						ms := n.ask(LeaseRequest{Max: 1, Visibility: time.Second})
						if len(ms) != 1 || string(ms[0].Record.Value) != "poison" || int(ms[0].Attempt) != attempt {
							t.Fatalf("delivery %d: %+v", attempt, ms)
						}
						if how == "nack" {
							n.codes(Nack, 0, ms[0].Receipt)
						} else if attempt < limit {
							time.Sleep(1100 * time.Millisecond)
						}
					}
					if how == "lapse" {
						time.Sleep(3 * time.Second) // nobody polls: the sweep finds it
					}
					dead := n.deadLetters(work, false)
					if len(dead) != 1 || int(dead[0].Attempts) != limit || dead[0].Offset != 0 {
						t.Fatalf("dead letters %+v", dead)
					}
					if got := n.ackAll(work); !slices.Equal(got, []string{"good"}) {
						t.Errorf("then came %q", got)
					}
				})
			})
		}
	}
}

// TestWakeUps is case Q4: whoever waits hears of what becomes deliverable, on whatever node.
func TestWakeUps(t *testing.T) {
	for _, nodes := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
			inFabric(t, func(t *testing.T, f *fabric) {
				a := queueOf(f, 2, nil)
				b := a
				if nodes == 2 {
					b = f.node(nil)
				}
				// wait starts a long poll on b and gives what it answers, and after how long.
				wait := func() (got func() ([]Message, time.Duration)) {
					begun := time.Now()
					var ms []Message
					var took time.Duration
					done := make(chan struct{})
					go func() {
						defer close(done)
						ms = b.ask(LeaseRequest{Max: 10, Wait: 10 * time.Second})
						took = time.Since(begun)
					}()
					synctest.Wait()
					return func() ([]Message, time.Duration) { <-done; return ms, took }
				}
				expect := func(what string, got func() ([]Message, time.Duration), attempt int32, from, to time.Duration) {
					t.Helper()
					ms, took := got()
					if len(ms) != 1 || ms[0].Attempt != attempt {
						t.Errorf("%s: %+v", what, ms)
					} else {
						b.codes(Ack, 0, ms[0].Receipt)
					}
					if took < from || took > to {
						t.Errorf("%s: after %s, want %s to %s", what, took, from, to)
					}
				}
				got := wait()
				time.Sleep(time.Second)
				a.publish("orders", 1, "x")
				expect("publish", got, 1, time.Second, 1100*time.Millisecond)

				a.publish("orders", 0, "x")
				a.ask(LeaseRequest{Max: 1, Visibility: 3 * time.Second})
				expect("lapse", wait(), 2, 3*time.Second, 4100*time.Millisecond)

				a.publish("orders", 0, "x")
				ms := a.lease(work, 1)
				got = wait()
				time.Sleep(time.Second)
				a.codes(Nack, 0, ms[0].Receipt)
				expect("nack", got, 2, time.Second, 1100*time.Millisecond)

				a.publish("orders", 0, "x")
				ms = a.lease(work, 1)
				got = wait()
				delay := 2 * time.Second
				if _, err := a.engine.Settle(t.Context(), SettleRequest{Name: work, Kind: Nack, Receipts: receipts(ms), Delay: &delay}); err != nil {
					t.Fatal(err)
				}
				expect("nack with a delay", got, 2, 2*time.Second, 2100*time.Millisecond)

				got = wait()
				r := segment.Record{ProducerTime: segment.NoTime, DeliverAt: time.Now().Add(5 * time.Second).UnixMilli(), Kind: segment.KindText, Value: []byte("later")}
				a.append("orders", 0, []segment.Record{r})
				expect("delayed record", got, 1, 5*time.Second, 5100*time.Millisecond)

				got = wait()
				if ms, took := got(); len(ms) != 0 || took != 10*time.Second {
					t.Errorf("nothing came: %+v after %s", ms, took)
				}
				a.done(work)
			})
		})
	}
}

// TestGoneConsumerTakesNothing: a long poll whose socket was closed leaves no lease behind, whenever that was.
func TestGoneConsumerTakesNothing(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		n := queueOf(f, 1, nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := n.engine.Lease(ctx, LeaseRequest{Name: work, Max: 5, Wait: 10 * time.Second})
			done <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-done; err == nil {
			t.Error("a request that was cancelled has an answer")
		}
		n.publish("orders", 0, numbered("", 5)...)
		time.Sleep(time.Second)
		if s := n.stats(work).Partitions[0]; s.InFlight != 0 {
			t.Errorf("the gone consumer took %d records", s.InFlight)
		}
		// Many at once, each gone at a moment of its own, with records coming in: in the end all records are there for one that stays, at the
		// first attempt.
		var all sync.WaitGroup
		for i := range 200 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*50*time.Microsecond)
			all.Go(func() {
				defer cancel()
				ms, err := n.engine.Lease(ctx, LeaseRequest{Name: work, Max: 3, Wait: 5 * time.Second})
				if err == nil {
					n.engine.Undo(t.Context(), work, receipts(ms))
				}
			})
			if i%20 == 0 {
				n.publish("orders", 0, "more")
			}
		}
		all.Wait()
		time.Sleep(time.Second)
		ms := n.lease(work, 100)
		for _, m := range ms {
			if m.Attempt != 1 {
				t.Errorf("offset %d is at attempt %d", m.Record.Offset, m.Attempt)
			}
		}
		if len(ms) != 15 {
			t.Errorf("%d records are left of 15", len(ms))
		}
	})
}

// TestBatchDiesOnFirst is case Q7.
func TestBatchDiesOnFirst(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		n := queueOf(f, 1, func(c *api.SubscriptionConfig) { c.MaxAttempts = 3 })
		n.publish("orders", 0, numbered("", 10)...)
		for attempt := int32(1); attempt <= 2; attempt++ {
			ms := n.ask(LeaseRequest{Max: 10, Visibility: 2 * time.Second})
			if len(ms) != 10 {
				t.Fatalf("batch of %d", len(ms))
			}
			for _, m := range ms {
				if m.Attempt != attempt {
					t.Errorf("offset %d at attempt %d, want %d", m.Record.Offset, m.Attempt, attempt)
				}
			}
			time.Sleep(3 * time.Second)
		}
		if dead := n.deadLetters(work, false); len(dead) != 0 {
			t.Errorf("dead letters after two attempts of three: %+v", dead)
		}
	})
}

func TestWaitersAreServedInOrder(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		n := queueOf(f, 1, nil)
		var mu sync.Mutex
		var order []int
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				if ms := n.ask(LeaseRequest{Max: 1, Wait: 20 * time.Second}); len(ms) == 1 {
					mu.Lock()
					order = append(order, i)
					mu.Unlock()
				}
			})
			synctest.Wait()
		}
		for range 10 {
			n.publish("orders", 0, "x")
			time.Sleep(10 * time.Millisecond)
		}
		all.Wait()
		if !slices.IsSorted(order) || len(order) != 10 {
			t.Errorf("served in the order %v", order)
		}
	})
}

func TestConcurrentLeasesShareTheRecords(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		n := queueOf(f, 4, nil)
		want := map[string]bool{}
		for p := range int32(4) {
			vs := numbered(fmt.Sprintf("p%d-", p), 300)
			n.publish("orders", p, vs...)
			for _, v := range vs {
				want[v] = true
			}
		}
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() {
				for {
					ms := n.ask(LeaseRequest{Max: 1 + i%13})
					if len(ms) == 0 {
						return
					}
					mu.Lock()
					for _, v := range values(ms) {
						if !want[v] {
							t.Errorf("%s was handed out twice", v)
						}
						delete(want, v)
					}
					mu.Unlock()
					for _, c := range n.codes(Ack, 0, receipts(ms)...) {
						if c != "" {
							t.Errorf("ack: %s", c)
						}
					}
				}
			})
		}
		all.Wait()
		if len(want) != 0 {
			t.Errorf("%d records were not handed out", len(want))
		}
		n.done(work)
	})
}

func TestByteLimit(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		n := queueOf(f, 1, nil)
		big := strings.Repeat("x", 1000)
		n.publish("orders", 0, slices.Repeat([]string{big}, 20)...)
		for i, c := range []struct {
			bytes int64
			want  int
		}{{3500, 3}, {1, 1}, {1000, 1}, {2000, 2}, {1 << 20, 13}} {
			ms := n.ask(LeaseRequest{Max: 100, MaxBytes: c.bytes})
			if len(ms) != c.want {
				t.Errorf("request %d: %d records within %d bytes, want %d", i, len(ms), c.bytes, c.want)
			}
			for _, m := range ms {
				if m.Attempt != 1 {
					t.Errorf("offset %d was given back and is at attempt %d", m.Record.Offset, m.Attempt)
				}
			}
			n.settle(work, Ack, "", ms)
		}
		n.done(work)
	})
}

func TestRequestID(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		a := queueOf(f, 2, nil)
		b := f.node(nil)
		a.publish("orders", 0, numbered("", 5)...)
		a.publish("orders", 1, numbered("", 5)...)
		ask := func(n *fabricNode, id string) []Message {
			return n.ask(LeaseRequest{Max: 7, RequestID: id, Visibility: 10 * time.Second})
		}
		first := ask(a, "r1")
		if len(first) != 7 {
			t.Fatalf("%d records", len(first))
		}
		sorted := func(ms []Message) []string { rs := receipts(ms); slices.Sort(rs); return rs }
		for _, n := range []*fabricNode{a, b} {
			if again := ask(n, "r1"); !slices.Equal(sorted(again), sorted(first)) {
				t.Errorf("the repeat got %v, the first %v", receipts(again), receipts(first))
			}
		}
		if other := ask(b, "r2"); len(other) != 3 {
			t.Errorf("another request got %d records of 3", len(other))
		}
		a.codes(Ack, 0, first[0].Receipt, first[1].Receipt)
		if again := ask(b, "r1"); len(again) != 5 {
			t.Errorf("%d of 5 leases are live", len(again))
		}
		time.Sleep(11 * time.Second)
		again := ask(a, "r1")
		if len(again) == 0 || again[0].Attempt != 2 {
			t.Errorf("after the lapse the repeat is a new request: %+v", again)
		}
	})
}

func TestUnknownNames(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		n := queueOf(f, 1, nil)
		for _, c := range []struct {
			name Name
			want api.Code
		}{{sub("orders", "nobody"), api.CodeUnknownSubscription}, {sub("nothing", "work"), api.CodeUnknownTopic}} {
			if _, err := n.engine.Lease(t.Context(), LeaseRequest{Name: c.name, Max: 1}); api.CodeOf(err) != c.want {
				t.Errorf("lease of %v: %v", c.name, err)
			}
			if _, err := n.engine.Settle(t.Context(), SettleRequest{Name: c.name, Kind: Ack, Receipts: []string{"0:0:a"}}); api.CodeOf(err) != c.want {
				t.Errorf("ack of %v: %v", c.name, err)
			}
		}
		want := []api.Code{api.CodeInvalidRequest, api.CodeLeaseLost, api.CodeLeaseLost}
		if got := n.codes(Ack, 0, "nonsense", "0:0:never", "7:0:never"); !slices.Equal(got, want) {
			t.Errorf("codes %q", got)
		}
	})
}

// TestOneReceiptTwice: a receipt that is named twice in a request, or by two at once, is acked once and is a success both times.
func TestOneReceiptTwice(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		n := queueOf(f, 1, nil)
		n.publish("orders", 0, numbered("", 8)...)
		ms := n.lease(work, 8)
		twice := append(receipts(ms[:4]), receipts(ms[:4])...)
		for i, c := range n.codes(Ack, 0, twice...) {
			if c != "" {
				t.Errorf("receipt %d of the request: %q", i, c)
			}
		}
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				for _, c := range n.codes(Ack, 0, receipts(ms[4:])...) {
					if c != "" {
						t.Errorf("one of many: %q", c)
					}
				}
			})
		}
		all.Wait()
		n.done(work)
	})
}

// TestPartitionsAddedElsewhere: a lease of a partition that this node has not heard of is settled here.
func TestPartitionsAddedElsewhere(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		a := queueOf(f, 1, nil)
		b := f.node(nil)
		b.lease(work, 1) // it knows the topic as it was
		a.topic("orders", 3, nil)
		a.publish("orders", 2, "x")
		ms := a.lease(work, 1)
		if got := b.codes(Ack, 0, receipts(ms)...); got[0] != "" {
			t.Errorf("ack at the other node: %q", got)
		}
		a.done(work)
	})
}
