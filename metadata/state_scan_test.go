package metadata

import (
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/segment"
)

// scanState makes a state with topics of partitions, each with the batches given, and segments of known levels.
func scanState(t *testing.T) *State {
	t.Helper()
	s := NewState(ShardOf("t", 1), 1)
	apply := func(rev int64, cmds ...Command) {
		t.Helper()
		value, err := AppendCommands(nil, cmds)
		if err != nil {
			t.Fatal(err)
		}
		a, err := s.Apply(LogEntry{Revision: rev, Value: value})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range a.Results {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
	}
	config := api.DefaultTopicConfig()
	config.Partitions = 4
	apply(1, &CreateTopic{Tenant: "t", Name: "a", Config: config}, &CreateTopic{Tenant: "t", Name: "b", Config: config}, &CreateTopic{Tenant: "t", Name: "idle", Config: config})
	rev := int64(2)
	for seg := range 3 {
		c := &Commit{Segment: SegmentRef{ID: ulid.ULID{5: 1, 15: byte(seg + 1)}, Size: 1000}, AppendTime: 1000 + int64(seg)}
		for _, topic := range []TopicID{1, 2} {
			for p := range int32(3) {
				if seg == 1 && p == 1 {
					continue
				}
				c.Batches = append(c.Batches, BatchDelta{TopicID: topic, Partition: p, Records: 2, Ref: segment.BatchRef{Pos: 100, Len: 80}, RawBytes: 80, Group: -1})
			}
		}
		apply(rev, c)
		rev++
	}
	// The second segment becomes a run in partition 0 of topic 1.
	apply(rev, &Replace{TopicID: 1, From: 2, Through: 3, Remove: []ReplaceRef{{Segment: ulid.ULID{5: 1, 15: 2}, Pos: 100}}, Add: []IndexEntry{{
		Segment: SegmentRef{ID: ulid.ULID{5: 1, 15: 9}, Level: 1, Class: "keep", Size: 500}, Ref: segment.BatchRef{Pos: 48, Len: 90}, Base: 2, Last: 3,
		Records: 2, AppendTime: 1001, FirstTime: 1001, Sparse: true,
	}}})
	return s
}

// TestScan: what is wanted comes in order, with its place among the batches of the partition; budgets of any size give the same in the end.
func TestScan(t *testing.T) {
	s := scanState(t)
	for budget := 1; budget < 40; budget++ {
		var found []PartitionScan
		var after PartitionKey
		steps := 0
		for done := false; !done; steps++ {
			var some []PartitionScan
			some, after, done = s.Scan(after, budget, func(topic *Topic, ref SegmentRef) bool { return ref.Level == 0 && ref.ID[15] != 1 })
			found = append(found, some...)
			if steps > 100 {
				t.Fatal("no end")
			}
		}
		if budget < 4 && steps < 6 {
			t.Errorf("budget %d: %d steps", budget, steps)
		}
		if len(found) != 6 {
			t.Fatalf("budget %d: %d partitions", budget, len(found))
		}
		for i, x := range found {
			if x.Topic.ID != TopicID(1+i/3) || x.Partition != int32(i%3) {
				t.Errorf("partition %d is %d of topic %d", i, x.Partition, x.Topic.ID)
			}
			want, live := []int{1, 2}, 3
			switch {
			case x.Partition == 1:
				want, live = []int{1}, 2
			case i == 0:
				want = []int{2} // the second is a run
			}
			if len(x.Ordinals) != len(want) || x.Live != live || len(x.Entries) != len(want) {
				t.Fatalf("partition %d: ordinals %v of %d, want %v of %d", i, x.Ordinals, x.Live, want, live)
			}
			for j := range want {
				if x.Ordinals[j] != want[j] || x.Entries[j].Segment.Level != 0 {
					t.Errorf("partition %d: ordinals %v, want %v", i, x.Ordinals, want)
				}
			}
			if info, err := s.Partition(x.Topic.ID, x.Partition); err != nil || info != x.Info {
				t.Errorf("partition %d: %+v, %v", i, x.Info, err)
			}
		}
	}
}

// TestPlanTrimRuns: a batch goes by size only when what remains without it is enough. Of a dense one, records go that are not needed.
func TestPlanTrimRuns(t *testing.T) {
	for _, tc := range []struct {
		name   string
		sparse bool
		bound  int64
		want   int64 // logStart
	}{
		{"a dense batch goes when enough is left", false, 150, 2},
		{"half of a dense batch goes", false, 120, 3},
		{"one record stays", false, 1, 5},
		{"a little too much stays", false, 237, 0},
		{"a run stays when too little would be left", true, 230, 0},
		{"a run goes when enough is left", true, 160, 2},
	} {
		s := NewState(0, 1)
		p := &partition{head: 6}
		for i := range int64(3) {
			e := IndexEntry{Segment: SegmentRef{ID: ulid.ULID{15: byte(i + 1)}, Level: 1, Class: "keep", Size: 500}, Ref: segment.BatchRef{Len: 80}, Base: 2 * i, Last: 2*i + 1,
				Records: 2, AppendTime: 5, FirstTime: 5, Sparse: tc.sparse}
			p.append(e, s.segments.put(e.Segment))
		}
		got := p.retain(&topicConfig{TopicConfig: api.TopicConfig{Cleanup: api.CleanupDelete, RetentionBytes: tc.bound}}, 10)
		if got != tc.want {
			t.Errorf("%s: logStart %d, want %d", tc.name, got, tc.want)
		}
	}
}
