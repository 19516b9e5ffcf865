package groups

import (
	"context"
	"maps"

	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/leases/store"
)

// A member that heartbeats and never lets go would keep a partition for ever, and nobody would read what it is to get. So there is an end to it: the
// membership ends as if its session had lapsed, the partitions go to others, and what it commits later is refused. It is its heartbeats that are
// looked at; a member that sends none loses its session anyway.

// holding is what a node knows of a member that has something to let go.
type holding struct {
	since int64 // the generation that told it so, of the partition that it has held longest
	seen  int64 // Unix ms: when this node first saw it heartbeat and hold that
}

// overdue says whether a member has held for too long what it was told to let go.
func (c *Coordinator) overdue(g *group, s *journal.GroupState, member string, mine *share) bool {
	since := s.Generation
	for i := range mine.revoked {
		if l := slotOf(s, mine.revoked[i].GroupPartition); l != nil {
			since = min(since, l.Since)
		}
	}
	now := c.now()
	g.mu.Lock()
	defer g.mu.Unlock()
	was, ok := g.mu.held[member]
	if ok && was.since == since {
		return now-was.seen >= c.o.RebalanceTimeout.Milliseconds()
	}
	if g.mu.held == nil {
		g.mu.held = map[string]holding{}
	}
	g.mu.held[member] = holding{since, now}
	if len(g.mu.held) > len(s.Members) {
		maps.DeleteFunc(g.mu.held, func(id string, _ holding) bool { return memberOf(s, id) == nil })
	}
	return false
}

// end ends a membership.
func (c *Coordinator) end(ctx context.Context, g *group, member string) error {
	g.mu.Lock()
	since := g.mu.held[member].since
	g.mu.Unlock()
	holds := func(s *journal.GroupState) bool {
		found := false
		forSlots(s, func(l *journal.GroupSlot) {
			found = found || l.Owner == member && l.Target != member && l.Since <= since
		})
		return found
	}
	err := c.change(ctx, g, &request{why: whyLapse, events: []event{left{member}}, needed: func(have *store.GroupSessions) bool {
		s := g.state()
		return s == nil || s.Generation < have.Generation || holds(s)
	}})
	if err != nil {
		return err
	}
	g.mu.Lock()
	delete(g.mu.held, member)
	g.mu.Unlock()
	c.m.lapsed.Inc()
	c.o.Logger.Warn("a member did not let go of partitions in time: it is none any more", "tenant", g.meta.Tenant, "group", g.meta.ID, "member", member,
		"told_in_generation", since, "timeout", c.o.RebalanceTimeout)
	return nil
}
