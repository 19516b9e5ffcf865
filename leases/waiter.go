package leases

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// waiterState is where a lease request stands.
//
//	inLine -> taken    a group is looking for records for it
//	taken  -> inLine   nothing was found; it goes on waiting at its old place
//	any    -> ended    answered: with records, with nothing, or with an error
//
// Each change is made under the line's lock, so that records are handed to a request that still listens, or to nobody.
type waiterState uint8

const (
	inLine waiterState = iota
	taken
	ended
)

// waiter is one lease request in line.
type waiter struct {
	ctx        context.Context
	want       int
	maxBytes   int64
	visibility time.Duration
	requestID  string
	waits      bool // whether it goes on when there is nothing

	// Guarded by the line's lock.
	seq        uint64 // place in line: first come, first served
	prev, next *waiter
	state      waiterState
	looked     bool // a look that knew of all that was acknowledged before the request found nothing
	late       bool // its wait is over: nothing found now is its answer

	// Of the group that took it.
	found []found
	count int // records in found
	bytes int64

	// Set before done is closed.
	messages []Message
	err      error
	done     chan struct{}
}

// full says whether another record of that size is too much.
func (w *waiter) full(size int64) bool {
	return w.count >= w.want || w.count > 0 && w.bytes+size > w.maxBytes
}

// line is the waiters of one subscription on this node, first come first served, and what may concern them.
type line struct {
	mu struct {
		sync.Mutex
		first, last *waiter
		n           int
		seq         uint64
		running     bool // the dispatcher's goroutine
		fresh       int  // waiters in line that nobody has looked for yet
		stirred     bool // something happened since the last look began: look for those too who have been looked for
		due         time.Time
		lookedAt    time.Time // when the last look began
		draining    bool
	}
	waiting atomic.Int32  // waiters not ended; read without the lock
	kick    chan struct{} // wakes the dispatcher
}

func newLine() *line { return &line{kick: make(chan struct{}, 1)} }

// poke wakes the dispatcher, if it sleeps.
func (l *line) poke() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// stir says that records may have become deliverable.
func (l *line) stir() {
	if l.waiting.Load() == 0 {
		return // whoever comes will look
	}
	l.mu.Lock()
	l.mu.stirred = true
	l.mu.Unlock()
	l.poke()
}

// dueAt says that something is due then.
func (l *line) dueAt(t time.Time) {
	if l.waiting.Load() == 0 {
		return
	}
	l.mu.Lock()
	sooner := l.mu.due.IsZero() || t.Before(l.mu.due)
	if sooner {
		l.mu.due = t
	}
	l.mu.Unlock()
	if sooner {
		l.poke()
	}
}

// insertLocked puts w at its place: before all that came later.
func (l *line) insertLocked(w *waiter) {
	w.state = inLine
	l.mu.n++
	if !w.looked {
		l.mu.fresh++
	}
	after := l.mu.last
	if l.mu.first != nil && l.mu.first.seq > w.seq {
		after = nil // the usual place of one that comes back
	}
	for after != nil && after.seq > w.seq {
		after = after.prev
	}
	if w.prev = after; after != nil {
		w.next = after.next
		after.next = w
	} else {
		w.next = l.mu.first
		l.mu.first = w
	}
	if w.next != nil {
		w.next.prev = w
	} else {
		l.mu.last = w
	}
}

func (l *line) removeLocked(w *waiter) {
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		l.mu.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		l.mu.last = w.prev
	}
	w.prev, w.next = nil, nil
	l.mu.n--
	if !w.looked {
		l.mu.fresh--
	}
}

// endLocked answers w, which is not in line.
func (l *line) endLocked(w *waiter, err error) {
	w.state, w.err = ended, err
	l.waiting.Add(-1)
	close(w.done)
}

// join puts a new waiter in line, and says whether the caller must start the dispatcher; ok is false when the node is shutting down.
func (l *line) join(w *waiter) (start, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.draining {
		return false, false
	}
	l.mu.seq++
	w.seq = l.mu.seq
	l.waiting.Add(1)
	l.insertLocked(w)
	if l.mu.running {
		l.poke()
		return false, true
	}
	l.mu.running = true
	return true, true
}

// expire ends the waiting of w. When a group is looking for it, what that finds is the answer.
func (l *line) expire(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w.late = true
	if w.state == inLine {
		l.removeLocked(w)
		l.endLocked(w, nil)
		l.poke() // the dispatcher may have nobody left to wait for
	}
}

// leave takes w out because its caller has gone. served is true when it had been answered before: then its messages must be given back. Else
// nobody will hand it anything.
func (l *line) leave(w *waiter) (served bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch w.state {
	case ended:
		return len(w.messages) > 0
	case inLine:
		l.removeLocked(w)
	}
	l.endLocked(w, context.Cause(w.ctx))
	l.poke()
	return false
}

// handOver gives w its messages, unless its caller has gone: then they must be given back.
func (l *line) handOver(w *waiter, ms []Message) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.state != taken || w.ctx.Err() != nil {
		return false
	}
	w.messages = ms
	l.endLocked(w, nil)
	return true
}

// fail answers w with an error, if it still listens.
func (l *line) fail(w *waiter, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.state == taken {
		l.endLocked(w, err)
	}
}

// putBack returns a waiter for which nothing was found. looked says whether the look knew of everything acknowledged before the request. start
// tells the caller to start the dispatcher.
func (l *line) putBack(w *waiter, looked bool) (start bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.state != taken {
		return false
	}
	w.found, w.count, w.bytes = nil, 0, 0
	w.looked = w.looked || looked
	if w.late || w.looked && !w.waits || l.mu.draining {
		l.endLocked(w, nil)
		return false
	}
	l.insertLocked(w)
	if l.mu.running {
		l.poke()
		return false
	}
	l.mu.running = true
	return true
}

// drain answers everybody in line with nothing, and lets nobody in any more.
func (l *line) drain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.draining = true
	for w := l.mu.first; w != nil; w = l.mu.first {
		l.removeLocked(w)
		l.endLocked(w, nil)
	}
	l.poke()
}

// dismiss answers everybody in line with err: the subscription is gone.
func (l *line) dismiss(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := l.mu.first; w != nil; w = l.mu.first {
		l.removeLocked(w)
		l.endLocked(w, err)
	}
	l.poke()
}

// group takes waiters for one look, first come first served: those that can share one call to the store, so of one visibility, of about limit
// records together. New ones further back are taken too, so that they learn that nothing is left for them. It is empty when there is
// nothing to look for. A look that leaves nothing over settles it for those not taken; one that finds all it asked for ends with a stir.
func (l *line) group(now time.Time, limit int, demand func(*waiter) int) (ws []*waiter, total int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lead := l.mu.first
	if !l.mu.stirred {
		// Those who have been looked for come first where they can share the call, but are no reason for one.
		for lead != nil && lead.looked {
			lead = lead.next
		}
	}
	if lead == nil || l.mu.fresh == 0 && !l.mu.stirred {
		l.mu.stirred = false
		return nil, 0
	}
	l.mu.stirred, l.mu.due, l.mu.lookedAt = false, time.Time{}, now
	for w := l.mu.first; w != nil && (total < limit || l.mu.fresh > 0); {
		next := w.next
		if w.visibility == lead.visibility && (total < limit || !w.looked) {
			l.removeLocked(w)
			w.state = taken
			ws = append(ws, w)
			total += demand(w)
		}
		w = next
	}
	return ws, min(total, limit)
}
