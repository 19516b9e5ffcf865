package metadata

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebaymq/forebay/objectstore"
)

const (
	// DefaultShards is the number of shards of a new fabric.
	DefaultShards = 16
	// MaxShards bounds a fabric's shards, so that one flush over all of them fits one transaction: two operations a shard, a hundred a transaction.
	MaxShards = maxTxnOps / 2
	// FabricFormat is the version of keys and encodings that this code reads and writes.
	FabricFormat = 1

	maxTxnOps   = 100     // operations of one transaction; etcd takes 128
	maxTxnBytes = 1 << 20 // encoded commands of one transaction that more than one submission fills; etcd takes 1.5 MiB
)

// SnapshotPolicy says when the housekeeper takes a shard's snapshot: as soon as its tail, the entries since the last one, reaches one of
// the bounds.
type SnapshotPolicy struct {
	Entries  int           // entries in the tail; default 10,000
	Bytes    int64         // bytes of encoded commands in the tail; default 8 MiB
	Interval time.Duration // age of the tail's oldest entry; default 10 min
}

// Options configure a Log. Driver, Store and NodeID are required; any other zero value means its default.
type Options struct {
	Driver Driver            // the ordered store; the caller closes it after the Log
	Store  objectstore.Store // snapshots
	NodeID string            // names this node; also part of the names of its entries
	Shards int               // 0: what the fabric has, or DefaultShards for a new one
	Region string            // must be the fabric's

	Clock      clockwork.Clock       // default: the real clock
	Logger     *slog.Logger          // default: discards
	Registerer prometheus.Registerer // nil: metrics are kept but not registered
	Entropy    io.Reader             // stream names, producer nonces; default crypto/rand

	SubmitTimeout  time.Duration  // one attempt to append, and one linearizable read; default 5 s
	StuckAfter     time.Duration  // a transaction without an answer for so long makes the log unavailable; default 3 s
	ProbeInterval  time.Duration  // how often quorum is checked when nothing else shows it; default 1 s
	CloseTimeout   time.Duration  // how long Close waits for the transaction in flight; default 5 s
	ClaimTTL       time.Duration  // of the housekeeper's claim; default 10 s
	SnapshotEvery  SnapshotPolicy // see SnapshotPolicy
	TrimInterval   time.Duration  // how often the housekeeper enforces retention; default 30 s
	HousekeepEvery time.Duration  // how often it looks for a due snapshot or an unheld claim; default 1 s
	GCGrace        time.Duration  // how far the GC boundary stays behind the clock; default 1 h
	// NoHousekeeping keeps this node from taking the housekeeper's claim.
	NoHousekeeping bool
}

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// WithDefaults fills in what is zero.
func (o Options) WithDefaults() Options {
	if o.Clock == nil {
		o.Clock = clockwork.NewRealClock()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Entropy == nil {
		o.Entropy = rand.Reader
	}
	orDefault(&o.SubmitTimeout, 5*time.Second)
	orDefault(&o.StuckAfter, 3*time.Second)
	orDefault(&o.ProbeInterval, time.Second)
	orDefault(&o.CloseTimeout, 5*time.Second)
	orDefault(&o.ClaimTTL, 10*time.Second)
	orDefault(&o.SnapshotEvery.Entries, 10_000)
	orDefault(&o.SnapshotEvery.Bytes, 8<<20)
	orDefault(&o.SnapshotEvery.Interval, 10*time.Minute)
	orDefault(&o.TrimInterval, 30*time.Second)
	orDefault(&o.HousekeepEvery, time.Second)
	orDefault(&o.GCGrace, time.Hour)
	return o
}

// ValidNodeID is what a node ID looks like: it becomes part of keys.
var validNodeID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// Validate reports every fault by field.
func (o Options) Validate() error {
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("metadata.Options.%s: %s", field, fmt.Sprintf(format, args...)))
	}
	if o.Driver == nil {
		bad("Driver", "is required")
	}
	if o.Store == nil {
		bad("Store", "is required")
	}
	if !validNodeID.MatchString(o.NodeID) {
		bad("NodeID", "%q does not match %s", o.NodeID, validNodeID)
	}
	if o.Shards < 0 || o.Shards > MaxShards {
		bad("Shards", "%d is outside 0..%d", o.Shards, MaxShards)
	}
	if o.SnapshotEvery.Entries < 0 || o.SnapshotEvery.Bytes < 0 || o.SnapshotEvery.Interval < 0 {
		bad("SnapshotEvery", "is negative")
	}
	for field, d := range map[string]time.Duration{
		"SubmitTimeout": o.SubmitTimeout, "StuckAfter": o.StuckAfter, "ProbeInterval": o.ProbeInterval, "CloseTimeout": o.CloseTimeout,
		"ClaimTTL": o.ClaimTTL, "TrimInterval": o.TrimInterval, "HousekeepEvery": o.HousekeepEvery, "GCGrace": o.GCGrace,
	} {
		if d < 0 {
			bad(field, "%s is negative", d)
		}
	}
	return errors.Join(errs...)
}
