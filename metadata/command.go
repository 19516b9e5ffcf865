package metadata

import (
	"errors"
	"hash/fnv"

	"github.com/forebaymq/forebay/api"
)

// commandKind is the first byte of an encoded command. Kinds are part of the format and never reused.
type commandKind uint8

// The kinds of commands (docs/metadata-keys.md, "Commands").
const (
	kindCommit             commandKind = 1
	kindCreateTopic        commandKind = 2
	kindUpdateTopic        commandKind = 3
	kindDeleteTopic        commandKind = 4
	kindTrim               commandKind = 5
	kindReplace            commandKind = 6
	kindGCBoundary         commandKind = 7
	kindProducerEpoch      commandKind = 8
	kindCreateSubscription commandKind = 9
	kindUpdateSubscription commandKind = 10
	kindDeleteSubscription commandKind = 11
	kindCreateGroup        commandKind = 12
	kindDeleteGroup        commandKind = 13
)

// Command is one change of a shard's state: *Commit, *CreateTopic, *UpdateTopic, *DeleteTopic, *Trim, *Replace, *GCBoundary,
// *ProducerEpoch, *CreateSubscription, *UpdateSubscription, *DeleteSubscription, *CreateGroup or *DeleteGroup. A command is immutable once it
// was handed to the log.
type Command interface{ kind() commandKind }

func (*Commit) kind() commandKind             { return kindCommit }
func (*CreateTopic) kind() commandKind        { return kindCreateTopic }
func (*UpdateTopic) kind() commandKind        { return kindUpdateTopic }
func (*DeleteTopic) kind() commandKind        { return kindDeleteTopic }
func (*Trim) kind() commandKind               { return kindTrim }
func (*Replace) kind() commandKind            { return kindReplace }
func (*GCBoundary) kind() commandKind         { return kindGCBoundary }
func (*ProducerEpoch) kind() commandKind      { return kindProducerEpoch }
func (*CreateSubscription) kind() commandKind { return kindCreateSubscription }
func (*UpdateSubscription) kind() commandKind { return kindUpdateSubscription }
func (*DeleteSubscription) kind() commandKind { return kindDeleteSubscription }
func (*CreateGroup) kind() commandKind        { return kindCreateGroup }
func (*DeleteGroup) kind() commandKind        { return kindDeleteGroup }

// CreateTopic makes a topic. The result holds it. When the name exists, Result.Err is CONFLICT and Result.Topic the existing topic.
type CreateTopic struct {
	Tenant, Name string
	Config       api.TopicConfig
	Now          int64 // Unix ms, becomes Topic.Created
}

// UpdateTopic replaces a topic's configuration. Errors: UNKNOWN_TOPIC, CONFLICT when Version is not the present one (Result.Topic is
// the present topic), PARTITIONS_CANNOT_SHRINK.
type UpdateTopic struct {
	TopicID TopicID
	Version int64 // expected Topic.Version
	Config  api.TopicConfig
}

// DeleteTopic removes a topic with everything that the state keeps of it. UNKNOWN_TOPIC when it is not there.
type DeleteTopic struct{ TopicID TopicID }

// GCBoundary raises the time below which segments may not be committed any more. A lower value than the present one changes nothing.
type GCBoundary struct {
	Boundary   int64 // Unix ms; segments whose ULID time is below it are refused
	Claim      string
	ClaimEpoch int64
}

// ProducerEpoch starts a session of a producer: the result's Epoch is one more than the previous session's, 1 for the first. A repeat
// with the nonce of the last start answers its epoch again.
type ProducerEpoch struct {
	Tenant, ID string
	Now        int64  // Unix ms
	Nonce      string // unique per start; "" never matches
}

// CreateSubscription makes a subscription. The result holds it. Starts are ascending by partition; apply moves each into what the partition
// holds. Errors: UNKNOWN_TOPIC, INVALID_REQUEST, CONFLICT: when the name exists, Result.Subscription is the existing one; when
// the topic has as many as it may, there is none.
type CreateSubscription struct {
	TopicID TopicID
	Name    string
	Config  api.SubscriptionConfig
	Starts  []api.PartitionOffset
	Now     int64 // Unix ms, becomes Subscription.Created
}

// UpdateSubscription replaces a subscription's configuration. Errors: UNKNOWN_SUBSCRIPTION, INVALID_REQUEST, CONFLICT when Version is not the
// present one (Result.Subscription is the present one).
type UpdateSubscription struct {
	ID      SubscriptionID
	Version int64 // expected Subscription.Version
	Config  api.SubscriptionConfig
}

// DeleteSubscription removes a subscription. The result holds what it was. UNKNOWN_SUBSCRIPTION when it is not there.
type DeleteSubscription struct{ ID SubscriptionID }

// CreateGroup makes a consumer group. The result holds it. CONFLICT: when the name exists, Result.Group is the existing one; when the tenant
// has as many as it may, there is none.
type CreateGroup struct {
	Tenant, Name string
	Now          int64 // Unix ms, becomes ConsumerGroup.Created
}

// DeleteGroup removes a consumer group. The result holds what it was. UNKNOWN_GROUP when it is not there.
type DeleteGroup struct{ ID GroupID }

// ErrAlreadyApplied is the Result.Err of a commit whose segment is already part of the state and whose first answer is not kept any
// more. It changed nothing now; what the first attempt answered cannot be told, so the producer's outcome is unknown.
var ErrAlreadyApplied = errors.New("segment already committed, first answer not kept")

// Result is what apply decided about one command.
type Result struct {
	// Err is nil, ErrAlreadyApplied (commits), or an *api.Error for which the command had no effect.
	Err          error
	Batches      []BatchResult  // one a batch of a Commit; nil when Err is not nil
	Topic        *Topic         // CreateTopic, UpdateTopic
	Epoch        int64          // ProducerEpoch
	Subscription *Subscription  // CreateSubscription, UpdateSubscription, DeleteSubscription
	Group        *ConsumerGroup // CreateGroup, DeleteGroup
}

// Applied is what applying one entry did.
type Applied struct {
	Results []Result // one a command, in their order; nil when the entry was skipped
	// Changed names partitions whose head or logStart moved and, with Partition -1, topics that went away. A partition may be named twice.
	Changed []PartitionKey
	// Subscriptions names those that were created, changed or deleted, alone or with their topic.
	Subscriptions []SubscriptionID
}

// PartitionKey names one partition, or with Partition -1 a whole topic.
type PartitionKey struct {
	Topic     TopicID
	Partition int32
}

// ShardOf maps a tenant to its shard: FNV-1a 64 of the name modulo shards (positive). It is part of the stored format.
func ShardOf(tenant string, shards int) int {
	h := fnv.New64a()
	_, _ = h.Write([]byte(tenant)) // never fails
	return int(h.Sum64() % uint64(shards))
}
