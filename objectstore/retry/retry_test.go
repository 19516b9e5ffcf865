package retry_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/objectstore/faults"
	"github.com/forebaymq/forebay/objectstore/mem"
	"github.com/forebaymq/forebay/objectstore/retry"
	"github.com/forebaymq/forebay/objectstore/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func wrap(t *testing.T, inner objectstore.Store, o retry.Options) *retry.Store {
	t.Helper()
	s, err := retry.New(inner, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// quick has waits that take no time worth mentioning.
func quick() retry.Options {
	return retry.Options{Attempts: 4, Base: time.Microsecond, Max: time.Microsecond}
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) objectstore.Store { return wrap(t, mem.New(mem.Options{}), quick()) }, storetest.Options{})
}

// TestConformanceOverFaults: with retries, a store that fails every third request in every way looks whole. Only a replacement whose
// answer is lost cannot be hidden: a rival may have replaced it in turn.
func TestConformanceOverFaults(t *testing.T) {
	plan, err := faults.Parse("seed=7;put:every=3:error=lost;put:every=4:error=unknown;put,put_match:p=0.1:error=409;" +
		"*:p=0.1:error=503;*:p=0.1:error=500;read:p=0.1:error=truncated;delete:p=0.2:error=lost")
	if err != nil {
		t.Fatal(err)
	}
	storetest.Run(t, func(t *testing.T) objectstore.Store {
		f, err := faults.New(mem.New(mem.Options{}), faults.Options{Plan: plan})
		if err != nil {
			t.Fatal(err)
		}
		o := quick()
		o.Attempts = 30
		return wrap(t, f, o)
	}, storetest.Options{BigObject: 64 << 10})
}

// scripted answers each operation by its script, then passes on. A step may have the effect or not.
type scripted struct {
	objectstore.Store
	steps []step
	calls []string
}

type step struct {
	effect bool  // the write is done
	err    error // what the caller is told
}

func (s *scripted) next(op string) (step, bool) {
	s.calls = append(s.calls, op)
	if len(s.steps) == 0 {
		return step{}, false
	}
	st := s.steps[0]
	s.steps = s.steps[1:]
	return st, true
}

func (s *scripted) PutIfAbsent(ctx context.Context, key string, body []byte, id string) (objectstore.Info, error) {
	st, ok := s.next("put " + id)
	if !ok {
		return s.Store.PutIfAbsent(ctx, key, body, id)
	}
	if st.effect {
		if _, err := s.Store.PutIfAbsent(ctx, key, body, id); err != nil {
			return objectstore.Info{}, err
		}
	}
	return objectstore.Info{Key: key}, st.err
}

func (s *scripted) PutIfMatch(ctx context.Context, key, etag string, body []byte, id string) (objectstore.Info, error) {
	st, ok := s.next("match " + id)
	if !ok {
		return s.Store.PutIfMatch(ctx, key, etag, body, id)
	}
	if st.effect {
		if _, err := s.Store.PutIfMatch(ctx, key, etag, body, id); err != nil {
			return objectstore.Info{}, err
		}
	}
	return objectstore.Info{Key: key}, st.err
}

func (s *scripted) Stat(ctx context.Context, key string) (objectstore.Info, error) {
	s.calls = append(s.calls, "stat")
	return s.Store.Stat(ctx, key)
}

func unknown() error {
	return &objectstore.OutcomeUnknownError{Op: "put", Key: "k", Cause: errors.New("connection reset")}
}

// TestPutIfAbsent has what a store may answer to the attempts of one put, cases S1 and S2 among them. rival puts an object of another
// writer there first.
func TestPutIfAbsent(t *testing.T) {
	conflict, exists, down := objectstore.ErrConflict, objectstore.ErrExists, objectstore.ErrUnavailable
	for _, tc := range []struct {
		name       string
		rival      bool
		steps      []step
		want       error // nil: success
		indefinite bool
		calls      string
	}{
		{"at once", false, nil, nil, false, "put"},
		{"rival", true, nil, exists, false, "put"},
		{"S1 answer lost, store compares IDs", false, []step{{true, unknown()}}, nil, false, "put,put"},
		{"S1 answer lost, store answers 412 to ourselves", false, []step{{true, unknown()}, {false, exists}}, nil, false, "put,put,stat"},
		{"S1 answer lost without effect, a rival won", true, []step{{false, unknown()}, {false, exists}}, exists, false, "put,put,stat"},
		{"412 to ourselves without an unknown attempt", false, []step{{false, exists}}, exists, false, "put"},
		{"unknown, then exists, then gone", false, []step{{false, unknown()}, {false, exists}}, nil, false, "put,put,stat,put"},
		{"S2 409 twice, then 200", false, []step{{false, conflict}, {false, conflict}}, nil, false, "put,put,put"},
		{"S2 409, then 412", true, []step{{false, conflict}, {false, exists}}, exists, false, "put,put"},
		{"S2 409 without end", false, []step{{false, conflict}, {false, conflict}, {false, conflict}, {false, conflict}}, conflict, true, "put,put,put,put"},
		{"409 after unknown without end", false, []step{{false, unknown()}, {false, conflict}, {false, conflict}, {false, conflict}}, conflict, true, "put,put,put,put"},
		{"down without end", false, []step{{false, down}, {false, down}, {false, down}, {false, down}}, down, false, "put,put,put,put"},
		{"unknown, then down without end", false, []step{{true, unknown()}, {false, down}, {false, down}, {false, down}}, down, true, "put,put,put,put"},
		{"unknown without end", false, []step{{true, unknown()}, {true, unknown()}, {true, unknown()}, {true, unknown()}}, errAny, true, "put,put,put,put"},
		{"throttled, then fine", false, []step{{false, objectstore.ErrThrottled}}, nil, false, "put,put"},
		{"invalid", false, []step{{false, objectstore.ErrInvalidKey}}, objectstore.ErrInvalidKey, false, "put"},
		{"unknown, then invalid", false, []step{{true, unknown()}, {false, objectstore.ErrInvalidKey}}, objectstore.ErrInvalidKey, true, "put,put"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inner := mem.New(mem.Options{})
			if tc.rival {
				if _, err := inner.PutIfAbsent(t.Context(), "k", []byte("rival"), "rival"); err != nil {
					t.Fatal(err)
				}
			}
			script := &scripted{Store: inner, steps: tc.steps}
			info, err := wrap(t, script, quick()).PutIfAbsent(t.Context(), "k", []byte("ours"), "me")
			checkWrite(t, err, tc.want, tc.indefinite)
			if err == nil && (info.Size != 4 || info.ID != "me") {
				t.Errorf("info %+v", info)
			}
			if got := strings.ReplaceAll(strings.Join(script.calls, ","), "put me", "put"); got != tc.calls {
				t.Errorf("calls %s, want %s, all with our ID", got, tc.calls)
			}
		})
	}
}

// errAny stands for an error of no class.
var errAny = errors.New("any")

func checkWrite(t *testing.T, err, want error, indefinite bool) {
	t.Helper()
	if (err == nil) != (want == nil) || want != nil && !errors.Is(want, errAny) && !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
	if objectstore.IsIndefinite(err) != indefinite {
		t.Errorf("%v: indefinite %v, want %v", err, !indefinite, indefinite)
	}
}

func TestPutIfMatch(t *testing.T) {
	changed := objectstore.ErrPreconditionFailed
	for _, tc := range []struct {
		name       string
		steps      []step
		replaced   bool // by a rival, after the first attempt
		want       error
		indefinite bool
		calls      string
	}{
		{"at once", nil, false, nil, false, "match"},
		{"another version", []step{{false, changed}}, false, changed, false, "match"},
		{"answer lost, our own version found", []step{{true, unknown()}}, false, nil, false, "match,match,stat"},
		{"no effect, then done", []step{{false, unknown()}}, false, nil, false, "match,match"},
		{"answer lost, replaced by a rival since", []step{{true, unknown()}}, true, changed, true, "match,match,stat"},
		{"conflict, then done", []step{{false, objectstore.ErrConflict}}, false, nil, false, "match,match"},
		{"unsupported", []step{{false, objectstore.ErrUnsupported}}, false, objectstore.ErrUnsupported, false, "match"},
		{"unknown, then deleted", []step{{false, unknown()}, {false, objectstore.ErrNotFound}}, false, objectstore.ErrNotFound, true, "match,match"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inner := mem.New(mem.Options{})
			first, err := inner.PutIfAbsent(t.Context(), "k", []byte("one"), "first")
			if err != nil {
				t.Fatal(err)
			}
			script := &scripted{Store: inner, steps: tc.steps}
			o := quick()
			o.Rand = func() float64 { // called between the attempts
				if tc.replaced {
					now, err := inner.Stat(t.Context(), "k")
					if err == nil {
						_, err = inner.PutIfMatch(t.Context(), "k", now.ETag, []byte("rival"), "rival")
					}
					if err != nil {
						t.Error(err)
					}
				}
				return 0
			}
			_, err = wrap(t, script, o).PutIfMatch(t.Context(), "k", first.ETag, []byte("two"), "me")
			checkWrite(t, err, tc.want, tc.indefinite)
			if got := strings.ReplaceAll(strings.Join(script.calls, ","), "match me", "match"); got != tc.calls {
				t.Errorf("calls %s, want %s", got, tc.calls)
			}
		})
	}
}

func TestReads(t *testing.T) {
	for _, tc := range []struct {
		spec string
		want error
	}{
		{"*:count=3:error=500", nil},
		{"*:count=3:error=503", nil},
		{"*:count=4:error=503", objectstore.ErrThrottled},
		{"*:error=500", objectstore.ErrUnavailable},
		{"read:count=2:error=truncated", nil},
		{"read,stat:count=1:error=404", objectstore.ErrNotFound},
	} {
		plan, err := faults.Parse(tc.spec)
		if err != nil {
			t.Fatal(err)
		}
		inner := mem.New(mem.Options{})
		if _, err := inner.PutIfAbsent(t.Context(), "k", []byte("body"), "w"); err != nil {
			t.Fatal(err)
		}
		for name, read := range map[string]func(s objectstore.Store) error{
			"get":       func(s objectstore.Store) error { _, _, err := s.Get(t.Context(), "k"); return err },
			"get range": func(s objectstore.Store) error { _, err := s.GetRange(t.Context(), "k", 0, 1); return err },
			"get tail":  func(s objectstore.Store) error { _, _, err := s.GetTail(t.Context(), "k", 1); return err },
			"list":      func(s objectstore.Store) error { _, err := s.List(t.Context(), "", "", 1); return err },
			"stat":      func(s objectstore.Store) error { _, err := s.Stat(t.Context(), "k"); return err },
		} {
			f, err := faults.New(inner, faults.Options{Plan: plan})
			if err != nil {
				t.Fatal(err)
			}
			want := tc.want
			if rule := plan.Rules[0]; name == "list" && !slices.Contains(rule.Ops, objectstore.OpList) {
				want = nil
			}
			if err := read(wrap(t, f, quick())); !errors.Is(err, want) {
				t.Errorf("%s over %s: %v, want %v", name, tc.spec, err, want)
			}
		}
	}
}

func TestDelete(t *testing.T) {
	inner := mem.New(mem.Options{})
	plan, err := faults.Parse("delete:prefix=slow/:count=2:error=503;delete:prefix=dead/:error=lost")
	if err != nil {
		t.Fatal(err)
	}
	f, err := faults.New(inner, faults.Options{Plan: plan})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"good/1", "slow/1", "slow/2"} {
		if _, err := inner.PutIfAbsent(t.Context(), key, nil, "w"); err != nil {
			t.Fatal(err)
		}
	}
	s := wrap(t, f, quick())
	if err := s.Delete(t.Context(), "good/1", "slow/1", "slow/2"); err != nil {
		t.Errorf("delete over passing errors: %v", err)
	}
	if page, err := inner.List(t.Context(), "", "", 10); err != nil || len(page.Objects) != 0 {
		t.Errorf("left %+v, %v", page, err)
	}
	err = s.Delete(t.Context(), "a//b", "dead/1")
	var failed objectstore.KeyErrors
	if !errors.As(err, &failed) || len(failed) != 2 || !errors.Is(failed["a//b"], objectstore.ErrInvalidKey) || !objectstore.IsIndefinite(failed["dead/1"]) {
		t.Errorf("delete: %v", err)
	}
	if err := s.Delete(t.Context(), make([]string, 1001)...); !errors.Is(err, objectstore.ErrInvalidArgument) {
		t.Errorf("delete of too many: %v", err)
	}
}

// TestWaits checks the waits: doubling from Base to Max, drawn from the upper half.
func TestWaits(t *testing.T) {
	for _, tc := range []struct {
		rand float64
		want []time.Duration
	}{
		{0, []time.Duration{50, 100, 200, 250, 250}},
		{0.5, []time.Duration{75, 150, 300, 375, 375}},
	} {
		clock := clockwork.NewFakeClock()
		script := &scripted{Store: mem.New(mem.Options{})}
		for range tc.want {
			script.steps = append(script.steps, step{false, objectstore.ErrUnavailable})
		}
		s := wrap(t, script, retry.Options{
			Attempts: 6, Base: 100 * time.Millisecond, Max: 500 * time.Millisecond, PerTry: -1, Clock: clock, Rand: func() float64 { return tc.rand },
		})
		done := make(chan error)
		go func() {
			_, err := s.PutIfAbsent(t.Context(), "k", nil, "w")
			done <- err
		}()
		for i, want := range tc.want {
			want *= time.Millisecond
			if err := clock.BlockUntilContext(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			clock.Advance(want - 1)
			if err := clock.BlockUntilContext(t.Context(), 1); err != nil { // still waiting
				t.Fatal(err)
			}
			if len(script.calls) != i+1 {
				t.Fatalf("wait %d: %d attempts before %v", i, len(script.calls), want)
			}
			clock.Advance(1)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestContextEnds: a wait ends with the context; the error names both, and a put that may have had its effect stays unknown.
func TestContextEnds(t *testing.T) {
	for _, tc := range []struct {
		step       step
		indefinite bool
	}{{step{false, objectstore.ErrUnavailable}, false}, {step{true, unknown()}, true}, {step{false, objectstore.ErrConflict}, false}} {
		clock := clockwork.NewFakeClock()
		s := wrap(t, &scripted{Store: mem.New(mem.Options{}), steps: []step{tc.step}}, retry.Options{PerTry: -1, Clock: clock})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := s.PutIfAbsent(ctx, "k", nil, "w")
			done <- err
		}()
		if err := clock.BlockUntilContext(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), tc.step.err.Error()) || objectstore.IsIndefinite(err) != tc.indefinite {
			t.Errorf("after %v: %v, want indefinite: %v", tc.step.err, err, tc.indefinite)
		}
	}
}

// endingStore ends the caller's context while an attempt is under way, and answers it with err.
type endingStore struct {
	objectstore.Store
	cancel context.CancelFunc
	err    error
}

func (s *endingStore) PutIfAbsent(_ context.Context, key string, _ []byte, _ string) (objectstore.Info, error) {
	s.cancel()
	return objectstore.Info{Key: key}, s.err
}

func (s *endingStore) PutIfMatch(_ context.Context, key, _ string, _ []byte, _ string) (objectstore.Info, error) {
	s.cancel()
	return objectstore.Info{Key: key}, s.err
}

func (s *endingStore) Get(context.Context, string) ([]byte, objectstore.Info, error) {
	s.cancel()
	return nil, objectstore.Info{}, s.err
}

func (s *endingStore) Delete(_ context.Context, keys ...string) error {
	s.cancel()
	return objectstore.KeyErrors{keys[0]: s.err}
}

// TestContextEndsDuringAnAttempt: whatever the attempt answers, last or not, the caller learns that its own context ended the call, and
// whether the write may have happened.
func TestContextEndsDuringAnAttempt(t *testing.T) {
	for _, attempts := range []int{1, 3} {
		for _, answer := range []error{unknown(), objectstore.ErrUnavailable, objectstore.ErrThrottled, objectstore.ErrConflict} {
			run := func(op string, call func(context.Context, *retry.Store) error, indefinite bool) {
				ctx, cancel := context.WithCancel(t.Context())
				s := wrap(t, &endingStore{Store: mem.New(mem.Options{}), cancel: cancel, err: answer}, retry.Options{Attempts: attempts})
				if err := call(ctx, s); !errors.Is(err, context.Canceled) || objectstore.IsIndefinite(err) != indefinite {
					t.Errorf("%s, %d attempts, after %v: %v, want context.Canceled, indefinite: %v", op, attempts, answer, err, indefinite)
				}
			}
			indefinite := objectstore.IsIndefinite(answer)
			run("put", func(ctx context.Context, s *retry.Store) error {
				_, err := s.PutIfAbsent(ctx, "k", nil, "w")
				return err
			}, indefinite)
			run("put if match", func(ctx context.Context, s *retry.Store) error {
				_, err := s.PutIfMatch(ctx, "k", "v", nil, "w")
				return err
			}, indefinite)
			run("delete", func(ctx context.Context, s *retry.Store) error {
				var byKey objectstore.KeyErrors
				if err := s.Delete(ctx, "k"); !errors.As(err, &byKey) {
					return err
				}
				return byKey["k"]
			}, indefinite)
			if !indefinite && !errors.Is(answer, objectstore.ErrConflict) { // what a read may answer
				run("get", func(ctx context.Context, s *retry.Store) error {
					_, _, err := s.Get(ctx, "k")
					return err
				}, false)
			}
		}
	}
}

// TestPerTry: an attempt that hangs is given up and made again; the caller's own context is another matter.
func TestPerTry(t *testing.T) {
	hang := func(hangs int) *retry.Store {
		f, err := faults.New(mem.New(mem.Options{}), faults.Options{Plan: faults.Plan{Rules: []faults.Rule{{Count: hangs, Latency: faults.Latency{Base: time.Hour}}}}})
		if err != nil {
			t.Fatal(err)
		}
		return wrap(t, f, retry.Options{Attempts: 3, Base: 100 * time.Millisecond, PerTry: time.Second, Rand: func() float64 { return 1 }})
	}
	for _, tc := range []struct {
		name       string
		hangs      int
		call       func(ctx context.Context, s *retry.Store) error
		timeout    time.Duration
		want       error
		indefinite bool
		took       time.Duration
	}{
		{"stat after one", 1, stat, time.Minute, objectstore.ErrNotFound, false, 1100 * time.Millisecond},
		{"stat for ever", 9, stat, time.Minute, objectstore.ErrUnavailable, false, 3300 * time.Millisecond},
		{"stat beyond the deadline", 9, stat, 1500 * time.Millisecond, context.DeadlineExceeded, false, 1500 * time.Millisecond},
		{"put after two", 2, put, time.Minute, nil, false, 2300 * time.Millisecond},
		{"put for ever", 9, put, time.Minute, errAny, true, 3300 * time.Millisecond},
		{"delete after one", 1, del, time.Minute, nil, false, 1100 * time.Millisecond},
		{"delete for ever", 9, del, time.Minute, objectstore.ErrUnavailable, false, 3300 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // the real clock, in a bubble in which waiting takes no time
				s := hang(tc.hangs)
				ctx, cancel := context.WithTimeout(t.Context(), tc.timeout)
				defer cancel()
				start := time.Now()
				checkWrite(t, tc.call(ctx, s), tc.want, tc.indefinite)
				if took := time.Since(start); took != tc.took {
					t.Errorf("took %v, want %v", took, tc.took)
				}
			})
		})
	}
}

func stat(ctx context.Context, s *retry.Store) error { _, err := s.Stat(ctx, "k"); return err }
func put(ctx context.Context, s *retry.Store) error {
	_, err := s.PutIfAbsent(ctx, "k", nil, "w")
	return err
}
func del(ctx context.Context, s *retry.Store) error { return s.Delete(ctx, "k") }

func TestRetriesAreCounted(t *testing.T) {
	reg := prometheus.NewRegistry()
	for range 2 { // stores that share a registerer share the counter
		o := quick()
		o.Registerer = reg
		s := wrap(t, &scripted{Store: mem.New(mem.Options{}), steps: []step{{false, objectstore.ErrThrottled}, {true, unknown()}}}, o)
		if _, err := s.PutIfAbsent(t.Context(), "k", nil, "w"); err != nil {
			t.Fatal(err)
		}
	}
	families, err := reg.Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != "forebay_objectstore_retries_total" {
		t.Fatalf("metrics %v, %v", families, err)
	}
	for _, m := range families[0].GetMetric() {
		outcome := m.GetLabel()[1].GetValue()
		if m.GetCounter().GetValue() != 2 || m.GetLabel()[0].GetValue() != "put" || outcome != "throttled" && outcome != "unknown" {
			t.Errorf("metric %v", m)
		}
	}
}

func TestOptions(t *testing.T) {
	for want, o := range map[string]retry.Options{
		"Attempts": {Attempts: -1},
		"Base":     {Base: -1},
		"Max":      {Base: time.Second, Max: time.Millisecond},
	} {
		if _, err := retry.New(mem.New(mem.Options{}), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want a fault of %s", o, err, want)
		}
	}
	if o := (retry.Options{Base: time.Minute}).WithDefaults(); o.Max != time.Minute || o.Validate() != nil {
		t.Errorf("defaults with a long Base: %+v", o)
	}
}
