package journal

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/forebaymq/forebay/metadata"
)

// maxAppendBytes is how much Write puts into one append. More is cut into several.
const maxAppendBytes = 4 << 20

// Write appends entries and gives the journal offset of each; the incarnation that an opening begins is its offset + 1. One Write is one atomic
// append up to 4 MiB; more is cut, in order. Several subscriptions of the tenant may be mixed. What this Journal has written in a newer version
// already is left out, and the offset is that of the newer one.
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
	if !slices.ContainsFunc(entries, func(e Entry) bool { return e.Open }) { // an opening is on its way to Redis: it must not wait
		j.collect(ctx)
	}
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
	lane, release, err := j.lane(ctx, ids)
	if err != nil {
		return nil, err
	}
	defer release()
	w := &writing{j: j, tenant: tenant, writer: j.writers[lane], entries: entries, offsets: make([]int64, len(entries)), opened: map[ShardKey]openedAt{}}
	if err := w.before(ctx); err != nil {
		return nil, err
	}
	if err := w.appendAll(ctx); err != nil {
		return nil, err
	}
	if err := w.after(ctx); err != nil {
		if errors.Is(err, ErrStale) {
			w.revoke(ctx)
		}
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
	writer  uint64
	entries []Entry
	offsets []int64
	opened  map[ShardKey]openedAt
	known   map[metadata.SubscriptionID]*records // before openings

	// The append that is being put together.
	records []Record
	owners  []int // entry of each record
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

// asOpened is the offset of an entry that is left out because its shard's opening says as much. It becomes that of the opening.
const asOpened = -1

// add puts one entry to the append.
func (w *writing) add(ctx context.Context, i int) error {
	e := &w.entries[i]
	switch {
	case e.Open:
		return w.addOpening(ctx, i)
	case e.Shard != nil:
		return w.addReport(ctx, i)
	}
	m := markOf(e)
	if m.pointer.Incarnation == 0 {
		return w.addRelative(ctx, i, &m)
	}
	k := w.key(kindPointer, e)
	k.offset, k.incarnation = m.pointer.Offset, m.pointer.Incarnation
	w.j.mu.Lock()
	last := w.j.mu.notes.lastPointer(pointerKey{e.Key, k.offset})
	w.j.mu.Unlock()
	if m.pointer.Less(last.Version) {
		w.offsets[i] = last.offset
		return nil
	}
	return w.put(ctx, i, &k, m.encode())
}

func (w *writing) key(kind keyKind, e *Entry) key {
	return key{kind: kind, subscription: e.Key.Subscription, partition: e.Key.Partition, writer: w.writer}
}

func (w *writing) addOpening(ctx context.Context, i int) error {
	e := &w.entries[i]
	s, k := stateOf(e), w.key(kindSeek, e)
	if !e.Seek {
		k.kind, k.incarnation = kindOpening, e.Shard.Incarnation
	}
	if err := w.put(ctx, i, &k, s.encode()); err != nil {
		return err
	}
	w.opened[e.Key] = openedAt{entry: i, at: w.sizes[partitionOf(k.subscription, w.j.o.Partitions)] - 1}
	if e.Seek {
		return w.bury(ctx, i)
	}
	return nil
}

// bury ends dead letters that an earlier seek made void and that this one, because it goes further, would bring back.
func (w *writing) bury(ctx context.Context, i int) error {
	e := &w.entries[i]
	s := w.known[e.Key.Subscription].shards[e.Key.Partition]
	if s == nil {
		return nil
	}
	for _, o := range slices.Sorted(maps.Keys(s.pointers)) {
		if p := s.pointers[o]; p.removed || !s.void(&p.newest) || p.newest.Kind != Dead || o >= e.Shard.Frontier {
			continue
		}
		m := mark{removed: true, pointer: Pointer{Offset: o}}
		if err := w.putRelative(ctx, noEntry, e, &m); err != nil {
			return err
		}
	}
	return nil
}

// addReport puts a state to the append, and with it tombstones for what it makes superfluous.
func (w *writing) addReport(ctx context.Context, i int) error {
	e := &w.entries[i]
	s, k := stateOf(e), w.key(kindState, e)
	k.incarnation = e.Shard.Incarnation
	w.j.mu.Lock()
	last := w.j.mu.notes.reports[e.Key]
	stale := e.Shard.Less(last.Version)
	var free []string
	if !stale {
		free = w.j.mu.notes.superfluous(e.Key, e.Shard.Incarnation, &s)
	}
	w.j.mu.Unlock()
	if stale {
		w.offsets[i] = last.offset
		return nil
	}
	if err := w.put(ctx, i, &k, s.encode()); err != nil {
		return err
	}
	for _, f := range free {
		old, err := decodeKey([]byte(f))
		if err == nil {
			err = w.put(ctx, noEntry, &old, nil)
		}
		if err != nil {
			return err
		}
	}
	w.j.m.freed.Add(float64(len(free)))
	return nil
}

// addRelative puts a pointer to the append that is of the incarnation which the same Write opens.
func (w *writing) addRelative(ctx context.Context, i int, m *mark) error {
	e := &w.entries[i]
	if w.entries[w.opened[e.Key].entry].Seek && w.said(e, m) {
		w.offsets[i] = asOpened
		return nil
	}
	return w.putRelative(ctx, i, e, m)
}

func (w *writing) putRelative(ctx context.Context, i int, e *Entry, m *mark) error {
	// It must be in one append with the opening, or come when the opening has its offset.
	if err := w.room(ctx, keyPointerBytes+64+len(m.pointer.Reason)); err != nil {
		return err
	}
	k, o := w.key(kindPointer, e), w.opened[e.Key]
	k.offset, k.incarnation = m.pointer.Offset, o.incarnation
	if o.incarnation == 0 {
		m.relative = w.sizes[partitionOf(k.subscription, w.j.o.Partitions)] - o.at
	}
	return w.put(ctx, i, &k, m.encode())
}

// said says whether a seek has the same effect without the entry: what it ends anyway, and dead letters that stay as they are.
func (w *writing) said(e *Entry, m *mark) bool {
	frontier := w.entries[w.opened[e.Key].entry].Shard.Frontier
	var known *pointerRecords
	s := w.known[e.Key.Subscription].shards[e.Key.Partition]
	if s != nil {
		known = s.pointers[m.pointer.Offset]
	}
	stays := known != nil && s.live(known) && known.newest.Kind == Dead && known.newest.Offset < frontier
	if m.removed {
		return !stays
	}
	same := m.pointer
	if known != nil {
		same.Version = known.newest.Version
	}
	return stays && same == known.newest
}

// noEntry is the owner of records that no entry asked for.
const noEntry = -1

func (w *writing) put(ctx context.Context, entry int, k *key, v []byte) error {
	encoded := k.encode()
	if err := w.room(ctx, len(encoded)+len(v)); err != nil {
		return err
	}
	number := partitionOf(k.subscription, w.j.o.Partitions)
	w.records = append(w.records, Record{Partition: number, Key: encoded, Value: v})
	w.owners = append(w.owners, entry)
	w.sizes[number]++
	w.bytes += len(encoded) + len(v)
	return nil
}

// room sends what was put together when there is no room for more.
func (w *writing) room(ctx context.Context, bytes int) error {
	if len(w.records) > 0 && w.bytes+bytes > maxAppendBytes {
		return w.flush(ctx)
	}
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
		if entry != noEntry {
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
		w.j.mu.Lock()
		w.j.mu.notes.opened(e.Key, s, incarnation)
		w.j.mu.Unlock()
		w.j.noteEnds(w.tenant, e.Key, s.over())
	}
	return nil
}

// revoke takes openings back of which some were overtaken. Those that were not would overtake in turn what another node is opening now, and two
// nodes could go on like that for long.
func (w *writing) revoke(ctx context.Context) {
	var records []Record
	for i := range w.entries {
		e := &w.entries[i]
		if !e.Open || e.Seek {
			continue
		}
		k := w.key(kindOpening, e)
		k.incarnation = e.Shard.Incarnation
		records = append(records, Record{Partition: partitionOf(k.subscription, w.j.o.Partitions), Key: k.encode()})
	}
	if _, err := w.j.append(ctx, w.tenant, records); err != nil {
		w.j.o.Logger.Debug("stale openings stay in the journal", "tenant", w.tenant, "openings", len(records), "error", err)
	}
}

// note remembers what was written, for the next Write.
func (w *writing) note() {
	ends := map[ShardKey][]ended{}
	w.j.mu.Lock()
	for i := range w.entries {
		e := &w.entries[i]
		if w.offsets[i] == asOpened {
			w.offsets[i] = w.offsets[w.opened[e.Key].entry]
			continue // after has noted it
		}
		switch {
		case e.Open:
		case e.Shard != nil:
			w.j.mu.notes.report(e.Key, e.Shard.Version, w.offsets[i])
		default:
			m := markOf(e)
			if m.pointer.Incarnation > 0 {
				w.j.mu.notes.pointer(pointerKey{e.Key, m.pointer.Offset}, m.pointer.Version, w.offsets[i])
			}
			if m.removed {
				ends[e.Key] = append(ends[e.Key], ended{e.Remove, m.pointer.Version})
			}
		}
	}
	w.j.mu.Unlock()
	for k, list := range ends {
		w.j.noteEnds(w.tenant, k, list)
	}
}
