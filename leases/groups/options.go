package groups

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/leases/store"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

// View is what groups need to know about topics; *metadata.Log has it.
type View interface {
	// Sync returns when this node has applied everything that was acknowledged before the call. METADATA_UNAVAILABLE.
	Sync(ctx context.Context) error
	Topic(tenant, name string) (*metadata.Topic, error)
	TopicByID(id metadata.TopicID) (*metadata.Topic, error)
	Partition(id metadata.TopicID, partition int32) (metadata.PartitionInfo, error)
	PartitionInfos(id metadata.TopicID) ([]metadata.PartitionInfo, error)
	// TopicChanged returns a channel that is closed at the next change of any partition of the topic, or when it goes away.
	TopicChanged(id metadata.TopicID) (ch <-chan struct{}, release func())
	// Locate gives up to max live batches, ascending, from the first one whose Last is at or after offset.
	Locate(id metadata.TopicID, partition int32, offset int64, max int) ([]metadata.IndexEntry, metadata.PartitionInfo, error)
}

// Catalog is where groups are known by name; *metadata.Log has it.
type Catalog interface {
	Group(tenant, name string) (*metadata.ConsumerGroup, error)
	GroupByID(id metadata.GroupID) (*metadata.ConsumerGroup, error)
	Groups(tenant, after string, limit int) ([]*metadata.ConsumerGroup, string)
	PutGroup(ctx context.Context, tenant, name string) (g *metadata.ConsumerGroup, created bool, err error)
	DeleteGroupByID(ctx context.Context, id metadata.GroupID) (*metadata.ConsumerGroup, error)
	// StartProducer gives the next epoch of a producer; whoever has an earlier one is fenced from then on.
	StartProducer(ctx context.Context, tenant, id string) (epoch int64, err error)
}

// Journal is the durable store of groups; *journal.Groups has it.
type Journal interface {
	Load(ctx context.Context, tenant string, id metadata.GroupID) (*journal.LoadedGroup, error)
	Write(ctx context.Context, tenant string, id metadata.GroupID, generation int64, w journal.GroupWrite) error
	Drop(ctx context.Context, tenant string, id metadata.GroupID, generation int64) error
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
	// Read gives records of a partition from an offset on, as far as this node has applied the log, without a barrier, and next, where to go on.
	// At least one record however small maxBytes. Records share memory with the cache. OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC,
	// STORAGE_UNAVAILABLE; *UnreadableError where trying again is no use.
	Read(ctx context.Context, tenant string, topic metadata.TopicID, partition int32, offset int64, maxRecords int, maxBytes int64) (records []segment.Record, next int64, err error)
	// OffsetForTime gives the first offset whose append time is at or after ms (Unix), or found=false. Linearizable.
	OffsetForTime(ctx context.Context, topic metadata.TopicID, partition int32, ms int64) (offset int64, found bool, err error)
}

// Options configure a Coordinator.
type Options struct {
	Store   *store.GroupStore // required
	Journal Journal           // required
	View    View              // required
	Catalog Catalog           // required
	Reader  Reader            // required

	// SweepInterval is how often lapsed sessions are looked for; default 1 s.
	SweepInterval time.Duration
	// WatchInterval is how often a group that is in use is compared with its topics, at most; default 1 s.
	WatchInterval time.Duration
	// RebalanceTimeout is how long a member that keeps heartbeating may hold what it was told to let go; then it is no member any more. Default 5 min.
	// Every node measures it from the first heartbeat that it has seen since, so it can be longer.
	RebalanceTimeout time.Duration
	// LagInterval is how often the lag of the groups that this node has met is computed for the metrics; default 15 s.
	LagInterval time.Duration
	// IdleAfter: a group that nobody has asked for so long leaves this node's memory; default 15 min.
	IdleAfter time.Duration
	// CallTimeout bounds what several requests share: a new generation, an append of offsets; default 15 s.
	CallTimeout time.Duration

	Clock      clockwork.Clock       // default: the real one
	Rand       io.Reader             // of member IDs; default: crypto/rand
	Logger     *slog.Logger          // default: discards
	Registerer prometheus.Registerer // nil: metrics are kept but not registered
}

// WithDefaults fills in what is zero.
func (o Options) WithDefaults() Options {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&o.SweepInterval, time.Second}, {&o.WatchInterval, time.Second}, {&o.RebalanceTimeout, MaxSessionTimeout}, {&o.LagInterval, 15 * time.Second}, {&o.IdleAfter, 15 * time.Minute},
		{&o.CallTimeout, 15 * time.Second},
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
	for _, r := range []struct {
		field string
		nil   bool
	}{
		{"Store", o.Store == nil}, {"Journal", o.Journal == nil}, {"View", o.View == nil}, {"Catalog", o.Catalog == nil}, {"Reader", o.Reader == nil},
	} {
		if r.nil {
			faults = append(faults, fmt.Errorf("%s: is required", r.field))
		}
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"SweepInterval", o.SweepInterval}, {"WatchInterval", o.WatchInterval}, {"RebalanceTimeout", o.RebalanceTimeout}, {"LagInterval", o.LagInterval}, {"IdleAfter", o.IdleAfter},
		{"CallTimeout", o.CallTimeout},
	} {
		if d.value <= 0 {
			faults = append(faults, fmt.Errorf("%s: must be above zero", d.field))
		}
	}
	return errors.Join(faults...)
}
