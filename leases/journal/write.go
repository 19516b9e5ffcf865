package journal

import (
	"context"
	"errors"
	"fmt"

	"github.com/forebaymq/forebay/metadata"
)

// maxAppendBytes is how much Write puts into one append. More is cut into several.
const maxAppendBytes = 4 << 20

// maxNotes is of how many shards a Journal remembers what it wrote last.
const maxNotes = 100_000

// shardNotes is what a Journal remembers of a shard that it wrote.
type shardNotes struct {
	last   Version // of the report that this process wrote last
	offset int64   // and where it is
	old    []oldState
}

// oldState is a record of an earlier incarnation that an opening of this process found. It can go once a later report has everything in it.
type oldState struct {
	key         string
	incarnation int64 // reports and openings of this one and later ones are not old
	void        bool  // from before a seek
	state
}

// Write appends entries and gives the journal offset of each; the incarnation that an opening begins is its offset + 1. One Write is one atomic
// append up to 4 MiB; more is cut, in order. Several subscriptions of the tenant may be mixed. Writes of one subscription wait for each other.
//
// Errors are those of the Log, OUTCOME_UNKNOWN among them; LEASES_UNAVAILABLE with ErrStale as its cause where an opening was overtaken: then
// the whole Write counts for nothing that its caller may rely on. Everything may be written again after any error.
func (j *Journal) Write(ctx context.Context, tenant string, entries []Entry) ([]int64, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	offsets, err := j.write(ctx, tenant, entries)
	if err != nil {
		if errors.Is(err, ErrStale) {
			j.m.stale.Inc()
		}
		return nil, fmt.Errorf("write the journal: %w", err)
	}
	j.collect(ctx)
	return offsets, nil
}

func (j *Journal) write(ctx context.Context, tenant string, entries []Entry) ([]int64, error) {
	if err := checkEntries(entries); err != nil {
		return nil, err
	}
	ids := make([]metadata.SubscriptionID, 0, 8)
	for i := range entries {
		if id := entries[i].Key.Subscription; len(ids) == 0 || ids[len(ids)-1] != id {
			ids = append(ids, id)
		}
	}
	unlock, err := j.lock(ctx, ids)
	if err != nil {
		return nil, err
	}
	defer unlock()
	w := &writing{j: j, tenant: tenant, entries: entries, offsets: make([]int64, len(entries)), opened: map[ShardKey]openedAt{}}
	if err := w.before(ctx); err != nil {
		return nil, err
	}
	if err := w.appendAll(ctx); err != nil {
		return nil, err
	}
	if err := w.after(ctx); err != nil {
		return nil, err
	}
	w.note()
	return w.offsets, nil
}

// checkEntries says what is wrong with entries before anything is written.
func checkEntries(entries []Entry) error {
	opens := map[ShardKey]bool{}
	for i := range entries {
		e := &entries[i]
		var err error
		switch {
		case e.Key.Partition < 0:
			err = fmt.Errorf("partition %d", e.Key.Partition)
		case e.Shard != nil:
			s := stateOf(e)
			err = s.check()
			switch {
			case err != nil:
			case e.Seek && !e.Open:
				err = errors.New("a seek opens an incarnation")
			case e.Open && opens[e.Key]:
				err = errors.New("a shard is opened twice")
			case e.Shard.Incarnation < 0 || e.Shard.Incarnation == 0 && !e.Open:
				err = fmt.Errorf("a state of incarnation %d", e.Shard.Incarnation)
			case e.Open:
				opens[e.Key] = true
			}
		case e.Open || e.Seek:
			err = errors.New("an opening without a state")
		default:
			m := markOf(e)
			if err = m.check(); err == nil && m.pointer.Incarnation == 0 && !opens[e.Key] {
				err = errors.New("a pointer without an incarnation")
			}
		}
		if err != nil {
			return fmt.Errorf("entry %d, subscription %d partition %d: %w", i, e.Key.Subscription, e.Key.Partition, err)
		}
	}
	return nil
}

func stateOf(e *Entry) state {
	s := state{frontier: e.Shard.Frontier, skipped: e.Shard.Skipped, settled: e.Shard.Settled}
	if !e.Open {
		s.sequence = e.Shard.Sequence
	}
	return s
}

func markOf(e *Entry) mark {
	if e.Pointer != nil {
		return mark{pointer: *e.Pointer}
	}
	return mark{removed: true, pointer: Pointer{Offset: e.Remove, Version: e.Version}}
}

// openedAt says where the opening of a shard is within one Write.
type openedAt struct {
	entry       int
	incarnation int64 // 0: in the append that is being put together
	at          int64 // which record of its journal partition in that append
}

// writing is one Write.
type writing struct {
	j       *Journal
	tenant  string
	entries []Entry
	offsets []int64
	opened  map[ShardKey]openedAt
	known   map[metadata.SubscriptionID]*records // before openings

	// The append that is being put together.
	records []Record
	owners  []int // entry of each record, -1 = none
	sizes   map[int32]int64
	bytes   int
}

// opens gives the subscriptions that have openings in the Write.
func (w *writing) opens() []metadata.SubscriptionID {
	var ids []metadata.SubscriptionID
	for i := range w.entries {
		if id := w.entries[i].Key.Subscription; w.entries[i].Open && (len(ids) == 0 || ids[len(ids)-1] != id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// before looks at what is there before anything is opened. An opening that is stale already is not written.
func (w *writing) before(ctx context.Context) error {
	w.known = map[metadata.SubscriptionID]*records{}
	for _, id := range w.opens() {
		if w.known[id] != nil {
			continue
		}
		rs, err := w.j.load(ctx, w.tenant, id)
		if err != nil {
			return err
		}
		w.known[id] = rs
	}
	for i := range w.entries {
		e := &w.entries[i]
		if !e.Open || e.Seek {
			continue
		}
		if s := w.known[e.Key.Subscription].shards[e.Key.Partition]; s != nil && s.current > e.Shard.Incarnation {
			return stale()
		}
	}
	return nil
}

// appendAll appends the entries, in order.
func (w *writing) appendAll(ctx context.Context) error {
	w.sizes = map[int32]int64{}
	for i := range w.entries {
		if err := w.add(ctx, i); err != nil {
			return err
		}
	}
	return w.flush(ctx)
}

// add puts one entry to the append.
func (w *writing) add(ctx context.Context, i int) error {
	e := &w.entries[i]
	k := key{subscription: e.Key.Subscription, partition: e.Key.Partition, writer: w.j.writer}
	switch {
	case e.Open:
		s := stateOf(e)
		if k.kind = kindSeek; !e.Seek {
			k.kind, k.incarnation = kindOpening, e.Shard.Incarnation
		}
		if err := w.put(ctx, i, k.encode(), s.encode()); err != nil {
			return err
		}
		number := partitionOf(k.subscription, w.j.o.Partitions)
		w.opened[e.Key] = openedAt{entry: i, at: w.sizes[number] - 1}
		return nil
	case e.Shard != nil:
		notes := w.j.notesOf(e.Key)
		if notes != nil && e.Shard.Less(notes.last) {
			w.offsets[i] = notes.offset // a later state of this writer is there: it must not be displaced
			return nil
		}
		s := stateOf(e)
		k.kind, k.incarnation = kindState, e.Shard.Incarnation
		if err := w.put(ctx, i, k.encode(), s.encode()); err != nil {
			return err
		}
		return w.free(ctx, notes, e, &s)
	}
	m := markOf(e)
	k.kind, k.offset, k.incarnation = kindPointer, m.pointer.Offset, m.pointer.Incarnation
	if m.pointer.Incarnation > 0 {
		return w.put(ctx, i, k.encode(), m.encode())
	}
	o := w.opened[e.Key]
	if m.removed && w.entries[o.entry].Seek && w.voided(e, w.entries[o.entry].Shard.Frontier) {
		w.offsets[i] = -1 // the seek says it already; see note
		return nil
	}
	if len(w.records) > 0 && w.bytes+keyPointerBytes+64+len(m.pointer.Reason) > maxAppendBytes {
		if err := w.flush(ctx); err != nil {
			return err
		}
		o = w.opened[e.Key]
	}
	if o.incarnation > 0 {
		k.incarnation = o.incarnation
	} else {
		m.relative = w.sizes[partitionOf(k.subscription, w.j.o.Partitions)] - o.at
	}
	return w.put(ctx, i, k.encode(), m.encode())
}

// voided says whether a seek to the frontier ends the pointer by itself.
func (w *writing) voided(e *Entry, frontier int64) bool {
	if e.Remove >= frontier {
		return true
	}
	s := w.known[e.Key.Subscription].shards[e.Key.Partition]
	if s == nil {
		return false
	}
	p := s.pointers[e.Remove]
	return p == nil || !s.live(p) || p.newest.Kind != Dead
}

// free puts tombstones to the append for what earlier incarnations left, as far as a report of a later one, in the same append, has it all.
func (w *writing) free(ctx context.Context, notes *shardNotes, e *Entry, s *state) error {
	if notes == nil || len(notes.old) == 0 {
		return nil
	}
	keep := notes.old[:0]
	for _, o := range notes.old {
		switch {
		case o.incarnation >= e.Shard.Incarnation:
			keep = append(keep, o)
		case o.void || covers(s, &o.state):
			if err := w.put(ctx, -1, []byte(o.key), nil); err != nil {
				return err
			}
			w.j.m.freed.Inc()
		}
	}
	notes.old = keep
	return nil
}

func (w *writing) put(ctx context.Context, entry int, k, v []byte) error {
	if len(w.records) > 0 && w.bytes+len(k)+len(v) > maxAppendBytes {
		if err := w.flush(ctx); err != nil {
			return err
		}
	}
	var id metadata.SubscriptionID
	if d, err := decodeKey(k); err == nil {
		id = d.subscription
	} else {
		return err
	}
	number := partitionOf(id, w.j.o.Partitions)
	w.records = append(w.records, Record{Partition: number, Key: k, Value: v})
	w.owners = append(w.owners, entry)
	w.sizes[number]++
	w.bytes += len(k) + len(v)
	return nil
}

// flush appends what was put together.
func (w *writing) flush(ctx context.Context) error {
	if len(w.records) == 0 {
		return nil
	}
	offsets, err := w.j.append(ctx, w.tenant, w.records)
	if err != nil {
		return err
	}
	for i, entry := range w.owners {
		if entry >= 0 {
			w.offsets[entry] = offsets[i]
		}
	}
	for k, o := range w.opened {
		if o.incarnation == 0 {
			o.incarnation = incarnationAt(w.offsets[o.entry])
			w.opened[k] = o
		}
	}
	w.records, w.owners, w.bytes = w.records[:0], w.owners[:0], 0
	clear(w.sizes)
	return nil
}

// append appends to the log.
func (j *Journal) append(ctx context.Context, tenant string, records []Record) (offsets []int64, err error) {
	err = j.withTopic(ctx, tenant, func(metadata.TopicID) error {
		offsets, err = j.o.Log.Append(ctx, tenant, Topic, records)
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(offsets) != len(records) {
		return nil, fmt.Errorf("the log gave %d offsets for %d records", len(offsets), len(records))
	}
	bytes := 0
	for i := range records {
		bytes += len(records[i].Key) + len(records[i].Value)
	}
	j.m.written.Add(float64(len(records)))
	j.m.writtenBytes.Add(float64(bytes))
	return offsets, nil
}

// after looks whether the openings count, now that everything before them is known, and notes what they made superfluous.
func (w *writing) after(ctx context.Context) error {
	seen := map[metadata.SubscriptionID]*records{}
	for _, id := range w.opens() {
		if seen[id] != nil {
			continue
		}
		rs, err := w.j.load(ctx, w.tenant, id)
		if err != nil {
			return err
		}
		seen[id] = rs
	}
	for i := range w.entries {
		e := &w.entries[i]
		if !e.Open {
			continue
		}
		s := seen[e.Key.Subscription].shards[e.Key.Partition]
		incarnation := incarnationAt(w.offsets[i])
		if s == nil || !s.counts(incarnation) {
			// A seek that a later seek has overtaken has had its effect.
			if !e.Seek || s == nil || s.seek.incarnation < incarnation {
				return stale()
			}
		}
		w.j.noteOld(e.Key, s, incarnation)
		w.j.ended(w.tenant, e.Key, s.over())
	}
	return nil
}

// note remembers what was written, for the next Write.
func (w *writing) note() {
	ends := map[ShardKey][]int64{}
	for i := range w.entries {
		e := &w.entries[i]
		switch {
		case e.Open:
		case e.Shard != nil:
			w.j.noteReport(e.Key, e.Shard.Version, w.offsets[i])
		case e.Pointer == nil:
			if w.offsets[i] < 0 {
				w.offsets[i] = w.offsets[w.opened[e.Key].entry]
				continue // after has noted it
			}
			ends[e.Key] = append(ends[e.Key], e.Remove)
		}
	}
	for k, offsets := range ends {
		w.j.ended(w.tenant, k, offsets)
	}
}

func (j *Journal) notesOf(k ShardKey) *shardNotes {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.shards[k] // changed only by who has the lock of the subscription
}

// notes gives what is remembered of a shard, to be changed by who has the lock of its subscription.
func (j *Journal) notes(k ShardKey) *shardNotes {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := j.mu.shards[k]
	if n == nil {
		if len(j.mu.shards) >= maxNotes { // nothing breaks: superfluous keys stay until the next opening
			clear(j.mu.shards)
		}
		n = &shardNotes{}
		j.mu.shards[k] = n
	}
	return n
}

func (j *Journal) noteReport(k ShardKey, v Version, offset int64) {
	if n := j.notes(k); !v.Less(n.last) {
		n.last, n.offset = v, offset
	}
}

// noteOld notes the states that an opening made superfluous.
func (j *Journal) noteOld(k ShardKey, s *shardRecords, incarnation int64) {
	n := j.notes(k)
	n.old = nil
	for i := range s.reports {
		if r := &s.reports[i]; r.incarnation < incarnation {
			n.old = append(n.old, oldState{r.key, r.incarnation, r.incarnation < s.seek.incarnation, r.state})
		}
	}
	for i := range s.openings {
		if o := &s.openings[i]; o.incarnation < incarnation {
			n.old = append(n.old, oldState{o.key, o.incarnation, !s.known(o), o.state})
		}
	}
}
