package store

import (
	"testing"
	"time"
)

func (r *rig) admit(q *Queue, partition int32, cursor int64, keys ...uint64) *Effects {
	r.t.Helper()
	a := AdmitRequest{Partition: partition, Cursor: cursor, Through: cursor + int64(len(keys))}
	for i, k := range keys {
		a.Records = append(a.Records, Candidate{Offset: cursor + int64(i), KeyHash: k})
	}
	moved, e, err := r.s.Admit(r.t.Context(), q, a)
	if err != nil || !moved {
		r.t.Fatal(moved, err)
	}
	return e
}

const big = ^uint64(0) // a hash that no double could hold

func TestOrderedKeys(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rig) {
		q := queue(20)
		q.Ordered, q.MaxAttempts = true, 2
		r.open(q, 0)
		// 0:a 1:b 2:a 3:none 4:a 5:none
		if e := r.admit(q, 0, 0, big, 2, big, 0, big, 0); e.Freed != 4 {
			t.Fatalf("%+v", e)
		}
		moved, _, err := r.s.Admit(t.Context(), q, AdmitRequest{Partition: 0, Cursor: 3, Through: 9})
		if moved || err != nil {
			t.Fatal("admitted at a cursor that was passed", err)
		}
		a := r.acquire(q, 10)
		r.wantGrants(a, "0:0+2/1 0:3+1/1 0:5+1/1")
		if s := r.stats(q, 0); s.Waiting != 2 || s.Cursor != 6 {
			t.Fatalf("%+v", s)
		}
		by := map[int64]Receipt{}
		for _, rc := range receipts(a.Grants...) {
			by[rc.Offset] = rc
		}
		// A nack keeps the lock; so does a record set aside.
		r.wantOK(q, OpNack, SettleOptions{Delay: time.Hour}, "1", by[0])
		r.wantGrants(r.acquire(q, 10), "")
		r.audit(q)
		// The second failure kills it, and the next one comes.
		r.wantOK(q, OpAck, SettleOptions{}, "1", by[1])
		e := r.export(q, 0)
		if len(e.Changed) != 1 || e.Changed[0].KeyHash != big {
			t.Fatalf("%+v", e.Changed)
		}
		l := LoadRequest{Partition: 0, Incarnation: 2, Shard: e.Shard, Pointers: e.Changed}
		l.Pointers[0].Due = 0
		r.load(q, l) // everything lost but the journal: the key is still 0's
		r.admit(q, 0, 0, big, 2, big, 0, big, 0)
		a = r.acquire(q, 10)
		r.wantGrants(a, "0:0+1/2 0:3+1/1 0:5+1/1")
		out := r.wantOK(q, OpNack, SettleOptions{Reason: "no"}, "1", receipts(a.Grants...)[0])
		if out.Died != 1 || out.Freed != 1 {
			t.Fatalf("%+v", out.Effects)
		}
		a = r.acquire(q, 10)
		r.wantGrants(a, "0:2+1/1")
		r.audit(q)
		// Redriven while the key is busy, it waits, and comes before what is later.
		if done, _, _, err := r.s.Redrive(t.Context(), q, Selection{All: true, Before: r.redisNow()}, 10, ""); done != 1 || err != nil {
			t.Fatal(done, err)
		}
		r.wantGrants(r.acquire(q, 10), "")
		r.audit(q)
		r.wantOK(q, OpAck, SettleOptions{}, "1", receipts(a.Grants...)...)
		a = r.acquire(q, 10)
		r.wantGrants(a, "0:0+1/1")
		r.wantOK(q, OpAck, SettleOptions{}, "1", receipts(a.Grants...)...)
		r.wantGrants(r.acquire(q, 10), "0:4+1/1")
		r.audit(q)
	})
}

// A record that may not be delivered yet holds its key, and what may be delivered at once but waits is set aside when its turn comes.
func TestOrderedSchedule(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rig) {
		q := queue(21)
		q.Ordered = true
		r.open(q, 0)
		due := r.redisNow() + 3*lease.Milliseconds()
		_, _, err := r.s.Admit(t.Context(), q, AdmitRequest{Partition: 0, Through: 5, Records: []Candidate{{0, 1, due}, {1, 1, 0}, {3, 2, 0}, {4, 2, due}}})
		if err != nil {
			t.Fatal(err)
		}
		if s := r.stats(q, 0); s.Delayed != 1 || s.Waiting != 2 || s.Skipped != 1 || s.Frontier != 1 {
			t.Fatalf("%+v", s)
		}
		a := r.acquire(q, 10)
		r.wantGrants(a, "0:3+1/1")
		r.wantOK(q, OpAck, SettleOptions{}, "1", receipts(a.Grants...)...)
		a = r.acquire(q, 10)
		r.wantGrants(a, "0:4+1/1") // its reader finds that it is not due
		if _, err := r.s.Schedule(t.Context(), q, []ScheduleRequest{{receipts(a.Grants...)[0], due}}); err != nil {
			t.Fatal(err)
		}
		r.wantGrants(r.acquire(q, 10), "")
		r.audit(q)
		r.advance(3 * lease)
		a = r.acquire(q, 10)
		if len(a.Grants) != 2 {
			t.Fatalf("%+v", a.Grants)
		}
		r.settle(q, OpAck, SettleOptions{}, receipts(a.Grants...)...)
		a = r.acquire(q, 10)
		r.wantGrants(a, "0:1+1/1")
		r.settle(q, OpAck, SettleOptions{}, receipts(a.Grants...)...)
		if s := r.stats(q, 0); s.Frontier != 5 || s.Delayed+s.Waiting+s.Owed+s.InFlight != 0 {
			t.Fatalf("%+v", s)
		}
		r.audit(q)
	})
}

// A quiet key is served before a noisy one's backlog, equals take turns, and one key alone gets everything.
func TestFairShare(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rig) {
		q := queue(22)
		q.Fair = true
		r.open(q, 0, 1)
		r.admit(q, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
		a := r.acquire(q, 4)
		r.wantGrants(a, "0:0+4/1")
		r.admit(q, 0, 10, 2)
		r.admit(q, 1, 0, 3, 3)
		if s := r.stats(q, 0); s.Waiting != 7 {
			t.Fatalf("%+v", s)
		}
		b := r.acquire(q, 4)
		for _, g := range b.Grants {
			if g.Partition == 0 && g.Start < 10 && g.Count > 1 {
				t.Fatalf("the noisy key got %s", granted(b.Grants))
			}
		}
		if got := len(receipts(b.Grants...)); got != 4 {
			t.Fatal(got)
		}
		r.audit(q)
		// One at a time with one consumer: every key moves on.
		r.settle(q, OpAck, SettleOptions{}, receipts(append(a.Grants, b.Grants...)...)...)
		r.admit(q, 1, 2, 3, 4, 4, 3)
		keys := map[int64]int{}
		for range 4 {
			c := r.acquire(q, 1)
			for _, g := range c.Grants {
				if g.Partition == 1 {
					keys[g.Start]++
				}
			}
			r.settle(q, OpAck, SettleOptions{}, receipts(c.Grants...)...)
		}
		if len(keys) < 2 {
			t.Fatalf("keys 3 and 4 starve: %v", keys)
		}
		// A failed record keeps its place among those of its key.
		c := r.acquire(q, 100)
		rs := receipts(c.Grants...)
		r.wantOK(q, OpNack, SettleOptions{}, "1", rs[0])
		d := r.acquire(q, 100)
		if len(d.Grants) != 1 || d.Grants[0].Attempt != 2 {
			t.Fatalf("%+v", d.Grants)
		}
		r.settle(q, OpAck, SettleOptions{}, append(rs[1:], receipts(d.Grants...)...)...)
		for p, head := range map[int32]int64{0: 11, 1: 6} {
			if s := r.stats(q, p); s.Frontier != head || s.Waiting+s.Owed+s.InFlight != 0 {
				t.Fatalf("%+v", s)
			}
		}
		r.audit(q)
	})
}
