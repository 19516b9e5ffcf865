package store

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/metadata"
)

// Q6: whatever piece of a shard is removed by hand, every record that is not settled is deliverable again after one audit, and the counters agree.
func TestAuditPutsRight(t *testing.T) {
	for _, kind := range []string{"plain", "ordered", "fair"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := miniRig(t)
			if kind == "ordered" {
				r = realRig(t, 3)
			}
			ctx := context.Background()
			for i, c := range []struct {
				name   string
				remove func(prefix string) error
			}{
				{"a lease", func(p string) error { return r.raw.Del(ctx, p+keyBlocks+":0").Err() }},
				{"the expiries", func(p string) error { return r.raw.Del(ctx, p+keyExpiries).Err() }},
				{"the owed records", func(p string) error { return r.raw.Del(ctx, p+keyOwed+":0").Err() }},
				{"the owed heads", func(p string) error { return r.raw.Del(ctx, p+keyOwedHeads).Err() }},
				{"a pointer", func(p string) error { return r.raw.HDel(ctx, p+keyPointers+":0", pad(1)).Err() }},
				{"the settled ranges", func(p string) error { return r.raw.Del(ctx, p+keySettled+":0").Err() }},
				{"the locks", func(p string) error { return r.raw.Del(ctx, p+keyLocks+":0").Err() }},
				{"the hashes", func(p string) error { return r.raw.Del(ctx, p+keyHashes+":0").Err() }},
				{"the waiting records", func(p string) error { return r.raw.Del(ctx, p+keyWaiting+":0").Err() }},
				{"the fair counts", func(p string) error { return r.raw.Del(ctx, p+keyFairCounts).Err() }},
				{"the list of dead letters", func(p string) error { return r.raw.Del(ctx, p+keyDead).Err() }},
				{"the dirty mark", func(p string) error { return r.raw.Del(ctx, p+keyDirty).Err() }},
				{"the counters", func(p string) error {
					v, err := r.raw.HGet(ctx, p+keyShards, "0").Result()
					if err != nil {
						return err
					}
					f := strings.Fields(v)
					f[2], f[3], f[6], f[11] = "77", "-4", "0", "9"
					return r.raw.HSet(ctx, p+keyShards, "0", strings.Join(f, " ")).Err()
				}},
				{"a foreign dead letter", func(p string) error {
					return r.raw.ZAdd(ctx, p+keyDead, redis.Z{Score: 1, Member: "0:" + pad(900)}).Err()
				}},
			} {
				q := queue(metadata.SubscriptionID(100 + i))
				q.Ordered, q.Fair = kind == "ordered", kind == "fair"
				q.MaxAttempts = 2
				r.open(q, 0)
				work(t, r, q)
				r.audit(q)
				if err := c.remove(r.s.prefix(q.ID)); err != nil {
					t.Fatal(err)
				}
				if _, _, err := r.s.Audit(ctx, q); err != nil {
					t.Fatalf("%s: %v", c.name, err)
				}
				r.audit(q) // the second time nothing is wrong
				dead := map[int64]bool{}
				for _, d := range r.deadLetters(q) {
					dead[d.Offset] = true
				}
				if len(dead) != 1 || !dead[0] {
					t.Fatalf("%s %s: dead letters %v", kind, c.name, dead)
				}
				drain(t, r, q, kind+" without "+c.name)
			}
		})
	}
}

// work leaves a queue with a record in every state: 0 dead, 1 owed, 2 owed later, 3 leased, 4 settled, 5 scheduled, 6 waiting or released, 7 leased.
func work(t *testing.T, r *rig, q *Queue) {
	t.Helper()
	step := func(f func(a *Acquired, by map[int64]Receipt)) {
		a := r.acquire(q, 8, at(0, 8))
		by := map[int64]Receipt{}
		for _, rc := range receipts(a.Grants...) {
			by[rc.Offset] = rc
		}
		f(a, by)
	}
	if q.Keyed() {
		ad := AdmitRequest{Partition: 0, Through: 8}
		for o := range int64(8) {
			c := Candidate{Offset: o, KeyHash: uint64(o) + 1}
			if o == 6 {
				c.KeyHash = 4 // behind 3
			}
			ad.Records = append(ad.Records, c)
		}
		if _, _, err := r.s.Admit(t.Context(), q, ad); err != nil {
			t.Fatal(err)
		}
	}
	step(func(_ *Acquired, by map[int64]Receipt) {
		r.settle(q, OpNack, SettleOptions{}, by[0])
		a := r.acquire(q, 1)
		r.settle(q, OpNack, SettleOptions{Reason: "dead"}, receipts(a.Grants...)...)
		r.settle(q, OpNack, SettleOptions{}, by[1])
		r.settle(q, OpNack, SettleOptions{Delay: lease}, by[2])
		r.wantOK(q, OpAck, SettleOptions{}, "1", by[4])
		if _, err := r.s.Schedule(t.Context(), q, []ScheduleRequest{{by[5], r.redisNow() + lease.Milliseconds()}}); err != nil {
			t.Fatal(err)
		}
		if rc, ok := by[6]; ok {
			r.settle(q, OpRelease, SettleOptions{}, rc)
		}
	})
}

// drain leases and acks until everything is settled: nothing may be stuck.
func drain(t *testing.T, r *rig, q *Queue, what string) {
	t.Helper()
	for range 50 {
		a := r.acquireFor(q, 8, time.Minute, at(0, 8))
		if len(a.Grants) > 0 {
			r.settle(q, OpAck, SettleOptions{}, receipts(a.Grants...)...)
		}
		s := r.stats(q, 0)
		if s.Frontier == 8 && s.Owed+s.Delayed+s.InFlight+s.Waiting == 0 {
			return
		}
		if r.mini != nil {
			r.advance(time.Minute)
			continue
		}
		// Leases of a minute are in the way: what is held is acked by its block.
		for nonce, block := range r.raw.HGetAll(context.Background(), r.s.prefix(q.ID)+keyBlocks+":0").Val() {
			rs, err := blockReceipts("0", nonce, block)
			if err != nil {
				t.Fatal(err)
			}
			r.settle(q, OpAck, SettleOptions{}, rs...)
		}
		r.advance(20 * time.Millisecond)
	}
	t.Fatalf("%s: stuck: %+v", what, r.stats(q, 0))
}

// A shard's own record is gone: it is absent, and loading it again makes it whole.
func TestAbsentShard(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rig) {
		q := queue(90)
		r.open(q, 0, 1)
		a := r.acquire(q, 2, at(0, 10))
		if err := r.raw.HDel(t.Context(), r.s.prefix(q.ID)+keyShards, "0").Err(); err != nil {
			t.Fatal(err)
		}
		b := r.acquire(q, 3, at(0, 10), at(1, 10))
		r.wantGrants(b, "1:0+3/1")
		if fmt.Sprint(b.Absent) != "[0]" {
			t.Fatal(b.Absent)
		}
		_, err := r.s.Settle(t.Context(), q, OpAck, receipts(a.Grants[0], b.Grants[0]), SettleOptions{})
		if nl := wantNotLoaded(t, err); fmt.Sprint(nl.Partitions) != "[0]" {
			t.Fatal(nl)
		}
		if s := r.stats(q, 1); s.InFlight != 3 {
			t.Fatalf("a refused call had an effect: %+v", s)
		}
		r.load(q, LoadRequest{Partition: 0, Incarnation: 2, Shard: journal.Shard{Frontier: 1}})
		r.wantOK(q, OpAck, SettleOptions{}, "00", receipts(a.Grants...)...)
		r.wantGrants(r.acquire(q, 2, at(0, 10)), "0:1+2/1")
		r.audit(q)
	})
}
