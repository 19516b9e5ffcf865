package leases

import (
	"context"
	"errors"
	"slices"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/leases/store"
	"github.com/forebaymq/forebay/metadata"
)

// discardStep is how many dead letters one call to the store forgets.
const discardStep = 1000

// DeadLetters lists dead letters, those that died first first. With records a page ends where they have api.MaxReadBytes, so that an element without
// a record is one whose record cannot be read any more.
func (e *Engine) DeadLetters(ctx context.Context, n Name, after string, limit int, withRecords bool) ([]DeadLetter, string, error) {
	q, err := e.resolve(ctx, n)
	if err != nil {
		return nil, "", err
	}
	limit = min(max(limit, 1), api.MaxListLimit)
	found, next, err := e.deadLetters(ctx, q, after, limit)
	if err != nil {
		return nil, "", err
	}
	infos, err := e.o.View.PartitionInfos(q.sub.TopicID)
	if err != nil {
		return nil, "", err
	}
	out := deadLetterViews(found, infos)
	if !withRecords {
		return out, next, nil
	}
	var positions []Target
	for i := range out {
		if !out[i].Expired {
			positions = append(positions, Target{out[i].Partition, out[i].Offset})
		}
	}
	records, reached, err := e.records(ctx, q, positions, api.MaxReadBytes)
	if err != nil {
		return nil, "", err
	}
	if reached < len(positions) {
		// The page ends before the first record that did not fit; the store says what goes on after it.
		end := slices.IndexFunc(out, func(d DeadLetter) bool { return Target{d.Partition, d.Offset} == positions[reached] })
		if found, next, err = e.deadLetters(ctx, q, after, end); err != nil {
			return nil, "", err
		}
		out = deadLetterViews(found, infos)
	}
	for i := range out {
		out[i].Record = records[Target{out[i].Partition, out[i].Offset}]
	}
	return out, next, nil
}

// deadLetterViews shows dead letters as the API does. One whose record retention has deleted is expired, whether or not its pointer says so yet.
func deadLetterViews(found []store.DeadLetter, infos []metadata.PartitionInfo) []DeadLetter {
	out := make([]DeadLetter, len(found))
	for i := range found {
		d := &found[i]
		out[i] = DeadLetter{
			Partition: d.Partition, Offset: d.Offset, Attempts: d.Attempts, Reason: d.Reason, FirstFailedAt: d.FirstFailed, DeadAt: d.LastFailed,
			Expired: d.Expired || int(d.Partition) < len(infos) && d.Offset < infos[d.Partition].LogStart,
		}
	}
	return out
}

func (e *Engine) deadLetters(ctx context.Context, q *queue, after string, limit int) (found []store.DeadLetter, next string, err error) {
	err = e.call(ctx, q, func(ctx context.Context) (err error) {
		found, next, err = e.o.Store.DeadLetters(ctx, &q.store, after, limit)
		return err
	})
	if errors.Is(err, store.ErrCursor) {
		err = fieldError(api.CodeInvalidRequest, "cursor", "the cursor is not one that a listing answered")
	}
	return found, next, err
}

// Discard forgets dead letters: their records stay in the log and are not delivered again. It says how many it forgot; those that were none are
// passed. All means those that were dead when the call began.
func (e *Engine) Discard(ctx context.Context, n Name, sel DeadLetterSelection) (discarded int64, err error) {
	q, err := e.resolve(ctx, n)
	if err != nil {
		return 0, err
	}
	if err := checkSelection(q, sel); err != nil {
		return 0, err
	}
	now, err := e.storeNow(ctx, q)
	if err != nil {
		return 0, err
	}
	for selection := range chunkSelection(sel, now) {
		for {
			var done int
			var f *store.Effects
			err := e.call(ctx, q, func(ctx context.Context) (err error) {
				done, f, err = e.o.Store.Discard(ctx, &q.store, selection, discardStep)
				return err
			})
			if err != nil {
				return discarded, err
			}
			e.effects(q, f)
			discarded += int64(done)
			if done == 0 || !selection.All {
				break
			}
		}
	}
	return discarded, nil
}

// chunkSelection cuts a selection into what one call to the store may carry.
func chunkSelection(sel DeadLetterSelection, before int64) func(yield func(store.Selection) bool) {
	return func(yield func(store.Selection) bool) {
		if sel.All {
			yield(store.Selection{All: true, Before: before})
			return
		}
		targets := journalTargets(sel.Offsets)
		for len(targets) > 0 {
			n := min(len(targets), discardStep)
			if !yield(store.Selection{Targets: targets[:n], Before: before}) {
				return
			}
			targets = targets[n:]
		}
	}
}

func journalTargets(ts []Target) []journal.Target {
	out := make([]journal.Target, len(ts))
	for i, t := range ts {
		out[i] = journal.Target{Partition: t.Partition, Offset: t.Offset}
	}
	return out
}

// checkSelection refuses a selection of nothing, of both, of too many, and of partitions that are not there.
func checkSelection(q *queue, sel DeadLetterSelection) error {
	switch {
	case sel.All && len(sel.Offsets) > 0, !sel.All && len(sel.Offsets) == 0:
		return api.Errorf(api.CodeInvalidRequest, "name either all or some offsets")
	case len(sel.Offsets) > api.MaxRedriveOffsets:
		return fieldError(api.CodeInvalidRequest, "/offsets", "%d offsets are too many: name at most %d, or all", len(sel.Offsets), api.MaxRedriveOffsets)
	}
	for _, t := range sel.Offsets {
		if t.Partition < 0 || int(t.Partition) >= q.topic.Config.Partitions || t.Offset < 0 {
			return fieldError(api.CodeInvalidRequest, "/offsets", "partition %d, offset %d is not a position of topic %s, which has %d partitions", t.Partition, t.Offset, q.topic.Name, q.topic.Config.Partitions)
		}
	}
	return nil
}

// storeNow gives the store's clock, by which dead letters have their times, after what has lapsed is found.
func (e *Engine) storeNow(ctx context.Context, q *queue) (int64, error) {
	var f *store.Effects
	err := e.call(ctx, q, func(ctx context.Context) (err error) { f, err = e.o.Store.Sweep(ctx, &q.store); return err })
	if err != nil {
		return 0, err
	}
	e.effects(q, f)
	return f.Now, nil
}
