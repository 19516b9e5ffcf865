package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebaymq/forebay/metadata"
)

func TestPeek(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rig) {
		for i, kind := range []string{"plain", "fair"} {
			q := queue(150)
			q.ID += metadata.SubscriptionID(i)
			q.Fair = kind == "fair"
			r.open(q, 0, 1)
			if q.Fair {
				r.admit(q, 0, 0, 1, 2, 3, 4, 5)
			}
			a := r.acquire(q, 3, at(0, 5))
			rs := receipts(a.Grants...)
			r.wantOK(q, OpNack, SettleOptions{Delay: time.Hour}, "1", rs[0])
			r.wantOK(q, OpNack, SettleOptions{}, "1", rs[1])
			ps, err := r.s.Peek(t.Context(), q, 10, []Fresh{at(0, 5), at(1, 2), at(9, 3)})
			if err != nil {
				t.Fatal(err)
			}
			seen := map[string]bool{}
			for _, p := range ps {
				due := "now"
				if p.Due > 0 {
					due = "later"
				}
				seen[fmt.Sprintf("%d:%d/%d %s", p.Partition, p.Offset, p.Attempt, due)] = true
			}
			want := []string{"0:1/2 now", "0:3/1 now", "0:4/1 now", "0:0/2 later"}
			if !q.Fair {
				want = append(want, "1:0/1 now", "1:1/1 now")
			}
			for _, w := range want {
				if !seen[w] {
					t.Errorf("%s: %s is missing in %v", kind, w, ps)
				}
			}
			if last := ps[len(ps)-1]; len(ps) != len(want) || last.Due == 0 {
				t.Errorf("%v", ps)
			}
			if s := r.stats(q, 0); s.InFlight != 1 {
				t.Fatal("a look leased something")
			}
			if ps, err := r.s.Peek(t.Context(), q, 2, []Fresh{at(0, 5)}); len(ps) != 2 || err != nil {
				t.Fatal(ps, err)
			}
		}
	})
}

func TestRemember(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rig) {
		ctx := t.Context()
		q := queue(160)
		r.open(q, 0, 1)
		a := r.acquire(q, 6, at(0, 4), at(1, 9))
		rs := receipts(a.Grants...)
		if err := r.s.Remember(ctx, q, "req ü/1", rs, time.Minute); err != nil {
			t.Fatal(err)
		}
		r.wantOK(q, OpAck, SettleOptions{}, "11", rs[1], rs[4])
		got, err := r.s.Recall(ctx, q, "req ü/1")
		if err != nil || len(got) != 4 {
			t.Fatal(got, err)
		}
		for _, g := range got {
			if g.Attempt != 1 || g.Expires != a.Grants[0].Expires || g.Receipt == rs[1] || g.Receipt == rs[4] {
				t.Fatalf("%+v", g)
			}
		}
		if got, err := r.s.Recall(ctx, q, "another"); err != nil || len(got) != 0 {
			t.Fatal(got, err)
		}
		if err := r.s.Remember(ctx, q, "short", rs, time.Millisecond); err != nil {
			t.Fatal(err)
		}
		r.advance(10 * time.Millisecond)
		if got, err := r.s.Recall(ctx, q, "short"); err != nil || len(got) != 0 {
			t.Fatal(got, err)
		}
	})
}

func TestHints(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rig) {
		ctx := t.Context()
		q := queue(161)
		lock := func(holder string, want bool) {
			t.Helper()
			if ok, err := r.s.Lock(ctx, q, "redrive", holder, 2*lease); ok != want || err != nil {
				t.Fatal(holder, ok, err)
			}
		}
		lock("a", true)
		lock("a", true)
		lock("b", false)
		if err := r.s.Unlock(ctx, q, "redrive", "b"); err != nil {
			t.Fatal(err)
		}
		lock("b", false)
		if err := r.s.Unlock(ctx, q, "redrive", "a"); err != nil {
			t.Fatal(err)
		}
		lock("b", true)
		r.advance(2 * lease)
		lock("a", true)
	})
}

func TestNotify(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rig) {
		ctx, cancel := context.WithCancel(t.Context())
		got, done := make(chan Wake, 100), make(chan error)
		go func() { done <- r.s.Listen(ctx, func(w Wake) { got <- w }) }()
		want := []Wake{{Subscription: 1 << 63, Freed: 3}, {Subscription: 2, Due: 1500 * time.Millisecond}}
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for i := range want {
			for heard := false; !heard; {
				if err := r.s.Notify(ctx, want[i]); err != nil { // nobody listens until the subscription is there
					t.Fatal(err)
				}
				select {
				case w := <-got:
					if heard = w == want[i]; !heard && (i == 0 || w != want[i-1]) {
						t.Fatalf("%+v, want %+v", w, want[i])
					}
				case <-tick.C:
				}
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

// A listener survives its Redis.
func TestListenConnectsAgain(t *testing.T) {
	t.Parallel()
	r := realRig(t, 3)
	ctx, cancel := context.WithCancel(t.Context())
	got, done := make(chan Wake, 1000), make(chan error)
	go func() { done <- r.s.Listen(ctx, func(w Wake) { got <- w }) }()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	hear := func(n int) {
		for {
			_ = r.s.Notify(ctx, Wake{Subscription: 1, Freed: n})
			select {
			case w := <-got:
				if w.Freed == n {
					return
				}
			case <-tick.C:
			}
		}
	}
	hear(1)
	r.server.Restart()
	hear(2)
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	_, err := New(t.Context(), Options{URL: "http://x", Fabric: "a.b"})
	if err == nil {
		t.Fatal("no error")
	}
	for _, part := range []string{"URL", "Fabric", "Instance"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not name %s", err, part)
		}
	}
	reg := prometheus.NewRegistry()
	m := miniRig(t)
	mustStore(t, Options{URL: m.url, Registerer: reg})
	if _, err := New(t.Context(), Options{URL: m.url, Fabric: "x", Instance: "y", Registerer: reg}); err == nil {
		t.Fatal("registered twice")
	}
	// Without a Redis the store starts, answers 503, and works when Redis comes.
	s := mustStore(t, Options{URL: "redis://127.0.0.1:1"})
	wantUnavailable(t, s.Ping(t.Context()))
	_, err = s.Survey(t.Context(), queue(1))
	wantUnavailable(t, err)
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	if families, err := reg.Gather(); err != nil || len(families) < 3 {
		t.Fatal(families, err)
	}
}
