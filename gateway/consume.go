package gateway

import (
	"context"

	"github.com/forebaymq/forebay/api"
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
