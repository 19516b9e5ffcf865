package metadata

import "crypto/sha256"

// ShardHash is the hash of one shard's state at a revision. Two nodes that applied the same entries have equal ones.
type ShardHash struct {
	Revision int64 // of the last entry that the shard has applied
	Hash     [32]byte
}

func (l *Log) shardOf(id TopicID) *shardView { return l.shards[uint64(id)%uint64(len(l.shards))] }

func (l *Log) tenantShard(tenant string) *shardView { return l.shards[ShardOf(tenant, len(l.shards))] }

// Partition gives the present state of a partition, as far as this node has applied. UNKNOWN_TOPIC, UNKNOWN_PARTITION.
func (l *Log) Partition(id TopicID, partition int32) (PartitionInfo, error) {
	s := l.shardOf(id)
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mu.state.Partition(id, partition)
}

// PartitionInfos gives the present state of all the partitions of a topic, by partition. UNKNOWN_TOPIC.
func (l *Log) PartitionInfos(id TopicID) ([]PartitionInfo, error) {
	s := l.shardOf(id)
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mu.state.PartitionInfos(id)
}

// Locate gives up to max live batches, ascending, from the first one whose Last is at or after offset, with the partition's state at the
// same moment. UNKNOWN_TOPIC, UNKNOWN_PARTITION.
func (l *Log) Locate(id TopicID, partition int32, offset int64, max int) ([]IndexEntry, PartitionInfo, error) {
	s := l.shardOf(id)
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mu.state.Locate(id, partition, offset, max)
}

// LocateTime gives the first live batch with AppendTime at or after ms (Unix), or found=false. UNKNOWN_TOPIC, UNKNOWN_PARTITION.
func (l *Log) LocateTime(id TopicID, partition int32, ms int64) (e IndexEntry, found bool, err error) {
	s := l.shardOf(id)
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mu.state.LocateTime(id, partition, ms)
}

// Revision is the revision up to which this node has seen everything.
func (l *Log) Revision() int64 { return l.applied.get() }

// Hashes gives every shard's hash, each at its own revision.
func (l *Log) Hashes() map[int]ShardHash {
	out := make(map[int]ShardHash, len(l.shards))
	for i, s := range l.shards {
		s.mu.RLock()
		revision, body := s.mu.state.Revision(), s.mu.state.SnapshotBody()
		s.mu.RUnlock()
		out[i] = ShardHash{Revision: revision, Hash: sha256.Sum256(body)} // as State.Hash
	}
	return out
}

// Fabric is the fixed shape of the fabric that this log belongs to.
func (l *Log) Fabric() Fabric { return l.fabric }
