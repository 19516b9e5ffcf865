package journal

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"

	"github.com/forebaymq/forebay/metadata"
)

// GroupState is what a consumer group is in one generation: who is a member, and who owns which partition. Lists are in ascending order.
type GroupState struct {
	Generation int64
	Deleted    bool // the group is no more; all that is left to do is to forget it
	Members    []GroupMember
	Topics     []GroupTopic
}

// GroupMember is a member of a group.
type GroupMember struct {
	ID       string
	Instance string   // static membership, "" = none
	Topics   []string // names, ascending
	Session  int64    // ms without a heartbeat after which it is no member any more
	Earliest bool     // where it begins on topics that are new to the group
	// Absent: Redis has forgotten the session. What the member owns is kept for it for one session's time, until it joins again.
	Absent bool
}

// GroupTopic is a topic that a group reads, or has read.
type GroupTopic struct {
	ID    metadata.TopicID
	Name  string
	Slots []GroupSlot // one a partition; a partition beyond them is new to the group
}

// GroupSlot says to whom a partition belongs. Members are named by ID, "" = nobody.
type GroupSlot struct {
	Owner  string
	Target string // who is to own it; when that is not Owner, Owner is to let go
	Since  int64  // with another Target than Owner: the generation that told Owner so
}

// GroupPartition names a partition that a group has an offset of.
type GroupPartition struct {
	Topic     metadata.TopicID
	Partition int32
}

// GroupOffset is a committed offset: the next one to read.
type GroupOffset struct {
	GroupPartition
	Offset     int64
	Metadata   string
	Generation int64
	Time       int64 // Unix ms: when it was committed
}

// LoadedGroup is what the journal knows about one group.
type LoadedGroup struct {
	State   *GroupState // nil: nobody ever joined
	Offsets map[GroupPartition]GroupOffset
}

// GroupWrite is what one generation writes.
type GroupWrite struct {
	State   *GroupState // nil = stays
	Offsets []GroupOffset
	Remove  []GroupPartition // offsets of topics that are no more
}

// FencedLog appends what only the present generation of a group may.
type FencedLog interface {
	// AppendFenced is Log.Append under the fence of a producer with metadata.NoSequence: nothing is stored when a later epoch of it has begun before,
	// in the order of the log. PRODUCER_FENCED then; INVALID_REQUEST with Extra "epoch" when the epoch is not known any more.
	AppendFenced(ctx context.Context, tenant, topic string, p metadata.Producer, records []Record) ([]int64, error)
}

// Groups is the journal of consumer groups. A group's records are keyed without a writer: the fence lets one generation write at a time, so the
// newest record of a key, in the order of the log, is the one that counts, and compaction keeps exactly that.
type Groups struct {
	j   *Journal
	log FencedLog
}

// NewGroups gives the journal of groups. It shares the topics and the cache of j; log appends to the same log as j's.
func NewGroups(j *Journal, log FencedLog) *Groups { return &Groups{j: j, log: log} }

// GroupProducer is the producer whose epochs are the generations of a group.
func GroupProducer(id metadata.GroupID) string {
	return "__group." + strconv.FormatUint(uint64(id), 10)
}

// Load gives what the journal has of a group, everything that was acknowledged before the call among it, and everything of generations before one
// that had begun before the call.
func (g *Groups) Load(ctx context.Context, tenant string, id metadata.GroupID) (*LoadedGroup, error) {
	all, err := g.j.records(ctx, tenant, groupOwner(id))
	if err != nil {
		return nil, fmt.Errorf("load group %d: %w", id, err)
	}
	l := &LoadedGroup{Offsets: map[GroupPartition]GroupOffset{}}
	bad := 0
	for i := range all {
		if err := l.add(&all[i]); err != nil {
			bad++
		}
	}
	if bad > 0 {
		g.j.m.unreadable.Add(float64(bad))
		g.j.o.Logger.Error("the journal has records of a group in an unknown format: left out", "tenant", tenant, "group", id, "records", bad)
	}
	return l, nil
}

func (l *LoadedGroup) add(r *raw) error {
	k, err := decodeGroupKey([]byte(r.key))
	if err != nil {
		return err
	}
	if k.kind == kindGeneration {
		l.State, err = DecodeGroupState(r.value)
		return err
	}
	o, err := decodeGroupOffset(r.value)
	if err != nil {
		return err
	}
	o.GroupPartition = k.GroupPartition
	l.Offsets[o.GroupPartition] = o
	return nil
}

// Write stores what a generation writes, under its fence. One Write is one atomic append up to 4 MiB; more is cut, the state last. Errors are those of
// FencedLog, OUTCOME_UNKNOWN among them. The same Write may be repeated after any error.
func (g *Groups) Write(ctx context.Context, tenant string, id metadata.GroupID, generation int64, w GroupWrite) error {
	number := partitionOf(groupOwner(id), g.j.o.Partitions)
	records := make([]Record, 0, len(w.Remove)+len(w.Offsets)+1)
	put := func(k groupKey, value []byte) {
		k.group = id
		records = append(records, Record{Partition: number, Key: k.encode(), Value: value})
	}
	for _, p := range w.Remove {
		put(groupKey{kind: kindOffset, GroupPartition: p}, nil)
	}
	for i := range w.Offsets {
		o := &w.Offsets[i]
		if err := o.check(); err != nil {
			return fmt.Errorf("write group %d: %w", id, err)
		}
		put(groupKey{kind: kindOffset, GroupPartition: o.GroupPartition}, o.encode())
	}
	if w.State != nil {
		value, err := w.State.Encode()
		if err != nil {
			return fmt.Errorf("write group %d: %w", id, err)
		}
		put(groupKey{kind: kindGeneration}, value)
	}
	return g.append(ctx, tenant, id, generation, records)
}

// Drop removes everything of a group that is deleted, under the fence of the generation that deleted it.
func (g *Groups) Drop(ctx context.Context, tenant string, id metadata.GroupID, generation int64) error {
	all, err := g.j.records(ctx, tenant, groupOwner(id))
	if err != nil {
		return fmt.Errorf("drop group %d: %w", id, err)
	}
	number := partitionOf(groupOwner(id), g.j.o.Partitions)
	records := make([]Record, 0, len(all))
	for i := range all {
		records = append(records, Record{Partition: number, Key: []byte(all[i].key)})
	}
	// The state goes last: as long as it is there, somebody can see that there is something left to remove.
	slices.SortStableFunc(records, func(a, b Record) int { return len(b.Key) - len(a.Key) })
	return g.append(ctx, tenant, id, generation, records)
}

func (g *Groups) append(ctx context.Context, tenant string, id metadata.GroupID, generation int64, records []Record) error {
	for len(records) > 0 {
		n, bytes := 0, 0
		for ; n < len(records) && n < maxGroupRecords; n++ {
			if bytes += len(records[n].Key) + len(records[n].Value); n > 0 && bytes > maxAppendBytes {
				break
			}
		}
		err := g.j.withTopic(ctx, tenant, func(metadata.TopicID) error {
			_, err := g.log.AppendFenced(ctx, tenant, Topic, metadata.Producer{ID: GroupProducer(id), Epoch: generation, Sequence: metadata.NoSequence}, records[:n])
			return err
		})
		if err != nil {
			return fmt.Errorf("write group %d: %w", id, err)
		}
		g.j.m.written.Add(float64(n))
		g.j.m.writtenBytes.Add(float64(bytes))
		records = records[n:]
	}
	return nil
}

// maxGroupRecords bounds one append.
const maxGroupRecords = 50_000

// groupOwner is a group's number among the owners of records: subscriptions have their own IDs there, groups theirs with the highest bit set. So
// records of both are read, cached and forgotten in one way.
func groupOwner(id metadata.GroupID) metadata.SubscriptionID {
	return metadata.SubscriptionID(uint64(id) | 1<<63)
}

// A key of a group is
//
//	offset  size  field
//	0       1     keyVersion
//	1       1     kind
//	2       8     group, with the highest bit set
//	10      8     topic (kindOffset)
//	18      4     partition of the topic (kindOffset)
//
// in big endian. docs/journal-format.md has the same table.
const (
	kindGeneration keyKind = 'G' // what the group is in its newest generation
	kindOffset     keyKind = 'C' // a committed offset

	keyGroupOffsetBytes = 22
)

type groupKey struct {
	kind  keyKind
	group metadata.GroupID
	GroupPartition
}

func (k *groupKey) encode() []byte {
	b := make([]byte, 0, keyGroupOffsetBytes)
	b = append(b, keyVersion, byte(k.kind))
	b = binary.BigEndian.AppendUint64(b, uint64(groupOwner(k.group)))
	if k.kind == kindOffset {
		b = binary.BigEndian.AppendUint64(b, uint64(k.Topic))
		b = binary.BigEndian.AppendUint32(b, uint32(k.Partition))
	}
	return b
}

// decodeGroupKey is the inverse of encode.
func decodeGroupKey(b []byte) (groupKey, error) {
	if len(b) < keyHeadBytes || b[0] != keyVersion {
		return groupKey{}, fmt.Errorf("key %x: %w", head(b), errFormat)
	}
	owner := binary.BigEndian.Uint64(b[2:])
	k := groupKey{kind: keyKind(b[1]), group: metadata.GroupID(owner &^ (1 << 63))}
	want := 0
	switch k.kind {
	case kindGeneration:
		want = keyHeadBytes
	case kindOffset:
		want = keyGroupOffsetBytes
	}
	if len(b) != want || owner>>63 == 0 {
		return groupKey{}, fmt.Errorf("key %x: %d bytes of a group: %w", head(b), len(b), errFormat)
	}
	if k.kind == kindOffset {
		k.Topic = metadata.TopicID(binary.BigEndian.Uint64(b[10:]))
		k.Partition = int32(binary.BigEndian.Uint32(b[18:]))
		if k.Partition < 0 {
			return groupKey{}, fmt.Errorf("key %x: a partition below zero: %w", head(b), errFormat)
		}
	}
	return k, nil
}
