package groups

import (
	"context"

	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/leases/store"
)

// Heartbeat keeps a session alive. It goes on when the log has no quorum: only what changes needs a generation.
func (c *Coordinator) Heartbeat(ctx context.Context, r HeartbeatRequest) (*Beat, error) {
	var out *Beat
	err := c.with(ctx, r.Name, false, func(g *group) (err error) {
		out, err = c.heartbeat(ctx, g, &r)
		return err
	})
	c.m.heartbeat(err)
	return out, err
}

func (c *Coordinator) heartbeat(ctx context.Context, g *group, r *HeartbeatRequest) (*Beat, error) {
	s, err := c.member(ctx, g, r.MemberID, r.Generation, true)
	if err != nil {
		return nil, err
	}
	holds := map[journal.GroupPartition]bool{}
	if r.OwnedSet {
		for _, at := range r.Owned {
			if p, ok := placeOf(s, at); ok {
				holds[p] = true
			}
		}
		e := letGo{member: r.MemberID, generation: r.Generation, holds: holds}
		if len(e.released(s)) > 0 {
			needed := func(have *store.GroupSessions) bool {
				s := g.state()
				return s == nil || s.Generation < have.Generation || len(e.released(s)) > 0
			}
			if err := c.change(ctx, g, &request{why: whyLetGo, events: []event{e}, needed: needed}); err != nil {
				// The session lives on, and the next heartbeat says so again.
				c.o.Logger.Info("partitions that were let go stay where they are for now", "tenant", g.meta.Tenant, "group", g.meta.ID, "error", err)
			} else if s, err = c.member(ctx, g, r.MemberID, r.Generation, false); err != nil {
				return nil, err
			}
		}
	}
	c.watch(g, s)
	return c.beat(ctx, g, s, r, holds)
}

// member gives the present state, in which somebody is a member whose session lives. STALE_GENERATION when he is not: he must join again.
func (c *Coordinator) member(ctx context.Context, g *group, id string, claimed int64, beat bool) (*journal.GroupState, error) {
	s, l, err := c.look(ctx, g, claimed, beat, id)
	if err != nil {
		return nil, err
	}
	m := memberOf(s, id)
	switch {
	case m != nil && l.Expires[0] == 0:
		c.expire(g)
		return nil, mustRejoin(g.name(), s.Generation)
	case m == nil || m.Absent:
		return nil, mustRejoin(g.name(), s.Generation)
	}
	return s, nil
}

// expire asks for a generation without those whose sessions have lapsed.
func (c *Coordinator) expire(g *group) {
	c.nudge(g, &request{why: whyLapse, needed: func(s *store.GroupSessions) bool {
		for _, ends := range s.Expires {
			if ends <= s.Now {
				return true
			}
		}
		return false
	}})
}

// watch asks for a generation when the topics are not what they were.
func (c *Coordinator) watch(g *group, s *journal.GroupState) {
	now := c.now()
	g.mu.Lock()
	due := now-g.mu.watched >= c.o.WatchInterval.Milliseconds()
	if due {
		g.mu.watched = now
	}
	g.mu.Unlock()
	if !due {
		return
	}
	isOutdated := func(s *journal.GroupState) bool {
		topics, err := c.topics(g.meta.Tenant, topicNames(s))
		return err == nil && outdated(s, topics)
	}
	if isOutdated(s) {
		c.nudge(g, &request{why: whyTopics, needed: func(have *store.GroupSessions) bool {
			s := g.state()
			return s == nil || s.Generation < have.Generation || isOutdated(s)
		}})
	}
}

// beat answers a heartbeat.
func (c *Coordinator) beat(ctx context.Context, g *group, s *journal.GroupState, r *HeartbeatRequest, holds map[journal.GroupPartition]bool) (*Beat, error) {
	keeps, revoked := ownedBy(s, r.MemberID)
	// Where to go on matters to a member only for what it does not have yet. Of what it has it knows more than anybody.
	news := r.Generation != s.Generation
	if r.OwnedSet {
		for i := range keeps {
			news = news || !holds[keeps[i].GroupPartition]
		}
	}
	offsets := g.knownOffsets()
	if news || offsets == nil {
		var err error
		if offsets, err = c.loadOffsets(ctx, g); err != nil {
			return nil, err
		}
	}
	out := &Beat{Generation: s.Generation, Assignment: assignment(keeps, offsets), Revoke: make([]TopicPartition, len(revoked))}
	for i := range revoked {
		out.Revoke[i] = revoked[i].TopicPartition
	}
	return out, nil
}

// placeOf gives the IDs of a partition that a state knows.
func placeOf(s *journal.GroupState, at TopicPartition) (journal.GroupPartition, bool) {
	for i := range s.Topics {
		if t := &s.Topics[i]; t.Name == at.Topic && at.Partition >= 0 && int(at.Partition) < len(t.Slots) {
			return journal.GroupPartition{Topic: t.ID, Partition: at.Partition}, true
		}
	}
	return journal.GroupPartition{}, false
}
