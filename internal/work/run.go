package work

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/client"
)

// Options say what Run does.
type Options struct {
	Queue Queue
	// Handle handles one record; its error is the reason of the nack. Its context ends with ErrLeaseLost or ErrStopped as its cause.
	Handle      func(ctx context.Context, m *client.Message) error
	Concurrency int           // records handled at a time; default 1
	Batch       int           // records of a lease; 0 = as many as handlers are idle, so that none waits
	Wait        time.Duration // of a lease, unless UntilEmpty
	Visibility  time.Duration // of the leases; required
	NackDelay   *time.Duration
	Once        bool // end after one lease
	UntilEmpty  bool // end when nothing can be leased while nothing is being handled
	// Drain, when it is closed, ends leasing; nil = never.
	Drain <-chan struct{}
	// Notify hears of what goes wrong with one record or (nil) with several. It is called by several goroutines.
	Notify func(m *client.Message, err error)
	Clock  clockwork.Clock // default: the real one
}

func (o Options) withDefaults() Options {
	if o.Concurrency == 0 {
		o.Concurrency = 1
	}
	if o.Notify == nil {
		o.Notify = func(*client.Message, error) {}
	}
	if o.Clock == nil {
		o.Clock = clockwork.NewRealClock()
	}
	return o
}

// lastWords is how long a worker whose context has ended may go on telling the server what became of its records.
const lastWords = 10 * time.Second

// state of a held record.
type state uint8

const (
	waiting  state = iota + 1 // for a handler
	running                   // in its handler
	settling                  // handled; the server is being told
	gone                      // settled, or the lease was lost
)

// held is one leased record.
type held struct {
	m      client.Message
	ctx    context.Context
	cancel context.CancelCauseFunc
	expire clockwork.Timer // ends the handler when the lease may have lapsed
	// Guarded by worker.mu.
	state    state
	deadline time.Time
	// Set before the record goes to the settler.
	err  error
	back bool // give it back
}

type worker struct {
	o       Options
	cancel  context.CancelFunc // ends leasing
	ready   chan *held
	done    chan *held // to the settler
	changed chan struct{}
	mu      struct {
		sync.Mutex
		held     map[string]*held // by receipt; waiting, running, settling
		waiting  int
		running  int
		draining bool
		stats    Stats
		err      error // why leasing ended, the first one
	}
}

// Run leases and handles records until o says to end, the queue fails, or ctx ends. The counts are valid with an error, too.
func Run(ctx context.Context, o Options) (Stats, error) {
	o = o.withDefaults()
	leasing, cancel := context.WithCancel(ctx)
	defer cancel()
	w := &worker{
		o: o, cancel: cancel, ready: make(chan *held, api.MaxLeaseRecords), done: make(chan *held, api.MaxLeaseRecords), changed: make(chan struct{}, 1),
	}
	w.mu.held = map[string]*held{}
	settling, endSettling := w.outlive(ctx)
	defer endSettling()
	extending, endExtending := context.WithCancel(ctx)

	var drainer, handlers, settler, extender sync.WaitGroup
	drainer.Go(func() { w.drainer(ctx, leasing) })
	for range o.Concurrency {
		handlers.Go(func() {
			for h := range w.ready {
				w.handle(ctx, h)
			}
		})
	}
	settler.Go(func() { w.settler(settling) })
	extender.Go(func() { w.extender(extending) })

	w.lease(ctx, leasing)

	// Handlers feed the settler and need the extender; so they end in this order.
	cancel()
	drainer.Wait()
	close(w.ready)
	handlers.Wait()
	close(w.done)
	settler.Wait()
	endExtending()
	extender.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.stats, w.mu.err
}

// outlive gives a context that ends a while after ctx.
func (w *worker) outlive(ctx context.Context) (context.Context, func()) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var mu sync.Mutex
	var timer clockwork.Timer
	stop := context.AfterFunc(ctx, func() {
		mu.Lock()
		defer mu.Unlock()
		if longer.Err() == nil {
			timer = w.o.Clock.AfterFunc(lastWords, cancel)
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
func (w *worker) drainer(ctx, leasing context.Context) {
	select {
	case <-w.o.Drain:
	case <-leasing.Done():
		if ctx.Err() == nil {
			return // leasing has ended by itself: what it brought is handled
		}
	}
	w.drain(nil)
}

// drain ends leasing; the first error is kept.
func (w *worker) drain(err error) {
	w.mu.Lock()
	w.mu.draining = true
	if w.mu.err == nil {
		w.mu.err = err
	}
	w.mu.Unlock()
	w.cancel()
}

// signal wakes the leaser.
func (w *worker) signal() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// lease is the loop that leases.
func (w *worker) lease(ctx, leasing context.Context) {
	o := client.LeaseOptions{Wait: w.o.Wait, Visibility: w.o.Visibility}
	if w.o.UntilEmpty {
		o.Wait = 0
	}
	for {
		busy := 0
		ok := w.await(leasing, func() bool {
			busy = len(w.mu.held)
			o.Max = w.o.Concurrency - w.mu.running
			return w.mu.waiting == 0 && o.Max > 0
		})
		if !ok {
			return
		}
		if w.o.Batch > 0 {
			o.Max = w.o.Batch
		}
		messages, err := w.o.Queue.Lease(leasing, o)
		if err != nil {
			if leasing.Err() == nil {
				w.drain(err)
			}
			return
		}
		w.accept(ctx, messages)
		switch {
		case w.o.Once:
			return
		case len(messages) > 0 || !w.o.UntilEmpty:
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
func (w *worker) await(leasing context.Context, ready func() bool) bool {
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

// accept takes what was leased.
func (w *worker) accept(ctx context.Context, messages []client.Message) {
	deadline := w.o.Clock.Now().Add(w.o.Visibility)
	batch := make([]*held, len(messages))
	w.mu.Lock()
	for i := range messages {
		h := &held{m: messages[i], state: waiting, deadline: deadline}
		h.ctx, h.cancel = context.WithCancelCause(context.WithoutCancel(ctx)) // handle ends it with ctx, by a cause of its own
		h.expire = w.o.Clock.AfterFunc(w.o.Visibility, func() { w.expired(h) })
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
func (w *worker) expired(h *held) {
	w.mu.Lock()
	early := w.o.Clock.Now().Before(h.deadline)
	w.mu.Unlock()
	if !early {
		w.lost(h)
	}
}

// lost ends what is done about a record whose lease is gone.
func (w *worker) lost(h *held) {
	w.mu.Lock()
	if h.state != waiting && h.state != running {
		w.mu.Unlock()
		return
	}
	delete(w.mu.held, h.m.Receipt)
	w.mu.stats.Lost++
	if h.state == waiting {
		w.mu.waiting--
	}
	h.state = gone // a handler that runs counts as running until it is out
	w.mu.Unlock()
	h.cancel(ErrLeaseLost)
	w.o.Notify(&h.m, ErrLeaseLost)
	w.signal()
}

// handle has one record handled, or gives it back.
func (w *worker) handle(ctx context.Context, h *held) {
	defer h.cancel(nil)
	defer w.signal()
	w.mu.Lock()
	if h.state == gone {
		w.mu.Unlock()
		return
	}
	w.mu.waiting--
	if w.mu.draining {
		h.state, h.back = settling, true
		w.mu.Unlock()
		h.expire.Stop()
		w.done <- h
		return
	}
	h.state = running
	w.mu.running++
	w.mu.Unlock()

	stop := context.AfterFunc(ctx, func() { h.cancel(ErrStopped) })
	err := w.o.Handle(h.ctx, &h.m)
	stop()
	h.expire.Stop()

	w.mu.Lock()
	w.mu.running--
	settle := h.state == running
	if settle {
		h.state = settling
		h.err, h.back = err, err != nil && errors.Is(context.Cause(h.ctx), ErrStopped)
	}
	w.mu.Unlock()
	if settle {
		w.done <- h
	}
}
