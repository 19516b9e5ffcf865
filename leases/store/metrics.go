package store

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// result is how a script's call ended. It is a metric label.
type result string

const (
	resultOK          result = "ok"
	resultNotLoaded   result = "not_loaded"
	resultStale       result = "stale"
	resultNoScript    result = "no_script"
	resultUnavailable result = "unavailable" // Redis answered that it cannot, or was not reached: no effect
	resultUnknown     result = "unknown"     // sent, not answered
	resultError       result = "error"       // an answer that no script of ours gives
)

var results = [...]result{resultOK, resultNotLoaded, resultStale, resultNoScript, resultUnavailable, resultUnknown, resultError}

type metrics struct {
	calls   [scripts]map[result]prometheus.Counter
	seconds [scripts]prometheus.Observer
	lives   prometheus.Counter
	orphans *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	calls := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "forebay_leases_store_calls_total",
		Help: "Calls of Redis scripts, by script and result."}, []string{"script", "result"})
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "forebay_leases_store_seconds",
		Help: "Time of a script's call, from the pool of connections to the answer.", Buckets: prometheus.ExponentialBuckets(0.0001, 2.5, 12)},
		[]string{"script"})
	m := &metrics{
		lives: prometheus.NewCounter(prometheus.CounterOpts{Name: "forebay_leases_store_life_changes_total",
			Help: "Times that another Redis, or one that was restarted or failed over, was met: every subscription was opened anew."}),
		orphans: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "forebay_leases_store_orphans_total",
			Help: "Lease calls whose outcome stayed unknown, by what became of them: released, or left to lapse."}, []string{"result"}),
	}
	for s := range scripts {
		m.calls[s] = map[result]prometheus.Counter{}
		for _, r := range results {
			m.calls[s][r] = calls.WithLabelValues(s.String(), string(r))
		}
		m.seconds[s] = seconds.WithLabelValues(s.String())
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{calls, seconds, m.lives, m.orphans} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register lease store metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) call(s script, r result, took time.Duration) {
	m.calls[s][r].Inc()
	m.seconds[s].Observe(took.Seconds())
}
