package journal

import "github.com/prometheus/client_golang/prometheus"

// The ways in which a Load can be answered.
const (
	viaMemory = "memory" // nothing new had to be read
	viaTail   = "tail"   // only what was new
	viaScan   = "scan"   // the journal partition from its start
)

type metrics struct {
	readBytes    prometheus.Counter
	readRecords  prometheus.Counter
	loads        *prometheus.CounterVec
	scans        prometheus.Counter
	evicted      prometheus.Counter
	cached       prometheus.Gauge
	written      prometheus.Counter
	writtenBytes prometheus.Counter
	freed        prometheus.Counter
	stale        prometheus.Counter
	unreadable   prometheus.Counter
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "forebay_journal_" + name, Help: help})
	}
	m := &metrics{
		readBytes:    counter("read_bytes_total", "Bytes of keys and values read from journals."),
		readRecords:  counter("read_records_total", "Records read from journals."),
		loads:        prometheus.NewCounterVec(prometheus.CounterOpts{Name: "forebay_journal_loads_total", Help: "Loads, by what had to be read: memory (nothing), tail, scan (a partition from its start)."}, []string{"via"}),
		scans:        counter("scans_total", "Journal partitions read from their start."),
		evicted:      counter("cache_evictions_total", "Subscriptions that left the cache for others."),
		cached:       prometheus.NewGauge(prometheus.GaugeOpts{Name: "forebay_journal_cache_bytes", Help: "Memory of the cache."}),
		written:      counter("written_records_total", "Records appended to journals."),
		writtenBytes: counter("written_bytes_total", "Bytes of keys and values appended to journals."),
		freed:        counter("freed_keys_total", "Keys that were freed by a tombstone."),
		stale:        counter("stale_openings_total", "Openings that another incarnation overtook."),
		unreadable:   counter("unreadable_records_total", "Records of an unknown format that were left out of a load."),
	}
	for _, via := range []string{viaMemory, viaTail, viaScan} {
		m.loads.WithLabelValues(via)
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.readBytes, m.readRecords, m.loads, m.scans, m.evicted, m.cached, m.written, m.writtenBytes, m.freed, m.stale, m.unreadable} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
