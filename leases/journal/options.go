package journal

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/prometheus/client_golang/prometheus"
)

// Topic is the name of the topic that holds the journal of a tenant.
const Topic = "__journal"

// Defaults of Options.
const (
	DefaultPartitions = 16
	DefaultCacheBytes = 64 << 20
	DefaultReadBytes  = 4 << 20
	DefaultGrace      = 15 * time.Minute
)

// Options configure a Journal.
type Options struct {
	Log Log // required

	// Partitions of the journal of a tenant; default 16. It is part of where things are: every node of a fabric has the same, for ever.
	Partitions int
	// CacheBytes bounds what is kept in memory of journals; default 64 MiB. A subscription that is larger by itself is read whole each time.
	CacheBytes int64
	// ReadBytes is how much one call to Log.Read asks for; default 4 MiB.
	ReadBytes int64
	// Grace is how long the end of a pointer stays on record before its key is freed: longer than any append can be on its way; default 15 min.
	Grace time.Duration

	Clock      clockwork.Clock       // default the real one
	Rand       io.Reader             // of the writer's number; default crypto/rand
	Logger     *slog.Logger          // default slog.Default()
	Registerer prometheus.Registerer // nil: metrics are kept and shown nowhere
}

// WithDefaults fills in what is zero.
func (o Options) WithDefaults() Options {
	if o.Partitions == 0 {
		o.Partitions = DefaultPartitions
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = DefaultCacheBytes
	}
	if o.ReadBytes == 0 {
		o.ReadBytes = DefaultReadBytes
	}
	if o.Grace == 0 {
		o.Grace = DefaultGrace
	}
	if o.Clock == nil {
		o.Clock = clockwork.NewRealClock()
	}
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

// Validate reports every fault by field.
func (o Options) Validate() error {
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	fault(o.Log == nil, "Log: required")
	fault(o.Partitions < 1 || o.Partitions > 10_000, "Partitions: %d is not in 1..10000", o.Partitions)
	fault(o.CacheBytes < 0, "CacheBytes: %d is negative", o.CacheBytes)
	fault(o.ReadBytes < 1, "ReadBytes: %d is not positive", o.ReadBytes)
	fault(o.Grace < 0, "Grace: %s is negative", o.Grace)
	return errors.Join(faults...)
}
