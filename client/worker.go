package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/forebaymq/forebay/api"
)

// MessageHandler handles one leased record. nil acks it; an error nacks it with the error's text as the reason, to be delivered again after the
// subscription's backoff (see RetryAfter) or to become a dead letter after its last attempt. No error makes it one sooner: what a handler knows to be
// hopeless it can note elsewhere, and ack.
//
// ctx ends when the work has lost its meaning, and context.Cause says why: ErrLeaseLost, where another worker may have the record by now, so that
// what is done still should not count; or ErrWorkerStopped, after which an error gives the record back at once.
//
// A panic is an error like others, a *PanicError: the record is nacked and the worker goes on. One bad record would otherwise end the process, its
// other work with it, again after each start, until its attempts are used up.
type MessageHandler func(ctx context.Context, m *Message) error

// WorkerStats counts the records of a Worker.
type WorkerStats struct {
	Leased    int64 `json:"leased"`
	Acked     int64 `json:"acked"`
	Nacked    int64 `json:"nacked"`
	Lost      int64 `json:"lost"`      // the lease was gone before the record was settled: it is delivered again
	GivenBack int64 `json:"givenBack"` // not handled, or not to the end, because the worker stopped
	Unsettled int64 `json:"unsettled"` // the server could not be told: they are delivered again when their leases lapse
}

// Whole says whether every record that was leased was acked.
func (s WorkerStats) Whole() bool { return s.Acked == s.Leased }

// Worker works a subscription off: it leases records, has them handled, and settles them.
//
// A bounded number of handlers runs at a time, and no more is leased than they can begin with (or a batch, see WithWorkerBatch). Leases are extended
// while their records wait or are handled, however long that takes; where one is lost nevertheless, its handler is told by the end of its context.
// Acks and nacks that come together travel together.
//
// While the server or its lease store is away, the worker goes on trying, with growing pauses, and tells WithWorkerNotify; it leases nothing new
// while it cannot say what became of what it had. A refusal that will not pass by itself ends Run: the subscription is unknown, the token does
// not permit it, or retention has deleted what was not settled (ErrRetentionGap, about which somebody has to decide, see Seek).
//
// Delivery is at least once. A record comes again after a lost lease, after an ack whose outcome nobody could learn, and after the death of the
// process. Handlers that must not act twice look at Record.ID, or use the package client/inbox.
type Worker struct {
	queue  workerQueue
	handle MessageHandler
	o      workerOptions

	stopping chan struct{}
	stopOnce sync.Once

	endLeasing context.CancelFunc
	ready      chan *held
	done       chan *held // to the settler
	changed    chan struct{}
	handlers   sync.WaitGroup
	mu         struct {
		sync.Mutex
		started  bool
		held     map[string]*held // by receipt; waiting, running, settling
		waiting  int
		running  int
		settling int
		draining bool
		mute     bool // the server cannot be told what became of records
		stats    WorkerStats
		err      error // why leasing ended, the first one
	}
}

type workerOptions struct {
	concurrency, batch int
	wait, visibility   time.Duration
	nackDelay          func(m *Message, err error) time.Duration
	once, untilEmpty   bool
	grace              time.Duration
	outage             time.Duration
	maxRetryAfter      time.Duration
	notify             func(m *Message, err error)
}

// WorkerOption changes one setting of a Worker.
type WorkerOption func(*workerOptions)

// WithWorkerConcurrency lets n handlers run at a time, 1 to 1,000, overriding the default of 1.
func WithWorkerConcurrency(n int) WorkerOption { return func(o *workerOptions) { o.concurrency = n } }

// WithWorkerBatch leases up to n records at a time, at most 1,000, overriding the default of as many as handlers are idle, with which no record waits
// here while another worker could have it. A larger batch makes less of the way to the server where handlers are quick.
func WithWorkerBatch(n int) WorkerOption { return func(o *workerOptions) { o.batch = n } }

// WithWorkerWait makes each lease wait up to d for records, at most 30 s, overriding the default of 20 s.
func WithWorkerWait(d time.Duration) WorkerOption { return func(o *workerOptions) { o.wait = d } }

// WithWorkerVisibility makes leases live for d between extensions, 1 s to 12 h, overriding the default of the subscription's, which Run asks for. It is how
// long records wait for another worker when this one has died, and how long an outage a handler can survive.
func WithWorkerVisibility(d time.Duration) WorkerOption {
	return func(o *workerOptions) { o.visibility = d }
}

// WithWorkerNackDelay asks delay how long a record pauses whose handler failed with err, overriding the default of the subscription's backoff, which a
// negative answer means as well. m.Attempt says which attempt it was. It is called by several goroutines.
func WithWorkerNackDelay(delay func(m *Message, err error) time.Duration) WorkerOption {
	return func(o *workerOptions) { o.nackDelay = delay }
}

// WithWorkerOnce ends Run after one lease, overriding the default of going on.
func WithWorkerOnce() WorkerOption { return func(o *workerOptions) { o.once = true } }

// WithWorkerUntilEmpty ends Run when nothing can be leased while nothing is being handled, overriding the default of going on. Records that are
// delayed, backing off or leased by others are not waited for.
func WithWorkerUntilEmpty() WorkerOption { return func(o *workerOptions) { o.untilEmpty = true } }

// WithWorkerGrace is how long handlers may go on when the context of Run has ended, before their own contexts end, overriding the default of 30 s.
func WithWorkerGrace(d time.Duration) WorkerOption { return func(o *workerOptions) { o.grace = d } }

// WithWorkerOutage ends Run with the error when the server has been away for longer than limit, overriding the default of going on for ever. 0
// ends it at the first failure that the client's own retries could not mend.
func WithWorkerOutage(limit time.Duration) WorkerOption {
	return func(o *workerOptions) { o.outage = max(limit, 0) }
}

// WithWorkerNotify tells notify what goes wrong, overriding the default of nobody: with a record, that its handler failed (a panic is a *PanicError) or
// that its lease was lost (ErrLeaseLost); without one (nil), that the server could not be reached or refused, each attempt that is made again. It is
// called by several goroutines, and holds them up while it runs.
func WithWorkerNotify(notify func(m *Message, err error)) WorkerOption {
	return func(o *workerOptions) { o.notify = notify }
}

// NewWorker makes a worker for one subscription. It does nothing until Run.
func NewWorker(c *Client, topic, subscription string, handle MessageHandler, opts ...WorkerOption) (*Worker, error) {
	opts = append([]WorkerOption{func(o *workerOptions) { o.maxRetryAfter = c.policy.MaxRetryAfter }}, opts...)
	queue := &remoteQueue{c, topic, subscription}
	w, err := newWorker(queue, handle, opts...)
	if err == nil {
		queue.c = c.telling(func(err error) { w.o.notify(nil, err) })
	}
	return w, err
}

func newWorker(queue workerQueue, handle MessageHandler, opts ...WorkerOption) (*Worker, error) {
	o := workerOptions{concurrency: 1, wait: 20 * time.Second, grace: 30 * time.Second, outage: forever, notify: func(*Message, error) {}}
	for _, opt := range opts {
		opt(&o)
	}
	var faults []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	refuse(handle == nil, "a handler is missing")
	refuse(o.concurrency < 1 || o.concurrency > api.MaxLeaseRecords, "concurrency %d: want 1 to %d", o.concurrency, api.MaxLeaseRecords)
	refuse(o.batch < 0 || o.batch > api.MaxLeaseRecords, "batch %d: want 1 to %d", o.batch, api.MaxLeaseRecords)
	refuse(o.wait < 0 || o.wait > api.MaxWait, "wait %s: want 0 to %s", o.wait, api.MaxWait)
	refuse(o.visibility != 0 && (o.visibility < api.MinVisibility || o.visibility > api.MaxVisibility),
		"visibility %s: want %s to %s", o.visibility, api.MinVisibility, api.MaxVisibility)
	refuse(o.grace < 0, "grace %s: want 0 or more", o.grace)
	refuse(o.notify == nil, "the function to notify is missing")
	if len(faults) > 0 {
		return nil, fmt.Errorf("worker: %w", errors.Join(faults...))
	}
	w := &Worker{
		queue: queue, handle: handle, o: o, stopping: make(chan struct{}),
		ready: make(chan *held, api.MaxLeaseRecords), done: make(chan *held, api.MaxLeaseRecords), changed: make(chan struct{}, 1),
	}
	w.mu.held = map[string]*held{}
	return w, nil
}

// Stop ends leasing; it does not wait. What waits is given back at once, handlers may take as long as they need, and Run returns when what they did is
// settled. Stop may be called at any time, before Run too, and again.
func (w *Worker) Stop() { w.stopOnce.Do(func() { close(w.stopping) }) }

// Stats gives the counts so far. It may be called at any time.
func (w *Worker) Stats() WorkerStats {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.stats
}
