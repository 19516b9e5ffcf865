package groups

import (
	"context"
	"time"

	"github.com/forebaymq/forebay/api"
)

// sweep looks for lapsed sessions, in all groups of the fabric: any node may find them. And it forgets groups that nobody has asked for.
func (c *Coordinator) sweep(ctx context.Context) {
	for _, g := range c.all() {
		if c.now()-g.used.Load() > c.o.IdleAfter.Milliseconds() {
			g.mu.Lock()
			busy := g.mu.changing || g.mu.writing
			g.mu.Unlock()
			if !busy {
				c.drop(g)
			}
		}
	}
	ids, err := c.o.Store.Lapsed(ctx)
	if err != nil {
		c.o.Logger.Debug("nobody looks for lapsed sessions while Redis is away", "error", err)
		return
	}
	for _, id := range ids {
		meta, err := c.o.Catalog.GroupByID(id)
		if err == nil {
			c.expire(c.group(meta))
			continue
		}
		if api.CodeOf(err) != api.CodeUnknownGroup || c.o.View.Sync(ctx) != nil {
			continue
		}
		if _, err := c.o.Catalog.GroupByID(id); api.CodeOf(err) == api.CodeUnknownGroup {
			if err := c.o.Store.Drop(ctx, id); err != nil {
				c.o.Logger.Debug("a deleted group stays in Redis", "group", id, "error", err)
			}
		}
	}
}

// measure computes the lag of the groups that this node has met, from what it knows: no series is of a group, so none can outlive it.
func (c *Coordinator) measure(ctx context.Context) {
	groups, lag, gaps, lost, oldest := 0, int64(0), 0, int64(0), time.Duration(0)
	for _, g := range c.all() {
		if _, err := c.o.Catalog.GroupByID(g.meta.ID); err != nil {
			c.drop(g)
			continue
		}
		groups++
		s := g.state()
		if s == nil {
			continue
		}
		l, err := c.o.Journal.Load(ctx, g.meta.Tenant, g.meta.ID)
		if err != nil {
			return // better the last numbers than wrong ones
		}
		g.noteOffsets(l.Offsets)
		if l.State != nil {
			s = l.State
		}
		for _, p := range c.lags(ctx, g, s, l.Offsets) {
			lag += p.Lag
			oldest = max(oldest, p.LagTime)
			if p.Gap != nil {
				gaps++
				lost += p.Gap.To - p.Gap.From
			}
		}
	}
	c.m.met.Set(float64(groups))
	c.m.lag.Set(float64(lag))
	c.m.gaps.Set(float64(gaps))
	c.m.lost.Set(float64(lost))
	c.m.lagSeconds.Set(oldest.Seconds())
}
