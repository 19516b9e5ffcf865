package journal

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/forebaymq/forebay/metadata"
)

// maxAge is how old what is cached may be to be brought up to date by what came since. A tombstone is compacted away some time after it was
// written (a day, by the topic's configuration): who has not read for longer would never learn what it freed.
const maxAge = time.Hour

// partition is one partition of a tenant's journal, as far as this process has read it.
//
// It is read in rounds, one at a time: who has the turn reads from where the last round ended up to the head. A call joins the round that comes
// next, never one that has begun: that one may have read the head before the call, and would miss what was acknowledged in between. So
// any number of calls that come while a round runs cost one more round.
type partition struct {
	j      *Journal
	tenant string
	topic  metadata.TopicID
	number int32

	turn chan struct{} // holds an element while somebody has the turn

	// Guarded by the turn.
	at     int64 // everything below is in subs, or left out because its subscription is in absent
	when   int64 // Unix ms by the wall clock: the last read that reached the head began then
	subs   map[metadata.SubscriptionID]*cached
	absent map[metadata.SubscriptionID]struct{} // have records that are not cached

	mu struct {
		sync.Mutex
		next *round
	}
}

// round is one read, shared by the calls that joined it.
type round struct {
	done    chan struct{}
	wanted  map[metadata.SubscriptionID]struct{}
	results map[metadata.SubscriptionID][]raw // set before done is closed
	via     string
	err     error
	led     bool // err is the end of the leader's own context: the others try again
}

func newPartition(j *Journal, tenant string, topic metadata.TopicID, number int32) *partition {
	return &partition{j: j, tenant: tenant, topic: topic, number: number, turn: make(chan struct{}, 1),
		subs: map[metadata.SubscriptionID]*cached{}, absent: map[metadata.SubscriptionID]struct{}{}}
}

// sync gives the records of a subscription, everything that was acknowledged before the call among them, and what had to be read for it. The
// values are shared: read only.
func (p *partition) sync(ctx context.Context, id metadata.SubscriptionID) ([]raw, string, error) {
	for {
		r := p.join(id)
		select {
		case p.turn <- struct{}{}:
			p.lead(ctx, r)
			<-p.turn
		case <-r.done:
		case <-ctx.Done():
			return nil, "", context.Cause(ctx)
		}
		switch {
		case r.err == nil:
			return r.results[id], r.via, nil
		case !r.led || ctx.Err() != nil:
			return nil, "", r.err
		}
	}
}

func (p *partition) join(id metadata.SubscriptionID) *round {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.next == nil {
		p.mu.next = &round{done: make(chan struct{}), wanted: map[metadata.SubscriptionID]struct{}{}}
	}
	p.mu.next.wanted[id] = struct{}{}
	return p.mu.next
}

// lead runs a round, unless somebody has done so since it was joined. The caller has the turn.
func (p *partition) lead(ctx context.Context, r *round) {
	select {
	case <-r.done:
		return
	default:
	}
	p.mu.Lock()
	p.mu.next = nil // r: rounds are taken out by who has the turn only
	p.mu.Unlock()
	defer close(r.done)
	if r.err = p.advance(ctx, r); r.err != nil {
		r.led = ctx.Err() != nil
		return
	}
	r.results = make(map[metadata.SubscriptionID][]raw, len(r.wanted))
	for id := range r.wanted {
		s := p.subs[id]
		if s == nil {
			continue // it has no records
		}
		p.j.cache.grow(s, 0, true)
		all := make([]raw, 0, len(s.records))
		for k, v := range s.records {
			all = append(all, raw{key: k, offset: v.offset, value: v.value})
		}
		r.results[id] = all
	}
	p.j.cache.shrink()
}

// advance reads up to the head, from the start where a wanted subscription is not cached.
func (p *partition) advance(ctx context.Context, r *round) error {
	for id := range p.j.cache.takeGone(p) {
		p.forget(id)
	}
	now := p.j.o.Clock.Now().UnixMilli()
	if age := now - p.when; age < 0 || age > maxAge.Milliseconds() {
		p.reset()
		p.when = now // what a read that fails has taken in is kept
	}
	missing := map[metadata.SubscriptionID]struct{}{}
	for id := range r.wanted {
		if _, ok := p.absent[id]; ok {
			missing[id] = struct{}{}
			delete(p.absent, id)
			p.j.cache.note(-absentOverhead)
		}
	}
	pos := p.at
	if len(missing) > 0 {
		pos = 0
	}
	scan := pos == 0
	read, err := p.read(ctx, r, pos, missing)
	if err != nil && p.at < read {
		p.at = read
	}
	if err != nil && read < p.at { // what is missing is still incomplete
		for id := range missing {
			p.forget(id)
		}
	}
	if err != nil {
		return err
	}
	switch {
	case scan && read > 0:
		r.via = viaScan
		p.j.m.scans.Inc()
	case read > p.at:
		r.via = viaTail
	default:
		r.via = viaMemory
	}
	p.at, p.when = max(p.at, read), now
	return nil
}

// reset forgets everything.
func (p *partition) reset() {
	for _, s := range p.subs {
		p.j.cache.drop(s)
	}
	p.j.cache.note(-absentOverhead * int64(len(p.absent)))
	clear(p.subs)
	clear(p.absent)
	p.at = 0
}

// read takes records in from pos up to the head and gives how far it came. Below p.at only those of the missing subscriptions are new.
func (p *partition) read(ctx context.Context, r *round, pos int64, missing map[metadata.SubscriptionID]struct{}) (int64, error) {
	target := int64(-1)
	for {
		records, next, end, err := p.j.o.Log.Read(ctx, p.tenant, p.topic, p.number, pos, p.j.o.ReadBytes)
		if err != nil {
			return pos, err
		}
		if target < 0 {
			target = end // what comes later is for the next round
		}
		bytes := 0
		for i := range records {
			bytes += len(records[i].Key) + len(records[i].Value)
			p.take(r, &records[i], missing)
		}
		p.j.m.readRecords.Add(float64(len(records)))
		p.j.m.readBytes.Add(float64(bytes))
		if next >= target {
			return max(pos, next), nil
		}
		if next <= pos {
			return pos, fmt.Errorf("read partition %d of the journal at %d: the log does not move on, its head is %d", p.number, pos, target)
		}
		pos = next
	}
}

// take notes one record: the newest of its key.
func (p *partition) take(r *round, rec *Record, missing map[metadata.SubscriptionID]struct{}) {
	if len(rec.Key) < keyHeadBytes || rec.Key[0] != keyVersion {
		p.j.m.unreadable.Inc()
		return
	}
	id := metadata.SubscriptionID(binary.BigEndian.Uint64(rec.Key[2:]))
	if _, is := missing[id]; !is && rec.Offset < p.at {
		return
	}
	s := p.subs[id]
	if s == nil {
		if rec.Value == nil {
			return
		}
		if _, is := p.absent[id]; is {
			return
		}
		if _, is := r.wanted[id]; !is && p.j.cache.full() {
			p.absent[id] = struct{}{}
			p.j.cache.note(absentOverhead)
			return
		}
		s = &cached{p: p, id: id, records: map[string]stored{}}
		p.subs[id] = s
		p.j.cache.grow(s, subscriptionOverhead, false)
	}
	had, ok := s.records[string(rec.Key)]
	grown := int64(0)
	if ok {
		grown -= int64(len(rec.Key)+len(had.value)) + recordOverhead
	}
	if rec.Value == nil {
		delete(s.records, string(rec.Key))
	} else {
		s.records[string(rec.Key)] = stored{offset: rec.Offset, value: append([]byte{}, rec.Value...)}
		grown += int64(len(rec.Key)+len(rec.Value)) + recordOverhead
	}
	p.j.cache.grow(s, grown, false)
	if len(s.records) == 0 {
		p.j.cache.drop(s)
		delete(p.subs, id)
	}
}

// forget makes a subscription absent.
func (p *partition) forget(id metadata.SubscriptionID) {
	if s := p.subs[id]; s != nil {
		p.j.cache.drop(s)
		delete(p.subs, id)
	}
	if _, is := p.absent[id]; !is {
		p.absent[id] = struct{}{}
		p.j.cache.note(absentOverhead)
	}
}
