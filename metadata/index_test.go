package metadata

import (
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"pgregory.net/rapid"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/segment"
)

func TestLocate(t *testing.T) {
	w := newWorld(t)
	orders := w.topic("orders", stConfig(2))
	for range 10 {
		w.one(w.commit(nil, free(orders, 0, 5)))
		w.tick(time.Second)
	}
	// A hole from 20 to 24, as compaction leaves it.
	e, _, _ := w.s.Locate(orders.ID, 0, 20, 1)
	w.one(&Replace{TopicID: orders.ID, From: 20, Through: 24, Remove: []ReplaceRef{{e[0].Segment.ID, e[0].Ref.Pos}}})
	for _, c := range []struct {
		offset int64
		limit  int
		bases  []int64
	}{
		{0, 2, []int64{0, 5}}, {4, 1, []int64{0}}, {5, 1, []int64{5}}, {19, 2, []int64{15, 25}}, {20, 2, []int64{25, 30}}, {24, 1, []int64{25}},
		{49, 5, []int64{45}}, {50, 5, nil}, {1 << 40, 5, nil}, {-1, 1, []int64{0}}, {0, 0, nil},
	} {
		got, info, err := w.s.Locate(orders.ID, 0, c.offset, c.limit)
		if err != nil || info.Head != 50 || len(got) != len(c.bases) {
			t.Fatalf("locate %d: %d entries, %+v, %v", c.offset, len(got), info, err)
		}
		for i := range got {
			if got[i].Base != c.bases[i] {
				t.Errorf("locate %d: entry %d begins at %d, want %d", c.offset, i, got[i].Base, c.bases[i])
			}
		}
	}
	for _, c := range []struct {
		ms   int64
		base int64
	}{{0, 0}, {stEpoch, 0}, {stEpoch + 1, 5}, {stEpoch + 1000, 5}, {stEpoch + 3001, 25}, {stEpoch + 9000, 45}, {stEpoch + 9001, -1}} {
		e, found, err := w.s.LocateTime(orders.ID, 0, c.ms)
		if err != nil || found != (c.base >= 0) || found && e.Base != c.base {
			t.Errorf("time %d: %+v, %v, %v", c.ms-stEpoch, e, found, err)
		}
	}
	if got, info, err := w.s.Locate(orders.ID, 1, 0, 9); err != nil || got != nil || info != (PartitionInfo{}) {
		t.Fatalf("untouched partition: %v, %+v, %v", got, info, err)
	}
	if _, found, err := w.s.LocateTime(orders.ID, 1, 0); err != nil || found {
		t.Fatalf("untouched partition: %v, %v", found, err)
	}
	_, _, err := w.s.Locate(orders.ID+1, 0, 0, 9)
	wantCode(t, err, api.CodeUnknownTopic)
	_, _, err = w.s.LocateTime(orders.ID, 2, 0)
	wantCode(t, err, api.CodeUnknownPartition)
}

// What Locate returns is a copy: changing it changes nothing.
func TestLocateCopies(t *testing.T) {
	w := newWorld(t)
	events := dedupeTopic(w, time.Minute)
	w.sendIDs(withIDs(events, 0, 1))
	w.sendIDs(withIDs(events, 0, 1, 2))
	before := w.s.Hash()
	e, _, _ := w.s.Locate(events.ID, 0, 1, 1)
	e[0].Dropped[0] = 7
	if w.s.Hash() != before {
		t.Fatal("the state changed")
	}
}

// The segment table against a plain map: references, listing, tombstones.
func TestSegmentTableAgainstAMap(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := NewState(0, 1)
		model := map[ulid.ULID]int{}
		steps := rapid.SliceOfN(rapid.IntRange(0, 200), 1, 600).Draw(rt, "steps")
		for i, n := range steps {
			id := stULID(int64(n%150), uint64(n%7))
			if i%3 != 2 || model[id] == 0 {
				idx := s.segments.put(SegmentRef{ID: id, Size: int64(n % 150), Class: "keep"})
				s.segments.ref(idx)
				model[id]++
				continue
			}
			idx, ok := s.segments.find(id)
			if !ok {
				rt.Fatalf("segment %s with %d references is not found", id, model[id])
			}
			s.segments.unref(idx)
			if model[id]--; model[id] == 0 {
				delete(model, id)
			}
		}
		if s.segments.live() != len(model) {
			rt.Fatalf("%d live segments, want %d", s.segments.live(), len(model))
		}
		seen := 0
		for after := (ulid.ULID{}); ; {
			page := s.Segments(after, 3)
			for _, u := range page {
				if u.ID.Compare(after) <= 0 && seen > 0 || model[u.ID] != u.Batches || u.Size != int64(u.ID.Time()) || u.Class != "keep" {
					rt.Fatalf("listed %+v after %s, want %d batches", u, after, model[u.ID])
				}
				after = u.ID
				seen++
			}
			if len(page) < 3 {
				break
			}
		}
		// The nil ULID cannot be listed after itself; nothing ever names a segment so.
		if _, ok := model[ulid.ULID{}]; ok {
			seen++
		}
		if seen != len(model) {
			rt.Fatalf("%d segments listed, want %d", seen, len(model))
		}
	})
}

// TestLiveBytes: the share of a batch that logStart leaves, and the offset that leaves a number of bytes, agree, up to the largest spans.
func TestLiveBytes(t *testing.T) {
	for _, tc := range []struct {
		base, last, start int64
		length            uint32
		want              int64
	}{
		{10, 19, 0, 1000, 1000}, {10, 19, 10, 1000, 1000}, {10, 19, 11, 1000, 900}, {10, 19, 19, 1000, 100}, {10, 19, 20, 1000, 0}, {10, 19, 99, 1000, 0},
		{10, 12, 11, 100, 67}, {0, 1<<62 - 1, 1 << 61, 1<<32 - 1, 1 << 31}, {0, 1<<62 - 1, 1<<62 - 1, 1<<32 - 1, 1},
	} {
		e := IndexEntry{Base: tc.base, Last: tc.last, Ref: segment.BatchRef{Len: tc.length}}
		got := e.LiveBytes(tc.start)
		if got != tc.want {
			t.Errorf("%+v: %d bytes", tc, got)
		}
		if got == 0 {
			continue
		}
		from := e.keepBytes(got)
		if from < tc.base || from > tc.last || e.LiveBytes(from) < got {
			t.Errorf("%+v: %d bytes from offset %d", tc, e.LiveBytes(from), from)
		}
		if from < tc.last && tc.last-tc.base < 1<<20 && e.LiveBytes(from+1) > got {
			t.Errorf("%+v: offset %d would do, %d was given", tc, from+1, from)
		}
	}
}
