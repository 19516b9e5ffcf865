package bench

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/forebaymq/forebay/client"
)

// Latency sums up latencies, in milliseconds.
type Latency struct {
	Count int64   `json:"count"`
	Mean  float64 `json:"mean"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P95   float64 `json:"p95"`
	P99   float64 `json:"p99"`
	P999  float64 `json:"p999"`
	Max   float64 `json:"max"`
}

func (l Latency) String() string {
	return fmt.Sprintf("p50 %.1f  p90 %.1f  p95 %.1f  p99 %.1f  p99.9 %.1f  max %.1f  mean %.1f ms  (%d)", l.P50, l.P90, l.P95, l.P99, l.P999, l.Max, l.Mean, l.Count)
}

// recorder collects what happened. It is safe for concurrent use.
type recorder struct {
	mu struct {
		sync.Mutex
		latency *hdrhistogram.Histogram // microseconds
		records int64
		bytes   int64
		errors  map[string]int64
		last    time.Time // of the newest success
	}
}

// The histogram's range: 1 µs to 10 minutes, three digits.
const maxLatencyMicros = int64(10 * time.Minute / time.Microsecond)

func newRecorder() *recorder {
	r := &recorder{}
	r.mu.latency = hdrhistogram.New(1, maxLatencyMicros, 3)
	r.mu.errors = map[string]int64{}
	return r
}

func (r *recorder) success(at time.Time, took time.Duration, records, bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// Within the range by the clamp, so that it cannot fail.
	_ = r.mu.latency.RecordValue(min(max(took.Microseconds(), 1), maxLatencyMicros))
	r.mu.records += records
	r.mu.bytes += bytes
	if at.After(r.mu.last) {
		r.mu.last = at
	}
}

func (r *recorder) failure(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.errors[codeOf(err)]++
}

func (r *recorder) latency() Latency {
	r.mu.Lock()
	defer r.mu.Unlock()
	return latencyOf(r.mu.latency)
}

// errors gives a copy of the counts by code.
func (r *recorder) errors() map[string]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.mu.errors)
}

// totals gives the successes' records and bytes, and the time of the newest.
func (r *recorder) totals() (records, bytes int64, last time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.records, r.mu.bytes, r.mu.last
}

func latencyOf(h *hdrhistogram.Histogram) Latency {
	ms := func(micros int64) float64 { return float64(micros) / 1000 }
	q := func(p float64) float64 { return ms(h.ValueAtQuantile(p)) }
	return Latency{
		Count: h.TotalCount(), Mean: h.Mean() / 1000, P50: q(50), P90: q(90), P95: q(95), P99: q(99), P999: q(99.9), Max: ms(h.Max()),
	}
}

// codeOf names an error for the table of errors: its code, else its status, else the outcome of the transport.
func codeOf(err error) string {
	e, ok := asError(err)
	switch {
	case ok && e.Code != "":
		return string(e.Code)
	case ok && e.Status != 0:
		return fmt.Sprintf("HTTP %d", e.Status)
	}
	outcome, _ := client.Classify(err)
	return "transport, " + outcome.String()
}

func printErrors(w io.Writer, errors map[string]int64) {
	if len(errors) == 0 {
		fmt.Fprintln(w, "errors       none")
		return
	}
	for _, code := range slices.Sorted(maps.Keys(errors)) {
		fmt.Fprintf(w, "errors       %d %s\n", errors[code], code)
	}
}
