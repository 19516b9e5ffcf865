package leases

import (
	"context"
	"hash/fnv"

	"github.com/forebaymq/forebay/leases/store"
	"github.com/forebaymq/forebay/segment"
)

const (
	// admitBatch is how many records of a partition are looked at ahead: enough that few leases must wait for it.
	admitBatch = 256
	// admitMax bounds one call.
	admitMax = 2000
)

// admit makes new records of a keyed queue deliverable, as their keys permit: about want of each partition, until there are as many. moved says
// whether any cursor has moved.
func (e *Engine) admit(ctx context.Context, q *queue, want int, positions []store.Position) (moved bool, err error) {
	for _, p := range positions {
		if want <= 0 {
			break
		}
		if p.Room <= 0 {
			continue
		}
		r := &run{partition: p.Partition, from: p.Cursor, at: p.Cursor}
		r.to = min(p.Cursor+int64(min(want, int(p.Room), admitMax)), q.shards.head(p.Partition))
		if r.at >= r.to {
			continue
		}
		r.read(ctx, e, q, groupBytes)
		switch {
		case r.expired > 0: // retention was faster: what that means depends on the queue's gap policy, and taking records finds it out
			continue
		case r.at == p.Cursor:
			if r.err != nil {
				return moved, r.err
			}
			continue
		}
		// A hole may reach beyond what was asked for; all of it is passed, as far as the caps let it.
		through := min(r.at, p.Cursor+int64(p.Room))
		a := store.AdmitRequest{Partition: p.Partition, Cursor: p.Cursor, Through: through, Records: make([]store.Candidate, 0, len(r.records))}
		for i := range r.records {
			if rec := &r.records[i]; rec.Offset < through {
				c := store.Candidate{Offset: rec.Offset, KeyHash: q.keyHash(rec)}
				if rec.DeliverAt != segment.NoTime {
					c.DeliverAt = rec.DeliverAt
				}
				a.Records = append(a.Records, c)
			}
		}
		var ok bool
		var f *store.Effects
		err := e.call(ctx, q, func(ctx context.Context) (err error) {
			ok, f, err = e.o.Store.Admit(ctx, &q.store, a)
			return err
		})
		if err != nil {
			return moved, err
		}
		e.effects(q, f)
		if ok {
			moved = true
			bad := int64(0)
			for _, s := range r.unreadable {
				bad += max(0, min(s.to, through)-s.from)
			}
			e.skipped(q, reasonUnreadable, p.Partition, p.Cursor, int(bad))
			e.skipped(q, reasonHole, p.Partition, p.Cursor, int(through-p.Cursor-int64(len(a.Records))-bad))
			want -= len(a.Records)
			q.shards.moved(p.Partition, through)
		} else {
			moved = true // another node was faster: look again
		}
	}
	return moved, nil
}

// head is the head of a partition as of the last look.
func (s *shards) head(p int32) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if int(p) < len(s.mu.infos) {
		return s.mu.infos[p].Head
	}
	return 0
}

// keyHash is what a keyed queue tells records apart by: FNV-1a 64 of the record's key, or of the header that deliveries are shared by.
// 0 = none.
func (q *queue) keyHash(r *segment.Record) uint64 {
	key := r.Key
	if name := q.sub.Config.FairShare.Header; name != "" {
		key = nil
		for i := range r.Headers {
			if r.Headers[i].Name == name {
				key = []byte(r.Headers[i].Value)
				break
			}
		}
		if key == nil {
			return 0
		}
	}
	if key == nil {
		return 0
	}
	h := fnv.New64a()
	h.Write(key)
	return max(h.Sum64(), 1)
}
