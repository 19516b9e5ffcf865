package metadata

import (
	"fmt"
	"sort"

	"github.com/forebaymq/forebay/api"
)

// State is the state machine of one shard: a pure function of the entries applied so far. No clock, no randomness, no I/O; nothing
// that depends on the order of a map. It is not safe for concurrent use: whoever holds it locks it, and the read methods, which change
// nothing, may run together under a read lock. What they return is a copy.
type State struct {
	shard, shards int
	revision      int64  // of the last applied entry
	counter       uint64 // of topics; the next ID is (counter+1)*shards + shard
	clock         int64  // Unix ms: the highest time that any entry carried
	boundary      int64  // Unix ms: GC boundary
	epochFloor    int64  // highest epoch of a forgotten producer session
	claims        map[string]int64

	tenants map[string]*tenant
	topics  map[TopicID]*topic
	order   []*topic // ascending by ID
	configs map[api.TopicConfig]*topicConfig

	segments segmentTable
	applied  appliedSegments

	subs   subscriptions
	groups groups

	producers map[producerKey]*producer
	sessions  list[producer] // with a session, by last use
	windows   list[window]   // of all partitions, by last use
	dedupes   list[dedupe]   // of all partitions, by last use

	touched int // partitions that exist
	entries int // live batches

	recent  recentCommits // answers, not state
	scratch commitScratch
}

// tenant holds the topics and groups of one tenant.
type tenant struct {
	name      string
	byName    map[string]*topic
	order     []*topic // ascending by name
	producers int
	groups    []*ConsumerGroup // ascending by name
}

// topicConfig is shared by all topics with the same configuration.
type topicConfig struct {
	api.TopicConfig
	topics int
}

// topic is the compact form of Topic, with the partitions that were written.
type topic struct {
	id            TopicID
	tenant        *tenant
	name          string
	config        *topicConfig
	created       int64
	version       int64
	parts         []*partition    // ascending by number; in a topic that is written all over, parts[n].num == n
	subscriptions []*Subscription // ascending by name
}

// NewState makes the empty state of a shard.
func NewState(shard, shards int) *State {
	return &State{
		shard: shard, shards: shards,
		claims:    map[string]int64{},
		tenants:   map[string]*tenant{},
		topics:    map[TopicID]*topic{},
		configs:   map[api.TopicConfig]*topicConfig{},
		producers: map[producerKey]*producer{},
		subs:      subscriptions{byID: map[SubscriptionID]*Subscription{}},
		groups:    groups{byID: map[GroupID]*ConsumerGroup{}},
	}
}

// Shard gives the number of the shard.
func (s *State) Shard() int { return s.shard }

// Revision gives the revision of the last entry applied, 0 before the first.
func (s *State) Revision() int64 { return s.revision }

// Apply applies one entry. Entries at or below Revision are skipped: their Results are nil. An error means that the entry cannot be
// decoded or is another shard's; nothing has changed then, and the node must not go on.
func (s *State) Apply(e LogEntry) (Applied, error) {
	if e.Shard != s.shard {
		return Applied{}, fmt.Errorf("apply entry %d of shard %d to shard %d: %w", e.Revision, e.Shard, s.shard, ErrUndecodable)
	}
	if e.Revision <= s.revision {
		return Applied{}, nil
	}
	cmds, err := DecodeCommands(e.Value)
	if err != nil {
		return Applied{}, fmt.Errorf("apply entry %d of shard %d: %w", e.Revision, e.Shard, err)
	}
	s.revision = e.Revision
	a := Applied{Results: make([]Result, len(cmds))}
	for i, c := range cmds {
		a.Results[i] = s.applyCommand(c, &a)
	}
	return a, nil
}

func (s *State) applyCommand(c Command, a *Applied) Result {
	switch c := c.(type) {
	case *Commit:
		return s.applyCommit(c, a)
	case *CreateTopic:
		return s.createTopic(c)
	case *UpdateTopic:
		return s.updateTopic(c)
	case *DeleteTopic:
		return s.deleteTopic(c, a)
	case *Trim:
		return s.trim(c, a)
	case *Replace:
		return s.replace(c)
	case *GCBoundary:
		return s.raiseBoundary(c)
	case *ProducerEpoch:
		return s.startSession(c)
	case *CreateSubscription:
		return s.createSubscription(c, a)
	case *UpdateSubscription:
		return s.updateSubscription(c, a)
	case *DeleteSubscription:
		return s.deleteSubscription(c, a)
	case *CreateGroup:
		return s.createGroup(c)
	case *DeleteGroup:
		return s.deleteGroup(c)
	}
	panic(fmt.Sprintf("assertion failed: command %T was decoded but cannot be applied", c))
}

// advance moves the shard's clock, which never goes back.
func (s *State) advance(ms int64) { s.clock = max(s.clock, ms) }

// fence refuses a holder of a claim after a later holder has been seen. Commands without a claim are not fenced.
func (s *State) fence(claim string, epoch int64) error {
	if claim == "" {
		return nil
	}
	if seen := s.claims[claim]; epoch < seen {
		return api.Errorf(api.CodeConflict, "claim %s has epoch %d, and %d has been seen", claim, epoch, seen)
	}
	s.claims[claim] = epoch
	return nil
}

// raiseBoundary applies GCBoundary, and forgets the segments that no commit can name any more.
func (s *State) raiseBoundary(c *GCBoundary) Result {
	if err := s.fence(c.Claim, c.ClaimEpoch); err != nil {
		return Result{Err: err}
	}
	if c.Boundary > s.boundary {
		s.boundary = c.Boundary
		s.applied.forgetBefore(c.Boundary)
	}
	return Result{}
}

// GCBoundary gives the time, Unix ms, below which no segment can be committed any more.
func (s *State) GCBoundary() int64 { return s.boundary }

func errUnknownTopic() error { return api.Errorf(api.CodeUnknownTopic, "the topic does not exist") }

func errUnknownPartition(num int32, n int) error {
	return api.Errorf(api.CodeUnknownPartition, "partition %d is not one of the topic's %d", num, n)
}

// find gives the topic's partition, or nil if it was never written.
func (t *topic) find(num int32) *partition {
	if n := int(num); n < len(t.parts) && n >= 0 && t.parts[n].num == num {
		return t.parts[n]
	}
	i := sort.Search(len(t.parts), func(i int) bool { return t.parts[i].num >= num })
	if i < len(t.parts) && t.parts[i].num == num {
		return t.parts[i]
	}
	return nil
}

// readPartition gives the partition, or nil if it was never written.
func (s *State) readPartition(id TopicID, num int32) (*partition, error) {
	t := s.topics[id]
	if t == nil {
		return nil, errUnknownTopic()
	}
	if num < 0 || int(num) >= t.config.Partitions {
		return nil, errUnknownPartition(num, t.config.Partitions)
	}
	return t.find(num), nil
}

// Partition gives the state of one partition. UNKNOWN_TOPIC, UNKNOWN_PARTITION.
func (s *State) Partition(id TopicID, num int32) (PartitionInfo, error) {
	p, err := s.readPartition(id, num)
	if err != nil || p == nil {
		return PartitionInfo{}, err
	}
	return p.info(), nil
}

// PartitionInfos gives the state of all partitions of a topic, by number. UNKNOWN_TOPIC.
func (s *State) PartitionInfos(id TopicID) ([]PartitionInfo, error) {
	t := s.topics[id]
	if t == nil {
		return nil, errUnknownTopic()
	}
	out := make([]PartitionInfo, t.config.Partitions)
	for _, p := range t.parts {
		out[p.num] = p.info()
	}
	return out, nil
}

// Stats counts what a state holds.
type Stats struct {
	Topics        int
	Partitions    int // that were ever written
	IndexEntries  int // live batches
	Segments      int // with live batches
	Applied       int // segments at or above the GC boundary that were committed
	Windows       int // partition and producer
	Sessions      int // producers
	Subscriptions int
	Groups        int
}

// Stats counts what the state holds, in constant time.
func (s *State) Stats() Stats {
	return Stats{
		Topics: len(s.topics), Partitions: s.touched, IndexEntries: s.entries, Segments: s.segments.live(),
		Applied: len(s.applied.ids), Windows: s.windows.n, Sessions: s.sessions.n,
		Subscriptions: len(s.subs.order), Groups: len(s.groups.order),
	}
}
