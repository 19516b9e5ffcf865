package ingest

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebaymq/forebay/api"
)

// refusal says why a request was not accepted. It is a metric label.
type refusal string

const (
	refusedMetadata  refusal = "metadata_unavailable"
	refusedNode      refusal = "node_full"
	refusedTenant    refusal = "tenant_full"
	refusedDraining  refusal = "draining"
	refusedTooLarge  refusal = "too_large"
	refusedInvalid   refusal = "invalid"
	refusedCancelled refusal = "cancelled"
	refusedCascade   refusal = "cascade"
)

var refusals = [...]refusal{refusedMetadata, refusedNode, refusedTenant, refusedDraining, refusedTooLarge, refusedInvalid, refusedCancelled, refusedCascade}

type metrics struct {
	requests, records, bytes prometheus.Counter
	inFlight                 prometheus.Gauge
	ack                      prometheus.Histogram
	refused                  map[refusal]prometheus.Counter
	failed                   *prometheus.CounterVec
	seals                    map[reason]prometheus.Counter
	segmentBytes             prometheus.Histogram
	segmentBatches           prometheus.Histogram
	segmentAge               prometheus.Histogram
	outcomes                 map[state]prometheus.Counter
	failedSegments           prometheus.Counter
	uploadsOK, uploadsFailed prometheus.Counter
	uploadedBytes            prometheus.Counter
	uploadSeconds            prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	var all []prometheus.Collector
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		all = append(all, c)
		return c
	}
	counters := func(name, help, label string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
		all = append(all, c)
		return c
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
		all = append(all, h)
		return h
	}
	seconds := prometheus.ExponentialBuckets(0.001, 2, 16) // 1 ms .. 33 s
	m := &metrics{
		requests:       counter("forebay_ingest_requests_total", "Publish requests acknowledged."),
		records:        counter("forebay_ingest_records_total", "Records acknowledged, duplicates included."),
		bytes:          counter("forebay_ingest_bytes_total", "Encoded bytes of acknowledged records."),
		ack:            histogram("forebay_ingest_ack_seconds", "Time from the acceptance of a request to its acknowledgement.", seconds),
		failed:         counters("forebay_ingest_failures_total", "Accepted requests that were not acknowledged, by error code.", "code"),
		segmentBytes:   histogram("forebay_ingest_segment_bytes", "Encoded bytes in a sealed segment.", prometheus.ExponentialBuckets(1024, 4, 8)),
		segmentBatches: histogram("forebay_ingest_segment_batches", "Batches in a sealed segment.", prometheus.ExponentialBuckets(1, 4, 9)),
		segmentAge:     histogram("forebay_ingest_segment_seconds", "Time from the seal of a segment to its outcome.", seconds),
		failedSegments: counter("forebay_ingest_failed_segments_total", "Segments that failed, those that failed with an earlier one included."),
		uploadedBytes:  counter("forebay_ingest_uploaded_bytes_total", "Bytes of uploaded segments."),
		uploadSeconds:  histogram("forebay_ingest_upload_seconds", "Time of an upload, the store's retries included.", seconds),
		refused:        map[refusal]prometheus.Counter{},
		seals:          map[reason]prometheus.Counter{},
		outcomes:       map[state]prometheus.Counter{},
	}
	m.inFlight = prometheus.NewGauge(prometheus.GaugeOpts{Name: "forebay_ingest_in_flight_bytes", Help: "Bytes accepted and unanswered."})
	all = append(all, m.inFlight)
	refused := counters("forebay_ingest_refusals_total", "Requests refused before they were accepted, by reason.", "reason")
	for _, r := range refusals {
		m.refused[r] = refused.WithLabelValues(string(r))
	}
	seals := counters("forebay_ingest_seals_total", "Segments sealed, by reason.", "reason")
	for _, r := range sealReasons {
		m.seals[r] = seals.WithLabelValues(string(r))
	}
	outcomes := counters("forebay_ingest_segments_total", "Segments by outcome.", "outcome")
	for _, s := range []state{stateCommitted, stateFailed, stateAbandoned} {
		m.outcomes[s] = outcomes.WithLabelValues(s.String())
	}
	uploads := counters("forebay_ingest_uploads_total", "Uploads of segments, by result.", "result")
	m.uploadsOK, m.uploadsFailed = uploads.WithLabelValues("ok"), uploads.WithLabelValues("failed")
	if reg == nil {
		return m, nil
	}
	for _, c := range all {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register ingest metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) acknowledged(r *request, took time.Duration) {
	m.requests.Inc()
	m.records.Add(float64(len(r.where)))
	m.bytes.Add(float64(r.bytes))
	m.ack.Observe(took.Seconds())
}

// failure counts an accepted request that got an error.
func (m *metrics) failure(err error) {
	code := api.CodeInternal
	var e *api.Error
	if errors.As(err, &e) {
		code = e.Code
	}
	m.failed.WithLabelValues(string(code)).Inc()
}

func (m *metrics) seal(f *flight) {
	m.seals[f.reason].Inc()
	m.segmentBytes.Observe(float64(f.seg.bytes))
	m.segmentBatches.Observe(float64(len(f.seg.batches)))
}

func (m *metrics) upload(took time.Duration, bytes int, err error) {
	m.uploadSeconds.Observe(took.Seconds())
	if err != nil {
		m.uploadsFailed.Inc()
		return
	}
	m.uploadsOK.Inc()
	m.uploadedBytes.Add(float64(bytes))
}

func (m *metrics) finished(f *flight, end state, now time.Time) {
	m.outcomes[end].Inc()
	m.segmentAge.Observe(now.Sub(f.sealed).Seconds())
}

// refuse counts a refusal and hands the error on.
func (in *Ingester) refuse(why refusal, err error) error {
	in.m.refused[why].Inc()
	return err
}
