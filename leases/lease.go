package leases

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases/store"
)

// rememberLonger is how much longer than its leases a request's ID is remembered.
const rememberLonger = time.Minute

// Lease implements Queues.
func (e *Engine) Lease(ctx context.Context, r LeaseRequest) ([]Message, error) {
	e.m.requests.Inc()
	begun := e.o.Clock.Now()
	for attempt := 0; ; attempt++ {
		q, err := e.lookup(ctx, r.Name)
		if err != nil {
			return nil, err
		}
		q.used.Store(begun.UnixMilli())
		ms, err := e.lease(ctx, q, &r, begun)
		var deleted *deletedError
		if errors.As(err, &deleted) {
			return nil, deleted.error
		}
		if attempt == 0 && gone(err) {
			// It was deleted, or its topic was, before this node knew. There may be another of that name.
			if again, err2 := e.resolve(ctx, r.Name); err2 != nil || again.id == q.id {
				return nil, err
			}
			continue
		}
		if err == nil && len(ms) == 0 {
			e.m.empty.Inc()
		}
		return ms, err
	}
}

func (e *Engine) lease(ctx context.Context, q *queue, r *LeaseRequest, begun time.Time) ([]Message, error) {
	if r.RequestID != "" {
		leave, err := q.requests.enter(ctx, r.RequestID)
		if err != nil {
			return nil, err
		}
		defer leave()
		if ms, err := e.recall(ctx, q, r); err != nil || len(ms) > 0 {
			return ms, err
		}
	}
	w := &waiter{ctx: ctx, want: r.Max, maxBytes: r.MaxBytes, visibility: r.Visibility, requestID: r.RequestID, waits: r.Wait > 0, done: make(chan struct{})}
	if w.want < 1 {
		w.want = api.DefaultLeaseRecords
	}
	if w.maxBytes <= 0 {
		w.maxBytes = api.MaxReadBytes
	}
	if w.visibility == 0 {
		w.visibility = q.sub.Config.VisibilityTimeout
	}
	start, ok := q.line.join(w)
	if !ok {
		return nil, errDraining()
	}
	if start {
		e.dispatch(q.active)
	}
	var late <-chan time.Time
	if w.waits {
		t := e.o.Clock.NewTimer(r.Wait - e.o.Clock.Since(begun))
		defer t.Stop()
		late = t.Chan()
	}
	for {
		select {
		case <-w.done:
			return w.messages, w.err
		case <-late:
			q.line.expire(w)
			late = nil
		case <-ctx.Done():
			if q.line.leave(w) {
				e.giveBack(q, receiptsOf(w.messages))
			}
			return nil, context.Cause(ctx)
		}
	}
}

// Undo implements Queues.
func (e *Engine) Undo(ctx context.Context, n Name, receipts []string) {
	q, err := e.find(n)
	if err != nil {
		return // deleted meanwhile
	}
	var rs []store.Receipt
	for _, text := range receipts {
		if r, ok := parseReceipt(text); ok {
			rs = append(rs, r)
		}
	}
	e.giveBack(q, rs)
}

// giveBack releases leases without making anybody wait: the one they were for has gone.
func (e *Engine) giveBack(q *queue, receipts []store.Receipt) {
	if len(receipts) == 0 {
		return
	}
	e.spawn(func() {
		ctx, cancel := e.bounded(e.ctx, e.o.CallTimeout)
		defer cancel()
		e.release(ctx, q, receipts)
	})
}

// requests lets one lease call of a request ID run at a time, so that a repeat finds what the first one got.
type requests struct {
	mu struct {
		sync.Mutex
		running map[string]chan struct{} // closed when it ends
	}
}

func (r *requests) enter(ctx context.Context, id string) (leave func(), err error) {
	for {
		r.mu.Lock()
		before, busy := r.mu.running[id]
		if !busy {
			if r.mu.running == nil {
				r.mu.running = map[string]chan struct{}{}
			}
			mine := make(chan struct{})
			r.mu.running[id] = mine
			r.mu.Unlock()
			return func() {
				r.mu.Lock()
				delete(r.mu.running, id)
				r.mu.Unlock()
				close(mine)
			}, nil
		}
		r.mu.Unlock()
		select {
		case <-before:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// remember keeps what a request got, before the answer leaves.
func (e *Engine) remember(ctx context.Context, q *queue, w *waiter, receipts []store.Receipt) error {
	return e.call(ctx, q, func(ctx context.Context) error {
		return e.o.Store.Remember(ctx, &q.store, w.requestID, receipts, w.visibility+rememberLonger)
	})
}

// recall gives what an earlier call of the request got, as far as it is live. Nothing: lease as if it were the first.
func (e *Engine) recall(ctx context.Context, q *queue, r *LeaseRequest) ([]Message, error) {
	var got []store.Remembered
	err := e.call(ctx, q, func(ctx context.Context) (err error) {
		got, err = e.o.Store.Recall(ctx, &q.store, r.RequestID)
		return err
	})
	if err != nil || len(got) == 0 {
		return nil, err
	}
	// The leases are read one by one as they were granted, and what cannot be read any more is left to lapse.
	grants := make([]store.Grant, len(got))
	for i, l := range got {
		grants[i] = store.Grant{Partition: l.Partition, Start: l.Offset, Count: 1, Attempt: l.Attempt, Nonce: l.Nonce, Expires: l.Expires}
	}
	rs, of := runs(grants)
	for _, run := range rs {
		if run.read(ctx, e, q, groupBytes); run.err != nil {
			return nil, run.err
		}
	}
	w := &waiter{want: len(grants)}
	for i := range grants {
		if k, v := of[i].find(grants[i].Start); v == there {
			w.take(&grants[i], of[i].records, k, 0)
		}
	}
	return w.build(), nil
}
