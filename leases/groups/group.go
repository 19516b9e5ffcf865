package groups

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/leases/store"
	"github.com/forebaymq/forebay/metadata"
)

// group is what this node knows about one group.
type group struct {
	meta *metadata.ConsumerGroup
	used atomic.Int64 // Unix ms: when it was last asked for

	mu struct {
		sync.Mutex
		state   *journal.GroupState // of the newest generation that this node has seen; never changed
		shares  *shares             // of state, or of an earlier one
		offsets map[journal.GroupPartition]journal.GroupOffset
		lent    bool          // others read offsets without the lock
		life    uint64        // of Redis, in which what it has of the group was compared with the journal
		watched int64         // Unix ms: when the topics were last looked at
		looked  int64         // Unix ms: when Redis was last asked for the generation
		newer   chan struct{} // closed when a later generation is seen; nil = nobody waits for one

		held map[string]holding // by member that has something to let go

		pending  []*request // for the next generation
		changing bool       // somebody makes one
		commits  []*commit
		writing  bool // somebody writes offsets
		turn     int  // which partition the next poll begins with
	}
}

func (g *group) name() Name { return Name{Tenant: g.meta.Tenant, Group: g.meta.Name} }

// state gives the state of the newest generation that was seen, nil = none.
func (g *group) state() *journal.GroupState {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.state
}

// adopt notes a generation that was seen, and gives the newest.
func (g *group) adopt(s *journal.GroupState) *journal.GroupState {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.state == nil || g.mu.state.Generation < s.Generation {
		g.mu.state = s
		if g.mu.newer != nil {
			close(g.mu.newer)
			g.mu.newer = nil
		}
	}
	return g.mu.state
}

// after gives a channel that is closed when this node has seen a later generation.
func (g *group) after(generation int64) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.newer == nil {
		g.mu.newer = make(chan struct{})
	}
	newer := g.mu.newer
	if g.mu.state != nil && g.mu.state.Generation > generation {
		close(g.mu.newer)
		g.mu.newer = nil
	}
	return newer
}

// looks says whether it is time to ask Redis for the generation again. Who is told so asks, and nobody else does for a while.
func (g *group) looks(now int64, every time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now-g.mu.looked < every.Milliseconds() {
		return false
	}
	g.mu.looked = now
	return true
}

// noteOffsets notes what the journal has.
func (g *group) noteOffsets(all map[journal.GroupPartition]journal.GroupOffset) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.offsets, g.mu.lent = all, true
}

// noteCommitted notes what was committed by this node.
func (g *group) noteCommitted(some []journal.GroupOffset) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.offsets == nil {
		return
	}
	if g.mu.lent {
		g.mu.offsets, g.mu.lent = maps.Clone(g.mu.offsets), false
	}
	for _, o := range some {
		if had, ok := g.mu.offsets[o.GroupPartition]; !ok || had.Generation <= o.Generation {
			g.mu.offsets[o.GroupPartition] = o
		}
	}
}

// assigned says where to go on with partitions, as far as this node knows; false when it knows nothing.
func (g *group) assigned(keeps []place) ([]Assigned, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.offsets == nil {
		return nil, false
	}
	return assignment(keeps, g.mu.offsets), true
}

// loadOffsets gives the committed offsets, linearizably.
func (c *Coordinator) loadOffsets(ctx context.Context, g *group) (map[journal.GroupPartition]journal.GroupOffset, error) {
	l, err := c.o.Journal.Load(ctx, g.meta.Tenant, g.meta.ID)
	if err != nil {
		return nil, err
	}
	g.noteOffsets(l.Offsets)
	return l.Offsets, nil
}

// look gives the state of the present generation, and the sessions of some members in it. Where Redis has nothing, or something older than there
// is, the group is built anew first: that is another generation. claimed is a generation that the caller says he has heard of.
func (c *Coordinator) look(ctx context.Context, g *group, claimed int64, beat bool, members ...string) (*journal.GroupState, *store.GroupLook, error) {
	for {
		have := g.state()
		known := int64(0)
		if have != nil {
			known = have.Generation
		}
		l, newest, err := c.inspect(ctx, g, known, &claimed, beat, members...)
		if err != nil {
			return nil, nil, err
		}
		if l.Found && l.Generation >= newest {
			if l.Generation == known {
				return have, l, nil
			}
			s, err := journal.DecodeGroupState(l.State)
			if err == nil && s.Generation == l.Generation {
				g.adopt(s)
				return s, l, nil
			}
			c.o.Logger.Error("Redis has a group's state that cannot be read: it is built anew", "tenant", g.meta.Tenant, "group", g.meta.ID, "error", err)
			if err := c.o.Store.Drop(ctx, g.meta.ID); err != nil {
				return nil, nil, err
			}
			newest = l.Generation + 1
		}
		lost := func(s *store.GroupSessions) bool { return !s.Found || s.Generation < newest }
		if err := c.change(ctx, g, &request{why: whyLost, needed: lost}); err != nil {
			return nil, nil, err
		}
	}
}

// inspect asks Redis, and gives the newest generation that this node knows of: known, or a later one. A Redis that was rolled back shows a generation
// that is over. Whoever knows a later one is not deceived; so in each of its lives, what it has of a group is compared with the journal
// once, and so it is when the caller claims to have heard of a later generation.
func (c *Coordinator) inspect(ctx context.Context, g *group, known int64, claimed *int64, beat bool, members ...string) (l *store.GroupLook, newest int64, err error) {
	for {
		life := c.o.Store.Life()
		if l, err = c.o.Store.Look(ctx, g.meta.ID, known, beat, members...); err != nil {
			return nil, 0, err
		}
		if c.o.Store.Life() != life {
			continue // it is not known which one has answered
		}
		now := c.now()
		g.mu.Lock()
		g.mu.looked = max(g.mu.looked, now)
		compared := g.mu.life == life
		g.mu.Unlock()
		if !l.Found || l.Generation < known || compared && l.Generation >= *claimed {
			return l, known, nil
		}
		if newest, err = c.journalled(ctx, g); err != nil {
			return nil, 0, err
		}
		*claimed = min(*claimed, newest) // it may be made up
		if l.Generation >= newest {
			g.mu.Lock()
			g.mu.life = life
			g.mu.Unlock()
		}
		return l, max(known, newest), nil
	}
}

// journalled gives the newest generation in the journal, 0 = none.
func (c *Coordinator) journalled(ctx context.Context, g *group) (int64, error) {
	l, err := c.o.Journal.Load(ctx, g.meta.Tenant, g.meta.ID)
	if err != nil || l.State == nil {
		return 0, err
	}
	return l.State.Generation, nil
}

// slotOf gives the slot of a partition, nil when the state has none.
func slotOf(s *journal.GroupState, at journal.GroupPartition) *journal.GroupSlot {
	i := slices.IndexFunc(s.Topics, func(t journal.GroupTopic) bool { return t.ID == at.Topic })
	if i < 0 || int(at.Partition) >= len(s.Topics[i].Slots) {
		return nil
	}
	return &s.Topics[i].Slots[at.Partition]
}
