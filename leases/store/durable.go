package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/forebaymq/forebay/leases/journal"
)

// Export gives the durable state of shards that are dirty, or of the named ones, dirty or not; those that are not loaded are left out. Each is
// consistent in itself.
func (s *Store) Export(ctx context.Context, q *Queue, partitions []int32) ([]Exported, error) {
	if partitions != nil && len(partitions) == 0 {
		return nil, nil
	}
	args := make([]any, len(partitions))
	for i, p := range partitions {
		args[i] = p
	}
	r, err := s.run(ctx, scriptExport, q, args...)
	if err != nil {
		return nil, err
	}
	out := make([]Exported, r.count())
	for i := range out {
		e := &out[i]
		e.Partition = r.partition()
		e.Shard.Incarnation, e.Shard.Sequence, e.Shard.Frontier, e.Shard.Skipped = r.int(), r.int(), r.int(), r.int()
		for range r.count() {
			e.Shard.Settled = append(e.Shard.Settled, journal.Range{From: r.int(), To: r.int()})
		}
		for range r.count() {
			offset := r.int()
			if rest := r.rest; r.word() == "-" {
				e.Removed = append(e.Removed, offset)
			} else {
				r.rest = rest
				p := r.pointer()
				p.Offset = offset
				e.Changed = append(e.Changed, p)
			}
		}
	}
	return out, s.finished(scriptExport, r)
}

// Clean takes the marks of journalled states away where nothing has changed since, and forgets old finished leases.
func (s *Store) Clean(ctx context.Context, q *Queue, es []Exported) error {
	args := make([]any, 0, 3*len(es))
	for i := range es {
		args = append(args, es[i].Partition, es[i].Shard.Incarnation, es[i].Shard.Sequence)
	}
	_, err := s.effects(ctx, scriptClean, q, args...)
	return err
}

// Survey says what Redis has of a subscription, opened or not.
func (s *Store) Survey(ctx context.Context, q *Queue) (map[int32]journal.Version, error) {
	r, err := s.any(ctx, scriptSurvey, q)
	if err != nil {
		return nil, err
	}
	have := map[int32]journal.Version{}
	for range r.count() {
		p := r.partition()
		have[p] = journal.Version{Incarnation: r.int(), Sequence: r.int()}
	}
	return have, s.finished(scriptSurvey, r)
}

// any calls a script on a subscription that need not be opened. A Redis that lost its scripts is given them, and asked again.
func (s *Store) any(ctx context.Context, sc script, q *Queue, args ...any) (*reply, error) {
	for {
		e := s.edition.Load()
		r, err := s.eval(ctx, e, sc, q, args)
		var nl *NotLoadedError
		if !asNotLoaded(err, &nl) || s.edition.Load() == e {
			return r, err
		}
	}
}

// Load puts shards in place, one script or several each. The caller has written their openings to the journal. A shard that is not loaded to its
// end is absent.
func (s *Store) Load(ctx context.Context, q *Queue, rs []LoadRequest) error {
	e := s.edition.Load()
	for i := range rs {
		if err := s.loadShard(ctx, e, q, &rs[i]); err != nil {
			return fmt.Errorf("load partition %d: %w", rs[i].Partition, err)
		}
	}
	return nil
}

// loadStep is how many pointers or settled ranges one script puts in place.
const loadStep = 2000

func (s *Store) loadShard(ctx context.Context, e *edition, q *Queue, r *LoadRequest) error {
	step := func(name string, ranges []journal.Range, pointers []journal.Pointer, settled *journal.Shard) error {
		args := make([]any, 0, 8+2*len(ranges)+2*len(pointers))
		args = append(args, r.Partition, r.Incarnation, name, settled.Frontier, settled.Skipped, len(ranges))
		for _, x := range ranges {
			args = append(args, x.From, x.To)
		}
		args = append(args, len(pointers))
		for i := range pointers {
			p := &pointers[i]
			args = append(args, pad(p.Offset), packPointer(p, isSettled(settled, p.Offset)))
		}
		args = append(args, r.Over)
		_, err := s.eval(ctx, e, scriptLoad, q, args)
		var nl *NotLoadedError
		if asNotLoaded(err, &nl) {
			return ErrStale // another life of Redis: what the caller knows of it is of no use
		}
		return err
	}
	if r.Keep {
		return step("keep", nil, nil, &r.Shard)
	}
	state, pointers := normal(r)
	ranges := state.Settled
	if len(ranges)+len(pointers) <= loadStep {
		return step("only", ranges, pointers, state)
	}
	for name := "first"; ; name = "more" {
		n := min(len(ranges), loadStep)
		k := min(len(pointers), loadStep-n)
		if n == len(ranges) && k == len(pointers) {
			return step("last", ranges, pointers, state)
		}
		if err := step(name, ranges[:n], pointers[:k], state); err != nil {
			return err
		}
		ranges, pointers = ranges[n:], pointers[k:]
	}
}

// normal gives the state as the scripts hold it: pointers ascending, ranges neither touching each other nor the frontier. A record whose pointer
// says that the frontier need not wait for it counts as settled, whether the journalled ranges say so already or not: pointer and state are two
// entries of the journal.
func normal(r *LoadRequest) (*journal.Shard, []journal.Pointer) {
	pointers := slices.Clone(r.Pointers)
	slices.SortFunc(pointers, func(a, b journal.Pointer) int { return int(min(1, max(-1, a.Offset-b.Offset))) })
	ranges := slices.Clone(r.Shard.Settled)
	for _, p := range pointers {
		if p.Kind == journal.Scheduled || p.Kind == journal.Dead && !p.CopyPending || p.Kind == journal.Retry && p.Attempts == 0 {
			ranges = append(ranges, journal.Range{From: p.Offset, To: p.Offset + 1})
		}
	}
	slices.SortFunc(ranges, func(a, b journal.Range) int { return int(min(1, max(-1, a.From-b.From))) })
	out := r.Shard
	out.Settled = nil
	for _, x := range ranges {
		switch last := len(out.Settled) - 1; {
		case x.To <= out.Frontier:
		case x.From <= out.Frontier:
			out.Frontier = x.To
		case last >= 0 && x.From <= out.Settled[last].To:
			out.Settled[last].To = max(out.Settled[last].To, x.To)
		default:
			out.Settled = append(out.Settled, x)
		}
	}
	return &out, pointers
}

func isSettled(s *journal.Shard, offset int64) bool {
	if offset < s.Frontier {
		return true
	}
	i, found := slices.BinarySearchFunc(s.Settled, offset, func(r journal.Range, o int64) int { return int(min(1, max(-1, r.From-o))) })
	return found || i > 0 && offset < s.Settled[i-1].To
}

// Ready marks a subscription as loaded. life is that in which its opening began; ErrStale when there is a newer one.
func (s *Store) Ready(ctx context.Context, q *Queue, life uint64) error {
	e := s.edition.Load()
	if e.life != life {
		return ErrStale
	}
	if _, err := s.eval(ctx, e, scriptReady, q, nil); err != nil {
		var nl *NotLoadedError
		if asNotLoaded(err, &nl) {
			return ErrStale
		}
		return err
	}
	s.opened.Lock()
	defer s.opened.Unlock()
	s.opened.in[q.ID] = life
	return nil
}

// Evict takes an idle subscription out of Redis; false when something of it is dirty, leased or due.
func (s *Store) Evict(ctx context.Context, q *Queue) (bool, error) {
	r, err := s.run(ctx, scriptRemove, q, "evict")
	if err != nil {
		return false, err
	}
	gone := r.flag()
	if gone {
		s.forget(q, s.Life())
	}
	return gone, s.finished(scriptRemove, r)
}

// Drop removes everything of a subscription that was deleted.
func (s *Store) Drop(ctx context.Context, q *Queue) error {
	r, err := s.any(ctx, scriptRemove, q, "drop")
	if err != nil {
		return err
	}
	r.flag()
	s.forget(q, s.Life())
	return s.finished(scriptRemove, r)
}
