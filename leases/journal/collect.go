package journal

import (
	"context"
	"slices"
	"time"

	"github.com/forebaymq/forebay/metadata"
)

// The end of a pointer is a record. A tombstone in its place would let a record of the pointer that another node is still writing rise again: the
// pointer of a settled record, delivered once more after a loss of Redis. So the end stays for Options.Grace, and then all keys of the
// pointer are freed at once. A process that dies before leaves ends on record; the next opening of the shard finds them.

const (
	maxEnds         = 200_000
	collectAtOnce   = 1000 // ends looked at in one go
	collectTogether = 256  // that many due ends are worth a look
	collectAfter    = time.Minute
)

// end is a pointer that has ended.
type end struct {
	tenant string
	key    ShardKey
	ended
	due time.Time
}

// ended names the end of a pointer: after a seek the same record may get another one, and that one another end.
type ended struct {
	offset  int64
	version Version
}

// endQueue holds ends in the order of their time. All wait equally long, so that is the order in which they come.
type endQueue struct {
	list []end
	from int // list[:from] is done
}

// noteEnds notes pointers that have ended.
func (j *Journal) noteEnds(tenant string, k ShardKey, ends []ended) {
	due := j.o.Clock.Now().Add(j.o.Grace)
	j.mu.Lock()
	defer j.mu.Unlock()
	q := &j.mu.ends
	for _, p := range ends {
		if len(q.list)-q.from >= maxEnds {
			return // the next opening of the shard finds them
		}
		q.list = append(q.list, end{tenant, k, p, due})
	}
}

// due takes ends out whose time has come, if they are many, or have waited.
func (j *Journal) due() []end {
	now := j.o.Clock.Now()
	j.mu.Lock()
	defer j.mu.Unlock()
	q := &j.mu.ends
	waiting := q.list[q.from:]
	n := 0
	for n < len(waiting) && n < collectAtOnce && !waiting[n].due.After(now) {
		n++
	}
	if n == 0 || n < collectTogether && now.Sub(waiting[0].due) < collectAfter {
		return nil
	}
	out := append([]end(nil), waiting[:n]...)
	if q.from += n; q.from*2 > len(q.list) {
		q.list = append([]end(nil), q.list[q.from:]...)
		q.from = 0
	}
	return out
}

// collect frees the keys of pointers that have ended long ago. It is part of a Write now and then; what fails is tried again after another opening.
func (j *Journal) collect(ctx context.Context) {
	type group struct {
		tenant string
		id     metadata.SubscriptionID
	}
	groups := map[group][]end{}
	for _, e := range j.due() {
		g := group{e.tenant, e.key.Subscription}
		groups[g] = append(groups[g], e)
	}
	for g, ends := range groups {
		if err := j.collectOne(ctx, g.tenant, g.id, ends); err != nil {
			j.o.Logger.Warn("keys of ended pointers stay in the journal until the subscription is opened again", "tenant", g.tenant, "subscription", g.id, "pointers", len(ends), "error", err)
		}
	}
}

func (j *Journal) collectOne(ctx context.Context, tenant string, id metadata.SubscriptionID, ends []end) error {
	release, err := j.everyLane(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	rs, err := j.load(ctx, tenant, id)
	if err != nil {
		return err
	}
	var keys []string
	for _, e := range ends {
		s := rs.shards[e.key.Partition]
		if s == nil {
			continue
		}
		if p := s.pointers[e.offset]; p != nil && !s.live(p) && !e.version.Less(p.newest.Version) && !j.reusable(p.keys) {
			keys = append(keys, p.keys...)
			delete(s.pointers, e.offset) // an end that was noted twice
		}
	}
	return j.free(ctx, tenant, id, keys)
}

// reusable says whether another process might yet write one of the keys, with a pointer that is not the ended one: those that an opening wrote
// together with its state, whose incarnation is not in the key. Nothing is freed then.
func (j *Journal) reusable(keys []string) bool {
	return slices.ContainsFunc(keys, func(s string) bool {
		k, err := decodeKey([]byte(s))
		return err != nil || k.incarnation == 0 && !slices.Contains(j.writers[:], k.writer)
	})
}

// free appends tombstones.
func (j *Journal) free(ctx context.Context, tenant string, id metadata.SubscriptionID, keys []string) error {
	const atOnce = 50_000
	number := partitionOf(id, j.o.Partitions)
	for len(keys) > 0 {
		n := min(len(keys), atOnce)
		records := make([]Record, n)
		for i, k := range keys[:n] {
			records[i] = Record{Partition: number, Key: []byte(k)}
		}
		if _, err := j.append(ctx, tenant, records); err != nil {
			return err
		}
		j.m.freed.Add(float64(n))
		keys = keys[n:]
	}
	return nil
}
