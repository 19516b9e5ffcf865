package journal

import (
	"cmp"
	"maps"
	"slices"

	"github.com/forebaymq/forebay/metadata"
)

// raw is one record of a subscription: the newest of its key.
type raw struct {
	key    string
	offset int64
	value  []byte
}

// records are the records of one subscription, taken apart.
type records struct {
	shards map[int32]*shardRecords
	tasks  map[string]Task
	bad    int // records that this version cannot read: they are left out
}

// beginning is a seek or an opening.
type beginning struct {
	key         string
	incarnation int64 // that it begins; of a seek 0 = there is none
	base        int64 // of an opening: the incarnation that it carries on from
	overtaken   bool  // of an opening: another incarnation had begun that it did not know; set by chain
	state
}

// report is what one writer knew last in one incarnation.
type report struct {
	key         string
	incarnation int64
	state
}

// shardRecords are the records of one shard.
type shardRecords struct {
	seek     beginning
	openings []beginning
	reports  []report
	current  int64 // the newest incarnation that counts, 0 = the shard was never opened; set by chain
	pointers map[int64]*pointerRecords
}

// pointerRecords are the records of one pointer.
type pointerRecords struct {
	newest  Pointer
	removed bool
	keys    []string // of all records, the newest among them
}

// incarnationAt is the incarnation that a seek or an opening begins whose record is at the offset. Never 0, which means never opened.
func incarnationAt(offset int64) int64 { return offset + 1 }

// resolve takes the records of a subscription apart.
func resolve(all []raw, id metadata.SubscriptionID) *records {
	out := &records{shards: map[int32]*shardRecords{}, tasks: map[string]Task{}}
	for i := range all {
		if err := out.add(&all[i], id); err != nil {
			out.bad++
		}
	}
	for _, s := range out.shards {
		s.chain()
	}
	return out
}

func (rs *records) shard(p int32) *shardRecords {
	s := rs.shards[p]
	if s == nil {
		s = &shardRecords{pointers: map[int64]*pointerRecords{}}
		rs.shards[p] = s
	}
	return s
}

func (rs *records) add(r *raw, id metadata.SubscriptionID) error {
	k, err := decodeKey([]byte(r.key))
	if err != nil {
		return err
	}
	switch k.kind {
	case kindTask:
		t, err := decodeTask(k.task, id, r.value)
		if err != nil {
			return err
		}
		rs.tasks[t.ID] = t
	case kindPointer:
		m, err := decodeMark(r.value)
		if err != nil {
			return err
		}
		rs.shard(k.partition).addPointer(&k, r, &m)
	default:
		s, err := decodeState(r.value)
		if err != nil {
			return err
		}
		shard := rs.shard(k.partition)
		switch k.kind {
		case kindSeek:
			shard.seek = beginning{key: r.key, incarnation: incarnationAt(r.offset), state: s}
		case kindOpening:
			shard.openings = append(shard.openings, beginning{key: r.key, incarnation: incarnationAt(r.offset), base: k.incarnation, state: s})
		case kindState:
			shard.reports = append(shard.reports, report{r.key, k.incarnation, s})
		}
	}
	return nil
}

func (s *shardRecords) addPointer(k *key, r *raw, m *mark) {
	p := m.pointer
	p.Offset, p.Incarnation = k.offset, k.incarnation
	if m.relative > 0 {
		p.Incarnation = incarnationAt(r.offset - m.relative)
	}
	have := s.pointers[k.offset]
	if have == nil {
		s.pointers[k.offset] = &pointerRecords{newest: p, removed: m.removed, keys: []string{r.key}}
		return
	}
	have.keys = append(have.keys, r.key)
	// Of two with one version the pointer counts and not the end: a repeated delivery is better than none.
	if have.newest.Less(p.Version) || have.removed && !m.removed && have.newest.Version == p.Version {
		have.newest, have.removed = p, m.removed
	}
}

// void says whether a seek has done away with the pointer.
func (s *shardRecords) void(p *Pointer) bool {
	return p.Incarnation < s.seek.incarnation && (p.Kind != Dead || p.Offset >= s.seek.frontier)
}

// live says whether the pointer is one.
func (s *shardRecords) live(p *pointerRecords) bool {
	return !p.removed && !s.void(&p.newest) && !s.settledSince(&p.newest)
}

// settledSince says whether a later incarnation has settled a record that the pointer calls unsettled. Whoever knows the pointer ends it when it
// settles the record; so that incarnation was built from a journal in which the pointer was not yet: the pointer's write was under way
// when Redis was lost, and was overtaken by the opening.
func (s *shardRecords) settledSince(p *Pointer) bool {
	if !p.Attached {
		return false
	}
	later := func(incarnation int64, st *state) bool { return incarnation > p.Incarnation && st.settles(p.Offset) }
	for i := range s.reports {
		if later(s.reports[i].incarnation, &s.reports[i].state) {
			return true
		}
	}
	return slices.ContainsFunc(s.openings, func(o beginning) bool { return s.known(&o) && later(o.incarnation, &o.state) })
}

// chain walks the incarnations in the order in which they began. An opening counts when it carries on from the newest one before it. One that does
// not was overtaken: its writer was told so and did not use it. Where there are reports of an incarnation, it was used.
func (s *shardRecords) chain() {
	slices.SortFunc(s.openings, func(a, b beginning) int { return cmp.Compare(a.incarnation, b.incarnation) })
	used := make([]int64, len(s.reports))
	for i := range s.reports {
		used[i] = s.reports[i].incarnation
	}
	slices.Sort(used)
	s.current = s.seek.incarnation
	for i := range s.openings {
		o := &s.openings[i]
		for len(used) > 0 && used[0] < o.incarnation {
			s.current = max(s.current, used[0])
			used = used[1:]
		}
		if o.overtaken = o.base < s.current || o.incarnation < s.current; !o.overtaken {
			s.current = o.incarnation
		}
	}
	if len(used) > 0 {
		s.current = max(s.current, used[len(used)-1])
	}
}

// known says whether the opening was built on what the last seek, or something after it, left. One that was not carries the state from before
// the seek.
func (s *shardRecords) known(o *beginning) bool {
	return o.incarnation > s.seek.incarnation && o.base >= s.seek.incarnation
}

// counts says whether the opening of an incarnation is there and was not overtaken.
func (s *shardRecords) counts(incarnation int64) bool {
	return incarnation == s.seek.incarnation || slices.ContainsFunc(s.openings, func(o beginning) bool { return o.incarnation == incarnation && !o.overtaken })
}

// opened says whether the shard has a state at all.
func (s *shardRecords) opened() bool {
	return s.seek.incarnation > 0 || len(s.openings) > 0 || len(s.reports) > 0
}

// version is the newest incarnation with the highest sequence that is known of it.
func (s *shardRecords) version() Version {
	v := Version{Incarnation: s.current}
	for i := range s.reports {
		if s.reports[i].incarnation == s.current {
			v.Sequence = max(v.Sequence, s.reports[i].sequence)
		}
	}
	return v
}

// state puts together what is settled. Failed records above the frontier are not, and a record of them counts more than one that
// says otherwise: it may have been redriven.
func (s *shardRecords) state() *Shard {
	var f facts
	if s.seek.incarnation > 0 {
		f.add(&s.seek.state)
	}
	for i := range s.openings {
		if s.known(&s.openings[i]) {
			f.add(&s.openings[i].state)
		}
	}
	for i := range s.reports {
		if s.reports[i].incarnation >= s.seek.incarnation {
			f.add(&s.reports[i].state)
		}
	}
	var owed []int64
	for o, p := range s.pointers {
		if s.live(p) && (p.newest.Kind == Retry || p.newest.Kind == Dead && p.newest.CopyPending) {
			owed = append(owed, o)
		}
	}
	frontier, settled := f.normal(owed)
	return &Shard{Version: s.version(), Frontier: frontier, Settled: settled, Skipped: f.skipped}
}

// crowd is how many states of a shard are no crowd: those of some nodes with some lanes each.
const crowd = 32

// loaded gives what a caller of Load sees.
func (rs *records) loaded() *Loaded {
	l := &Loaded{Shards: map[int32]*Shard{}, Pointers: map[int32]map[int64]Pointer{}, Tasks: rs.tasks}
	for partition, s := range rs.shards {
		if s.opened() {
			l.Shards[partition] = s.state()
		}
		if len(s.reports)+len(s.openings) > crowd {
			if l.Crowded == nil {
				l.Crowded = map[int32]bool{}
			}
			l.Crowded[partition] = true
		}
		live := map[int64]Pointer{}
		for o, p := range s.pointers {
			if s.live(p) {
				live[o] = p.newest
			}
		}
		if len(live) > 0 {
			l.Pointers[partition] = live
		}
	}
	return l
}

// over lists the pointers of a shard that are no more and whose records can go.
func (s *shardRecords) over() []ended {
	var out []ended
	for _, o := range slices.Sorted(maps.Keys(s.pointers)) {
		if p := s.pointers[o]; !s.live(p) {
			out = append(out, ended{o, p.newest.Version})
		}
	}
	return out
}
