package metadata

import (
	"fmt"
	"runtime"
	"testing"
)

// idleState has n topics of one partition each, spread over tenants and segments, with one batch.
func idleState(tb testing.TB, topics, tenants, perSegment int) *State {
	s := NewState(0, 1)
	rev := int64(0)
	apply := func(cmds ...Command) []Result {
		rev++
		a, err := s.Apply(LogEntry{Revision: rev, Value: stEntry(tb, cmds...)})
		if err != nil {
			tb.Fatal(err)
		}
		return a.Results
	}
	c := &Commit{AppendTime: stEpoch}
	for i := 0; i < topics; i += perSegment {
		var create []Command
		for k := i; k < min(i+perSegment, topics); k++ {
			create = append(create, &CreateTopic{Tenant: fmt.Sprint("tenant-", k%tenants), Name: fmt.Sprintf("device-%08d", k), Config: stConfig(1), Now: stEpoch})
		}
		c.Batches = c.Batches[:0]
		for _, r := range apply(create...) {
			c.Batches = append(c.Batches, BatchDelta{TopicID: r.Topic.ID, Records: 1, Group: -1})
			c.Batches[len(c.Batches)-1].Ref.Len = 1000
		}
		c.Segment = SegmentRef{ID: stULID(stEpoch+int64(i), 1), Size: 8 << 20}
		apply(c)
	}
	return s
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// An idle partition costs a node under 400 bytes: its topic with its names, the partition, one live batch, and its share of the maps,
// of the segment table and of everything else in the state, whether it grew by commits or came from a snapshot.
func TestIdlePartitionMemory(t *testing.T) {
	const topics = 100_000
	for _, tenants := range []int{1, 10_000} {
		before := heapInUse()
		s := idleState(t, topics, tenants, 500)
		grown := float64(heapInUse()-before) / topics
		stored := s.MarshalSnapshot()
		s = nil
		before = heapInUse()
		s, err := UnmarshalSnapshot(stored)
		if err != nil {
			t.Fatal(err)
		}
		loaded := float64(heapInUse()-before) / topics
		runtime.KeepAlive(s)
		runtime.KeepAlive(stored)
		t.Logf("%d tenants: %.0f bytes an idle partition after commits, %.0f after a snapshot of %.1f bytes each", tenants, grown, loaded, float64(len(stored))/topics)
		if grown >= 400 || loaded >= 400 {
			t.Errorf("%d tenants: %.0f and %.0f bytes an idle partition, want under 400", tenants, grown, loaded)
		}
		if st := s.Stats(); st.Partitions != topics || st.IndexEntries != topics {
			t.Fatalf("%+v", st)
		}
	}
}
