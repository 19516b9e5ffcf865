package leases

import (
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/leases/store"
	"github.com/forebaymq/forebay/metadata"
)

// none stands for an offset that is not there.
const none int64 = -1

// partitionCounts computes what the numbers of one shard and its partition say without the time of any record. oldest is the offset of the
// oldest record that waits for settlement, poison included and delayed ones not; eldest is the same with the delayed ones. Both are none when
// there is no such record.
func partitionCounts(s *store.ShardStats, info metadata.PartitionInfo, policy api.GapPolicy) (p PartitionStats, oldest, eldest int64) {
	p = PartitionStats{
		Partition: s.Partition, Frontier: s.Frontier, Head: info.Head, LogStart: info.LogStart,
		InFlight: max(s.InFlight, 0), AckedAhead: max(s.AckedAhead, 0), Owed: max(s.Owed, 0), Delayed: max(s.Delayed, 0), Waiting: max(s.Waiting, 0),
		DeadLetters: max(s.DeadLetters, 0), Skipped: max(s.Skipped, 0),
	}
	// What is not settled is new, leased, owed or behind its key, wherever the frontier is: a redriven record is below it. Redis and the log
	// are read one after the other, so the cursor may be ahead of the head that was read before.
	fresh := max(s.Cursor, info.LogStart)
	p.Lag = max(info.Head-fresh, 0) + p.InFlight + p.Owed + p.Waiting
	if s.Frontier < info.LogStart && policy != api.GapSkip {
		p.Gap = &Gap{From: s.Frontier, To: info.LogStart}
	}
	oldest = none
	if s.OldestOffset >= 0 && s.OldestOffset < s.Cursor {
		oldest = max(s.OldestOffset, info.LogStart)
	}
	if fresh < info.Head && (oldest == none || fresh < oldest) {
		oldest = fresh
	}
	if oldest >= info.Head {
		oldest = none
	}
	eldest = oldest
	if d := s.OldestDelayed; d >= info.LogStart && d < info.Head && (eldest == none || d < eldest) {
		eldest = d
	}
	return p, oldest, eldest
}

// setAge sets OldestUnackedAge from the append time of the oldest record that waits (Unix ms).
func (p *PartitionStats) setAge(appended, now int64) {
	p.OldestUnackedAge = max(time.Duration(now-appended)*time.Millisecond, 0)
}

// setHeadroom sets RetentionHeadroom from the append time of the eldest record that is not settled (Unix ms). Retention by bytes depends on
// what is yet to come and is not foretold.
func (p *PartitionStats) setHeadroom(appended, now int64, c api.TopicConfig) {
	if !c.Cleanup.Deletes() || c.RetentionTime <= 0 {
		return
	}
	left := max(time.Duration(appended-now)*time.Millisecond+c.RetentionTime, 0)
	p.RetentionHeadroom = &left
}

// journalStats gives the numbers of a shard that is not in Redis from what the journal knows: nothing is leased, and what was handed out and not
// settled is owed. shard is nil when the shard was never opened; then it stands at start.
func journalStats(partition int32, shard *journal.Shard, pointers map[int64]journal.Pointer, start int64) store.ShardStats {
	s := store.ShardStats{Partition: partition, Frontier: start, Cursor: start, OldestOffset: none, OldestDelayed: none}
	if shard != nil {
		s.Frontier, s.Cursor, s.Skipped = shard.Frontier, shard.Frontier, shard.Skipped
		for _, r := range shard.Settled {
			s.AckedAhead += r.To - r.From
			s.Cursor = max(s.Cursor, r.To)
		}
	}
	below, above := int64(0), int64(0) // retries below the frontier, and copies that hold it back
	for offset, p := range pointers {
		unsettled := p.Kind == journal.Retry || p.Kind == journal.Dead && p.CopyPending
		if unsettled {
			s.Cursor = max(s.Cursor, offset+1)
			s.OldestOffset = lowest(s.OldestOffset, offset)
		}
		switch {
		case p.Kind == journal.Scheduled:
			s.Delayed++
			s.OldestDelayed = lowest(s.OldestDelayed, offset)
		case p.Kind == journal.Dead:
			s.DeadLetters++
			if p.CopyPending && offset >= s.Frontier {
				above++
			}
		case p.Kind == journal.Retry && offset < s.Frontier:
			below++
		}
	}
	// From the frontier to the cursor everything is settled (the ranges hold what was set aside as well), waits for its copy, or is to be
	// delivered again.
	s.Owed = max(s.Cursor-s.Frontier-s.AckedAhead-above, 0) + below
	if s.Cursor > s.Frontier {
		s.OldestOffset = lowest(s.OldestOffset, s.Frontier) // the lowest offset that is not settled, by definition
	}
	return s
}

// lowest gives the lower of two offsets, of which the first may be none.
func lowest(a, b int64) int64 {
	if a == none || b < a {
		return b
	}
	return a
}
