package groups

import (
	"context"
	"slices"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/leases/store"
)

func invalid(pointer, format string, args ...any) error {
	e := api.Errorf(api.CodeInvalidRequest, format, args...)
	e.Fields = []api.FieldError{{Pointer: pointer, Detail: e.Detail}}
	return e
}

// checkID says whether a member's or an instance's ID is one: printable, without spaces.
func checkID(pointer, id string) error {
	if len(id) > MaxMemberIDBytes {
		return invalid(pointer, "an ID of %d bytes, %d at most", len(id), MaxMemberIDBytes)
	}
	for _, r := range id {
		if r <= ' ' || r > '~' {
			return invalid(pointer, "an ID has printable ASCII characters and no spaces")
		}
	}
	return nil
}

// asMember checks a request and gives the member that it asks for.
func (r *JoinRequest) asMember() (*journal.GroupMember, error) {
	m := &journal.GroupMember{ID: r.MemberID, Instance: r.InstanceID, Topics: slices.Clone(r.Topics), Earliest: r.Start == Earliest}
	slices.Sort(m.Topics)
	m.Topics = slices.Compact(m.Topics)
	session := r.SessionTimeout
	if session == 0 {
		session = DefaultSession
	}
	m.Session = session.Milliseconds()
	switch {
	case len(m.Topics) == 0 || len(m.Topics) > MaxTopics:
		return nil, invalid("/topics", "name 1 to %d topics", MaxTopics)
	case session < MinSessionTimeout || session > MaxSessionTimeout:
		return nil, invalid("/sessionTimeout", "a session is %s to %s", MinSessionTimeout, MaxSessionTimeout)
	case r.Start != "" && r.Start != Latest && r.Start != Earliest:
		return nil, invalid("/start", "start is %q or %q", Latest, Earliest)
	}
	if err := checkID("/memberId", m.ID); err != nil {
		return nil, err
	}
	return m, checkID("/instanceId", m.Instance)
}

// Join makes or renews a membership. One that is renewed as it was costs nothing; else a generation begins. Polls of the member go on from the
// committed offsets.
func (c *Coordinator) Join(ctx context.Context, r JoinRequest) (*Joined, error) {
	m, err := r.asMember()
	if err != nil {
		return nil, err
	}
	for _, t := range m.Topics {
		if _, err := c.topic(ctx, r.Tenant, t); err != nil {
			return nil, err
		}
	}
	var out *Joined
	err = c.with(ctx, r.Name, true, func(g *group) (err error) {
		out, err = c.join(ctx, g, *m)
		return err
	})
	return out, err
}

func (c *Coordinator) join(ctx context.Context, g *group, m journal.GroupMember) (*Joined, error) {
	if m.ID != "" {
		s, err := c.renew(ctx, g, &m)
		if err != nil {
			return nil, err
		}
		if s != nil {
			offsets, err := c.loadOffsets(ctx, g)
			if err != nil {
				return nil, err
			}
			return g.joinedAs(s, &m, offsets), nil
		}
	} else {
		var err error
		if m.ID, err = c.newID("m-"); err != nil {
			return nil, err
		}
	}
	req := &request{why: whyJoin, events: []event{joined{m}}, join: &m}
	if err := c.change(ctx, g, req); err != nil {
		return nil, err
	}
	return g.joinedAs(req.turn.state, &m, req.turn.offsets), nil
}

// renew goes on with a membership that is as it is asked for. nil: there is none.
func (c *Coordinator) renew(ctx context.Context, g *group, m *journal.GroupMember) (*journal.GroupState, error) {
	known, have := int64(0), g.state()
	if have != nil {
		known = have.Generation
	}
	claimed := int64(0)
	l, newest, err := c.inspect(ctx, g, known, &claimed, true, m.ID)
	if err != nil {
		return nil, err
	}
	s := have
	if l.Found && l.Generation > known {
		if s, err = journal.DecodeGroupState(l.State); err != nil {
			return nil, nil // it is built anew
		}
		g.adopt(s)
	}
	if !l.Found || s == nil || l.Generation < max(newest, s.Generation) || l.Expires[0] == 0 {
		return nil, nil
	}
	was := memberOf(s, m.ID)
	if was == nil || was.Absent || was.Instance != m.Instance || was.Session != m.Session || was.Earliest != m.Earliest || !slices.Equal(was.Topics, m.Topics) {
		return nil, nil
	}
	if topics, err := c.topics(g.meta.Tenant, topicNames(s)); err != nil || outdated(s, topics) {
		return nil, err
	}
	keeps := g.share(s, m.ID).keeps
	at := make([]store.GroupPosition, len(keeps))
	for i := range keeps {
		at[i] = store.GroupPosition{Topic: keeps[i].GroupPartition.Topic, Partition: keeps[i].GroupPartition.Partition}
	}
	return s, c.o.Store.ForgetPositions(ctx, g.meta.ID, c.writer(), at)
}

func (g *group) joinedAs(s *journal.GroupState, m *journal.GroupMember, offsets map[journal.GroupPartition]journal.GroupOffset) *Joined {
	keeps := g.share(s, m.ID).keeps
	return &Joined{
		MemberID: m.ID, Generation: s.Generation, Assignment: assignment(keeps, offsets),
		HeartbeatInterval: time.Duration(m.Session) * time.Millisecond / heartbeatsASession,
	}
}

// assignment says where to go on with the partitions. One without an offset is of a topic that was deleted this moment.
func assignment(keeps []place, offsets map[journal.GroupPartition]journal.GroupOffset) []Assigned {
	out := make([]Assigned, 0, len(keeps))
	for i := range keeps {
		if o, ok := offsets[keeps[i].GroupPartition]; ok {
			out = append(out, Assigned{keeps[i].TopicPartition, o.Offset, keeps[i].GroupPartition.Topic})
		}
	}
	return out
}

// Leave ends a membership: what the member owned is free in the generation that it begins. A member that is none any more has left. UNKNOWN_GROUP.
func (c *Coordinator) Leave(ctx context.Context, n Name, memberID string) error {
	return c.with(ctx, n, false, func(g *group) error {
		s, _, err := c.look(ctx, g, 0, false)
		if err != nil || memberOf(s, memberID) == nil {
			return err
		}
		return c.change(ctx, g, &request{why: whyLeave, events: []event{left{memberID}}})
	})
}
