package client

import (
	"context"
	"fmt"
	"slices"
)

// Batch is what Poll has of one partition: records in order, of which none was handed out before in this ownership.
type Batch struct {
	Topic     string
	Partition int32
	Records   []*GroupRecord
	ctx       context.Context
}

// Context ends when the partition is lost (ErrPartitionLost) or given up (ErrPartitionRevoked, ErrConsumerClosed); the cause says which. Nothing of the
// batch can be committed from then on.
func (b *Batch) Context() context.Context { return b.ctx }

// Poll gives what has been read ahead, up to WithConsumerPollRecords records, and waits until there is something, or ctx ends (its error). The first
// Poll joins the group; the values of its ctx are those of the batches' contexts. Partitions take turns.
//
// What a Poll has given is the caller's to do and to Mark, in any order. Records that are never marked are never committed, and hold up the partition
// when the window is full (WithConsumerWindow). When a partition is revoked, the consumer waits for marks as long as WithConsumerGrace says, and then
// lets it go without them; when the consumer is closed it does not wait. What was marked behind a record that was not comes again then, and is
// counted (ConsumerStats.Repeats). An error that is not that of ctx is final: the consumer ends by itself, and Close says what could not be committed.
func (c *Consumer) Poll(ctx context.Context) ([]Batch, error) {
	if err := c.start(ctx, true, OrderByPartition, 1); err != nil {
		return nil, err
	}
	for {
		c.mu.Lock()
		c.lapseLocked()
		var batches []Batch
		if c.mu.phase == phaseRunning {
			batches = c.handOutLocked()
		}
		phase, failure, news := c.mu.phase, c.mu.failure, c.mu.news
		c.mu.Unlock()
		switch {
		case len(batches) > 0:
			return batches, nil
		case failure != nil:
			return nil, failure
		case phase != phaseRunning:
			return nil, fmt.Errorf("poll group %s: %w", c.group, ErrConsumerClosed)
		}
		select {
		case <-news:
		case <-c.ending:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// handOutLocked takes up to a poll's records from the partitions, beginning with another one each time.
func (c *Consumer) handOutLocked() (batches []Batch) {
	left := c.o.pollRecords
	order := sortedPartitions(c.mu.owned)
	for i := range order {
		if left == 0 {
			break
		}
		p := c.mu.owned[order[(i+c.mu.turn)%len(order)]]
		n := min(left, len(p.queue))
		if n == 0 {
			continue
		}
		batches = append(batches, Batch{Topic: p.at.Topic, Partition: p.at.Partition, Records: slices.Clone(p.queue[:n]), ctx: p.ctx})
		clear(p.queue[:n])
		p.queue = p.queue[n:]
		p.handling += n
		left -= n
	}
	c.mu.turn++
	return batches
}

// Mark says that records of Poll are done. They are committed with the next commit, as far as all before them are done as well. What belongs to a
// partition that is not the consumer's any more is passed over.
func (c *Consumer) Mark(records ...*GroupRecord) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range records {
		if r.of == nil || !c.doneLocked(r) {
			continue
		}
		r.of.handling = max(0, r.of.handling-1)
		c.quietLocked(r.of)
	}
}

// Commit commits what is done or marked now, and returns when it is durable: ErrPartitionLost when some of it cannot be committed any more, because
// others have the partition. It is tried until ctx ends.
func (c *Consumer) Commit(ctx context.Context) error {
	c.mu.Lock()
	partitions := make([]*ownedPartition, 0, len(c.mu.owned))
	for _, at := range sortedPartitions(c.mu.owned) {
		partitions = append(partitions, c.mu.owned[at])
	}
	c.mu.Unlock()
	if err := c.flush(ctx, partitions); err != nil {
		return fmt.Errorf("commit to group %s: %w", c.group, err)
	}
	return nil
}
