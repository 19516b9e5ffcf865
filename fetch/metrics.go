package fetch

import "github.com/prometheus/client_golang/prometheus"

// Values of the label "age".
const (
	ageRecent = "recent"
	ageOld    = "old"
)

// Values of the label "reason" of unreadable batches.
const (
	reasonCorrupt = "corrupt"
	reasonMissing = "missing"
)

type metrics struct {
	lookups    *prometheus.CounterVec // by result: block lookups
	levels     *levels                // GETs and bytes
	getErrors  *prometheus.CounterVec // by age
	getSeconds *prometheus.HistogramVec
	throttled  prometheus.Counter
	ahead      prometheus.Counter
	abandoned  prometheus.Counter
	decoded    *prometheus.CounterVec // by result
	records    prometheus.Counter
	unreadable *prometheus.CounterVec // by reason
	refetched  prometheus.Counter
}

func newMetrics(r prometheus.Registerer, cacheBytes func() float64) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "forebay", Subsystem: "fetch", Name: name, Help: help})
	}
	vec := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "forebay", Subsystem: "fetch", Name: name, Help: help}, []string{label})
	}
	m := &metrics{
		lookups:   vec("block_lookups_total", "Blocks looked up, by where they were: cache, flight (another reader was getting it), or store.", "result"),
		levels:    newLevels(),
		getErrors: vec("get_errors_total", "Range GETs that failed, by age of the data.", "age"),
		getSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "forebay", Subsystem: "fetch", Name: "get_seconds",
			Help: "Duration of range GETs, by age of the data.", Buckets: prometheus.ExponentialBuckets(0.0005, 2, 15)}, []string{"age"}),
		throttled:  counter("throttled_total", "Reads of old data that had to wait for the tenant's rate."),
		ahead:      counter("read_ahead_blocks_total", "Blocks asked for ahead of a sequential scan."),
		abandoned:  counter("abandoned_gets_total", "GETs given up before they began because every reader had gone."),
		decoded:    vec("batches_total", "Batches read, by where they came from: cache (decompressed already) or decode.", "result"),
		records:    counter("records_total", "Records returned."),
		unreadable: vec("unreadable_batches_total", "Live batches found to be permanently unreadable, each counted once: corrupt or missing.", "reason"),
		refetched:  counter("refetched_batches_total", "Corrupt batches that were read again from the store, past the cache."),
	}
	size := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "forebay", Subsystem: "fetch", Name: "cache_bytes",
		Help: "Bytes held by the block and batch caches."}, cacheBytes)
	for _, c := range []prometheus.Collector{m.lookups, m.levels, m.getErrors, m.getSeconds, m.throttled, m.ahead, m.abandoned, m.decoded, m.records,
		m.unreadable, m.refetched, size} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
