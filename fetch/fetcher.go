package fetch

import (
	"fmt"
	"math"
	"sync/atomic"

	"github.com/oklog/ulid/v2"

	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

const (
	maxScans   = 4096 // sequential scans remembered
	maxReports = 1024 // unreadable batches remembered as reported
)

// Fetcher reads partitions. It implements Reader, and takes the bytes of own flushes (Put).
type Fetcher struct {
	o       Options
	m       *metrics
	blocks  *blocks
	batches *lru[batchKey, *segment.DecodedBatch] // decompressed
	none    *lru[batchKey, *segment.DecodedBatch] // always empty
	runs    *lru[batchKey, []runPart]             // directories of runs
	limits  *oldLimits
	scans   *lru[scanKey, struct{}] // where a read stopped before the head: a read from there is part of a scan
	reports *lru[batchKey, struct{}]
	ratio   atomic.Uint64 // bits of a float64: payload bytes per stored byte, a moving average
}

var _ Reader = (*Fetcher)(nil)

// batchKey names one stored batch.
type batchKey struct {
	id  ulid.ULID
	pos uint64
}

type scanKey struct {
	topic     metadata.TopicID
	partition int32
	offset    int64
}

// New makes a Fetcher. Close it when no read runs any more.
func New(o Options) (*Fetcher, error) {
	o = o.WithDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	b, err := newBlocks(o)
	if err != nil {
		return nil, err
	}
	one := func(struct{}) int64 { return 1 }
	f := &Fetcher{
		o:       o,
		blocks:  b,
		batches: newLRU[batchKey](o.CacheBytes*3/16, func(b *segment.DecodedBatch) int64 { return int64(b.Size()) + extentOverhead }),
		none:    newLRU[batchKey](0, func(*segment.DecodedBatch) int64 { return 1 }),
		runs:    newLRU[batchKey](o.CacheBytes/32, func(d []runPart) int64 { return runPartBytes * int64(len(d)+2) }),
		limits:  newOldLimits(o.OldBytesPerSecond, maxGetBytes, o.Clock),
		scans:   newLRU[scanKey](maxScans, one),
		reports: newLRU[batchKey](maxReports, one),
	}
	f.m, err = newMetrics(o.Registerer, func() float64 { return float64(f.blocks.bytes() + f.batches.size()) })
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	b.m = f.m
	f.ratio.Store(math.Float64bits(1))
	return f, nil
}

// Close ends the GETs in flight and waits for them; reads that need one answer STORAGE_UNAVAILABLE from then on. It is idempotent.
func (f *Fetcher) Close() error {
	f.blocks.close()
	return nil
}

// Put caches an object that this node just uploaded. The fetcher keeps body, which must not change any more. An object that is not
// named like a segment is ignored.
func (f *Fetcher) Put(object string, body []byte) {
	if n, err := segment.ParseKey(object); err == nil {
		f.blocks.put(ulid.ULID(n.ID), body)
	}
}
