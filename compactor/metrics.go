package compactor

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics of a compactor. Labels are the kind of a job, a level, or an outcome: bounded.
type metrics struct {
	jobs        *prometheus.CounterVec // by kind, outcome
	seconds     *prometheus.HistogramVec
	read        *prometheus.CounterVec // bytes by kind
	written     *prometheus.CounterVec // bytes by kind
	objects     *prometheus.CounterVec // written, by kind
	records     *prometheus.CounterVec // by kind, what
	refused     *prometheus.CounterVec // groups by kind
	unreadable  *prometheus.CounterVec // by reason
	claims      prometheus.Gauge
	backlogObj  prometheus.Gauge
	backlogSize prometheus.Gauge
	backlogAge  prometheus.Gauge
	levelBytes  *prometheus.GaugeVec // by level
	levelObj    *prometheus.GaugeVec
	trims       prometheus.Counter
	collector   prometheus.Gauge
	listed      prometheus.Counter
	passes      prometheus.Counter
	orphans     *prometheus.CounterVec // by kind: found, deleted
	deleted     prometheus.Counter     // bytes
	deleteErrs  prometheus.Counter
	missing     prometheus.Gauge
	waitingObj  prometheus.Gauge
	rules       *prometheus.CounterVec // reconciliations of lifecycle rules by outcome
	all         []prometheus.Collector
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "forebay_compactor_" + name, Help: help})
		m.all = append(m.all, c)
		return c
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "forebay_compactor_" + name, Help: help}, labels)
		m.all = append(m.all, c)
		return c
	}
	gauge := func(name, help string) prometheus.Gauge {
		c := prometheus.NewGauge(prometheus.GaugeOpts{Name: "forebay_compactor_" + name, Help: help})
		m.all = append(m.all, c)
		return c
	}
	gauges := func(name, help string, labels ...string) *prometheus.GaugeVec {
		c := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "forebay_compactor_" + name, Help: help}, labels)
		m.all = append(m.all, c)
		return c
	}
	m.jobs = counters("jobs_total", "Jobs, by kind and outcome.", "kind", "outcome")
	m.seconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "forebay_compactor_job_seconds", Help: "Time of a job.",
		Buckets: prometheus.ExponentialBuckets(0.01, 3, 10)}, []string{"kind"})
	m.all = append(m.all, m.seconds)
	m.read = counters("read_bytes_total", "Bytes read from the store, by kind of job.", "kind")
	m.written = counters("written_bytes_total", "Bytes written to the store, by kind of job. Over the bytes ingested: write amplification.", "kind")
	m.objects = counters("objects_written_total", "Objects written, by kind of job.", "kind")
	m.records = counters("records_total", "Records read and written, by kind of job.", "kind", "direction")
	m.refused = counters("refused_total", "Groups whose Replace was refused, by kind of job.", "kind")
	m.unreadable = counters("unreadable_total", "Live batches that cannot be read, by reason.", "reason")
	m.claims = gauge("claims", "Shards that this node holds.")
	m.backlogObj = gauge("backlog_objects", "Live objects of level 0.")
	m.backlogSize = gauge("backlog_bytes", "Bytes of the live objects of level 0.")
	m.backlogAge = gauge("backlog_oldest_seconds", "Age of the oldest live object of level 0.")
	m.levelBytes = gauges("level_bytes", "Bytes of live objects, by level.", "level")
	m.levelObj = gauges("level_objects", "Live objects, by level.", "level")
	m.trims = counter("exact_trims_total", "Times that logStart was moved to within a run.")
	m.collector = gauge("collector", "1 on the node that collects garbage.")
	m.listed = counter("listed_objects_total", "Keys seen in the bucket by the collector.")
	m.passes = counter("passes_total", "Complete comparisons of the bucket with the metadata.")
	m.orphans = counters("garbage_objects_total", "Objects without a reference, found and deleted.", "what")
	m.deleted = counter("deleted_bytes_total", "Bytes of deleted objects.")
	m.deleteErrs = counter("delete_errors_total", "Keys that could not be deleted; they are tried again.")
	m.missing = gauge("missing_objects", "Objects that live batches refer to and that the bucket does not have.")
	m.waitingObj = gauge("garbage_waiting_objects", "Objects without a reference that wait for their grace to pass.")
	m.rules = counters("lifecycle_total", "Reconciliations of the bucket's lifecycle rules, by outcome.", "outcome")
	if r == nil {
		return m, nil
	}
	for i, c := range m.all {
		if err := r.Register(c); err != nil {
			for _, c := range m.all[:i] {
				r.Unregister(c)
			}
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) unregister(r prometheus.Registerer) {
	if r == nil {
		return
	}
	for _, c := range m.all {
		r.Unregister(c)
	}
}
