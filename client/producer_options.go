package client

import (
	"errors"
	"fmt"
	"time"

	"github.com/forebaymq/forebay/api"
)

// Defaults of a Producer.
const (
	defaultLinger           = 5 * time.Millisecond
	defaultBatchRecords     = 10_000
	defaultBatchBytes       = 4 << 20
	defaultRequestsInFlight = 8
	defaultProducerBuffer   = 64 << 20
	defaultDeliveryDeadline = 2 * time.Minute
)

// producerSlack is what a request has beside its records: the producer's ID, epoch and sequence.
const producerSlack = 512

type producerOptions struct {
	id           string
	generated    bool // id is random, so that nobody else can have a session of it
	linger       time.Duration
	batchRecords int
	batchBytes   int
	lanes        int
	buffer       int64
	deadline     time.Duration
	once         bool // without idempotence
	stop         bool
	callback     func(Record, Position, error)
}

// ProducerOption changes one setting of a Producer.
type ProducerOption func(*producerOptions)

// WithProducerID names the producer, overriding the default of a random ID. A name gives two things: a second Producer of the name fences
// the first (see ErrFenced), and one that is started anew can ask where it stands (see Producer.SendAt). 1 to 200 bytes of printable text,
// not starting with "__".
func WithProducerID(id string) ProducerOption {
	return func(o *producerOptions) { o.id, o.generated = id, false }
}

// WithProducerLinger sets how long a record waits for others to share its request, overriding the default of 5 ms. Records that arrive while a
// request of their partition is under way wait for its answer in any case, so that batches grow with the load also at 0.
func WithProducerLinger(d time.Duration) ProducerOption {
	return func(o *producerOptions) { o.linger = d }
}

// WithProducerBatchRecords bounds the records of one request, overriding the default of 10,000. At most 100,000.
func WithProducerBatchRecords(n int) ProducerOption {
	return func(o *producerOptions) { o.batchRecords = n }
}

// WithProducerBatchBytes bounds the encoded bytes of one request before compression, overriding the default of 4 MiB. At most 16 MiB less 512
// bytes. A record that is larger by itself travels alone.
func WithProducerBatchBytes(n int) ProducerOption {
	return func(o *producerOptions) { o.batchBytes = n }
}

// WithProducerInFlight bounds the requests that are under way at once, overriding the default of 8. No two of them concern one partition,
// so more than the topic has partitions are never used.
func WithProducerInFlight(n int) ProducerOption { return func(o *producerOptions) { o.lanes = n } }

// WithProducerBuffer bounds the bytes of records that have no outcome yet, overriding the default of 64 MiB. Send waits while it is full.
// One record fits however small the bound is.
func WithProducerBuffer(bytes int64) ProducerOption {
	return func(o *producerOptions) { o.buffer = bytes }
}

// WithProducerDeadline sets how long after its Send a record is still tried, overriding the default of 2 minutes. A record that joins the
// batch of an earlier one may lose a tenth of that. The outcome is there at most some seconds later.
func WithProducerDeadline(d time.Duration) ProducerOption {
	return func(o *producerOptions) { o.deadline = d }
}

// WithoutProducerIdempotence publishes without a producer session, overriding the default of one. A request of unknown outcome is then never sent
// again: its records fail as Indefinite at once, and may still turn up behind later ones.
func WithoutProducerIdempotence() ProducerOption { return func(o *producerOptions) { o.once = true } }

// WithProducerStopOnFailure ends the producer with the first record that fails, overriding the default of going on with the next: what was sent
// and not yet handed over fails with ErrProducerStopped, and so does every later Send. For streams in which no record may be missing
// before another.
func WithProducerStopOnFailure() ProducerOption { return func(o *producerOptions) { o.stop = true } }

// WithProducerCallback calls fn with each record and its outcome, overriding the default of none: in the order of Send per key, before the
// record's Delivery is done, from one of several goroutines. What fn takes long for holds up the records behind, and it must not call Send,
// Flush or Close. The record is the one given to Send: its slices must stay as they are until then.
func WithProducerCallback(fn func(r Record, at Position, err error)) ProducerOption {
	return func(o *producerOptions) { o.callback = fn }
}

// validate reports every fault.
func (o *producerOptions) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(o.once || o.id != "" && len(o.id) <= api.MaxProducerIDBytes, "producer ID: %d bytes, want 1 to %d", len(o.id), api.MaxProducerIDBytes)
	check(o.linger >= 0, "linger %s: want 0 or more", o.linger)
	check(o.batchRecords >= 1 && o.batchRecords <= api.MaxRecordsPerRequest, "batch of %d records: want 1 to %d", o.batchRecords, api.MaxRecordsPerRequest)
	check(o.batchBytes >= 1 && o.batchBytes <= api.MaxRequestBytes-producerSlack, "batch of %d bytes: want 1 to %d", o.batchBytes,
		api.MaxRequestBytes-producerSlack)
	check(o.lanes >= 1 && o.lanes <= api.MaxPartitions, "%d requests in flight: want 1 to %d", o.lanes, api.MaxPartitions)
	check(o.buffer >= 1, "buffer of %d bytes: want 1 or more", o.buffer)
	check(o.deadline > 0, "delivery deadline %s: want more than 0", o.deadline)
	return errors.Join(errs...)
}
