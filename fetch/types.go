package fetch

import (
	"context"

	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

// Special offsets of ReadRequest.
const (
	Earliest int64 = -2 // logStart
	Latest   int64 = -1 // head
)

// ReadRequest asks for records of one partition.
type ReadRequest struct {
	Tenant     string // for fair limits of old reads
	TopicID    metadata.TopicID
	Partition  int32
	Offset     int64 // >= 0, Earliest or Latest
	MaxRecords int   // > 0
	MaxBytes   int64 // > 0; at least one record is returned however small it is
	// Stale permits an answer without a linearizable barrier. Otherwise the answer shows everything acknowledged before the call.
	Stale bool
}

// ReadResult is what a read found. Records may be empty: at the head, or where compaction left a hole up to the head.
type ReadResult struct {
	Records    []segment.Record // share memory with the cache: read only
	NextOffset int64            // where to go on; beyond the requested offset whenever there was anything to pass
	Head       int64
	LogStart   int64
}

// View is what fetch needs of the metadata log.
type View interface {
	// Sync returns when this node has applied everything that was acknowledged before the call, or METADATA_UNAVAILABLE when ctx ends or
	// the log has no quorum. Concurrent calls share one read.
	Sync(ctx context.Context) error
	// Partition gives the present state. UNKNOWN_TOPIC, UNKNOWN_PARTITION.
	Partition(id metadata.TopicID, partition int32) (metadata.PartitionInfo, error)
	// Locate gives up to max live batches, ascending, from the first one whose Last is at or after offset, with the partition's state at
	// the same moment.
	Locate(id metadata.TopicID, partition int32, offset int64, max int) ([]metadata.IndexEntry, metadata.PartitionInfo, error)
	// LocateTime gives the first live batch with AppendTime at or after ms (Unix), or found=false.
	LocateTime(id metadata.TopicID, partition int32, ms int64) (e metadata.IndexEntry, found bool, err error)
	// Changed returns a channel that is closed when the partition's head rises above offset, its logStart moves, or its topic goes away.
	// It is closed at once if that is so already. release must be called.
	Changed(id metadata.TopicID, partition int32, offset int64) (ch <-chan struct{}, release func())
}

// Reader is what the gateway consumes.
type Reader interface {
	// Read returns at once. OFFSET_OUT_OF_RANGE with logStart and head, UNKNOWN_TOPIC, UNKNOWN_PARTITION, METADATA_UNAVAILABLE, STORAGE_UNAVAILABLE.
	Read(ctx context.Context, r ReadRequest) (*ReadResult, error)
	// ReadWait is Read, but waits until there is a record, ctx ends, or wait has passed (a long poll), and then answers what there is.
	ReadWait(ctx context.Context, r ReadRequest, wait Waiter) (*ReadResult, error)
	// OffsetForTime gives the first offset whose append time is at or after ms (Unix), or found=false. Linearizable.
	OffsetForTime(ctx context.Context, id metadata.TopicID, partition int32, ms int64) (offset int64, found bool, err error)
}

// Waiter ends a long poll: a channel that fires when the wait is over, made by the caller's clock.
type Waiter <-chan struct{}
