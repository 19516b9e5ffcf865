package leases

import (
	"context"
	"errors"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases/store"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

// Peek shows up to max records that would be handed out next, in that order, without a lease and without counting an attempt. Between two calls others
// may lease what it showed. A record that cannot be read is not shown. UNKNOWN_SUBSCRIPTION, RETENTION_GAP, LEASES_UNAVAILABLE, STORAGE_UNAVAILABLE.
func (e *Engine) Peek(ctx context.Context, n Name, max int) ([]PeekedRecord, error) {
	q, err := e.resolve(ctx, n)
	if err != nil {
		return nil, err
	}
	if max < 1 {
		return nil, api.Errorf(api.CodeInvalidRequest, "look at one record at least")
	}
	max = min(max, api.MaxLeaseRecords)
	infos, err := e.o.View.PartitionInfos(q.sub.TopicID)
	if err != nil {
		return nil, err
	}
	var fresh []store.Fresh
	var which []int32
	for p, info := range infos {
		if info.Head > q.sub.Start(int32(p)) {
			fresh = append(fresh, store.Fresh{Partition: int32(p), LogStart: info.LogStart, Head: info.Head})
			which = append(which, int32(p))
		}
	}
	positions, err := e.positions(ctx, q, which)
	if err != nil {
		return nil, err
	}
	if gaps := gapsAt(positions, infos); len(gaps) > 0 && !q.store.SkipGaps {
		return nil, gapError(n, gaps)
	}
	if q.store.Keyed() {
		// Only the store knows which keys are taken. What it has not been told of yet it is told now, as before a lease.
		if _, err := e.choose(q, true, true); err != nil {
			return nil, err
		}
		if _, err := e.admit(ctx, q, max, positions); err != nil {
			return nil, err
		}
	}
	var found []store.Peeked
	if err := e.call(ctx, q, func(ctx context.Context) (err error) {
		found, err = e.o.Store.Peek(ctx, &q.store, max, fresh)
		return err
	}); err != nil {
		return nil, err
	}
	out, err := e.peeked(ctx, q, found, api.MaxReadBytes)
	if err == nil && len(found) == max && len(out) < max && !q.store.Keyed() {
		return e.peekFurther(ctx, q, found, positions, infos, out, max)
	}
	return out, err
}

// positions says where shards stand; those that are not loaded are opened.
func (e *Engine) positions(ctx context.Context, q *queue, which []int32) (out []store.Position, err error) {
	err = e.call(ctx, q, func(ctx context.Context) error {
		var absent []int32
		if out, absent, err = e.o.Store.Positions(ctx, &q.store, which); err == nil && len(absent) > 0 {
			err = &store.NotLoadedError{Subscription: q.id, Partitions: absent}
		}
		return err
	})
	return out, err
}

// gapsAt gives the ranges that retention deleted before they were settled.
func gapsAt(positions []store.Position, infos []metadata.PartitionInfo) []store.Gap {
	var gaps []store.Gap
	for _, at := range positions {
		if start := infos[at.Partition].LogStart; at.Frontier < start {
			gaps = append(gaps, store.Gap{Partition: at.Partition, From: at.Frontier, To: start})
		}
	}
	return gaps
}

// peekFurther fills up with new records what Peek found to be holes or deleted, which Redis does not know of.
func (e *Engine) peekFurther(ctx context.Context, q *queue, found []store.Peeked, positions []store.Position, infos []metadata.PartitionInfo,
	out []PeekedRecord, most int) ([]PeekedRecord, error) {
	next := map[int32]int64{} // behind what was looked at
	for _, p := range found {
		next[p.Partition] = max(next[p.Partition], p.Offset+1)
	}
	for _, at := range positions {
		from := max(at.Cursor, next[at.Partition], infos[at.Partition].LogStart)
		for len(out) < most {
			records, on, err := e.o.Reader.Read(ctx, q.sub.Tenant, q.sub.TopicID, at.Partition, from, most-len(out), api.MaxReadBytes)
			if err != nil || on <= from {
				break // what was found is an answer
			}
			for i := range records {
				out = append(out, PeekedRecord{Partition: at.Partition, Attempt: 1, Record: records[i]})
			}
			from = on
		}
	}
	return out, nil
}

// peeked reads what Redis named, in its order, as far as maxBytes go, one record at least.
func (e *Engine) peeked(ctx context.Context, q *queue, found []store.Peeked, maxBytes int64) ([]PeekedRecord, error) {
	positions := make([]Target, len(found))
	for i, p := range found {
		positions[i] = Target{p.Partition, p.Offset}
	}
	records, _, err := e.records(ctx, q, positions, maxBytes)
	if err != nil {
		return nil, err
	}
	out := make([]PeekedRecord, 0, len(found))
	for i, p := range found {
		if r := records[positions[i]]; r != nil {
			out = append(out, PeekedRecord{Partition: p.Partition, Attempt: p.Attempt, DueAt: p.Due, Record: *r})
		}
	}
	return out, nil
}

// records reads the records at positions, neighbours with one read, in the order given. What is not there or cannot be read is left out. reached
// is how many positions were come to before the records had maxBytes; one at least.
func (e *Engine) records(ctx context.Context, q *queue, positions []Target, maxBytes int64) (out map[Target]*segment.Record, reached int, err error) {
	out = make(map[Target]*segment.Record, len(positions))
	for reached < len(positions) && maxBytes > 0 {
		first, end := positions[reached], reached+1
		for end < len(positions) && positions[end] == (Target{first.Partition, positions[end-1].Offset + 1}) {
			end++
		}
		bytes, next, err := e.readRange(ctx, q, first.Partition, first.Offset, positions[end-1].Offset+1, maxBytes, out)
		if err != nil {
			return nil, 0, err
		}
		maxBytes -= bytes
		for reached < end && positions[reached].Offset < next {
			reached++
		}
	}
	return out, reached, nil
}

// readRange reads the records of [from, to) of a partition into out until they have maxBytes; one at least, if there is any. It says how many bytes
// they have, and up to where it came.
func (e *Engine) readRange(ctx context.Context, q *queue, partition int32, from, to, maxBytes int64, out map[Target]*segment.Record) (bytes, next int64, err error) {
	synced := false
	for from < to && bytes < maxBytes {
		records, next, err := e.o.Reader.Read(ctx, q.sub.Tenant, q.sub.TopicID, partition, from, int(to-from), maxBytes-bytes)
		var unreadable *UnreadableError
		switch {
		case err == nil:
		case errors.As(err, &unreadable):
			next = unreadable.Next
		case api.CodeOf(err) == api.CodeOffsetOutOfRange:
			next = logStartOf(err)
		default:
			return bytes, from, err
		}
		for i := range records {
			if r := &records[i]; r.Offset < to {
				out[Target{partition, r.Offset}] = r
				bytes += recordBytes(r)
			}
		}
		switch {
		case next > from:
			from = next
		case synced:
			return bytes, to, nil // nothing is there
		default: // another node knew a higher head
			synced = true
			if err := e.o.View.Sync(ctx); err != nil {
				return bytes, from, err
			}
		}
	}
	return bytes, min(from, to), nil
}

// logStartOf gives the logStart of an OFFSET_OUT_OF_RANGE, or 0.
func logStartOf(err error) int64 {
	var e *api.Error
	if errors.As(err, &e) {
		if start, ok := e.Extra["logStart"].(int64); ok {
			return start
		}
	}
	return 0
}
