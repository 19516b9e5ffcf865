package compactor

import (
	"context"
	"errors"
	"math"

	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

// Compaction by key rewrites a partition from its first live batch on. It reads the dirty batches and notes the newest offset of each key, as
// far as the map has room; then it reads all batches and leaves out
//
//   - records with a newer one of the same key in the map,
//   - tombstones whose horizon has passed. A tombstone gets its horizon when it becomes clean: in that moment what it deletes has gone, and
//     readers that have seen that must have the time to see the tombstone.
//
// What does not fit the map is left dirty, and its turn comes next. Records without a key stay.

// cleaner runs one job.
type cleaner struct {
	*merger
	now  int64 // Unix ms
	rest *output
}

// runClean compacts partitions by key. What was replaced before an error stays replaced.
func (c *Compactor) runClean(ctx context.Context, claim *metadata.HeldClaim, job *Job) (jobStats, error) {
	k := &cleaner{merger: &merger{c: c, job: job, claim: claim, stopped: map[metadata.PartitionKey]bool{}}, now: c.o.Clock.Now().UnixMilli()}
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		k.out.release()
		k.rest.release()
	}()
	for i := range job.tasks {
		if err := k.partition(ctx, &job.tasks[i]); err != nil {
			return k.stats, err
		}
	}
	for _, o := range []*output{k.out, k.rest} {
		if err := o.end(ctx); err != nil {
			return k.stats, err
		}
	}
	return k.stats, k.commit(ctx)
}

// read opens the batches of entries and calls fn with each visible record that is not below logStart, until fn returns errEnough.
func (k *cleaner) read(ctx context.Context, t *cleanTask, entries []metadata.IndexEntry, fn func(i int, h *segment.BatchHeader, r *segment.RawRecord) error) error {
	ctx, cancel := context.WithCancel(ctx)
	list := make([]*metadata.IndexEntry, len(entries))
	for i := range entries {
		list[i] = &entries[i]
	}
	src := newSources(ctx, k.c.o.Store, list, k.c.o.ReadBytes, &k.c.known, func(n int) { k.c.m.read.WithLabelValues(string(KindClean)).Add(float64(n)) })
	defer src.close()
	defer cancel()
	g := &Group{Topic: t.topic, Partition: t.partition}
	for i := range entries {
		e := &entries[i]
		cur := src.open(e)
		records := 0
		for {
			stored, err := cur.next()
			if err != nil {
				return err
			}
			if stored == nil {
				break
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			h, err := segment.ReadBatchHeader(stored)
			if err == nil {
				err = checkBatch(g, e, &h)
			}
			var stop error
			if err == nil {
				records += h.Records
				k.stats.inBytes += int64(len(stored))
				err = k.visit(e, stored, func(r *segment.RawRecord) error {
					if r.Offset >= t.logStart {
						stop = fn(i, &h, r)
					}
					return stop
				})
			}
			if stop != nil && !errors.Is(stop, segment.ErrCorrupt) {
				return stop
			}
			if err != nil {
				return unreadable(&e.Segment, err)
			}
		}
		if records != int(e.Records) {
			return unreadable(&e.Segment, corruptEntry(e, "the batches have %d records, the index says %d", records, e.Records))
		}
	}
	return nil
}

// errEnough ends a read early.
var errEnough = errors.New("enough")

// newest fills a map from the dirty batches. cut is the first offset that it does not cover.
func (k *cleaner) newest(ctx context.Context, t *cleanTask) (keys *keyMap, cut int64, err error) {
	dirty := t.entries[t.clean:]
	var records int64
	for i := range dirty {
		records += int64(dirty[i].Records)
	}
	keys, cut = newKeyMap(records, k.c.o.Policy.KeyMapBytes), math.MaxInt64
	err = k.read(ctx, t, dirty, func(_ int, _ *segment.BatchHeader, r *segment.RawRecord) error {
		key, _, err := segment.RawKey(r.Encoding)
		if err != nil {
			return err
		}
		if key != nil && !keys.put(hashKey(key), r.Offset) {
			cut = r.Offset
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, 0, err
	}
	return keys, cut, nil
}

// partition compacts one partition.
func (k *cleaner) partition(ctx context.Context, t *cleanTask) error {
	keys, cut, err := k.newest(ctx, t)
	if err != nil {
		return err
	}
	// Batches wholly behind the cut stay as they are. The first dirty batch has at least its first record before it.
	n := len(t.entries)
	for n > 0 && t.entries[n-1].Base >= cut {
		n--
	}
	t.entries = t.entries[:n]
	groups := t.groups(k.c.o.Policy)
	at := 0 // group being written
	p, err := k.begin(ctx, &groups[0])
	if err != nil {
		return err
	}
	end := len(groups[0].Entries) // in t.entries
	var tail *runWriter
	err = k.read(ctx, t, t.entries, func(i int, h *segment.BatchHeader, r *segment.RawRecord) error {
		for i >= end {
			if err := k.end(ctx, p); err != nil {
				return err
			}
			at++
			if p, err = k.begin(ctx, &groups[at]); err != nil {
				return err
			}
			end += len(groups[at].Entries)
		}
		k.stats.recordsIn++
		if r.Offset >= cut {
			if tail == nil {
				if tail, err = k.beginRest(ctx, p); err != nil {
					return err
				}
			}
			k.stats.records++
			return tail.add(ctx, r, 0)
		}
		keep, tag, err := k.judge(t, keys, i < t.clean, h, r)
		if err != nil || !keep {
			return err
		}
		k.stats.records++
		return k.run.add(ctx, r, tag)
	})
	if err != nil {
		return err
	}
	// Where nothing survived of the last groups, they were never begun.
	for ; at < len(groups); at++ {
		if p.group != &groups[at] {
			if p, err = k.begin(ctx, &groups[at]); err != nil {
				return err
			}
		}
		if at == len(groups)-1 && tail != nil {
			if err := tail.close(ctx); err != nil {
				return err
			}
		}
		if err := k.end(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// judge says whether a record is kept, and the horizon of the batch that it goes to, 0 = any.
func (k *cleaner) judge(t *cleanTask, keys *keyMap, clean bool, h *segment.BatchHeader, r *segment.RawRecord) (keep bool, tag int64, err error) {
	key, tombstone, err := segment.RawKey(r.Encoding)
	if err != nil {
		return false, 0, err
	}
	if key == nil {
		return true, 0, nil
	}
	if keys.newer(hashKey(key), r.Offset) {
		return false, 0, nil
	}
	if !tombstone {
		return true, 0, nil
	}
	if !clean || h.ProducerID != tagProducer {
		return true, horizon(k.now, t.topic.Config.TombstoneRetention), nil
	}
	return k.now < h.Sequence, h.Sequence, nil
}

// begin starts the output of a group.
func (k *cleaner) begin(ctx context.Context, g *Group) (*pending, error) {
	if b := (bucket{g.Class, g.Level}); k.out == nil || k.out.bucket != b {
		for _, o := range []*output{k.out, k.rest} {
			if err := o.end(ctx); err != nil {
				return nil, err
			}
		}
		k.rest.release()
		k.out, k.rest = k.c.newOutput(k.job, b, k.out), nil
	}
	p := &pending{group: g}
	k.waiting = append(k.waiting, p)
	k.run.begin(k.out, p)
	return p, nil
}

// beginRest starts the output of what the map did not cover: it is dirty as it was, and follows the clean part.
func (k *cleaner) beginRest(ctx context.Context, p *pending) (*runWriter, error) {
	if err := k.run.close(ctx); err != nil {
		return nil, err
	}
	if k.rest == nil {
		k.rest = k.c.newOutput(k.job, bucket{p.group.Class, 1}, nil)
	}
	w := &runWriter{}
	w.begin(k.rest, p)
	return w, nil
}

// end ends the output of a group.
func (k *cleaner) end(ctx context.Context, p *pending) error {
	if err := k.run.close(ctx); err != nil {
		return err
	}
	p.done = true
	for _, o := range []*output{k.out, k.rest} {
		if err := o.poll(); err != nil {
			return err
		}
	}
	return k.commit(ctx)
}
