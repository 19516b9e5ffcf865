package groups

import (
	"context"
	"strconv"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/leases/store"
)

// commit is a request that waits for its turn to be written.
type commit struct {
	member     string
	generation int64
	offsets    []journal.GroupOffset
	done       chan struct{}
	err        error
}

// Commit makes offsets durable, all or none. It is checked twice: at the door, against what Redis shows, and in the order of the log, where a
// generation that is over is refused whatever the door said. Commits of one group that come together are one append. A member may commit a
// lower offset than before. Without member and generation it is for a group that has no live members, and creates one that does not exist.
func (c *Coordinator) Commit(ctx context.Context, r CommitRequest) error {
	err := c.commit(ctx, &r)
	c.m.commit(err)
	return err
}

func (c *Coordinator) commit(ctx context.Context, r *CommitRequest) error {
	if r.MemberID == "" && r.Generation == 0 {
		// What cannot be committed makes no group.
		if len(r.Offsets) == 0 {
			return invalid("/offsets", "there is nothing to commit")
		}
		offsets, err := c.offsets(ctx, r)
		if err != nil {
			return err
		}
		return c.with(ctx, r.Name, true, func(g *group) error { return c.commitUnowned(ctx, g, offsets) })
	}
	return c.with(ctx, r.Name, false, func(g *group) error {
		offsets, err := c.offsets(ctx, r)
		if err != nil {
			return err
		}
		if len(offsets) == 0 {
			_, err := c.ownership(ctx, g, []*commit{{member: r.MemberID, generation: r.Generation}})
			return err
		}
		return c.commitOwned(ctx, g, &commit{member: r.MemberID, generation: r.Generation, offsets: offsets, done: make(chan struct{})})
	})
}

// offsets checks what is to be committed. INVALID_REQUEST, UNKNOWN_TOPIC, UNKNOWN_PARTITION.
func (c *Coordinator) offsets(ctx context.Context, r *CommitRequest) ([]journal.GroupOffset, error) {
	if len(r.Offsets) > MaxOffsets {
		return nil, invalid("/offsets", "%d offsets, %d at most", len(r.Offsets), MaxOffsets)
	}
	synced := false
	out := make([]journal.GroupOffset, len(r.Offsets))
	at := make(map[journal.GroupPartition]bool, len(out))
	now := c.now()
	for i := range r.Offsets {
		o := &r.Offsets[i]
		pointer := func(field string) string { return "/offsets/" + strconv.Itoa(i) + "/" + field }
		if o.Offset < 0 {
			return nil, invalid(pointer("offset"), "offset %d is below zero", o.Offset)
		}
		if len(o.Metadata) > MaxMetadataBytes {
			return nil, invalid(pointer("metadata"), "%d bytes of metadata, %d at most", len(o.Metadata), MaxMetadataBytes)
		}
		t, err := c.topic(ctx, r.Tenant, o.Topic)
		if err != nil {
			return nil, err
		}
		info, err := c.o.View.Partition(t.ID, o.Partition)
		if !synced && (err != nil || o.Offset > info.Head) {
			// The node that served the record may have applied more than this one.
			synced = true
			if err := c.o.View.Sync(ctx); err != nil {
				return nil, err
			}
			info, err = c.o.View.Partition(t.ID, o.Partition)
		}
		if api.CodeOf(err) == api.CodeUnknownPartition {
			e := api.Errorf(api.CodeUnknownPartition, "topic %q has no partition %d", o.Topic, o.Partition)
			e.Fields = []api.FieldError{{Pointer: pointer("partition"), Detail: e.Detail}}
			return nil, e
		}
		if err != nil {
			return nil, err
		}
		if o.Offset > info.Head {
			return nil, invalid(pointer("offset"), "offset %d of partition %d of topic %q is beyond its head %d", o.Offset, o.Partition, o.Topic, info.Head)
		}
		out[i] = journal.GroupOffset{GroupPartition: journal.GroupPartition{Topic: t.ID, Partition: o.Partition}, Offset: o.Offset, Metadata: o.Metadata, Generation: r.Generation, Time: now}
		if at[out[i].GroupPartition] {
			return nil, invalid("/offsets/"+strconv.Itoa(i), "partition %d of topic %q comes twice", o.Partition, o.Topic)
		}
		at[out[i].GroupPartition] = true
	}
	return out, nil
}

// commitOwned commits for a member.
func (c *Coordinator) commitOwned(ctx context.Context, g *group, m *commit) error {
	g.mu.Lock()
	g.mu.commits = append(g.mu.commits, m)
	start := !g.mu.writing
	g.mu.writing = true
	g.mu.Unlock()
	if start && !c.spawn(func() { c.writeCommits(g) }) {
		g.mu.Lock()
		batch := g.mu.commits // others may have come to rely on this one
		g.mu.writing, g.mu.commits = false, nil
		g.mu.Unlock()
		for _, m := range batch {
			m.err = draining()
			close(m.done)
		}
	}
	select {
	case <-m.done:
		return m.err
	case <-ctx.Done():
		return unknownOutcome(ctx)
	}
}

// maxCommits and maxTogether bound what is written in one append.
const (
	maxCommits  = 2000
	maxTogether = 50_000
)

// writeCommits writes what waits, in order, until nothing does.
func (c *Coordinator) writeCommits(g *group) {
	for {
		g.mu.Lock()
		n, offsets := 0, 0
		for n < len(g.mu.commits) && n < maxCommits && (n == 0 || offsets+len(g.mu.commits[n].offsets) <= maxTogether) {
			offsets += len(g.mu.commits[n].offsets)
			n++
		}
		batch := g.mu.commits[:n:n]
		if g.mu.commits = g.mu.commits[n:]; n == 0 {
			g.mu.commits = nil
		}
		g.mu.writing = n > 0
		g.mu.Unlock()
		if n == 0 {
			return
		}
		ctx, cancel := c.bounded(c.ctx)
		err := c.writeTogether(ctx, g, batch)
		if err != nil && ctx.Err() != nil && api.CodeOf(err) == "" {
			err = unknownOutcome(ctx)
		}
		cancel()
		c.m.together.Observe(float64(n))
		for _, m := range batch {
			if m.err == nil {
				m.err = err
			}
			close(m.done)
		}
	}
}

// writeTogether writes those commits of a batch that the door lets in. An error is that of all of them.
func (c *Coordinator) writeTogether(ctx context.Context, g *group, batch []*commit) error {
	s, err := c.ownership(ctx, g, batch)
	if err != nil && s == nil {
		return err
	}
	newest := map[journal.GroupPartition]int{}
	var offsets []journal.GroupOffset
	for _, m := range batch {
		if m.err != nil {
			continue
		}
		for _, o := range m.offsets {
			if i, ok := newest[o.GroupPartition]; ok {
				offsets[i] = o
				continue
			}
			newest[o.GroupPartition] = len(offsets)
			offsets = append(offsets, o)
		}
	}
	if len(offsets) == 0 {
		return nil
	}
	err = c.o.Journal.Write(ctx, g.meta.Tenant, g.meta.ID, s.Generation, journal.GroupWrite{Offsets: offsets})
	if fenced(err) {
		c.m.fenced.Inc()
		// Should the next generation not have come, whoever was to make it is gone.
		c.nudge(g, &request{why: whyFenced, needed: func(have *store.GroupSessions) bool { return !have.Found || have.Generation <= s.Generation }})
		return staleGeneration(g.name(), s.Generation+1)
	}
	if err == nil {
		g.noteCommitted(offsets)
	}
	return err
}

// ownership is the door: it sets the error of each commit that may not be, and gives the state that it was judged by. With one commit its error is
// given as well.
func (c *Coordinator) ownership(ctx context.Context, g *group, batch []*commit) (*journal.GroupState, error) {
	index, claimed := map[string]int{}, int64(0)
	var members []string
	for _, m := range batch {
		if _, ok := index[m.member]; !ok {
			index[m.member] = len(members)
			members = append(members, m.member)
		}
		claimed = max(claimed, m.generation)
	}
	s, l, err := c.look(ctx, g, claimed, false, members...)
	if err != nil {
		return nil, err
	}
	lapsed := false
	for _, m := range batch {
		who := memberOf(s, m.member)
		lapsed = lapsed || who != nil && l.Expires[index[m.member]] == 0
		switch {
		case who == nil || who.Absent || l.Expires[index[m.member]] == 0:
			m.err = mustRejoin(g.name(), s.Generation)
		case m.generation != s.Generation:
			m.err = staleGeneration(g.name(), s.Generation)
		default:
			m.err = c.owns(s, m)
		}
		if m.err != nil {
			err = m.err
		}
	}
	if lapsed {
		c.expire(g)
	}
	return s, err
}

// owns says whether a member owns all that it commits.
func (c *Coordinator) owns(s *journal.GroupState, m *commit) error {
	for i := range m.offsets {
		at := m.offsets[i].GroupPartition
		if l := slotOf(s, at); l == nil || l.Owner != m.member {
			topic := ""
			if t, err := c.o.View.TopicByID(at.Topic); err == nil {
				topic = t.Name
			}
			return api.Errorf(api.CodeNotOwner, "the member does not own partition %d of topic %q; nothing was committed", at.Partition, topic).
				With("topic", topic).With("partition", at.Partition)
		}
	}
	return nil
}

// commitUnowned commits for nobody: a group without live members.
func (c *Coordinator) commitUnowned(ctx context.Context, g *group, offsets []journal.GroupOffset) error {
	if err := c.alone(ctx, g); err != nil {
		return err
	}
	return c.change(ctx, g, &request{why: whyAdmin, act: func(t *turn) error {
		if n := len(t.state.Members); n > 0 {
			return liveMembers(n)
		}
		for _, o := range offsets {
			t.commit(o)
			if topic, err := c.o.View.TopicByID(o.Topic); err == nil {
				remember(t.state, topic, 0)
			}
		}
		return nil
	}})
}

// alone says whether a group has no members. It is asked before a generation is begun for nothing, and again within it.
func (c *Coordinator) alone(ctx context.Context, g *group) error {
	l, err := c.o.Store.Sessions(ctx, g.meta.ID)
	if err != nil {
		return err
	}
	n := 0 // where Redis has nothing, the generation finds out
	for _, ends := range l.Expires {
		if ends > l.Now {
			n++
		}
	}
	if n > 0 {
		return liveMembers(n)
	}
	return nil
}
