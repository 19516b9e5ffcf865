package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/forebaymq/forebay/client"
)

// ProducerOptions say what Producer does.
type ProducerOptions struct {
	Client       *client.Client
	Topic        string // must exist
	RecordSize   int    // bytes of key and value
	Senders      int    // goroutines that call Send
	InFlight     int    // requests in flight at most; 0 = the Producer's default
	BatchBytes   int    // of a request at most; 0 = the Producer's default
	Duration     time.Duration
	Warmup       time.Duration
	Compressible float64 // share of each value that compresses, 0..1
	Seed         uint64
}

// Validate reports every fault by field.
func (o ProducerOptions) Validate() error {
	var errs []error
	check := func(ok bool, field, want string) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s must be %s", field, want))
		}
	}
	check(o.RecordSize >= 1 && o.RecordSize <= 1<<20, "record-size", "1 to 1048576")
	check(o.Senders >= 1 && o.Senders <= 10_000, "senders", "1 to 10000")
	check(o.InFlight >= 0, "in-flight", "0 or more")
	check(o.BatchBytes >= 0, "batch-bytes", "0 or more")
	check(o.Duration > 0, "duration", "above 0")
	check(o.Warmup >= 0, "warmup", "0 or more")
	check(o.Compressible >= 0 && o.Compressible <= 1, "compressible", "0 to 1")
	return errors.Join(errs...)
}

// ProducerReport is what Producer measured.
type ProducerReport struct {
	Topic         string  `json:"topic"`
	RecordSize    int     `json:"recordSize"`
	Senders       int     `json:"senders"`
	Seconds       float64 `json:"seconds"`
	Records       int64   `json:"records"`
	Bytes         int64   `json:"bytes"`
	RecordsPerSec float64 `json:"recordsPerSecond"`
	MBPerSec      float64 `json:"mbPerSecond"`
	// Delivery is from Send to the outcome, of one record in 64, with the wait for room in the buffer; a record's outcome is seen once those
	// that its sender sent before it have theirs.
	Delivery Latency          `json:"deliveryMillis"`
	Errors   map[string]int64 `json:"errors"`
}

// Print writes the report for people.
func (r *ProducerReport) Print(w io.Writer) {
	fmt.Fprintf(w, "producer     %d senders, records of %d B\n", r.Senders, r.RecordSize)
	fmt.Fprintf(w, "throughput   %.0f records/s  %.1f MB/s  (%d records in %.1f s)\n", r.RecordsPerSec, r.MBPerSec, r.Records, r.Seconds)
	fmt.Fprintf(w, "delivery     %s\n", r.Delivery)
	printErrors(w, r.Errors)
}

// producerChunk is some records that a sender sent one after the other.
const producerChunk = 64

type sentChunk struct {
	began      time.Time // of its first Send
	bytes      int64
	deliveries []*client.Delivery
}

// Producer measures one client.Producer that takes all that it can: every record is durable and committed when it counts.
func Producer(ctx context.Context, o ProducerOptions) (*ProducerReport, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	p := &payloads{size: o.RecordSize, batch: 4096, compressible: o.Compressible, rng: rand.New(rand.NewPCG(o.Seed, 0xf0eb))}
	records := p.records()
	var opts []client.ProducerOption
	if o.InFlight > 0 {
		opts = append(opts, client.WithProducerInFlight(o.InFlight))
	}
	if o.BatchBytes > 0 {
		opts = append(opts, client.WithProducerBatchBytes(o.BatchBytes))
	}
	producer, err := client.NewProducer(o.Client, o.Topic, opts...)
	if err != nil {
		return nil, err
	}
	run := &producerRun{o: o, producer: producer, records: records, rec: newRecorder()}
	begin := time.Now()
	run.measure = begin.Add(o.Warmup)
	run.end = run.measure.Add(o.Duration)
	var wg sync.WaitGroup
	for i := range o.Senders {
		wg.Go(func() { run.sender(ctx, i) })
	}
	wg.Wait()
	closed := producer.Close(ctx)
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return run.report(), closed
}

type producerRun struct {
	o            ProducerOptions
	producer     *client.Producer
	records      []client.Record
	rec          *recorder
	measure, end time.Time
}

// sender sends until the end, and a second goroutine of its own looks at the outcomes.
func (r *producerRun) sender(ctx context.Context, number int) {
	chunks := make(chan sentChunk, 64)
	var wg sync.WaitGroup
	wg.Go(func() {
		for c := range chunks {
			r.outcomes(ctx, c)
		}
	})
	defer wg.Wait()
	defer close(chunks)
	next := number * 97
	for {
		c := sentChunk{began: time.Now(), deliveries: make([]*client.Delivery, 0, producerChunk)}
		if c.began.After(r.end) {
			return
		}
		for range producerChunk {
			record := &r.records[next%len(r.records)]
			next++
			d, err := r.producer.Send(ctx, *record)
			if err != nil {
				if ctx.Err() == nil {
					r.rec.failure(err)
				}
				return
			}
			c.bytes += int64(len(record.Key) + len(record.Value))
			c.deliveries = append(c.deliveries, d)
		}
		chunks <- c
	}
}

// outcomes counts a chunk where its last record was acknowledged in the time of the measurement.
func (r *producerRun) outcomes(ctx context.Context, c sentChunk) {
	var took time.Duration
	for i, d := range c.deliveries {
		if _, err := d.Wait(ctx); err != nil {
			if ctx.Err() == nil {
				r.rec.failure(err)
			}
			return
		}
		if i == 0 {
			took = time.Since(c.began)
		}
	}
	if now := time.Now(); now.After(r.measure) && now.Before(r.end) {
		r.rec.success(now, took, int64(len(c.deliveries)), c.bytes)
	}
}

func (r *producerRun) report() *ProducerReport {
	report := &ProducerReport{
		Topic: r.o.Topic, RecordSize: r.o.RecordSize, Senders: r.o.Senders, Seconds: r.o.Duration.Seconds(), Delivery: r.rec.latency(), Errors: r.rec.errors(),
	}
	report.Records, report.Bytes, _ = r.rec.totals()
	report.RecordsPerSec = float64(report.Records) / report.Seconds
	report.MBPerSec = float64(report.Bytes) / report.Seconds / 1e6
	return report
}
