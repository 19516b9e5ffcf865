package store

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/forebaymq/forebay/leases/journal"
)

// kill makes dead letters of the first n records of a partition.
func (r *rig) kill(q *Queue, partition int32, n int64) {
	r.t.Helper()
	for range q.MaxAttempts {
		a := r.acquire(q, int(n), at(partition, n))
		r.settle(q, OpNack, SettleOptions{Reason: "x"}, receipts(a.Grants...)...)
	}
}

func TestDeadLetters(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rig) {
		ctx := t.Context()
		q := queue(50)
		r.open(q, 0, 11)
		r.kill(q, 0, 25)
		r.kill(q, 11, 5)
		if s := r.stats(q, 0); s.Frontier != 25 || s.DeadLetters != 25 {
			t.Fatalf("%+v", s)
		}
		// Pages, while those already seen go away.
		seen := map[string]bool{}
		cursor := ""
		for {
			ds, next, err := r.s.DeadLetters(ctx, q, cursor, 7)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range ds {
				k := fmt.Sprint(d.Partition, ":", d.Offset)
				if seen[k] {
					t.Fatal("twice", k)
				}
				seen[k] = true
			}
			if len(ds) > 3 {
				if n, _, err := r.s.Discard(ctx, q, Selection{Targets: []journal.Target{{Partition: ds[2].Partition, Offset: ds[2].Offset}}}, 1); n != 1 || err != nil {
					t.Fatal(n, err)
				}
			}
			if cursor = next; next == "" {
				break
			}
		}
		if len(seen) != 30 {
			t.Fatal(len(seen))
		}
		if _, _, err := r.s.DeadLetters(ctx, q, "nonsense", 7); !errors.Is(err, ErrCursor) {
			t.Fatal(err)
		}
		left := int64(len(r.deadLetters(q)))
		now := r.redisNow()
		if n, err := r.s.CountDead(ctx, q, Selection{All: true, Before: now}); n != left || err != nil {
			t.Fatal(n, err)
		}
		if n, err := r.s.CountDead(ctx, q, Selection{All: true, Before: 5}); n != 0 || err != nil {
			t.Fatal(n, err)
		}
		some := []journal.Target{{Partition: 0, Offset: 0}, {Partition: 0, Offset: 24}, {Partition: 0, Offset: 99}, {Partition: 5, Offset: 1}}
		if n, err := r.s.CountDead(ctx, q, Selection{Targets: some}); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		// Expired ones are listed and not redriven.
		if _, err := r.s.MarkExpired(ctx, q, some[:1]); err != nil {
			t.Fatal(err)
		}
		if _, err := r.s.MarkCopied(ctx, q, some[1:2]); err != nil {
			t.Fatal(err)
		}
		for _, d := range r.deadLetters(q) {
			if d.Expired != (d.Partition == 0 && d.Offset == 0) || d.Copied != (d.Partition == 0 && d.Offset == 24) {
				t.Fatalf("%+v", d)
			}
		}
		r.advance(10 * time.Millisecond)
		done, steps, cursor := 0, 0, ""
		for {
			n, next, e, err := r.s.Redrive(ctx, q, Selection{All: true, Before: now}, 10, cursor)
			if err != nil || e.Freed != n {
				t.Fatal(n, e, err)
			}
			done += n
			steps++
			if cursor = next; next == "" {
				break
			}
		}
		if done != int(left)-1 || steps < 3 {
			t.Fatal(done, steps)
		}
		if s := r.stats(q, 0); s.Frontier != 25 || s.Owed == 0 || s.OldestOffset < 0 || s.DeadLetters != 1 {
			t.Fatalf("%+v", s)
		}
		r.audit(q)
		a := r.acquire(q, 100)
		for _, g := range a.Grants {
			if g.Attempt != 1 {
				t.Fatalf("%+v", g)
			}
		}
		r.settle(q, OpAck, SettleOptions{}, receipts(a.Grants...)...)
		if n, _, err := r.s.Discard(ctx, q, Selection{All: true, Before: r.redisNow()}, 10); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if s := r.stats(q, 0); s.DeadLetters+s.Owed+s.InFlight != 0 {
			t.Fatalf("%+v", s)
		}
		if e := r.export(q, 0); len(e.Changed) != 0 || len(e.Removed) == 0 {
			t.Fatalf("%+v", e)
		}
		r.audit(q)
	})
}

// With a copy to be made, a dead letter is not settled before the copy is committed.
func TestCopies(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rig) {
		ctx := t.Context()
		q := queue(51)
		q.CopyDead, q.MaxAttempts = true, 1
		r.open(q, 0)
		a := r.acquire(q, 4, at(0, 4))
		rs := receipts(a.Grants...)
		if out := r.wantOK(q, OpNack, SettleOptions{}, "111", rs[:3]...); !out.Copies || out.Died != 3 {
			t.Fatalf("%+v", out.Effects)
		}
		r.wantOK(q, OpAck, SettleOptions{}, "1", rs[3])
		if s := r.stats(q, 0); s.Frontier != 0 || s.DeadLetters != 3 || s.AckedAhead != 1 {
			t.Fatalf("%+v", s)
		}
		ps, err := r.s.PendingCopies(ctx, q, 2)
		if err != nil || len(ps) != 2 || !ps[0].CopyPending {
			t.Fatalf("%+v %v", ps, err)
		}
		if _, err := r.s.Buried(ctx, q, []journal.Target{{Partition: 0, Offset: 0}}); err != nil {
			t.Fatal(err)
		}
		// Redriven before its copy, and discarded before it.
		if n, _, _, err := r.s.Redrive(ctx, q, Selection{Targets: []journal.Target{{Partition: 0, Offset: 1}}}, 10, ""); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if n, _, err := r.s.Discard(ctx, q, Selection{Targets: []journal.Target{{Partition: 0, Offset: 2}}}, 10); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		r.audit(q)
		if ps, err = r.s.PendingCopies(ctx, q, 10); err != nil || len(ps) != 0 {
			t.Fatal(ps, err)
		}
		if s := r.stats(q, 0); s.Frontier != 4 || s.Owed != 1 || s.DeadLetters != 1 || s.OldestOffset != 1 {
			t.Fatalf("%+v", s)
		}
		b := r.acquire(q, 4, at(0, 4))
		r.wantGrants(b, "0:1+1/1")
		r.wantOK(q, OpNack, SettleOptions{}, "1", receipts(b.Grants...)...) // dies again
		if _, err := r.s.Buried(ctx, q, []journal.Target{{Partition: 0, Offset: 1}}); err != nil {
			t.Fatal(err)
		}
		r.audit(q)
		var flags []bool
		for _, d := range r.deadLetters(q) {
			flags = append(flags, d.Copied)
		}
		if !slices.Equal(flags, []bool{true, true}) {
			t.Fatal(flags)
		}
	})
}

func TestRedriveOfTargetsGoesOn(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rig) {
		q := queue(52)
		r.open(q, 0)
		r.kill(q, 0, 5)
		var sel Selection
		for o := range int64(6) { // the last is none
			sel.Targets = append(sel.Targets, journal.Target{Partition: 0, Offset: o})
		}
		total, cursor, rounds := 0, "", 0
		for {
			n, next, _, err := r.s.Redrive(t.Context(), q, sel, 2, cursor)
			if err != nil {
				t.Fatal(err)
			}
			total += n
			rounds++
			if cursor = next; next == "" {
				break
			}
		}
		if total != 5 || rounds != 3 {
			t.Fatal(total, rounds)
		}
	})
}
