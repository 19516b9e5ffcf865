package metadata

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/forebaymq/forebay/objectstore"
)

// loadAttempts bounds how often a load starts again because a snapshot was replaced under it.
const loadAttempts = 5

// loadedState is the store's content, applied.
type loadedState struct {
	revision int64
	states   []*State
	tails    []tail
	own      []ownEntry // entries of transactions that this node awaits
}

type ownEntry struct {
	entry   LogEntry
	results []Result
}

// load reads pointers, snapshots and entries, and applies them.
func (l *Log) load(ctx context.Context, shards int) (*loadedState, error) {
	var err error
	for range loadAttempts {
		var s *loadedState
		if s, err = l.loadOnce(ctx, shards); err == nil {
			return s, nil
		}
		// A snapshot object that is gone has a successor, whose pointer the next attempt reads.
		if !errors.Is(err, objectstore.ErrNotFound) || ctx.Err() != nil {
			return nil, err
		}
	}
	return nil, err
}

func (l *Log) loadOnce(ctx context.Context, shards int) (*loadedState, error) {
	begin := l.o.Clock.Now()
	loaded, err := l.o.Driver.Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("load metadata log: %w", err)
	}
	out := &loadedState{revision: loaded.Revision, states: make([]*State, shards), tails: make([]tail, shards)}
	for i := range shards {
		p, ok := loaded.Snapshots[i]
		if !ok {
			out.states[i] = NewState(i, shards)
			continue
		}
		if out.states[i], err = l.readSnapshot(ctx, p); err != nil {
			return nil, err
		}
		out.tails[i].pointer = p
	}
	for i := range loaded.Entries {
		e := &loaded.Entries[i]
		if e.Shard < 0 || e.Shard >= shards {
			return nil, fmt.Errorf("load revision %d: shard %d is outside the fabric's %d", e.Revision, e.Shard, shards)
		}
		t := &out.tails[e.Shard]
		t.add(e, begin)
		if e.Revision <= t.pointer.Revision {
			continue // left behind by a truncation that did not finish; the next snapshot finishes it
		}
		a, err := out.states[e.Shard].Apply(*e)
		if err != nil {
			return nil, fmt.Errorf("apply revision %d of shard %d: %w", e.Revision, e.Shard, err)
		}
		if l.awaits(e) {
			out.own = append(out.own, ownEntry{*e, a.Results})
		}
	}
	l.o.Logger.Info("metadata loaded", "revision", loaded.Revision, "snapshots", len(loaded.Snapshots), "entries", len(loaded.Entries),
		"took", l.o.Clock.Since(begin).Round(time.Millisecond))
	return out, nil
}

func (l *Log) awaits(e *LogEntry) bool {
	l.awaiting.Lock()
	defer l.awaiting.Unlock()
	return l.awaiting.m[txKey{e.Stream, e.Seq}] != nil
}

func (l *Log) readSnapshot(ctx context.Context, p SnapshotPointer) (*State, error) {
	body, _, err := l.o.Store.Get(ctx, p.Object)
	if err != nil {
		return nil, fmt.Errorf("read snapshot %s: %w", p.Object, err)
	}
	if hash, err := SnapshotHash(body); err != nil || hash != p.Hash {
		return nil, fmt.Errorf("read snapshot %s: %w", p.Object, errors.Join(err, ErrSnapshotMismatch))
	}
	s, err := UnmarshalSnapshot(body)
	if err != nil {
		return nil, fmt.Errorf("read snapshot %s: %w", p.Object, err)
	}
	if s.Revision() != p.Revision {
		return nil, fmt.Errorf("read snapshot %s: is at revision %d, its pointer says %d", p.Object, s.Revision(), p.Revision)
	}
	return s, nil
}

// snapshotKey names a snapshot object: snap/<shard 4 digits>/<revision 20 digits>-<first 8 bytes of the hash in hex>.snap.
func snapshotKey(p SnapshotPointer) string {
	return fmt.Sprintf("%s%020d-%x.snap", snapshotPrefix(p.Shard), p.Revision, p.Hash[:8])
}

// snapshotPrefix is what the keys of a shard's snapshots start with.
func snapshotPrefix(shard int) string { return fmt.Sprintf("snap/%04d/", shard) }
