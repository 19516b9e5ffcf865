package leases

import (
	"context"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/leases/store"
	"github.com/forebaymq/forebay/metadata"
)

// rescueMargin is how long before retention deletes a record its dead letter is copied: a tenth of the retention, and as long as ten rounds of
// custody are to take or two did take, but half of the retention at most.
func rescueMargin(retention, interval, round time.Duration) time.Duration {
	return min(max(retention/10, 10*interval, 2*round), retention/2)
}

// endangered says whether the record of a dead letter may soon be deleted: it is past the time by which it is to be copied, its partition has
// three quarters of the bytes that it may have, or compaction may drop it at any moment. appended is its append time, now the time (Unix ms).
func endangered(appended, now int64, info metadata.PartitionInfo, c api.TopicConfig, interval, round time.Duration) bool {
	if c.Cleanup.Compacts() {
		return true
	}
	if c.RetentionBytes > 0 && info.Bytes > c.RetentionBytes/4*3 {
		return true
	}
	return c.RetentionTime > 0 && time.Duration(now-appended)*time.Millisecond > c.RetentionTime-rescueMargin(c.RetentionTime, interval, round)
}

// rescue sees to the dead letters whose records retention has deleted or is about to delete: the former are marked expired, the latter copied to the
// dead-letter topic, where the subscription has one. Those that died while it had one are there already.
func (e *Engine) rescue(ctx context.Context, q *queue, loaded *journal.Loaded) error {
	infos, err := e.o.View.PartitionInfos(q.sub.TopicID)
	if err != nil {
		return err
	}
	var expired []journal.Target
	var saving []store.DeadLetter
	to, err := e.copyTarget(q)
	if err != nil {
		return err
	}
	now, round := e.now(), e.admin.wards.lastRound()
	for p, pointers := range loaded.Pointers {
		if int(p) >= len(infos) {
			continue
		}
		for _, d := range pointers {
			switch {
			case d.Kind != journal.Dead || d.Expired || d.CopyPending: // the last is the copier's
			case d.Offset < infos[p].LogStart:
				expired = append(expired, journal.Target{Partition: p, Offset: d.Offset})
			case d.Copied || to == nil:
			default:
				if appended, ok := e.indexTime(q, p, d.Offset); ok && endangered(appended, now, infos[p], q.topic.Config, e.o.CustodyInterval, round) {
					saving = append(saving, store.DeadLetter{Partition: p, Pointer: d})
				}
			}
		}
	}
	if err := e.markInSteps(ctx, q, expired, e.o.Store.MarkExpired); err != nil {
		return err
	}
	e.admin.m.expired.Add(float64(len(expired)))
	for len(saving) > 0 {
		step := saving[:min(len(saving), copyStep)]
		copied, lost, err := e.copySome(ctx, q, step)
		if err != nil {
			return err
		}
		if err := e.mark(ctx, q, copied, e.o.Store.MarkCopied); err != nil {
			return err
		}
		if err := e.mark(ctx, q, lost, e.o.Store.MarkExpired); err != nil {
			return err
		}
		e.admin.m.rescued.Add(float64(len(copied)))
		e.admin.m.expired.Add(float64(len(lost)))
		done := map[journal.Target]bool{}
		for _, t := range append(copied, lost...) {
			done[t] = true
		}
		var left []store.DeadLetter
		for _, d := range saving {
			if !done[journal.Target{Partition: d.Partition, Offset: d.Offset}] {
				left = append(left, d)
			}
		}
		saving = left
	}
	return nil
}

// indexTime gives the time up to which the record at an offset is at least as old, from the index alone.
func (e *Engine) indexTime(q *queue, partition int32, offset int64) (ms int64, ok bool) {
	entries, _, err := e.o.Catalog.Locate(q.sub.TopicID, partition, offset, 1)
	if err != nil || len(entries) == 0 {
		return 0, false
	}
	return entries[0].FirstTime, true
}

// markInSteps is mark for any number of dead letters.
func (e *Engine) markInSteps(ctx context.Context, q *queue, targets []journal.Target,
	say func(context.Context, *store.Queue, []journal.Target) (*store.Effects, error)) error {
	for len(targets) > 0 {
		n := min(len(targets), discardStep)
		if err := e.mark(ctx, q, targets[:n], say); err != nil {
			return err
		}
		targets = targets[n:]
	}
	return nil
}
