package leases

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

// trickyReader is a Reader with faults.
type trickyReader struct {
	Reader
	mu    sync.Mutex
	holes map[int64]bool // offsets that compaction has taken, of every partition
	bad   []span         // offsets that cannot be read
	err   error
	delay time.Duration
	reads int
}

func (r *trickyReader) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

func (r *trickyReader) Read(ctx context.Context, tenant string, topic metadata.TopicID, partition int32, offset int64, maxRecords int, maxBytes int64) ([]segment.Record, int64, error) {
	r.mu.Lock()
	holes, bad, err, delay := r.holes, r.bad, r.err, r.delay
	r.reads++
	r.mu.Unlock()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
	if err != nil {
		return nil, 0, err
	}
	if holes == nil && bad == nil {
		return r.Reader.Read(ctx, tenant, topic, partition, offset, maxRecords, maxBytes)
	}
	var out []segment.Record
	for {
		rs, next, err := r.Reader.Read(ctx, tenant, topic, partition, offset, 1000, maxBytes)
		if err != nil {
			return nil, 0, err
		}
		for i := range rs {
			o := rs[i].Offset
			for _, s := range bad {
				switch {
				case o < s.from || o >= s.to:
				case len(out) > 0:
					return out, s.from, nil
				default:
					return nil, 0, &api.Error{Code: api.CodeInternal, Cause: &UnreadableError{Next: s.to}}
				}
			}
			if !holes[o] {
				if out = append(out, rs[i]); len(out) == maxRecords {
					return out, o + 1, nil
				}
			}
		}
		if next == offset || len(rs) == 0 {
			return out, next, nil
		}
		offset = next
	}
}

// tricky makes a node with a reader that does as told.
func tricky(f *fabric, partitions int, change func(*api.SubscriptionConfig)) (*fabricNode, *trickyReader) {
	r := &trickyReader{}
	n := f.node(func(o *Options) { r.Reader = o.Reader; o.Reader = r })
	n.topic("orders", partitions, nil)
	n.subscribe(work, change)
	return n, r
}

// TestHoles is case L2 for queues.
func TestHoles(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		n, r := tricky(f, 1, nil)
		n.publish("orders", 0, numbered("", 6000)...)
		r.holes = map[int64]bool{}
		for o := range int64(6000) {
			r.holes[o] = o%100 != 7 && o != 5900 // and a long one from 1000 on, and one to the end
			if o >= 1000 && o < 5000 {
				r.holes[o] = true
			}
		}
		got := n.ackAll(work)
		var want []string
		for o := range 6000 {
			if !r.holes[int64(o)] {
				want = append(want, fmt.Sprintf("%04d", o))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d records, want %d", len(got), len(want))
		}
		n.done(work)
		if s := n.stats(work).Partitions[0]; s.Skipped != int64(6000-len(want)) {
			t.Errorf("%d offsets counted as skipped, want %d", s.Skipped, 6000-len(want))
		}
	})
}

func TestUnreadableRecords(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		n, r := tricky(f, 1, nil)
		n.publish("orders", 0, numbered("", 50)...)
		r.bad = []span{{0, 3}, {10, 11}, {45, 50}}
		got := n.ackAll(work)
		if len(got) != 41 || got[0] != "0003" || got[40] != "0044" {
			t.Errorf("%d records: %q", len(got), got)
		}
		n.done(work)
		if s := n.stats(work).Partitions[0]; s.Skipped != 9 {
			t.Errorf("%d offsets counted as skipped, want 9", s.Skipped)
		}
	})
}

// TestStorageDown: what cannot be read for the moment is given back, at no cost in attempts.
func TestStorageDown(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		n, r := tricky(f, 2, nil)
		n.publish("orders", 0, numbered("", 5)...)
		down := api.Errorf(api.CodeStorageUnavailable, "slow down")
		for range 10 {
			r.set(func() { r.err = down })
			if _, err := n.engine.Lease(t.Context(), LeaseRequest{Name: work, Max: 3}); api.CodeOf(err) != api.CodeStorageUnavailable {
				t.Errorf("lease: %v", err)
			}
			r.set(func() { r.err = nil })
		}
		ms := n.lease(work, 10)
		if len(ms) != 5 || ms[0].Attempt != 1 {
			t.Errorf("afterwards: %+v", ms)
		}
	})
}

// TestSlowRead: the lease clock starts at the handing over, and a read that outlasts the visibility costs no attempt.
func TestSlowRead(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		n, r := tricky(f, 1, nil)
		n.publish("orders", 0, "x")
		for _, delay := range []time.Duration{300 * time.Millisecond, 600 * time.Millisecond} {
			r.set(func() { r.delay = delay })
			ms := n.ask(LeaseRequest{Max: 1, Visibility: 2 * time.Second})
			if len(ms) != 1 || ms[0].Attempt != 1 {
				t.Fatalf("read of %s: %+v", delay, ms)
			}
			if left := ms[0].ExpiresAt - time.Now().UnixMilli(); left != 2000 {
				t.Errorf("read of %s: %d ms are left of 2000", delay, left)
			}
			n.engine.Undo(t.Context(), work, receipts(ms))
			synctest.Wait()
		}
	})
}

// TestFlushAll: Redis is emptied. Leases are gone, nothing else.
func TestFlushAll(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		a := queueOf(f, 2, func(c *api.SubscriptionConfig) { c.MaxAttempts = 3; c.Backoff.Initial = time.Millisecond })
		b := f.node(nil)
		for p := range int32(2) {
			a.publish("orders", p, numbered(fmt.Sprintf("p%d-", p), 100)...)
		}
		settled := a.lease(work, 40)
		a.settle(work, Ack, "", settled)
		failed := a.lease(work, 5)
		a.settle(work, Nack, "bad", failed)
		held := a.lease(work, 20) // the failed ones among them, at attempt 2
		time.Sleep(100 * time.Millisecond)
		f.redis.FlushAll()
		codes := b.codes(Ack, 0, receipts(held)...)
		for i, c := range codes {
			if c != api.CodeLeaseLost {
				t.Errorf("receipt %s of a lease that was lost: %q", held[i].Receipt, c)
			}
		}
		gone := map[Target]bool{}
		for _, m := range settled {
			gone[Target{m.Partition, m.Record.Offset}] = true
		}
		attempts := map[Target]int32{}
		for _, m := range failed {
			attempts[Target{m.Partition, m.Record.Offset}] = 1
		}
		seen := 0
		for {
			ms := b.lease(work, 50)
			if len(ms) == 0 {
				break
			}
			for _, m := range ms {
				at := Target{m.Partition, m.Record.Offset}
				if gone[at] {
					t.Errorf("%v had been settled for 100 ms and came again", at)
				}
				if want := attempts[at] + 1; m.Attempt != want {
					t.Errorf("%v is at attempt %d, want %d", at, m.Attempt, want)
				}
				seen++
			}
			b.settle(work, Ack, "", ms)
		}
		if seen != 160 {
			t.Errorf("%d records came, 160 were not settled", seen)
		}
		b.done(work)
		a.done(work)
	})
}

// TestFlushAllWakesWaiters: records that were leased when Redis was emptied come to those who wait, without anybody else's request.
func TestFlushAllWakesWaiters(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		n := queueOf(f, 1, nil)
		n.publish("orders", 0, "x")
		n.ask(LeaseRequest{Max: 1, Visibility: time.Hour})
		done := make(chan []Message)
		go func() { done <- n.ask(LeaseRequest{Max: 1, Wait: 20 * time.Second}) }()
		time.Sleep(200 * time.Millisecond)
		f.redis.FlushAll()
		begun := time.Now()
		if ms := <-done; len(ms) != 1 || time.Since(begun) > 6*time.Second {
			t.Errorf("after %s: %+v", time.Since(begun), ms)
		}
	})
}

// TestRedisDown: leasing answers LEASES_UNAVAILABLE, also to those who wait, and goes on afterwards.
func TestRedisDown(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		n := queueOf(f, 1, nil)
		n.lease(work, 1)
		parked := make(chan error)
		go func() {
			_, err := n.engine.Lease(t.Context(), LeaseRequest{Name: work, Max: 1, Wait: 25 * time.Second})
			parked <- err
		}()
		synctest.Wait()
		f.redis.SetError("LOADING Redis is loading the dataset in memory")
		if _, err := n.engine.Lease(t.Context(), LeaseRequest{Name: work, Max: 1}); api.CodeOf(err) != api.CodeLeasesUnavailable {
			t.Errorf("lease: %v", err)
		}
		if _, err := n.engine.Settle(t.Context(), SettleRequest{Name: work, Kind: Ack, Receipts: []string{"0:0:a"}}); api.CodeOf(err) != api.CodeLeasesUnavailable {
			t.Errorf("ack: %v", err)
		}
		if err := <-parked; api.CodeOf(err) != api.CodeLeasesUnavailable {
			t.Errorf("who waited got %v", err)
		}
		n.publish("orders", 0, "x") // publishing goes on
		f.redis.SetError("")
		if got := n.ackAll(work); len(got) != 1 {
			t.Errorf("afterwards: %q", got)
		}
	})
}

// TestNodeDies: what a node had not journalled when it died another one journals, from the marks in Redis.
func TestNodeDies(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		a := f.node(func(o *Options) { o.FlushDelay = time.Hour }) // it never comes to it
		a.topic("orders", 2, nil)
		a.subscribe(work, nil)
		b := f.node(nil)
		a.publish("orders", 0, numbered("", 100)...)
		ms := a.lease(work, 60)
		a.settle(work, Ack, "", ms)
		a.kill()
		time.Sleep(3 * time.Second)
		f.redis.FlushAll()
		if got := b.ackAll(work); len(got) != 40 {
			t.Errorf("%d records came after the loss of node and Redis, 40 were not settled", len(got))
		}
		b.done(work)
	})
}

// TestCloseJournals: a node that ends in order leaves nothing unsaid.
func TestCloseJournals(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		a := f.node(func(o *Options) { o.FlushDelay = time.Hour })
		a.topic("orders", 1, nil)
		a.subscribe(work, nil)
		a.publish("orders", 0, numbered("", 100)...)
		a.settle(work, Ack, "", a.lease(work, 60))
		parked := make(chan []Message)
		a.lease(work, 100)
		go func() { parked <- a.ask(LeaseRequest{Max: 1, Wait: 20 * time.Second}) }()
		synctest.Wait()
		a.stop()
		if ms := <-parked; len(ms) != 0 {
			t.Errorf("who waited at a node that ends got %+v", ms)
		}
		if _, err := a.engine.Lease(t.Context(), LeaseRequest{Name: work, Max: 1}); err == nil {
			t.Error("a closed engine leases")
		}
		f.redis.FlushAll()
		b := f.node(nil)
		if got := b.ackAll(work); len(got) != 40 {
			t.Errorf("%d records came, 40 were not settled", len(got))
		}
	})
}

// TestManyOpenAtOnce: nodes that open the same subscription at the same time do not disturb each other.
func TestManyOpenAtOnce(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		n := queueOf(f, 8, nil)
		nodes := []*fabricNode{n, f.node(nil), f.node(nil), f.node(nil)}
		for p := range int32(8) {
			n.publish("orders", p, numbered(fmt.Sprintf("p%d-", p), 50)...)
		}
		for round := range 5 {
			f.redis.FlushAll()
			var all sync.WaitGroup
			var mu sync.Mutex
			got := map[Target]int{}
			for _, node := range nodes {
				all.Go(func() {
					for range 5 {
						ms := node.ask(LeaseRequest{Max: 10})
						mu.Lock()
						for _, m := range ms {
							got[Target{m.Partition, m.Record.Offset}]++
						}
						mu.Unlock()
					}
				})
			}
			all.Wait()
			for at, times := range got {
				if times > 1 {
					t.Errorf("round %d: %v was handed out %d times at once", round, at, times)
				}
			}
			if len(got) != 200 {
				t.Errorf("round %d: %d records, want 200", round, len(got))
			}
		}
	})
}

// TestEviction: a subscription that nobody uses leaves Redis and comes back as it was.
func TestEviction(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		n := f.node(func(o *Options) {
			o.IdleAfter, o.EvictInterval, o.SweepInterval = 20*time.Second, 5*time.Second, 5*time.Second
		})
		n.topic("orders", 2, nil)
		n.subscribe(work, nil)
		n.publish("orders", 0, numbered("", 100)...)
		ms := n.lease(work, 50)
		n.settle(work, Ack, "", ms[10:])
		n.settle(work, Nack, "bad", ms[:10])
		time.Sleep(5 * time.Second)
		n.settle(work, Ack, "", n.lease(work, 10)) // the owed ones: nothing is due any more
		before := n.stats(work)
		used := len(f.redis.Keys())
		time.Sleep(time.Minute)
		if left := len(f.redis.Keys()); left >= used {
			t.Errorf("%d keys are left in Redis of %d: %q", left, used, f.redis.Keys())
		}
		after := n.stats(work)
		if a, b := before.Partitions[0], after.Partitions[0]; a.Frontier != b.Frontier || a.Lag != b.Lag || b.Frontier != 50 {
			t.Errorf("before %+v, after %+v", a, b)
		}
		if got := n.ackAll(work); len(got) != 50 {
			t.Errorf("%d records came, 50 were not settled", len(got))
		}
		n.done(work)
	})
}

// TestDeletedElsewhere: a subscription that was deleted on another node, and one of the same name after it.
func TestDeletedElsewhere(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		a := queueOf(f, 1, nil)
		b := f.node(nil)
		a.publish("orders", 0, "x", "y")
		old := b.lease(work, 1)
		if err := a.engine.DeleteSubscription(t.Context(), work); err != nil {
			t.Fatal(err)
		}
		if _, err := b.engine.Lease(t.Context(), LeaseRequest{Name: work, Max: 1}); api.CodeOf(err) != api.CodeUnknownSubscription {
			t.Errorf("lease after the deletion: %v", err)
		}
		a.subscribe(work, nil)
		if got := b.codes(Ack, 0, receipts(old)...); got[0] != api.CodeLeaseLost {
			t.Errorf("ack of the old one's lease: %q", got)
		}
		if ms := b.lease(work, 10); len(ms) != 2 || ms[0].Attempt != 1 {
			t.Errorf("the new one's records: %+v", ms)
		}
	})
}

// TestDeletionEndsWaiting: who waits for a subscription that is deleted, on this node or another, learns of it at once, and gets no record of one
// of the same name that is made right after.
func TestDeletionEndsWaiting(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		a := queueOf(f, 1, nil)
		b := f.node(nil)
		results := make(chan error, 2)
		for _, n := range []*fabricNode{a, b} {
			go func() {
				ms, err := n.engine.Lease(t.Context(), LeaseRequest{Name: work, Max: 1, Wait: 20 * time.Second})
				if len(ms) > 0 {
					t.Errorf("a record of another subscription: %+v", ms)
				}
				results <- err
			}()
		}
		time.Sleep(3 * time.Second) // both wait
		begun := time.Now()
		if err := a.engine.DeleteSubscription(t.Context(), work); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			wantCode(t, <-results, api.CodeUnknownSubscription)
		}
		if took := time.Since(begun); took > 100*time.Millisecond {
			t.Errorf("it took %s to tell", took)
		}
		a.subscribe(work, nil)
		a.publish("orders", 0, "x")
		if ms := b.lease(work, 1); len(ms) != 1 {
			t.Errorf("%+v", ms)
		}
	})
}

// TestJournalDown: leasing goes on while the journal cannot be written, the metric says how far it is behind, and it catches up.
func TestJournalDown(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		down := &brokenJournal{}
		n := f.node(func(o *Options) { down.Journal = o.Journal; o.Journal = down })
		n.topic("orders", 1, nil)
		n.subscribe(work, nil)
		n.publish("orders", 0, numbered("", 30)...)
		n.settle(work, Ack, "", n.lease(work, 10))
		time.Sleep(time.Second)
		down.set(errors.New("no quorum"))
		n.settle(work, Ack, "", n.lease(work, 10))
		time.Sleep(5 * time.Second)
		if age := n.engine.flusher.oldest(); age < 4900*time.Millisecond || age > 5100*time.Millisecond {
			t.Errorf("the oldest change is %s old, it should be 5 s", age)
		}
		down.set(nil)
		time.Sleep(2 * time.Second)
		if age := n.engine.flusher.oldest(); age != 0 {
			t.Errorf("%s behind after the journal is back", age)
		}
		f.redis.FlushAll()
		if got := n.ackAll(work); len(got) != 10 {
			t.Errorf("%d records came, 10 were not settled", len(got))
		}
	})
}
