package metrics_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/objectstore/faults"
	"github.com/forebaymq/forebay/objectstore/mem"
	"github.com/forebaymq/forebay/objectstore/metrics"
	"github.com/forebaymq/forebay/objectstore/storetest"
)

func wrap(t *testing.T, inner objectstore.Store, reg prometheus.Registerer, clock clockwork.Clock) *metrics.Store {
	t.Helper()
	s, err := metrics.New(inner, metrics.Options{Registerer: reg, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) objectstore.Store { return wrap(t, mem.New(mem.Options{}), nil, nil) }, storetest.Options{})
}

// nonZero gives the sample lines of a registry of one metric that are not 0.
func nonZero(t *testing.T, reg *prometheus.Registry, name string) string {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			v := m.GetCounter().GetValue() + m.GetGauge().GetValue()
			if v == 0 {
				continue
			}
			for _, l := range m.GetLabel() {
				b.WriteString(l.GetValue() + " ")
			}
			b.WriteString(strconv.FormatFloat(v, 'g', -1, 64) + "\n")
		}
	}
	return b.String()
}

func TestCounts(t *testing.T) {
	reg := prometheus.NewRegistry()
	lossy, err := faults.New(mem.New(mem.Options{}), faults.Options{Plan: faults.Plan{Rules: []faults.Rule{
		{Ops: []objectstore.Op{objectstore.OpPut}, Prefix: "lost/", Error: faults.Lost},
		{Ops: []objectstore.Op{objectstore.OpPut}, Prefix: "slow/", Error: faults.Throttled},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	s := wrap(t, lossy, reg, nil)
	ctx := t.Context()
	for _, key := range []string{"a", "b", "lost/c", "slow/d", "bad//key"} {
		_, _ = s.PutIfAbsent(ctx, key, []byte("0123456789"), "w")
	}
	_, _ = s.PutIfAbsent(ctx, "a", []byte("0123456789"), "other")
	_, _ = s.GetRange(ctx, "a", 0, 4)
	_, _ = s.GetRange(ctx, "a", 5, 9)
	_, _, _ = s.Get(ctx, "none")
	_, _, _ = s.GetTail(ctx, "a", 3)
	_, _ = s.List(ctx, "", "", 10)
	_, _ = s.Stat(ctx, "a")
	_, _ = s.PutIfMatch(ctx, "a", "no", nil, "w")
	_ = s.Delete(ctx, "b", "x//y")
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	_, _ = s.Stat(cancelled, "a")
	want := `delete keys_failed 1
get not_found 1
get_range ok 2
get_tail ok 1
list ok 1
put exists 1
put invalid 1
put ok 2
put throttled 1
put unknown 1
put_match precondition_failed 1
stat cancelled 1
stat ok 1
`
	if got := nonZero(t, reg, "forebay_objectstore_requests_total"); got != want {
		t.Errorf("requests:\n%swant:\n%s", got, want)
	}
	if got, want := nonZero(t, reg, "forebay_objectstore_bytes_total"), "get_range 9\nget_tail 3\nput 20\n"; got != want {
		t.Errorf("bytes:\n%swant:\n%s", got, want)
	}
}

func TestTimeAndInFlight(t *testing.T) {
	reg := prometheus.NewRegistry()
	clock := clockwork.NewFakeClock()
	slow, err := faults.New(mem.New(mem.Options{}), faults.Options{Clock: clock, Plan: faults.Plan{Rules: []faults.Rule{{
		Ops: []objectstore.Op{objectstore.OpPut}, Latency: faults.Latency{Base: 200 * time.Millisecond},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	s := wrap(t, slow, reg, clock)
	done := make(chan error)
	go func() {
		_, err := s.PutIfAbsent(t.Context(), "k", nil, "w")
		done <- err
	}()
	if err := clock.BlockUntilContext(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	inFlight := func(want string) {
		t.Helper()
		if got := nonZero(t, reg, "forebay_objectstore_in_flight"); got != want {
			t.Errorf("in flight: %q, want %q", got, want)
		}
	}
	inFlight("put 1\n")
	clock.Advance(200 * time.Millisecond)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	inFlight("")
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if h := m.GetHistogram(); h != nil && h.GetSampleCount() > 0 && (h.GetSampleSum() != 0.2 || m.GetLabel()[0].GetValue() != "put") {
				t.Errorf("%s: %v", f.GetName(), m)
			}
		}
	}
}

// TestSharedRegisterer: two stores of one process count into the same metrics.
func TestSharedRegisterer(t *testing.T) {
	reg := prometheus.NewRegistry()
	for range 2 {
		s := wrap(t, mem.New(mem.Options{}), reg, nil)
		if _, err := s.PutIfAbsent(t.Context(), "k", nil, "w"); err != nil {
			t.Fatal(err)
		}
	}
	if got := nonZero(t, reg, "forebay_objectstore_requests_total"); got != "put ok 2\n" {
		t.Errorf("requests: %s", got)
	}
	clash := prometheus.NewRegistry()
	clash.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "forebay_objectstore_requests_total", Help: "something else"}))
	if _, err := metrics.New(mem.New(mem.Options{}), metrics.Options{Registerer: clash}); err == nil {
		t.Error("a name that is taken by another metric is no error")
	}
}
