package gateway

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of the gateway. Every label is bounded: routes are templates of the route table, methods a fixed set, codes the table in api.
type metrics struct {
	requests    *prometheus.CounterVec   // route, method, status class, code ("" = success)
	seconds     *prometheus.HistogramVec // route
	inFlight    prometheus.Gauge
	connections prometheus.Gauge
	bytesIn     prometheus.Counter
	bytesOut    prometheus.Counter
	bodyBytes   prometheus.Gauge
	answerBytes prometheus.Gauge
	followed    prometheus.Gauge
	panics      prometheus.Counter
	undone      prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "forebay_gateway_requests_total", Help: "Requests answered, by route template, method, status class and error code.",
		}, []string{"route", "method", "status", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "forebay_gateway_request_seconds", Help: "Time from the end of the request head to the end of the answer, long polls and streams included.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .075, .1, .15, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"route"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "forebay_gateway_requests_in_flight", Help: "Requests being served, long polls and streams included.",
		}),
		connections: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "forebay_gateway_connections", Help: "Open connections of the REST port.",
		}),
		bytesIn: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "forebay_gateway_request_body_bytes_total", Help: "Bytes of request bodies as sent, before decompression.",
		}),
		bytesOut: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "forebay_gateway_response_body_bytes_total", Help: "Bytes of response bodies.",
		}),
		answerBytes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "forebay_gateway_answer_bytes_in_memory", Help: "Budget of answers being sent in use.",
		}),
		bodyBytes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "forebay_gateway_body_bytes_in_memory", Help: "Budget of request bodies in use.",
		}),
		followed: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "forebay_gateway_followed_partitions", Help: "Partitions followed by event streams.",
		}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "forebay_gateway_panics_total", Help: "Handlers that panicked. Each is a bug and is in the log with its stack.",
		}),
		undone: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "forebay_gateway_leases_undone_total", Help: "Leases given back because their answer did not reach the client.",
		}),
	}
	for _, c := range []prometheus.Collector{m.undone, m.requests, m.seconds, m.inFlight, m.connections, m.bytesIn, m.bytesOut, m.bodyBytes, m.answerBytes, m.followed, m.panics} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// unmatchedRoute labels what no route took, so that a scan of paths makes no series.
const unmatchedRoute = "unmatched"

func (m *metrics) observe(route, method string, status int, code string, took time.Duration) {
	m.requests.WithLabelValues(route, boundedMethod(method), statusClass(status), code).Inc()
	m.seconds.WithLabelValues(route).Observe(took.Seconds())
}

func boundedMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete, http.MethodHead, http.MethodOptions, http.MethodPatch:
		return method
	}
	return "other"
}

func statusClass(status int) string {
	switch status / 100 {
	case 1:
		return "1xx"
	case 2:
		return "2xx"
	case 3:
		return "3xx"
	case 4:
		return "4xx"
	}
	return "5xx"
}
