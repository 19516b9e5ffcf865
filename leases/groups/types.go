package groups

import (
	"context"
	"time"

	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

// Name names a group of a tenant.
type Name struct{ Tenant, Group string }

// TopicPartition names one partition by its topic's name.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// Start says where a group begins on a partition that it has no offset for.
type Start string

// The starts.
const (
	Latest   Start = "latest"
	Earliest Start = "earliest"
)

// JoinRequest makes or renews a membership.
type JoinRequest struct {
	Name
	Topics         []string      // what the member wants to read; members of one group may differ
	MemberID       string        // "" = a new member; the ID of an earlier answer = the same member again
	InstanceID     string        // static membership: a restarted process with the same instance takes over its partitions, "" = none
	SessionTimeout time.Duration // 0 = 10 s
	Start          Start         // "" = latest; decided and made durable when the group first gets the partition
}

// Assigned is a partition that the member owns now, and where to go on.
type Assigned struct {
	TopicPartition
	Offset  int64
	TopicID metadata.TopicID // a topic that was deleted and created again is another one, under the same name
}

// Joined answers JoinRequest.
type Joined struct {
	MemberID          string
	Generation        int64
	Assignment        []Assigned // what it owns already; more may come with heartbeats, once their owners have let go
	HeartbeatInterval time.Duration
}

// HeartbeatRequest keeps a session alive and says what the member holds.
type HeartbeatRequest struct {
	Name
	MemberID   string
	Generation int64
	Owned      []TopicPartition // what it still processes; a partition in revoke is let go by leaving it out
	OwnedSet   bool             // false: the member does not say (nothing is let go)
}

// Beat answers HeartbeatRequest.
type Beat struct {
	Generation int64
	Assignment []Assigned       // what it owns; not what it is to let go
	Revoke     []TopicPartition // to be finished, committed and let go
}

// Offset is a committed position: the next offset to read.
type Offset struct {
	TopicPartition
	Offset   int64
	Metadata string
}

// CommitRequest commits offsets, all or none. Offsets with Generation 0 and MemberID "" are refused while the group has live members.
type CommitRequest struct {
	Name
	MemberID   string
	Generation int64
	Offsets    []Offset
}

// Member is a member of a group as an observer sees it.
type Member struct {
	ID, InstanceID string
	Topics         []string
	Owned          []TopicPartition
	Revoking       []TopicPartition
	Expires        int64 // Unix ms: when its session ends without a further heartbeat
}

// PartitionLag is a group's position on one partition.
type PartitionLag struct {
	TopicPartition
	Owner     string // member, "" = none
	Committed *int64 // nil = never
	Head      int64
	LogStart  int64
	Lag       int64          // records, never negative; holes counted
	LagTime   time.Duration  // age of the first unread record; 0 = none
	Headroom  *time.Duration // until retention deletes it; nil = never
	Gap       *Gap
	Metadata  string
}

// Gap is a range that retention deleted before the group read it: [From, To).
type Gap struct{ From, To int64 }

// Description is a group as an observer sees it.
type Description struct {
	Group      *metadata.ConsumerGroup
	State      string // "empty", "stable", "rebalancing"
	Generation int64
	Members    []Member
	Partitions []PartitionLag
}

// SeekRequest moves a group on one topic. Exactly one target is set.
type SeekRequest struct {
	Name
	Topic            string
	Earliest, Latest bool
	Time             *int64 // Unix ms
	Offsets          map[int32]int64
	DryRun           bool
}

// Sought is what a seek does to one partition.
type Sought struct {
	TopicPartition
	From    *int64 // committed before, nil = never
	To      int64
	Skipped int64 // records between From and To that will not be read
	Repeats int64 // records between To and From that will be read again
	Lost    int64 // offsets from From on that retention has deleted; they are not in Skipped
}

// PollRequest reads from all partitions that a member owns, from where its last poll, or the commit, left off.
type PollRequest struct {
	Name
	MemberID   string
	Generation int64
	MaxRecords int             // 0 = api.DefaultReadRecords
	MaxBytes   int64           // 0 = api.DefaultReadBytes
	Wait       time.Duration   // how long to wait when there is nothing
	Enough     <-chan struct{} // ends the wait early when it is closed: the answer is that there is nothing. nil = never
}

// Polled is what one partition gave to a poll.
type Polled struct {
	TopicPartition
	Records    []segment.Record // share memory with the read cache: read only
	NextOffset int64            // what to commit once they are processed
	Head       int64
	Gap        *Gap // nil = none. Else there are no records, and there will be none before somebody commits an offset beyond it, or seeks.
}

// Groups is what the gateway consumes; *Coordinator implements it. Every error is an *api.Error: UNKNOWN_GROUP, UNKNOWN_TOPIC, STALE_GENERATION,
// NOT_OWNER, CONFLICT (live members), RETENTION_GAP (Extra "gaps"), LEASES_UNAVAILABLE, METADATA_UNAVAILABLE, OUTCOME_UNKNOWN, INVALID_REQUEST.
type Groups interface {
	Join(ctx context.Context, r JoinRequest) (*Joined, error)
	Heartbeat(ctx context.Context, r HeartbeatRequest) (*Beat, error)
	Leave(ctx context.Context, n Name, memberID string) error
	// Commit answers once the offsets are durable.
	Commit(ctx context.Context, r CommitRequest) error
	// Offsets is linearizable.
	Offsets(ctx context.Context, n Name) ([]Offset, error)
	Group(ctx context.Context, n Name) (*Description, error)
	// Groups lists a tenant's groups by name after a name, and the name to go on after.
	Groups(ctx context.Context, tenant, after string, limit int) ([]*metadata.ConsumerGroup, string, error)
	Seek(ctx context.Context, r SeekRequest) ([]Sought, error)
	Delete(ctx context.Context, n Name) error
	Poll(ctx context.Context, r PollRequest) ([]Polled, error)
}
