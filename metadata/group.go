package metadata

import "math"

// GroupID names a consumer group for ever. IDs are never reused. GroupID modulo the number of shards is the shard of its tenant.
type GroupID uint64

// ConsumerGroup is the immutable description of a consumer group. Members, generations and offsets are not here: they are in Redis and in
// the journal.
type ConsumerGroup struct {
	ID      GroupID
	Tenant  string
	Name    string
	Created int64 // Unix ms
}

// NoSequence is the sequence of a request that is only fenced: its producer's epoch must be that of the running session, else the request is
// refused with PRODUCER_FENCED, but it is never compared with earlier requests and nothing is remembered of it.
const NoSequence int64 = math.MinInt64
