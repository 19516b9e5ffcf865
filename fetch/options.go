package fetch

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebaymq/forebay/objectstore"
)

// Options configure a Fetcher. View and Store are required; the zero value of the rest is the default.
type Options struct {
	View  View
	Store objectstore.Store

	// CacheBytes bounds the memory of all caches together: half for blocks of recent data and own flushes, an eighth for blocks of old
	// data that are read again and again, three sixteenths for those that have just come, and as much for decompressed batches. Default 256 MiB.
	CacheBytes int64
	// BlockBytes is how much one block of recent data is, the unit of reading and caching: large, because the readers of all partitions tail
	// the same objects. Default 1 MiB.
	BlockBytes int64
	// OldBlockBytes is the same for old data: small, because one partition is a small part of a level-0 object, and replays of its neighbours
	// are elsewhere. Adjacent blocks are one GET. BlockBytes must be a multiple of it. Default 16 KiB where that divides BlockBytes, else BlockBytes.
	OldBlockBytes int64
	// OldAge: data older than this is old. Misses of old data go through a pool and a rate limit of their own. Default 2 minutes.
	OldAge time.Duration
	// Reads is how many GETs of recent data run at a time. Default 64.
	Reads int
	// OldReads is how many GETs of old data run at a time. Default 16.
	OldReads int
	// OldBytesPerSecond is how many bytes of old data one tenant may cause to be read. Default 512 MiB; below zero = no limit.
	OldBytesPerSecond int64
	// ReadAhead is how many blocks a sequential scan loads ahead, within a twentieth of CacheBytes. Default 4; below zero = none.
	ReadAhead int
	// GetTimeout bounds one GET, waiting for the pool not included. Default 30 s.
	GetTimeout time.Duration

	Clock      clockwork.Clock
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Defaults of Options.
const (
	DefaultCacheBytes        = 256 << 20
	DefaultBlockBytes        = 1 << 20
	DefaultOldAge            = 2 * time.Minute
	DefaultReads             = 64
	DefaultOldBlockBytes     = 16 << 10
	DefaultOldReads          = 16
	DefaultOldBytesPerSecond = 512 << 20
	DefaultReadAhead         = 4
	DefaultGetTimeout        = 30 * time.Second

	minBlockBytes = 16
	maxBlockBytes = 64 << 20
)

func orDefault[T int | int64 | time.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// WithDefaults fills in what is zero.
func (o Options) WithDefaults() Options {
	orDefault(&o.CacheBytes, DefaultCacheBytes)
	orDefault(&o.BlockBytes, DefaultBlockBytes)
	if o.BlockBytes%DefaultOldBlockBytes == 0 {
		orDefault(&o.OldBlockBytes, DefaultOldBlockBytes)
	}
	orDefault(&o.OldBlockBytes, o.BlockBytes)
	orDefault(&o.OldAge, DefaultOldAge)
	orDefault(&o.Reads, DefaultReads)
	orDefault(&o.OldReads, DefaultOldReads)
	orDefault(&o.OldBytesPerSecond, DefaultOldBytesPerSecond)
	orDefault(&o.ReadAhead, DefaultReadAhead)
	orDefault(&o.GetTimeout, DefaultGetTimeout)
	if o.Clock == nil {
		o.Clock = clockwork.NewRealClock()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	return o
}

// Validate reports every fault, by field. Call it after WithDefaults.
func (o Options) Validate() error {
	var errs []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("fetch: "+format, args...))
		}
	}
	fault(o.View == nil, "View is required")
	fault(o.Store == nil, "Store is required")
	fault(o.BlockBytes < minBlockBytes || o.BlockBytes > maxBlockBytes, "BlockBytes is %d, must be %d to %d", o.BlockBytes, minBlockBytes, maxBlockBytes)
	fault(o.OldBlockBytes < 1 || o.BlockBytes%max(o.OldBlockBytes, 1) != 0, "OldBlockBytes is %d, must divide BlockBytes, which is %d", o.OldBlockBytes, o.BlockBytes)
	fault(o.CacheBytes < 4*o.BlockBytes, "CacheBytes is %d, must be at least four blocks of %d", o.CacheBytes, o.BlockBytes)
	fault(o.OldAge < 0, "OldAge is %s, must not be negative", o.OldAge)
	fault(o.Reads < 0, "Reads is %d, must not be negative", o.Reads)
	fault(o.OldReads < 0, "OldReads is %d, must not be negative", o.OldReads)
	fault(o.GetTimeout < 0, "GetTimeout is %s, must not be negative", o.GetTimeout)
	return errors.Join(errs...)
}
