package metadata

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/segment"
)

// stWorld feeds a state with entries, as a log would.
type stWorld struct {
	t    testing.TB
	s    *State
	rev  int64
	log  []LogEntry
	last Applied
	segs uint64
	now  int64
}

const stEpoch = int64(1_700_000_000_000)

func newWorld(t testing.TB) *stWorld {
	return &stWorld{t: t, s: NewState(0, 1), now: stEpoch}
}

// apply puts the commands in one entry, applies it, and gives the results.
func (w *stWorld) apply(cmds ...Command) []Result {
	w.t.Helper()
	value, err := AppendCommands(nil, cmds)
	if err != nil {
		w.t.Fatalf("encode: %v", err)
	}
	w.rev++
	e := LogEntry{Revision: w.rev, Value: value}
	w.log = append(w.log, e)
	if w.last, err = w.s.Apply(e); err != nil {
		w.t.Fatalf("apply: %v", err)
	}
	return w.last.Results
}

// one applies one command that must succeed.
func (w *stWorld) one(c Command) Result {
	w.t.Helper()
	r := w.apply(c)[0]
	if r.Err != nil {
		w.t.Fatalf("%T: %v", c, r.Err)
	}
	return r
}

// refused applies one command that must be refused with the code.
func (w *stWorld) refused(c Command, code api.Code) Result {
	w.t.Helper()
	before := w.s.Hash()
	r := w.apply(c)[0]
	if api.CodeOf(r.Err) != code {
		w.t.Fatalf("%T: %v, want %s", c, r.Err, code)
	}
	w.unchanged(before)
	return r
}

// unchanged compares with a hash from before the last entry, all but the revision.
func (w *stWorld) unchanged(before [32]byte) {
	w.t.Helper()
	rev := w.s.revision
	w.s.revision--
	defer func() { w.s.revision = rev }()
	if w.s.Hash() != before {
		w.t.Fatal("the state changed")
	}
}

func stConfig(partitions int) api.TopicConfig {
	c := api.DefaultTopicConfig()
	c.Partitions = partitions
	return c
}

func (w *stWorld) topic(name string, c api.TopicConfig) *Topic {
	w.t.Helper()
	return w.one(&CreateTopic{Tenant: "acme", Name: name, Config: c, Now: w.now}).Topic
}

func stULID(ms int64, n uint64) (id ulid.ULID) {
	if err := id.SetTime(uint64(ms)); err != nil {
		panic(err)
	}
	binary.BigEndian.PutUint64(id[8:], n)
	return id
}

// segment names a new level-0 segment, sealed now.
func (w *stWorld) segment() SegmentRef {
	w.segs++
	return SegmentRef{ID: stULID(w.now, w.segs), Size: 1 << 20}
}

// commit makes a commit of the batches, which get places one behind the other.
func (w *stWorld) commit(groups []Group, batches ...BatchDelta) *Commit {
	pos := uint64(32)
	for i := range batches {
		if batches[i].Ref == (segment.BatchRef{}) {
			batches[i].Ref = segment.BatchRef{Pos: pos, Len: 100}
		}
		batches[i].RawBytes = 200
		pos += uint64(batches[i].Ref.Len)
	}
	return &Commit{Segment: w.segment(), AppendTime: w.now, Groups: groups, Batches: batches}
}

// free is a batch without a group.
func free(t *Topic, partition, records int32) BatchDelta {
	return BatchDelta{TopicID: t.ID, Partition: partition, Records: records, Group: -1}
}

func grouped(t *Topic, partition, records, group int32) BatchDelta {
	return BatchDelta{TopicID: t.ID, Partition: partition, Records: records, Group: group}
}

// send commits batches of one request with a producer.
func (w *stWorld) send(id string, epoch, seq int64, batches ...BatchDelta) []BatchResult {
	w.t.Helper()
	for i := range batches {
		batches[i].Group = 0
	}
	g := []Group{{Tenant: "acme", Producer: &Producer{ID: id, Epoch: epoch, Sequence: seq}}}
	return w.one(w.commit(g, batches...)).Batches
}

func (w *stWorld) info(t *Topic, partition int32) PartitionInfo {
	w.t.Helper()
	p, err := w.s.Partition(t.ID, partition)
	if err != nil {
		w.t.Fatalf("partition: %v", err)
	}
	return p
}

func (w *stWorld) tick(d time.Duration) { w.now += d.Milliseconds() }

func wantCode(t testing.TB, err error, code api.Code) {
	t.Helper()
	if api.CodeOf(err) != code {
		t.Fatalf("error %v, want %s", err, code)
	}
}

func wantBase(t testing.TB, r BatchResult, base int64, duplicate bool) {
	t.Helper()
	if r.Err != nil || r.Base != base || r.Duplicate != duplicate {
		t.Fatalf("result %+v, want base %d, duplicate %v", r, base, duplicate)
	}
}

func (w *stWorld) subscription(t *Topic, name string, c api.SubscriptionConfig, starts ...api.PartitionOffset) *Subscription {
	w.t.Helper()
	return w.one(&CreateSubscription{TopicID: t.ID, Name: name, Config: c, Starts: starts, Now: w.now}).Subscription
}

func (w *stWorld) group(tenant, name string) *ConsumerGroup {
	w.t.Helper()
	return w.one(&CreateGroup{Tenant: tenant, Name: name, Now: w.now}).Group
}

// stFullSubscription has nothing at its zero value.
func stFullSubscription() api.SubscriptionConfig {
	return api.SubscriptionConfig{
		VisibilityTimeout: time.Minute, MaxAttempts: 3, Backoff: api.Backoff{Initial: time.Millisecond, Max: time.Hour, Multiplier: 1.5, Jitter: true},
		MaxInFlight: 7, MaxAckedAhead: 9, DeadLetterTopic: "dead", GapPolicy: api.GapSkip, Ordering: api.OrderingKey,
		FairShare: api.FairShare{Key: true, Header: "tenant"},
	}
}
