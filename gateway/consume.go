package gateway

import (
	"context"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases"
	"github.com/forebaymq/forebay/leases/groups"
	"github.com/forebaymq/forebay/metadata"
)

// TopicLookup finds topics in the node's view of the log.
type TopicLookup interface {
	// Sync returns when the view shows everything that was acknowledged before the call, or METADATA_UNAVAILABLE.
	Sync(ctx context.Context) error
	// Topic gives a topic of the view, or UNKNOWN_TOPIC.
	Topic(tenant, name string) (*metadata.Topic, error)
}

// TopicCatalog lists topics and the state of their partitions.
type TopicCatalog interface {
	// Topics gives up to limit topics with a name after the one given, by name, and the name to go on after ("" = no more).
	Topics(tenant, after string, limit int) (items []*metadata.Topic, next string)
	// PartitionInfos gives the state of every partition of a topic, by number. UNKNOWN_TOPIC.
	PartitionInfos(id metadata.TopicID) ([]metadata.PartitionInfo, error)
}

// TopicAdmin changes topics. Errors are *api.Error; OUTCOME_UNKNOWN when ctx ended before the outcome was known.
type TopicAdmin interface {
	// PutTopic creates a topic or changes its configuration. decide gets the present topic (nil = none) and says the new
	// configuration; its error ends the call and is returned as it is. It may be called again when another change came first.
	PutTopic(ctx context.Context, tenant, name string, decide func(current *metadata.Topic) (api.TopicConfig, error)) (t *metadata.Topic, created bool, err error)
	// DeleteTopic removes a topic. UNKNOWN_TOPIC.
	DeleteTopic(ctx context.Context, tenant, name string) error
}

// Topics is all that the gateway needs of topics.
type Topics interface {
	TopicLookup
	TopicCatalog
	TopicAdmin
}

// Producers keeps the sessions of idempotent producers.
type Producers interface {
	// StartProducer begins a session and returns its epoch; older epochs are fenced from then on.
	StartProducer(ctx context.Context, tenant, id string) (epoch int64, err error)
	// ProducerPositions gives the highest sequence of the producer per partition, of one topic or ("") of all. Linearizable.
	ProducerPositions(ctx context.Context, tenant, id, topic string) ([]metadata.ProducerPosition, error)
}

// Health says whether the metadata log can be used.
type Health interface {
	// Available returns nil, or METADATA_UNAVAILABLE while the log is known to be without a quorum.
	Available() error
	Status() metadata.Status
}

// Subscriptions creates, shows and removes work queues.
type Subscriptions interface {
	// PutSubscription creates or changes a subscription; decide sees the present one or nil and may be called several times. start is
	// where a new one begins.
	PutSubscription(ctx context.Context, n leases.Name, start leases.Start, decide func(current *metadata.Subscription) (api.SubscriptionConfig, error)) (s *metadata.Subscription, created bool, err error)
	Subscription(ctx context.Context, n leases.Name) (*leases.Stats, error)
	// Subscriptions lists those of a topic by name, after a name, and the name to go on after ("" = that was all).
	Subscriptions(ctx context.Context, tenant, topic, after string, limit int) ([]*metadata.Subscription, string, error)
	DeleteSubscription(ctx context.Context, n leases.Name) error
}

// Deliveries hands out records and takes their outcome.
type Deliveries interface {
	// Lease answers within r.Wait. No messages and no error: there was nothing. What ctx's end overtakes is given back.
	Lease(ctx context.Context, r leases.LeaseRequest) ([]leases.Message, error)
	// Undo gives leases back that could not be handed over.
	Undo(ctx context.Context, n leases.Name, receipts []string)
	// Settle answers one result a receipt, in order.
	Settle(ctx context.Context, r leases.SettleRequest) ([]leases.SettleResult, error)
	Seek(ctx context.Context, n leases.Name, to leases.SeekTarget) (*leases.Stats, error)
	Peek(ctx context.Context, n leases.Name, max int) ([]leases.PeekedRecord, error)
}

// DeadLetters lists what has failed too often, and brings it back or forgets it.
type DeadLetters interface {
	// DeadLetters lists dead letters after a cursor ("" = the first), with the cursor to go on after.
	DeadLetters(ctx context.Context, n leases.Name, after string, limit int, withRecords bool) ([]leases.DeadLetter, string, error)
	Redrive(ctx context.Context, n leases.Name, sel leases.DeadLetterSelection, ratePerSecond int) (*leases.Task, error)
	Task(ctx context.Context, n leases.Name, id string) (*leases.Task, error)
	CancelTask(ctx context.Context, n leases.Name, id string) (*leases.Task, error)
	Discard(ctx context.Context, n leases.Name, sel leases.DeadLetterSelection) (discarded int64, err error)
}

// Queues is all that the gateway needs of work queues. Errors are *api.Error: UNKNOWN_TOPIC, UNKNOWN_SUBSCRIPTION, RETENTION_GAP,
// LEASES_UNAVAILABLE and those of the stores below.
type Queues interface {
	Subscriptions
	Deliveries
	DeadLetters
}

var _ Queues = (leases.Queues)(nil)

// Groups is all that the gateway needs of consumer groups. Errors are *api.Error: UNKNOWN_GROUP, STALE_GENERATION, NOT_OWNER, CONFLICT,
// RETENTION_GAP, LEASES_UNAVAILABLE and those of the stores below.
type Groups interface {
	Join(ctx context.Context, r groups.JoinRequest) (*groups.Joined, error)
	Heartbeat(ctx context.Context, r groups.HeartbeatRequest) (*groups.Beat, error)
	Leave(ctx context.Context, n groups.Name, memberID string) error
	// Commit answers once the offsets are durable.
	Commit(ctx context.Context, r groups.CommitRequest) error
	// Offsets is linearizable.
	Offsets(ctx context.Context, n groups.Name) ([]groups.Offset, error)
	Group(ctx context.Context, n groups.Name) (*groups.Description, error)
	// Groups lists those of a tenant by name, after a name, and the name to go on after ("" = that was all).
	Groups(ctx context.Context, tenant, after string, limit int) ([]*metadata.ConsumerGroup, string, error)
	Seek(ctx context.Context, r groups.SeekRequest) ([]groups.Sought, error)
	Delete(ctx context.Context, n groups.Name) error
	// Poll answers within r.Wait. What ctx's end overtakes is an error.
	Poll(ctx context.Context, r groups.PollRequest) ([]groups.Polled, error)
}

var _ Groups = (groups.Groups)(nil)
