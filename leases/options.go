package leases

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/leases/store"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

// View is what the engine needs of the metadata log to serve leases; *metadata.Log has it.
type View interface {
	// Sync returns when this node has applied everything that was acknowledged before the call. METADATA_UNAVAILABLE.
	Sync(ctx context.Context) error
	Topic(tenant, name string) (*metadata.Topic, error)
	TopicByID(id metadata.TopicID) (*metadata.Topic, error)
	PartitionInfos(id metadata.TopicID) ([]metadata.PartitionInfo, error)
	// TopicChanged returns a channel that is closed at the next change of any partition of the topic, or when it goes away.
	TopicChanged(id metadata.TopicID) (ch <-chan struct{}, release func())
	Subscription(tenant, topic, name string) (*metadata.Subscription, error)
	SubscriptionByID(id metadata.SubscriptionID) (*metadata.Subscription, error)
	// SubscriptionsChanged returns a channel that is closed when any subscription is made, changed or deleted.
	SubscriptionsChanged() <-chan struct{}
}

// Catalog is what administration needs of the metadata log; *metadata.Log has it.
type Catalog interface {
	Subscriptions(tenant, topic, after string, limit int) ([]*metadata.Subscription, string, error)
	PutSubscription(ctx context.Context, tenant, topic, name string,
		decide func(current *metadata.Subscription) (api.SubscriptionConfig, []api.PartitionOffset, error)) (s *metadata.Subscription, created bool, err error)
	DeleteSubscription(ctx context.Context, tenant, topic, name string) (*metadata.Subscription, error)
	// AllSubscriptions goes through the subscriptions of all tenants.
	AllSubscriptions() iter.Seq[*metadata.Subscription]
	// Locate gives up to max live batches, ascending, from the first one whose Last is at or after offset: where statistics find the age of a
	// record without reading it.
	Locate(id metadata.TopicID, partition int32, offset int64, max int) ([]metadata.IndexEntry, metadata.PartitionInfo, error)
}

// UnreadableError says that records can never be read: their bytes are corrupt, or their object is gone. It is in the chain of the error of
// Reader.Read, which has returned no records then.
type UnreadableError struct {
	Next  int64 // first offset after what cannot be read
	Cause error
}

func (e *UnreadableError) Error() string {
	return fmt.Sprintf("unreadable up to offset %d: %v", e.Next, e.Cause)
}

// Unwrap gives the cause.
func (e *UnreadableError) Unwrap() error { return e.Cause }

// Reader reads records; the node makes it of fetch.
type Reader interface {
	// Read gives records of a partition from an offset on, as far as this node has applied the log, without a barrier, and next, where to go on:
	// offsets below it that are not among the records are holes. At least one record however small maxBytes. Records share memory with
	// the cache. OFFSET_OUT_OF_RANGE (Extra "logStart", int64), UNKNOWN_TOPIC, STORAGE_UNAVAILABLE; *UnreadableError where trying again is no use.
	Read(ctx context.Context, tenant string, topic metadata.TopicID, partition int32, offset int64, maxRecords int, maxBytes int64) (records []segment.Record, next int64, err error)
	// OffsetForTime gives the first offset whose append time is at or after ms (Unix), or found=false. Linearizable.
	OffsetForTime(ctx context.Context, topic metadata.TopicID, partition int32, ms int64) (offset int64, found bool, err error)
}

// Publisher appends records, for copies of dead letters; the node makes it of ingest.
type Publisher interface {
	// Publish stores the records, each in its partition of the topic, all or none, and gives their offsets. Errors are *api.Error.
	Publish(ctx context.Context, topic *metadata.Topic, records []segment.Record, partitions []int32) ([]int64, error)
}

// Journal is what the engine needs of the durable store; *journal.Journal has it.
type Journal interface {
	// Load gives what the journal has of a subscription, linearizably.
	Load(ctx context.Context, tenant string, id metadata.SubscriptionID) (*journal.Loaded, error)
	// LoadReported is Load, and says up to which version the changes of each shard are in the journal: openings alone are none.
	LoadReported(ctx context.Context, tenant string, id metadata.SubscriptionID) (*journal.Loaded, map[int32]journal.Version, error)
	// Write appends the entries atomically and gives the journal offset of each.
	Write(ctx context.Context, tenant string, entries []journal.Entry) ([]int64, error)
	PutTask(ctx context.Context, tenant string, t journal.Task) error
	RemoveTask(ctx context.Context, tenant string, id metadata.SubscriptionID, task string) error
	// DropSubscription removes everything of a subscription that is deleted.
	DropSubscription(ctx context.Context, tenant string, id metadata.SubscriptionID) error
}

// Options configure an Engine.
type Options struct {
	Store     *store.Store // required; the caller closes it after the engine
	Journal   Journal      // required
	View      View         // required
	Catalog   Catalog      // required
	Reader    Reader       // required
	Publisher Publisher    // required

	// FlushDelay is how long a change waits for company before it is journalled; default 20 ms.
	FlushDelay time.Duration
	// RescueAge: marks of changes older than this belong to a node that died, and any node journals them; default 500 ms.
	RescueAge time.Duration
	// SweepInterval is how often lapsed leases and due records are looked for; default 1 s.
	SweepInterval time.Duration
	// AuditInterval is how often the state of the subscriptions in use is checked; default 5 s.
	AuditInterval time.Duration
	// IdleAfter: a subscription that nobody has touched for so long leaves Redis, and this node's memory; default 15 min.
	IdleAfter time.Duration
	// EvictInterval is how often idle subscriptions are looked for; default 1 min.
	EvictInterval time.Duration
	// CustodyInterval is how often each subscription is looked after by some node: redrives that a dead node left, dead letters that wait for
	// their copy or that retention is about to delete; default 1 min.
	CustodyInterval time.Duration
	// CallTimeout bounds work that no request waits for, and what several requests share: a look for records with the reading of them; default 15 s.
	CallTimeout time.Duration
	// HandoverSlack: leases that were reserved longer ago than this are extended before they are handed out; default 20 ms.
	HandoverSlack time.Duration

	Clock      clockwork.Clock       // default: the real one
	Rand       io.Reader             // default: crypto/rand
	Logger     *slog.Logger          // default: discards
	Registerer prometheus.Registerer // nil: metrics are kept but not registered
}

// WithDefaults fills in what is zero.
func (o Options) WithDefaults() Options {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&o.FlushDelay, 20 * time.Millisecond}, {&o.RescueAge, 500 * time.Millisecond}, {&o.SweepInterval, time.Second},
		{&o.AuditInterval, 5 * time.Second}, {&o.IdleAfter, 15 * time.Minute}, {&o.EvictInterval, time.Minute}, {&o.CustodyInterval, time.Minute},
		{&o.CallTimeout, 15 * time.Second}, {&o.HandoverSlack, 20 * time.Millisecond},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if o.Clock == nil {
		o.Clock = clockwork.NewRealClock()
	}
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Validate reports every fault, by field. Call it after WithDefaults.
func (o Options) Validate() error {
	var faults []error
	fault := func(field, what string) { faults = append(faults, fmt.Errorf("%s: %s", field, what)) }
	for _, r := range []struct {
		field string
		nil   bool
	}{
		{"Store", o.Store == nil}, {"Journal", o.Journal == nil}, {"View", o.View == nil}, {"Catalog", o.Catalog == nil},
		{"Reader", o.Reader == nil}, {"Publisher", o.Publisher == nil},
	} {
		if r.nil {
			fault(r.field, "is required")
		}
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"FlushDelay", o.FlushDelay}, {"RescueAge", o.RescueAge}, {"SweepInterval", o.SweepInterval}, {"AuditInterval", o.AuditInterval},
		{"IdleAfter", o.IdleAfter}, {"EvictInterval", o.EvictInterval}, {"CustodyInterval", o.CustodyInterval}, {"CallTimeout", o.CallTimeout},
		{"HandoverSlack", o.HandoverSlack},
	} {
		if d.value <= 0 {
			fault(d.field, "must be above zero")
		}
	}
	return errors.Join(faults...)
}
