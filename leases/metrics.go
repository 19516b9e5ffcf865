package leases

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebaymq/forebay/leases/store"
)

type metrics struct {
	requests, empty                        prometheus.Counter
	leased, redelivered, released          prometheus.Counter
	scheduled                              prometheus.Counter
	skipped                                map[string]prometheus.Counter // by reason
	lapsed, died                           prometheus.Counter
	settlements                            [Extend + 1]struct{ ok, lost prometheus.Counter }
	opens                                  struct{ done, stale, failed prometheus.Counter }
	openSeconds                            prometheus.Histogram
	flushes                                struct{ done, failed prometheus.Counter }
	flushSeconds                           prometheus.Histogram
	journalled                             prometheus.Counter
	rescues, evictions, unsaid, background prometheus.Counter
	repairs                                struct{ redelivered, dangling, counters prometheus.Counter }
}

func newMetrics(reg prometheus.Registerer, e *Engine) (*metrics, error) {
	var all []prometheus.Collector
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "forebay_leases_" + name, Help: help})
		all = append(all, c)
		return c
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "forebay_leases_" + name, Help: help}, labels)
		all = append(all, c)
		return c
	}
	histogram := func(name, help string) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "forebay_leases_" + name, Help: help, Buckets: prometheus.ExponentialBuckets(0.001, 2, 15)})
		all = append(all, h)
		return h
	}
	m := &metrics{
		requests:     counter("requests_total", "Lease requests."),
		empty:        counter("empty_total", "Lease requests answered without records."),
		leased:       counter("leased_total", "Records handed out."),
		redelivered:  counter("redelivered_total", "Records handed out that had been handed out before."),
		released:     counter("released_total", "Leases given back unseen: the consumer had gone, the answer was full, or the record could not be read at the time."),
		scheduled:    counter("scheduled_total", "Delayed records set aside until they are due."),
		lapsed:       counter("lapsed_total", "Leases that lapsed."),
		died:         counter("dead_letters_total", "Records that became dead letters."),
		openSeconds:  histogram("open_seconds", "Time to open a subscription from the journal."),
		flushSeconds: histogram("flush_seconds", "Time to journal changes, from the export to the last mark."),
		journalled:   counter("journalled_total", "Records written to the journal for changes."),
		rescues:      counter("rescues_total", "Subscriptions whose changes were journalled for another node."),
		evictions:    counter("evictions_total", "Idle subscriptions that left the lease store."),
		unsaid:       counter("wakes_failed_total", "Messages to other nodes that could not be sent."),
		background:   counter("background_failures_total", "Sweeps, audits and evictions that failed."),
		skipped:      map[string]prometheus.Counter{},
	}
	skipped := counters("skipped_total", "Records passed without delivery, by reason.", "reason")
	for _, r := range []string{reasonHole, reasonUnreadable, reasonExpired} {
		m.skipped[r] = skipped.WithLabelValues(r)
	}
	settled := counters("settled_total", "Receipts by what was asked for and whether the lease was live; lost acks are stale acks.", "kind", "outcome")
	for kind, name := range map[SettleKind]string{Ack: "ack", Nack: "nack", Extend: "extend"} {
		m.settlements[kind].ok, m.settlements[kind].lost = settled.WithLabelValues(name, "ok"), settled.WithLabelValues(name, "lost")
	}
	opens := counters("opens_total", "Subscriptions opened from the journal, by outcome. Stale: another node was faster, or the journal's answer was lost; tried again.", "outcome")
	m.opens.done, m.opens.stale, m.opens.failed = opens.WithLabelValues("done"), opens.WithLabelValues("stale"), opens.WithLabelValues("failed")
	flushes := counters("flushes_total", "Appends of changes to the journal, by outcome.", "outcome")
	m.flushes.done, m.flushes.failed = flushes.WithLabelValues("done"), flushes.WithLabelValues("failed")
	repairs := counters("repairs_total", "What audits put right, by kind.", "kind")
	m.repairs.redelivered, m.repairs.dangling, m.repairs.counters =
		repairs.WithLabelValues("redelivered"), repairs.WithLabelValues("dangling"), repairs.WithLabelValues("counters")
	all = append(all,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "forebay_leases_waiting", Help: "Lease requests that wait for a record."}, func() float64 {
			n := int32(0)
			for _, a := range e.all() {
				n += a.line.waiting.Load()
			}
			return float64(n)
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "forebay_leases_active", Help: "Subscriptions that this node keeps in memory."}, func() float64 {
			return float64(len(e.all()))
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "forebay_leases_unjournalled_age_seconds",
			Help: "Age of the oldest change that is not in the journal: what a loss of the lease store now would repeat.",
		}, func() float64 { return e.flusher.oldest().Seconds() }),
	)
	if reg == nil {
		return m, nil
	}
	for _, c := range all {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register lease metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) settled(kind SettleKind, ok, lost int) {
	m.settlements[kind].ok.Add(float64(ok))
	m.settlements[kind].lost.Add(float64(lost))
}

func (m *metrics) repaired(r store.Repairs) {
	m.repairs.redelivered.Add(float64(r.Redelivered))
	m.repairs.dangling.Add(float64(r.Dangling))
	m.repairs.counters.Add(float64(r.Counters))
}
