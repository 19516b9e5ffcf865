package api

import "time"

// GapPolicy says what a subscription does when retention has deleted records that it has not settled.
type GapPolicy string

// The gap policies.
const (
	GapFail GapPolicy = "fail" // leasing answers RETENTION_GAP until someone seeks
	GapSkip GapPolicy = "skip" // the lost range is counted and passed
)

// Ordering says what a subscription promises about the order of deliveries.
type Ordering string

// The orderings.
const (
	OrderingNone Ordering = "none"
	OrderingKey  Ordering = "key" // while a record of a key is leased, delayed or owed, no later one of that key is handed out
)

// Backoff is the pause before a failed record is delivered again: Initial, times Multiplier for each further failure, at most Max; with
// Jitter drawn evenly from [0, that].
type Backoff struct {
	Initial    time.Duration
	Max        time.Duration
	Multiplier float64
	Jitter     bool
}

// FairShare names what a subscription shares its deliveries by. Both empty: no fair share. At most one is set.
type FairShare struct {
	Key    bool   // by the record's key
	Header string // by the first header of this name
}

// Enabled says whether deliveries are shared.
func (f FairShare) Enabled() bool { return f.Key || f.Header != "" }

// SubscriptionConfig is the decoded configuration of a subscription. The zero value is not valid; see DefaultSubscriptionConfig. It is
// comparable.
type SubscriptionConfig struct {
	VisibilityTimeout time.Duration
	MaxAttempts       int
	Backoff           Backoff
	MaxInFlight       int // per partition
	MaxAckedAhead     int // per partition
	DeadLetterTopic   string
	GapPolicy         GapPolicy
	Ordering          Ordering
	FairShare         FairShare // not together with OrderingKey
}

// DefaultSubscriptionConfig is what PUT of a subscription with an empty body creates.
func DefaultSubscriptionConfig() SubscriptionConfig {
	return SubscriptionConfig{
		VisibilityTimeout: 30 * time.Second,
		MaxAttempts:       5,
		Backoff:           Backoff{Initial: 2 * time.Second, Max: 5 * time.Minute, Multiplier: 2, Jitter: true},
		MaxInFlight:       1024,
		MaxAckedAhead:     1024,
		GapPolicy:         GapFail,
		Ordering:          OrderingNone,
	}
}

// Limits of subscriptions.
const (
	MinVisibility            = time.Second
	MaxVisibility            = 12 * time.Hour
	MaxMaxAttempts           = 1000
	MaxInFlightLimit         = 100_000
	MaxAckedAheadLimit       = 100_000
	MaxBackoff               = 12 * time.Hour
	MaxNackDelay             = 12 * time.Hour
	MaxLeaseRecords          = 1000 // of one lease request; more is clamped
	DefaultLeaseRecords      = 10
	MaxReceiptsPerRequest    = 10_000
	MaxReasonBytes           = 1024 // of a nack; longer is cut
	MaxRequestIDBytes        = 128  // of a lease
	MaxRedriveOffsets        = 10_000
	DefaultRedriveRate       = 1000 // records a second
	MaxRedriveRate           = 100_000
	MaxSubscriptionsPerTopic = 1000
)

// PartitionOffset is a position of one partition.
type PartitionOffset struct {
	Partition int32
	Offset    int64
}
