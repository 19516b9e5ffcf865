package leases

import (
	"context"
	"errors"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases/store"
	"github.com/forebaymq/forebay/segment"
)

// Peek shows up to max records that would be handed out next, in that order, and changes nothing: no lease, no attempt. Between two calls others may
// lease what it showed. A record that cannot be read is not shown. UNKNOWN_SUBSCRIPTION, RETENTION_GAP, LEASES_UNAVAILABLE, STORAGE_UNAVAILABLE.
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
	for p, info := range infos {
		if info.Head > q.sub.Start(int32(p)) {
			fresh = append(fresh, store.Fresh{Partition: int32(p), LogStart: info.LogStart, Head: info.Head})
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
		return e.peekFurther(ctx, q, found, fresh, out, max)
	}
	return out, err
}

// peekFurther fills up with new records what Peek found to be holes, which Redis does not know of.
func (e *Engine) peekFurther(ctx context.Context, q *queue, found []store.Peeked, fresh []store.Fresh, out []PeekedRecord, max int) ([]PeekedRecord, error) {
	last := map[int32]int64{}
	for _, p := range found {
		if p.Offset >= last[p.Partition] {
			last[p.Partition] = p.Offset + 1
		}
	}
	which := make([]int32, len(fresh))
	for i := range fresh {
		which[i] = fresh[i].Partition
	}
	var positions []store.Position
	err := e.call(ctx, q, func(ctx context.Context) (err error) {
		positions, _, err = e.o.Store.Positions(ctx, &q.store, which)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, at := range positions {
		from := at.Cursor
		if l, ok := last[at.Partition]; ok && l > from {
			from = l
		}
		for len(out) < max {
			records, next, err := e.o.Reader.Read(ctx, q.sub.Tenant, q.sub.TopicID, at.Partition, from, max-len(out), api.MaxReadBytes)
			if err != nil || next <= from {
				break // what was found is an answer
			}
			for i := range records {
				out = append(out, PeekedRecord{Partition: at.Partition, Attempt: 1, Record: records[i]})
			}
			from = next
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
