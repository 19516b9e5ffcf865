package metadata

import "github.com/forebaymq/forebay/api"

// SubscriptionID names a subscription for ever. IDs are never reused. SubscriptionID modulo the number of shards is the shard of its tenant.
type SubscriptionID uint64

// Subscription is the immutable description of a subscription at one moment. It goes away with its topic.
type Subscription struct {
	ID      SubscriptionID
	Tenant  string
	TopicID TopicID
	Topic   string // name
	Name    string
	Config  api.SubscriptionConfig
	// Starts are the offsets at which it began, ascending by partition. A partition that is not named began at 0: the topic got it, or
	// its first record, after the subscription was made.
	Starts  []api.PartitionOffset
	Created int64 // Unix ms
	Version int64 // log revision of the last change
}

// Start gives the offset at which the subscription began on a partition.
func (s *Subscription) Start(partition int32) int64 {
	lo, hi := 0, len(s.Starts)
	for lo < hi {
		if mid := (lo + hi) / 2; s.Starts[mid].Partition < partition {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(s.Starts) && s.Starts[lo].Partition == partition {
		return s.Starts[lo].Offset
	}
	return 0
}
