package bench

import (
	"fmt"
	"math/bits"
	"sync/atomic"

	"github.com/forebaymq/forebay/client"
)

// Settled says what became of the records of a work queue, as the consumer saw it. Whole, when Faults is empty.
type Settled struct {
	Expected   int64    `json:"expected"`   // records of the range
	Delivered  int64    `json:"delivered"`  // of those, at least once
	Settled    int64    `json:"settled"`    // of those, acknowledged
	Duplicates int64    `json:"duplicates"` // deliveries beyond the first of a record
	LostAcks   int64    `json:"lostAcks"`   // acks that came when the lease was gone
	Faults     []string `json:"faults"`     // what must never be
}

// ledger keeps a bit a record for delivery, and one for settlement. It is safe for concurrent use.
type ledger struct {
	partitions []ledgerPartition

	duplicates, lostAcks, settledTwice, outside, settled atomic.Int64
}

type ledgerPartition struct {
	from, to           int64 // [from, to)
	delivered, settled []atomic.Uint64
}

func newLedger(infos []client.PartitionInfo) *ledger {
	l := &ledger{partitions: make([]ledgerPartition, len(infos))}
	for i, info := range infos {
		words := (info.Head - info.LogStart + 63) / 64
		l.partitions[i] = ledgerPartition{info.LogStart, info.Head, make([]atomic.Uint64, words), make([]atomic.Uint64, words)}
	}
	return l
}

func (l *ledger) expected() (n int64) {
	for i := range l.partitions {
		n += l.partitions[i].to - l.partitions[i].from
	}
	return n
}

// at gives the place of a record, or nil where it does not belong to the range.
func (l *ledger) at(partition int32, offset int64) (p *ledgerPartition, word int64, bit uint64) {
	if partition < 0 || int(partition) >= len(l.partitions) {
		return nil, 0, 0
	}
	p = &l.partitions[partition]
	if offset < p.from || offset >= p.to {
		return nil, 0, 0
	}
	i := offset - p.from
	return p, i / 64, 1 << (i % 64)
}

func (l *ledger) deliver(partition int32, offset int64) {
	p, word, bit := l.at(partition, offset)
	switch {
	case p == nil:
		l.outside.Add(1)
	case p.delivered[word].Or(bit)&bit != 0:
		l.duplicates.Add(1)
	}
}

func (l *ledger) settle(partition int32, offset int64) {
	p, word, bit := l.at(partition, offset)
	switch {
	case p == nil: // counted when it was delivered
	case p.settled[word].Or(bit)&bit != 0:
		l.settledTwice.Add(1)
	default:
		l.settled.Add(1)
	}
}

func count(words []atomic.Uint64) (n int64) {
	for i := range words {
		n += int64(bits.OnesCount64(words[i].Load()))
	}
	return n
}

// judge compares the ledger with what the server says, when nobody acks any more. complete says that everything was to be settled.
func (l *ledger) judge(server []client.SubscriptionPartition, complete bool) Settled {
	s := Settled{Expected: l.expected(), Duplicates: l.duplicates.Load(), LostAcks: l.lostAcks.Load(), Faults: []string{}}
	fault := func(format string, args ...any) { s.Faults = append(s.Faults, fmt.Sprintf(format, args...)) }
	if n := l.outside.Load(); n > 0 {
		fault("%d deliveries of records that are not in the range: is somebody else writing to the topic?", n)
	}
	if n := l.settledTwice.Load(); n > 0 {
		fault("%d records were settled twice", n)
	}
	seen := map[int32]*client.SubscriptionPartition{}
	for i := range server {
		seen[server[i].Partition] = &server[i]
	}
	for i := range l.partitions {
		p := &l.partitions[i]
		settled := count(p.settled)
		s.Delivered += count(p.delivered)
		s.Settled += settled
		if p.to == p.from {
			continue
		}
		there := seen[int32(i)]
		if there == nil {
			fault("partition %d is missing in the server's statistics", i)
			continue
		}
		if by := there.Frontier - p.from + there.AckedAhead; by != settled {
			fault("partition %d: the server counts %d records settled, the consumer %d", i, by, settled)
		}
		if offset, ok := p.firstUnsettled(there.Frontier); ok {
			fault("partition %d: the frontier %d has passed record %d, which nobody acknowledged", i, there.Frontier, offset)
		}
		if complete && (there.Frontier != p.to || there.InFlight != 0 || there.Lag != 0) {
			fault("partition %d: frontier %d, lag %d, %d in flight at the end; the head is %d", i, there.Frontier, there.Lag, there.InFlight, p.to)
		}
	}
	if complete && s.Settled != s.Expected {
		fault("%d of %d records were settled", s.Settled, s.Expected)
	}
	return s
}

// firstUnsettled finds the first record before an offset that was not settled.
func (p *ledgerPartition) firstUnsettled(before int64) (int64, bool) {
	for i := range p.settled {
		open := ^p.settled[i].Load()
		if open == 0 {
			continue
		}
		offset := p.from + int64(i)*64 + int64(bits.TrailingZeros64(open))
		return offset, offset < min(before, p.to)
	}
	return 0, false
}
