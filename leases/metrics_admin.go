package leases

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"
)

// adminMetrics count what administration does. Labels are bounded.
type adminMetrics struct {
	copies struct {
		done    prometheus.Counter // published
		expired prometheus.Counter // the record could not be read any more
		refused prometheus.Counter // there is no topic to which they may go
		failed  prometheus.Counter // attempts
	}
	rescued  prometheus.Counter
	expired  prometheus.Counter
	redriven prometheus.Counter
}

func newAdminMetrics(reg prometheus.Registerer, w *wards) (*adminMetrics, error) {
	m := &adminMetrics{}
	copies := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "forebay_leases_dead_letter_copies_total",
		Help: "Dead letters by what became of their copy: done, expired (the record was gone), refused (no topic to copy to), failed (attempts; tried again).",
	}, []string{"outcome"})
	m.copies.done, m.copies.expired = copies.WithLabelValues("done"), copies.WithLabelValues("expired")
	m.copies.refused, m.copies.failed = copies.WithLabelValues("refused"), copies.WithLabelValues("failed")
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "forebay_leases_" + name, Help: help})
	}
	m.rescued = counter("dead_letters_rescued_total", "Dead letters that were copied because retention was about to delete their record.")
	m.expired = counter("dead_letters_expired_total", "Dead letters whose record was deleted before it was copied.")
	m.redriven = counter("dead_letters_redriven_total", "Dead letters made deliverable again by tasks on this node.")
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{copies, m.rescued, m.expired, m.redriven, newWardCollector(w)} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// wardCollector shows the subscriptions that this node looked after in its last round of custody, taken together: over all nodes each subscription
// counts once. Nothing is labelled by subscription, so that nothing stays behind when one is deleted.
type wardCollector struct {
	w                                              *wards
	subscriptions, records, oldest, headroom, gaps *prometheus.Desc
}

func newWardCollector(w *wards) *wardCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("forebay_leases_"+name, help, labels, nil)
	}
	return &wardCollector{
		w:             w,
		subscriptions: desc("subscriptions", "Subscriptions that this node looks after."),
		records: desc("records", "Records of those subscriptions by state: lag (published and not settled), in_flight (leased), owed (to be delivered again), "+
			"delayed, waiting (behind their key), acked_ahead (settled above the frontier), dead.", "state"),
		oldest:   desc("oldest_unacked_age_seconds", "Age of the oldest record of those subscriptions that is not settled, poison included, delayed ones not. 0 when there is none."),
		headroom: desc("retention_headroom_seconds", "Least time until retention deletes a record that is not settled. Absent when there is none such."),
		gaps:     desc("retention_gaps", "Partitions of those subscriptions in which retention deleted records that were not settled."),
	}
}

// Describe implements prometheus.Collector.
func (c *wardCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.subscriptions, c.records, c.oldest, c.headroom, c.gaps} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *wardCollector) Collect(ch chan<- prometheus.Metric) {
	t := c.w.totals()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(c.subscriptions, float64(t.subscriptions))
	for state, n := range map[string]int64{
		"lag": t.lag, "in_flight": t.inFlight, "owed": t.owed, "delayed": t.delayed, "waiting": t.waiting, "acked_ahead": t.ackedAhead, "dead": t.dead,
	} {
		gauge(c.records, float64(n), state)
	}
	gauge(c.oldest, t.oldest)
	if !math.IsInf(t.headroom, 1) {
		gauge(c.headroom, t.headroom)
	}
	gauge(c.gaps, float64(t.gaps))
}

// wardTotals are the numbers of several subscriptions taken together.
type wardTotals struct {
	subscriptions                                                 int
	lag, inFlight, owed, delayed, waiting, ackedAhead, dead, gaps int64
	oldest, headroom                                              float64 // seconds; headroom is +Inf when nothing is in danger
}

// totals adds up what the last round found.
func (w *wards) totals() wardTotals {
	w.Lock()
	defer w.Unlock()
	t := wardTotals{subscriptions: len(w.known), headroom: math.Inf(1)}
	for _, x := range w.known {
		for i := range x.stats.Partitions {
			p := &x.stats.Partitions[i]
			t.lag, t.inFlight, t.owed, t.delayed = t.lag+p.Lag, t.inFlight+p.InFlight, t.owed+p.Owed, t.delayed+p.Delayed
			t.waiting, t.ackedAhead, t.dead = t.waiting+p.Waiting, t.ackedAhead+p.AckedAhead, t.dead+p.DeadLetters
			t.oldest = max(t.oldest, p.OldestUnackedAge.Seconds())
			if p.RetentionHeadroom != nil {
				t.headroom = min(t.headroom, p.RetentionHeadroom.Seconds())
			}
			if p.Gap != nil {
				t.gaps++
			}
		}
	}
	return t
}
