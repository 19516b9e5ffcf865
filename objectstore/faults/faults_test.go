package faults_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"go.uber.org/goleak"

	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/objectstore/faults"
	"github.com/forebaymq/forebay/objectstore/mem"
	"github.com/forebaymq/forebay/objectstore/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func wrap(t *testing.T, clock clockwork.Clock, spec string) (*faults.Store, *mem.Store) {
	t.Helper()
	plan, err := faults.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	inner := mem.New(mem.Options{})
	s, err := faults.New(inner, faults.Options{Plan: plan, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, inner
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) objectstore.Store {
		s, _ := wrap(t, nil, "")
		return s
	}, storetest.Options{})
}

// TestConformanceSlow: delays change nothing but the time.
func TestConformanceSlow(t *testing.T) {
	storetest.Run(t, func(t *testing.T) objectstore.Store {
		s, _ := wrap(t, nil, "*:latency=lognormal(1us,10us)+size(10us)")
		return s
	}, storetest.Options{BigObject: 64 << 10})
}

// call runs one operation on key "k".
func call(ctx context.Context, s objectstore.Store, op objectstore.Op) error {
	var err error
	switch op {
	case objectstore.OpGet:
		_, _, err = s.Get(ctx, "k")
	case objectstore.OpGetRange:
		_, err = s.GetRange(ctx, "k", 0, 1)
	case objectstore.OpGetTail:
		_, _, err = s.GetTail(ctx, "k", 1)
	case objectstore.OpPut:
		_, err = s.PutIfAbsent(ctx, "k", []byte("body"), "w")
	case objectstore.OpPutMatch:
		_, err = s.PutIfMatch(ctx, "k", "1", []byte("new"), "w2")
	case objectstore.OpList:
		_, err = s.List(ctx, "k", "", 10)
	case objectstore.OpDelete:
		err = s.Delete(ctx, "k")
	case objectstore.OpStat:
		_, err = s.Stat(ctx, "k")
	}
	return err
}

// TestErrors has every kind on every operation that it can befall.
func TestErrors(t *testing.T) {
	const (
		none  = iota // the operation has no effect
		done         // it has
		later        // it has after a while
	)
	for _, tc := range []struct {
		kind   string
		ops    []objectstore.Op
		want   error // nil: indefinite
		effect int
	}{
		{"500", objectstore.Ops(), objectstore.ErrUnavailable, none},
		{"unavailable", objectstore.Ops(), objectstore.ErrUnavailable, none},
		{"503", objectstore.Ops(), objectstore.ErrThrottled, none},
		{"429", objectstore.Ops(), objectstore.ErrThrottled, none},
		{"409", []objectstore.Op{objectstore.OpPut, objectstore.OpPutMatch}, objectstore.ErrConflict, none},
		{"412", []objectstore.Op{objectstore.OpPut}, objectstore.ErrExists, none},
		{"412", []objectstore.Op{objectstore.OpPutMatch}, objectstore.ErrPreconditionFailed, none},
		{"404", []objectstore.Op{objectstore.OpGet, objectstore.OpGetRange, objectstore.OpGetTail, objectstore.OpStat, objectstore.OpPutMatch}, objectstore.ErrNotFound, none},
		{"truncated", []objectstore.Op{objectstore.OpGet, objectstore.OpGetRange, objectstore.OpGetTail}, objectstore.ErrTruncated, none},
		{"lost", []objectstore.Op{objectstore.OpPut, objectstore.OpPutMatch, objectstore.OpDelete}, nil, done},
		{"unknown", []objectstore.Op{objectstore.OpPut, objectstore.OpPutMatch, objectstore.OpDelete}, nil, none},
		{"late(5s)", []objectstore.Op{objectstore.OpPut, objectstore.OpPutMatch}, nil, later},
	} {
		for _, op := range tc.ops {
			t.Run(tc.kind+" "+string(op), func(t *testing.T) {
				clock := clockwork.NewFakeClock()
				s, inner := wrap(t, clock, string(op)+":error="+tc.kind)
				if op != objectstore.OpPut {
					if err := call(t.Context(), inner, objectstore.OpPut); err != nil {
						t.Fatal(err)
					}
				}
				err := call(t.Context(), s, op)
				if objectstore.IsIndefinite(err) != (tc.want == nil) || tc.want != nil && !errors.Is(err, tc.want) || !errors.Is(err, faults.ErrInjected) {
					t.Fatalf("got %v, want %v", err, tc.want)
				}
				var failed objectstore.KeyErrors
				if errors.As(err, &failed) != (op == objectstore.OpDelete) {
					t.Errorf("got %T", err)
				}
				effect := func() bool {
					body, _, err := inner.Get(t.Context(), "k")
					switch op {
					case objectstore.OpPut:
						return err == nil
					case objectstore.OpPutMatch:
						return string(body) == "new"
					case objectstore.OpDelete:
						return errors.Is(err, objectstore.ErrNotFound)
					}
					return false
				}
				if got := effect(); got != (tc.effect == done) {
					t.Errorf("effect: %v", got)
				}
				if tc.effect == later {
					clock.Advance(5 * time.Second)
					for !effect() { // the effect comes on its own goroutine, with nobody to signal it
						if t.Context().Err() != nil {
							t.Fatal("the effect did not come")
						}
					}
				}
			})
		}
	}
}

// putCounter counts the puts that reach it.
type putCounter struct {
	objectstore.Store
	puts atomic.Int64
}

func (c *putCounter) PutIfAbsent(ctx context.Context, key string, body []byte, id string) (objectstore.Info, error) {
	c.puts.Add(1)
	return c.Store.PutIfAbsent(ctx, key, body, id)
}

func TestLateNeverComesAfterClose(t *testing.T) {
	clock := clockwork.NewFakeClock()
	inner := &putCounter{Store: mem.New(mem.Options{})}
	s, err := faults.New(inner, faults.Options{Clock: clock, Plan: faults.Plan{Rules: []faults.Rule{{
		Ops: []objectstore.Op{objectstore.OpPut}, Error: faults.Late, LateBy: 5 * time.Second,
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := call(t.Context(), s, objectstore.OpPut); !objectstore.IsIndefinite(err) {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	clock.Advance(time.Minute)
	if n := inner.puts.Load(); n != 0 {
		t.Errorf("%d puts came after Close", n)
	}
	if err := call(t.Context(), s, objectstore.OpPut); !errors.Is(err, objectstore.ErrUnavailable) || objectstore.IsIndefinite(err) {
		t.Errorf("put after close: %v", err)
	}
}

// TestDue says which of twelve calls a rule acts on.
func TestDue(t *testing.T) {
	for rule, want := range map[string]string{
		"put:error=503":                       "xxxxxxxxxxxx",
		"put:every=3:error=503":               "..x..x..x..x",
		"put:skip=2:every=3:error=503":        "....x..x..x.",
		"put:skip=2:error=503":                "..xxxxxxxxxx",
		"put:count=2:error=503":               "xx..........",
		"put:skip=1:every=2:count=3:error=50": "", // replaced below: a kind that does not exist
		"put:prefix=a:error=503":              "x...x...x...",
		"put:prefix=ab:error=503":             "............",
		"stat:error=503":                      "............",
		"put:p=1:error=503":                   "xxxxxxxxxxxx",
	} {
		if want == "" {
			if _, err := faults.Parse(rule); err == nil {
				t.Errorf("%s is taken", rule)
			}
			continue
		}
		s, _ := wrap(t, nil, rule)
		var got strings.Builder
		for i := range 12 {
			key := fmt.Sprintf("%c/%d", "abcd"[i%4], i)
			if _, err := s.PutIfAbsent(t.Context(), key, nil, "w"); err == nil {
				got.WriteByte('.')
			} else {
				got.WriteByte('x')
			}
		}
		if got.String() != want {
			t.Errorf("%s acts on %s, want %s", rule, got.String(), want)
		}
		if c := s.Counts()[0]; c.Acted != strings.Count(want, "x") {
			t.Errorf("%s: counts %+v", rule, c)
		}
	}
}

// TestDeterministic: one seed, one history; another seed, another; and a rule's draws do not depend on the other rules.
func TestDeterministic(t *testing.T) {
	history := func(spec string) string {
		s, _ := wrap(t, nil, spec)
		var b strings.Builder
		for i := range 200 {
			_, err := s.PutIfAbsent(t.Context(), fmt.Sprint(i), nil, "w")
			b.WriteString(string(objectstore.OutcomeOf(err)[:2]))
		}
		return b.String()
	}
	one := history("seed=1;put:p=0.3:error=503")
	if one != history("seed=1;put:p=0.3:error=503") {
		t.Error("the same seed gives another history")
	}
	if one == history("seed=2;put:p=0.3:error=503") {
		t.Error("another seed gives the same history")
	}
	if one != history("seed=1;put:p=0.3:error=503;get:p=0.5:error=503") {
		t.Error("a rule about something else changes the history")
	}
	if n := strings.Count(one, "th"); n < 40 || n > 80 {
		t.Errorf("%d of 200 puts failed, want about 60", n)
	}
}

func TestTruncate(t *testing.T) {
	s, inner := wrap(t, nil, "read:truncate=0.5")
	if _, err := inner.PutIfAbsent(t.Context(), "k", []byte("0123456789"), "w"); err != nil {
		t.Fatal(err)
	}
	body, info, err := s.Get(t.Context(), "k")
	if string(body) != "01234" || info.Size != 10 || err != nil {
		t.Errorf("get: %q, %+v, %v", body, info, err)
	}
	if body, err = s.GetRange(t.Context(), "k", 2, 4); string(body) != "23" || err != nil {
		t.Errorf("get range: %q, %v", body, err)
	}
}

func TestDeleteFailsSomeKeys(t *testing.T) {
	s, inner := wrap(t, nil, "delete:prefix=bad/:error=500")
	for _, key := range []string{"bad/1", "good/1", "bad/2"} {
		if _, err := inner.PutIfAbsent(t.Context(), key, nil, "w"); err != nil {
			t.Fatal(err)
		}
	}
	err := s.Delete(t.Context(), "bad/1", "good/1", "bad/2", "a//b")
	var failed objectstore.KeyErrors
	if !errors.As(err, &failed) || len(failed) != 3 || !errors.Is(failed["bad/1"], objectstore.ErrUnavailable) || !errors.Is(failed["a//b"], objectstore.ErrInvalidKey) {
		t.Errorf("delete: %v", err)
	}
	page, err := inner.List(t.Context(), "", "", 10)
	if err != nil || len(page.Objects) != 2 {
		t.Errorf("left: %+v, %v, want the two bad ones", page.Objects, err)
	}
}

func TestDelay(t *testing.T) {
	clock := clockwork.NewFakeClock()
	s, inner := wrap(t, clock, "put:latency=1s+size(2s);get:latency=3s")
	done := make(chan error)
	go func() {
		_, err := s.PutIfAbsent(t.Context(), "k", make([]byte, 1<<20), "w")
		done <- err
	}()
	block := func() {
		t.Helper()
		if err := clock.BlockUntilContext(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
	}
	block()
	clock.Advance(3*time.Second - 1)
	select {
	case err := <-done:
		t.Fatalf("put ended too early: %v", err)
	default:
	}
	if _, err := inner.Stat(t.Context(), "k"); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("the effect came before the delay: %v", err)
	}
	clock.Advance(1)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, err := s.PutIfAbsent(ctx, "l", nil, "w")
		done <- err
	}()
	block()
	cancel()
	if err := <-done; !objectstore.IsIndefinite(err) || !errors.Is(err, context.Canceled) {
		t.Errorf("put whose context ends under way: %v, want unknown", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	go func() {
		_, _, err := s.Get(ctx, "k")
		done <- err
	}()
	block()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("get whose context ends under way: %v", err)
	}
}

// TestS3Like checks the quantiles that the profile promises.
func TestS3Like(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, tc := range []struct {
		op       objectstore.Op
		size     int64
		p50, p99 time.Duration
	}{
		{objectstore.OpPut, 4 << 20, 80 * time.Millisecond, 300 * time.Millisecond},
		{objectstore.OpGetRange, 1 << 20, 30 * time.Millisecond, 120 * time.Millisecond},
	} {
		for _, rule := range faults.S3Like() {
			if !slices.Contains(rule.Ops, tc.op) {
				continue
			}
			draws := make([]time.Duration, 20_000)
			for i := range draws {
				draws[i] = rule.Latency.Sample(r, tc.size)
			}
			slices.Sort(draws)
			near := func(q int, want time.Duration) {
				got := draws[len(draws)*q/100]
				if diff := float64(got-want) / float64(want); diff < -0.08 || diff > 0.08 {
					t.Errorf("%s p%d: %v, want %v", tc.op, q, got, want)
				}
			}
			near(50, tc.p50)
			near(99, tc.p99)
		}
	}
}
