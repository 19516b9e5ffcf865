package metadata_test

import (
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

// TestLogScan: a segment that several shards refer to is live while one of them does; the boundary is the lowest of all shards; commands of
// one transaction are judged one by one.
func TestLogScan(t *testing.T) {
	f := newFabric(t)
	n := f.open()
	topics := map[int]*metadata.Topic{}
	for i := 0; len(topics) < 2; i++ {
		tenant := string(rune('a' + i))
		shard := metadata.ShardOf(tenant, n.Shards())
		if topics[shard] == nil {
			topics[shard] = n.topic(t, tenant, "x", 2)
		}
	}
	var list []*metadata.Topic
	for _, topic := range topics {
		list = append(list, topic)
	}
	c := commitOf(batch{list[0], 0, 3}, batch{list[0], 1, 1}, batch{list[1], 0, 2})
	if _, err := await(t, n.SubmitCommit(c)); err != nil {
		t.Fatal(err)
	}
	if use, live := n.Segment(c.Segment.ID); !live || use.Batches != 3 {
		t.Errorf("segment: %+v, %v", use, live)
	}
	total := 0
	for shard := range n.Shards() {
		segs := n.Segments(shard, ulid.ULID{}, 10)
		if n.ShardStats(shard).Segments != len(segs) {
			t.Errorf("shard %d: %d segments, stats %+v", shard, len(segs), n.ShardStats(shard))
		}
		for _, s := range segs {
			total += s.Batches
		}
		found, _, done := n.ScanPartitions(shard, metadata.PartitionKey{}, 1000, func(*metadata.Topic, metadata.SegmentRef) bool { return true })
		if !done || (len(found) > 0) != (topics[shard] != nil) {
			t.Errorf("shard %d: %d partitions, done %v", shard, len(found), done)
		}
	}
	if total != 3 {
		t.Errorf("%d batches in all shards", total)
	}

	results, err := n.DoAll(t.Context(), []metadata.Command{
		&metadata.Trim{TopicID: list[0].ID, LogStart: 3},
		&metadata.Trim{TopicID: 1 << 40, LogStart: 3},
		&metadata.Replace{TopicID: list[1].ID, From: 0, Through: 1, Remove: []metadata.ReplaceRef{{Segment: ulid.ULID{1}, Pos: 1}}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []api.Code{"", api.CodeUnknownTopic, api.CodeConflict} {
		if got := api.CodeOf(results[i].Err); got != want && !(want == "" && results[i].Err == nil) {
			t.Errorf("command %d: %v, want %q", i, results[i].Err, want)
		}
	}
	if use, live := n.Segment(c.Segment.ID); !live || use.Batches != 2 {
		t.Errorf("after the trim: %+v, %v", use, live)
	}
	if _, err := n.DoAll(t.Context(), []metadata.Command{c}, nil); err == nil {
		t.Error("a commit was taken as a command")
	}
	if r, err := n.DoAll(t.Context(), nil, nil); err != nil || r != nil {
		t.Errorf("no command: %v, %v", r, err)
	}

	if b := n.GCBoundary(); b != 0 {
		t.Errorf("boundary %d", b)
	}
	at := time.Now().Add(-time.Hour).UnixMilli()
	if r, err := n.Do(t.Context(), &metadata.GCBoundary{Boundary: at}, nil); err != nil || r.Err != nil {
		t.Fatal(err, r.Err)
	}
	if b := n.GCBoundary(); b != at {
		t.Errorf("boundary %d, want %d", b, at)
	}
	// A Replace must not bring in what was written before the boundary and may have been collected.
	info := metadata.IndexEntry{Segment: metadata.SegmentRef{ID: ulid.MustNew(uint64(at-1), zeros{}), Level: 1, Class: "keep", Size: 500},
		Ref: segment.BatchRef{Pos: 48, Len: 90}, Base: 0, Last: 1, Records: 2, AppendTime: c.AppendTime, FirstTime: c.AppendTime, Sparse: true}
	old := &metadata.Replace{TopicID: list[1].ID, From: 0, Through: 1, Remove: []metadata.ReplaceRef{{Segment: c.Segment.ID, Pos: c.Batches[2].Ref.Pos}}, Add: []metadata.IndexEntry{info}}
	if r, err := n.Do(t.Context(), old, nil); err != nil || api.CodeOf(r.Err) != api.CodeConflict {
		t.Errorf("replace by a segment from before the boundary: %v, %v", r.Err, err)
	}
	fresh := *old
	info.Segment.ID = ulid.MustNew(uint64(at), zeros{})
	fresh.Add = []metadata.IndexEntry{info}
	if r, err := n.Do(t.Context(), &fresh, nil); err != nil || r.Err != nil {
		t.Errorf("replace by a segment from after it: %v, %v", r.Err, err)
	}
	if use, live := n.Segment(c.Segment.ID); !live || use.Batches != 1 {
		t.Errorf("after the replace: %+v, %v", use, live)
	}
	if r, err := n.Do(t.Context(), &metadata.Trim{TopicID: list[0].ID, Partition: 1, LogStart: 1}, nil); err != nil || r.Err != nil {
		t.Fatal(err, r.Err)
	}
	if _, live := n.Segment(c.Segment.ID); live {
		t.Error("the segment is live without a reference")
	}
}

// zeros gives zeros as entropy.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }
