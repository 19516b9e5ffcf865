package groups

import (
	"context"
	"slices"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/leases/store"
	"github.com/forebaymq/forebay/metadata"
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
	mine, all := g.share(s, r.MemberID), true
	if r.OwnedSet {
		var released []place
		all, released = mine.compare(r.Owned)
		e := letGo{member: r.MemberID, generation: r.Generation}
		if len(released) > 0 {
			e.holds = placesOf(s, r.Owned)
		}
		if len(released) > 0 && len(e.released(s)) > 0 {
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
			mine = g.share(s, r.MemberID)
			all, _ = mine.compare(r.Owned)
		}
	}
	if c.lacks(mine) {
		if err := c.dropTopics(ctx, g); err != nil {
			c.o.Logger.Info("a group goes on with a topic that was deleted for now", "tenant", g.meta.Tenant, "group", g.meta.ID, "error", err)
		} else if s, err = c.member(ctx, g, r.MemberID, r.Generation, false); err != nil {
			return nil, err
		}
		mine = g.share(s, r.MemberID)
		if r.OwnedSet {
			all, _ = mine.compare(r.Owned)
		}
	}
	if len(mine.revoked) > 0 && c.overdue(g, s, r.MemberID, mine) {
		err := c.end(ctx, g, r.MemberID)
		if err == nil {
			return nil, mustRejoin(g.name(), g.state().Generation)
		}
		c.o.Logger.Info("a member that does not let go stays one for now", "tenant", g.meta.Tenant, "group", g.meta.ID, "member", r.MemberID, "error", err)
	}
	c.watch(g, s)
	return c.beat(ctx, g, s, mine, all && r.Generation == s.Generation)
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

// lacks says whether a topic of which a member owns something was deleted.
func (c *Coordinator) lacks(w *share) bool {
	for _, all := range [][]place{w.keeps, w.revoked} {
		for i := range all {
			if id := all[i].GroupPartition.Topic; (i == 0 || id != all[i-1].GroupPartition.Topic) && c.deleted(id) {
				return true
			}
		}
	}
	return false
}

func (c *Coordinator) deleted(id metadata.TopicID) bool {
	_, err := c.o.View.TopicByID(id)
	return api.CodeOf(err) == api.CodeUnknownTopic
}

// dropTopics asks for a generation without topics that were deleted, and waits for it.
func (c *Coordinator) dropTopics(ctx context.Context, g *group) error {
	return c.change(ctx, g, &request{why: whyTopics, needed: func(have *store.GroupSessions) bool {
		s := g.state()
		return s == nil || s.Generation < have.Generation ||
			slices.ContainsFunc(s.Topics, func(t journal.GroupTopic) bool { return len(t.Slots) > 0 && c.deleted(t.ID) })
	}})
}

// beat answers a heartbeat. known says that the member has everything that it keeps, in the present generation: then where to go on matters
// little, for of what it has it knows more than anybody.
func (c *Coordinator) beat(ctx context.Context, g *group, s *journal.GroupState, mine *share, known bool) (*Beat, error) {
	out := &Beat{Generation: s.Generation, Revoke: make([]TopicPartition, len(mine.revoked))}
	for i := range mine.revoked {
		out.Revoke[i] = mine.revoked[i].TopicPartition
	}
	if known {
		if out.Assignment, known = g.assigned(mine.keeps); known {
			return out, nil
		}
	}
	offsets, err := c.loadOffsets(ctx, g)
	if err != nil {
		return nil, err
	}
	out.Assignment = assignment(mine.keeps, offsets)
	return out, nil
}

// placesOf gives the IDs of those partitions that a state knows.
func placesOf(s *journal.GroupState, owned []TopicPartition) map[journal.GroupPartition]bool {
	topics := make(map[string]*journal.GroupTopic, len(s.Topics))
	for i := range s.Topics {
		topics[s.Topics[i].Name] = &s.Topics[i]
	}
	out := make(map[journal.GroupPartition]bool, len(owned))
	for _, at := range owned {
		if t := topics[at.Topic]; t != nil && at.Partition >= 0 && int(at.Partition) < len(t.Slots) {
			out[journal.GroupPartition{Topic: t.ID, Partition: at.Partition}] = true
		}
	}
	return out
}
