package metadata

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/internal/failpoint"
)

// unavailable is the definite refusal while the log has no quorum.
func unavailable(cause error, detail string) *api.Error {
	return &api.Error{Code: api.CodeMetadataUnavailable, Detail: detail, RetryAfter: time.Second, Cause: cause}
}

// barrier is one linearizable read of the head, shared by all the Sync calls that began before it did.
type barrier struct {
	done chan struct{}
	err  error
}

// barriers holds the read that runs and the one that will run next. A call may join only a read that starts after the call began, for a
// read that is under way may have been answered before the call's own past: so callers join next, which starts when the running
// read has its answer.
type barriers struct {
	sync.Mutex
	running bool
	next    *barrier
	closed  bool
}

// Sync returns when this node has applied everything that was acknowledged, by any node, before the call. METADATA_UNAVAILABLE when ctx
// ends first or the store has no quorum. Concurrent calls share one read.
func (l *Log) Sync(ctx context.Context) error {
	if failpoint.Enabled(failpoint.NoLinearizableRead) {
		return nil
	}
	if !l.health.readable() {
		return unavailable(nil, "the metadata log has no quorum") // the probe brings it back
	}
	b, err := l.joinBarrier()
	if err != nil {
		return err
	}
	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
		return unavailable(ctx.Err(), "the metadata log did not answer in time")
	}
}

func (l *Log) joinBarrier() (*barrier, error) {
	bs := &l.barriers
	bs.Lock()
	defer bs.Unlock()
	if bs.closed {
		return nil, unavailable(nil, "this node is shutting down")
	}
	if bs.next == nil {
		bs.next = &barrier{done: make(chan struct{})}
	}
	b := bs.next
	if !bs.running {
		l.startBarrierLocked()
	}
	return b, nil
}

// startBarrierLocked runs bs.next in a goroutine.
func (l *Log) startBarrierLocked() {
	b := l.barriers.next
	l.barriers.next, l.barriers.running = nil, true
	l.wg.Go(func() { l.runBarrier(b) })
}

func (l *Log) runBarrier(b *barrier) {
	head, err := l.readHead()
	bs := &l.barriers
	bs.Lock()
	bs.running = false
	if bs.next != nil {
		l.startBarrierLocked()
	}
	bs.Unlock()
	if err == nil {
		err = l.waitApplied(head)
	}
	b.err = err
	close(b.done)
}

// readHead reads the head, and again while the store has no leader but had one less than StuckAfter ago: an election is shorter than that.
func (l *Log) readHead() (int64, error) {
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, 250*time.Millisecond) {
		ctx, cancel := context.WithTimeout(l.ctx, l.o.SubmitTimeout)
		begin := l.o.Clock.Now()
		head, err := l.o.Driver.Head(ctx)
		cancel()
		if err == nil {
			l.metrics.barrier.Observe(l.o.Clock.Since(begin).Seconds())
			l.health.good(l.o.Clock.Now())
			return head, nil
		}
		down := l.health.failed(l.o.Clock.Now(), l.o.StuckAfter)
		if down || l.ctx.Err() != nil {
			return 0, unavailable(err, "the metadata log has no quorum")
		}
		select {
		case <-l.o.Clock.After(wait):
		case <-l.ctx.Done():
		}
	}
}

// applied is the revision up to which this node has seen everything, and who waits for a higher one.
type applied struct {
	sync.Mutex
	revision int64
	waiters  []revisionWaiter // few: one a barrier
}

type revisionWaiter struct {
	revision int64
	ch       chan struct{}
}

func (a *applied) get() int64 {
	a.Lock()
	defer a.Unlock()
	return a.revision
}

// raise wakes those who wait for a revision at or below r.
func (a *applied) raise(r int64) {
	a.Lock()
	defer a.Unlock()
	if r <= a.revision {
		return
	}
	a.revision = r
	keep := a.waiters[:0]
	for _, w := range a.waiters {
		if w.revision <= r {
			close(w.ch)
		} else {
			keep = append(keep, w)
		}
	}
	clear(a.waiters[len(keep):])
	a.waiters = keep
}

// wait returns a channel that is closed at revision r, or nil if that is passed.
func (a *applied) wait(r int64) <-chan struct{} {
	a.Lock()
	defer a.Unlock()
	if r <= a.revision {
		return nil
	}
	w := revisionWaiter{r, make(chan struct{})}
	a.waiters = append(a.waiters, w)
	return w.ch
}

// waitApplied waits until apply has reached a head. A watch that does not get there is given up, and started again.
func (l *Log) waitApplied(revision int64) error {
	ch := l.applied.wait(revision)
	if ch == nil {
		l.health.setLagging(false)
		return nil
	}
	late := l.o.Clock.NewTimer(l.o.SubmitTimeout)
	defer late.Stop()
	select {
	case <-ch:
		l.health.setLagging(false)
		return nil
	case <-late.Chan():
		l.applied.forget(ch)
		l.health.setLagging(true)
		l.o.Logger.Warn("metadata watch lags behind the store, starting it again", "applied", l.applied.get(), "head", revision)
		l.rewatch()
		return unavailable(nil, "this node lags behind the metadata log")
	case <-l.failed:
		return l.fatal()
	case <-l.ctx.Done():
		return unavailable(l.ctx.Err(), "this node is shutting down")
	}
}

// forget takes a waiter away.
func (a *applied) forget(ch <-chan struct{}) {
	a.Lock()
	defer a.Unlock()
	a.waiters = slices.DeleteFunc(a.waiters, func(w revisionWaiter) bool { return w.ch == ch })
}
