package leases

import (
	"context"
	"slices"
	"sync"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases/store"
)

// ackRecords is how many receipts one call to the store takes of several requests; one request may bring more.
const ackRecords = 5000

// acks are the acks of a subscription that wait to be sent together. While one call is under way the next gathers, so that a
// hundred clients that ack one record each cost a few calls.
type acks struct {
	mu struct {
		sync.Mutex
		waiting []*ackCall
		running bool
	}
}

// ackCall is one request's acks.
type ackCall struct {
	q        *queue
	receipts []store.Receipt
	ok       []bool // once done is closed
	err      error
	done     chan struct{}
}

// Settle implements Queues.
func (e *Engine) Settle(ctx context.Context, r SettleRequest) ([]SettleResult, error) {
	q, err := e.lookup(ctx, r.Name)
	if err != nil {
		return nil, err
	}
	q.used.Store(e.now())
	results, receipts, at := sortReceipts(r.Receipts, q.topic.Config.Partitions)
	if len(at) < len(results) {
		// A partition that this node has not heard of may have been added, and leased from, on another one.
		if q, err = e.resolve(ctx, r.Name); err != nil {
			return nil, err
		}
		results, receipts, at = sortReceipts(r.Receipts, q.topic.Config.Partitions)
	}
	if len(receipts) == 0 {
		return results, nil
	}
	var ok []bool
	var expires []int64
	switch r.Kind {
	case Ack:
		ok, err = e.ack(ctx, q, receipts)
	case Nack:
		var s *store.Settled
		o := store.SettleOptions{Delay: -1, Reason: r.Reason}
		if r.Delay != nil {
			o.Delay = *r.Delay
		}
		if s, err = e.settle(ctx, q, store.OpNack, receipts, o); err == nil {
			ok = s.OK
			e.announce(q, s.NextDue)
		}
	case Extend:
		var s *store.Settled
		o := store.SettleOptions{Visibility: r.Visibility}
		if o.Visibility == 0 {
			o.Visibility = q.sub.Config.VisibilityTimeout
		}
		if s, err = e.settle(ctx, q, store.OpExtend, receipts, o); err == nil {
			ok, expires = s.OK, s.Expires
		}
	default:
		return nil, api.Errorf(api.CodeInvalidRequest, "settling can be acking, nacking or extending")
	}
	if err != nil {
		return nil, err
	}
	lost := 0
	for i, place := range at {
		if !ok[i] {
			results[place].Code = api.CodeLeaseLost
			lost++
		} else if expires != nil {
			results[place].ExpiresAt = expires[i]
		}
	}
	e.m.settled(r.Kind, len(at)-lost, lost)
	return results, nil
}

// sortReceipts takes receipts apart. at is the place in the request of each that may be a lease of a topic with so many partitions; the results
// of the others are made.
func sortReceipts(texts []string, partitions int) (results []SettleResult, receipts []store.Receipt, at []int) {
	results = make([]SettleResult, len(texts))
	receipts = make([]store.Receipt, 0, len(texts))
	at = make([]int, 0, len(texts))
	for i, text := range texts {
		results[i].Receipt = text
		receipt, ok := parseReceipt(text)
		switch {
		case !ok:
			results[i].Code = api.CodeInvalidRequest
		case int(receipt.Partition) >= partitions:
			results[i].Code = api.CodeLeaseLost // well-formed, but nothing that this subscription can have leased
		default:
			receipts = append(receipts, receipt)
			at = append(at, i)
		}
	}
	return results, receipts, at
}

// settle runs an operation on leases.
func (e *Engine) settle(ctx context.Context, q *queue, op store.Op, receipts []store.Receipt, o store.SettleOptions) (s *store.Settled, err error) {
	err = e.call(ctx, q, func(ctx context.Context) (err error) {
		s, err = e.o.Store.Settle(ctx, &q.store, op, receipts, o)
		return err
	})
	if err != nil {
		return nil, err
	}
	e.effects(q, &s.Effects)
	if op != store.OpExtend && q.line.waiting.Load() > 0 && q.shards.capped() {
		q.line.stir() // what is settled makes room for new records
	}
	return s, nil
}

// ack acks together with whoever acks at the same time. The call goes on when ctx ends: others share it.
func (e *Engine) ack(ctx context.Context, q *queue, receipts []store.Receipt) ([]bool, error) {
	c := &ackCall{q: q, receipts: receipts, done: make(chan struct{})}
	w := &q.acks
	w.mu.Lock()
	w.mu.waiting = append(w.mu.waiting, c)
	start := !w.mu.running
	w.mu.running = true
	w.mu.Unlock()
	if start && !e.spawn(func() { e.sendAcks(w) }) {
		w.failAll(errDraining())
	}
	select {
	case <-c.done:
		return c.ok, c.err
	case <-ctx.Done():
		return nil, &api.Error{Code: api.CodeOutcomeUnknown, Detail: "the request ended before the lease store had answered: the same receipts may be acked again",
			Cause: context.Cause(ctx)}
	}
}

// sendAcks sends what waits until nothing does.
func (e *Engine) sendAcks(w *acks) {
	for {
		w.mu.Lock()
		n, total := 0, 0
		for n < len(w.mu.waiting) && (n == 0 || total+len(w.mu.waiting[n].receipts) <= ackRecords) {
			total += len(w.mu.waiting[n].receipts)
			n++
		}
		if n == 0 {
			w.mu.running = false
			w.mu.Unlock()
			return
		}
		calls := w.mu.waiting[:n:n]
		w.mu.waiting = slices.Clone(w.mu.waiting[n:])
		w.mu.Unlock()
		receipts := calls[0].receipts
		if n > 1 {
			receipts = make([]store.Receipt, 0, total)
			for _, c := range calls {
				receipts = append(receipts, c.receipts...)
			}
		}
		ctx, cancel := e.bounded(e.ctx, e.o.CallTimeout)
		s, err := e.settle(ctx, calls[n-1].q, store.OpAck, receipts, store.SettleOptions{})
		if err != nil && ctx.Err() != nil {
			err = unavailable(err)
		}
		cancel()
		for _, c := range calls {
			if c.err = err; err == nil {
				c.ok, s.OK = s.OK[:len(c.receipts)], s.OK[len(c.receipts):]
			}
			close(c.done)
		}
	}
}

func (w *acks) failAll(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.mu.waiting {
		c.err = err
		close(c.done)
	}
	w.mu.waiting, w.mu.running = nil, false
}
