package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/forebaymq/forebay/api"
)

// The simulation has one subscription of two partitions, a Redis as the journal needs it, three nodes that export from it, write and clean, and a
// log whose appends the test lets land one by one, in any order that ingest permits: those of one node in their order, those of several nodes in
// any. Appends fail, or fail and land later. Redis is lost, nodes open at the same time, somebody seeks; the log is compacted at any moment.
//
// At any moment, for a process that starts with nothing as for one that has read before:
//
//   - what a successful Write said is settled, is settled. The exception: it was on its way when Redis was lost, and landed after the opening
//     that rebuilt Redis had read the journal. Such a Write is as good as none
//   - what was never true is not there: nothing is settled that nobody settled since the last seek
//   - a pointer whose end was not written is there, in the version of the newest successful Write or a later one

const (
	simSub        = 42
	simPartitions = 2
	simNodes      = 3
)

type simShard struct {
	inc, seq int64
	settled  map[int64]bool // and everything below frontier
	frontier int64
	pointers map[int64]Pointer
	dirty    map[int64]int64 // pointers that changed or ended, with the sequence of the change
	marked   bool
}

func (s *simShard) clone() *simShard {
	c := *s
	c.settled, c.pointers, c.dirty = maps.Clone(s.settled), maps.Clone(s.pointers), maps.Clone(s.dirty)
	return &c
}

func (s *simShard) settle(o int64) {
	s.settled[o] = true
	for s.settled[s.frontier] {
		delete(s.settled, s.frontier)
		s.frontier++
	}
}

func (s *simShard) is(o int64) bool { return o < s.frontier || s.settled[o] }

func (s *simShard) change(p *Pointer, o int64) {
	s.seq++
	s.marked = true
	if p != nil {
		p.Offset, p.Version = o, Version{s.inc, s.seq}
		s.pointers[o] = *p
	} else {
		delete(s.pointers, o)
	}
	s.dirty[o] = s.seq
}

func (s *simShard) state() *Shard {
	var f facts
	f.frontier = s.frontier
	for o := range s.settled {
		f.ranges = append(f.ranges, Range{o, o + 1})
	}
	frontier, settled := f.normal(nil)
	return &Shard{Version: Version{s.inc, s.seq}, Frontier: frontier, Settled: settled}
}

// known is what a reader of the journal may count on, and what may be true at most, of one shard since the last seek.
type known struct {
	epoch    int64         // incarnation of the last seek
	rebuilt  int64         // incarnation that Redis was rebuilt with last
	acked    map[int64]int // offsets, and the step of the export
	ever     map[int64]bool
	pointers map[int64]simPointer // the newest that a successful Write had
	ghosts   map[int64]bool       // pointers that a lost Redis had, and that may come yet
}

type simPointer struct {
	Version
	ended bool
	step  int
}

// The goroutines of a simulation wake up one another, so several may run at a time: mu is for what they share. The test itself does something
// only while all of them wait.
type sim struct {
	mu    sync.Mutex
	t     *testing.T
	rng   *rand.Rand
	log   *memLog
	clock *clockwork.FakeClock
	nodes []*Journal

	redis [simPartitions]*simShard
	known [simPartitions]*known
	life  int

	waiting []*simAppend // by arrival
	limbo   [simNodes][][]Record
	opening [simNodes]bool
	seeking int // 0 or 1
	sought  int // which partition
	writes  int // under way
	step    int
	faults  []string // where that is the point of the test, else nil and t fails
	expect  bool
	stale   int
}

type simAppend struct {
	node    int
	records []Record
	answer  chan error // nil: land
}

func newSim(t *testing.T, seed uint64) *sim {
	w := &sim{t: t, rng: rand.New(rand.NewPCG(seed, 1)), log: newMemLog(), clock: clockwork.NewFakeClock()}
	w.log.clock = w.clock
	for n := range simNodes {
		j, err := New(Options{Log: simLog{w.log, w, n}, Clock: w.clock, Rand: source{w.rng}, Logger: slog.New(slog.DiscardHandler), Partitions: 2, CacheBytes: []int64{1, 2000, 0}[n]})
		if err != nil {
			t.Fatal(err)
		}
		w.nodes = append(w.nodes, j)
	}
	for p := range simPartitions {
		w.redis[p] = &simShard{settled: map[int64]bool{}, pointers: map[int64]Pointer{}, dirty: map[int64]int64{}}
		w.known[p] = &known{acked: map[int64]int{}, ever: map[int64]bool{}, pointers: map[int64]simPointer{}, ghosts: map[int64]bool{}}
	}
	return w
}

// simFault ends a simulation that is expected to find faults.
type simFault struct{}

func (w *sim) fail(format string, args ...any) {
	w.t.Helper()
	if w.expect {
		w.complain(format, args...)
		panic(simFault{})
	}
	w.t.Fatalf(format, args...)
}

func (w *sim) complain(format string, args ...any) {
	w.t.Helper()
	if w.expect {
		w.faults = append(w.faults, fmt.Sprintf(format, args...))
		return
	}
	w.t.Errorf(format, args...)
}

// simLog is the log as one node sees it.
type simLog struct {
	*memLog
	w    *sim
	node int
}

func (l simLog) Append(ctx context.Context, tenant, topic string, records []Record) ([]int64, error) {
	a := &simAppend{node: l.node, records: slices.Clone(records), answer: make(chan error)}
	l.w.mu.Lock()
	l.w.waiting = append(l.w.waiting, a)
	l.w.mu.Unlock()
	select {
	case err := <-a.answer:
		if err != nil {
			return nil, err
		}
	case <-ctx.Done(): // the test has failed
		return nil, ctx.Err()
	}
	return l.store(tenant, topic, records)
}

// settleLimbo decides about appends of a node whose callers have given up: they come before everything later of the node, or never.
func (w *sim) settleLimbo(node int) {
	for _, records := range w.limbo[node] {
		if w.rng.IntN(2) == 0 {
			if _, err := w.log.store(tenant, Topic, records); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	w.limbo[node] = nil
}

// land decides about one append that waits; those of a node in their order.
func (w *sim) land(failures bool) {
	first := map[int]int{}
	for i, a := range w.waiting {
		if _, ok := first[a.node]; !ok {
			first[a.node] = i
		}
	}
	if len(first) == 0 {
		return
	}
	nodes := slices.Sorted(maps.Keys(first))
	i := first[nodes[w.rng.IntN(len(nodes))]]
	a := w.waiting[i]
	w.waiting = slices.Delete(w.waiting, i, i+1)
	var err error
	w.settleLimbo(a.node)
	switch roll := w.rng.IntN(10); {
	case failures && roll == 0:
		err = api.Errorf(api.CodeStorageUnavailable, "no")
	case failures && roll == 1:
		err = api.Errorf(api.CodeOutcomeUnknown, "perhaps")
		w.limbo[a.node] = append(w.limbo[a.node], a.records)
	}
	a.answer <- err
	synctest.Wait()
}

// work changes something in Redis.
func (w *sim) work() {
	p := w.rng.IntN(simPartitions)
	s, k := w.redis[p], w.known[p]
	if s.inc == 0 {
		return
	}
	o := s.frontier + w.rng.Int64N(20)
	if old := slices.Sorted(maps.Keys(s.pointers)); len(old) > 0 && w.rng.IntN(2) == 0 {
		o = old[w.rng.IntN(len(old))]
	}
	have, pointed := s.pointers[o]
	switch roll := w.rng.IntN(4); {
	case !pointed && s.is(o): // nothing leads to it
	case !pointed && roll < 2, pointed && have.Kind == Retry && roll < 2: // acked
		s.settle(o)
		if s.change(nil, o); !pointed {
			delete(s.dirty, o)
		}
	case !pointed && roll == 2: // delayed
		s.settle(o)
		s.change(&Pointer{Kind: Scheduled, Due: 5}, o)
	case have.Kind == Retry && have.Attempts == 2 || pointed && have.Kind == Retry && roll == 3: // dies
		s.settle(o)
		s.change(&Pointer{Kind: Dead, Attempts: have.Attempts + 1, Reason: "x"}, o)
	case !pointed, have.Kind == Retry: // fails
		s.change(&Pointer{Kind: Retry, Attempts: have.Attempts + 1}, o)
	case have.Kind == Dead && o < s.frontier && roll == 0: // redriven
		s.change(&Pointer{Kind: Retry}, o)
	case have.Kind == Dead && roll == 1 || have.Kind == Scheduled: // discarded, or delivered and acked
		s.change(nil, o)
	}
	for i := range s.frontier + 40 {
		if s.is(i) {
			k.ever[i] = true
		}
	}
}

// flush exports from Redis on a node, writes, and cleans. What fails is marked still.
func (w *sim) flush(node int) {
	var entries []Entry
	var exported [simPartitions]*simShard
	life, step := w.life, w.step
	for p, s := range w.redis {
		if !s.marked || s.inc == 0 {
			continue
		}
		exported[p] = s.clone()
		key := at(simSub, int32(p))
		entries = append(entries, Entry{Key: key, Shard: s.state()})
		for _, o := range slices.Sorted(maps.Keys(s.dirty)) {
			if v, ok := s.pointers[o]; ok {
				entries = append(entries, Entry{Key: key, Pointer: &v})
			} else {
				entries = append(entries, Entry{Key: key, Remove: o, Version: Version{s.inc, s.seq}})
			}
		}
	}
	if len(entries) == 0 {
		return
	}
	w.writes++
	go func() {
		_, err := w.nodes[node].Write(w.t.Context(), tenant, entries)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.writes--
		if err != nil {
			return
		}
		for p, x := range exported {
			if x == nil {
				continue
			}
			w.ack(p, x, step)
			if s := w.redis[p]; life == w.life && s.inc >= x.inc && x.inc >= w.known[p].rebuilt {
				w.clean(s, x)
			}
		}
	}()
	synctest.Wait()
}

func (w *sim) ack(p int, x *simShard, step int) {
	k := w.known[p]
	if x.inc < k.epoch {
		return
	}
	if x.inc < k.rebuilt {
		for o := range x.dirty {
			k.ghosts[o] = true
		}
		return
	}
	for i := range x.frontier + 40 {
		if _, known := k.acked[i]; x.is(i) && !known {
			k.acked[i] = step
		}
	}
	for o := range x.dirty {
		v := simPointer{Version{x.inc, x.seq}, true, step}
		if ptr, ok := x.pointers[o]; ok {
			v = simPointer{ptr.Version, false, step}
		}
		if k.pointers[o].Less(v.Version) {
			k.pointers[o] = v
		}
	}
}

// clean takes the marks away of what has not changed since the export.
func (w *sim) clean(s, x *simShard) {
	if s.seq == x.seq {
		s.marked = false
	}
	for o, seq := range x.dirty {
		if s.dirty[o] == seq {
			delete(s.dirty, o)
		}
	}
}

// open opens shards on a node as the engine does, until nobody else is in the way.
func (w *sim) open(node int) {
	if w.opening[node] {
		return // the engine opens a subscription once at a time
	}
	w.opening[node] = true
	w.writes++
	go func() {
		for !w.openOnce(node) {
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.writes--
		w.opening[node] = false
	}()
	synctest.Wait()
}

// openOnce is one attempt; done, unless somebody was in the way.
func (w *sim) openOnce(node int) (done bool) {
	w.mu.Lock()
	life, step := w.life, w.step
	w.mu.Unlock()
	loaded, reported, err := w.nodes[node].LoadReported(w.t.Context(), tenant, simSub)
	if w.t.Context().Err() != nil {
		return true // the test has failed
	}
	if err != nil {
		w.complain("load: %v", err)
		return true
	}
	var entries []Entry
	var keep [simPartitions]bool
	var over [simPartitions]int64 // what Redis was found to have
	w.mu.Lock()
	for p := range simPartitions {
		state := loaded.Shards[int32(p)]
		if state == nil {
			state = &Shard{}
		}
		opening, have := *state, Version{w.redis[p].inc, w.redis[p].seq}
		over[p] = have.Incarnation
		if keep[p] = have.Incarnation > 0 && !have.Less(reported[int32(p)]); opening.Version.Less(have) {
			opening.Version = have
		}
		entries = append(entries, Entry{Key: at(simSub, int32(p)), Shard: &opening, Open: true})
	}
	w.mu.Unlock()
	offsets, err := w.nodes[node].Write(w.t.Context(), tenant, entries)
	w.mu.Lock()
	defer w.mu.Unlock()
	if errors.Is(err, ErrStale) {
		w.stale++
		return false
	}
	for p := range simPartitions {
		if err == nil && life == w.life && w.redis[p].inc < offsets[p]+1 && (keep[p] || w.redis[p].inc == over[p]) {
			w.load(p, offsets[p]+1, keep[p], loaded, step)
		}
	}
	return true
}

// load is what the store does with an opened shard.
func (w *sim) load(p int, inc int64, keep bool, loaded *Loaded, step int) {
	s, k := w.redis[p], w.known[p]
	if keep {
		s.inc, s.marked = inc, true
		return
	}
	for o := range s.dirty {
		k.ghosts[o] = true // an export of it may be on its way
	}
	n := &simShard{inc: inc, settled: map[int64]bool{}, pointers: map[int64]Pointer{}, dirty: map[int64]int64{}}
	if st := loaded.Shards[int32(p)]; st != nil {
		n.frontier = st.Frontier
		for _, r := range st.Settled {
			for o := r.From; o < r.To; o++ {
				n.settled[o] = true
			}
		}
	}
	maps.Copy(n.pointers, loaded.Pointers[int32(p)])
	w.redis[p], k.rebuilt = n, inc
	if w.seeking > 0 && w.sought == p {
		for o := range s.pointers {
			k.ghosts[o] = true
		}
		return // the seek may be in the journal, and have made all of it void
	}
	// What was on its way when the journal was read is lost with the old Redis; nothing else is.
	for o, exported := range k.acked {
		if _, owed := n.pointers[o]; !n.is(o) && !owed {
			if exported > step {
				w.complain("partition %d: %d was exported in step %d, and an opening that began in step %d has lost it", p, o, exported, step)
			}
			delete(k.acked, o)
		}
	}
	for o, v := range k.pointers {
		have, ok := n.pointers[o]
		if known := have.Version; !ok && !v.ended || known.Less(v.Version) && ok {
			if v.step > step {
				w.complain("partition %d: pointer %d was exported in step %d, and an opening that began in step %d has lost it", p, o, v.step, step)
			}
			delete(k.pointers, o)
			k.ghosts[o] = true
		}
	}
}

// lose empties Redis.
func (w *sim) lose() {
	w.life++
	for p, s := range w.redis {
		for o := range s.dirty {
			w.known[p].ghosts[o] = true
		}
		w.redis[p] = &simShard{settled: map[int64]bool{}, pointers: map[int64]Pointer{}, dirty: map[int64]int64{}}
	}
}

// seek moves one shard, whatever it takes.
func (w *sim) seek(node, p int) {
	if w.redis[p].inc == 0 || w.seeking > 0 {
		return
	}
	s := w.redis[p]
	to := max(0, s.frontier-10+w.rng.Int64N(20))
	w.writes++
	w.seeking++
	w.sought = p
	go func() {
		for !w.seekOnce(node, p, to) {
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.writes--
		w.seeking--
	}()
	synctest.Wait()
}

func (w *sim) seekOnce(node, p int, to int64) (done bool) {
	entries := []Entry{seek(at(simSub, int32(p)), to)}
	kept := map[int64]Pointer{}
	w.mu.Lock()
	for _, o := range slices.Sorted(maps.Keys(w.redis[p].pointers)) {
		if v := w.redis[p].pointers[o]; v.Kind == Dead && o < to {
			v.Version = Version{}
			kept[o] = v
			entries = append(entries, Entry{Key: at(simSub, int32(p)), Pointer: &v})
		} else {
			entries = append(entries, Entry{Key: at(simSub, int32(p)), Remove: o})
		}
	}
	w.mu.Unlock()
	offsets, err := w.nodes[node].Write(w.t.Context(), tenant, entries)
	if err != nil {
		return w.t.Context().Err() != nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	inc := offsets[0] + 1
	k := &known{epoch: inc, rebuilt: max(inc, w.known[p].rebuilt), acked: map[int64]int{}, ever: map[int64]bool{}, pointers: map[int64]simPointer{}, ghosts: w.known[p].ghosts}
	for o := range to {
		k.acked[o], k.ever[o] = w.step, true
	}
	for o, v := range kept {
		v.Version = Version{Incarnation: inc}
		kept[o] = v
	}
	// Dead letters that another node is writing, and those that came or went while the seek was under way.
	for o := range w.redis[p].dirty {
		k.ghosts[o] = true
	}
	for o := range w.redis[p].pointers {
		if _, ok := kept[o]; !ok {
			k.ghosts[o] = true
		}
	}
	for o := range kept {
		if _, ok := w.redis[p].pointers[o]; !ok {
			k.ghosts[o] = true
		}
	}
	w.known[p] = k
	if now := w.redis[p].inc; now > 0 && now < inc {
		w.redis[p] = &simShard{inc: inc, frontier: to, settled: map[int64]bool{}, pointers: kept, dirty: map[int64]int64{}}
	}
	return true
}

// check loads and compares with what is known.
func (w *sim) check(j *Journal, what string) {
	loaded, err := j.Load(w.t.Context(), tenant, simSub)
	if err != nil {
		w.t.Fatal(err)
	}
	for p, k := range w.known {
		if w.seeking > 0 && w.sought == p {
			continue // the seek may be in the journal, or not
		}
		s := loaded.Shards[int32(p)]
		if s == nil {
			if len(k.acked) > 0 {
				w.fail("%s: partition %d: no state, and %d offsets were settled", what, p, len(k.acked))
			}
			continue
		}
		pointers := loaded.Pointers[int32(p)]
		is := func(o int64) bool {
			return o < s.Frontier || slices.ContainsFunc(s.Settled, func(r Range) bool { return o >= r.From && o < r.To })
		}
		for o := range k.acked {
			if _, owed := pointers[o]; !is(o) && !(owed && k.ghosts[o]) {
				w.fail("%s: partition %d: %d was settled in a successful Write and is not: %+v, pointers %+v", what, p, o, s, pointers)
			}
		}
		for o := range s.Frontier + 60 {
			if is(o) && !k.ever[o] {
				w.fail("%s: partition %d: %d is settled and nobody settled it: %+v", what, p, o, s)
			}
		}
		for o, want := range k.pointers {
			got, ok := pointers[o]
			switch {
			case k.ghosts[o]:
			case !ok && !want.ended && !w.later(p, o):
				w.fail("%s: partition %d: pointer %d of %+v is missing", what, p, o, want)
			case ok && got.Less(want.Version):
				w.fail("%s: partition %d: pointer %d is %+v, a successful Write had %+v", what, p, o, got, want)
			}
		}
	}
}

// later says whether the pointer has ended in Redis: the end may be in the journal and its Write not answered.
func (w *sim) later(p int, o int64) bool {
	_, live := w.redis[p].pointers[o]
	return !live
}

func (w *sim) fresh() *Journal {
	j, err := New(Options{Log: w.log, Clock: w.clock, Rand: source{w.rng}, Partitions: 2})
	if err != nil {
		w.t.Fatal(err)
	}
	return j
}

func (w *sim) run(steps int) {
	for step := range steps {
		w.step++
		what := fmt.Sprintf("step %d", step)
		switch roll := w.rng.IntN(100); {
		case roll < 40:
			w.work()
		case roll < 60:
			w.flush(w.rng.IntN(simNodes))
		case roll < 84:
			w.land(true)
		case roll < 88:
			w.log.compact(true)
		case roll < 92:
			w.check(w.fresh(), what+", a new process")
		case roll < 95:
			w.check(w.nodes[w.rng.IntN(simNodes)], what)
		case roll < 97:
			w.open(w.rng.IntN(simNodes))
		case roll < 98:
			w.lose()
			w.open(w.rng.IntN(simNodes))
			w.open(w.rng.IntN(simNodes))
		case roll < 99:
			w.seek(w.rng.IntN(simNodes), w.rng.IntN(simPartitions))
		default: // nothing is on its way for so long
			for w.writes > 0 {
				w.land(false)
			}
			for n := range simNodes {
				w.settleLimbo(n)
			}
			w.clock.Advance(DefaultGrace + collectAfter + time.Second)
		}
	}
	w.finish()
}

// finish lets everything land, flushes what is marked, and compares exactly.
func (w *sim) finish() {
	drain := func() {
		for w.writes > 0 {
			w.land(false)
		}
	}
	drain()
	if w.redis[0].inc == 0 || w.redis[1].inc == 0 {
		w.open(0)
		drain()
	}
	for range 2 {
		w.flush(0)
		drain()
	}
	for n := range simNodes {
		w.settleLimbo(n)
	}
	for round := range 3 {
		w.log.compact(true)
		for i, j := range append([]*Journal{w.fresh()}, w.nodes...) {
			what := fmt.Sprintf("end, round %d, journal %d", round, i)
			w.check(j, what)
			w.exact(j, what)
		}
		// The keys of what is over are freed, and nothing changes.
		w.clock.Advance(max(DefaultGrace+collectAfter, maxAge) + time.Second)
		w.open(round)
		drain()
		w.flush(round)
		drain()
	}
}

func (w *sim) exact(j *Journal, what string) {
	loaded, err := j.Load(w.t.Context(), tenant, simSub)
	if err != nil {
		w.t.Fatal(err)
	}
	for p, s := range w.redis {
		k := w.known[p]
		for o, v := range s.pointers {
			got, ok := loaded.Pointers[int32(p)][o]
			got.Version, v.Version = Version{}, Version{}
			if !k.ghosts[o] && (!ok || got != v) {
				w.fail("%s: partition %d: pointer %d is %+v (%v), want %+v", what, p, o, got, ok, v)
			}
		}
		for o, got := range loaded.Pointers[int32(p)] {
			if _, ok := s.pointers[o]; !ok && !k.ghosts[o] {
				w.fail("%s: partition %d: pointer %+v is over", what, p, got)
			}
		}
	}
}

// simulate runs one seed. change may break something; then faults are expected, and given.
func simulate(t *testing.T, seed uint64, steps int, change func(*sim)) (w *sim) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w = newSim(t, seed)
		if change != nil {
			w.expect = true
			change(w)
		}
		defer func() {
			if r := recover(); r != nil && r != any(simFault{}) {
				panic(r)
			}
		}()
		w.open(0)
		for w.writes > 0 {
			w.land(false)
		}
		w.run(steps)
	})
	return w
}

const simSteps = 400

func TestSimulation(t *testing.T) {
	stale := 0
	for seed := range uint64(100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { stale += simulate(t, seed, simSteps, nil).stale })
	}
	if stale == 0 {
		t.Error("no opening was ever stale: the simulation sees too little")
	}
}

// The simulation notices when writers have keys in common.
func TestSimulationNoticesSharedKeys(t *testing.T) {
	found := 0
	for seed := range uint64(10) {
		w := simulate(t, seed, simSteps, func(w *sim) {
			for _, j := range w.nodes {
				j.writers = [lanes]uint64{7, 7, 7, 7}
			}
		})
		found += len(w.faults)
	}
	if found == 0 {
		t.Error("ten runs with one writer's number for all have found nothing")
	}
}
