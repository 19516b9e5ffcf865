package client

import (
	"context"
	"crypto/rand"
	"errors"
	"runtime/debug"
	"sync"
	"time"
)

// lastWords is how long a worker that has ended its handlers may go on telling the server what became of its records.
const lastWords = 10 * time.Second

// heldState is what is being done about a held record.
type heldState uint8

const (
	heldWaiting  heldState = iota + 1 // for a handler
	heldRunning                       // in its handler
	heldSettling                      // handled; the server is being told
	heldGone                          // settled, or the lease was lost
)

// held is one leased record.
type held struct {
	m      Message
	ctx    context.Context
	cancel context.CancelCauseFunc
	expire *time.Timer // ends the handler when the lease may have lapsed
	// Guarded by Worker.mu.
	state    heldState
	deadline time.Time // when the lease has lapsed at the latest
	sure     time.Time // until when it lives at least, if nobody has taken it away
	// Set before the record goes to the settler.
	err  error
	back bool // give it back
}

// Run works until it is told to end: by Stop, by the end of ctx, by an option, or by a refusal. The counts are valid with an error, too. A Worker runs
// once.
//
// The context of a handler has the values of ctx. When ctx ends, nothing more is leased, what waits is given back, and handlers may go on for a while
// (WithWorkerGrace). Then their contexts end (ErrWorkerStopped), and what they did not finish is given back, for which Run takes up to 10 s more.
// Neither that nor Stop is an error.
func (w *Worker) Run(ctx context.Context) (WorkerStats, error) {
	w.mu.Lock()
	again := w.mu.started
	w.mu.started = true
	w.mu.Unlock()
	if again {
		return WorkerStats{}, errors.New("worker: Run was called before")
	}
	leasing, cancel := context.WithCancel(ctx)
	defer cancel()
	w.endLeasing = cancel
	working, endWorking := outlive(ctx, w.o.grace)
	defer endWorking()
	settling, endSettling := outlive(ctx, w.o.grace+lastWords)
	defer endSettling()
	extending, endExtending := context.WithCancel(working)
	defer endExtending()

	select {
	case <-w.stopping: // before it began
		w.drain(nil)
	default:
	}

	var drainer, settler, extender sync.WaitGroup
	drainer.Go(func() { w.drainer(ctx, leasing) })
	settler.Go(func() { w.settler(settling) })
	pacer := newOutage(w.o.outage, longestPause, w.o.maxRetryAfter)
	if w.learnVisibility(leasing, pacer) {
		for range w.o.concurrency {
			w.handlers.Go(func() { w.handleAll(working) })
		}
		extender.Go(func() { w.extender(extending) })
		w.lease(working, leasing, pacer)
	}

	// Handlers feed the settler and need the extender; so they end in this order.
	cancel()
	drainer.Wait()
	close(w.ready)
	w.handlers.Wait()
	close(w.done)
	settler.Wait()
	endExtending()
	extender.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.stats, w.mu.err
}

// outlive gives a context that ends so long after ctx.
func outlive(ctx context.Context, after time.Duration) (context.Context, func()) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var mu sync.Mutex
	var timer *time.Timer
	stop := context.AfterFunc(ctx, func() {
		mu.Lock()
		defer mu.Unlock()
		if longer.Err() == nil {
			timer = time.AfterFunc(after, cancel)
		}
	})
	return longer, func() {
		stop()
		cancel()
		mu.Lock()
		defer mu.Unlock()
		if timer != nil {
			timer.Stop()
		}
	}
}

// drainer ends leasing when the caller asks for it. What waits is given back then, and also when ctx ends.
func (w *Worker) drainer(ctx, leasing context.Context) {
	select {
	case <-w.stopping:
	case <-leasing.Done():
		if ctx.Err() == nil {
			return // leasing has ended by itself: what it brought is handled
		}
	}
	w.drain(nil)
}

// drain ends leasing; the first error is kept.
func (w *Worker) drain(err error) {
	w.mu.Lock()
	w.mu.draining = true
	if w.mu.err == nil {
		w.mu.err = err
	}
	w.mu.Unlock()
	w.endLeasing()
}

// signal wakes the leaser.
func (w *Worker) signal() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// insist calls fn until it succeeds, or until leasing is to end (false): by the caller, by a refusal, or by the limit of an outage.
func (w *Worker) insist(leasing context.Context, pacer *outage, fn func() error) bool {
	for {
		err := fn()
		switch {
		case err == nil:
			pacer.over()
			return true
		case leasing.Err() != nil:
			return false
		}
		pause, again := pacer.next(err)
		if !again {
			w.drain(err)
			return false
		}
		w.o.notify(nil, err)
		if !pass(leasing, pause) {
			return false
		}
	}
}

// learnVisibility asks how long leases live, where no option says: extensions must come sooner.
func (w *Worker) learnVisibility(leasing context.Context, pacer *outage) bool {
	if w.o.visibility != 0 {
		return true
	}
	return w.insist(leasing, pacer, func() (err error) {
		w.o.visibility, err = w.queue.Visibility(leasing)
		return err
	})
}

// lease is the loop that leases.
func (w *Worker) lease(working, leasing context.Context, pacer *outage) {
	backlog := 2 * max(w.o.concurrency, w.o.batch) // of what waits to be settled: more would be leased in vain if the server went away
	o := LeaseOptions{Wait: w.o.wait, Visibility: w.o.visibility}
	if w.o.untilEmpty {
		o.Wait = 0
	}
	for {
		busy := 0
		ok := w.await(leasing, func() bool {
			busy = len(w.mu.held)
			o.Max = w.o.concurrency - w.mu.running
			return w.mu.waiting == 0 && o.Max > 0 && w.mu.settling <= backlog && !w.mu.mute
		})
		if !ok {
			return
		}
		if w.o.batch > 0 {
			o.Max = w.o.batch
		}
		// The same ID for as long as it takes: leases whose answer was lost are not lost then.
		o.RequestID = rand.Text()
		begin := time.Now()
		var messages []Message
		ok = w.insist(leasing, pacer, func() (err error) {
			messages, err = w.queue.Lease(leasing, o)
			return err
		})
		if !ok {
			return
		}
		w.accept(working, messages, begin)
		switch {
		case w.o.once:
			return
		case len(messages) > 0 || !w.o.untilEmpty:
		case busy == 0:
			return
		default:
			// What is being handled may come back: look again when it is settled.
			if !w.await(leasing, func() bool { return len(w.mu.held) == 0 }) {
				return
			}
		}
	}
}

// await waits until ready, which is called under the lock, or until leasing ends (false).
func (w *Worker) await(leasing context.Context, ready func() bool) bool {
	for {
		if leasing.Err() != nil {
			return false
		}
		w.mu.Lock()
		ok := ready()
		w.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-w.changed:
		case <-leasing.Done():
		}
	}
}

// accept takes what was leased, by a call that began at a time: a first answer may have been lost, and the leases have begun then.
func (w *Worker) accept(working context.Context, messages []Message, begin time.Time) {
	deadline := time.Now().Add(w.o.visibility)
	batch := make([]*held, len(messages))
	w.mu.Lock()
	for i := range messages {
		h := &held{m: messages[i], state: heldWaiting, deadline: deadline, sure: begin.Add(w.o.visibility)}
		h.ctx, h.cancel = context.WithCancelCause(context.WithoutCancel(working)) // handleOne ends it with working, by a cause of its own
		h.expire = time.AfterFunc(w.o.visibility, func() { w.expired(h) })
		w.mu.held[h.m.Receipt] = h
		batch[i] = h
	}
	w.mu.waiting += len(messages)
	w.mu.stats.Leased += int64(len(messages))
	w.mu.Unlock()
	for _, h := range batch {
		w.ready <- h
	}
}

// expired runs when the deadline of a lease has come, as far as this side knows. The timer may have been set anew while it fired.
func (w *Worker) expired(h *held) {
	w.mu.Lock()
	early := time.Now().Before(h.deadline)
	w.mu.Unlock()
	if !early {
		w.lost(h)
	}
}

// lost ends what is done about a record whose lease is gone.
func (w *Worker) lost(h *held) {
	w.mu.Lock()
	if h.state != heldWaiting && h.state != heldRunning {
		w.mu.Unlock()
		return
	}
	delete(w.mu.held, h.m.Receipt)
	w.mu.stats.Lost++
	if h.state == heldWaiting {
		w.mu.waiting--
	}
	h.state = heldGone // a handler that runs counts as running until it is out
	w.mu.Unlock()
	err := (&SettleResult{Receipt: h.m.Receipt, Code: ErrLeaseLost.Code}).Err()
	h.cancel(err)
	w.o.notify(&h.m, err)
	w.signal()
}

// handleAll is one of the goroutines that handlers run in.
func (w *Worker) handleAll(working context.Context) {
	ended := false
	defer func() {
		if !ended { // the handler has ended the goroutine: another takes its place
			w.handlers.Go(func() { w.handleAll(working) })
		}
	}()
	for h := range w.ready {
		w.handleOne(working, h)
	}
	ended = true
}

// handleOne has one record handled, or gives it back.
func (w *Worker) handleOne(working context.Context, h *held) {
	defer h.cancel(nil)
	defer w.signal()
	w.mu.Lock()
	if h.state == heldGone {
		w.mu.Unlock()
		return
	}
	w.mu.waiting--
	if w.mu.draining {
		h.state, h.back = heldSettling, true
		w.mu.settling++
		w.mu.Unlock()
		h.expire.Stop()
		w.done <- h
		return
	}
	h.state = heldRunning
	w.mu.running++
	w.mu.Unlock()

	stop := context.AfterFunc(working, func() { h.cancel(ErrWorkerStopped) })
	err := errGoexit
	defer func() { // a handler that ends its goroutine comes here, too
		stop()
		h.expire.Stop()
		w.handled(h, err)
	}()
	err = w.protect(h)
}

// protect calls the handler, and makes an error of a panic.
func (w *Worker) protect(h *held) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return w.handle(h.ctx, &h.m)
}

// handled passes on to the settler what a handler has done, if that still counts.
func (w *Worker) handled(h *held, err error) {
	w.mu.Lock()
	w.mu.running--
	settle := h.state == heldRunning
	if settle {
		h.state = heldSettling
		w.mu.settling++
		h.err, h.back = err, err != nil && errors.Is(context.Cause(h.ctx), ErrWorkerStopped)
	}
	w.mu.Unlock()
	if settle {
		w.done <- h
	}
}
