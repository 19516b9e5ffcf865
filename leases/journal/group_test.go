package journal

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/metadata"
)

// fenced is a memLog with the fence of one producer.
type fenced struct {
	*memLog
	epoch atomic.Int64
}

func (f *fenced) AppendFenced(ctx context.Context, tenant, topic string, p metadata.Producer, records []Record) ([]int64, error) {
	if p.Sequence != metadata.NoSequence || !strings.HasPrefix(p.ID, "__group.") {
		return nil, api.Errorf(api.CodeInternal, "not a fence: %+v", p)
	}
	if p.Epoch < f.epoch.Load() {
		return nil, api.Errorf(api.CodeProducerFenced, "epoch %d", p.Epoch)
	}
	return f.Append(ctx, tenant, topic, records)
}

func groupState() *GroupState {
	return &GroupState{Generation: 7,
		Members: []GroupMember{
			{ID: "a", Instance: "i1", Topics: []string{"t", "u"}, Session: 10_000},
			{ID: "b", Topics: []string{"t"}, Session: 1000, Earliest: true, Absent: true},
			{ID: "c", Topics: []string{"t"}, Session: 1000},
		},
		Topics: []GroupTopic{
			{ID: 3, Name: "t", Slots: []GroupSlot{{Owner: "a", Target: "b", Since: 6}, {Owner: "b", Target: "b"}, {Target: ""}}},
			{ID: 1 << 63, Name: "u", Slots: []GroupSlot{}},
		},
	}
}

func TestGroupRoundTrip(t *testing.T) {
	log := &fenced{memLog: newMemLog()}
	j, err := New(Options{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	g := NewGroups(j, log)
	ctx := t.Context()
	const id = metadata.GroupID(5)
	l, err := g.Load(ctx, "acme", id)
	if err != nil || l.State != nil || len(l.Offsets) != 0 {
		t.Fatal(l, err)
	}
	want := groupState()
	one := GroupOffset{GroupPartition: GroupPartition{3, 1}, Offset: 42, Metadata: "m", Generation: 7, Time: 9}
	two := GroupOffset{GroupPartition: GroupPartition{3, 0}, Offset: 0, Generation: 7}
	if err := g.Write(ctx, "acme", id, 7, GroupWrite{State: want, Offsets: []GroupOffset{one, two}}); err != nil {
		t.Fatal(err)
	}
	// A subscription of the same number is somebody else.
	if _, err := j.Write(ctx, "acme", []Entry{{Key: ShardKey{Subscription: metadata.SubscriptionID(id)}, Shard: &Shard{Frontier: 3}, Open: true}}); err != nil {
		t.Fatal(err)
	}
	l, err = g.Load(ctx, "acme", id)
	if err != nil || !reflect.DeepEqual(l.State, want) || l.Offsets[one.GroupPartition] != one || l.Offsets[two.GroupPartition] != two {
		t.Fatalf("%+v %+v %v", l.State, l.Offsets, err)
	}
	log.epoch.Store(8)
	err = g.Write(ctx, "acme", id, 7, GroupWrite{Offsets: []GroupOffset{{GroupPartition: one.GroupPartition, Offset: 43}}})
	if api.CodeOf(err) != api.CodeProducerFenced {
		t.Fatal(err)
	}
	if err := g.Write(ctx, "acme", id, 8, GroupWrite{Remove: []GroupPartition{two.GroupPartition}}); err != nil {
		t.Fatal(err)
	}
	l, err = g.Load(ctx, "acme", id)
	if err != nil || len(l.Offsets) != 1 || l.Offsets[one.GroupPartition] != one {
		t.Fatalf("%+v %v", l.Offsets, err)
	}
	if err := j.DropSubscription(ctx, "acme", metadata.SubscriptionID(id)); err != nil {
		t.Fatal(err)
	}
	if l, err = g.Load(ctx, "acme", id); err != nil || l.State == nil {
		t.Fatalf("the end of a subscription took a group along: %v", err)
	}
	if err := g.Drop(ctx, "acme", id, 8); err != nil {
		t.Fatal(err)
	}
	if l, err = g.Load(ctx, "acme", id); err != nil || l.State != nil || len(l.Offsets) != 0 {
		t.Fatalf("%+v %v", l, err)
	}
}

// A write larger than one append is cut, and the state comes last.
func TestGroupLargeWrite(t *testing.T) {
	log := &fenced{memLog: newMemLog()}
	var appends int
	var last []byte
	log.afterAppend = func(records []Record, _ []int64) error {
		appends++
		last = records[len(records)-1].Key
		return nil
	}
	j, err := New(Options{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	g := NewGroups(j, log)
	w := GroupWrite{State: &GroupState{Generation: 1}}
	for p := range 3000 {
		w.Offsets = append(w.Offsets, GroupOffset{GroupPartition: GroupPartition{1, int32(p)}, Metadata: strings.Repeat("x", 4096)})
	}
	if err := g.Write(t.Context(), "acme", 1, 1, w); err != nil {
		t.Fatal(err)
	}
	if k, err := decodeGroupKey(last); appends < 3 || err != nil || k.kind != kindGeneration {
		t.Fatal(appends, k, err)
	}
	l, err := g.Load(t.Context(), "acme", 1)
	if err != nil || len(l.Offsets) != 3000 || l.State == nil {
		t.Fatal(err)
	}
}

func TestGroupStateRefused(t *testing.T) {
	for name, change := range map[string]func(*GroupState){
		"order":    func(s *GroupState) { s.Members[0].ID = "d" },
		"no ID":    func(s *GroupState) { s.Members[0].ID = "" },
		"stranger": func(s *GroupState) { s.Topics[0].Slots[0].Owner = "x" },
		"negative": func(s *GroupState) { s.Generation = -1 },
	} {
		s := groupState()
		change(s)
		if _, err := s.Encode(); err == nil {
			t.Errorf("%s: encoded", name)
		}
	}
}

// TestGroupStateWritesTopicsOnce: members that read the same cost no more than their IDs, and the first has nobody to be the same as.
func TestGroupStateWritesTopicsOnce(t *testing.T) {
	one := &GroupState{Generation: 1, Members: []GroupMember{{ID: "a", Topics: []string{"topic"}}}}
	value, err := one.Encode()
	if err != nil {
		t.Fatal(err)
	}
	two := one.Clone()
	two.Members = append(two.Members, GroupMember{ID: "b", Topics: []string{"topic"}})
	both, err := two.Encode()
	if err != nil || len(both)-len(value) != 5 {
		t.Fatalf("%d bytes after %d, %v", len(both), len(value), err)
	}
	if s, err := DecodeGroupState(both); err != nil || !reflect.DeepEqual(s, two) {
		t.Fatal(s, err)
	}
	at := slices.Index(value, 'a') - 2 // the member's flags
	value[at] |= flagSameTopics
	if _, err := DecodeGroupState(value); err == nil {
		t.Error("the first member has the topics of nobody")
	}
}

func TestGroupStateIsCloned(t *testing.T) {
	s := groupState()
	c := s.Clone()
	c.Members[0].ID, c.Topics[0].Slots[0].Owner, c.Topics[1].Name = "x", "y", "z"
	if !reflect.DeepEqual(s, groupState()) {
		t.Fatal("a change of the copy reached the original")
	}
}

func FuzzGroupState(f *testing.F) {
	b, err := groupState().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	for i := range b {
		f.Add(b[:i])
		c := append([]byte{}, b...)
		c[i] ^= 0x41
		f.Add(c)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := DecodeGroupState(b)
		if err != nil {
			return
		}
		again, err := s.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if s2, err := DecodeGroupState(again); err != nil || !reflect.DeepEqual(s, s2) {
			t.Fatalf("%+v %+v %v", s, s2, err)
		}
	})
}

func FuzzGroupKeyAndOffset(f *testing.F) {
	k := groupKey{kind: kindOffset, group: 5, GroupPartition: GroupPartition{3, 1}}
	o := GroupOffset{Offset: 42, Metadata: "m", Generation: 7, Time: 9}
	f.Add(k.encode(), o.encode())
	k = groupKey{kind: kindGeneration, group: 5}
	f.Add(k.encode(), o.encode()[:3])
	f.Fuzz(func(t *testing.T, key, value []byte) {
		if k, err := decodeGroupKey(key); err == nil && string(k.encode()) != string(key) {
			t.Fatalf("%x became %x", key, k.encode())
		}
		if o, err := decodeGroupOffset(value); err == nil {
			if o2, err := decodeGroupOffset(o.encode()); err != nil || o != o2 {
				t.Fatalf("%+v %+v %v", o, o2, err)
			}
		}
	})
}
