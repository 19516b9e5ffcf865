package metadata

import "sort"

// PlanTrim plans retention by append time and by stored bytes for up to limit partitions that come after the given one, in order of
// topic and partition. Start with the zero key and go on with next until done; the caller may let go of its lock in between. A plan moves
// logStart to the end of the last batch that nothing keeps: by time, when its newest record is older than the topic's retention at now
// (Unix ms); by bytes, while what remains is above the bound, but never the newest batch, and a sparse one only if what remains without it
// is at least the bound: it may be a long run, in which the compactor moves logStart. The caller adds its claim.
func (s *State) PlanTrim(now int64, after PartitionKey, limit int) (trims []*Trim, next PartitionKey, done bool) {
	next = after
	for i := s.searchID(after.Topic); i < len(s.order); i++ {
		t := s.order[i]
		k := 0
		if t.id == after.Topic {
			k = sort.Search(len(t.parts), func(k int) bool { return t.parts[k].num > after.Partition })
		}
		for ; k < len(t.parts); k++ {
			if limit == 0 {
				return trims, next, false
			}
			limit--
			p := t.parts[k]
			next = PartitionKey{t.id, p.num}
			if to := p.retain(t.config, now); to > p.logStart {
				trims = append(trims, &Trim{TopicID: t.id, Partition: p.num, LogStart: to})
			}
		}
	}
	return trims, PartitionKey{}, true
}

// retain gives the logStart that the configuration asks for. What the bound of bytes needs is kept: of a dense batch as many records as that
// takes, counting all of them as equally long, and one at least of the partition. Within sparse batches the compactor knows better.
func (p *partition) retain(c *topicConfig, now int64) int64 {
	if !c.Cleanup.Deletes() {
		return p.logStart
	}
	to := p.logStart
	if c.RetentionTime > 0 {
		if n := p.atOrAfterTime(now - c.RetentionTime.Milliseconds()); n > 0 {
			to = max(to, p.last(n-1)+1)
		}
	}
	if c.RetentionBytes > 0 {
		to = max(to, p.retainBytes(c.RetentionBytes))
	}
	return to
}

// retainBytes gives the logStart that a bound of bytes asks for. A surplus of less than a sixty-fourth of the bound is left for later.
func (p *partition) retainBytes(bound int64) int64 {
	left := p.liveBytes()
	if left-bound <= bound/retainSlack {
		return p.logStart
	}
	to := p.logStart
	for i := range p.entries {
		e := p.span(i)
		live := e.LiveBytes(p.logStart)
		if rest := left - live; rest < bound {
			if !e.Sparse {
				to = max(to, e.keepBytes(bound-rest))
			}
			break
		}
		left -= live
		to = e.Last + 1
	}
	return to
}

// retainSlack says how exact a bound of bytes is: one part of so many.
const retainSlack = 64

// sparse says whether entry i is sparse.
func (p *partition) sparse(i int) bool {
	e := &p.entries[i]
	return e.records&hasExt != 0 && p.ext(e).sparse
}
