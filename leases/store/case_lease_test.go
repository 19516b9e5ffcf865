package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/forebaymq/forebay/metadata"
)

// Q1: an ack with a lapsed receipt changes nothing, with and without a second lessee.
func TestLapsedAck(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rig) {
		q := queue(1)
		r.open(q, 0)
		first := receipts(r.acquireFor(q, 1, lease, at(0, 1)).Grants...)
		r.advance(lease)
		r.wantOK(q, OpAck, SettleOptions{}, "0", first...)
		if s := r.stats(q, 0); s.Frontier != 0 || s.Owed != 1 || s.InFlight != 0 {
			t.Fatalf("%+v", s)
		}
		a := r.acquire(q, 5, at(0, 1))
		r.wantGrants(a, "0:0+1/2")
		for _, op := range []Op{OpAck, OpNack, OpExtend, OpRelease, OpSkip} {
			r.wantOK(q, op, SettleOptions{Visibility: time.Minute}, "0", first...)
		}
		r.wantOK(q, OpAck, SettleOptions{}, "1", receipts(a.Grants...)...)
		r.wantOK(q, OpAck, SettleOptions{}, "01", first[0], receipts(a.Grants...)[0]) // settled since, but not by the first
		if s := r.stats(q, 0); s.Frontier != 1 || s.Owed+s.InFlight+s.DeadLetters != 0 {
			t.Fatalf("%+v", s)
		}
		r.audit(q)
	})
}

// Q2: extending works on live leases only, and the deadline is the newest.
func TestExtend(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rig) {
		q := queue(2)
		r.open(q, 0)
		a := r.acquireFor(q, 3, 6*lease, at(0, 3))
		rs := receipts(a.Grants...)
		r.advance(lease)
		out := r.wantOK(q, OpExtend, SettleOptions{Visibility: 40 * lease}, "1", rs[1])
		if out.Expires[0] != out.Now+(40*lease).Milliseconds() {
			t.Fatal(out.Expires, out.Now)
		}
		for range 5 { // five in a row
			r.wantOK(q, OpExtend, SettleOptions{Visibility: 40 * lease}, "1", rs[1])
		}
		r.advance(5 * lease) // the first and the third lapse by the first deadline
		e := r.sweep(q)
		if s := r.stats(q, 0); s.InFlight != 1 || s.Owed != 2 || e.Lapsed != 2 && e.Lapsed != 0 {
			t.Fatalf("%+v %+v", s, e)
		}
		r.wantOK(q, OpExtend, SettleOptions{Visibility: time.Minute}, "010", rs...)
		again := r.acquire(q, 5, at(0, 3))
		r.wantGrants(again, "0:0+1/2 0:2+1/2")
		r.wantOK(q, OpAck, SettleOptions{}, "1", rs[1])
		r.wantOK(q, OpAck, SettleOptions{}, "11", receipts(again.Grants...)...)
		// What does not exist is not made by extending it.
		r.wantOK(q, OpExtend, SettleOptions{Visibility: time.Minute}, "00", Receipt{0, 77, "01NOBODY"}, rs[0])
		if s := r.stats(q, 0); s.Frontier != 3 || s.InFlight != 0 {
			t.Fatalf("%+v", s)
		}
		r.audit(q)
	})
}

// Q3: the limit of attempts is exact, and the dead letter is there without a lease call.
func TestAttemptLimit(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rig) {
		for id, limit := range map[metadata.SubscriptionID]int{10: 3, 11: 1} {
			q := queue(id)
			q.MaxAttempts = limit
			r.open(q, 0, 1)
			for attempt := 1; attempt <= limit; attempt++ {
				a := r.acquire(q, 1, at(1, 1))
				r.wantGrants(a, fmt.Sprint("1:0+1/", attempt))
				if out := r.wantOK(q, OpNack, SettleOptions{Reason: "bad input: ü"}, "1", receipts(a.Grants...)...); (out.Died == 1) != (attempt == limit) {
					t.Fatalf("%+v", out.Effects)
				}
			}
			for attempt := 1; attempt <= limit; attempt++ {
				r.wantGrants(r.acquireFor(q, 1, lease, at(0, 1)), fmt.Sprint("0:0+1/", attempt))
				r.advance(lease)
				if e := r.sweep(q); e.Lapsed != 1 || (e.Died == 1) != (attempt == limit) {
					t.Fatalf("%+v", e)
				}
			}
			ds := r.deadLetters(q)
			if len(ds) != 2 {
				t.Fatalf("%+v", ds)
			}
			for _, d := range ds {
				want := map[int32]string{0: "lapsed", 1: "bad input: ü"}[d.Partition]
				if d.Attempts != int32(limit) || d.Reason != want || d.FirstFailed > d.LastFailed || d.LastFailed == 0 {
					t.Fatalf("%+v", d)
				}
			}
			r.wantGrants(r.acquire(q, 5, at(0, 1), at(1, 1)), "")
			if s := r.stats(q, 0); s.Frontier != 1 || s.DeadLetters != 1 || s.OldestOffset != -1 {
				t.Fatalf("%+v", s)
			}
			r.audit(q)
		}
	})
}

// Q5: sweepers agree: a thousand lapsed leases come back once each, and what is acked stays acked.
func TestSweepersAgree(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rig) {
		q := queue(5)
		r.open(q, 0)
		a := r.acquireFor(q, 1000, 4*lease, at(0, 2000))
		acked := receipts(a.Grants...)[500]
		r.wantOK(q, OpAck, SettleOptions{}, "1", acked)
		r.advance(4 * lease)
		lapsed := make(chan int, 4)
		for range 4 {
			go func() {
				e, err := r.s.Sweep(t.Context(), q)
				if err != nil {
					t.Error(err)
					e = &Effects{}
				}
				lapsed <- e.Lapsed
			}()
		}
		n := 0
		for range 4 {
			n += <-lapsed
		}
		if s := r.stats(q, 0); n != 999 || s.Owed != 999 || s.InFlight != 0 || s.AckedAhead != 1 {
			t.Fatalf("%d lapsed, %+v", n, s)
		}
		again := r.acquire(q, 2000, at(0, 1000))
		r.wantGrants(again, "0:0+500/2 0:501+499/2")
		r.wantOK(q, OpAck, SettleOptions{}, "1", acked)
		r.audit(q)
	})
}

// Q7: one of ten is fatal to its worker: the other nine come one attempt nearer, no more, and given back not even that.
func TestPoisonBehindPrefetch(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rig) {
		q := queue(6)
		r.open(q, 0)
		r.acquireFor(q, 10, lease, at(0, 10))
		r.advance(lease)
		a := r.acquire(q, 10, at(0, 10))
		r.wantGrants(a, "0:0+10/2")
		rs := receipts(a.Grants...)
		r.wantOK(q, OpNack, SettleOptions{Reason: "poison"}, "1", rs[0])
		r.wantOK(q, OpRelease, SettleOptions{}, "111111111", rs[1:]...)
		r.wantGrants(r.acquire(q, 10, at(0, 10)), "0:0+1/3 0:1+9/2")
		r.audit(q)
	})
}

// What goes back untouched at the end of a run is new again: the next lease is one run.
func TestReleaseGoesBackToTheCursor(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rig) {
		q := queue(8)
		r.open(q, 0)
		rs := receipts(r.acquire(q, 10, at(0, 100)).Grants...)
		r.wantOK(q, OpRelease, SettleOptions{}, "111111", rs[4:]...)
		if s := r.stats(q, 0); s.Cursor != 4 || s.InFlight != 4 || s.Owed != 0 {
			t.Fatalf("%+v", s)
		}
		r.wantOK(q, OpRelease, SettleOptions{}, "1", rs[1])
		if s := r.stats(q, 0); s.Cursor != 4 || s.InFlight != 3 || s.Owed != 1 {
			t.Fatalf("%+v", s)
		}
		r.wantGrants(r.acquire(q, 20, at(0, 100)), "0:1+1/1 0:4+19/1")
		r.wantOK(q, OpAck, SettleOptions{}, "0", rs[5])
		r.audit(q)
	})
}

// Owed records go out before new ones; a nack without delay backs off, one with delay 0 does not.
func TestBackoff(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rig) {
		q := queue(9)
		q.MaxAttempts = 10
		q.Backoff.Initial, q.Backoff.Max = 2*lease, 3*lease
		r.open(q, 0)
		rs := receipts(r.acquire(q, 2, at(0, 10)).Grants...)
		out := r.wantOK(q, OpNack, SettleOptions{Delay: -1}, "1", rs[0])
		if out.NextDue <= 0 || out.NextDue > 2*lease || out.Freed != 0 {
			t.Fatalf("%+v", out.Effects)
		}
		if out := r.wantOK(q, OpNack, SettleOptions{}, "1", rs[1]); out.Freed != 1 {
			t.Fatalf("%+v", out.Effects)
		}
		r.wantGrants(r.acquire(q, 2, at(0, 10)), "0:1+1/2 0:2+1/1")
		r.advance(2 * lease)
		a := r.acquire(q, 2, at(0, 10))
		r.wantGrants(a, "0:0+1/2 0:3+1/1")
		// The pause doubles, up to its limit of three.
		r.wantOK(q, OpNack, SettleOptions{Delay: -1}, "1", receipts(a.Grants...)[0])
		ps, err := r.s.Peek(t.Context(), q, 10, nil)
		if err != nil || len(ps) != 1 || ps[0].Attempt != 3 {
			t.Fatal(ps, err)
		}
		if pause := ps[0].Due - a.Now; pause < (3*lease).Milliseconds() || pause > (3*lease).Milliseconds()+2000 {
			t.Fatalf("a pause of %d ms", pause)
		}
		// With jitter it is anything up to that, and not always the same.
		q.Backoff.Jitter, q.Backoff.Initial, q.Backoff.Max = true, time.Hour, time.Hour
		a = r.acquire(q, 5, at(0, 10))
		r.settle(q, OpNack, SettleOptions{Delay: -1}, receipts(a.Grants...)...)
		ps, err = r.s.Peek(t.Context(), q, 10, nil)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[int64]bool{}
		for _, p := range ps {
			if p.Due-a.Now > time.Hour.Milliseconds()+2000 {
				t.Fatalf("%+v", p)
			}
			seen[p.Due] = true
		}
		if len(seen) < 4 {
			t.Fatalf("no jitter: %+v", ps)
		}
		r.audit(q)
	})
}

// A full cap stops new records, never acks, and owed records still go out.
func TestCaps(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rig) {
		q := queue(12)
		q.MaxInFlight, q.MaxAckedAhead = 4, 6
		r.open(q, 0)
		a := r.acquire(q, 10, at(0, 100))
		r.wantGrants(a, "0:0+4/1")
		r.wantGrants(r.acquire(q, 10, at(0, 100)), "")
		rs := receipts(a.Grants...)
		if out := r.wantOK(q, OpAck, SettleOptions{}, "111", rs[1:]...); out.Freed != 2 {
			t.Fatalf("%+v", out.Effects) // room for two: the frontier has not moved
		}
		b := r.acquire(q, 10, at(0, 100))
		r.wantGrants(b, "0:4+2/1")
		r.wantOK(q, OpAck, SettleOptions{}, "11", receipts(b.Grants...)...)
		r.wantGrants(r.acquire(q, 10, at(0, 100)), "")
		r.wantOK(q, OpNack, SettleOptions{}, "1", rs[0])
		c := r.acquire(q, 10, at(0, 100))
		r.wantGrants(c, "0:0+1/2")
		if out := r.wantOK(q, OpAck, SettleOptions{}, "1", receipts(c.Grants...)[0]); out.Freed == 0 {
			t.Fatalf("%+v", out.Effects)
		}
		if s := r.stats(q, 0); s.Frontier != 6 || s.AckedAhead != 0 {
			t.Fatalf("%+v", s)
		}
		r.wantGrants(r.acquire(q, 10, at(0, 100)), "0:6+4/1")
		r.audit(q)
	})
}

// A scheduled record does not hold the frontier up and comes when it is due, its first attempt unspent.
func TestSchedule(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rig) {
		q := queue(13)
		r.open(q, 0)
		a := r.acquire(q, 3, at(0, 3))
		rs := receipts(a.Grants...)
		e, err := r.s.Schedule(t.Context(), q, []ScheduleRequest{{rs[0], a.Now + 3*lease.Milliseconds()}, {Receipt{0, 1, "01NOBODY"}, a.Now}})
		if err != nil || len(e.Dirty) != 1 || e.NextDue <= 0 {
			t.Fatal(e, err)
		}
		r.wantOK(q, OpAck, SettleOptions{}, "011", rs...)
		if s := r.stats(q, 0); s.Frontier != 3 || s.Delayed != 1 || s.OldestDelayed != 0 || s.OldestOffset != -1 {
			t.Fatalf("%+v", s)
		}
		r.wantGrants(r.acquire(q, 3, at(0, 3)), "")
		r.audit(q)
		r.advance(3 * lease)
		if e := r.sweep(q); e.Freed != 1 {
			t.Fatalf("%+v", e)
		}
		b := r.acquireFor(q, 3, lease, at(0, 3))
		r.wantGrants(b, "0:0+1/1")
		if s := r.stats(q, 0); s.Delayed != 0 || s.InFlight != 1 || s.OldestOffset != 0 {
			t.Fatalf("%+v", s)
		}
		r.advance(lease)
		c := r.acquire(q, 3, at(0, 3))
		r.wantGrants(c, "0:0+1/2")
		r.wantOK(q, OpAck, SettleOptions{}, "1", receipts(c.Grants...)...)
		if s := r.stats(q, 0); s.Delayed+s.InFlight+s.Owed != 0 || s.Frontier != 3 {
			t.Fatalf("%+v", s)
		}
		r.audit(q)
	})
}

// Offsets up to 2^53 are exact.
func TestLargeOffsets(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rig) {
		q := queue(14)
		const top = int64(1) << 53
		l := LoadRequest{Partition: 0, Incarnation: 1}
		l.Shard.Frontier = top - 10
		r.load(q, l)
		a := r.acquireFor(q, 3, lease, at(0, top-1))
		if g := a.Grants[0]; g.Start != top-10 || g.Count != 3 {
			t.Fatalf("%+v", g)
		}
		r.wantOK(q, OpAck, SettleOptions{}, "1", receipts(a.Grants...)[1])
		r.advance(lease)
		b := r.acquire(q, 3, at(0, top-1))
		r.wantGrants(b, "0:9007199254740982+1/2 0:9007199254740984+1/2 0:9007199254740985+1/1")
		e := r.export(q, 0)
		if len(e.Shard.Settled) != 1 || e.Shard.Settled[0].From != top-9 || len(e.Changed) != 2 || e.Changed[0].Offset != top-10 {
			t.Fatalf("%+v", e)
		}
		r.wantOK(q, OpAck, SettleOptions{}, "111", receipts(b.Grants...)...)
		if s := r.stats(q, 0); s.Frontier != top-6 {
			t.Fatalf("%+v", s)
		}
		r.audit(q)
	})
}

// Receipts in any order, repeated, of many leases.
func TestSettleOrder(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rig) {
		q := queue(15)
		r.open(q, 0, 1)
		var rs []Receipt
		for range 90 {
			rs = append(rs, receipts(r.acquire(q, 2, at(0, 100), at(1, 100)).Grants...)...)
		}
		var mixed []Receipt
		for i := range rs {
			mixed = append(mixed, rs[(i*37)%len(rs)])
		}
		mixed = append(mixed, rs[5], Receipt{1, 3, "01NOBODY"}, rs[6])
		out := r.settle(q, OpAck, SettleOptions{}, mixed...)
		for i, ok := range out.OK {
			if ok != (i != len(rs)+1) {
				t.Fatalf("receipt %d %v: %v", i, mixed[i], ok)
			}
		}
		if a, b := r.stats(q, 0), r.stats(q, 1); a.Frontier+b.Frontier != 180 || a.AckedAhead+b.AckedAhead != 0 {
			t.Fatalf("%+v %+v", a, b)
		}
		// Twice in one nack: one failure.
		a := r.acquire(q, 1, at(1, 100))
		rc := receipts(a.Grants...)[0]
		r.wantOK(q, OpNack, SettleOptions{}, "11", rc, rc)
		r.wantGrants(r.acquire(q, 1, at(1, 100)), granted(a.Grants)[:len(granted(a.Grants))-1]+"2")
		r.audit(q)
	})
}
