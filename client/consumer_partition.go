package client

import (
	"context"
	"fmt"
	"time"
)

// partitionState is how far a consumer is with a partition:
//
//	beginning  OnAssigned is called, or handlers of an earlier ownership have not returned. -> reading, releasing, over
//	reading    records are read and handled. -> releasing when it is revoked or the consumer ends; -> over when it is lost
//	releasing  nothing is read any more. Handlers go on until every record before the last one that was begun is done, so that all that is done can be
//	           committed; nothing after that one is begun. What is done is committed, and OnRevoked is called. -> over, and let go by the next heartbeat
//	over       not the consumer's any more
type partitionState uint8

const (
	partitionBeginning partitionState = iota
	partitionReading
	partitionReleasing
	partitionOver
)

// ownedPartition is one ownership of one partition. One that comes back is another ownership. Guarded by Consumer.mu but for the channels and contexts.
type ownedPartition struct {
	at        TopicPartition
	topicID   string
	after     <-chan struct{} // closed when handlers of an earlier ownership have returned; nil = there are none
	ctx       context.Context // of handlers
	end       context.CancelCauseFunc
	reading   context.Context // of reads
	endRead   context.CancelFunc
	begun     chan struct{} // closed when OnAssigned has returned
	quiet     chan struct{} // closed when nothing is being handled and nothing will be
	finished  chan struct{} // closed when it is over
	room      chan struct{} // there may be room to read
	state     partitionState
	isQuiet   bool
	window    consumerWindow
	committed int64     // the server has answered that it has this
	attempted int64     // the highest offset that was sent
	unsure    time.Time // until then an earlier commit, whose outcome is unknown, may still come into effect
	again     bool      // it is to be committed again, for that reason
	againAt   time.Time // and the next time
	acks      int       // commits that have succeeded
	head      int64     // of the last read, -1 = none yet
	handling  int       // records in handlers, or handed out by Poll and not marked
	started   uint64    // the place in the window behind the last record that was begun
	kept      uint64    // the place in the window behind the last one whose commit was answered
	tried     uint64    // and sent, that of attempted
	buffered  int64     // bytes of answers of which not all records are done

	lanes   map[string]*consumerLane // by key: what waits for the record before it
	waiting []*consumerLane          // lanes whose first record may be handled, in turn
	listed  bool                     // in Consumer.mu.ready
	queue   []*GroupRecord           // for Poll
}

// addLocked makes an ownership.
func (c *Consumer) addLocked(at TopicPartition, topicID string, offset int64) *ownedPartition {
	p := &ownedPartition{
		at: at, topicID: topicID, begun: make(chan struct{}), quiet: make(chan struct{}), finished: make(chan struct{}), room: make(chan struct{}, 1),
		committed: offset, attempted: offset, head: -1, lanes: map[string]*consumerLane{},
	}
	p.window.next = offset
	p.ctx, p.end = context.WithCancelCause(c.base)
	p.reading, p.endRead = context.WithCancel(p.ctx)
	if before := c.mu.lingering[at]; before != nil {
		p.after = before.quiet
	}
	c.mu.owned[at] = p
	return p
}

// another says whether a topic is not the one that the partition is of, for all its name. "" = a server that does not tell.
func (p *ownedPartition) another(topicID string) bool {
	return p.topicID != topicID && p.topicID != "" && topicID != ""
}

// beginLocked calls OnAssigned and then begins to read.
func (c *Consumer) beginLocked(added []*ownedPartition) {
	c.shareLocked()
	c.callLocked(func() {
		if c.o.onAssigned != nil {
			list := make([]GroupOffset, len(added))
			for i, p := range added {
				list[i] = GroupOffset{Topic: p.at.Topic, Partition: p.at.Partition, Offset: p.committed}
			}
			c.o.onAssigned(list)
		}
		for _, p := range added {
			close(p.begun)
			c.background.Go(func() { c.fetch(p) })
		}
	})
}

// releaseLocked begins to give a partition up: to another member, or because the consumer ends (the cause for handlers that take too long).
func (c *Consumer) releaseLocked(p *ownedPartition, cause error) {
	if p.state >= partitionReleasing {
		return
	}
	p.state = partitionReleasing
	p.endRead()
	p.queue = nil
	c.trimLocked(p, p.started)
	c.quietLocked(p)
	c.background.Go(func() { c.finish(p, cause) })
}

// stopLocked ends reading, and forgets what has not been begun.
func (c *Consumer) stopLocked(p *ownedPartition) {
	p.endRead()
	p.lanes, p.waiting, p.queue = nil, nil, nil
	c.quietLocked(p)
}

// repeatsLocked counts the records that are done and not known to be committed: who has the partition next gets them again.
func (p *ownedPartition) repeatsLocked() int64 {
	return int64(p.window.first-p.kept) + int64(p.window.len()-p.window.open)
}

// quietLocked notices when a partition that has stopped has nothing in handlers any more.
func (c *Consumer) quietLocked(p *ownedPartition) {
	if p.state < partitionReleasing || p.isQuiet || p.handling > 0 || len(p.waiting) > 0 {
		return
	}
	p.isQuiet = true
	close(p.quiet)
	if c.mu.lingering[p.at] == p {
		delete(c.mu.lingering, p.at)
	}
}

// overLocked ends an ownership.
func (c *Consumer) overLocked(p *ownedPartition) {
	p.state = partitionOver
	delete(c.mu.owned, p.at)
	c.shareLocked()
	c.tellLocked()
}

// loseLocked ends an ownership at once: nothing can be committed for it any more.
func (c *Consumer) loseLocked(p *ownedPartition) {
	if p.state == partitionOver {
		return
	}
	releasing := p.state == partitionReleasing
	c.mu.stats.Repeats += p.repeatsLocked()
	c.overLocked(p)
	p.end(ErrPartitionLost)
	if c.mu.pull {
		p.handling = 0 // whoever has its records can see that their context has ended
	}
	if p.handling > 0 {
		c.mu.lingering[p.at] = p
	}
	c.stopLocked(p)
	c.mu.stats.Lost++
	c.callLocked(func() {
		if c.o.onLost != nil {
			c.o.onLost([]TopicPartition{p.at})
		}
		if !releasing { // else finish does it
			close(p.finished)
		}
	})
}

// finish brings a partition that is given up to its end.
func (c *Consumer) finish(p *ownedPartition, cause error) {
	defer close(p.finished)
	timer := time.NewTimer(c.o.grace)
	defer timer.Stop()
	cut := false
	select {
	case <-p.quiet:
	case <-c.closing: // the caller of Close has marked what he has to mark
	case <-timer.C:
		cut = true
	}
	c.mu.Lock()
	p.end(cause)
	if c.mu.pull {
		p.handling, cut = 0, false
	}
	c.stopLocked(p)
	c.mu.Unlock()
	<-p.quiet
	ctx, cancel := context.WithTimeout(c.base, 3*c.commitTimeout())
	err := c.flush(ctx, []*ownedPartition{p})
	cancel()
	called := make(chan struct{})
	c.mu.Lock()
	repeats, failed := p.repeatsLocked(), c.mu.failure != nil
	switch {
	case err != nil:
		err, failed = fmt.Errorf("commit %s partition %d: %w", p.at.Topic, p.at.Partition, err), false
	case p.state != partitionOver && (repeats > 0 || cut && p.window.first < p.started):
		err = &UnfinishedError{p.at.Topic, p.at.Partition, p.window.prefix(), repeats}
	}
	if err != nil && cause == ErrConsumerClosed && c.mu.unfinished == nil && !failed {
		c.mu.unfinished = err
	}
	returned := c.mu.unfinished == err
	if p.state != partitionOver { // else that was counted when it was lost
		c.mu.stats.Repeats += repeats
	}
	if p.state == partitionOver {
		close(called) // it was lost, and OnLost says so
	} else {
		c.callLocked(func() {
			defer close(called)
			if c.o.onRevoked != nil {
				c.o.onRevoked([]TopicPartition{p.at})
			}
		})
	}
	c.mu.Unlock()
	if err != nil && !returned {
		c.notify(err)
	}
	<-called
	c.mu.Lock()
	if p.state != partitionOver {
		c.overLocked(p)
	}
	c.mu.Unlock()
	consumerNudge(c.beat) // which lets it go
}

// callLocked asks for a callback, after those that were asked for before.
func (c *Consumer) callLocked(f func()) {
	c.mu.queue = append(c.mu.queue, f)
	consumerNudge(c.calls)
}

// callLoop makes the callbacks, until it is told that no more will be asked for.
func (c *Consumer) callLoop(last <-chan struct{}) {
	for {
		c.mu.Lock()
		var f func()
		if len(c.mu.queue) > 0 {
			f = c.mu.queue[0]
			c.mu.queue = c.mu.queue[1:]
		}
		c.mu.Unlock()
		if f != nil {
			f()
			continue
		}
		select {
		case <-c.calls:
		case <-last:
			c.mu.Lock()
			empty := len(c.mu.queue) == 0
			c.mu.Unlock()
			if empty {
				return
			}
		}
	}
}
