package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebaymq/forebay/client"
)

// PublishOptions say what Publish does.
type PublishOptions struct {
	Client       *client.Client // with a retry policy of one attempt: an answer is measured, not hidden
	Topic        string         // must exist
	RecordSize   int            // bytes of key and value
	Batch        int            // records a request
	JSON         bool           // JSON requests instead of protobuf
	Clients      int            // requests in flight at most
	Duration     time.Duration  // of the measurement
	Warmup       time.Duration  // before it
	Rate         float64        // records a second; 0 = closed loop
	Compressible float64        // share of each value that compresses, 0..1
	OpsURL       string         // of the ops port, for counting PUTs; "" = not counted
	Seed         uint64
}

// Validate reports every fault by field.
func (o PublishOptions) Validate() error {
	var errs []error
	check := func(ok bool, field, want string) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s must be %s", field, want))
		}
	}
	check(o.RecordSize >= 1 && o.RecordSize <= 1<<20, "record-size", "1 to 1048576")
	check(o.Batch >= 1 && o.Batch <= 100_000, "batch", "1 to 100000")
	check(o.Batch*o.RecordSize <= 12<<20, "batch", "so small that a request stays below 12 MiB")
	check(o.Clients >= 1 && o.Clients <= 10_000, "clients", "1 to 10000")
	check(o.Duration > 0, "duration", "above 0")
	check(o.Warmup >= 0, "warmup", "0 or more")
	check(o.Rate >= 0, "rate", "0 or more")
	check(o.Compressible >= 0 && o.Compressible <= 1, "compressible", "0 to 1")
	return errors.Join(errs...)
}

// PublishReport is what Publish measured.
type PublishReport struct {
	Topic         string           `json:"topic"`
	Loop          string           `json:"loop"` // "open" or "closed"
	Encoding      string           `json:"encoding"`
	Compression   string           `json:"compression"`
	RecordSize    int              `json:"recordSize"`
	Batch         int              `json:"batch"`
	Clients       int              `json:"clients"`
	Compressible  float64          `json:"compressible"`
	WantedRate    float64          `json:"wantedRecordsPerSecond,omitempty"`
	Seconds       float64          `json:"seconds"`
	Records       int64            `json:"records"`
	Bytes         int64            `json:"bytes"`
	RecordsPerSec float64          `json:"recordsPerSecond"`
	MBPerSec      float64          `json:"mbPerSecond"`
	Ack           Latency          `json:"ackMillis"`
	Errors        map[string]int64 `json:"errors"`
	Puts          *Puts            `json:"puts,omitempty"`
}

// Print writes the report for people.
func (r *PublishReport) Print(w io.Writer) {
	fmt.Fprintf(w, "publish      %s loop, %d clients, batches of %d x %d B, %s, compression %s\n", r.Loop, r.Clients, r.Batch, r.RecordSize, r.Encoding, r.Compression)
	fmt.Fprintf(w, "throughput   %.0f records/s  %.1f MB/s  (%d records in %.1f s)\n", r.RecordsPerSec, r.MBPerSec, r.Records, r.Seconds)
	fmt.Fprintf(w, "ack          %s\n", r.Ack)
	printErrors(w, r.Errors)
	if r.Puts != nil {
		fmt.Fprintf(w, "PUTs         %d, %.1f per GiB\n", r.Puts.Count, r.Puts.PerGiB)
	}
}

// prebuilt is how many bytes of requests are built before the clock runs, about.
const prebuilt = 128 << 20

type shot struct {
	request *client.Prepared
	bytes   int64
}

// Publish runs the measurement.
func Publish(ctx context.Context, o PublishOptions) (*PublishReport, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	shots, err := o.prepare()
	if err != nil {
		return nil, err
	}
	run := &publishRun{o: o, shots: shots, rec: newRecorder()}
	if o.Rate > 0 {
		run.interval = time.Duration(float64(o.Batch) / o.Rate * float64(time.Second))
	}
	run.begin = time.Now()
	run.measure = run.begin.Add(o.Warmup)
	run.end = run.measure.Add(o.Duration)
	counter := newPutCounter(o.OpsURL)
	counted := make(chan error, 1)
	go func() { counted <- counter.before(ctx, run.measure) }()
	var wg sync.WaitGroup
	for i := range o.Clients {
		wg.Go(func() { run.client(ctx, i) })
	}
	wg.Wait()
	if err := <-counted; err != nil {
		return nil, err
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return run.report(ctx, counter)
}

func (o *PublishOptions) prepare() ([]shot, error) {
	p := &payloads{size: o.RecordSize, batch: o.Batch, compressible: o.Compressible, json: o.JSON, rng: rand.New(rand.NewPCG(o.Seed, 0xf0eb))}
	n := min(max(prebuilt/(o.RecordSize*o.Batch), 4), 64)
	shots := make([]shot, n)
	for i := range shots {
		var err error
		if shots[i].request, shots[i].bytes, err = p.request(o.Client); err != nil {
			return nil, fmt.Errorf("build requests: %w", err)
		}
	}
	return shots, nil
}

type publishRun struct {
	o                   PublishOptions
	shots               []shot
	rec                 *recorder
	begin, measure, end time.Time
	interval            time.Duration // between requests in an open loop
	next                atomic.Int64  // of the schedule
}

// client sends one request after the other.
func (r *publishRun) client(ctx context.Context, number int) {
	for n := number; ctx.Err() == nil; n++ {
		intended := time.Now()
		if r.interval > 0 {
			intended = r.begin.Add(time.Duration(r.next.Add(1)-1) * r.interval)
		}
		if !intended.Before(r.end) {
			return
		}
		if !sleepUntil(ctx, intended) {
			return
		}
		s := r.shots[n%len(r.shots)]
		_, err := r.o.Client.PublishPrepared(ctx, r.o.Topic, s.request)
		done := time.Now()
		if ctx.Err() != nil {
			return
		}
		if !intended.Before(r.measure) {
			if err != nil {
				r.rec.failure(err)
			} else {
				r.rec.success(done, done.Sub(intended), int64(r.o.Batch), s.bytes)
			}
		}
		if err != nil && r.interval == 0 && !sleepUntil(ctx, done.Add(pauseAfter(err))) {
			return
		}
	}
}

// pauseAfter keeps a closed loop from beating on a server that refuses.
func pauseAfter(err error) time.Duration {
	if e, ok := asError(err); ok && e.RetryAfter > 0 {
		return min(e.RetryAfter, time.Second)
	}
	return 50 * time.Millisecond
}

func (r *publishRun) report(ctx context.Context, counter *putCounter) (*PublishReport, error) {
	first := r.shots[0].request
	rec := r.rec
	report := &PublishReport{
		Topic: r.o.Topic, Loop: "closed", Encoding: "protobuf", Compression: "none", RecordSize: r.o.RecordSize, Batch: r.o.Batch, Clients: r.o.Clients,
		Compressible: r.o.Compressible, WantedRate: r.o.Rate, Ack: rec.latency(),
	}
	if r.interval > 0 {
		report.Loop = "open"
	}
	if r.o.JSON {
		report.Encoding = "json"
	}
	if first.ContentEncoding != "" {
		report.Compression = first.ContentEncoding
	}
	rec.mu.Lock()
	report.Records, report.Bytes, report.Errors = rec.mu.records, rec.mu.bytes, rec.mu.errors
	last := rec.mu.last
	rec.mu.Unlock()
	if took := last.Sub(r.measure); took > 0 {
		report.Seconds = took.Seconds()
		report.RecordsPerSec = float64(report.Records) / report.Seconds
		report.MBPerSec = float64(report.Bytes) / report.Seconds / 1e6
	}
	puts, err := counter.after(ctx, report.Bytes)
	if err != nil {
		return nil, err
	}
	report.Puts = puts
	if report.Records == 0 {
		return report, fmt.Errorf("no request succeeded: %v", report.Errors)
	}
	return report, nil
}

func sleepUntil(ctx context.Context, t time.Time) bool {
	d := time.Until(t)
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func asError(err error) (*client.Error, bool) {
	var e *client.Error
	ok := errors.As(err, &e)
	return e, ok
}
