package leases

import (
	"context"
	"math"
	"time"

	"github.com/forebaymq/forebay/leases/store"
)

// group is the waiters that are looked for together.
type group struct {
	e       *Engine
	q       *queue
	ctx     context.Context
	cancel  context.CancelFunc
	waiters []*waiter // those not answered yet, in line order
	ready   []*waiter // those that have all they asked for
	want    int       // records asked for

	visibility time.Duration // of all
	begun      time.Time     // before the oldest of the present leases was taken

	grants  []store.Grant // reserved and not yet read
	granted int           // records, in all
	now     int64         // Redis's clock at the last reservation, Unix ms
	synced  bool          // the look knew of everything acknowledged before these requests
	err     error         // for those that get nothing
}

func (e *Engine) newGroup(q *queue, ws []*waiter, want int) *group {
	g := &group{e: e, q: q, waiters: ws, want: want, visibility: ws[0].visibility}
	g.ctx, g.cancel = e.bounded(e.ctx, e.o.CallTimeout)
	return g
}

// look reserves records. It begins with what this node knows, and before it finds nothing, it asks the log what else there is, and tries
// everything.
func (g *group) look() {
	g.synced = true
	for _, w := range g.waiters {
		g.synced = g.synced && w.looked
	}
	l, err := g.e.choose(g.q, false, false)
	if err == nil && (len(l.fresh) > 0 || g.q.store.Keyed()) {
		if err = g.reserve(g.want, l); err == nil && l.more && g.granted < g.want {
			if l, err = g.e.choose(g.q, false, false); err == nil {
				err = g.reserve(g.want-g.granted, l)
			}
		}
	}
	if err == nil && g.granted == 0 {
		err = g.lookEverywhere()
	}
	if err != nil {
		g.fail(err)
	}
}

func (g *group) lookEverywhere() error {
	if !g.synced {
		if err := g.e.o.View.Sync(g.ctx); err != nil {
			return err
		}
		g.synced = true
	}
	l, err := g.e.choose(g.q, true, true)
	if err != nil {
		return err
	}
	return g.reserve(g.want, l)
}

// reserve leases up to want records.
func (g *group) reserve(want int, l look) error {
	now := g.e.o.Clock.Now()
	if g.begun.IsZero() {
		g.begun = now
	}
	if g.q.store.Fair && len(l.fresh) > 0 {
		// Shares are fair among what is known to wait, so all that the caps let in must be known first.
		if err := g.admitAll(l); err != nil {
			return err
		}
	}
	for admitted := false; ; {
		got, err := g.e.acquire(g.ctx, g.q, want, g.visibility, l)
		if err != nil {
			return err
		}
		if len(got.Gaps) > 0 {
			return gapError(g.q.name(), got.Gaps)
		}
		g.now = got.Now
		n := 0
		for i := range got.Grants {
			n += int(got.Grants[i].Count)
		}
		g.grants = append(g.grants, got.Grants...)
		g.granted += n
		want -= n
		if want > 0 && g.q.store.Ordered && !admitted {
			// New records of a keyed queue become deliverable once their keys are known.
			if admitted, err = g.e.admit(g.ctx, g.q, max(want, admitBatch), got.Positions); err != nil && g.granted == 0 {
				return err
			}
			if admitted {
				continue
			}
		}
		if len(g.grants) == 0 {
			switch {
			case got.NextDue == 0:
				g.q.line.dueAt(now.Add(overdueRecheck))
			case g.q.shards.capped():
				g.q.line.dueAt(now.Add(cappedRecheck))
			}
		}
		return nil
	}
}

// admitAll admits whatever the caps let in of the partitions that may hold new records.
func (g *group) admitAll(l look) error {
	partitions := make([]int32, len(l.fresh))
	for i := range l.fresh {
		partitions[i] = l.fresh[i].Partition
	}
	for range maxOpens {
		var positions []store.Position
		var absent []int32
		err := g.e.call(g.ctx, g.q, func(ctx context.Context) (err error) {
			positions, absent, err = g.e.o.Store.Positions(ctx, &g.q.store, partitions)
			return err
		})
		if err != nil {
			return err
		}
		if len(absent) > 0 {
			if err := g.e.open(g.ctx, g.q, absent); err != nil {
				return err
			}
			continue
		}
		g.q.shards.learn(positions)
		_, err = g.e.admit(g.ctx, g.q, math.MaxInt32, positions)
		return err
	}
	return errLosing()
}

// fail gives the error to all that have nothing.
func (g *group) fail(err error) {
	if g.err == nil {
		g.err = err
		if g.ctx.Err() != nil {
			g.err = unavailable(err)
		}
	}
}

// finish answers those that are left: with what they have, with the error, or by putting them back in line.
func (g *group) finish() {
	for _, w := range g.waiters {
		switch {
		case len(w.found) > 0:
			g.handOver(w)
		case g.err != nil:
			g.q.line.fail(w, g.err)
		default:
			if g.q.line.putBack(w, g.synced && g.granted == 0) {
				g.e.dispatch(g.q.active)
			}
		}
	}
	g.waiters = nil
	g.cancel()
}
