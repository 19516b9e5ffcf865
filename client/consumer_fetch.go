package client

import (
	"errors"
	"fmt"
	"time"

	"github.com/forebaymq/forebay/api"
)

const (
	consumerReadBytes      = 1 << 20  // of one read, at most
	consumerLeastRead      = 16 << 10 // of one read, at least
	consumerWait           = 10 * time.Second
	consumerTurn           = 250 * time.Millisecond // of a read that waits while others wait for its slot
	consumerRecordOverhead = 200                    // bytes of memory of a record beside its contents
)

// fetch reads a partition, ahead of its handlers by its share of the buffer, until the partition is given up.
func (c *Consumer) fetch(p *ownedPartition) {
	if p.after != nil {
		select {
		case <-p.after:
		case <-p.reading.Done():
			return
		}
	}
	c.mu.Lock()
	if p.state == partitionBeginning {
		p.state = partitionReading
	}
	at := p.window.next
	c.mu.Unlock()
	var trouble readTrouble
	for {
		o, ok := c.awaitRoom(p)
		if !ok {
			return
		}
		o.Offset = at
		select {
		case c.slots <- struct{}{}:
		case <-p.reading.Done():
			return
		}
		begun := time.Now()
		result, err := c.c.Read(p.reading, p.at.Topic, int(p.at.Partition), o)
		<-c.slots
		if p.reading.Err() != nil {
			return
		}
		if err != nil {
			if at, ok = c.unread(p, at, err, &trouble); !ok {
				return
			}
			continue
		}
		trouble = readTrouble{}
		next := c.accept(p, at, result)
		if next == at && time.Since(begun) < o.Wait/2 {
			// The server did not wait, as one does that is about to end.
			if !consumerSleep(p.reading, 2*consumerFirstPause) {
				return
			}
		}
		at = next
	}
}

// awaitRoom waits until a partition may read more, and says how much. Each has the same share of the buffer, whatever the others do with theirs; what
// is asked for is at most half of it, so that the next half is there when the first is handled.
func (c *Consumer) awaitRoom(p *ownedPartition) (o ReadOptions, ok bool) {
	for p.reading.Err() == nil {
		c.mu.Lock()
		n := max(len(c.mu.owned), 1)
		share := c.o.buffer / int64(n)
		ask := min(max(share/2, consumerLeastRead), consumerReadBytes)
		free := p.buffered == 0 || p.buffered+ask <= share
		records := max(c.o.window/2, 1)
		free = free && p.window.len() <= c.o.window-records
		c.mu.Unlock()
		if free {
			o = ReadOptions{MaxBytes: ask, Limit: min(records, api.MaxReadRecords), Wait: consumerWait}
			if n > consumerSlots {
				o.Wait = consumerTurn
			}
			return o, true
		}
		select {
		case <-p.room:
		case <-p.reading.Done():
		}
	}
	return o, false
}

// shareLocked tells the partitions that their share has changed.
func (c *Consumer) shareLocked() {
	for _, p := range c.mu.owned {
		consumerNudge(p.room)
	}
}

// accept takes what was read from an offset on, and says where to go on.
func (c *Consumer) accept(p *ownedPartition, at int64, result *ReadResult) (next int64) {
	records := make([]GroupRecord, 0, len(result.Records))
	chunk := &readChunk{}
	next = max(at, result.NextOffset)
	for i := range result.Records {
		r := &result.Records[i]
		if r.Offset < at {
			continue
		}
		records = append(records, GroupRecord{Topic: p.at.Topic, Record: *r, of: p, chunk: chunk})
		chunk.bytes += int64(len(r.Key)+len(r.Value)+len(r.ID)) + consumerRecordOverhead
		for _, h := range r.Headers {
			chunk.bytes += int64(len(h.Name) + len(h.Value))
		}
		at = r.Offset + 1
	}
	next = max(min(next, max(result.Head, at)), at)
	chunk.open = len(records)

	c.mu.Lock()
	defer c.mu.Unlock()
	if p.state != partitionReading {
		return next
	}
	for i := range records {
		records[i].place = p.window.add(records[i].Offset)
	}
	p.window.reach(next)
	p.head = max(result.Head, next)
	if len(records) == 0 {
		return next
	}
	p.buffered += chunk.bytes
	c.mu.stats.Read += int64(len(records))
	c.mu.stats.Bytes += chunk.bytes - int64(len(records))*consumerRecordOverhead
	if c.mu.pull {
		for i := range records {
			p.queue = append(p.queue, &records[i])
		}
		c.tellLocked()
	} else {
		c.enterLocked(p, records)
	}
	return next
}

// readTrouble is how long reads of a partition have failed.
type readTrouble struct {
	since time.Time
	times int
}

// unread deals with a read that failed: it decides about a gap, or waits before the next attempt. false: there will be none.
func (c *Consumer) unread(p *ownedPartition, at int64, err error, trouble *readTrouble) (next int64, ok bool) {
	var e *Error
	coded := errors.As(err, &e) && e.Status != 0
	outOfRange := coded && e.Code == api.CodeOffsetOutOfRange
	if outOfRange && at < e.LogStart {
		return c.gap(p, at, e.LogStart)
	}
	if trouble.times++; trouble.times == 1 {
		trouble.since = time.Now()
	}
	// The topic may have been deleted, and perhaps created again: then the next heartbeat takes the partition away.
	soon := outOfRange || coded && (e.Code == api.CodeUnknownTopic || e.Code == api.CodeUnknownPartition)
	outcome, _ := Classify(err)
	lasting := coded && outcome != Retriable && time.Since(trouble.since) > max(c.policy.MaxElapsed, 2*c.o.session)
	if lasting || !soon && consumerFatal(err) {
		c.fail(fmt.Errorf("at offset %d: %w", at, err))
		return at, false
	}
	c.notify(err)
	if soon {
		consumerNudge(c.beat)
	}
	return at, consumerSleep(p.reading, consumerPause(trouble.times, consumerFirstPause, consumerReadPause, err))
}

// gap asks what to do about records that retention has deleted.
func (c *Consumer) gap(p *ownedPartition, from, to int64) (next int64, ok bool) {
	g := Gap{Topic: p.at.Topic, Partition: p.at.Partition, From: from, To: to}
	action := GapStop
	if c.o.onGap != nil {
		action = c.o.onGap(p.ctx, g)
	}
	if action != GapSkip {
		c.fail(&GapError{g})
		return from, false
	}
	c.mu.Lock()
	if p.state == partitionReading {
		p.window.reach(to)
		c.mu.stats.Gaps++
		c.mu.stats.GapRecords += to - from
	}
	c.mu.Unlock()
	consumerNudge(c.commit)
	return to, true
}
