package store

import (
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/metadata"
)

// Queue is what the scripts must know about a subscription. It goes with every call: Redis keeps no configuration.
type Queue struct {
	ID            metadata.SubscriptionID
	MaxAttempts   int
	Backoff       api.Backoff
	MaxInFlight   int  // per partition
	MaxAckedAhead int  // per partition: leased, owed, waiting and settled ahead of the frontier stay under it together
	Ordered       bool // one record of a key at a time
	Fair          bool // least loaded key first
	CopyDead      bool // a dead letter stays unsettled until Buried
	SkipGaps      bool
}

// Keyed says whether the queue must know a record's key before it may hand it out.
func (q *Queue) Keyed() bool { return q.Ordered || q.Fair }

// Receipt names one lease. Its text form is "partition:offset:nonce".
type Receipt struct {
	Partition int32
	Offset    int64
	Nonce     string
}

// Fresh is a partition that may hold records never handed out.
type Fresh struct {
	Partition int32
	LogStart  int64
	Head      int64
}

// AcquireRequest asks for records.
type AcquireRequest struct {
	Max        int // most records
	Visibility time.Duration
	// Fresh are partitions to take new records from, in the order to try. Not looked at for keyed queues, but for gaps: their new records
	// become deliverable by Admit.
	Fresh []Fresh
}

// Grant is a run of consecutive offsets of one partition that were leased together. The receipt of each is (Partition, offset, Nonce).
type Grant struct {
	Partition int32
	Start     int64
	Count     int32
	Attempt   int32  // of this delivery, of each; the first is 1
	Nonce     string // unique for ever, shared by the run
	Expires   int64  // Unix ms by Redis's clock
}

// Position is where a shard stands.
type Position struct {
	Partition int32
	Frontier  int64
	Cursor    int64 // the next new record
	Room      int32 // how many more new records the caps would let out
}

// Gap is a range that retention deleted before it was settled: [From, To).
type Gap struct {
	Partition int32
	From, To  int64
}

// Effects is what a call did beside its answer. The caller passes it on: dirty shards to the journal, freed records to waiters.
type Effects struct {
	Dirty   []int32       // partitions whose durable state changed
	Freed   int           // records that became deliverable now, those granted by the same call not counted
	NextDue time.Duration // until the next lease lapses or the next owed or scheduled record is due; negative = none
	Lapsed  int           // leases found lapsed
	Died    int           // records that became dead letters
	Copies  bool          // dead letters wait for their copy
	Now     int64         // Redis's clock, Unix ms
}

// Acquired answers an AcquireRequest.
type Acquired struct {
	Grants    []Grant
	Positions []Position // of the partitions in Fresh that were looked at: of all that are loaded, when fewer than Max records were found
	Absent    []int32    // partitions in Fresh that are not loaded: open them and ask again
	Gaps      []Gap      // unless the queue skips them; nothing was granted then
	Effects
}

// Candidate is a new record of a keyed queue.
type Candidate struct {
	Offset    int64
	KeyHash   uint64 // 0 = no key: never blocked; fair share counts those as one key
	DeliverAt int64  // Unix ms, 0 = at once
}

// AdmitRequest makes the records of [Cursor, Through) deliverable, in order, as their keys permit. Offsets that are not in Records are
// holes and are settled as skipped. Nothing happens when the cursor is not at Cursor any more.
type AdmitRequest struct {
	Partition int32
	Cursor    int64
	Through   int64
	Records   []Candidate
}

// Op is what to do with leases.
type Op uint8

// The operations of Settle.
const (
	OpAck     Op = 1
	OpNack    Op = 2
	OpExtend  Op = 3
	OpRelease Op = 4 // as if it had not been handed out: deliverable at once, the attempt not counted
	OpSkip    Op = 5 // nothing is there, or nothing readable: settled, counted
)

// SettleOptions go with an operation.
type SettleOptions struct {
	Delay      time.Duration // OpNack; negative = by the queue's backoff
	Reason     string        // OpNack, OpSkip ("hole", "unreadable", "expired")
	Visibility time.Duration // OpExtend, from now
}

// Settled answers Settle, one element a receipt.
type Settled struct {
	OK      []bool  // false: the lease has lapsed, was superseded or never was. A repeated ack of a settled record by the same receipt is OK
	Expires []int64 // OpExtend: the new deadline, Unix ms
	Effects
}

// ScheduleRequest sets leased records aside that may not be delivered yet.
type ScheduleRequest struct {
	Receipt Receipt
	Due     int64 // Unix ms
}

// Exported is the durable state of one shard to be journalled.
type Exported struct {
	Partition int32
	Shard     journal.Shard
	Changed   []journal.Pointer // pointers that changed since they were last journalled
	Removed   []int64           // offsets of pointers that are no more
}

// LoadRequest puts a shard in place.
type LoadRequest struct {
	Partition   int32
	Incarnation int64 // the new one; refused (ErrStale) when the shard has it or a higher one
	// Keep leaves everything that Redis has of the shard, leases included, and only starts the incarnation: the state was found to be no older than
	// the journal's. Else the shard is purged and rebuilt from Shard and Pointers.
	Keep bool
	// Over, without Keep, is what Redis was found to have when that was decided: the shard's incarnation, -1 for none. ErrStale when it has another
	// one: what was loaded meanwhile may be in use. 0: whatever there is (a seek).
	Over     int64
	Shard    journal.Shard
	Pointers []journal.Pointer
}

// ShardStats is what Redis knows about a shard for statistics.
type ShardStats struct {
	Partition     int32
	Frontier      int64
	Cursor        int64
	InFlight      int64
	AckedAhead    int64 // offsets settled above the frontier
	Owed          int64 // failed or redriven, to be delivered again
	Delayed       int64 // scheduled
	Waiting       int64 // behind their key (ordered) or a quieter one (fair)
	DeadLetters   int64
	Skipped       int64
	OldestOffset  int64 // lowest offset that is owed, leased, waiting or new and not settled; pointers below the frontier included; -1 none
	OldestDelayed int64 // lowest scheduled offset, -1 none
}

// DeadLetter is one entry of a listing.
type DeadLetter struct {
	Partition int32
	journal.Pointer
}

// Selection names dead letters that died at or before Before (Unix ms): some, for which Before 0 is no bound, or all.
type Selection struct {
	Targets []journal.Target
	All     bool
	Before  int64
}

// Peeked is a record that would be handed out.
type Peeked struct {
	Partition int32
	Offset    int64
	Attempt   int32 // of the delivery that is to come
	Due       int64 // Unix ms; 0 = now
}

// Repairs counts what an audit put right.
type Repairs struct {
	Redelivered int // unsettled offsets that nothing led to any more
	Dangling    int // pieces that belonged to nothing
	Counters    int // counters that disagreed
}

// Wake says that records of a subscription became deliverable, or will be.
type Wake struct {
	Subscription metadata.SubscriptionID
	Freed        int
	Due          time.Duration // with Freed 0: something is due by then
}
