package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/client"
)

// QueueOptions say what Queue does.
type QueueOptions struct {
	Client     *client.Client // with a retry policy of one attempt
	Topic      string         // must exist, and nobody else writes to it
	Backlog    int64          // records that are there when the clock starts, at least; what is missing is published first
	RecordSize int            // bytes of key and value of those that are published
	Batch      int            // records a lease, and a receipt each in one ack
	JSON       bool           // the JSON form instead of protobuf
	Clients    int            // consumers; each leases, acks, and leases again
	Warmup     time.Duration  // not measured
	Duration   time.Duration  // of the measurement; 0 = until the backlog is settled
	RequestIDs bool           // repeatable leases, which the server has to remember
	Keep       bool           // leave the subscription behind
	Seed       uint64         // of what is published
	// Progress, if set, hears how many records have been published, of how many.
	Progress func(done, all int64)
}

// Validate reports every fault by field.
func (o QueueOptions) Validate() error {
	var errs []error
	check := func(ok bool, field, want string) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s must be %s", field, want))
		}
	}
	check(o.Backlog >= 1, "backlog", "1 or more")
	check(o.RecordSize >= 1 && o.RecordSize <= 1<<20, "record-size", "1 to 1048576")
	check(o.Batch >= 1 && o.Batch <= api.MaxLeaseRecords, "batch", fmt.Sprintf("1 to %d", api.MaxLeaseRecords))
	check(o.Clients >= 1 && o.Clients <= 10_000, "clients", "1 to 10000")
	check(o.Warmup >= 0, "warmup", "0 or more")
	check(o.Duration >= 0, "duration", "0 or more")
	return errors.Join(errs...)
}

// QueueReport is what Queue measured. A record counts when its ack was answered.
type QueueReport struct {
	Topic         string           `json:"topic"`
	Encoding      string           `json:"encoding"`
	Batch         int              `json:"batch"`
	Clients       int              `json:"clients"`
	RequestIDs    bool             `json:"requestIds"`
	Backlog       int64            `json:"backlog"`
	Seconds       float64          `json:"seconds"`
	Records       int64            `json:"records"`
	Bytes         int64            `json:"bytes"` // of keys and values
	RecordsPerSec float64          `json:"recordsPerSecond"`
	MBPerSec      float64          `json:"mbPerSecond"`
	Lease         Latency          `json:"leaseMillis"` // of leases that brought something
	Ack           Latency          `json:"ackMillis"`
	EmptyLeases   int64            `json:"emptyLeases"`
	Verified      Settled          `json:"verified"` // of the whole run, warm-up included
	Errors        map[string]int64 `json:"errors"`
}

// Print writes the report for people.
func (r *QueueReport) Print(w io.Writer) {
	fmt.Fprintf(w, "queue        %d clients, leases of %d, %s, backlog of %d\n", r.Clients, r.Batch, r.Encoding, r.Backlog)
	fmt.Fprintf(w, "throughput   %.0f records/s leased and acked  %.1f MB/s  (%d records in %.1f s)\n", r.RecordsPerSec, r.MBPerSec, r.Records, r.Seconds)
	fmt.Fprintf(w, "lease        %s, %d empty\n", r.Lease, r.EmptyLeases)
	fmt.Fprintf(w, "ack          %s\n", r.Ack)
	v := r.Verified
	fmt.Fprintf(w, "verified     %d of %d records delivered, %d settled; %d repeated deliveries, %d lost acks\n", v.Delivered, v.Expected, v.Settled, v.Duplicates, v.LostAcks)
	if len(v.Faults) == 0 {
		fmt.Fprintln(w, "             each settled once, and the server agrees")
	}
	for _, f := range v.Faults {
		fmt.Fprintf(w, "FAULT        %s\n", f)
	}
	printErrors(w, r.Errors)
}

// queueWait is how long a lease waits: so long a client may be late to notice the end.
const queueWait = time.Second

// errSettled ends a run whose backlog is settled.
var errSettled = errors.New("everything is settled")

// Queue runs the measurement.
func Queue(ctx context.Context, o QueueOptions) (*QueueReport, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if err := fill(ctx, o); err != nil {
		return nil, err
	}
	topic, err := o.Client.GetTopic(ctx, o.Topic)
	if err != nil {
		return nil, err
	}
	name, err := o.subscribe(ctx, "earliest")
	if err != nil {
		return nil, err
	}
	run := &queueRun{o: o, subscription: name, ledger: newLedger(topic.PartitionInfo), lease: newRecorder(), ack: newRecorder()}
	report, err := run.measure(ctx)
	if !o.Keep {
		err = errors.Join(err, o.unsubscribe(ctx, name))
	}
	return report, err
}

// subscribe makes a subscription of a name that nobody has.
func (o *QueueOptions) subscribe(ctx context.Context, start string) (string, error) {
	name := "bench-" + strings.ToLower(rand.Text()[:10])
	_, _, err := o.Client.PutSubscription(ctx, o.Topic, name, client.SubscriptionSettings{Start: &start})
	return name, err
}

// unsubscribe removes it, also when the run was interrupted.
func (o *QueueOptions) unsubscribe(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return o.Client.DeleteSubscription(ctx, o.Topic, name)
}

type queueRun struct {
	o            QueueOptions
	subscription string
	ledger       *ledger
	lease, ack   *recorder
	begin, from  time.Time
	end          time.Time // zero = none
	empty        atomic.Int64
	finish       context.CancelCauseFunc
}

func (r *queueRun) measure(ctx context.Context) (*QueueReport, error) {
	running, finish := context.WithCancelCause(ctx)
	defer finish(nil)
	r.finish = finish
	r.begin = time.Now()
	r.from = r.begin.Add(r.o.Warmup)
	if r.o.Duration > 0 {
		r.end = r.from.Add(r.o.Duration)
	}
	var wg sync.WaitGroup
	for range r.o.Clients {
		wg.Go(func() { r.client(ctx, running) })
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	s, err := r.o.Client.GetSubscription(ctx, r.o.Topic, r.subscription)
	if err != nil {
		return nil, err
	}
	return r.report(s, errors.Is(context.Cause(running), errSettled))
}

// client leases and acks until the backlog is settled or the time is up. It always acks what it has leased.
func (r *queueRun) client(ctx, running context.Context) {
	receipts := make([]string, 0, r.o.Batch)
	for running.Err() == nil {
		begin := time.Now()
		if !r.end.IsZero() && !begin.Before(r.end) {
			return
		}
		messages, err := r.take(running)
		done := time.Now()
		if err != nil {
			if running.Err() != nil || !r.failed(running, r.lease, err, done) {
				return
			}
			continue
		}
		if len(messages) == 0 {
			r.empty.Add(1)
			continue
		}
		var bytes int64
		receipts = receipts[:0]
		for i := range messages {
			m := &messages[i]
			r.ledger.deliver(m.Partition, m.Offset)
			receipts = append(receipts, m.Receipt)
			bytes += int64(len(m.Key) + len(m.Value))
		}
		if !begin.Before(r.from) {
			r.lease.success(done, done.Sub(begin), int64(len(messages)), bytes)
		}
		r.settle(ctx, messages, receipts, bytes)
	}
}

// failed counts a failure and pauses. false: give up.
func (r *queueRun) failed(ctx context.Context, rec *recorder, err error, at time.Time) bool {
	rec.failure(err)
	if outcome, _ := client.Classify(err); outcome == client.Definite {
		r.finish(err)
		return false
	}
	return sleepUntil(ctx, at.Add(pauseAfter(err)))
}

func (r *queueRun) take(ctx context.Context) ([]client.Message, error) {
	o := client.LeaseOptions{Max: r.o.Batch, Wait: queueWait}
	if r.o.RequestIDs {
		o.RequestID = rand.Text()
	}
	if r.o.JSON {
		return r.o.Client.LeaseJSON(ctx, r.o.Topic, r.subscription, o)
	}
	return r.o.Client.Lease(ctx, r.o.Topic, r.subscription, o)
}

// settle acks until the outcome is known: acks are repeatable.
func (r *queueRun) settle(ctx context.Context, messages []client.Message, receipts []string, bytes int64) {
	for {
		begin := time.Now()
		results, err := r.acknowledge(ctx, receipts)
		done := time.Now()
		if err != nil {
			if ctx.Err() != nil || !r.failed(ctx, r.ack, err, done) {
				return
			}
			continue
		}
		n := int64(0)
		for i := range results {
			if results[i].Code != "" {
				r.ledger.lostAcks.Add(1)
				continue
			}
			r.ledger.settle(messages[i].Partition, messages[i].Offset)
			n++
		}
		if !begin.Before(r.from) && (r.end.IsZero() || done.Before(r.end)) {
			r.ack.success(done, done.Sub(begin), n, bytes)
		}
		if r.ledger.settled.Load() == r.ledger.expected() {
			r.finish(errSettled)
		}
		return
	}
}

func (r *queueRun) acknowledge(ctx context.Context, receipts []string) ([]client.SettleResult, error) {
	switch {
	case r.o.JSON:
		return r.o.Client.AckManyJSON(ctx, r.o.Topic, r.subscription, receipts)
	case len(receipts) > 1:
		return r.o.Client.AckMany(ctx, r.o.Topic, r.subscription, receipts)
	}
	result := client.SettleResult{Receipt: receipts[0]}
	err := r.o.Client.Ack(ctx, r.o.Topic, r.subscription, receipts[0])
	if errors.Is(err, client.ErrLeaseLost) {
		result.Code, err = api.CodeLeaseLost, nil
	}
	return []client.SettleResult{result}, err
}

func (r *queueRun) report(s *client.Subscription, complete bool) (*QueueReport, error) {
	report := &QueueReport{
		Topic: r.o.Topic, Encoding: "protobuf", Batch: r.o.Batch, Clients: r.o.Clients, RequestIDs: r.o.RequestIDs, Backlog: r.ledger.expected(),
		Lease: r.lease.latency(), Ack: r.ack.latency(), EmptyLeases: r.empty.Load(), Verified: r.ledger.judge(s.Partitions, complete),
	}
	if r.o.JSON {
		report.Encoding = "json"
	}
	report.Errors = r.lease.errors()
	for code, n := range r.ack.errors() {
		report.Errors[code] += n
	}
	records, bytes, last := r.ack.totals()
	report.Records, report.Bytes = records, bytes
	if took := last.Sub(r.from); took > 0 {
		report.Seconds = took.Seconds()
		report.RecordsPerSec = float64(records) / report.Seconds
		report.MBPerSec = float64(bytes) / report.Seconds / 1e6
	}
	switch {
	case len(report.Verified.Faults) > 0:
		return report, fmt.Errorf("the queue is not as it should be: %s", strings.Join(report.Verified.Faults, "; "))
	case records == 0:
		return report, fmt.Errorf("nothing was settled in the measured time (a backlog too small for --warmup?): %v", report.Errors)
	}
	return report, nil
}
