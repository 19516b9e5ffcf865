package store

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type groupMetrics struct {
	calls   [groupScripts]map[result]prometheus.Counter
	seconds [groupScripts]prometheus.Observer
}

func newGroupMetrics(reg prometheus.Registerer) (*groupMetrics, error) {
	calls := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "forebay_leases_store_group_calls_total",
		Help: "Calls of Redis scripts for consumer groups, by script and result."}, []string{"script", "result"})
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "forebay_leases_store_group_seconds",
		Help: "Time of a call of a script for consumer groups, from the pool of connections to the answer.", Buckets: prometheus.ExponentialBuckets(0.0001, 2.5, 12)},
		[]string{"script"})
	m := &groupMetrics{}
	for sc := range groupScripts {
		m.calls[sc] = map[result]prometheus.Counter{}
		for _, r := range results {
			m.calls[sc][r] = calls.WithLabelValues(sc.String(), string(r))
		}
		m.seconds[sc] = seconds.WithLabelValues(sc.String())
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{calls, seconds} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics of the groups' store: %w", err)
		}
	}
	return m, nil
}

func (m *groupMetrics) call(sc groupScript, r result, took time.Duration) {
	m.calls[sc][r].Inc()
	m.seconds[sc].Observe(took.Seconds())
}
