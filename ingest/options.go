package ingest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/segment"
)

// Options configure an Ingester. The zero value of every field but Store and Committer means its default.
type Options struct {
	Store     objectstore.Store // required; wrapped with retries by the caller
	Committer Committer         // required
	Sink      BlockSink         // nil: own flushes are not kept in a cache

	Shards           int                 // of the metadata log: batches of one shard stand together in a segment; default metadata.DefaultShards
	SegmentBytes     int                 // seal at this many encoded bytes; default 8 MiB
	SegmentBatches   int                 // seal at this many batches; default 20,000
	CommitBytes      int                 // seal when the commit would take about this many bytes in the metadata log; default 900 KiB
	BatchBytes       int                 // encoded bytes after which requests to one topic-partition start another batch; default 1 MiB
	Compression      segment.Compression // of batches; default the fast one
	Linger           time.Duration       // longest wait of a record for company; default 50 ms
	MaxInFlightBytes int64               // accepted and unanswered, all tenants; default 256 MiB
	MaxTenantBytes   int64               // accepted and unanswered, one tenant; default half of MaxInFlightBytes

	UploadConcurrency int           // segments built and uploaded at one time; default 4
	UploadTimeout     time.Duration // for one segment, the store's retries included; default 30 s

	Clock          clockwork.Clock       // default: the real one
	Rand           io.Reader             // entropy of segment IDs; default crypto/rand. Two nodes must never share a seeded one
	Logger         *slog.Logger          // default: discards
	Registerer     prometheus.Registerer // nil: metrics are kept but not registered
	TracerProvider trace.TracerProvider  // default: no spans
}

// WithDefaults returns o with every zero field replaced by its default.
func (o Options) WithDefaults() Options {
	def(&o.Shards, metadata.DefaultShards)
	def(&o.SegmentBytes, 8<<20)
	def(&o.SegmentBatches, 20_000)
	def(&o.CommitBytes, 900<<10)
	def(&o.BatchBytes, 1<<20)
	def(&o.Linger, 50*time.Millisecond)
	def(&o.MaxInFlightBytes, 256<<20)
	def(&o.MaxTenantBytes, o.MaxInFlightBytes/2)
	def(&o.UploadConcurrency, 4)
	def(&o.UploadTimeout, 30*time.Second)
	if o.Clock == nil {
		o.Clock = clockwork.NewRealClock()
	}
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.TracerProvider == nil {
		o.TracerProvider = noop.NewTracerProvider()
	}
	return o
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate reports every fault of o, by field. It expects defaults to be filled in.
func (o Options) Validate() error {
	var faults []error
	check := func(ok bool, field, want string) {
		if !ok {
			faults = append(faults, fmt.Errorf("ingest: %s %s", field, want))
		}
	}
	check(o.Store != nil, "Store", "is required")
	check(o.Committer != nil, "Committer", "is required")
	check(o.Shards > 0, "Shards", "must be positive")
	check(o.SegmentBytes > 0 && o.SegmentBytes <= 1<<30, "SegmentBytes", "must be in 1..1 GiB")
	check(o.SegmentBatches > 0, "SegmentBatches", "must be positive")
	check(o.CommitBytes > 0 && o.CommitBytes <= 1400<<10, "CommitBytes", "must be in 1..1400 KiB: a metadata entry is at most 1.5 MiB")
	check(o.BatchBytes > 0, "BatchBytes", "must be positive")
	check(o.Linger > 0 && o.Linger <= time.Minute, "Linger", "must be above 0 and at most a minute")
	check(o.MaxInFlightBytes > 0, "MaxInFlightBytes", "must be positive")
	check(o.MaxTenantBytes > 0 && o.MaxTenantBytes <= o.MaxInFlightBytes, "MaxTenantBytes", "must be above 0 and at most MaxInFlightBytes")
	check(o.UploadConcurrency > 0 && o.UploadConcurrency <= 256, "UploadConcurrency", "must be in 1..256")
	check(o.UploadTimeout > 0, "UploadTimeout", "must be positive")
	return errors.Join(faults...)
}
