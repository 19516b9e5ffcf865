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

// retain gives the logStart that the configuration asks for.
func (p *partition) retain(c *topicConfig, now int64) int64 {
	if !c.Cleanup.Deletes() {
		return p.logStart
	}
	n := 0
	if c.RetentionTime > 0 {
		n = p.atOrAfterTime(now - c.RetentionTime.Milliseconds())
	}
	if c.RetentionBytes > 0 {
		left := p.bytes
		for i := 0; i < len(p.entries)-1 && left > c.RetentionBytes; i++ {
			left -= int64(p.entries[i].len)
			if left < c.RetentionBytes && p.sparse(i) {
				break
			}
			n = max(n, i+1)
		}
	}
	if n == 0 {
		return p.logStart
	}
	return p.last(n-1) + 1
}

// sparse says whether entry i is sparse.
func (p *partition) sparse(i int) bool {
	e := &p.entries[i]
	return e.records&hasExt != 0 && p.ext(e).sparse
}
