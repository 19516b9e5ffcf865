package metadata

import (
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/segment"
)

// TopicID names a topic for ever. IDs are never reused. TopicID modulo the number of shards is the shard of its tenant.
type TopicID uint64

// SegmentRef names one segment object.
type SegmentRef struct {
	ID    ulid.ULID // its time is when the segment was sealed; the GC boundary compares with it
	Level uint8
	Class string // retention class of level 1+ ("ttl=7d", "keep"), "" at level 0
	Size  int64  // bytes of the object
}

// Producer identifies an idempotent request, or with NoSequence fences one that is not.
type Producer struct {
	ID       string
	Epoch    int64
	Sequence int64 // NoSequence: only the epoch is checked
}

// Group is the set of batches of one request that are accepted or refused together. Requests that name a producer or several topics,
// or that need event-ID deduplication, have a group of their own; batches of other requests to one topic-partition are merged in
// one batch without a group.
type Group struct {
	Tenant   string
	Producer *Producer // nil: atomic, but not idempotent
}

// BatchDelta is what a commit says about one batch.
type BatchDelta struct {
	TopicID   TopicID
	Partition int32
	Records   int32
	Ref       segment.BatchRef
	RawBytes  uint32 // bytes before compression, for accounting
	Group     int32  // index into Commit.Groups, or -1
	// IDHashes are hashes of the records' event IDs (zero = the record has none), one a record, or nil. Only for topics with a
	// dedupe window; such a batch has a group.
	IDHashes [][16]byte
}

// Commit makes the batches of one segment part of their partitions.
type Commit struct {
	Segment    SegmentRef
	AppendTime int64 // Unix ms by the node's clock; apply makes it monotonic per partition
	Groups     []Group
	Batches    []BatchDelta
}

// BatchResult is what apply decided about one batch of a commit.
type BatchResult struct {
	// Err is nil, or an *api.Error: UNKNOWN_TOPIC, UNKNOWN_PARTITION, PRODUCER_FENCED, CONFLICT, STORAGE_UNAVAILABLE (older than the GC boundary).
	Err        error
	Base       int64   // offset of the first record; records of the batch are dense from it, but for Offsets
	Offsets    []int64 // only where records were dropped as duplicates by event ID: the offset of each record
	AppendTime int64   // Unix ms
	Duplicate  bool    // an exact retry: Base is the first answer
}

// Topic is the immutable description of a topic at one moment.
type Topic struct {
	ID      TopicID
	Tenant  string
	Name    string
	Config  api.TopicConfig
	Created int64 // Unix ms
	Version int64 // log revision of the last change
}

// PartitionInfo is the state of one partition at one moment. A partition that was never written has the zero value.
type PartitionInfo struct {
	LogStart   int64 // lowest offset still readable
	Head       int64 // offset that the next record will get
	Bytes      int64 // stored bytes of its live batches, of the first one only its share from logStart on
	LastAppend int64 // append time of the newest record, Unix ms
}

// IndexEntry locates one live batch.
type IndexEntry struct {
	Segment    SegmentRef
	Ref        segment.BatchRef
	Base       int64   // first offset
	Last       int64   // last offset; >= Base
	Records    int32   // records in the stored batch (dropped ones included)
	AppendTime int64   // dense: of every record. Sparse: of the newest record
	FirstTime  int64   // append time of the oldest record
	Sparse     bool    // offsets and times are in the batch (level 1+); else record i has Base + i less the dropped before it
	Dropped    []int32 // ordinals of records that are duplicates by event ID: stored, never visible
}

// ProducerPosition is the highest sequence of a producer that a partition has accepted.
type ProducerPosition struct {
	Topic     string
	Partition int32
	Sequence  int64
}

// Replace swaps the live batches of one partition that lie within [From, Through] for others: the compactor's command. It is refused
// with CONFLICT, and changes nothing, when Remove is not exactly what is live there, or when the claim epoch is old.
type Replace struct {
	TopicID    TopicID
	Partition  int32
	From       int64
	Through    int64
	Remove     []ReplaceRef // in offset order
	Add        []IndexEntry // in offset order, all within [From, Through]
	Claim      string
	ClaimEpoch int64
}

// ReplaceRef names a live batch by its object and position.
type ReplaceRef struct {
	Segment ulid.ULID
	Pos     uint64
}

// Trim raises logStart of a partition. Lower values than the present one change nothing.
type Trim struct {
	TopicID    TopicID
	Partition  int32
	LogStart   int64
	Claim      string
	ClaimEpoch int64
}

// Status is what a node knows about its metadata, for readiness and operators.
type Status struct {
	Ready     bool          // loaded, applying, and the last barrier or commit had a quorum
	Revision  int64         // applied
	Stuck     time.Duration // how long the submission in flight has been without an answer; 0 = none
	Submitted int           // commands waiting
}
