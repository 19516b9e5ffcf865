package metadata

import (
	"testing"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/segment"
)

func TestTrim(t *testing.T) {
	w := newWorld(t)
	orders := w.topic("orders", stConfig(2))
	for range 4 {
		w.one(w.commit(nil, free(orders, 0, 5)))
	}
	trim := func(to int64) *Trim { return &Trim{TopicID: orders.ID, LogStart: to} }
	w.one(trim(7))
	if got := w.info(orders, 0); got.LogStart != 7 || got.Bytes != 260 || got.Head != 20 {
		t.Fatalf("%+v: logStart moves exactly, and of the batch that it is in three records of five count", got)
	}
	if len(w.last.Changed) != 1 || w.last.Changed[0] != (PartitionKey{orders.ID, 0}) {
		t.Fatalf("changed %v", w.last.Changed)
	}
	before := w.s.Hash()
	for _, to := range []int64{7, 3, -4} {
		w.one(trim(to))
		w.unchanged(before)
		before = w.s.Hash()
		if len(w.last.Changed) != 0 {
			t.Fatalf("changed %v", w.last.Changed)
		}
	}
	w.one(trim(1000))
	if got := w.info(orders, 0); got.LogStart != 20 || got.Head != 20 || got.Bytes != 0 {
		t.Fatalf("%+v: logStart is never above head", got)
	}
	if st := w.s.Stats(); st.IndexEntries != 0 || st.Segments != 0 {
		t.Fatalf("%+v", st)
	}
	wantBase(t, w.one(w.commit(nil, free(orders, 0, 1))).Batches[0], 20, false)
	w.one(&Trim{TopicID: orders.ID, Partition: 1, LogStart: 5}) // never written: nothing to move
	if got := w.info(orders, 1); got != (PartitionInfo{}) {
		t.Fatalf("%+v", got)
	}
	w.refused(&Trim{TopicID: orders.ID + 1}, api.CodeUnknownTopic)
	w.refused(&Trim{TopicID: orders.ID, Partition: 2}, api.CodeUnknownPartition)
}

func TestClaimsFence(t *testing.T) {
	w := newWorld(t)
	orders := w.topic("orders", stConfig(1))
	w.one(w.commit(nil, free(orders, 0, 9)))
	w.one(&Trim{TopicID: orders.ID, LogStart: 1, Claim: "compact/1", ClaimEpoch: 5})
	w.refused(&Trim{TopicID: orders.ID, LogStart: 2, Claim: "compact/1", ClaimEpoch: 4}, api.CodeConflict)
	w.refused(&Replace{TopicID: orders.ID, Claim: "compact/1", ClaimEpoch: 4}, api.CodeConflict)
	w.refused(&GCBoundary{Boundary: 5, Claim: "compact/1", ClaimEpoch: 4}, api.CodeConflict)
	w.one(&GCBoundary{Boundary: 5, Claim: "collect", ClaimEpoch: 1})
	w.one(&Trim{TopicID: orders.ID, LogStart: 2, Claim: "compact/1", ClaimEpoch: 5})
	w.one(&Trim{TopicID: orders.ID, LogStart: 3, Claim: "compact/1", ClaimEpoch: 6})
	w.refused(&Trim{TopicID: orders.ID, LogStart: 4, Claim: "compact/1", ClaimEpoch: 5}, api.CodeConflict)
	if got := w.info(orders, 0).LogStart; got != 3 {
		t.Fatalf("logStart %d", got)
	}
}

// removeAll names everything live within a range.
func (w *stWorld) removeAll(t *Topic, from, through int64) []ReplaceRef {
	w.t.Helper()
	entries, _, err := w.s.Locate(t.ID, 0, from, 1000)
	if err != nil {
		w.t.Fatal(err)
	}
	var out []ReplaceRef
	for _, e := range entries {
		if e.Base <= through {
			out = append(out, ReplaceRef{e.Segment.ID, e.Ref.Pos})
		}
	}
	return out
}

func (w *stWorld) merged(base, last int64, records int32, pos uint64) IndexEntry {
	s := w.segment()
	s.Level, s.Class = 1, "ttl=7d"
	return IndexEntry{Segment: s, Ref: segment.BatchRef{Pos: pos, Len: 50}, Base: base, Last: last, Records: records,
		AppendTime: w.now, FirstTime: stEpoch, Sparse: true}
}

func TestReplace(t *testing.T) {
	w := newWorld(t)
	orders := w.topic("orders", stConfig(1))
	for range 6 {
		w.one(w.commit(nil, free(orders, 0, 5)))
	}
	// 5..19 becomes one sparse batch of 9 records, with a hole from 5 to 6.
	add := w.merged(7, 19, 9, 1<<35)
	c := &Replace{TopicID: orders.ID, From: 5, Through: 19, Remove: w.removeAll(orders, 5, 19), Add: []IndexEntry{add}, Claim: "c", ClaimEpoch: 1}
	w.one(c)
	got, info, _ := w.s.Locate(orders.ID, 0, 5, 2)
	if len(got) != 2 || got[0].Base != 7 || got[0].Last != 19 || got[0].Records != 9 || !got[0].Sparse || got[0].Ref.Pos != 1<<35 ||
		got[0].Segment != add.Segment || got[0].FirstTime != stEpoch || got[1].Base != 20 {
		t.Fatalf("entries %+v", got)
	}
	if info.Bytes != 350 || info.Head != 30 || info.LogStart != 0 {
		t.Fatalf("%+v", info)
	}
	if st := w.s.Stats(); st.IndexEntries != 4 || st.Segments != 4 {
		t.Fatalf("%+v", st)
	}
	if u, ok := w.s.Segment(add.Segment.ID); !ok || u.Batches != 1 || u.SegmentRef != add.Segment {
		t.Fatalf("%+v, %v", u, ok)
	}
	if _, ok := w.s.Segment(c.Remove[0].Segment); ok {
		t.Fatal("a replaced segment is still in the table")
	}
	w.refused(c, api.CodeConflict) // the same again does not match any more

	// Everything goes: a hole up to the head.
	w.one(&Replace{TopicID: orders.ID, From: 0, Through: 29, Remove: w.removeAll(orders, 0, 29)})
	if got, info, _ := w.s.Locate(orders.ID, 0, 0, 2); len(got) != 0 || info.Head != 30 || info.Bytes != 0 {
		t.Fatalf("%v, %+v", got, info)
	}
	wantBase(t, w.one(w.commit(nil, free(orders, 0, 1))).Batches[0], 30, false)
}

// A segment in both lists keeps its place.
func TestReplaceWithinOneSegment(t *testing.T) {
	w := newWorld(t)
	orders := w.topic("orders", stConfig(1))
	w.one(w.commit(nil, free(orders, 0, 5)))
	e, _, _ := w.s.Locate(orders.ID, 0, 0, 1)
	add := e[0]
	add.Ref.Pos, add.Sparse, add.Records = 900, true, 2
	w.one(&Replace{TopicID: orders.ID, Through: 4, Remove: w.removeAll(orders, 0, 4), Add: []IndexEntry{add}})
	got, _, _ := w.s.Locate(orders.ID, 0, 0, 1)
	if len(got) != 1 || got[0].Segment != add.Segment || got[0].Ref.Pos != 900 {
		t.Fatalf("%+v", got)
	}
}

func TestReplaceRefuses(t *testing.T) {
	w := newWorld(t)
	orders := w.topic("orders", stConfig(2))
	for range 4 {
		w.one(w.commit(nil, free(orders, 0, 5)))
		w.tick(time.Second)
	}
	all := w.removeAll(orders, 0, 19)
	entry := func(change func(*IndexEntry)) []IndexEntry {
		e := w.merged(5, 14, 3, 32)
		e.AppendTime = stEpoch + 2000
		change(&e)
		return []IndexEntry{e}
	}
	ok := entry(func(*IndexEntry) {})
	w.one(&GCBoundary{Boundary: stEpoch - 1})
	for name, c := range map[string]*Replace{
		"one missing":       {From: 5, Through: 14, Remove: all[1:2], Add: ok},
		"one too many":      {From: 5, Through: 14, Remove: all[1:4], Add: ok},
		"another order":     {From: 5, Through: 14, Remove: []ReplaceRef{all[2], all[1]}, Add: ok},
		"another position":  {From: 5, Through: 14, Remove: []ReplaceRef{all[1], {all[2].Segment, 5}}, Add: ok},
		"a batch cut left":  {From: 6, Through: 14, Remove: all[1:3]},
		"a batch cut right": {From: 5, Through: 13, Remove: all[1:3]},
		"added before":      {From: 5, Through: 14, Remove: all[1:3], Add: entry(func(e *IndexEntry) { e.Base = 4 })},
		"added behind":      {From: 5, Through: 14, Remove: all[1:3], Add: entry(func(e *IndexEntry) { e.Last = 15 })},
		"added overlapping": {From: 5, Through: 14, Remove: all[1:3], Add: append(entry(func(*IndexEntry) {}), ok...)},
		"beyond the head":   {From: 5, Through: 100, Remove: all[1:4], Add: entry(func(e *IndexEntry) { e.Last = 20 })},
		"time falls":        {From: 5, Through: 14, Remove: all[1:3], Add: entry(func(e *IndexEntry) { e.AppendTime, e.FirstTime = stEpoch-1, stEpoch-1 })},
		"time rises":        {From: 5, Through: 14, Remove: all[1:3], Add: entry(func(e *IndexEntry) { e.AppendTime = stEpoch + 9999 })},
		"times reversed":    {From: 5, Through: 14, Remove: all[1:3], Add: entry(func(e *IndexEntry) { e.FirstTime = e.AppendTime + 1 })},
		"from nothing":      {From: 20, Through: 30, Add: ok},
		"untouched":         {Partition: 1, From: 5, Through: 14, Remove: all[1:3], Add: ok},
		"collected":         {From: 5, Through: 14, Remove: all[1:3], Add: entry(func(e *IndexEntry) { e.Segment.ID = stULID(stEpoch-2, 1) })},
	} {
		t.Run(name, func(t *testing.T) {
			c.TopicID = orders.ID
			w.refused(c, api.CodeConflict)
		})
	}
	w.refused(&Replace{TopicID: orders.ID + 1}, api.CodeUnknownTopic)
	w.refused(&Replace{TopicID: orders.ID, Partition: 2}, api.CodeUnknownPartition)
	w.one(&Replace{TopicID: orders.ID, From: 5, Through: 14, Remove: all[1:3], Add: ok})
}

// Retention may pass a batch's beginning before compaction replaces it: what would be wholly below logStart is left out.
func TestReplaceAroundLogStart(t *testing.T) {
	w := newWorld(t)
	orders := w.topic("orders", stConfig(1))
	w.one(w.commit(nil, free(orders, 0, 10)))
	w.one(&Trim{TopicID: orders.ID, LogStart: 5})
	w.one(&Replace{TopicID: orders.ID, Through: 9, Remove: w.removeAll(orders, 0, 9),
		Add: []IndexEntry{w.merged(0, 4, 2, 32), w.merged(5, 9, 2, 82)}})
	got, _, _ := w.s.Locate(orders.ID, 0, 0, 9)
	if len(got) != 1 || got[0].Base != 5 || w.s.Stats().Segments != 1 {
		t.Fatalf("%+v, %+v", got, w.s.Stats())
	}
	if _, err := UnmarshalSnapshot(w.s.MarshalSnapshot()); err != nil {
		t.Fatal(err)
	}
}
