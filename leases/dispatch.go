package leases

import (
	"time"
)

const (
	// groupRecords is about how many records one call to the store reserves for all that wait.
	groupRecords = 2000
	// deliveries is how many groups of a subscription are read at a time.
	deliveries = 16
	// cappedRecheck: so often is looked again while caps hold records back, because other nodes' acks are not announced.
	cappedRecheck = time.Second
	// overdueRecheck: so often while something is due that cannot be handed out, because too much is in flight.
	overdueRecheck = 100 * time.Millisecond
)

// dispatcher is the goroutine that looks for records while somebody waits for them. What it reserves is read and handed over beside it, so that a
// slow read holds up nobody else. It ends when the line is empty.
type dispatcher struct {
	e       *Engine
	a       *active
	changed <-chan struct{} // closed at the next commit to the topic; nil: not subscribed
	release func()
	reading chan struct{} // a token for each group being read
}

// dispatch starts the dispatcher of a. The line has been marked as running.
func (e *Engine) dispatch(a *active) {
	d := &dispatcher{e: e, a: a, release: func() {}, reading: make(chan struct{}, deliveries)}
	if !e.spawn(d.run) {
		a.line.drain()
	}
}

func (d *dispatcher) run() {
	defer func() { d.release() }()
	for {
		q := d.a.described.Load()
		ws, want := d.a.line.group(d.e.o.Clock.Now(), groupRecords, d.a.demand)
		if len(ws) > 0 {
			if d.serve(q, ws, want) {
				return
			}
			continue
		}
		due, empty := d.a.line.rest()
		if empty {
			return
		}
		if d.changed == nil {
			// Whoever waits has been looked for before this subscription began: look once more.
			d.subscribe(q)
			d.a.line.stir()
			continue
		}
		d.sleep(due)
	}
}

func (d *dispatcher) subscribe(q *queue) {
	if d.changed == nil {
		d.changed, d.release = d.e.o.View.TopicChanged(q.sub.TopicID)
	}
}

// serve looks for the waiters, and says whether the dispatcher has ended.
func (d *dispatcher) serve(q *queue, ws []*waiter, want int) (end bool) {
	d.subscribe(q) // before the look, so that no commit slips between it and the wait
	g := d.e.newGroup(q, ws, want)
	g.look()
	if g.granted == want {
		d.a.line.stir() // there may be more, for those who were not taken
	}
	if len(g.grants) == 0 {
		g.finish()
		return false
	}
	if _, empty := d.a.line.rest(); empty {
		g.deliver() // as the last thing that this goroutine does
		return true
	}
	d.reading <- struct{}{}
	read := func() {
		g.deliver()
		<-d.reading
	}
	if !d.e.spawn(read) {
		read()
	}
	return false
}

// rest says when something is due, and whether nobody is in line: then the dispatcher is off duty.
func (l *line) rest() (due time.Time, empty bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.n == 0 {
		l.mu.running = false
		return time.Time{}, true
	}
	return l.mu.due, false
}

// sleep returns when there may be something to do.
func (d *dispatcher) sleep(due time.Time) {
	var timer <-chan time.Time
	if !due.IsZero() {
		t := d.e.o.Clock.NewTimer(d.e.o.Clock.Until(due))
		defer t.Stop()
		timer = t.Chan()
	}
	select {
	case <-d.a.line.kick:
		return
	case <-d.changed:
		d.release()
		d.changed, d.release = nil, func() {}
	case <-timer:
	}
	d.a.line.stir()
}

// demand is how many records a waiter probably takes: its byte limit may be reached before its number.
func (a *active) demand(w *waiter) int {
	if size := a.recordBytes.Load(); size > 0 {
		return int(max(1, min(int64(w.want), w.maxBytes/size+1)))
	}
	return w.want
}
