package client

import (
	"context"
	"errors"
	"time"
)

// settler tells the server what became of records, as many at a time as have come meanwhile.
func (w *Worker) settler(ctx context.Context) {
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

// verdict is what records are nacked together by.
type verdict struct {
	reason string
	delay  time.Duration // < 0: by the subscription's backoff
	back   bool
}

func (w *Worker) settle(ctx context.Context, batch []*held) {
	var acks []*held
	nacks := map[verdict][]*held{}
	var order []verdict
	for _, h := range batch {
		if h.err == nil && !h.back {
			acks = append(acks, h)
			continue
		}
		v := w.judge(h)
		if len(nacks[v]) == 0 {
			order = append(order, v)
		}
		nacks[v] = append(nacks[v], h)
	}
	w.tell(ctx, acks, w.queue.Ack, func(s *WorkerStats) { s.Acked++ })
	for _, v := range order {
		o := NackOptions{Reason: v.reason}
		if v.delay >= 0 {
			o.Delay = &v.delay
		}
		count := func(s *WorkerStats) { s.Nacked++ }
		if v.back {
			count = func(s *WorkerStats) { s.GivenBack++ }
		}
		w.tell(ctx, nacks[v], func(ctx context.Context, receipts []string) ([]SettleResult, error) {
			return w.queue.Nack(ctx, receipts, o)
		}, count)
	}
}

// judge says what becomes of a record that was not handled well.
func (w *Worker) judge(h *held) verdict {
	if h.back {
		return verdict{reason: ErrWorkerStopped.Error(), back: true} // at once: nothing is the matter with it
	}
	w.o.notify(&h.m, h.err)
	v := verdict{reason: reasonText(h.err), delay: -1}
	var own *retryAfterError
	switch {
	case errors.As(h.err, &own):
		v.delay = boundDelay(own.delay)
	case w.o.nackDelay != nil:
		if d := w.o.nackDelay(&h.m, h.err); d >= 0 {
			v.delay = boundDelay(d)
		}
	}
	return v
}

func receipts(batch []*held) []string {
	out := make([]string, len(batch))
	for i, h := range batch {
		out[i] = h.m.Receipt
	}
	return out
}

// tell sends the outcome of records, again while the server is away and their leases may live. A repetition is harmless: what was acked is acked, and
// what was nacked counts as lost at worst.
func (w *Worker) tell(ctx context.Context, batch []*held, send func(context.Context, []string) ([]SettleResult, error), count func(*WorkerStats)) {
	if len(batch) == 0 {
		return
	}
	pacer := newOutage(w.o.outage, min(w.o.visibility/6, longestPause), w.o.maxRetryAfter) // several attempts in the life of a lease
	pacer.reached = true
	defer w.setMute(false)
	for {
		results, err := send(ctx, receipts(batch))
		w.settled(batch[:len(results)], results, count)
		batch = batch[len(results):]
		if err == nil || len(batch) == 0 {
			return
		}
		pause, again := pacer.next(err)
		if again && ctx.Err() == nil {
			w.o.notify(nil, err)
			w.setMute(true)
			if batch = w.alive(batch, time.Now().Add(pause)); len(batch) == 0 {
				return
			}
			pass(ctx, pause) // at its end the next attempt fails at once
			continue
		}
		w.unsettled(batch)
		w.drain(err)
		return
	}
}

// setMute says whether the server can be told what became of records. Leasing rests meanwhile: what it would bring could not be settled either.
func (w *Worker) setMute(mute bool) {
	w.mu.Lock()
	changed := w.mu.mute != mute
	w.mu.mute = mute
	w.mu.Unlock()
	if changed {
		w.signal()
	}
}

// alive gives those of batch whose leases may still live at t. The others are left to be delivered again.
func (w *Worker) alive(batch []*held, t time.Time) []*held {
	var living, dead []*held
	w.mu.Lock()
	for _, h := range batch {
		if h.deadline.After(t) {
			living = append(living, h)
		} else {
			dead = append(dead, h)
		}
	}
	w.mu.Unlock()
	w.unsettled(dead)
	return living
}

// unsettled gives up on records.
func (w *Worker) unsettled(batch []*held) {
	if len(batch) == 0 {
		return
	}
	w.mu.Lock()
	w.mu.settling -= len(batch)
	for _, h := range batch {
		h.state = heldGone
		delete(w.mu.held, h.m.Receipt)
		w.mu.stats.Unsettled++
	}
	w.mu.Unlock()
	w.signal()
}

// settled takes the server's answer, a result for each of batch.
func (w *Worker) settled(batch []*held, results []SettleResult, count func(*WorkerStats)) {
	if len(batch) == 0 {
		return
	}
	type trouble struct {
		h   *held
		err error
	}
	var troubles []trouble
	w.mu.Lock()
	w.mu.settling -= len(batch)
	for i, h := range batch {
		h.state = heldGone
		delete(w.mu.held, h.m.Receipt)
		if results[i].Code == "" {
			count(&w.mu.stats)
			continue
		}
		w.mu.stats.Lost++
		troubles = append(troubles, trouble{h, results[i].Err()})
	}
	w.mu.Unlock()
	for _, t := range troubles {
		w.o.notify(&t.h.m, t.err)
	}
	w.signal()
}

// extender keeps the leases of what waits and runs alive: it looks six times in a visibility, and extends what has less than two thirds left.
func (w *Worker) extender(ctx context.Context) {
	ticker := time.NewTicker(max(w.o.visibility/6, 10*time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			w.extend(ctx)
		}
	}
}

func (w *Worker) extend(ctx context.Context) {
	now := time.Now()
	var batch []*held
	w.mu.Lock()
	for _, h := range w.mu.held {
		if (h.state == heldWaiting || h.state == heldRunning) && h.sure.Sub(now) < w.o.visibility*2/3 {
			batch = append(batch, h)
		}
	}
	w.mu.Unlock()
	if len(batch) == 0 {
		return
	}
	// An answer that is long in coming must not hold up the next attempt until the leases are gone.
	ctx, cancel := context.WithTimeout(ctx, w.o.visibility/3)
	defer cancel()
	results, err := w.queue.Extend(ctx, receipts(batch), w.o.visibility)
	for i, h := range batch {
		switch {
		case i >= len(results):
		case results[i].Code != "":
			w.lost(h)
		default:
			w.extended(h, now.Add(w.o.visibility))
		}
	}
	if err != nil && ctx.Err() == nil {
		w.o.notify(nil, err)
	}
}

func (w *Worker) extended(h *held, deadline time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h.state == heldWaiting || h.state == heldRunning {
		h.deadline, h.sure = deadline, deadline
		h.expire.Reset(time.Until(deadline))
	}
}
