package groups

import (
	"context"
	"errors"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/leases/store"
)

// A generation is made in steps, and a node may die between any two of them:
//
//	fence    the next epoch of the group's producer: from here on nothing of an earlier generation gets into the journal
//	load     what the journal has, linearizably: everything of earlier generations that ever will be there
//	decide   the events, the topics and the sessions give the next state; pure
//	write    the state and the offsets at which new partitions begin, in one append under the fence. From here on the generation is
//	show     Redis gets it: members learn of it
//
// After fence the present generation cannot commit any more. Should the next one not come, the first commit that is refused makes it. After write
// it is the newest of the journal, and whoever makes the next builds on it, whatever Redis shows. So every state in the journal was built on the
// one before it, however many nodes work on it and however late they are.

// why is the reason of a generation. It is a metric label.
type why string

const (
	whyJoin   why = "join"
	whyLeave  why = "leave"
	whyLetGo  why = "let_go"
	whyLapse  why = "lapse"
	whyTopics why = "topics"
	whyLost   why = "lost"   // Redis has nothing, or something old
	whyFenced why = "fenced" // the present generation was fenced, and the next one did not come
	whyAdmin  why = "admin"  // seek, delete, commit without a member
)

var whys = [...]why{whyJoin, whyLeave, whyLetGo, whyLapse, whyTopics, whyLost, whyFenced, whyAdmin}

// request asks for a generation. Requests that come together are served by one.
type request struct {
	why    why
	events []event
	join   *journal.GroupMember // one of events makes it a member: its session begins
	// needed says, once nobody else changes the group, whether the request still asks for anything. nil: it does.
	needed func(s *store.GroupSessions) bool
	// act does something beside: it adds to what the generation writes, or refuses the request. nil: nothing.
	act func(t *turn) error

	done chan struct{}
	err  error
	turn *turn // that served it; nil when it was not needed
}

// turn is the making of one generation.
type turn struct {
	g        *group
	epoch    int64
	base     *journal.GroupState // nil: there was none
	state    *journal.GroupState
	offsets  map[journal.GroupPartition]journal.GroupOffset // those that this generation writes among them
	write    journal.GroupWrite
	sessions []store.GroupSession
	delete   bool
}

// commit makes an offset part of what the generation writes.
func (t *turn) commit(o journal.GroupOffset) {
	o.Generation = t.epoch
	t.write.Offsets = append(t.write.Offsets, o)
	t.offsets[o.GroupPartition] = o
}

// change asks for a generation and waits for it. It goes on when ctx ends: OUTCOME_UNKNOWN then.
func (c *Coordinator) change(ctx context.Context, g *group, r *request) error {
	c.ask(g, r)
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return unknownOutcome(ctx)
	}
}

// ask asks for a generation.
func (c *Coordinator) ask(g *group, r *request) {
	r.done = make(chan struct{})
	g.mu.Lock()
	g.mu.pending = append(g.mu.pending, r)
	start := !g.mu.changing
	g.mu.changing = true
	g.mu.Unlock()
	if start && !c.spawn(func() { c.changes(g) }) {
		g.mu.Lock()
		batch := g.mu.pending // others may have come to rely on this one
		g.mu.changing, g.mu.pending = false, nil
		g.mu.Unlock()
		for _, r := range batch {
			r.err = draining()
			close(r.done)
		}
	}
}

// nudge asks for a generation and does not wait. One that is asked for already will do.
func (c *Coordinator) nudge(g *group, r *request) {
	g.mu.Lock()
	queued := len(g.mu.pending) > 0
	g.mu.Unlock()
	if !queued {
		c.ask(g, r) // a node that is closed leaves it to others
	}
}

// changes makes generations until nobody asks for one.
func (c *Coordinator) changes(g *group) {
	for {
		c.gather(g)
		g.mu.Lock()
		batch := g.mu.pending
		g.mu.pending = nil
		g.mu.changing = len(batch) > 0
		g.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		ctx, cancel := c.bounded(c.ctx)
		err := c.serve(ctx, g, batch)
		if err != nil && ctx.Err() != nil && api.CodeOf(err) == "" {
			err = unknownOutcome(ctx)
		}
		cancel()
		for _, r := range batch {
			if r.err == nil {
				r.err = err
			}
			close(r.done)
		}
	}
}

const (
	lockTime    = 3 * time.Second
	lockLook    = 20 * time.Millisecond
	maxTurns    = 12
	firstPause  = 10 * time.Millisecond
	slowestWait = 500 * time.Millisecond
)

// serve makes the generation that a batch asks for.
func (c *Coordinator) serve(ctx context.Context, g *group, batch []*request) error {
	defer c.lock(ctx, g)()
	pause := firstPause
	for n := 1; ; n++ {
		started := c.o.Clock.Now()
		err := c.take(ctx, g, batch)
		switch {
		case err == nil:
			c.m.took.Observe(c.o.Clock.Since(started).Seconds())
			return nil
		case n == maxTurns || !again(ctx, err):
			if !errors.Is(err, errGone) {
				c.m.failed.Inc()
				c.o.Logger.Warn("a group has no new generation", "tenant", g.meta.Tenant, "group", g.meta.ID, "why", batch[0].why, "error", err)
			}
			return err
		}
		c.m.retried.Inc()
		if perr := c.pause(ctx, c.jitter(pause)); perr != nil {
			return err
		}
		pause = min(2*pause, slowestWait)
	}
}

// again says whether another try may do: another node was faster, or it is not known whether the write has had its effect. The next turn
// finds out.
func again(ctx context.Context, err error) bool {
	return ctx.Err() == nil && (fenced(err) || errors.Is(err, store.ErrStale) || api.CodeOf(err) == api.CodeOutcomeUnknown)
}

// lock waits until no other node changes the group, or long enough. Without it nodes that change a group at the same time would fence one another's
// turns, again and again.
func (c *Coordinator) lock(ctx context.Context, g *group) (unlock func()) {
	for waited := time.Duration(0); waited < lockTime; waited += lockLook {
		ok, err := c.o.Store.Lock(ctx, g.meta.ID, c.holder, lockTime)
		if err != nil {
			break
		}
		if ok {
			return func() {
				if err := c.o.Store.Unlock(ctx, g.meta.ID, c.holder); err != nil {
					c.o.Logger.Debug("a lock of a group stays until its time is over", "group", g.meta.ID, "error", err)
				}
			}
		}
		if c.pause(ctx, lockLook) != nil {
			break
		}
	}
	return func() {}
}

// take makes one generation.
func (c *Coordinator) take(ctx context.Context, g *group, batch []*request) error {
	needed, err := c.needed(ctx, g, batch)
	if err != nil || !needed {
		return err
	}
	if _, err := c.o.Catalog.GroupByID(g.meta.ID); api.CodeOf(err) == api.CodeUnknownGroup {
		return errors.Join(errGone, c.o.Store.Drop(ctx, g.meta.ID)) // it was here
	}
	t := &turn{g: g}
	// fence
	if t.epoch, err = c.o.Catalog.StartProducer(ctx, g.meta.Tenant, journal.GroupProducer(g.meta.ID)); err != nil {
		return err
	}
	// load
	loaded, err := c.o.Journal.Load(ctx, g.meta.Tenant, g.meta.ID)
	if err != nil {
		return err
	}
	if _, err := c.o.Catalog.GroupByID(g.meta.ID); api.CodeOf(err) == api.CodeUnknownGroup {
		return errors.Join(errGone, c.o.Store.Drop(ctx, g.meta.ID))
	}
	if loaded.State != nil && loaded.State.Deleted { // who deleted it did not come to its end
		return errors.Join(errGone, c.bury(ctx, t))
	}
	sessions, err := c.o.Store.Sessions(ctx, g.meta.ID)
	if err != nil {
		return err
	}
	t.base, t.offsets = loaded.State, loaded.Offsets
	// decide
	if err := c.decide(t, batch, sessions); err != nil {
		return err
	}
	// write
	if err := c.o.Journal.Write(ctx, g.meta.Tenant, g.meta.ID, t.epoch, t.write); err != nil {
		return err
	}
	g.adopt(t.state)
	g.noteOffsets(t.offsets)
	for _, r := range batch {
		r.turn = t
		c.m.generations[r.why].Inc()
	}
	if t.delete {
		return c.bury(ctx, t)
	}
	// show
	value, err := t.state.Encode()
	if err != nil {
		return err
	}
	if err := c.o.Store.Publish(ctx, g.meta.ID, t.epoch, value, t.sessions); err != nil && !errors.Is(err, store.ErrStale) {
		return err
	}
	return nil
}

// needed says whether one of the requests still asks for anything.
func (c *Coordinator) needed(ctx context.Context, g *group, batch []*request) (bool, error) {
	for _, r := range batch {
		if r.needed == nil {
			return true, nil
		}
	}
	s, err := c.o.Store.Sessions(ctx, g.meta.ID)
	if err != nil {
		return false, err
	}
	for _, r := range batch {
		if r.needed(s) {
			return true, nil
		}
	}
	return false, nil
}

// decide computes the state, and what is to be written and shown.
func (c *Coordinator) decide(t *turn, batch []*request, sessions *store.GroupSessions) error {
	joining, begins := map[string]bool{}, map[string]bool{}
	names := topicNames(t.base)
	for _, r := range batch {
		r.err = nil
		if r.join != nil {
			joining[r.join.ID] = true
			names = append(names, r.join.Topics...)
		}
	}
	topics, err := c.topics(t.g.meta.Tenant, names)
	if err != nil {
		return err
	}
	var events []event
	if t.base != nil {
		for i := range t.base.Members {
			m := &t.base.Members[i]
			ends, known := sessions.Expires[m.ID]
			switch {
			case joining[m.ID]:
			case !known, ends <= sessions.Now && sessions.Generation < t.base.Generation:
				events = append(events, forgotten{m.ID})
				begins[m.ID] = true
			case ends <= sessions.Now:
				events = append(events, left{m.ID})
				c.m.lapsed.Inc()
			}
		}
	}
	events = append(events, admit(t.base, topics, events, batch)...)
	t.state = next(t.base, t.epoch, topics, events)
	for _, r := range batch {
		if r.act != nil && r.err == nil {
			r.err = r.act(t)
		}
	}
	if err := c.begin(t); err != nil {
		return err
	}
	t.write.State = t.state
	for i := range t.state.Members {
		m := &t.state.Members[i]
		t.sessions = append(t.sessions, store.GroupSession{
			Member: m.ID, Session: time.Duration(m.Session) * time.Millisecond, Absent: m.Absent, Begin: joining[m.ID] || begins[m.ID],
		})
	}
	return nil
}

// admit gives the events of the requests that do not ask for too much. The others are refused.
func admit(base *journal.GroupState, topics map[string]topicView, before []event, batch []*request) (out []event) {
	trial := &journal.GroupState{}
	if base != nil {
		trial = base.Clone()
	}
	for _, e := range before {
		e.apply(trial)
	}
	for _, r := range batch {
		if r.join != nil {
			if r.err = room(trial, topics, r.join); r.err != nil {
				continue
			}
		}
		for _, e := range r.events {
			e.apply(trial)
			out = append(out, e)
		}
	}
	return out
}

// room says whether a member more is too much.
func room(s *journal.GroupState, topics map[string]topicView, m *journal.GroupMember) error {
	if memberOf(s, m.ID) == nil && len(s.Members) >= MaxMembers {
		return api.Errorf(api.CodeConflict, "the group has %d members, which is as many as a group may have", len(s.Members))
	}
	wanted := wantedTopics(s)
	for _, t := range m.Topics {
		wanted[t] = true
	}
	if len(wanted) > MaxTopics {
		return api.Errorf(api.CodeConflict, "the members of the group would read %d topics together, %d at most", len(wanted), MaxTopics)
	}
	partitions := 0
	for t := range wanted {
		partitions += topics[t].Partitions
	}
	if partitions > MaxPartitions {
		return api.Errorf(api.CodeConflict, "the topics of the group would have %d partitions, %d at most", partitions, MaxPartitions)
	}
	return nil
}

// begin commits where the group begins on partitions that are new to it, and forgets offsets of topics that are no more. This node has applied
// everything that was acknowledged before the turn.
func (c *Coordinator) begin(t *turn) error {
	gone := map[journal.GroupPartition]bool{}
	for at := range t.offsets {
		if _, err := c.o.View.TopicByID(at.Topic); api.CodeOf(err) == api.CodeUnknownTopic {
			gone[at] = true
			t.write.Remove = append(t.write.Remove, at)
		}
	}
	for at := range gone {
		delete(t.offsets, at)
	}
	has := func(at journal.GroupPartition) bool { _, ok := t.offsets[at]; return ok }
	now := c.now()
	for _, b := range begins(t.base, t.state, has) {
		info, err := c.o.View.Partition(b.Topic, b.Partition)
		if err != nil {
			if api.CodeOf(err) == api.CodeUnknownTopic {
				continue // deleted this moment: the next generation is without it
			}
			return err
		}
		o := journal.GroupOffset{GroupPartition: b.GroupPartition, Offset: info.Head, Time: now}
		if b.earliest {
			o.Offset = info.LogStart
		}
		t.commit(o)
	}
	return nil
}

// bury forgets a group whose end is in the journal. Its name is free first, so nobody joins it any more; then its records go, under the fence of
// the turn, and what Redis has.
func (c *Coordinator) bury(ctx context.Context, t *turn) error {
	id := t.g.meta.ID
	if _, err := c.o.Catalog.DeleteGroupByID(ctx, id); err != nil && api.CodeOf(err) != api.CodeUnknownGroup {
		return err
	}
	if err := c.o.Journal.Drop(ctx, t.g.meta.Tenant, id, t.epoch); err != nil && !fenced(err) {
		c.o.Logger.Warn("records of a deleted group stay in the journal", "tenant", t.g.meta.Tenant, "group", id, "error", err)
	}
	if err := c.o.Store.Drop(ctx, id); err != nil {
		c.o.Logger.Warn("a deleted group stays in Redis", "group", id, "error", err)
	}
	c.drop(t.g)
	return nil
}
