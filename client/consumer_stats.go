package client

// ConsumerStats counts what a Consumer has done since it was made.
type ConsumerStats struct {
	State          string // "idle", "joining", "stable", "revoking" (something is to be let go), "rejoining", "draining" or "closed"
	Generation     int64  // 0 = none yet
	Partitions     int    // owned now
	Read           int64  // records read
	Bytes          int64  // of keys, values and headers of records read
	Records        int64  // done: handled, marked or skipped
	Skipped        int64  // of them skipped after a failure
	Repeats        int64  // of them not known to be committed when their partition was let go or lost: they will be handled again
	Failures       int64  // of handlers, each attempt
	Commits        int64  // requests that succeeded
	CommitFailures int64  // requests that did not
	Rebalances     int64  // generations that the consumer has heard of
	Lost           int64  // partitions that were lost
	Lapses         int64  // sessions that have lapsed
	Gaps           int64  // gaps that were passed by decision
	GapRecords     int64  // offsets in them
	Buffered       int64  // bytes read and not handled yet
	Lag            int64  // records that are there and not done, of the partitions owned, as of their last reads
}

// Stats gives the counts and the present state. It costs little.
func (c *Consumer) Stats() ConsumerStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.mu.stats
	s.State, s.Generation, s.Partitions = c.stateLocked(), c.mu.generation, len(c.mu.owned)
	for _, p := range c.mu.owned {
		s.Buffered += p.buffered
		s.Lag += p.lagLocked()
	}
	return s
}

func (c *Consumer) stateLocked() string {
	switch {
	case c.mu.phase == phaseIdle:
		return "idle"
	case c.mu.phase == phaseDraining:
		return "draining"
	case c.mu.phase == phaseClosed:
		return "closed"
	case c.mu.member == memberNone:
		return "joining"
	case c.mu.member == memberRejoining:
		return "rejoining"
	}
	for _, p := range c.mu.owned {
		if p.state == partitionReleasing {
			return "revoking"
		}
	}
	return "stable"
}

func (p *ownedPartition) lagLocked() int64 {
	if p.head < 0 {
		return 0
	}
	return max(0, p.head-p.window.prefix())
}

// ConsumerPartition is where a Consumer is on a partition that it owns.
type ConsumerPartition struct {
	Topic     string
	Partition int32
	Done      int64 // the offset below which everything is done
	Committed int64 // the offset that is known to be committed
	Head      int64 // as of the last read; -1 = nothing was read yet
	Lag       int64 // records that are there and not done, as of the last read; holes counted
	Revoked   bool  // it is being finished, to go to another member
}

// Partitions lists what the consumer owns, by topic and partition.
func (c *Consumer) Partitions() []ConsumerPartition {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]ConsumerPartition, 0, len(c.mu.owned))
	for _, at := range sortedPartitions(c.mu.owned) {
		p := c.mu.owned[at]
		out = append(out, ConsumerPartition{at.Topic, at.Partition, p.window.prefix(), p.committed, p.head, p.lagLocked(), p.state == partitionReleasing})
	}
	return out
}
