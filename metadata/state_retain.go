package metadata

import (
	"github.com/forebaymq/forebay/api"
)

// trim applies Trim: logStart moves exactly, and batches wholly below it are dropped.
func (s *State) trim(c *Trim, a *Applied) Result {
	if err := s.fence(c.Claim, c.ClaimEpoch); err != nil {
		return Result{Err: err}
	}
	p, err := s.readPartition(c.TopicID, c.Partition)
	if err != nil {
		return Result{Err: err}
	}
	if p == nil {
		return Result{}
	}
	to := min(c.LogStart, p.head)
	if to <= p.logStart {
		return Result{}
	}
	p.logStart = to
	if n := p.atOrAfter(to); n > 0 {
		s.splice(p, 0, n, nil)
	}
	a.Changed = append(a.Changed, PartitionKey{c.TopicID, c.Partition})
	return Result{}
}

// replace applies Replace: what is live within [From, Through] must be exactly Remove.
func (s *State) replace(c *Replace) Result {
	if err := s.fence(c.Claim, c.ClaimEpoch); err != nil {
		return Result{Err: err}
	}
	p, err := s.readPartition(c.TopicID, c.Partition)
	if err != nil {
		return Result{Err: err}
	}
	if p == nil {
		p = &partition{num: c.Partition} // has no live batch, so only the empty swap matches
	}
	i := p.atOrAfter(c.From)
	j := i
	for j < len(p.entries) && p.entries[j].base <= c.Through {
		if k := j - i; k >= len(c.Remove) || c.Remove[k].Segment != s.segments.infos[p.entries[j].seg].id || c.Remove[k].Pos != p.pos(j) {
			return Result{Err: api.Errorf(api.CodeConflict, "the batch at offset %d is not the one to be replaced", p.entries[j].base)}
		}
		if p.entries[j].base < c.From || p.last(j) > c.Through {
			return Result{Err: api.Errorf(api.CodeConflict, "the batch at offset %d reaches beyond the replaced range", p.entries[j].base)}
		}
		j++
	}
	if j-i != len(c.Remove) {
		return Result{Err: api.Errorf(api.CodeConflict, "%d batches to be replaced, %d are live", len(c.Remove), j-i)}
	}
	add, err := s.checkAdded(c, p, i, j)
	if err != nil {
		return Result{Err: err}
	}
	if i < j {
		s.splice(p, i, j, add)
	}
	return Result{}
}

// checkAdded gives the batches of a Replace that will be live, or says why they may not be.
func (s *State) checkAdded(c *Replace, p *partition, i, j int) ([]IndexEntry, error) {
	if len(c.Add) == 0 {
		return nil, nil
	}
	if i == j {
		return nil, api.Errorf(api.CodeConflict, "batches for a range in which none is live")
	}
	next, newest := c.From, int64(-1<<63)
	if i > 0 {
		newest = p.entries[i-1].time
	}
	var add []IndexEntry
	for k := range c.Add {
		e := &c.Add[k]
		if e.Base < next || e.Last > c.Through || e.Last >= p.head {
			return nil, api.Errorf(api.CodeConflict, "added offsets %d to %d are out of order or out of range", e.Base, e.Last)
		}
		if e.AppendTime < newest || e.FirstTime > e.AppendTime {
			return nil, api.Errorf(api.CodeConflict, "append times of the added batch at offset %d are out of order", e.Base)
		}
		if _, live := s.segments.find(e.Segment.ID); !live && int64(e.Segment.ID.Time()) < s.boundary {
			return nil, api.Errorf(api.CodeConflict, "segment %s was written before the GC boundary and may have been collected", e.Segment.ID)
		}
		next, newest = e.Last+1, e.AppendTime
		if e.Last >= p.logStart {
			add = append(add, *e)
		}
	}
	if j < len(p.entries) && newest > p.entries[j].time {
		return nil, api.Errorf(api.CodeConflict, "append times of the added batches pass the batch behind them")
	}
	return add, nil
}
