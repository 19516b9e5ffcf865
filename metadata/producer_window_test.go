package metadata

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/forebaymq/forebay/api"
)

// A window agrees with a plain list of everything accepted, but for what it has forgotten.
func TestWindowAgainstAList(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var w window
		type item struct {
			seq int64
			a   accepted
		}
		var all []item
		seq, base := rapid.Int64().Draw(rt, "first"), int64(0)
		n := rapid.IntRange(1, 900).Draw(rt, "n")
		gaps := rapid.SliceOfN(rapid.Uint64Range(1, 1<<40), 1, 8).Draw(rt, "gaps")
		for i := range n {
			a := accepted{base: base, records: int32(i%300 + 1)}
			if i%11 == 3 {
				a.records += 4
				a.runs = []offsetRun{{ordinal: 1, length: 2, offset: base / 2}, {ordinal: a.records - 1, length: 1, offset: 5}}
			}
			w.record(seq, a)
			all = append(all, item{seq, a})
			base += int64(a.records) + int64(i%3)
			step := gaps[i%len(gaps)]
			if uint64(1<<63-1)-uint64(seq) < step {
				break
			}
			seq += int64(step)
		}
		if w.lastSequence() != all[len(all)-1].seq {
			rt.Fatalf("last %d", w.lastSequence())
		}
		known := map[int64]bool{}
		for i := range all {
			known[all[i].seq] = true
		}
		for i := range all {
			v, a := w.judge(all[i].seq)
			if v != windowDuplicate || !reflect.DeepEqual(a.offsets(), all[i].a.offsets()) || a.base != all[i].a.base || a.records != all[i].a.records {
				rt.Fatalf("sequence %d: verdict %d, %+v, want %+v", all[i].seq, v, a, all[i].a)
			}
			if between := all[i].seq - 1; i > 0 && !known[between] {
				if v, _ := w.judge(between); v != windowNever {
					rt.Fatalf("sequence %d was never accepted: verdict %d", between, v)
				}
			}
		}
	})
}

func TestWindowForgetsTheOldestBlocks(t *testing.T) {
	var w window
	const total = 10_000
	for i := range int64(total) {
		w.record(2*i, accepted{base: 3 * i, records: 2})
	}
	if w.n > windowSequences || w.n <= windowSequences-blockSequences {
		t.Fatalf("%d sequences are remembered", w.n)
	}
	oldest := 2 * int64(total-int(w.n))
	for seq, want := range map[int64]windowVerdict{
		-5: windowForgotten, 0: windowForgotten, oldest - 2: windowForgotten, oldest - 1: windowNever, oldest: windowDuplicate,
		oldest + 1: windowNever, 2*total - 2: windowDuplicate, 2*total - 3: windowNever, 2*total - 1: windowNew, 2 * total: windowNew,
	} {
		if v, _ := w.judge(seq); v != want {
			t.Errorf("sequence %d: verdict %d, want %d", seq, v, want)
		}
	}
}

// A full window of ordinary requests takes 5 bytes a sequence, about 20 KB in all; one sequence a few bytes.
func TestWindowSize(t *testing.T) {
	var w window
	for i := range int64(5000) {
		w.record(i, accepted{base: 1<<33 + i*250, records: 100})
	}
	if got := w.bytes(); got > 21<<10 {
		t.Errorf("a full window takes %d bytes", got)
	}
	w = window{}
	w.record(1<<40, accepted{base: 1 << 40, records: 100})
	if got := w.bytes(); got > 16 {
		t.Errorf("a window of one sequence packs %d bytes", got)
	}
}

// bytes counts the capacity of the packed data and the blocks.
func (w *window) bytes() int {
	n := cap(w.tail.data) + cap(w.sealed)*56
	for i := range w.sealed {
		n += cap(w.sealed[i].data)
	}
	return n
}

// Batches with many scattered duplicates by event ID are large to remember: the bytes are bounded too.
func TestWindowBytesAreBounded(t *testing.T) {
	var w window
	runs := make([]offsetRun, 500)
	for i := range runs {
		runs[i] = offsetRun{ordinal: int32(2 * i), length: 1, offset: int64(i*7919) << 20}
	}
	for i := range int64(300) {
		w.record(i, accepted{base: i * 1000, records: 1000, runs: runs})
	}
	if int(w.size) > windowBytes || w.n < 2 {
		t.Fatalf("%d bytes, %d sequences", w.size, w.n)
	}
	if v, _ := w.judge(0); v != windowForgotten {
		t.Fatalf("verdict %d", v)
	}
	if v, a := w.judge(299); v != windowDuplicate || len(a.runs) != len(runs) {
		t.Fatalf("verdict %d", v)
	}
}

// What the window has forgotten is refused, never taken as new.
func TestSequenceBelowTheWindow(t *testing.T) {
	w := newWorld(t)
	orders := w.topic("orders", stConfig(1))
	for i := range int64(windowSequences/64 + 5) {
		var groups []Group
		var batches []BatchDelta
		for k := range int64(64) {
			groups = append(groups, Group{Tenant: "acme", Producer: &Producer{ID: "p", Sequence: i*64 + k}})
			batches = append(batches, grouped(orders, 0, 1, int32(k)))
		}
		w.one(w.commit(groups, batches...))
	}
	err := w.send("p", 0, 0, free(orders, 0, 1))[0].Err
	wantCode(t, err, api.CodeConflict)
	wantBase(t, w.send("p", 0, windowSequences, free(orders, 0, 1))[0], windowSequences, true)
}

func TestProducersExpire(t *testing.T) {
	w := newWorld(t)
	orders, idle := w.topic("orders", stConfig(1)), w.topic("idle", stConfig(1))
	w.one(&ProducerEpoch{Tenant: "acme", ID: "gone", Now: w.now, Nonce: "n"})
	w.one(&ProducerEpoch{Tenant: "acme", ID: "gone", Now: w.now, Nonce: "m"})
	// What is used stays, though it is older than what is not.
	w.one(&ProducerEpoch{Tenant: "acme", ID: "stays", Now: w.now, Nonce: "n"})
	w.send("stays", 1, 1, free(orders, 0, 1))
	w.tick(time.Second)
	w.send("gone", 2, 1, free(orders, 0, 1), free(idle, 0, 1))
	for range 8 {
		w.tick(24 * time.Hour)
		wantBase(t, w.send("stays", 1, w.now, free(orders, 0, 1))[0], w.info(orders, 0).Head-1, false)
	}
	if st := w.s.Stats(); st.Windows != 1 || st.Sessions != 1 || len(w.s.producers) != 1 {
		t.Fatalf("%+v, %d producers: what nobody used for 7 days should be gone", st, len(w.s.producers))
	}
	wantBase(t, w.send("stays", 1, w.now, free(orders, 0, 1))[0], 9, true)
	// An epoch is not given twice, so a session from before the expiry stays fenced.
	wantCode(t, w.send("gone", 2, 5, free(orders, 0, 1))[0].Err, api.CodeInvalidRequest)
	if e := w.one(&ProducerEpoch{Tenant: "acme", ID: "gone", Now: w.now, Nonce: "n"}).Epoch; e != 3 {
		t.Fatalf("epoch %d after the expiry of epoch 2", e)
	}
	wantCode(t, w.send("gone", 2, 5, free(orders, 0, 1))[0].Err, api.CodeProducerFenced)
}

// A partition remembers a bounded number of producers; the least recently used goes.
func TestProducersOfAPartitionAreBounded(t *testing.T) {
	w := newWorld(t)
	orders := w.topic("orders", stConfig(2))
	fill := func(from, to int) {
		var groups []Group
		var batches []BatchDelta
		for i := from; i < to; i++ {
			groups = append(groups, Group{Tenant: "acme", Producer: &Producer{ID: fmt.Sprint("p", i), Sequence: 1}})
			batches = append(batches, grouped(orders, 0, 1, int32(len(groups)-1)))
		}
		w.one(w.commit(groups, batches...))
	}
	fill(0, maxProducers)
	w.send("p0", 0, 2, free(orders, 0, 1))
	fill(maxProducers, maxProducers+3)
	if n := w.s.Stats().Windows; n != maxProducers {
		t.Fatalf("%d windows", n)
	}
	for id, want := range map[string]int{"p0": 1, "p1": 0, "p2": 0, "p3": 0, "p4": 1, fmt.Sprint("p", maxProducers+2): 1} {
		if got := len(w.s.ProducerPositions("acme", id, "orders")); got != want {
			t.Errorf("%s: %d positions, want %d", id, got, want)
		}
	}
}

func TestProducerPositions(t *testing.T) {
	w := newWorld(t)
	orders, bills := w.topic("orders", stConfig(4)), w.topic("bills", stConfig(1))
	w.send("p", 0, 5, free(orders, 3, 1), free(orders, 1, 1), free(bills, 0, 1))
	w.send("p", 0, 9, free(orders, 1, 1))
	want := []ProducerPosition{{"bills", 0, 5}, {"orders", 1, 9}, {"orders", 3, 5}}
	if got := w.s.ProducerPositions("acme", "p", ""); !reflect.DeepEqual(got, want) {
		t.Fatalf("%v, want %v", got, want)
	}
	if got := w.s.ProducerPositions("acme", "p", "orders"); !reflect.DeepEqual(got, want[1:]) {
		t.Fatalf("%v, want %v", got, want[1:])
	}
	for _, q := range [][3]string{{"other", "p", ""}, {"acme", "q", ""}, {"acme", "p", "none"}} {
		if got := w.s.ProducerPositions(q[0], q[1], q[2]); got != nil {
			t.Fatalf("%v: %v", q, got)
		}
	}
}
