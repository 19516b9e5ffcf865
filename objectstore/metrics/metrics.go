package metrics

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebaymq/forebay/objectstore"
)

// series are the metrics of one operation. They are looked up once, here, and not at each call.
type series struct {
	byOutcome map[objectstore.Outcome]prometheus.Counter
	bytes     prometheus.Counter
	seconds   prometheus.Observer
	inFlight  prometheus.Gauge
}

// newSeries makes and registers the metrics. Stores that share a registerer share them.
func newSeries(reg prometheus.Registerer) (map[objectstore.Op]*series, error) {
	requests, err := register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "forebay_objectstore_requests_total",
		Help: "Requests to the object store that ended, by operation and outcome.",
	}, []string{"op", "outcome"}))
	if err != nil {
		return nil, err
	}
	bytes, err := register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "forebay_objectstore_bytes_total",
		Help: "Bytes of bodies written and read by successful requests, by operation.",
	}, []string{"op"}))
	if err != nil {
		return nil, err
	}
	seconds, err := register(reg, prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "forebay_objectstore_request_seconds",
		Help:    "Time from a request to its end, whatever its outcome, by operation.",
		Buckets: []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30},
	}, []string{"op"}))
	if err != nil {
		return nil, err
	}
	inFlight, err := register(reg, prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "forebay_objectstore_in_flight",
		Help: "Requests that run now, by operation.",
	}, []string{"op"}))
	if err != nil {
		return nil, err
	}
	all := map[objectstore.Op]*series{}
	for _, op := range objectstore.Ops() {
		s := &series{
			byOutcome: map[objectstore.Outcome]prometheus.Counter{},
			bytes:     bytes.WithLabelValues(string(op)),
			seconds:   seconds.WithLabelValues(string(op)),
			inFlight:  inFlight.WithLabelValues(string(op)),
		}
		for _, outcome := range objectstore.Outcomes() {
			s.byOutcome[outcome] = requests.WithLabelValues(string(op), string(outcome))
		}
		all[op] = s
	}
	return all, nil
}

// register registers a collector, or gives the one that is registered already.
func register[C prometheus.Collector](reg prometheus.Registerer, c C) (C, error) {
	if reg == nil {
		return c, nil
	}
	err := reg.Register(c)
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		if old, ok := already.ExistingCollector.(C); ok {
			return old, nil
		}
	}
	if err != nil {
		return c, fmt.Errorf("register object store metrics: %w", err)
	}
	return c, nil
}
