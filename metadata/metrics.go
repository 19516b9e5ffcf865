package metadata

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of one Log. No labels: a process has one Log.
type metrics struct {
	transactions  prometheus.Counter
	commands      prometheus.Counter
	entries       prometheus.Counter
	bytes         prometheus.Counter
	watchRestarts prometheus.Counter
	reloads       prometheus.Counter
	stuck         prometheus.Counter
	snapshots     prometheus.Counter
	snapshotBytes prometheus.Counter
	trims         prometheus.Counter
	housekeepErrs prometheus.Counter
	revision      prometheus.Gauge
	housekeeper   prometheus.Gauge
	append        prometheus.Histogram
	commit        prometheus.Histogram
	barrier       prometheus.Histogram
	all           []prometheus.Collector
}

// latencyBuckets reach from a memory driver's microseconds to a timeout.
var latencyBuckets = prometheus.ExponentialBuckets(0.0001, 2, 18) // 100 µs .. 13 s

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "forebay_metadata_" + name, Help: help})
		m.all = append(m.all, c)
		return c
	}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "forebay_metadata_" + name, Help: help})
		m.all = append(m.all, g)
		return g
	}
	histogram := func(name, help string) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "forebay_metadata_" + name, Help: help, Buckets: latencyBuckets})
		m.all = append(m.all, h)
		return h
	}
	m.transactions = counter("transactions_total", "Transactions that this node began to append.")
	m.commands = counter("submissions_total", "Commits and control commands in those transactions.")
	m.entries = counter("applied_entries_total", "Log entries applied.")
	m.bytes = counter("applied_bytes_total", "Encoded bytes of the log entries applied.")
	m.watchRestarts = counter("watch_restarts_total", "Times that the watch of the log ended and was started again.")
	m.reloads = counter("reloads_total", "Times that the whole state was loaded again because the watch was compacted.")
	m.stuck = counter("stuck_total", "Transactions that had no answer for the time that makes the log unavailable.")
	m.snapshots = counter("snapshots_total", "Shard snapshots that this node wrote.")
	m.snapshotBytes = counter("snapshot_bytes_total", "Bytes of those snapshots.")
	m.trims = counter("trims_total", "Partitions whose start retention has raised from this node.")
	m.housekeepErrs = counter("housekeeping_errors_total", "Rounds of housekeeping that failed.")
	m.revision = gauge("applied_revision", "Revision of the log up to which this node has seen everything.")
	m.housekeeper = gauge("housekeeper", "1 while this node holds the housekeeper's claim.")
	m.append = histogram("append_seconds", "From the first attempt of a transaction to the store's answer.")
	m.commit = histogram("commit_seconds", "From submission to the result of apply.")
	m.barrier = histogram("barrier_seconds", "One linearizable read of the head.")
	if reg == nil {
		return m, nil
	}
	for i, c := range m.all {
		if err := reg.Register(c); err != nil {
			for _, done := range m.all[:i] {
				reg.Unregister(done)
			}
			var twice prometheus.AlreadyRegisteredError
			if errors.As(err, &twice) {
				return nil, fmt.Errorf("register metadata metrics: a registerer serves one Log: %w", err)
			}
			return nil, fmt.Errorf("register metadata metrics: %w", err)
		}
	}
	return m, nil
}

// unregister makes the registerer free for another Log.
func (m *metrics) unregister(reg prometheus.Registerer) {
	if reg == nil {
		return
	}
	for _, c := range m.all {
		reg.Unregister(c)
	}
}
