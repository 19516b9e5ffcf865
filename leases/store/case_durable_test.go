package store

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/metadata"
)

func TestExportAndClean(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rig) {
		q := queue(30)
		r.open(q, 0, 1)
		none, err := r.s.Export(t.Context(), q, nil)
		if err != nil || len(none) != 0 {
			t.Fatal(none, err)
		}
		rs := receipts(r.acquire(q, 5, at(0, 5)).Grants...)
		if none, err = r.s.Export(t.Context(), q, nil); err != nil || len(none) != 0 {
			t.Fatal("a lease alone is nothing durable", none, err)
		}
		out := r.wantOK(q, OpAck, SettleOptions{}, "11", rs[0], rs[2])
		if !slices.Equal(out.Dirty, []int32{0}) {
			t.Fatal(out.Dirty)
		}
		r.wantOK(q, OpNack, SettleOptions{Delay: time.Hour, Reason: "a b\n"}, "1", rs[3])
		es, err := r.s.Export(t.Context(), q, nil)
		if err != nil || len(es) != 1 {
			t.Fatal(es, err)
		}
		e := es[0]
		if e.Partition != 0 || e.Shard.Frontier != 1 || fmt.Sprint(e.Shard.Settled) != "[{2 3}]" || e.Shard.Version != (journal.Version{Incarnation: 1, Sequence: 2}) {
			t.Fatalf("%+v", e)
		}
		if len(e.Changed) != 1 || e.Changed[0].Reason != "a b\n" || e.Changed[0].Attempts != 1 || e.Changed[0].Kind != journal.Retry || e.Changed[0].Version != e.Shard.Version {
			t.Fatalf("%+v", e.Changed)
		}
		ids, err := r.s.DirtySubscriptions(t.Context(), 0)
		if err != nil || !slices.Equal(ids, []metadata.SubscriptionID{q.ID}) {
			t.Fatal(ids, err)
		}
		// What changes between export and clean stays marked.
		r.wantOK(q, OpAck, SettleOptions{}, "1", rs[1])
		if err := r.s.Clean(t.Context(), q, es); err != nil {
			t.Fatal(err)
		}
		es, err = r.s.Export(t.Context(), q, nil)
		if err != nil || len(es) != 1 || es[0].Shard.Frontier != 3 || len(es[0].Changed) != 0 {
			t.Fatalf("%+v %v", es, err)
		}
		if ids, err := r.s.DirtySubscriptions(t.Context(), time.Hour); err != nil || len(ids) != 0 {
			t.Fatal(ids, err)
		}
		// A clean of another incarnation takes nothing away.
		other := []Exported{es[0]}
		other[0].Shard.Incarnation = 9
		if err := r.s.Clean(t.Context(), q, other); err != nil {
			t.Fatal(err)
		}
		es[0].Shard.Incarnation = 1
		if err := r.s.Clean(t.Context(), q, es); err != nil {
			t.Fatal(err)
		}
		if ids, err := r.s.DirtySubscriptions(t.Context(), 0); err != nil || len(ids) != 0 {
			t.Fatal(ids, err)
		}
		// A pointer's end is exported as well.
		r.settle(q, OpAck, SettleOptions{}, rs[4])
		if err := r.s.Clean(t.Context(), q, []Exported{r.export(q, 0)}); err != nil {
			t.Fatal(err)
		}
		r.audit(q)
	})
}

func TestLoad(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rig) {
		ctx := t.Context()
		q := queue(31)
		_, err := r.s.Acquire(ctx, q, AcquireRequest{Max: 1, Visibility: time.Second})
		wantNotLoaded(t, err)
		l := LoadRequest{Partition: 2, Incarnation: 10}
		l.Shard = journal.Shard{Frontier: 5, Settled: []journal.Range{{From: 7, To: 9}, {From: 12, To: 13}}, Skipped: 3}
		l.Pointers = []journal.Pointer{
			{Offset: 1, Kind: journal.Retry, Attempts: 0, Due: 1},                                 // redriven
			{Offset: 2, Kind: journal.Dead, Attempts: 3, LastFailed: 44, Reason: "x"},             // a dead letter
			{Offset: 6, Kind: journal.Retry, Attempts: 2, Due: 1},                                 // failed
			{Offset: 10, Kind: journal.Dead, Attempts: 3, LastFailed: 50, CopyPending: true},      // not settled
			{Offset: 12, Kind: journal.Scheduled, Due: r.redisNow() + time.Hour.Milliseconds()},   // set aside
			{Offset: 9, Kind: journal.Dead, Attempts: 3, LastFailed: 45},                          // settled, though the ranges do not say so
			{Offset: 14, Kind: journal.Scheduled, Due: r.redisNow() + 2*time.Hour.Milliseconds()}, // the same
		}
		r.load(q, l)
		s := r.stats(q, 2)
		if s.Frontier != 5 || s.Cursor != 5 || s.AckedAhead != 5 || s.Owed != 2 || s.Delayed != 2 || s.DeadLetters != 3 || s.Skipped != 3 || s.OldestOffset != 1 {
			t.Fatalf("%+v", s)
		}
		r.audit(q)
		a := r.acquire(q, 100, at(2, 16))
		r.wantGrants(a, "2:1+1/1 2:6+1/3 2:5+1/1 2:11+1/1 2:13+1/1 2:15+1/1")
		r.audit(q)
		r.settle(q, OpAck, SettleOptions{}, receipts(a.Grants...)...)
		if s := r.stats(q, 2); s.Frontier != 10 || s.AckedAhead != 5 {
			t.Fatalf("%+v", s)
		}
		if e, err := r.s.Buried(ctx, q, []journal.Target{{Partition: 2, Offset: 10}, {Partition: 2, Offset: 2}}); err != nil || len(e.Dirty) != 1 {
			t.Fatal(e, err)
		}
		if s := r.stats(q, 2); s.Frontier != 16 || s.AckedAhead != 0 {
			t.Fatalf("%+v", s)
		}
		r.audit(q)
		// An opening that is not newer is refused, one that keeps starts its incarnation and is journalled again.
		for _, inc := range []int64{9, 10} {
			for _, keep := range []bool{false, true} {
				if err := r.s.Load(ctx, q, []LoadRequest{{Partition: 2, Incarnation: inc, Keep: keep}}); !errors.Is(err, ErrStale) {
					t.Fatal(inc, keep, err)
				}
			}
		}
		before := r.export(q, 2)
		if err := r.s.Clean(ctx, q, []Exported{before}); err != nil {
			t.Fatal(err)
		}
		r.load(q, LoadRequest{Partition: 2, Incarnation: 11, Keep: true})
		es, err := r.s.Export(ctx, q, nil)
		if err != nil || len(es) != 1 || es[0].Shard.Incarnation != 11 || es[0].Shard.Sequence <= before.Shard.Sequence || es[0].Shard.Frontier != 16 {
			t.Fatalf("%+v %v", es, err)
		}
		have, err := r.s.Survey(ctx, q)
		if err != nil || len(have) != 1 || have[2] != es[0].Shard.Version {
			t.Fatal(have, err)
		}
		if err := r.s.Load(ctx, q, []LoadRequest{{Partition: 3, Incarnation: 12, Keep: true}}); !errors.Is(err, ErrStale) {
			t.Fatal("kept what is not there", err)
		}
		if err := r.s.Ready(ctx, q, r.s.Life()+1); !errors.Is(err, ErrStale) {
			t.Fatal(err)
		}
	})
}

// A shard that takes several scripts is absent until the last of them.
func TestLoadInSteps(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rig) {
		q := queue(32)
		l := LoadRequest{Partition: 0, Incarnation: 1}
		var ranges, pointers int64 = 500, loadStep * 2
		for i := range ranges {
			l.Shard.Settled = append(l.Shard.Settled, journal.Range{From: 2*i + 1, To: 2*i + 2})
		}
		for i := range pointers {
			l.Pointers = append(l.Pointers, journal.Pointer{Offset: 5000 + i, Kind: journal.Retry, Attempts: 1, Due: 1})
		}
		r.load(q, l)
		if s := r.stats(q, 0); s.AckedAhead != ranges || s.Owed != pointers || s.Frontier != 0 || s.Cursor != 0 {
			t.Fatalf("%+v", s)
		}
		r.audit(q)
		// Another one overtakes an opening under way.
		e := r.s.edition.Load()
		step := func(inc int64, name string) error {
			_, err := r.s.eval(t.Context(), e, scriptLoad, q, []any{0, inc, name, 0, 0, 0, 0, 0})
			return err
		}
		if err := errors.Join(step(5, "first"), step(5, "more")); err != nil {
			t.Fatal(err)
		}
		if a := r.acquire(q, 1, at(0, 1)); len(a.Absent) != 1 || len(a.Grants) != 0 {
			t.Fatalf("a half loaded shard is used: %+v", a)
		}
		for _, err := range []error{step(4, "first"), step(4, "last"), step(6, "last")} {
			if !errors.Is(err, ErrStale) {
				t.Fatal(err)
			}
		}
		if err := step(7, "first"); err != nil {
			t.Fatal(err)
		}
		if err := step(5, "last"); !errors.Is(err, ErrStale) {
			t.Fatal(err)
		}
		if err := step(7, "last"); err != nil {
			t.Fatal(err)
		}
		r.wantGrants(r.acquire(q, 1, at(0, 1)), "0:0+1/1")
		r.audit(q)
	})
}

// Retention has overtaken the subscription.
func TestGaps(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rig) {
		q := queue(33)
		r.open(q, 0, 1)
		a := r.acquire(q, 10, at(0, 10))
		rs := receipts(a.Grants...)
		r.wantOK(q, OpAck, SettleOptions{}, "11", rs[3], rs[7])
		r.wantOK(q, OpNack, SettleOptions{}, "1", rs[1])
		r.wantOK(q, OpNack, SettleOptions{}, "1", rs[8])
		late := []Fresh{{0, 6, 20}, {1, 0, 5}}
		g := r.acquire(q, 10, late...)
		if fmt.Sprint(g.Gaps) != "[{0 0 6}]" || len(g.Grants) != 0 {
			t.Fatalf("%+v", g)
		}
		q.SkipGaps = true
		g = r.acquire(q, 3, late...)
		if len(g.Gaps) != 0 {
			t.Fatalf("%+v", g)
		}
		if s := r.stats(q, 0); s.Frontier != 6 || s.Cursor < 10 || s.AckedAhead != 1 {
			t.Fatalf("%+v", s)
		}
		r.audit(q)
		// What was leased or owed below is told by reading: skipped then.
		var below []Receipt
		for _, rc := range append(receipts(g.Grants...), rs...) {
			if rc.Partition == 0 && rc.Offset < 6 {
				below = append(below, rc)
			}
		}
		r.settle(q, OpSkip, SettleOptions{Reason: "expired"}, below...)
		r.audit(q)
		// A gap beyond everything known.
		g = r.acquire(q, 1, Fresh{1, 100, 200})
		r.wantGrants(g, "1:100+1/1")
		if s := r.stats(q, 1); s.Skipped < 95 || s.Frontier != 100 {
			t.Fatalf("%+v", s)
		}
		r.audit(q)
	})
}

func TestGroups(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rig) {
		ctx := t.Context()
		a, b := queue(40), queue(41+64*3)
		r.open(a, 0)
		r.open(b, 0)
		due := func(want ...metadata.SubscriptionID) {
			t.Helper()
			ids, err := r.s.DueSubscriptions(ctx)
			slices.Sort(ids)
			if err != nil || !slices.Equal(ids, want) {
				t.Fatal(ids, want, err)
			}
		}
		due()
		got := r.acquireFor(a, 1, lease, at(0, 9))
		rc := receipts(r.acquireFor(b, 1, time.Hour, at(0, 9)).Grants...)
		r.wantOK(b, OpNack, SettleOptions{Delay: lease}, "1", rc...)
		due()
		if got.NextDue <= 0 || got.NextDue > lease {
			t.Fatal(got.NextDue)
		}
		r.advance(lease)
		due(40, 41+64*3)
		if e := r.sweep(a); e.Lapsed != 1 || e.Freed != 1 || e.NextDue != -1 {
			t.Fatalf("%+v", e)
		}
		if e := r.sweep(b); e.Lapsed != 0 || e.Freed != 1 || e.NextDue != -1 {
			t.Fatalf("%+v", e)
		}
		due() // announced once; it is there until somebody takes it
		r.wantGrants(r.acquire(b, 1, at(0, 9)), "0:0+1/2")
		idle, err := r.s.IdleSubscriptions(ctx, 0)
		slices.Sort(idle)
		if err != nil || len(idle) != 2 {
			t.Fatal(idle, err)
		}
		if idle, err = r.s.IdleSubscriptions(ctx, time.Hour); err != nil || len(idle) != 0 {
			t.Fatal(idle, err)
		}
		// Nothing that is leased, due or dirty leaves.
		if gone, err := r.s.Evict(ctx, b); gone || err != nil {
			t.Fatal(gone, err)
		}
		c := r.acquire(a, 1, at(0, 9))
		r.wantOK(a, OpAck, SettleOptions{}, "1", receipts(c.Grants...)...)
		if gone, err := r.s.Evict(ctx, a); gone || err != nil {
			t.Fatal(gone, err)
		}
		if err := r.s.Clean(ctx, a, []Exported{r.export(a, 0)}); err != nil {
			t.Fatal(err)
		}
		if gone, err := r.s.Evict(ctx, a); !gone || err != nil {
			t.Fatal(gone, err)
		}
		_, err = r.s.Stats(ctx, a)
		wantNotLoaded(t, err)
		if err := r.s.Drop(ctx, b); err != nil {
			t.Fatal(err)
		}
		if keys := r.raw.Keys(ctx, "*").Val(); len(keys) != 0 {
			t.Fatal("left behind", keys)
		}
	})
}
