package compactor

import (
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/objectstore"
)

// Options configure a Compactor. Log and Store are required; any other zero value means its default.
type Options struct {
	Log   *metadata.Log
	Store objectstore.Store // under the wrappers that retry
	// Lifecycle lets the bucket delete by rules what retention has trimmed. nil: the store has no rules, and the collector deletes.
	Lifecycle objectstore.LifecycleStore

	Policy  Policy
	Collect Collection

	Off        bool          // Start does nothing: only reports
	Workers    int           // jobs at a time on this node: 1
	Every      time.Duration // how often a shard without a job is looked at: 2 s
	CleanEvery time.Duration // how often partitions are looked at that are compacted by key: 10 s
	MoveEvery  time.Duration // how often all partitions of a shard are looked at, for copies to a longer class, waste and exact retention: 1 min
	Tenure     time.Duration // how long a shard is kept before another node may have it: 30 s
	ClaimTTL   time.Duration // after which the claim of a dead node is free: 10 s
	ReadBytes  int64         // chunks that a job holds of what it reads: 32 MiB
	Backoff    time.Duration // how long a shard rests after a job of it has failed, and what cannot be read is left alone: 15 s, and forty times that

	Clock      clockwork.Clock       // default: the real clock
	Logger     *slog.Logger          // default: discards
	Registerer prometheus.Registerer // nil: metrics are kept but not registered
	Entropy    io.Reader             // IDs; default crypto/rand
}

// Collection says how garbage is collected. The zero value of a field is its default.
type Collection struct {
	Off bool // this node never collects
	// Every is how often a round begins: 15 s. A round lists up to Pages pages (20) of 1,000 keys and goes on where the last one ended.
	Every time.Duration
	Pages int
	// Grace is how old an object without a commit must be before it counts as an orphan: 1 h. The GC boundary is raised to that age, so that
	// the commit of a writer that was stalled for longer is refused.
	Grace time.Duration
	// ReadGrace is how long an object must have been without a reference before it is deleted: 10 min. No read that looked it up before may
	// last longer.
	ReadGrace time.Duration
	// DeletesPerSecond bounds the keys deleted: 500.
	DeletesPerSecond int
	// LifecycleEvery is how often the bucket's rules are looked at: 1 h.
	LifecycleEvery time.Duration
}

// WithDefaults fills in what is zero.
func (o Options) WithDefaults() Options {
	o.Policy = o.Policy.WithDefaults()
	orDefault(&o.Collect.Every, 15*time.Second)
	orDefault(&o.Collect.Pages, 20)
	orDefault(&o.Collect.Grace, time.Hour)
	orDefault(&o.Collect.ReadGrace, 10*time.Minute)
	orDefault(&o.Collect.DeletesPerSecond, 500)
	orDefault(&o.Collect.LifecycleEvery, time.Hour)
	orDefault(&o.Workers, 1)
	orDefault(&o.Every, 2*time.Second)
	orDefault(&o.CleanEvery, 10*time.Second)
	orDefault(&o.MoveEvery, time.Minute)
	orDefault(&o.Tenure, 30*time.Second)
	orDefault(&o.ClaimTTL, 10*time.Second)
	orDefault(&o.ReadBytes, 32<<20)
	orDefault(&o.Backoff, 15*time.Second)
	if o.Clock == nil {
		o.Clock = clockwork.NewRealClock()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Entropy == nil {
		o.Entropy = rand.Reader
	}
	return o
}

// Validate reports every fault by field. It expects the defaults to be set.
func (o Options) Validate() error {
	var errs []error
	bad := func(field, format string, args ...any) { errs = append(errs, faultf(field, format, args...)) }
	if o.Log == nil {
		bad("Log", "is required")
	}
	if o.Store == nil {
		bad("Store", "is required")
	}
	o.Policy.validate(func(field, format string, args ...any) { bad("Policy."+field, format, args...) })
	if o.Workers < 1 {
		bad("Workers", "%d, want at least 1", o.Workers)
	}
	if o.Collect.Pages < 1 || o.Collect.DeletesPerSecond < 1 {
		bad("Collect", "%d pages, %d deletes a second, want at least 1", o.Collect.Pages, o.Collect.DeletesPerSecond)
	}
	if o.ReadBytes < 1 {
		bad("ReadBytes", "%d, want at least 1", o.ReadBytes)
	}
	for _, d := range []struct {
		field string
		v     time.Duration
	}{{"Every", o.Every}, {"CleanEvery", o.CleanEvery}, {"MoveEvery", o.MoveEvery}, {"Tenure", o.Tenure}, {"ClaimTTL", o.ClaimTTL}, {"Backoff", o.Backoff},
		{"Collect.Every", o.Collect.Every}, {"Collect.Grace", o.Collect.Grace}, {"Collect.ReadGrace", o.Collect.ReadGrace},
		{"Collect.LifecycleEvery", o.Collect.LifecycleEvery}} {
		if d.v <= 0 {
			bad(d.field, "%s, want above 0", d.v)
		}
	}
	return errors.Join(errs...)
}
