package journal

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forebaymq/forebay/api"
)

// Two nodes open a shard at the same time. One of them wins; the other is told so, and what it wrote leaves no trace.
func TestOpeningsAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog()
		a, b := open(t, log, nil), open(t, log, nil)
		k := at(1, 0)
		first := a.must(t, opening(k, 0, Shard{Frontier: 5}))[0] + 1
		arrived, gate := make(chan struct{}, 2), make(chan struct{})
		log.beforeAppend = func([]Record) error {
			arrived <- struct{}{}
			<-gate
			return nil
		}
		results := make(chan error, 2)
		for _, j := range []*fixture{a, b} {
			go func() {
				_, err := j.Write(t.Context(), tenant, []Entry{opening(k, first, Shard{Frontier: 5})})
				results <- err
			}()
		}
		<-arrived
		<-arrived
		log.beforeAppend = nil
		close(gate)
		one, two := <-results, <-results
		if (one == nil) == (two == nil) {
			t.Fatalf("got %v and %v, want one that wins", one, two)
		}
		if err := errors.Join(one, two); !errors.Is(err, ErrStale) || api.CodeOf(err) != api.CodeLeasesUnavailable {
			t.Errorf("the loser got %v", err)
		}
		if s := a.loaded(t, 1).Shards[0]; s.Incarnation <= first || s.Frontier != 5 {
			t.Errorf("got %+v", s)
		}
		if n := value(t, a.m.stale) + value(t, b.m.stale); n != 1 {
			t.Errorf("%d stale openings were counted", n)
		}
		// Known to be stale before it is written.
		log.beforeAppend = func([]Record) error { t.Error("a stale opening was appended"); return nil }
		if _, err := b.Write(t.Context(), tenant, []Entry{opening(k, first, Shard{})}); !errors.Is(err, ErrStale) {
			t.Errorf("got %v", err)
		}
	})
}

// An opening that did not know a seek neither undoes it nor counts.
func TestSeekIsNotOvertaken(t *testing.T) {
	log := newMemLog()
	a, b := open(t, log, nil), open(t, log, nil)
	k := at(1, 0)
	inc := a.must(t, opening(k, 0, Shard{}))[0] + 1
	a.must(t, flush(k, Version{inc, 1}, 50, Range{60, 61}))
	var sought int64
	log.beforeAppend = func([]Record) error { // between the look and the append of the opening
		log.beforeAppend = nil
		sought = a.must(t, seek(k, 10))[0] + 1
		return nil
	}
	if _, err := b.Write(t.Context(), tenant, []Entry{opening(k, inc, Shard{Frontier: 50})}); !errors.Is(err, ErrStale) {
		t.Errorf("got %v", err)
	}
	b.must(t, flush(k, Version{inc, 2}, 55)) // of a node that does not know yet
	for _, compacted := range []bool{false, true} {
		if compacted {
			log.compact(true)
		}
		l := open(t, log, nil).loaded(t, 1)
		if diff := cmp.Diff(&Shard{Version: Version{Incarnation: sought}, Frontier: 10}, l.Shards[0]); diff != "" {
			t.Errorf("compacted %v: %s", compacted, diff)
		}
	}
	// What follows carries on from the seek.
	next := b.must(t, opening(k, sought, Shard{Frontier: 10}))[0] + 1
	b.must(t, flush(k, Version{next, 1}, 12))
	if s := a.loaded(t, 1).Shards[0]; s.Frontier != 12 || s.Version != (Version{next, 1}) {
		t.Errorf("got %+v", s)
	}
}

func TestSeekAndPointers(t *testing.T) {
	log := newMemLog()
	j := open(t, log, nil)
	k := at(1, 0)
	inc := j.must(t, opening(k, 0, Shard{}))[0] + 1
	v := Version{inc, 1}
	j.must(t, flush(k, v, 20),
		pointer(k, v, Pointer{Offset: 3, Kind: Dead}), pointer(k, v, Pointer{Offset: 4, Kind: Dead, CopyPending: true}), pointer(k, v, Pointer{Offset: 15, Kind: Dead}),
		pointer(k, v, Pointer{Offset: 5, Kind: Retry}), pointer(k, v, Pointer{Offset: 6, Kind: Scheduled}), pointer(k, v, Pointer{Offset: 7, Kind: Dead}))
	live := func() []int64 {
		t.Helper()
		want := slices.Sorted(maps.Keys(open(t, log, nil).loaded(t, 1).Pointers[0]))
		log.compact(false)
		for _, f := range []*fixture{j, open(t, log, nil)} {
			if got := slices.Sorted(maps.Keys(f.loaded(t, 1).Pointers[0])); !slices.Equal(got, want) {
				t.Errorf("pointers %v, and compacted %v", want, got)
			}
		}
		return want
	}
	kept := Pointer{Offset: 4, Kind: Dead, CopyPending: true}
	changed := Pointer{Offset: 3, Kind: Dead, Expired: true}
	offsets := j.must(t, seek(k, 10), Entry{Key: k, Pointer: &kept}, Entry{Key: k, Pointer: &changed}, removal(k, Version{}, 5), removal(k, Version{}, 15), removal(k, Version{}, 7))
	if offsets[1] != offsets[0] || offsets[3] != offsets[0] || offsets[4] != offsets[0] || offsets[2] == offsets[0] || offsets[5] == offsets[0] {
		t.Errorf("offsets %v: what the seek says anyway need not be written, and all else must be", offsets)
	}
	if got := live(); !slices.Equal(got, []int64{3, 4}) {
		t.Errorf("after a seek to 10: %v", got)
	}
	if p := j.loaded(t, 1).Pointers[0][3]; !p.Expired || p.Version != (Version{Incarnation: offsets[0] + 1}) {
		t.Errorf("got %+v", p)
	}
	// Further ahead, 15 does not come back.
	j.must(t, seek(k, 18))
	if got := live(); !slices.Equal(got, []int64{3, 4}) {
		t.Errorf("after a seek to 18: %v", got)
	}
	j.must(t, seek(k, 0))
	if got := live(); len(got) != 0 {
		t.Errorf("after a seek to 0: %v", got)
	}
	s := j.loaded(t, 1).Shards[0]
	again := Version{s.Incarnation, 1}
	j.must(t, flush(k, again, 4), pointer(k, again, Pointer{Offset: 3, Kind: Dead, Attempts: 2}))
	if got := live(); !slices.Equal(got, []int64{3}) {
		t.Errorf("dead again: %v", got)
	}
}

// A late record of a pointer does not bring it back, whatever compaction removes; and its keys are freed in the end.
func TestEndOfPointers(t *testing.T) {
	log := newMemLog()
	a, b := open(t, log, nil), open(t, log, nil)
	k := at(1, 0)
	inc := a.must(t, opening(k, 0, Shard{}))[0] + 1
	const pointers = collectTogether
	var down, up []Entry
	for o := range int64(pointers) {
		down = append(down, pointer(k, Version{inc, 1}, Pointer{Offset: o, Kind: Retry, Attempts: 1}))
		up = append(up, removal(k, Version{inc, 2}, o))
	}
	a.must(t, append(down, flush(k, Version{inc, 1}, 0))...)
	a.must(t, append(up, flush(k, Version{inc, 2}, pointers))...)
	log.compact(true)
	b.must(t, append(down, flush(k, Version{inc, 1}, 0))...) // late
	log.compact(true)
	check := func(records int) {
		t.Helper()
		for _, f := range []*fixture{a, b, open(t, log, nil)} {
			l := f.loaded(t, 1)
			if s := l.Shards[0]; len(l.Pointers) != 0 || s.Frontier != pointers || s.Sequence < 2 {
				t.Errorf("got %+v with %d pointers", s, len(l.Pointers[0]))
			}
		}
		log.compact(true)
		if n := log.live(); n != records {
			t.Errorf("%d records are left, want %d", n, records)
		}
	}
	check(2*pointers + 3)
	a.clock.Advance(DefaultGrace - time.Second)
	a.must(t, flush(k, Version{inc, 3}, pointers))
	check(2*pointers + 3)
	a.clock.Advance(time.Second)
	a.must(t, flush(k, Version{inc, 4}, pointers))
	b.clock.Advance(2 * maxAge)
	check(3) // the opening, and a state of each writer
}

// A process that dies leaves ends on record; the next opening finds them. Old states go with the first state of the new incarnation.
func TestNextOpeningCleansUp(t *testing.T) {
	log := newMemLog()
	k := at(1, 0)
	inc := int64(0)
	for range 5 { // lives of a node
		j := open(t, log, nil)
		v := Version{inc, 0}
		inc = j.must(t, Entry{Key: k, Shard: &Shard{Version: v, Frontier: 10}, Open: true})[0] + 1
		j.must(t, flush(k, Version{inc, 1}, 10), pointer(k, Version{inc, 1}, Pointer{Offset: 12, Kind: Retry}), pointer(k, Version{inc, 1}, Pointer{Offset: 13, Kind: Dead}))
		j.must(t, flush(k, Version{inc, 2}, 10), removal(k, Version{inc, 2}, 12), removal(k, Version{inc, 2}, 13))
	}
	j := open(t, log, nil)
	j.must(t, opening(k, inc, Shard{Frontier: 10}))
	inc = j.loaded(t, 1).Shards[0].Incarnation
	j.clock.Advance(DefaultGrace + collectAfter)
	j.must(t, flush(k, Version{inc, 1}, 10))
	log.compact(true)
	if n := log.live(); n != 2 {
		t.Errorf("%d records are left, want the opening and the state", n)
	}
	if l := open(t, log, nil).loaded(t, 1); l.Shards[0].Frontier != 10 || len(l.Pointers) != 0 {
		t.Errorf("got %+v", l)
	}
}

// Nodes that come and go in one incarnation leave a state each. An opening lets go of them.
func TestCrowd(t *testing.T) {
	log := newMemLog()
	k := at(1, 0)
	inc := open(t, log, nil).must(t, opening(k, 0, Shard{}))[0] + 1
	seq := int64(0)
	for !open(t, log, nil).loaded(t, 1).Crowded[0] {
		seq++
		if seq > 2*crowd {
			t.Fatalf("%d writers are no crowd", seq)
		}
		open(t, log, nil).must(t, flush(k, Version{inc, seq}, seq))
	}
	j := open(t, log, nil)
	inc = j.must(t, opening(k, inc, Shard{Frontier: seq}))[0] + 1
	j.must(t, flush(k, Version{inc, seq + 1}, seq+1))
	log.compact(true)
	l := open(t, log, nil).loaded(t, 1)
	if l.Crowded != nil || l.Shards[0].Frontier != seq+1 {
		t.Errorf("got %+v, crowded %v", l.Shards[0], l.Crowded)
	}
	if n := log.live(); n != 2 {
		t.Errorf("%d records are left, want the opening and the state", n)
	}
}

// A Write too large for one append is cut, and pointers of the incarnation that it opens find their way to it.
func TestLargeWrites(t *testing.T) {
	log := newMemLog()
	j := open(t, log, nil)
	appends := 0
	log.afterAppend = func(records []Record, _ []int64) error {
		appends++
		bytes := 0
		for _, r := range records {
			bytes += len(r.Key) + len(r.Value)
		}
		if bytes > maxAppendBytes {
			t.Errorf("an append of %d bytes", bytes)
		}
		return nil
	}
	reason := string(make([]byte, 1000))
	entries := []Entry{{Key: at(9, 0), Shard: &Shard{Frontier: 9000}, Open: true}, {Key: at(1, 0), Shard: &Shard{Frontier: 9000}, Open: true}}
	for o := range int64(9000) {
		entries = append(entries, Entry{Key: at(1, 0), Pointer: &Pointer{Offset: o, Kind: Dead, Reason: reason}})
	}
	offsets := j.must(t, entries...)
	if appends < 3 {
		t.Errorf("%d appends", appends)
	}
	l := open(t, log, nil).loaded(t, 1)
	if len(l.Pointers[0]) != 9000 {
		t.Fatalf("%d pointers", len(l.Pointers[0]))
	}
	for o, p := range l.Pointers[0] {
		if p.Version != (Version{Incarnation: offsets[1] + 1}) {
			t.Fatalf("pointer %d is of %+v, the shard of incarnation %d", o, p.Version, offsets[1]+1)
		}
	}
}

// A dead letter whose copy is pending, and a retry, hold the frontier back; a delayed record does not.
func TestWhatIsNotSettled(t *testing.T) {
	j := open(t, newMemLog(), nil)
	k, v := at(1, 0), Version{1, 1}
	j.must(t, flush(k, v, 5, Range{6, 20}),
		pointer(k, v, Pointer{Offset: 2, Kind: Retry}), // redriven
		pointer(k, v, Pointer{Offset: 8, Kind: Retry}), pointer(k, v, Pointer{Offset: 10, Kind: Scheduled}), pointer(k, v, Pointer{Offset: 12, Kind: Dead}),
		pointer(k, v, Pointer{Offset: 13, Kind: Dead, CopyPending: true}))
	want := &Shard{Version: v, Frontier: 5, Settled: []Range{{6, 8}, {9, 13}, {14, 20}}}
	if diff := cmp.Diff(want, j.loaded(t, 1).Shards[0]); diff != "" {
		t.Error(diff)
	}
}
