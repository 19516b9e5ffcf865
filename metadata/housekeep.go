package metadata

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/objectstore"
)

// HousekeeperClaim is the name of the claim under which one node of a fabric takes snapshots, enforces retention and raises the GC boundary.
const HousekeeperClaim = "housekeeper"

const (
	trimScan      = 1024 // partitions looked at under one hold of the read lock, and trimmed in one transaction
	listPage      = 1000 // snapshot objects
	keptSnapshots = 2    // the newest and the one before: a node that has just read the older pointer can still load it
)

// housekeeper waits for the claim, and works while it holds it.
func (l *Log) housekeeper() {
	tick := l.o.Clock.NewTicker(l.o.HousekeepEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.Chan():
		case <-l.closing:
			return
		}
		claim, held, err := l.claimHousekeeping()
		if err != nil {
			l.o.Logger.Debug("cannot take the housekeeper's claim", "error", err)
		}
		if held {
			l.metrics.housekeeper.Set(1)
			l.keepHouse(claim, tick.Chan())
			l.metrics.housekeeper.Set(0)
		}
	}
}

func (l *Log) claimHousekeeping() (*HeldClaim, bool, error) {
	if l.Available() != nil {
		return nil, false, nil
	}
	ctx, cancel := context.WithTimeout(l.ctx, l.o.SubmitTimeout)
	defer cancel()
	return l.Claim(ctx, HousekeeperClaim, l.o.ClaimTTL)
}

// keeping is what a holder of the claim remembers between rounds.
type keeping struct {
	claim     *HeldClaim
	guard     *Guard
	snapshots []int64 // revisions of the snapshots taken or found, ascending; compaction stays behind them
	trimmed   time.Time
	bounded   time.Time
}

// keepHouse works until the claim is lost or the log closes. Every write carries the claim's epoch, so that what a paused holder still
// sends after its claim has gone is refused by the store.
func (l *Log) keepHouse(claim *HeldClaim, tick <-chan time.Time) {
	ctx, cancel := context.WithCancel(l.ctx)
	defer cancel()
	l.wg.Go(func() {
		select {
		case <-claim.Done:
		case <-l.closing:
		case <-ctx.Done():
		}
		cancel()
	})
	defer func() {
		release, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), l.o.SubmitTimeout)
		defer cancel()
		if err := l.Release(release, claim); err != nil {
			l.o.Logger.Debug("cannot release the housekeeper's claim", "error", err)
		}
	}()
	k := &keeping{claim: claim, guard: &Guard{Claim: claim.Name, Epoch: claim.Epoch}}
	l.o.Logger.Info("housekeeping here", "epoch", claim.Epoch)
	if err := l.catchUpHousekeeping(ctx, k); err != nil {
		l.o.Logger.Warn("housekeeping cannot start", "error", err)
		return
	}
	for {
		if err := l.keepHouseOnce(ctx, k); err != nil && ctx.Err() == nil {
			l.metrics.housekeepErrs.Inc()
			l.o.Logger.Warn("housekeeping failed", "error", err)
			if errors.Is(err, ErrClaimLost) {
				return
			}
		}
		select {
		case <-tick:
		case <-ctx.Done():
			return
		}
	}
}

// catchUpHousekeeping reads what a predecessor has left: its pointers, and entries that its last truncation did not reach.
func (l *Log) catchUpHousekeeping(ctx context.Context, k *keeping) error {
	loaded, err := l.o.Driver.Load(ctx)
	if err != nil {
		return fmt.Errorf("read snapshot pointers: %w", err)
	}
	counts := make([]tail, len(l.shards))
	now := l.o.Clock.Now()
	for i := range loaded.Entries {
		counts[loaded.Entries[i].Shard].add(&loaded.Entries[i], now)
	}
	for shard, p := range loaded.Snapshots {
		k.snapshots = append(k.snapshots, p.Revision)
		counts[shard].pointer = p
	}
	slices.Sort(k.snapshots)
	for i, s := range l.shards {
		s.mu.Lock()
		// The streams stay as they are: they hold exactly what this node has applied.
		s.mu.tail.entries, s.mu.tail.bytes, s.mu.tail.oldest = counts[i].entries, counts[i].bytes, counts[i].oldest
		s.mu.tail.pointer = counts[i].pointer
		s.mu.Unlock()
	}
	return nil
}

func (l *Log) keepHouseOnce(ctx context.Context, k *keeping) error {
	var errs []error
	now := l.o.Clock.Now()
	if every := l.o.GCGrace / 20; now.Sub(k.bounded) >= every {
		if err := l.raiseBoundary(ctx, k, now); err != nil {
			errs = append(errs, err)
		} else {
			k.bounded = now
		}
	}
	if now.Sub(k.trimmed) >= l.o.TrimInterval {
		if err := l.trim(ctx, k, now); err != nil {
			errs = append(errs, err)
		} else {
			k.trimmed = now
		}
	}
	taken := false
	for i := range l.shards {
		if ctx.Err() != nil {
			break
		}
		if !l.snapshotDue(i, now) {
			continue
		}
		if err := l.snapshot(ctx, k, i); err != nil {
			errs = append(errs, err)
			continue
		}
		taken = true
	}
	if taken {
		if err := l.compact(ctx, k); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// raiseBoundary keeps the set of applied segments, which apply keeps down to the boundary, from growing for ever. Shards that remember no
// segment are left alone: an idle shard gets no entries.
func (l *Log) raiseBoundary(ctx context.Context, k *keeping, now time.Time) error {
	cmd := &GCBoundary{Boundary: now.Add(-l.o.GCGrace).UnixMilli(), Claim: k.guard.Claim, ClaimEpoch: k.guard.Epoch}
	var parts []part
	for i, s := range l.shards {
		s.mu.RLock()
		if s.mu.state.Stats().Applied > 0 && s.mu.state.GCBoundary() < cmd.Boundary {
			parts = append(parts, part{i, cmd})
		}
		s.mu.RUnlock()
	}
	if len(parts) == 0 {
		return nil
	}
	results, err := l.doParts(ctx, parts, k.guard)
	for _, r := range results {
		err = errors.Join(err, r.Err)
	}
	if err != nil {
		return fmt.Errorf("raise the GC boundary: %w", err)
	}
	return nil
}

// trim enforces retention. It looks at a bounded number of partitions under one hold of the read lock, so that the commit path never waits
// for a whole shard, and submits what it finds before it looks further.
func (l *Log) trim(ctx context.Context, k *keeping, now time.Time) error {
	for i, s := range l.shards {
		var after PartitionKey
		for done := false; !done; {
			var plan []*Trim
			s.mu.RLock()
			plan, after, done = s.mu.state.PlanTrim(now.UnixMilli(), after, trimScan)
			s.mu.RUnlock()
			if len(plan) == 0 {
				continue
			}
			parts := make([]part, len(plan))
			for j, t := range plan {
				t.Claim, t.ClaimEpoch = k.guard.Claim, k.guard.Epoch
				parts[j] = part{i, t}
			}
			results, err := l.doParts(ctx, parts, k.guard)
			for _, r := range results {
				if code := api.CodeOf(r.Err); code != api.CodeUnknownTopic { // deleted meanwhile
					err = errors.Join(err, r.Err)
				}
			}
			if err != nil {
				return fmt.Errorf("enforce retention in shard %d: %w", i, err)
			}
			l.metrics.trims.Add(float64(len(plan)))
		}
	}
	return nil
}

func (l *Log) snapshotDue(shard int, now time.Time) bool {
	s := l.shards[shard]
	s.mu.RLock()
	defer s.mu.RUnlock()
	t, p := &s.mu.tail, l.o.SnapshotEvery
	if t.entries == 0 || s.mu.state.Revision() <= t.pointer.Revision {
		return false
	}
	return t.entries >= p.Entries || t.bytes >= p.Bytes || now.Sub(t.oldest) >= p.Interval
}

// snapshot writes one shard's state and truncates its entries: encode under the read lock, to memory; write the object; move the pointer;
// delete the objects that no pointer needs any more.
func (l *Log) snapshot(ctx context.Context, k *keeping, shard int) error {
	s := l.shards[shard]
	s.mu.RLock()
	plain := s.mu.state.SnapshotBody()
	p := SnapshotPointer{Shard: shard, Revision: s.mu.state.Revision()}
	ends := maps.Clone(s.mu.tail.streams)
	entries, bytes := s.mu.tail.entries, s.mu.tail.bytes
	s.mu.RUnlock()
	var body []byte
	body, p.Hash = SealSnapshot(plain) // compression and hash need no lock
	p.Object = snapshotKey(p)
	if _, err := l.o.Store.PutIfAbsent(ctx, p.Object, body, fmt.Sprintf("snap-%x", p.Hash[:16])); err != nil {
		return fmt.Errorf("write snapshot %s: %w", p.Object, err)
	}
	drop := make([]LogEntry, 0, len(ends))
	for _, stream := range slices.Sorted(maps.Keys(ends)) {
		drop = append(drop, LogEntry{Shard: shard, Stream: stream, Seq: ends[stream], Revision: p.Revision})
	}
	if err := l.o.Driver.PutSnapshot(ctx, p, drop, *k.guard); err != nil {
		return fmt.Errorf("move the snapshot pointer of shard %d: %w", shard, err)
	}
	s.mu.Lock()
	t := &s.mu.tail
	t.pointer = p
	for stream, seq := range ends {
		if t.streams[stream] == seq {
			delete(t.streams, stream)
		}
	}
	t.entries, t.bytes, t.oldest = max(t.entries-entries, 0), max(t.bytes-bytes, 0), l.o.Clock.Now()
	s.mu.Unlock()
	l.metrics.snapshots.Inc()
	l.metrics.snapshotBytes.Add(float64(len(body)))
	k.snapshots = append(k.snapshots, p.Revision)
	l.o.Logger.Debug("snapshot taken", "shard", shard, "revision", p.Revision, "bytes", len(body), "entries", entries)
	return l.dropSnapshots(ctx, p)
}

// dropSnapshots deletes the shard's snapshot objects but the newest ones up to p. Objects beyond p are from a successor: left alone.
func (l *Log) dropSnapshots(ctx context.Context, p SnapshotPointer) error {
	var old []string
	for after := ""; ; {
		page, err := l.o.Store.List(ctx, snapshotPrefix(p.Shard), after, listPage)
		if err != nil {
			return fmt.Errorf("list snapshots of shard %d: %w", p.Shard, err)
		}
		for _, o := range page.Objects {
			if o.Key <= p.Object {
				old = append(old, o.Key)
			}
		}
		if after = page.Next; after == "" {
			break
		}
	}
	if len(old) <= keptSnapshots {
		return nil
	}
	for chunk := range slices.Chunk(old[:len(old)-keptSnapshots], objectstore.MaxDeleteKeys) {
		if err := l.o.Store.Delete(ctx, chunk...); err != nil {
			return fmt.Errorf("delete old snapshots of shard %d: %w", p.Shard, err)
		}
	}
	return nil
}

// compact drops the store's history below the last snapshot but one. A node that is further behind loads again.
func (l *Log) compact(ctx context.Context, k *keeping) error {
	if len(k.snapshots) < 2 {
		return nil
	}
	slices.Sort(k.snapshots)
	k.snapshots = k.snapshots[len(k.snapshots)-2:]
	if err := l.o.Driver.Compact(ctx, k.snapshots[0]); err != nil {
		return fmt.Errorf("compact the store's history: %w", err)
	}
	return nil
}
