package metadata

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// shardView is one shard on this node. Entries are applied under the write lock, and nothing is read from outside under it.
type shardView struct {
	mu struct {
		sync.RWMutex
		state *State
		tail  tail
	}
	waiters waiters
}

// tail describes the entries that the store still has of a shard and that this node has applied.
type tail struct {
	pointer SnapshotPointer   // newest snapshot that this node knows of; Revision 0 = none
	streams map[Stream]uint64 // highest applied sequence, by stream
	entries int
	bytes   int64
	oldest  time.Time // when the first entry was applied here; zero = no entries
}

func (t *tail) add(e *LogEntry, now time.Time) {
	if t.streams == nil {
		t.streams = map[Stream]uint64{}
	}
	if t.entries == 0 {
		t.oldest = now
	}
	t.streams[e.Stream] = max(t.streams[e.Stream], e.Seq)
	t.entries++
	t.bytes += int64(len(e.Value))
}

// applier watches the log and applies it, until the Log closes or an entry cannot be applied.
func (l *Log) applier() {
	for wait := 20 * time.Millisecond; ; {
		before := l.applied.get()
		err := l.watch(before + 1)
		if l.ctx.Err() != nil {
			return
		}
		if l.fatal() != nil {
			return
		}
		if errors.Is(err, ErrCompacted) {
			l.o.Logger.Warn("metadata watch was compacted, reloading", "from", before+1)
			if err = l.reload(); err == nil {
				wait = 20 * time.Millisecond
				continue
			}
		}
		if l.applied.get() > before {
			wait = 20 * time.Millisecond
		}
		l.o.Logger.Warn("metadata watch ended, starting again", "applied", l.applied.get(), "error", err)
		l.metrics.watchRestarts.Inc()
		select {
		case <-l.o.Clock.After(wait):
		case <-l.ctx.Done():
			return
		}
		wait = min(2*wait, time.Second)
	}
}

func (l *Log) watch(from int64) error {
	ctx, cancel := context.WithCancel(l.ctx)
	defer cancel()
	l.watching.Lock()
	l.watching.cancel = cancel
	l.watching.Unlock()
	return l.o.Driver.Watch(ctx, from, l.onEvents)
}

// rewatch ends the watch that runs.
func (l *Log) rewatch() {
	l.watching.Lock()
	defer l.watching.Unlock()
	if l.watching.cancel != nil {
		l.watching.cancel()
	}
}

// onEvents applies whole revisions, in order. Who waits for a result gets it when the whole revision is applied: what it reads next, of any
// shard, is not older than that result.
func (l *Log) onEvents(ev Events) error {
	now := l.o.Clock.Now()
	first := 0 // entry of the revision at hand
	var results [][]Result
	for i := range ev.Entries {
		e := &ev.Entries[i]
		r, err := l.apply(e, now)
		if err != nil {
			l.setFatal(err)
			return err
		}
		results = append(results, r)
		if i+1 < len(ev.Entries) && ev.Entries[i+1].Revision == e.Revision {
			continue
		}
		l.applied.raise(e.Revision)
		for j, r := range results {
			l.settle(&ev.Entries[first+j], r)
		}
		l.settled.Store(e.Revision)
		first, results = i+1, results[:0]
	}
	l.applied.raise(ev.Through)
	l.settled.Store(max(l.settled.Load(), ev.Through)) // only the watch raises it
	l.metrics.revision.Set(float64(ev.Through))
	return nil
}

func (l *Log) apply(e *LogEntry, now time.Time) ([]Result, error) {
	if e.Shard < 0 || e.Shard >= len(l.shards) {
		return nil, fmt.Errorf("apply revision %d: shard %d is outside the fabric's %d", e.Revision, e.Shard, len(l.shards))
	}
	s := l.shards[e.Shard]
	s.mu.Lock()
	a, err := s.mu.state.Apply(*e)
	if err == nil {
		s.mu.tail.add(e, now)
		s.waiters.wake(s.mu.state, a.Changed)
	}
	s.mu.Unlock()
	if len(a.Subscriptions) > 0 {
		l.subscriptions.wake()
	}
	if err != nil {
		return nil, fmt.Errorf("apply revision %d of shard %d: %w", e.Revision, e.Shard, err)
	}
	l.metrics.entries.Inc()
	l.metrics.bytes.Add(float64(len(e.Value)))
	return a.Results, nil
}

// settle hands the results of an entry to the transaction of this node that made it, and resolves it with its last shard.
func (l *Log) settle(e *LogEntry, results []Result) {
	key := txKey{e.Stream, e.Seq}
	l.awaiting.Lock()
	tx := l.awaiting.m[key]
	if tx == nil || !tx.missing[e.Shard] {
		l.awaiting.Unlock()
		return
	}
	slots := tx.slots[e.Shard]
	if len(results) != len(slots) {
		// Skipped as applied before: then its results were handed over before, or are lost and handled by the reload.
		l.awaiting.Unlock()
		return
	}
	for i, at := range slots {
		at.sub.results[at.part] = results[i]
	}
	delete(tx.missing, e.Shard)
	complete := len(tx.missing) == 0
	if complete {
		delete(l.awaiting.m, key)
	}
	l.awaiting.Unlock()
	if complete {
		l.resolve(tx)
	}
}

// resolve answers the submissions of a transaction whose results are complete. The caller has removed it from awaiting, so this happens once.
func (l *Log) resolve(tx *transaction) {
	now := l.o.Clock.Now()
	for _, s := range tx.subs {
		l.metrics.commit.Observe(now.Sub(s.since).Seconds())
		s.done(s.results, nil)
	}
	close(tx.known)
}

// reload replaces every shard's state by what the store has, after the watch has lost its place.
func (l *Log) reload() error {
	ctx, cancel := context.WithCancel(l.ctx)
	defer cancel()
	loaded, err := l.load(ctx, l.fabric.Shards)
	if err != nil {
		return fmt.Errorf("reload: %w", err)
	}
	for i, s := range l.shards {
		s.mu.Lock()
		s.mu.state = loaded.states[i]
		s.mu.tail = loaded.tails[i]
		s.waiters.wakeAll() // topics may have gone and heads risen in what was not seen
		s.mu.Unlock()
	}
	l.subscriptions.wake()
	l.applied.raise(loaded.revision)
	for i := range loaded.own {
		l.settle(&loaded.own[i].entry, loaded.own[i].results)
	}
	l.settled.Store(loaded.revision)
	l.metrics.reloads.Inc()
	l.resubmitLost(loaded.revision)
	return nil
}

// resubmitLost looks after the transactions that the store has acknowledged at or below the revision but whose entries a snapshot has
// swallowed. A commit is submitted again: apply knows the segment and repeats its first answer. Of other commands the
// outcome stays unknown. A transaction without an answer is still being retried under its own key by the submitter, and needs nothing.
func (l *Log) resubmitLost(revision int64) {
	var lost []*transaction
	l.awaiting.Lock()
	for key, tx := range l.awaiting.m {
		if tx.answer != 0 && tx.answer <= revision {
			lost = append(lost, tx)
			delete(l.awaiting.m, key)
		}
	}
	l.awaiting.Unlock()
	for _, tx := range lost {
		close(tx.known)
		for _, s := range tx.subs {
			s.attempted = true
			if s.commits() {
				l.enqueue(s)
			} else {
				s.fail(errors.New("the entry was truncated before this node saw it"))
			}
		}
	}
}

func (s *submission) commits() bool {
	for _, p := range s.parts {
		if _, ok := p.cmd.(*Commit); !ok {
			return false
		}
	}
	return true
}
