package work

import (
	"context"
	"time"

	"github.com/forebaymq/forebay/client"
)

// settler tells the server what became of records, as many at a time as have come meanwhile.
func (w *worker) settler(ctx context.Context) {
	for h := range w.done {
		batch := []*held{h}
	more:
		for {
			select {
			case h, ok := <-w.done:
				if !ok {
					break more
				}
				batch = append(batch, h)
			default:
				break more
			}
		}
		w.settle(ctx, batch)
	}
}

// reason is what records are nacked together by.
type reason struct {
	text string
	back bool
}

func (w *worker) settle(ctx context.Context, batch []*held) {
	var acks []*held
	nacks := map[reason][]*held{}
	var order []reason
	for _, h := range batch {
		if h.err == nil && !h.back {
			acks = append(acks, h)
			continue
		}
		r := reason{back: h.back}
		if r.back {
			r.text = ErrStopped.Error()
		} else {
			r.text = reasonText(h.err)
			w.o.Notify(&h.m, h.err)
		}
		if len(nacks[r]) == 0 {
			order = append(order, r)
		}
		nacks[r] = append(nacks[r], h)
	}
	if len(acks) > 0 {
		results, err := w.o.Queue.Ack(ctx, receipts(acks))
		w.settled(acks, results, err, func(s *Stats) { s.Acked++ })
	}
	for _, r := range order {
		o := client.NackOptions{Delay: w.o.NackDelay, Reason: r.text}
		count := func(s *Stats) { s.Nacked++ }
		if r.back {
			o.Delay = new(time.Duration) // at once: nothing is the matter with it
			count = func(s *Stats) { s.GivenBack++ }
		}
		results, err := w.o.Queue.Nack(ctx, receipts(nacks[r]), o)
		w.settled(nacks[r], results, err, count)
	}
}

func receipts(batch []*held) []string {
	out := make([]string, len(batch))
	for i, h := range batch {
		out[i] = h.m.Receipt
	}
	return out
}

// settled takes the server's answer: results of the first of batch, and err for the rest.
func (w *worker) settled(batch []*held, results []client.SettleResult, err error, count func(*Stats)) {
	type trouble struct {
		h   *held
		err error
	}
	var troubles []trouble
	w.mu.Lock()
	for i, h := range batch {
		h.state = gone
		delete(w.mu.held, h.m.Receipt)
		switch {
		case i >= len(results):
			w.mu.stats.Unsettled++
		case results[i].Code == "":
			count(&w.mu.stats)
		default:
			w.mu.stats.Lost++
			troubles = append(troubles, trouble{h, results[i].Err()})
		}
	}
	w.mu.Unlock()
	for _, t := range troubles {
		w.o.Notify(&t.h.m, t.err)
	}
	if err != nil {
		w.drain(err)
	}
	w.signal()
}

// extender keeps the leases of what waits and runs alive: it looks six times in a visibility, and extends what has less than two thirds left.
func (w *worker) extender(ctx context.Context) {
	ticker := w.o.Clock.NewTicker(max(w.o.Visibility/6, 10*time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.Chan():
			w.extend(ctx)
		}
	}
}

func (w *worker) extend(ctx context.Context) {
	now := w.o.Clock.Now()
	var batch []*held
	w.mu.Lock()
	for _, h := range w.mu.held {
		if (h.state == waiting || h.state == running) && h.deadline.Sub(now) < w.o.Visibility*2/3 {
			batch = append(batch, h)
		}
	}
	w.mu.Unlock()
	if len(batch) == 0 {
		return
	}
	// An answer that is long in coming must not hold up the next attempt until the leases are gone.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := w.o.Clock.AfterFunc(w.o.Visibility/3, cancel)
	defer timer.Stop()
	results, err := w.o.Queue.Extend(ctx, receipts(batch), w.o.Visibility)
	for i, h := range batch {
		switch {
		case i >= len(results):
		case results[i].Code != "":
			w.lost(h)
		default:
			w.extended(h, now.Add(w.o.Visibility))
		}
	}
	if err != nil && ctx.Err() == nil {
		w.o.Notify(nil, err)
	}
}

func (w *worker) extended(h *held, deadline time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h.state == waiting || h.state == running {
		h.deadline = deadline
		h.expire.Reset(deadline.Sub(w.o.Clock.Now()))
	}
}
