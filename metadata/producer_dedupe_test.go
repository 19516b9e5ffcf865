package metadata

import (
	"reflect"
	"testing"
	"time"
)

func hashes(ids ...byte) [][16]byte {
	out := make([][16]byte, len(ids))
	for i, id := range ids {
		if id != 0 {
			out[i] = idHash{15: id}
		}
	}
	return out
}

func dedupeTopic(w *stWorld, window time.Duration) *Topic {
	c := stConfig(2)
	c.DedupeWindow = window
	return w.topic("events", c)
}

func withIDs(t *Topic, partition int32, ids ...byte) BatchDelta {
	b := free(t, partition, int32(len(ids)))
	b.Group, b.IDHashes = 0, hashes(ids...)
	return b
}

func (w *stWorld) sendIDs(batches ...BatchDelta) []BatchResult {
	w.t.Helper()
	return w.one(w.commit([]Group{{Tenant: "acme"}}, batches...)).Batches
}

func TestEventIDsAreDroppedWithinTheWindow(t *testing.T) {
	w := newWorld(t)
	events := dedupeTopic(w, time.Minute)
	r := w.sendIDs(withIDs(events, 0, 1, 2, 0, 3))
	wantBase(t, r[0], 0, false)
	if r[0].Offsets != nil {
		t.Fatalf("offsets %v for a batch without duplicates", r[0].Offsets)
	}
	// 2 is known, 4 comes twice, records without ID are never duplicates.
	r = w.sendIDs(withIDs(events, 0, 2, 4, 0, 4, 5))
	wantBase(t, r[0], 1, false)
	if want := []int64{1, 4, 5, 4, 6}; !reflect.DeepEqual(r[0].Offsets, want) {
		t.Fatalf("offsets %v, want %v", r[0].Offsets, want)
	}
	entries, info, _ := w.s.Locate(events.ID, 0, 4, 10)
	if len(entries) != 1 || entries[0].Base != 4 || entries[0].Last != 6 || entries[0].Records != 5 || info.Head != 7 ||
		!reflect.DeepEqual(entries[0].Dropped, []int32{0, 3}) {
		t.Fatalf("entries %+v, %+v", entries, info)
	}
	// Another partition knows nothing of it.
	wantBase(t, w.sendIDs(withIDs(events, 1, 2))[0], 0, false)
	// All records known: nothing is stored.
	before := w.s.Stats().IndexEntries
	r = w.sendIDs(withIDs(events, 0, 5, 1))
	if r[0].Err != nil || !r[0].Duplicate || r[0].Base != 6 || !reflect.DeepEqual(r[0].Offsets, []int64{6, 0}) {
		t.Fatalf("%+v", r[0])
	}
	if len(w.last.Changed) != 0 || w.s.Stats().IndexEntries != before || w.info(events, 0).Head != 7 {
		t.Fatal("a batch of duplicates was stored")
	}
}

func TestEventIDsExpireByAppendTime(t *testing.T) {
	w := newWorld(t)
	events := dedupeTopic(w, time.Minute)
	w.sendIDs(withIDs(events, 0, 1))
	w.tick(time.Minute)
	if r := w.sendIDs(withIDs(events, 0, 1)); !r[0].Duplicate {
		t.Fatalf("at the end of the window: %+v", r[0])
	}
	w.tick(time.Millisecond)
	wantBase(t, w.sendIDs(withIDs(events, 0, 1))[0], 1, false)
	if r := w.sendIDs(withIDs(events, 0, 1)); !r[0].Duplicate || r[0].Base != 1 {
		t.Fatalf("after the second acceptance: %+v", r[0])
	}
	// What expired is given back, also in a partition that nobody writes any more.
	w.sendIDs(withIDs(events, 1, 7))
	w.tick(25 * time.Hour)
	w.one(w.commit(nil, free(events, 0, 1)))
	w.one(w.commit(nil, free(events, 0, 1)))
	if n := w.s.dedupes.n; n != 0 {
		t.Fatalf("%d partitions remember event IDs", n)
	}
}

// An exact retry by sequence of a batch that had lost records gives their offsets again, even when the event IDs are forgotten.
func TestRetryOfABatchWithDroppedRecords(t *testing.T) {
	w := newWorld(t)
	events := dedupeTopic(w, time.Minute)
	w.sendIDs(withIDs(events, 0, 1, 2, 3))
	w.sendIDs(withIDs(events, 0, 9))
	first := w.send("p", 0, 1, withIDs(events, 0, 4, 2, 3, 5, 1))[0]
	if want := []int64{4, 1, 2, 5, 0}; !reflect.DeepEqual(first.Offsets, want) {
		t.Fatalf("offsets %v, want %v", first.Offsets, want)
	}
	whole := w.send("p", 0, 2, withIDs(events, 0, 4, 5))[0]
	if !whole.Duplicate || !reflect.DeepEqual(whole.Offsets, []int64{4, 5}) {
		t.Fatalf("%+v", whole)
	}
	w.tick(time.Hour)
	loaded, err := UnmarshalSnapshot(w.s.MarshalSnapshot())
	if err != nil {
		t.Fatal(err)
	}
	w.s = loaded
	again := w.send("p", 0, 1, withIDs(events, 0, 4, 2, 3, 5, 1))[0]
	if !again.Duplicate || !reflect.DeepEqual(again.Offsets, first.Offsets) || again.AppendTime != first.AppendTime {
		t.Fatalf("%+v, want %+v", again, first)
	}
	again = w.send("p", 0, 2, withIDs(events, 0, 4, 5))[0]
	if !again.Duplicate || !reflect.DeepEqual(again.Offsets, whole.Offsets) {
		t.Fatalf("%+v, want %+v", again, whole)
	}
}

func TestEventIDsAreIgnoredWithoutAWindow(t *testing.T) {
	w := newWorld(t)
	events := dedupeTopic(w, time.Minute)
	w.sendIDs(withIDs(events, 0, 1))
	c := events.Config
	c.DedupeWindow = 0
	events = w.one(&UpdateTopic{TopicID: events.ID, Version: events.Version, Config: c}).Topic
	if n := w.s.dedupes.n; n != 0 {
		t.Fatalf("%d partitions remember event IDs", n)
	}
	wantBase(t, w.sendIDs(withIDs(events, 0, 1, 1))[0], 1, false)
}

func TestEventIDsAreBounded(t *testing.T) {
	d := &dedupe{byHash: map[idHash]uint64{}}
	for i := range maxDedupeIDs + 5 {
		d.add(idHash{0: byte(i), 1: byte(i >> 8), 2: byte(i >> 16)}, int64(i), 7)
	}
	d.sweep(7, 0)
	if len(d.queue) != maxDedupeIDs || len(d.byHash) != maxDedupeIDs {
		t.Fatalf("%d items, %d hashes", len(d.queue), len(d.byHash))
	}
	if _, ok := d.known(idHash{0: 4}, 0); ok {
		t.Fatal("the oldest is remembered")
	}
	if off, ok := d.known(idHash{0: 5}, 0); !ok || off != 5 {
		t.Fatalf("offset %d, %v", off, ok)
	}
}
