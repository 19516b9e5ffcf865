package outbox

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/client"
)

// Publisher is what a relay needs of a *client.Client.
type Publisher interface {
	StartProducer(ctx context.Context, id string) (epoch int64, err error)
	ProducerPositions(ctx context.Context, id, topic string) ([]client.ProducerPosition, error)
	Publish(ctx context.Context, topic string, records []client.Record, producer *client.ProducerSequence) (*client.PublishResult, error)
}

// Relay publishes what is in an outbox. Any number of relays, in any number of processes, share the work.
type Relay struct {
	store   store
	client  Publisher
	o       relayOptions
	running atomic.Bool
	wake    chan struct{}

	published, settled atomic.Int64

	mu struct {
		sync.Mutex
		shards []int
		errs   map[int]error // by shard; membershipErr: of all
	}
}

// membershipErr is the key of failures that concern no shard.
const membershipErr = -1

type relayOptions struct {
	rows, bytes      int
	minPoll, maxPoll time.Duration
	lease            time.Duration
	grace            time.Duration
	keep             time.Duration
	park             bool
	log              *slog.Logger
	minPause         time.Duration // after a failure
	maxPause         time.Duration
	hook             func(step string) // of tests: where a relay may be killed
}

// RelayOption changes one setting of a Relay.
type RelayOption func(*relayOptions)

// WithBatch bounds one publish, overriding the defaults of 250 rows and 1 MiB; one row is published however large it is. At most Shards
// batches are in memory at a time.
func WithBatch(rows, bytes int) RelayOption {
	return func(o *relayOptions) { o.rows, o.bytes = rows, bytes }
}

// WithPoll sets how often the relay looks for rows, overriding the defaults of 50 ms while there are some and, doubling, 1 s while there are
// none. Wake makes it look at once.
func WithPoll(min, max time.Duration) RelayOption {
	return func(o *relayOptions) { o.minPoll, o.maxPoll = min, max }
}

// WithLease sets how long a relay may show no sign of life before the others take its shards, overriding the default of 10 s. It is measured by
// the clock of each observer alone. Too short a time costs nothing but needless takeovers.
func WithLease(d time.Duration) RelayOption { return func(o *relayOptions) { o.lease = d } }

// WithGrace bounds how long Run, once its context has ended, waits for the publishes under way, overriding the default of 10 s.
func WithGrace(d time.Duration) RelayOption { return func(o *relayOptions) { o.grace = d } }

// WithRetention keeps rows for so long after they were published, overriding the default of deleting them at once. Relays delete
// the older ones, a thousand at a time.
func WithRetention(d time.Duration) RelayOption { return func(o *relayOptions) { o.keep = d } }

// WithParking parks a record that the server refuses for what it is (too large, against the schema, invalid) and goes on with
// those behind it, overriding the default of holding back everything behind it in its shard and topic until it is published or parked by
// hand. A topic that is missing or forbidden parks nothing: that is no fault of the record.
func WithParking() RelayOption { return func(o *relayOptions) { o.park = true } }

// WithLogger overrides the default of slog.Default().
func WithLogger(l *slog.Logger) RelayOption { return func(o *relayOptions) { o.log = l } }

// NewRelay makes a relay of an outbox. db needs a connection for each shard at work, Shards at most.
func NewRelay(o *Outbox, db *sql.DB, c Publisher, opts ...RelayOption) (*Relay, error) {
	ro := relayOptions{
		rows: 250, bytes: 1 << 20, minPoll: 50 * time.Millisecond, maxPoll: time.Second, lease: 10 * time.Second, grace: 10 * time.Second,
		log: slog.Default(), minPause: 200 * time.Millisecond, maxPause: 30 * time.Second, hook: func(string) {},
	}
	for _, opt := range opts {
		opt(&ro)
	}
	switch {
	case ro.rows < 1 || ro.rows > api.MaxRecordsPerRequest:
		return nil, fmt.Errorf("outbox: a batch of %d rows: want 1 to %d", ro.rows, api.MaxRecordsPerRequest)
	case ro.bytes < 1 || ro.bytes > api.MaxRequestBytes/2:
		return nil, fmt.Errorf("outbox: a batch of %d bytes: want 1 to %d", ro.bytes, api.MaxRequestBytes/2)
	case ro.minPoll <= 0 || ro.maxPoll < ro.minPoll:
		return nil, fmt.Errorf("outbox: poll every %s to %s", ro.minPoll, ro.maxPoll)
	case ro.lease < 3*time.Millisecond || ro.grace < 0 || ro.keep < 0:
		return nil, errors.New("outbox: a lease, a grace or a retention that is too short")
	}
	return &Relay{store: store{db: db, t: o.t, keep: ro.keep > 0}, client: c, o: ro, wake: make(chan struct{}, 1)}, nil
}

// Wake makes the relay look for rows now. An application that runs the relay in its own process calls it after a commit.
func (r *Relay) Wake() {
	select {
	case r.wake <- struct{}{}:
	default: // it is going to look anyway
	}
}

// RelayStats says what a relay does.
type RelayStats struct {
	Shards    []int // that it has
	Published int64 // rows, since it was made
	// Settled are rows that were in the log already when this relay took over: their relay ended between publish and mark.
	Settled int64
	Err     error // the failures that have not been overcome; nil = none
}

// Stats says what the relay does.
func (r *Relay) Stats() RelayStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(r.mu.errs)) {
		errs = append(errs, r.mu.errs[key])
	}
	return RelayStats{Shards: slices.Clone(r.mu.shards), Published: r.published.Load(), Settled: r.settled.Load(), Err: errors.Join(errs...)}
}

func (r *Relay) report(key int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		delete(r.mu.errs, key)
	} else {
		r.mu.errs[key] = err
	}
}

func (r *Relay) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.errs, r.mu.shards = map[int]error{}, nil
}

// Run publishes until ctx ends, and then gives its shards to the others. It fails only at the start: ErrNotMigrated, or a second Run at the
// same time. Whatever goes wrong later is logged, shown by Stats, and tried again.
func (r *Relay) Run(ctx context.Context) error {
	if !r.running.CompareAndSwap(false, true) {
		return errors.New("outbox: the relay is running already")
	}
	defer r.running.Store(false)
	r.reset()
	for pause := r.o.minPause; ; pause = min(2*pause, r.o.maxPause) {
		err := r.store.migrated(ctx)
		if err == nil {
			break
		}
		if errors.Is(err, ErrNotMigrated) {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		r.report(membershipErr, err)
		r.o.log.Warn("outbox: no database", "err", err)
		if !sleep(ctx, pause) {
			return nil
		}
	}
	r.report(membershipErr, nil)
	m := newMembership(r)
	var wg sync.WaitGroup
	loops, stop := context.WithCancel(context.WithoutCancel(ctx))
	for _, loop := range []func(context.Context){m.run, m.poll, r.janitor} {
		wg.Go(func() { loop(loops) })
	}
	<-ctx.Done()
	stop()
	wg.Wait()
	m.leave(context.WithoutCancel(ctx))
	return nil
}

// janitor deletes what was published long enough ago.
func (r *Relay) janitor(ctx context.Context) {
	if r.o.keep <= 0 {
		return
	}
	every := max(min(r.o.keep/4, time.Minute), 10*time.Millisecond)
	for sleep(ctx, every) {
		if _, err := prune(ctx, r.store.db, r.store.t, r.o.keep); err != nil && ctx.Err() == nil {
			r.o.log.Warn("outbox: published rows stay", "err", err)
		}
	}
}

// sleep waits, and says whether all of it.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// newName is a name that no relay ever had.
func newName() string { return rand.Text() }
