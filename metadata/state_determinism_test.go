package metadata

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/segment"
)

// genCommand draws a command that is likely to do something to the state.
func genCommand(rt *rapid.T, w *stWorld) Command {
	tenants := rapid.SampledFrom([]string{"acme", "beta", "gamma"})
	names := rapid.SampledFrom([]string{"a", "b", "c", "d"})
	config := func() api.TopicConfig {
		c := stConfig(rapid.IntRange(1, 4).Draw(rt, "partitions"))
		c.DedupeWindow = rapid.SampledFrom([]time.Duration{0, time.Minute, 30 * time.Hour}).Draw(rt, "window")
		return c
	}
	var topics []*Topic
	for _, x := range w.s.order {
		topics = append(topics, w.s.public(x))
	}
	pick := func() *Topic {
		if len(topics) == 0 || rapid.IntRange(0, 30).Draw(rt, "ghost") == 0 {
			return &Topic{ID: 999, Tenant: "acme", Config: stConfig(1)}
		}
		return rapid.SampledFrom(topics).Draw(rt, "topic")
	}
	part := func(x *Topic) int32 { return int32(rapid.IntRange(0, x.Config.Partitions).Draw(rt, "partition")) % 5 }
	epoch := int64(rapid.IntRange(1, 3).Draw(rt, "claim epoch"))
	if rapid.IntRange(0, 5).Draw(rt, "subscription") == 0 {
		return genSubscription(rt, w, pick())
	}
	if rapid.IntRange(0, 9).Draw(rt, "consumer group") == 0 {
		return genConsumerGroup(rt, w)
	}
	switch k := rapid.IntRange(0, 19).Draw(rt, "kind"); {
	case k < 3:
		return &CreateTopic{Tenant: tenants.Draw(rt, "tenant"), Name: names.Draw(rt, "name"), Config: config(), Now: w.now}
	case k == 3:
		x := pick()
		return &UpdateTopic{TopicID: x.ID, Version: x.Version - int64(rapid.IntRange(0, 1).Draw(rt, "old")), Config: config()}
	case k == 4:
		return &DeleteTopic{TopicID: pick().ID}
	case k == 5:
		return &Trim{TopicID: pick().ID, Partition: part(pick()), LogStart: int64(rapid.IntRange(0, 60).Draw(rt, "to")), Claim: "t", ClaimEpoch: epoch}
	case k == 6:
		return &GCBoundary{Boundary: w.now - int64(rapid.IntRange(-1000, 100_000).Draw(rt, "age")), Claim: "g", ClaimEpoch: epoch}
	case k == 7:
		return &ProducerEpoch{Tenant: tenants.Draw(rt, "tenant"), ID: names.Draw(rt, "id"), Now: w.now, Nonce: names.Draw(rt, "nonce")}
	case k < 10:
		return genReplace(rt, w, pick(), epoch)
	}
	c := &Commit{Segment: w.segment(), AppendTime: w.now - int64(rapid.IntRange(0, 20).Draw(rt, "skew"))}
	if rapid.IntRange(0, 9).Draw(rt, "again") == 0 && len(w.s.applied.ids) > 0 {
		c.Segment.ID = rapid.SampledFrom(w.s.applied.ids).Draw(rt, "segment")
	}
	for range rapid.IntRange(0, 3).Draw(rt, "groups") {
		g := Group{Tenant: tenants.Draw(rt, "tenant")}
		if rapid.IntRange(0, 3).Draw(rt, "producer") > 0 {
			id := names.Draw(rt, "id")
			e, _ := w.s.ProducerEpoch(g.Tenant, id)
			g.Producer = &Producer{ID: id, Epoch: e, Sequence: int64(rapid.IntRange(0, 40).Draw(rt, "sequence"))}
			if rapid.IntRange(0, 3).Draw(rt, "fence only") == 0 {
				g.Producer.Sequence = NoSequence
				g.Producer.Epoch -= int64(rapid.IntRange(0, 1).Draw(rt, "old"))
			}
		}
		c.Groups = append(c.Groups, g)
	}
	pos := uint64(32)
	for range rapid.IntRange(1, 6).Draw(rt, "batches") {
		x := pick()
		b := BatchDelta{TopicID: x.ID, Partition: part(x), Records: int32(rapid.IntRange(1, 3).Draw(rt, "records")), Group: -1,
			Ref: segment.BatchRef{Pos: pos, Len: 60}}
		for g := range c.Groups {
			if c.Groups[g].Tenant == x.Tenant && rapid.Bool().Draw(rt, "grouped") {
				b.Group = int32(g)
			}
		}
		if b.Group >= 0 && rapid.Bool().Draw(rt, "hashed") {
			b.IDHashes = make([][16]byte, b.Records)
			for i := range b.IDHashes {
				b.IDHashes[i][0] = byte(rapid.IntRange(0, 12).Draw(rt, "hash"))
			}
		}
		pos += uint64(b.Ref.Len)
		c.Batches = append(c.Batches, b)
	}
	return c
}

// genSubscription draws a command about a subscription.
func genSubscription(rt *rapid.T, w *stWorld, x *Topic) Command {
	c := api.DefaultSubscriptionConfig()
	c.MaxAttempts = rapid.IntRange(1, 3).Draw(rt, "attempts")
	id, version := SubscriptionID(999), int64(0)
	if all := w.s.subs.order; len(all) > 0 && rapid.IntRange(0, 9).Draw(rt, "ghost") > 0 {
		s := rapid.SampledFrom(all).Draw(rt, "which")
		id, version = s.ID, s.Version-int64(rapid.IntRange(0, 1).Draw(rt, "old"))
	}
	switch rapid.IntRange(0, 4).Draw(rt, "kind of change") {
	case 0:
		return &UpdateSubscription{ID: id, Version: version, Config: c}
	case 1:
		return &DeleteSubscription{ID: id}
	}
	create := &CreateSubscription{TopicID: x.ID, Name: rapid.SampledFrom([]string{"v", "w", "x"}).Draw(rt, "name"), Config: c, Now: w.now}
	for p := range int32(x.Config.Partitions) {
		if rapid.Bool().Draw(rt, "start") {
			create.Starts = append(create.Starts, api.PartitionOffset{Partition: p, Offset: int64(rapid.IntRange(0, 30).Draw(rt, "at"))})
		}
	}
	return create
}

// genConsumerGroup draws a command about a consumer group.
func genConsumerGroup(rt *rapid.T, w *stWorld) Command {
	if all := w.s.groups.order; len(all) > 0 && rapid.IntRange(0, 2).Draw(rt, "delete") == 0 {
		return &DeleteGroup{ID: rapid.SampledFrom(all).Draw(rt, "which").ID + GroupID(rapid.IntRange(0, 9).Draw(rt, "ghost")/9*100)}
	}
	return &CreateGroup{Tenant: rapid.SampledFrom([]string{"acme", "beta", "delta"}).Draw(rt, "tenant"),
		Name: rapid.SampledFrom([]string{"v", "w", "x"}).Draw(rt, "name"), Now: w.now}
}

// genReplace merges some neighbours in one batch, or drops them.
func genReplace(rt *rapid.T, w *stWorld, x *Topic, epoch int64) Command {
	c := &Replace{TopicID: x.ID, Claim: "r", ClaimEpoch: epoch}
	t := w.s.topics[x.ID]
	if t == nil || len(t.parts) == 0 {
		return c
	}
	p := rapid.SampledFrom(t.parts).Draw(rt, "part")
	c.Partition = p.num
	if len(p.entries) == 0 {
		return c
	}
	i := rapid.IntRange(0, len(p.entries)-1).Draw(rt, "from")
	j := rapid.IntRange(i, min(i+3, len(p.entries)-1)).Draw(rt, "through")
	var records int32
	for k := i; k <= j; k++ {
		e := p.unpack(k, &w.s.segments)
		c.Remove = append(c.Remove, ReplaceRef{e.Segment.ID, e.Ref.Pos})
		records += e.Records - int32(len(e.Dropped))
	}
	c.From, c.Through = p.entries[i].base, p.last(j)
	if rapid.IntRange(0, 3).Draw(rt, "hole") > 0 {
		ref := w.segment()
		ref.Level, ref.Class = 1, rapid.SampledFrom([]string{"keep", "ttl=7d"}).Draw(rt, "class")
		c.Add = []IndexEntry{{Segment: ref, Ref: segment.BatchRef{Pos: 1 << uint(rapid.IntRange(5, 40).Draw(rt, "pos")), Len: 70}, Base: c.From, Last: c.Through,
			Records: records, AppendTime: p.entries[j].time, FirstTime: p.unpack(i, &w.s.segments).FirstTime, Sparse: true}}
	}
	return c
}

// checkInvariants holds what must be true of any state.
func checkInvariants(t testing.TB, s *State) {
	t.Helper()
	refs := map[uint32]uint32{}
	entries, touched, windows, subs := 0, 0, 0, 0
	for _, x := range s.order {
		for i, sub := range x.subscriptions {
			subs++
			k := s.searchSubscriptionID(sub.ID)
			if sub.TopicID != x.id || s.subs.byID[sub.ID] != sub || s.subs.order[k] != sub || i > 0 && x.subscriptions[i-1].Name >= sub.Name {
				t.Fatalf("%s: subscription %d is not in its places", x, sub.ID)
			}
			for _, start := range sub.Starts {
				if p := x.find(start.Partition); p == nil || start.Offset <= 0 || start.Offset > p.head {
					t.Fatalf("%s: subscription %d starts at %+v", x, sub.ID, start)
				}
			}
		}
		for _, p := range x.parts {
			touched++
			next, newest, bytes := p.logStart, int64(-1<<63), int64(0)
			for i := range p.entries {
				e := &p.entries[i]
				if i > 0 && e.base < next || p.last(i) < p.logStart || p.last(i) >= p.head || e.time < newest || e.time > p.lastAppend {
					t.Fatalf("%s partition %d: entry %d from %d to %d is out of order within %d to %d", x, p.num, i, e.base, p.last(i), p.logStart, p.head)
				}
				refs[e.seg]++
				next, newest, bytes = p.last(i)+1, e.time, bytes+int64(e.len)
			}
			entries += len(p.entries)
			if bytes != p.bytes {
				t.Fatalf("%s partition %d: %d bytes, counted %d", x, p.num, p.bytes, bytes)
			}
			if p.more != nil {
				windows += p.more.windows.list.n
			}
		}
	}
	groups := 0
	for name, tn := range s.tenants {
		if tn.empty() {
			t.Fatalf("tenant %s is kept for nothing", name)
		}
		for i, g := range tn.groups {
			groups++
			if g.Tenant != name || s.groups.byID[g.ID] != g || s.groups.order[s.searchGroupID(g.ID)] != g || i > 0 && tn.groups[i-1].Name >= g.Name {
				t.Fatalf("group %d is not in its places", g.ID)
			}
		}
	}
	for k, p := range s.producers {
		if p.epoch == 0 && p.windows == 0 {
			t.Fatalf("producer %s is kept for nothing", k.id)
		}
	}
	for i := range s.segments.infos {
		if got := s.segments.infos[i].refs; got != refs[uint32(i)] {
			t.Fatalf("segment %s: %d references, counted %d", s.segments.infos[i].id, got, refs[uint32(i)])
		}
	}
	if st := s.Stats(); st.IndexEntries != entries || st.Partitions != touched || st.Segments != len(refs) || st.Windows != windows || st.Topics != len(s.order) ||
		st.Subscriptions != subs || len(s.subs.byID) != subs || st.Groups != groups || len(s.groups.byID) != groups {
		t.Fatalf("%+v, counted %d entries, %d partitions, %d segments, %d windows", st, entries, touched, len(refs), windows)
	}
}

// Two nodes that apply the same entries agree after each; so does one that loads a snapshot from anywhere and applies the rest.
func TestStatesAgree(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		other := NewState(0, 1)
		steps := rapid.IntRange(1, 60).Draw(rt, "steps")
		at := rapid.IntRange(0, steps-1).Draw(rt, "snapshot")
		var late *State
		for i := range steps {
			w.now += int64(rapid.SampledFrom([]int{0, 1, 10, 70_000, 100 * 3600 * 1000}).Draw(rt, "pause"))
			var cmds []Command
			for range rapid.IntRange(1, 3).Draw(rt, "commands") {
				cmds = append(cmds, genCommand(rt, w))
			}
			results := w.apply(cmds...)
			e := w.log[len(w.log)-1]
			a, err := other.Apply(e)
			if err != nil || !reflect.DeepEqual(a, w.last) {
				rt.Fatalf("entry %d: %+v and %+v: %v", i, a, w.last, err)
			}
			hash := w.s.Hash()
			if other.Hash() != hash {
				rt.Fatalf("entry %d: the states differ", i)
			}
			checkInvariants(t, w.s)
			if late != nil {
				a, err := late.Apply(e)
				if err != nil || !reflect.DeepEqual(a.Changed, w.last.Changed) || !reflect.DeepEqual(a.Subscriptions, w.last.Subscriptions) || len(a.Results) != len(results) {
					rt.Fatalf("entry %d after a snapshot: %+v, want %+v: %v", i, a, w.last, err)
				}
				for k := range results {
					if late := a.Results[k]; late.Err != ErrAlreadyApplied && !reflect.DeepEqual(late, results[k]) {
						rt.Fatalf("entry %d, command %d after a snapshot: %+v, want %+v", i, k, late, results[k])
					}
				}
				if late.Hash() != hash {
					rt.Fatalf("entry %d: the state from a snapshot at %d differs", i, at)
				}
			}
			if i == at {
				if late, err = UnmarshalSnapshot(w.s.MarshalSnapshot()); err != nil {
					rt.Fatal(err)
				}
				// Entries that the snapshot contains are skipped.
				for _, e := range w.log {
					if a, err := late.Apply(e); err != nil || a.Results != nil || a.Changed != nil {
						rt.Fatalf("entry %d again: %+v, %v", e.Revision, a, err)
					}
				}
			}
		}
		if !bytes.Equal(late.MarshalSnapshot(), w.s.MarshalSnapshot()) {
			rt.Fatal("equal states are stored differently")
		}
		for _, x := range slices.Clone(w.s.order) {
			w.one(&DeleteTopic{TopicID: x.id})
		}
		for _, g := range slices.Clone(w.s.groups.order) {
			w.one(&DeleteGroup{ID: g.ID})
		}
		checkInvariants(t, w.s)
		if st := w.s.Stats(); st.Groups != 0 || len(w.s.groups.byID) != 0 || st.Partitions != 0 || st.IndexEntries != 0 || st.Segments != 0 || st.Windows != 0 || st.Subscriptions != 0 || len(w.s.subs.byID) != 0 || w.s.dedupes.n != 0 || len(w.s.configs) != 0 {
			rt.Fatalf("%+v is left after all topics were deleted", st)
		}
	})
}

func TestApplyRefusesForeignEntries(t *testing.T) {
	s := NewState(1, 4)
	for name, e := range map[string]LogEntry{
		"of another shard": {Revision: 1, Shard: 2, Value: stEntry(t)},
		"not commands":     {Revision: 1, Shard: 1, Value: []byte("no commands")},
		"empty":            {Revision: 1, Shard: 1},
	} {
		if _, err := s.Apply(e); err == nil || s.Revision() != 0 {
			t.Errorf("an entry %s: %v, revision %d", name, err, s.Revision())
		}
	}
	if got := fmt.Sprint(ShardOf("acme", 16), ShardOf("", 16), ShardOf("beta", 7)); got != "15 5 5" {
		t.Errorf("shards %s: the function is part of the stored format", got)
	}
}
