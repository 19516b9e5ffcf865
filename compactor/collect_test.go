package compactor

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/objectstore/faults"
	"github.com/forebaymq/forebay/segment"
)

// collecting takes the collector's claim.
func (w *world) collecting(c *Compactor) *collecting {
	w.t.Helper()
	claim, held, err := w.log.Claim(w.t.Context(), CollectorClaim, time.Minute)
	if err != nil || !held {
		w.t.Fatalf("claim: %v, %v", held, err)
	}
	w.t.Cleanup(func() {
		if err := w.log.Release(w.t.Context(), claim); err != nil && w.t.Context().Err() == nil {
			w.t.Error(err)
		}
	})
	return c.newCollecting(claim)
}

func (w *world) round(k *collecting) {
	w.t.Helper()
	if err := k.round(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

func counterOf(t testing.TB, m prometheus.Metric) float64 {
	t.Helper()
	var out dto.Metric
	if err := m.Write(&out); err != nil {
		t.Fatal(err)
	}
	if out.Gauge != nil {
		return out.GetGauge().GetValue()
	}
	return out.GetCounter().GetValue()
}

// TestCollect follows an orphan and replaced objects until they are deleted: not before the read grace, not before the age, and never what is
// live, a snapshot, a foreign object.
func TestCollect(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("a")
	for range 4 {
		w.publish(batch{topic: topic, records: []segment.Record{text("k", "v")}})
	}
	orphan := objectKey(&w.put(w.objects, batch{topic: topic, records: []segment.Record{text("k", "lost")}}).Segment)
	for _, key := range []string{"snap/0000/1.snap", "l0/readme", "other/l1/aa/x", "ttl=3d"} {
		if _, err := w.objects.PutIfAbsent(t.Context(), key, []byte("x"), "t"); err != nil {
			t.Fatal(err)
		}
	}
	c := w.compactor(func(o *Options) {
		o.Collect = Collection{Grace: time.Hour, ReadGrace: 10 * time.Minute}
	})
	if jobs := w.run(c); jobs != 1 {
		t.Fatalf("%d jobs", jobs)
	}
	level0 := func() int {
		return len(w.keys("l0/")) - 1
	}
	k := w.collecting(c)
	w.round(k)
	if level0() != 5 {
		t.Fatalf("%d objects of level 0, want 5", level0())
	}
	w.clock.Advance(59 * time.Minute)
	w.round(k)
	if level0() != 5 || w.log.GCBoundary() != 0 {
		t.Fatal("deleted what may still be committed")
	}
	w.clock.Advance(2 * time.Minute)
	w.round(k)
	if level0() != 0 || slices.Contains(w.keys(""), orphan) {
		t.Fatalf("left: %v", w.keys("l0/"))
	}
	if len(w.keys("ttl=3d/")) != 1 || len(w.keys("")) != 5 {
		t.Errorf("bucket has %v", w.keys(""))
	}
	if n := counterOf(t, c.m.orphans.WithLabelValues("deleted")); n != 5 {
		t.Errorf("%v deleted", n)
	}
	if b := w.log.GCBoundary(); b != w.clock.Now().Add(-time.Hour).UnixMilli() {
		t.Errorf("boundary %d", b)
	}
	// A new collector must wait the read grace again for what it finds, however old.
	old := w.put(w.objects, batch{topic: topic, records: []segment.Record{text("k", "lost")}})
	w.clock.Advance(3 * time.Hour)
	k2 := c.newCollecting(&metadata.HeldClaim{Name: k.guard.Claim, Epoch: k.guard.Epoch})
	w.round(k2)
	w.clock.Advance(9 * time.Minute)
	w.round(k2)
	if !slices.Contains(w.keys(""), objectKey(&old.Segment)) {
		t.Fatal("deleted within the read grace")
	}
	w.clock.Advance(2 * time.Minute)
	w.round(k2)
	if slices.Contains(w.keys(""), objectKey(&old.Segment)) {
		t.Fatal("not deleted")
	}
	if got := shape(w.read(w.fetcher(w.objects), topic, 0, 0)); got != "0k=v 1k=v 2k=v 3k=v" {
		t.Errorf("read %s", got)
	}
}

// TestStalledWriter: a writer is stalled between PUT and commit for longer than the grace. Its object has been deleted, so its commit must be
// refused and its producer told.
func TestStalledWriter(t *testing.T) {
	for _, fault := range stallWriter(newWorld(t)) {
		t.Error(fault)
	}
}

// stallWriter plays the case and gives what is wrong.
func stallWriter(w *world) (faults []error) {
	w.t.Helper()
	topic, other := w.topic("a"), w.topicOf("another tenant", "b")
	c := w.compactor(func(o *Options) { o.Collect = Collection{Grace: time.Hour, ReadGrace: time.Minute} })
	stalled := w.put(w.objects, batch{topic: topic, records: []segment.Record{text("k", "v")}}, batch{topic: other, records: []segment.Record{text("k", "v")}})
	k := w.collecting(c)
	w.round(k)
	w.clock.Advance(61 * time.Minute)
	w.round(k)
	if len(w.keys("l0/")) != 0 {
		w.t.Fatal("the orphan was not deleted")
	}
	for i, r := range w.commit(stalled) {
		if code := api.CodeOf(r.Err); code != api.CodeStorageUnavailable {
			faults = append(faults, fmt.Errorf("batch %d of the stalled writer: %v, want %s", i, r.Err, api.CodeStorageUnavailable))
		}
	}
	if err := checkNothingDangles(w); err != nil {
		faults = append(faults, err)
	}
	return faults
}

// checkNothingDangles looks for live objects that the bucket does not have.
func checkNothingDangles(w *world) error {
	for shard := range w.log.Shards() {
		for _, s := range w.log.Segments(shard, [16]byte{}, 1<<20) {
			if _, err := w.objects.Stat(w.t.Context(), objectKey(&s.SegmentRef)); err != nil {
				return err
			}
		}
	}
	return nil
}

// TestSweepLooksAgain: what has become live since it was listed is not deleted; nor is what is above the boundary, which is not raised all
// the time.
func TestSweepLooksAgain(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("a")
	c := w.compactor(func(o *Options) { o.Collect = Collection{Grace: time.Hour, ReadGrace: time.Minute} })
	late := w.put(w.objects, batch{topic: topic, records: []segment.Record{text("k", "v")}})
	first := w.put(w.objects, batch{topic: topic, records: []segment.Record{text("k", "v")}})
	w.clock.Advance(time.Minute)
	second := w.put(w.objects, batch{topic: topic, records: []segment.Record{text("k", "v")}})
	k := w.collecting(c)
	w.round(k)
	w.commit(late)
	w.clock.Advance(59*time.Minute + time.Second)
	sweep := func() {
		t.Helper()
		if err := k.sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	has := func(x *metadata.Commit) bool { return slices.Contains(w.keys("l0/"), objectKey(&x.Segment)) }
	sweep()
	if !has(late) || has(first) || !has(second) {
		t.Fatalf("left: %v", w.keys("l0/"))
	}
	w.clock.Advance(time.Minute)
	sweep() // the second is old enough, and the boundary below it
	if !has(second) || int64(second.Segment.ID.Time()) < w.log.GCBoundary() {
		t.Fatalf("left: %v, boundary %d", w.keys("l0/"), w.log.GCBoundary())
	}
	w.clock.Advance(2 * time.Minute)
	sweep()
	if !has(late) || has(second) {
		t.Fatalf("left: %v", w.keys("l0/"))
	}
}

// TestDeleteErrors: keys that a delete names as failed stay, are counted, and are tried again; the others are gone. Pages of exactly 1,000
// keys hide nothing.
func TestDeleteErrors(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("a")
	for range 2000 {
		w.put(w.objects, batch{topic: topic, records: []segment.Record{text("k", "v")}})
		w.clock.Advance(time.Millisecond)
	}
	store, err := faults.New(w.objects, faults.Options{Plan: faults.Plan{Rules: []faults.Rule{
		{Ops: []objectstore.Op{objectstore.OpDelete}, Prefix: "l0/a", Error: faults.Throttled, Count: 1},
		{Ops: []objectstore.Op{objectstore.OpDelete}, Prefix: "l0/b", Error: faults.Lost, Count: 1},
		{Ops: []objectstore.Op{objectstore.OpList}, Error: faults.Throttled, Every: 2},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	live := w.put(w.objects, batch{topic: topic, records: []segment.Record{text("k", "v")}})
	w.commit(live)
	c := w.compactor(func(o *Options) {
		o.Store = store
		o.Collect = Collection{Grace: time.Minute, ReadGrace: time.Minute, Pages: 1}
	})
	k := w.collecting(c)
	for range 80 {
		if err := k.round(t.Context()); err != nil && !errors.Is(err, faults.ErrInjected) {
			t.Fatal(err)
		}
		w.clock.Advance(15 * time.Second)
	}
	if left := w.keys("l0/"); len(left) != 1 || left[0] != objectKey(&live.Segment) {
		t.Fatalf("%d objects left", len(left))
	}
	if n := counterOf(t, c.m.deleteErrs); n < 2 {
		t.Errorf("%v errors of keys were counted", n)
	}
	if n := counterOf(t, c.m.orphans.WithLabelValues("found")); n != 2000 {
		t.Errorf("%v orphans were found", n)
	}
}

// TestPageEdges: one pass sees every key, also when a page ends exactly with the last one.
func TestPageEdges(t *testing.T) {
	for _, n := range []int{999, 1000, 1001, 2000} {
		w := newWorld(t)
		for range n {
			id, err := ulid.New(ulid.Timestamp(w.clock.Now()), w.entropy)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.objects.PutIfAbsent(t.Context(), objectKey(&metadata.SegmentRef{ID: id, Level: 3, Class: ClassKeep}), []byte("x"), "t"); err != nil {
				t.Fatal(err)
			}
		}
		k := w.collecting(w.compactor())
		w.round(k)
		if len(k.garbage) != n || k.pass.running {
			t.Errorf("%d of %d objects were seen", len(k.garbage), n)
		}
	}
}

// TestMissing: an object that live batches refer to and that is gone is an error, counted and logged once, and no longer counted when it is
// back.
func TestMissing(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("a")
	w.publish(batch{topic: topic, records: []segment.Record{text("k", "v")}})
	seg := w.log.Segments(int(uint64(topic.ID)%worldShards), [16]byte{}, 1)[0]
	key := objectKey(&seg.SegmentRef)
	body, _, err := w.objects.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.objects.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	w.clock.Advance(2 * time.Minute)
	var logged bytes.Buffer
	c := w.compactor(func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&logged, nil)) })
	k := w.collecting(c)
	for range 3 {
		w.round(k)
	}
	if n := counterOf(t, c.m.missing); n != 1 {
		t.Errorf("%v missing", n)
	}
	if n := strings.Count(logged.String(), key); n != 1 {
		t.Errorf("logged %d times:\n%s", n, logged.String())
	}
	if _, err := w.objects.PutIfAbsent(t.Context(), key, body, "back"); err != nil {
		t.Fatal(err)
	}
	w.round(k)
	w.round(k)
	if n := counterOf(t, c.m.missing); n != 0 {
		t.Errorf("%v missing after it came back", n)
	}
	// A worker that meets a missing object leaves it, reports it once, and the rest of the shard goes on.
	if err := w.objects.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		w.publish(batch{topic: topic, partition: 1, records: []segment.Record{text("k", "v")}})
	}
	logged.Reset()
	w.run(c)
	w.clock.Advance(time.Minute)
	w.run(c)
	if e := w.entries(topic, 1); len(e) != 1 || e[0].Segment.Level != 1 {
		t.Errorf("the other partition has %+v", e)
	}
	if e := w.entries(topic, 0); len(e) != 1 || e[0].Segment.Level != 0 {
		t.Errorf("the partition has %+v", e)
	}
	if n := strings.Count(logged.String(), "cannot be compacted"); n != 1 {
		t.Errorf("reported %d times:\n%s", n, logged.String())
	}
}
