package metadata

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/forebaymq/forebay/api"
)

func TestCommitAssignsDenseOffsets(t *testing.T) {
	w := newWorld(t)
	orders := w.topic("orders", stConfig(2))
	r := w.one(w.commit(nil, free(orders, 0, 3), free(orders, 0, 2), free(orders, 1, 7))).Batches
	wantBase(t, r[0], 0, false)
	wantBase(t, r[1], 3, false)
	wantBase(t, r[2], 0, false)
	want := []PartitionKey{{orders.ID, 0}, {orders.ID, 1}}
	if !reflect.DeepEqual(w.last.Changed, want) {
		t.Fatalf("changed %v, want %v", w.last.Changed, want)
	}
	r = w.one(w.commit(nil, free(orders, 0, 1))).Batches
	wantBase(t, r[0], 5, false)
	if got, want := w.info(orders, 0), (PartitionInfo{Head: 6, Bytes: 300, LastAppend: w.now}); got != want {
		t.Fatalf("partition %+v, want %+v", got, want)
	}
}

// L4 and section 5: append time is the node's, and never falls in a partition.
func TestAppendTimeIsMonotonic(t *testing.T) {
	w := newWorld(t)
	orders := w.topic("orders", stConfig(2))
	w.one(w.commit(nil, free(orders, 0, 1)))
	high := w.now
	w.tick(-time.Minute)
	r := w.one(w.commit(nil, free(orders, 0, 1), free(orders, 1, 1))).Batches
	if r[0].AppendTime != high || r[1].AppendTime != w.now {
		t.Fatalf("append times %d and %d, want %d and %d", r[0].AppendTime, r[1].AppendTime, high, w.now)
	}
}

func TestUngroupedBatchesAreJudgedAlone(t *testing.T) {
	w := newWorld(t)
	orders := w.topic("orders", stConfig(2))
	ghost := &Topic{ID: orders.ID + 1}
	r := w.one(w.commit(nil, free(orders, 0, 1), free(ghost, 0, 1), free(orders, 2, 1), free(orders, 1, 1))).Batches
	wantBase(t, r[0], 0, false)
	wantCode(t, r[1].Err, api.CodeUnknownTopic)
	wantCode(t, r[2].Err, api.CodeUnknownPartition)
	wantBase(t, r[3], 0, false)
}

func TestGroupIsAllOrNothing(t *testing.T) {
	w := newWorld(t)
	orders, other := w.topic("orders", stConfig(2)), w.topic("other", stConfig(1))
	ghost := &Topic{ID: other.ID + 1}
	groups := []Group{{Tenant: "acme"}, {Tenant: "acme"}, {Tenant: "acme"}}
	r := w.one(w.commit(groups,
		grouped(orders, 0, 1, 0), grouped(orders, 0, 1, 1), grouped(orders, 1, 1, 2), grouped(other, 0, 1, 0), grouped(other, 1, 5, 2), grouped(ghost, 0, 1, 1),
	)).Batches
	wantBase(t, r[0], 0, false)
	wantBase(t, r[3], 0, false)
	wantCode(t, r[1].Err, api.CodeUnknownTopic)
	wantCode(t, r[5].Err, api.CodeUnknownTopic)
	wantCode(t, r[2].Err, api.CodeUnknownPartition)
	wantCode(t, r[4].Err, api.CodeUnknownPartition)
	if w.info(orders, 0).Head != 1 || w.info(orders, 1).Head != 0 || w.info(other, 0).Head != 1 {
		t.Fatal("a refused group stored something")
	}
}

// The tenant of a group comes from the token, so a batch of another tenant's topic must not exist for it.
func TestGroupOfAnotherTenantFindsNoTopic(t *testing.T) {
	w := newWorld(t)
	orders := w.topic("orders", stConfig(1))
	r := w.one(w.commit([]Group{{Tenant: "mallory"}}, grouped(orders, 0, 1, 0))).Batches
	wantCode(t, r[0].Err, api.CodeUnknownTopic)
}

// I1: an exact retry, in another commit or in the same one, gets the first answer.
func TestExactRetryIsADuplicate(t *testing.T) {
	w := newWorld(t)
	orders := w.topic("orders", stConfig(2))
	first := w.send("p", 0, 7, free(orders, 0, 3), free(orders, 1, 2))
	w.one(w.commit(nil, free(orders, 0, 10)))
	w.tick(time.Second)
	again := w.send("p", 0, 7, free(orders, 0, 3), free(orders, 1, 2))
	wantBase(t, again[0], 0, true)
	wantBase(t, again[1], 0, true)
	if again[0].AppendTime != first[0].AppendTime {
		t.Fatalf("append time %d, want the first answer's %d", again[0].AppendTime, first[0].AppendTime)
	}
	if len(w.last.Changed) != 0 || w.info(orders, 0).Head != 13 {
		t.Fatal("a duplicate moved something")
	}
	producer := &Producer{ID: "p", Sequence: 8}
	r := w.one(w.commit([]Group{{Tenant: "acme", Producer: producer}, {Tenant: "acme", Producer: producer}},
		grouped(orders, 0, 1, 0), grouped(orders, 0, 1, 1))).Batches
	wantBase(t, r[0], 13, false)
	wantBase(t, r[1], 13, true)
	if w.info(orders, 0).Head != 14 {
		t.Fatal("a duplicate within one commit was stored")
	}
}

// A retry that meets its original in the same commit is a duplicate even in a partition that was never written before.
func TestRetryInTheCommitThatCreatesThePartition(t *testing.T) {
	w := newWorld(t)
	orders := w.topic("orders", stConfig(1))
	producer := &Producer{ID: "p", Sequence: 8}
	r := w.one(w.commit([]Group{{Tenant: "acme", Producer: producer}, {Tenant: "acme", Producer: producer}},
		grouped(orders, 0, 4, 0), grouped(orders, 0, 4, 1))).Batches
	wantBase(t, r[0], 0, false)
	wantBase(t, r[1], 0, true)
	if r[1].AppendTime != w.now {
		t.Fatalf("append time %d, want %d", r[1].AppendTime, w.now)
	}
}

func TestSequencesThatAreNotRetries(t *testing.T) {
	w := newWorld(t)
	orders := w.topic("orders", stConfig(3))
	w.send("p", 0, 10, free(orders, 0, 3), free(orders, 1, 1))
	w.send("p", 0, 20, free(orders, 0, 1))
	for name, c := range map[string]struct {
		seq     int64
		batches []BatchDelta
		says    string
	}{
		"another count":        {10, []BatchDelta{free(orders, 0, 2), free(orders, 1, 1)}, "not a repeat"},
		"never accepted":       {15, []BatchDelta{free(orders, 0, 1)}, "never accepted"},
		"below the first":      {9, []BatchDelta{free(orders, 0, 1)}, "never accepted"},
		"a mix with new":       {20, []BatchDelta{free(orders, 0, 1), free(orders, 2, 1)}, "not a repeat"},
		"a mix with too low":   {10, []BatchDelta{free(orders, 0, 3), free(orders, 2, 1)}, "not a repeat"},
		"twice, not in order":  {30, []BatchDelta{free(orders, 1, 3), free(orders, 0, 1), free(orders, 1, 1)}, "two batches"},
		"the same place twice": {30, []BatchDelta{free(orders, 0, 3), free(orders, 0, 1)}, "two batches"},
	} {
		t.Run(name, func(t *testing.T) {
			heads := [3]int64{w.info(orders, 0).Head, w.info(orders, 1).Head, w.info(orders, 2).Head}
			for i, r := range w.send("p", 0, c.seq, c.batches...) {
				if r.Err == nil || !strings.Contains(r.Err.Error(), c.says) {
					t.Fatalf("batch %d: %v, want %q", i, r.Err, c.says)
				}
			}
			if heads != [3]int64{w.info(orders, 0).Head, w.info(orders, 1).Head, w.info(orders, 2).Head} {
				t.Fatal("a refused group stored something")
			}
		})
	}
	// Another producer, another tenant and another topic know nothing of all that.
	wantBase(t, w.send("q", 0, 15, free(orders, 0, 1))[0], 4, false)
	wantBase(t, w.send("p", 0, 15, free(orders, 2, 1))[0], 0, false)
}

// One flush may hold many requests of one producer: their sequences are judged in the order of the groups.
func TestSequencesWithinOneCommit(t *testing.T) {
	w := newWorld(t)
	orders := w.topic("orders", stConfig(2))
	group := func(seq int64) Group { return Group{Tenant: "acme", Producer: &Producer{ID: "p", Sequence: seq}} }
	r := w.one(w.commit([]Group{group(1), group(2), group(5), group(3), group(2), group(6)},
		grouped(orders, 0, 1, 0), grouped(orders, 0, 1, 2), grouped(orders, 0, 1, 3), grouped(orders, 0, 1, 5),
		grouped(orders, 1, 1, 1), grouped(orders, 1, 1, 2), grouped(orders, 1, 1, 4),
	)).Batches
	wantBase(t, r[0], 0, false)
	wantBase(t, r[1], 1, false)
	wantCode(t, r[2].Err, api.CodeConflict) // 3 after 5
	wantBase(t, r[3], 2, false)
	wantBase(t, r[4], 0, false)
	wantBase(t, r[5], 1, false)
	wantBase(t, r[6], 0, true) // 2 again, behind 5
	if got := w.s.ProducerPositions("acme", "p", "orders"); !reflect.DeepEqual(got, []ProducerPosition{{"orders", 0, 6}, {"orders", 1, 5}}) {
		t.Fatalf("positions %v", got)
	}
}

func TestProducerSessionsFence(t *testing.T) {
	w := newWorld(t)
	orders := w.topic("orders", stConfig(1))
	if _, ok := w.s.ProducerEpoch("acme", "p"); ok {
		t.Fatal("a session before any was started")
	}
	wantCode(t, w.send("p", 1, 1, free(orders, 0, 1))[0].Err, api.CodeInvalidRequest)
	wantBase(t, w.send("p", 0, 1, free(orders, 0, 1))[0], 0, false)
	start := func(nonce string) int64 {
		return w.one(&ProducerEpoch{Tenant: "acme", ID: "p", Now: w.now, Nonce: nonce}).Epoch
	}
	if e := start("a"); e != 1 {
		t.Fatalf("first epoch %d", e)
	}
	if e := start("a"); e != 1 {
		t.Fatalf("a repeated start gave epoch %d", e)
	}
	wantCode(t, w.send("p", 0, 2, free(orders, 0, 1))[0].Err, api.CodeProducerFenced)
	if e := start("b"); e != 2 {
		t.Fatalf("second epoch %d", e)
	}
	wantCode(t, w.send("p", 1, 2, free(orders, 0, 1))[0].Err, api.CodeProducerFenced)
	wantCode(t, w.send("p", 3, 2, free(orders, 0, 1))[0].Err, api.CodeInvalidRequest)
	wantBase(t, w.send("p", 2, 1, free(orders, 0, 1))[0], 0, true) // sequences go on across epochs
	wantBase(t, w.send("p", 2, 2, free(orders, 0, 1))[0], 1, false)
	if e, ok := w.s.ProducerEpoch("acme", "p"); !ok || e != 2 {
		t.Fatalf("epoch %d, %v", e, ok)
	}
}

// The last fence against a retry under another key: the same segment again changes nothing.
func TestCommitOfAnAppliedSegment(t *testing.T) {
	w := newWorld(t)
	orders := w.topic("orders", stConfig(1))
	c := w.commit(nil, free(orders, 0, 3))
	first := w.one(c).Batches
	before := w.s.Hash()
	if again := w.one(c).Batches; !reflect.DeepEqual(again, first) {
		t.Fatalf("answers %+v, then %+v", first, again)
	}
	w.unchanged(before)

	loaded, err := UnmarshalSnapshot(w.s.MarshalSnapshot())
	if err != nil {
		t.Fatal(err)
	}
	w.s = loaded
	before = w.s.Hash()
	if r := w.apply(c)[0]; !errors.Is(r.Err, ErrAlreadyApplied) || r.Batches != nil {
		t.Fatalf("after a snapshot: %+v", r)
	}
	w.unchanged(before)

	// Below the boundary, and so no longer in the list, it is still known while it has live batches.
	w.one(&GCBoundary{Boundary: w.now + 1})
	if r := w.apply(c)[0]; !errors.Is(r.Err, ErrAlreadyApplied) {
		t.Fatalf("below the boundary: %+v", r)
	}
	if n := w.s.Stats().Applied; n != 0 {
		t.Fatalf("%d applied segments are kept below the boundary", n)
	}
}

func TestRecentAnswersAreBounded(t *testing.T) {
	w := newWorld(t)
	orders := w.topic("orders", stConfig(1))
	var first *Commit
	for i := range 3 {
		batches := make([]BatchDelta, recentBatches/2)
		for k := range batches {
			batches[k] = free(orders, 0, 1)
		}
		c := w.commit(nil, batches...)
		w.one(c)
		if i == 0 {
			first = c
		}
	}
	if w.s.recent.batches > recentBatches || len(w.s.recent.commits) != 1 {
		t.Fatalf("%d batches of %d commits are kept", w.s.recent.batches, len(w.s.recent.commits))
	}
	if r := w.apply(first)[0]; !errors.Is(r.Err, ErrAlreadyApplied) {
		t.Fatalf("%+v", r)
	}
	large := make([]BatchDelta, recentBatches+1)
	for k := range large {
		large[k] = free(orders, 0, 1)
	}
	w.one(w.commit(nil, large...))
	if w.s.recent.batches != 0 || len(w.s.recent.commits) != 0 {
		t.Fatalf("%d batches of %d commits are kept", w.s.recent.batches, len(w.s.recent.commits))
	}
}

func TestCommitBelowTheBoundary(t *testing.T) {
	w := newWorld(t)
	orders := w.topic("orders", stConfig(1))
	old := w.commit(nil, free(orders, 0, 1), free(orders, 0, 1))
	edge := w.commit(nil, free(orders, 0, 1))
	edge.Segment.ID = stULID(w.now+1, 1)
	w.one(&GCBoundary{Boundary: w.now + 1})
	before := w.s.Hash()
	for _, r := range w.one(old).Batches {
		wantCode(t, r.Err, api.CodeStorageUnavailable)
	}
	w.unchanged(before)
	wantBase(t, w.one(edge).Batches[0], 0, false)
	w.one(&GCBoundary{Boundary: w.now})
	if b := w.s.GCBoundary(); b != w.now+1 {
		t.Fatalf("boundary %d, it may not fall", b)
	}
}

// L5: offsets and positions beyond 32 bits survive every structure, and int64 does not wrap.
func TestOffsetsBeyond32Bits(t *testing.T) {
	w := newWorld(t)
	orders := w.topic("orders", stConfig(1))
	const n = math.MaxInt32
	var want []int64
	for i := range int64(4) {
		c := w.commit(nil, free(orders, 0, n))
		c.Batches[0].Ref.Pos = uint64(i) << 33
		wantBase(t, w.one(c).Batches[0], i*n, false)
		want = append(want, i*n)
	}
	reload := func() {
		t.Helper()
		loaded, err := UnmarshalSnapshot(w.s.MarshalSnapshot())
		if err != nil {
			t.Fatal(err)
		}
		w.s = loaded
	}
	reload()
	entries, info, err := w.s.Locate(orders.ID, 0, 0, 10)
	if err != nil || len(entries) != 4 || info.Head != 4*n {
		t.Fatalf("%d entries, head %d: %v", len(entries), info.Head, err)
	}
	for i, e := range entries {
		if e.Base != want[i] || e.Last != want[i]+n-1 || e.Ref.Pos != uint64(i)<<33 {
			t.Fatalf("entry %d: %+v", i, e)
		}
	}
	if e, _, _ := w.s.Locate(orders.ID, 0, 1<<32, 1); len(e) != 1 || e[0].Base != 2*n {
		t.Fatalf("locate 2^32: %+v", e)
	}

	w.s.topics[orders.ID].parts[0].head = math.MaxInt64 - 5
	reload()
	wantCode(t, w.one(w.commit(nil, free(orders, 0, 6))).Batches[0].Err, api.CodeConflict)
	wantBase(t, w.one(w.commit(nil, free(orders, 0, 5))).Batches[0], math.MaxInt64-5, false)
	wantCode(t, w.one(w.commit(nil, free(orders, 0, 1))).Batches[0].Err, api.CodeConflict)
	reload()
}

func TestPartitionsAreMadeByTheirFirstBatch(t *testing.T) {
	w := newWorld(t)
	orders := w.topic("orders", stConfig(10_000))
	if n := w.s.Stats().Partitions; n != 0 {
		t.Fatalf("%d partitions before any commit", n)
	}
	for _, p := range []int32{9999, 0, 77, 1} {
		wantBase(t, w.one(w.commit(nil, free(orders, p, p+1))).Batches[0], 0, false)
	}
	if n := w.s.Stats().Partitions; n != 4 {
		t.Fatalf("%d partitions, want 4", n)
	}
	for _, p := range []int32{9999, 0, 77, 1} {
		if h := w.info(orders, p).Head; h != int64(p)+1 {
			t.Fatalf("partition %d: head %d", p, h)
		}
	}
	if got := w.info(orders, 2); got != (PartitionInfo{}) {
		t.Fatalf("untouched partition %+v", got)
	}
	infos, err := w.s.PartitionInfos(orders.ID)
	if err != nil || len(infos) != 10_000 || infos[77].Head != 78 || infos[2] != (PartitionInfo{}) {
		t.Fatalf("%d infos: %v", len(infos), err)
	}
	_, err = w.s.Partition(orders.ID, 10_000)
	wantCode(t, err, api.CodeUnknownPartition)
	_, err = w.s.Partition(orders.ID, -1)
	wantCode(t, err, api.CodeUnknownPartition)
	_, err = w.s.PartitionInfos(orders.ID + 1)
	wantCode(t, err, api.CodeUnknownTopic)
}
