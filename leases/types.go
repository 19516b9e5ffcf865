package leases

import (
	"context"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

// Name names a subscription of a tenant.
type Name struct{ Tenant, Topic, Subscription string }

// LeaseRequest asks for records.
type LeaseRequest struct {
	Name
	Max        int           // 1..api.MaxLeaseRecords
	Wait       time.Duration // how long to wait when there is nothing; 0 = not at all
	Visibility time.Duration // 0 = the subscription's
	RequestID  string        // "" = none: a repeat with the same ID gets the same leases while they live
	MaxBytes   int64         // of keys, values and headers together, at least one record; 0 = api.MaxReadBytes
}

// Message is one leased record.
type Message struct {
	Receipt   string
	Partition int32
	Attempt   int32
	ExpiresAt int64          // Unix ms
	Record    segment.Record // shares memory with the read cache: read only
}

// SettleKind is what a consumer says about its leases.
type SettleKind uint8

// The kinds.
const (
	Ack SettleKind = iota + 1
	Nack
	Extend
)

// SettleRequest acks, nacks or extends leases.
type SettleRequest struct {
	Name
	Kind       SettleKind
	Receipts   []string
	Delay      *time.Duration // Nack; nil = the subscription's backoff
	Reason     string         // Nack
	Visibility time.Duration  // Extend; 0 = the subscription's
}

// SettleResult answers for one receipt.
type SettleResult struct {
	Receipt   string
	Code      api.Code // "" = OK; LEASE_LOST, INVALID_REQUEST (not a receipt)
	ExpiresAt int64    // Extend: Unix ms
}

// SeekTarget is where a subscription shall stand. Exactly one is set.
type SeekTarget struct {
	Earliest, Latest bool
	Time             *int64 // Unix ms
	Offsets          map[int32]int64
}

// Start is where a new subscription begins: SeekTarget without Offsets. The zero value is latest.
type Start = SeekTarget

// PartitionStats is the state of one partition of a subscription.
type PartitionStats struct {
	Partition         int32
	Frontier          int64
	Head              int64
	LogStart          int64
	InFlight          int64
	AckedAhead        int64
	Owed              int64 // failed or redriven, waiting for their next delivery
	Delayed           int64
	Waiting           int64 // behind their key
	Lag               int64 // records not settled, never negative
	DeadLetters       int64
	Skipped           int64
	OldestUnackedAge  time.Duration  // poison included, delayed ones not; 0 when there is none
	RetentionHeadroom *time.Duration // until retention deletes the oldest record not settled; nil = never
	Gap               *Gap
}

// Gap is a range of offsets that retention deleted before it was settled: [From, To).
type Gap struct{ From, To int64 }

// Stats is the state of a subscription.
type Stats struct {
	Subscription *metadata.Subscription
	Partitions   []PartitionStats
}

// DeadLetter is one dead letter.
type DeadLetter struct {
	Partition     int32
	Offset        int64
	Attempts      int32
	Reason        string
	FirstFailedAt int64 // Unix ms
	DeadAt        int64
	Expired       bool
	Record        *segment.Record // nil where it cannot be read any more, or was not asked for
}

// DeadLetterSelection names dead letters.
type DeadLetterSelection struct {
	All     bool
	Offsets []Target
}

// Target names one record.
type Target struct {
	Partition int32
	Offset    int64
}

// Task is a redrive.
type Task struct {
	ID          string
	Total, Done int64
	State       string // "running", "done", "cancelled"
	CreatedAt   int64  // Unix ms
	UpdatedAt   int64
}

// PeekedRecord is a record that would be handed out next.
type PeekedRecord struct {
	Partition int32
	Attempt   int32 // of the delivery that is to come
	DueAt     int64 // Unix ms; 0 = now
	Record    segment.Record
}

// Queues is what the gateway consumes; *Engine implements it. Every error is an *api.Error: UNKNOWN_TOPIC, UNKNOWN_SUBSCRIPTION,
// RETENTION_GAP (Extra "gaps": [{"partition","from","to"}]), LEASES_UNAVAILABLE, METADATA_UNAVAILABLE, STORAGE_UNAVAILABLE, OVERLOADED,
// INVALID_REQUEST, CONFLICT.
type Queues interface {
	// PutSubscription creates or changes a subscription; decide sees the present one or nil and may be called several times. start is
	// where a new one begins.
	PutSubscription(ctx context.Context, n Name, start Start, decide func(current *metadata.Subscription) (api.SubscriptionConfig, error)) (s *metadata.Subscription, created bool, err error)
	Subscription(ctx context.Context, n Name) (*Stats, error)
	// Subscriptions lists those of a topic by name, after a name, and the name to go on after ("" = that was all).
	Subscriptions(ctx context.Context, tenant, topic, after string, limit int) ([]*metadata.Subscription, string, error)
	DeleteSubscription(ctx context.Context, n Name) error

	// Lease answers within r.Wait. No messages and no error: there was nothing. What ctx's end overtakes is given back.
	Lease(ctx context.Context, r LeaseRequest) ([]Message, error)
	// Undo gives leases back that could not be handed over.
	Undo(ctx context.Context, n Name, receipts []string)
	Settle(ctx context.Context, r SettleRequest) ([]SettleResult, error)
	Seek(ctx context.Context, n Name, to SeekTarget) (*Stats, error)
	Peek(ctx context.Context, n Name, max int) ([]PeekedRecord, error)

	// DeadLetters lists dead letters after a cursor ("" = the first), with the cursor to go on after.
	DeadLetters(ctx context.Context, n Name, after string, limit int, withRecords bool) ([]DeadLetter, string, error)
	Redrive(ctx context.Context, n Name, sel DeadLetterSelection, ratePerSecond int) (*Task, error)
	Task(ctx context.Context, n Name, id string) (*Task, error)
	CancelTask(ctx context.Context, n Name, id string) (*Task, error)
	Discard(ctx context.Context, n Name, sel DeadLetterSelection) (discarded int64, err error)
}
