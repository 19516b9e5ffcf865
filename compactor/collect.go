package compactor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/forebaymq/forebay/internal/failpoint"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/objectstore"
)

// garbage is an object of the bucket that nothing refers to.
type garbage struct {
	id    ulid.ULID
	key   string
	size  int64
	since time.Time // when it was first seen so, by this collector's clock
}

// maxGarbage bounds what a collector remembers. What does not fit is found again by the next pass.
const maxGarbage = 1 << 18

// collecting is what a holder of the collector's claim knows. A successor begins anew: what waits for its grace waits again.
type collecting struct {
	c       *Compactor
	guard   *metadata.Guard
	garbage map[ulid.ULID]*garbage
	pass    pass
	missing map[ulid.ULID]bool // reported
	raised  time.Time          // when the boundary was last raised
	ruled   time.Time          // when the rules were last looked at
	rules   bool               // the bucket has our rules
}

// collector waits for the claim, and collects while it holds it.
func (c *Compactor) collector() {
	for {
		select {
		case <-c.o.Clock.After(c.o.Collect.Every):
		case <-c.ctx.Done():
			return
		}
		if c.o.Log.Available() != nil {
			continue
		}
		claim, held, err := c.o.Log.Claim(c.ctx, CollectorClaim, c.o.ClaimTTL)
		if err != nil && c.ctx.Err() == nil {
			c.o.Logger.Debug("cannot take the collector's claim", "error", err)
		}
		if err == nil && held {
			c.m.collector.Set(1)
			c.collect(claim)
			c.m.collector.Set(0)
		}
	}
}

// collect makes rounds until the claim is lost or the compactor closes.
func (c *Compactor) collect(claim *metadata.HeldClaim) {
	ctx, cancel := context.WithCancel(c.ctx)
	c.wg.Go(func() {
		select {
		case <-claim.Done:
		case <-ctx.Done():
		}
		cancel()
	})
	defer func() {
		cancel()
		release, end := context.WithTimeout(context.WithoutCancel(c.ctx), c.o.ClaimTTL)
		defer end()
		if err := c.o.Log.Release(release, claim); err != nil {
			c.o.Logger.Debug("cannot release the collector's claim", "error", err)
		}
	}()
	k := c.newCollecting(claim)
	for {
		if err := k.round(ctx); err != nil && ctx.Err() == nil {
			c.o.Logger.Warn("collecting garbage failed, trying again", "error", err)
			if errors.Is(err, metadata.ErrClaimLost) {
				return
			}
		}
		select {
		case <-c.o.Clock.After(c.o.Collect.Every):
		case <-ctx.Done():
			return
		}
	}
}

func (c *Compactor) newCollecting(claim *metadata.HeldClaim) *collecting {
	return &collecting{
		c: c, guard: &metadata.Guard{Claim: claim.Name, Epoch: claim.Epoch}, garbage: map[ulid.ULID]*garbage{}, missing: map[ulid.ULID]bool{},
	}
}

// round looks at the rules when that is due, lists some pages, and deletes what may be deleted.
func (k *collecting) round(ctx context.Context) error {
	var errs []error
	if now := k.c.o.Clock.Now(); k.c.o.Lifecycle != nil && (k.ruled.IsZero() || now.Sub(k.ruled) >= k.c.o.Collect.LifecycleEvery) {
		k.ruled = now
		var err error
		if k.rules, err = k.c.reconcileRules(ctx); err != nil {
			errs = append(errs, err)
			k.ruled = time.Time{} // again in the next round
		}
	}
	if err := k.list(ctx); err != nil {
		errs = append(errs, err)
	}
	if err := k.sweep(ctx); err != nil {
		errs = append(errs, err)
	}
	k.c.m.waitingObj.Set(float64(len(k.garbage)))
	return errors.Join(errs...)
}

// sweep deletes garbage. Each step needs the one before:
//
//  1. choose what has been without a reference for ReadGrace, and is old enough for the boundary;
//  2. raise the boundary through the log, in every shard, where it is not above all of that yet: from then on no commit and no Replace can
//     make any of it live;
//  3. wait until this node has applied everything, the boundary included;
//  4. look again: what is live is no garbage;
//  5. delete.
func (k *collecting) sweep(ctx context.Context) error {
	chosen := k.choose()
	if len(chosen) == 0 {
		return nil
	}
	if err := k.raiseBoundary(ctx, chosen); err != nil {
		return err
	}
	failpoint.Hit(failpoint.CollectorAfterBoundary)
	if err := k.c.o.Log.Sync(ctx); err != nil {
		return fmt.Errorf("sync before deleting: %w", err)
	}
	boundary := k.c.o.Log.GCBoundary()
	dead := chosen[:0]
	for _, g := range chosen {
		if _, live := k.c.o.Log.Segment(g.id); live {
			delete(k.garbage, g.id)
			continue
		}
		if int64(g.id.Time()) < boundary {
			dead = append(dead, g)
		}
	}
	for part := range slices.Chunk(dead, objectstore.MaxDeleteKeys) {
		if err := k.delete(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

// choose gives garbage whose time has come, oldest first, as much as a round may delete.
func (k *collecting) choose() []*garbage {
	now := k.c.o.Clock.Now()
	o := &k.c.o.Collect
	var out []*garbage
	for _, g := range k.garbage {
		if now.Sub(g.since) >= o.ReadGrace && now.UnixMilli()-int64(g.id.Time()) > o.Grace.Milliseconds() {
			out = append(out, g)
		}
	}
	slices.SortFunc(out, func(a, b *garbage) int { return a.id.Compare(b.id) })
	return out[:min(len(out), max(1, int(float64(o.DeletesPerSecond)*o.Every.Seconds())))]
}

// raiseBoundary raises the boundary to the age at which orphans are collected, if that is needed, and not all the time.
func (k *collecting) raiseBoundary(ctx context.Context, chosen []*garbage) error {
	o := k.c.o
	newest := int64(chosen[len(chosen)-1].id.Time())
	now := o.Clock.Now()
	if newest < o.Log.GCBoundary() || !k.raised.IsZero() && now.Sub(k.raised) < o.Collect.Grace/20 {
		return nil
	}
	r, err := o.Log.Do(ctx, &metadata.GCBoundary{
		Boundary: now.Add(-o.Collect.Grace).UnixMilli(), Claim: k.guard.Claim, ClaimEpoch: k.guard.Epoch,
	}, k.guard)
	if err == nil {
		err = r.Err
	}
	if err != nil {
		return fmt.Errorf("raise the GC boundary: %w", err)
	}
	k.raised = now
	return nil
}

// delete deletes some objects. Those that fail stay garbage, and their turn comes again.
func (k *collecting) delete(ctx context.Context, dead []*garbage) error {
	if len(dead) == 0 {
		return nil
	}
	keys := make([]string, len(dead))
	for i, g := range dead {
		keys[i] = g.key
	}
	failpoint.Hit(failpoint.CollectorBeforeDelete)
	err := k.c.o.Store.Delete(ctx, keys...)
	failpoint.Hit(failpoint.CollectorAfterDelete)
	var failed objectstore.KeyErrors
	if err != nil && !errors.As(err, &failed) {
		return fmt.Errorf("delete %d objects: %w", len(keys), err)
	}
	for _, g := range dead {
		if failed[g.key] != nil {
			k.c.m.deleteErrs.Inc()
			continue
		}
		delete(k.garbage, g.id)
		k.c.m.orphans.WithLabelValues("deleted").Inc()
		k.c.m.deleted.Add(float64(g.size))
	}
	if len(failed) > 0 {
		return fmt.Errorf("delete %d objects: %w", len(keys), failed)
	}
	return nil
}
