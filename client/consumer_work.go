package client

import (
	"context"
	"errors"
	"runtime/debug"
	"slices"
)

// GroupRecord is a record that a Consumer read.
type GroupRecord struct {
	Topic string
	Record

	place uint64 // in the partition's window
	of    *ownedPartition
	chunk *readChunk
}

// readChunk is one answer: its records share memory, which is free when all are done.
type readChunk struct {
	bytes int64
	open  int
}

// consumerLane is a queue of records that are handled one after the other.
type consumerLane struct {
	key   string
	named bool // it is in the partition's map
	taken int  // of the queue: in a handler, or given up
	queue []*GroupRecord
}

// trim forgets the records at a place and behind it, but for those that a handler has.
func (l *consumerLane) trim(place uint64) {
	n := l.taken
	for n < len(l.queue) && l.queue[n].place < place {
		n++
	}
	clear(l.queue[n:])
	l.queue = l.queue[:n]
}

// trimLocked forgets what was not begun of a partition that is given up, from a place in the window on: it would be done in vain.
func (c *Consumer) trimLocked(p *ownedPartition, place uint64) {
	for _, l := range p.lanes {
		l.trim(place)
	}
	p.waiting = slices.DeleteFunc(p.waiting, func(l *consumerLane) bool {
		l.trim(place)
		return len(l.queue) == 0
	})
	if len(p.waiting) > 0 && !p.listed {
		p.listed = true
		c.mu.ready = append(c.mu.ready, p)
	}
	c.work.Broadcast()
}

// enterLocked puts records that were read into their lanes.
func (c *Consumer) enterLocked(p *ownedPartition, records []GroupRecord) {
	for i := range records {
		r := &records[i]
		var l *consumerLane
		switch {
		case c.mu.order == OrderByPartition:
			if l = p.lanes[""]; l == nil {
				l = &consumerLane{named: true}
				p.lanes[""] = l
			}
		case r.Key == nil:
			l = &consumerLane{}
		default:
			if l = p.lanes[string(r.Key)]; l == nil {
				l = &consumerLane{key: string(r.Key), named: true}
				p.lanes[l.key] = l
			}
		}
		l.queue = append(l.queue, r)
		if len(l.queue) == 1 {
			c.offerLocked(p, l)
		}
	}
}

// offerLocked says that the first record of a lane may be handled.
func (c *Consumer) offerLocked(p *ownedPartition, l *consumerLane) {
	p.waiting = append(p.waiting, l)
	if !p.listed {
		p.listed = true
		c.mu.ready = append(c.mu.ready, p)
	}
	c.work.Signal()
}

// takeLocked waits for something to handle: the first record of a lane, or the first ones. Partitions take turns, and so do the lanes of each. The
// lane keeps what is taken until it is done. When the consumer ends, only what its partitions are given up with is. nil: there will be nothing more.
func (c *Consumer) takeLocked() (*ownedPartition, *consumerLane, []*GroupRecord) {
	for {
		for len(c.mu.ready) == 0 && !c.mu.handled {
			c.work.Wait()
		}
		if c.mu.handled {
			return nil, nil, nil
		}
		c.lapseLocked()
		p := c.mu.ready[0]
		c.mu.ready = c.mu.ready[1:]
		p.listed = false
		if len(p.waiting) == 0 {
			continue // it was given up
		}
		if c.mu.phase != phaseRunning && p.state < partitionReleasing {
			continue // it is about to be, and comes again
		}
		l := p.waiting[0]
		p.waiting = p.waiting[1:]
		if len(p.waiting) > 0 {
			p.listed = true
			c.mu.ready = append(c.mu.ready, p)
		}
		n := min(c.mu.batch, len(l.queue))
		p.handling += n
		l.taken = n
		p.started = max(p.started, l.queue[n-1].place+1)
		return p, l, l.queue[:n:n]
	}
}

// worker handles records until the consumer ends.
func (c *Consumer) worker(handle consumerHandler) {
	over := false
	defer func() {
		if !over { // a handler has ended the goroutine. The others are to be finished
			c.workers.Go(func() { c.worker(handle) })
		}
	}()
	for {
		c.mu.Lock()
		p, l, records := c.takeLocked()
		c.mu.Unlock()
		if p == nil {
			over = true
			return
		}
		c.handleOne(p, l, records, handle)
	}
}

// handleOne has records handled, and notes what became of them, also where the handler ends its goroutine.
func (c *Consumer) handleOne(p *ownedPartition, l *consumerLane, records []*GroupRecord, handle consumerHandler) {
	err := errGoexit
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if err == errGoexit {
			err = consumerFailed(records, 1, err)
		}
		c.handledLocked(p, l, records, err)
	}()
	err = c.attempts(p, records, handle)
}

func consumerFailed(records []*GroupRecord, attempts int, err error) *HandlerError {
	return &HandlerError{records[0].Topic, records[0].Partition, records[0].Offset, attempts, err}
}

// protect calls the handler, and makes an error of a panic.
func (h consumerHandler) protect(ctx context.Context, records []*GroupRecord) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return h(ctx, records)
}

// errConsumerGaveUp says that records are not done, and that this is nobody's failure: their partition went away, or the consumer ends.
var errConsumerGaveUp = errors.New("given up")

// attempts has records handled until they are done (nil), failed (*HandlerError), or given up. An attempt that begins when the partition is being given up
// is the last one: what is behind the records may be done already, and is done in vain without them.
func (c *Consumer) attempts(p *ownedPartition, records []*GroupRecord, handle consumerHandler) error {
	for n := 1; ; n++ {
		last := p.reading.Err() != nil || consumerClosed(c.ending)
		err := handle.protect(p.ctx, records)
		switch {
		case err == nil:
			return nil
		case p.ctx.Err() != nil:
			return errConsumerGaveUp
		}
		c.mu.Lock()
		c.mu.stats.Failures++
		c.mu.Unlock()
		action := FailureStop
		if c.o.onFailure != nil {
			action = c.o.onFailure(p.ctx, records[0], err, n)
		}
		failed := consumerFailed(records, n, err)
		switch action {
		case FailureSkip:
			c.mu.Lock()
			c.mu.stats.Skipped += int64(len(records))
			c.mu.Unlock()
			return nil
		case FailureRetry:
			c.notify(failed)
			if last || !consumerSleep(p.ctx, consumerPause(n, c.o.retryInitial, c.o.retryMax, err), p.reading.Done(), c.ending) {
				return errConsumerGaveUp
			}
		default:
			return failed
		}
	}
}

func consumerClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// handledLocked notes what became of records, and lets those behind them come.
func (c *Consumer) handledLocked(p *ownedPartition, l *consumerLane, records []*GroupRecord, err error) {
	p.handling = max(0, p.handling-len(records))
	defer c.quietLocked(p)
	if err != nil {
		if failed, ok := errors.AsType[*HandlerError](err); ok && p.state != partitionOver {
			c.failLocked(failed)
		}
		if p.state != partitionOver {
			c.trimLocked(p, records[0].place)
		}
		return // the lane stands still
	}
	for _, r := range records {
		c.doneLocked(r)
	}
	if p.state == partitionOver || p.ctx.Err() != nil {
		return
	}
	clear(l.queue[:len(records)])
	l.queue, l.taken = l.queue[len(records):], 0
	switch {
	case len(l.queue) > 0:
		c.offerLocked(p, l)
	case l.named:
		delete(p.lanes, l.key)
	}
}

// doneLocked settles a record. What is done for a partition that was lost counts for nothing.
func (c *Consumer) doneLocked(r *GroupRecord) bool {
	p := r.of
	if p.state == partitionOver || !p.window.done(r.place) {
		return false
	}
	c.mu.stats.Records++
	if r.chunk.open--; r.chunk.open == 0 {
		p.buffered -= r.chunk.bytes
	}
	consumerNudge(p.room)
	if c.mu.since++; c.o.commitRecords > 0 && c.mu.since >= c.o.commitRecords {
		c.mu.since = 0
		consumerNudge(c.commit)
	}
	return true
}
