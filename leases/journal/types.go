package journal

import (
	"context"

	"github.com/forebaymq/forebay/metadata"
)

// Version orders the states of one shard: by incarnation, then by sequence.
type Version struct {
	// Incarnation is the journal offset of the record that opened it: unique, and higher than every earlier one's. 0: never opened.
	Incarnation int64
	Sequence    int64 // counts durable changes within the incarnation
}

// Less says whether v is older than w.
func (v Version) Less(w Version) bool {
	return v.Incarnation < w.Incarnation || v.Incarnation == w.Incarnation && v.Sequence < w.Sequence
}

// Range is the offsets from From up to and without To.
type Range struct{ From, To int64 }

// Shard is the durable state of one partition of a subscription: everything below Frontier and in Settled is settled.
type Shard struct {
	Version
	Frontier int64
	Settled  []Range // above Frontier, ascending, neither overlapping nor adjacent
	Skipped  int64   // records that were passed without delivery since the subscription began: holes, unreadable, expired
}

// PointerKind says why a record is remembered by itself.
type PointerKind uint8

// The kinds of pointers. They are part of the format and never renumbered.
const (
	Retry     PointerKind = 1 // failed Attempts times, or redriven (Attempts 0); to be delivered again at Due
	Dead      PointerKind = 2 // a dead letter; settled
	Scheduled PointerKind = 3 // never delivered, not before Due; settled as far as the frontier is concerned
)

// Pointer remembers one record of a shard.
type Pointer struct {
	Offset      int64
	Kind        PointerKind
	Attempts    int32
	FirstFailed int64 // Unix ms by Redis's clock, 0 = never
	LastFailed  int64 // Unix ms; of a dead letter: when it died
	Due         int64 // Unix ms; of Retry and Scheduled
	Reason      string
	KeyHash     uint64 // hash of the record's key where the queue is ordered, else 0
	CopyPending bool   // a dead letter whose copy is not committed yet: not settled
	Copied      bool   // a copy is in the dead-letter topic
	Expired     bool   // retention has deleted the record
	// Attached: the record was not settled when the pointer was written, so that the frontier waits for it. One that was redriven is settled, and
	// lives by its pointer alone.
	Attached bool
	// Incarnation and Sequence of the shard when the pointer last changed: the reader keeps the highest.
	Version
}

// ShardKey names one shard.
type ShardKey struct {
	Subscription metadata.SubscriptionID
	Partition    int32
}

// Entry is one journal record to write: a shard's state, a pointer, or a pointer's end.
type Entry struct {
	Key   ShardKey
	Shard *Shard // the state of the shard
	// Open, with Shard, begins a new incarnation that carries on from the one that Shard.Version names: as Load gave it, or as Redis had it, the
	// higher of both; zero where there was none. Should another incarnation have begun since, Write answers ErrStale.
	Open bool
	// Seek, with Open, moves the subscription: it overtakes every earlier incarnation (Shard.Version is not looked at), and what they had settled
	// is void. So are their pointers, but for dead letters below the new frontier.
	Seek    bool
	Pointer *Pointer // or one pointer
	Remove  int64    // or, with Shard and Pointer nil: the offset of the pointer that is no more
	Version Version  // of a removal: the shard's. Zero in a Write that opens the shard, or a pointer's zero Version there: the new incarnation's
}

// Task is a redrive under way: what survives a restart of every node.
type Task struct {
	ID           string
	Subscription metadata.SubscriptionID
	State        string // "running", "done", "cancelled"
	All          bool   // every dead letter that died at or before Created
	Offsets      []Target
	Rate         int32 // records a second
	Total, Done  int64
	Created      int64 // Unix ms
	Updated      int64 // Unix ms
}

// Target names one record of a subscription's topic.
type Target struct {
	Partition int32
	Offset    int64
}

// Loaded is what the journal knows about one subscription.
type Loaded struct {
	Shards map[int32]*Shard // partitions never opened are absent
	// Crowded are shards with records of many writers in one incarnation: nodes have come and gone. An opening that carries on, with whatever Redis has,
	// lets go of them.
	Crowded  map[int32]bool
	Pointers map[int32]map[int64]Pointer // by partition and offset; those that a later incarnation's opening dropped are not in it
	Tasks    map[string]Task
}

// Log is what the journal needs of the message log; the node puts it together from ingest, fetch and metadata.
type Log interface {
	// EnsureTopic makes the tenant's internal compacted topic with that many partitions, or finds it.
	EnsureTopic(ctx context.Context, tenant, name string, partitions int) (metadata.TopicID, error)
	// Append stores the records (key, value; nil value = tombstone) in one atomic request and gives their offsets. Errors are *api.Error,
	// OUTCOME_UNKNOWN among them.
	Append(ctx context.Context, tenant, topic string, records []Record) ([]int64, error)
	// Read gives records from offset on, without waiting, up to the linearizable head; next is where to go on, head the head.
	// An offset below the log's start is answered from the start. Unreadable records are left out and counted.
	Read(ctx context.Context, tenant string, topic metadata.TopicID, partition int32, offset int64, maxBytes int64) (records []Record, next, head int64, err error)
}

// Record is one journal record as the log has it.
type Record struct {
	Partition  int32
	Offset     int64 // set by Read
	Key, Value []byte
}
