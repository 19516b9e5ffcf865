package leases

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

// lineup is a line with named waiters.
type lineup struct {
	t *testing.T
	*line
	now   time.Time
	names map[*waiter]string
}

func newLineup(t *testing.T) *lineup {
	return &lineup{t: t, line: newLine(), now: time.Unix(1000, 0), names: map[*waiter]string{}}
}

func (l *lineup) come(name string, want int, visibility time.Duration) *waiter {
	l.t.Helper()
	w := &waiter{ctx: l.t.Context(), want: want, visibility: visibility, waits: true, done: make(chan struct{})}
	l.names[w] = name
	if _, ok := l.join(w); !ok {
		l.t.Fatalf("%s was not let in", name)
	}
	return w
}

// take takes a group and gives the names.
func (l *lineup) take(limit int) (ws []*waiter, names []string, total int) {
	ws, total = l.group(l.now, limit, func(w *waiter) int { return w.want })
	for _, w := range ws {
		names = append(names, l.names[w])
	}
	return ws, names, total
}

func (l *lineup) expect(limit int, total int, want ...string) []*waiter {
	l.t.Helper()
	ws, names, got := l.take(limit)
	if !slices.Equal(names, want) || got != total {
		l.t.Fatalf("group %v for %d records, want %v for %d", names, got, want, total)
	}
	return ws
}

func isDone(w *waiter) bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

func TestLineIsFirstComeFirstServed(t *testing.T) {
	l := newLineup(t)
	l.come("a", 1, time.Second)
	l.come("b", 2, time.Second)
	l.come("c", 3, time.Second)
	ws := l.expect(100, 6, "a", "b", "c")
	// Nothing was found for a and c. They come back to their old places, in whatever order.
	l.come("d", 4, time.Second)
	if l.handOver(ws[1], []Message{{}}); !isDone(ws[1]) || len(ws[1].messages) != 1 {
		t.Error("b has no answer")
	}
	l.putBack(ws[2], true)
	l.putBack(ws[0], true)
	l.expect(100, 8, "a", "c", "d")
}

func TestLineLooksOnlyForAReason(t *testing.T) {
	l := newLineup(t)
	l.come("a", 1, time.Second)
	for _, w := range l.expect(10, 1, "a") {
		l.putBack(w, true)
	}
	l.expect(10, 0)
	l.stir()
	for _, w := range l.expect(10, 1, "a") {
		l.putBack(w, true)
	}
	l.expect(10, 0)
	// A stir during the look counts.
	l.stir()
	ws := l.expect(10, 1, "a")
	l.stir()
	l.putBack(ws[0], true)
	l.expect(10, 1, "a")
}

func TestLineReachesNewOnesBehindManyParked(t *testing.T) {
	l := newLineup(t)
	for _, name := range []string{"a", "b", "c"} {
		l.come(name, 10, time.Second)
	}
	for _, w := range l.expect(100, 30, "a", "b", "c") {
		l.putBack(w, true)
	}
	l.come("new", 10, time.Second)
	// The parked ones fill the group; the new one must learn all the same that there is nothing.
	ws := l.expect(20, 20, "a", "b", "new")
	for _, w := range ws {
		l.putBack(w, true)
	}
	l.expect(20, 0)
	// One with another visibility cannot share the call, and is not held up.
	l.come("slow", 10, time.Minute)
	l.putBack(l.expect(20, 10, "slow")[0], true)
	l.expect(20, 0)
	l.stir()
	l.expect(100, 40, "a", "b", "c", "new")
	l.stir()
	l.expect(100, 10, "slow")
}

func TestLineExpireAndLeave(t *testing.T) {
	l := newLineup(t)
	a := l.come("a", 1, time.Second)
	l.expire(a)
	if !isDone(a) || a.err != nil || a.messages != nil {
		t.Error("a waiter whose wait is over has no empty answer")
	}
	b := l.come("b", 1, time.Second)
	l.expect(10, 1, "b")
	l.expire(b)
	if isDone(b) {
		t.Error("a waiter was answered while records are being looked for")
	}
	l.putBack(b, false)
	if !isDone(b) {
		t.Error("nothing was found after the wait was over, and there is no answer")
	}
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	c := l.come("c", 1, time.Second)
	c.ctx = ctx
	l.expect(10, 1, "c")
	cancel(gone)
	if l.handOver(c, []Message{{}}) {
		t.Error("a consumer that has gone was given a record")
	}
	if l.leave(c) || !isDone(c) || c.err != gone {
		t.Errorf("left with %v", c.err)
	}
	if l.handOver(c, []Message{{}}) {
		t.Error("a consumer that has left was given a record")
	}
	d := l.come("d", 1, time.Second)
	l.expect(10, 1, "d")
	l.handOver(d, []Message{{}})
	if !l.leave(d) {
		t.Error("what was handed over at the last moment must be given back")
	}
	if n := l.waiting.Load(); n != 0 {
		t.Errorf("%d waiters are counted, none is there", n)
	}
}

func TestLineDrain(t *testing.T) {
	l := newLineup(t)
	a, b := l.come("a", 1, time.Second), l.come("b", 1, time.Minute)
	l.expect(10, 1, "a")
	l.drain()
	if !isDone(b) || b.err != nil {
		t.Error("the drain did not answer a waiter in line")
	}
	if l.putBack(a, false); !isDone(a) {
		t.Error("the drain did not answer a waiter that came back")
	}
	if _, ok := l.join(&waiter{ctx: t.Context(), done: make(chan struct{})}); ok {
		t.Error("a draining line let somebody in")
	}
}

func TestLineDue(t *testing.T) {
	l := newLineup(t)
	early, late := l.now.Add(time.Second), l.now.Add(time.Minute)
	l.dueAt(early)
	if due, _ := l.rest(); !due.IsZero() {
		t.Error("nobody waits, and something is due")
	}
	w := l.come("a", 1, time.Second)
	l.putBack(l.expect(10, 1, "a")[0], true)
	l.dueAt(late)
	l.dueAt(early)
	l.dueAt(late)
	if due, empty := l.rest(); due != early || empty {
		t.Errorf("due %v, empty %v", due, empty)
	}
	l.recheck(l.now.Add(-1))
	l.expect(10, 0)
	l.recheck(l.now)
	l.expect(10, 1, "a")
	if due, empty := l.rest(); !due.IsZero() || !empty {
		t.Errorf("after a look: due %v, empty %v", due, empty)
	}
	if start := l.putBack(w, true); !start {
		t.Error("nobody runs the line, and the one who comes back does not start it")
	}
}
