package groups

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebaymq/forebay/api"
)

// outcome is how a request ended. It is a metric label.
type outcome string

const (
	outcomeOK          outcome = "ok"
	outcomeStale       outcome = "stale_generation"
	outcomeNotOwner    outcome = "not_owner"
	outcomeUnavailable outcome = "unavailable"
	outcomeUnknown     outcome = "unknown"
	outcomeGap         outcome = "retention_gap"
	outcomeRefused     outcome = "refused" // anything else that is the caller's fault
)

var outcomes = [...]outcome{outcomeOK, outcomeStale, outcomeNotOwner, outcomeUnavailable, outcomeUnknown, outcomeGap, outcomeRefused}

func outcomeOf(err error) outcome {
	if err == nil {
		return outcomeOK
	}
	switch api.CodeOf(err) {
	case api.CodeStaleGeneration:
		return outcomeStale
	case api.CodeNotOwner:
		return outcomeNotOwner
	case api.CodeOutcomeUnknown:
		return outcomeUnknown
	case api.CodeRetentionGap:
		return outcomeGap
	case api.CodeLeasesUnavailable, api.CodeMetadataUnavailable, api.CodeStorageUnavailable, api.CodeOverloaded, "":
		return outcomeUnavailable
	}
	return outcomeRefused
}

type metrics struct {
	generations map[why]prometheus.Counter
	took        prometheus.Histogram
	retried     prometheus.Counter
	failed      prometheus.Counter
	lapsed      prometheus.Counter
	fenced      prometheus.Counter
	together    prometheus.Histogram
	heartbeats  map[outcome]prometheus.Counter
	commits     map[outcome]prometheus.Counter
	polls       map[outcome]prometheus.Counter
	polled      prometheus.Counter
	unreadable  prometheus.Counter
	met         prometheus.Gauge
	lag         prometheus.Gauge
	lagSeconds  prometheus.Gauge
	gaps        prometheus.Gauge
	lost        prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{generations: map[why]prometheus.Counter{}}
	var all []prometheus.Collector
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "forebay_groups_" + name, Help: help})
		all = append(all, c)
		return c
	}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "forebay_groups_" + name, Help: help})
		all = append(all, g)
		return g
	}
	vector := func(name, help, label string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "forebay_groups_" + name, Help: help}, []string{label})
		all = append(all, v)
		return v
	}
	requests := func(name, help string) map[outcome]prometheus.Counter {
		v, out := vector(name, help, "result"), map[outcome]prometheus.Counter{}
		for _, o := range outcomes {
			out[o] = v.WithLabelValues(string(o))
		}
		return out
	}
	v := vector("generations_total", "Generations that this node made, by what asked for them; one that several asked for counts for each.", "why")
	for _, w := range whys {
		m.generations[w] = v.WithLabelValues(string(w))
	}
	m.took = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "forebay_groups_generation_seconds", Help: "Time to make a generation, from the fence to Redis.",
		Buckets: prometheus.ExponentialBuckets(0.005, 2, 12)})
	m.together = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "forebay_groups_commits_together", Help: "Commits that were written in one append.",
		Buckets: prometheus.ExponentialBuckets(1, 2, 12)})
	all = append(all, m.took, m.together)
	m.retried = counter("generation_retries_total", "Turns that another node overtook, or whose outcome was not known.")
	m.failed = counter("generation_failures_total", "Generations that were asked for and did not come.")
	m.lapsed = counter("sessions_lapsed_total", "Members whose session lapsed, or that did not let go in time.")
	m.fenced = counter("commits_fenced_total", "Appends of offsets that the log refused because their generation was over: the second check.")
	m.heartbeats = requests("heartbeats_total", "Heartbeats, by result.")
	m.commits = requests("commits_total", "Commits, by result.")
	m.polls = requests("polls_total", "Polls, by result.")
	m.polled = counter("polled_records_total", "Records handed out by polls.")
	m.unreadable = counter("unreadable_total", "Times that a poll passed records that can never be read.")
	m.met = gauge("met", "Groups that this node has met lately.")
	m.lag = gauge("lag_records", "Unread records of the groups that this node has met, together.")
	m.lagSeconds = gauge("lag_seconds", "Age of the oldest unread record of any group that this node has met.")
	m.gaps = gauge("gap_partitions", "Partitions on which retention has overtaken a group that this node has met: somebody has to seek.")
	m.lost = gauge("gap_records", "Offsets that retention has deleted on these partitions before they were read, together; forebay groups describe names them.")
	if reg == nil {
		return m, nil
	}
	for _, c := range all {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics of consumer groups: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) heartbeat(err error) { m.heartbeats[outcomeOf(err)].Inc() }
func (m *metrics) commit(err error)    { m.commits[outcomeOf(err)].Inc() }
func (m *metrics) poll(err error)      { m.polls[outcomeOf(err)].Inc() }
