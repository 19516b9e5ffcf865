package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// span is a run of consecutive offsets of one lease in a request, and the receipts that asked for it.
type span struct {
	partition    int   // index into partitions
	start, count int64 // for Schedule: count is when it is due
	nonce        string
	first        int // of the receipts, in request order; -1: see at
}

// plan is a request as the script takes it.
type plan struct {
	partitions []int32
	spans      []span
	at         []int // where spans with first < 0 write: the receipts' indexes, in the order of spans and offsets
	doubles    []int // receipts that repeat another one
	doubleOf   []int
}

func (p *plan) partition(n int32) int {
	for i, have := range p.partitions {
		if have == n {
			return i
		}
	}
	p.partitions = append(p.partitions, n)
	return len(p.partitions) - 1
}

// coalesce makes runs of receipts. Most requests name the records of a lease in order; others are sorted first, and what is named twice is
// sent once.
func coalesce(rs []Receipt) *plan {
	p := &plan{}
	sorted := true
	for i := range rs {
		r := &rs[i]
		if i > 0 && r.Nonce == rs[i-1].Nonce && r.Partition == rs[i-1].Partition {
			if last := &p.spans[len(p.spans)-1]; r.Offset == last.start+last.count {
				last.count++
				continue
			}
		}
		for _, s := range p.spans {
			if s.nonce == r.Nonce { // the same lease again: holes, disorder or repetition
				sorted = false
				break
			}
		}
		if !sorted || len(p.spans) > 64 {
			sorted = false
			break
		}
		p.spans = append(p.spans, span{p.partition(r.Partition), r.Offset, 1, r.Nonce, i})
	}
	if sorted {
		return p
	}
	return coalesceSorted(rs)
}

func coalesceSorted(rs []Receipt) *plan {
	p := &plan{at: make([]int, len(rs))}
	for i := range p.at {
		p.at[i] = i
	}
	slices.SortStableFunc(p.at, func(a, b int) int {
		x, y := &rs[a], &rs[b]
		if x.Partition != y.Partition {
			return int(x.Partition) - int(y.Partition)
		}
		if c := strings.Compare(x.Nonce, y.Nonce); c != 0 {
			return c
		}
		switch {
		case x.Offset < y.Offset:
			return -1
		case x.Offset > y.Offset:
			return 1
		}
		return 0
	})
	kept := p.at[:0]
	index := map[int32]int{}
	for _, i := range p.at {
		r := &rs[i]
		if len(kept) > 0 {
			last := kept[len(kept)-1]
			if rs[last] == *r {
				p.doubles, p.doubleOf = append(p.doubles, i), append(p.doubleOf, last)
				continue
			}
			if s := &p.spans[len(p.spans)-1]; rs[last].Nonce == r.Nonce && rs[last].Partition == r.Partition && s.start+s.count == r.Offset {
				s.count++
				kept = append(kept, i)
				continue
			}
		}
		k, ok := index[r.Partition]
		if !ok {
			k = len(p.partitions)
			index[r.Partition] = k
			p.partitions = append(p.partitions, r.Partition)
		}
		p.spans = append(p.spans, span{k, r.Offset, 1, r.Nonce, -1})
		kept = append(kept, i)
	}
	p.at = kept
	return p
}

// maxSpans is how many runs one script settles. Redis does nothing else meanwhile.
const maxSpans = 1000

// Settle applies op to leases. Receipts may come in any order and may repeat. Nothing happens when a partition of them is not loaded; an error of
// a request of more than a thousand runs may come when some are settled: repeating it is safe.
func (s *Store) Settle(ctx context.Context, q *Queue, op Op, receipts []Receipt, o SettleOptions) (*Settled, error) {
	if op < OpAck || op > OpSkip {
		return nil, fmt.Errorf("settle with operation %d", op)
	}
	if len(receipts) == 0 {
		return &Settled{Effects: Effects{NextDue: -1}}, nil
	}
	p := coalesce(receipts)
	reverse := op == OpRelease // the end of a run can go back to the cursor, so the last comes first
	var arg int64
	switch op {
	case OpNack:
		if arg = -1; o.Delay >= 0 {
			arg = ms(o.Delay)
		}
	case OpExtend:
		arg = ms(o.Visibility)
	}
	if reverse {
		slices.Reverse(p.spans)
	}
	out := &Settled{OK: make([]bool, len(receipts))}
	marks := make([]string, 0, len(p.spans))
	for at := 0; at < len(p.spans); at += maxSpans {
		spans := p.spans[at:min(len(p.spans), at+maxSpans)]
		rep, err := s.settle(ctx, q, op, arg, o.Reason, p.partitions, spans)
		if err != nil {
			return nil, err
		}
		e := rep.effects()
		out.Effects.add(&e)
		for i := range spans {
			mark := rep.word()
			if rep.err == nil && len(mark) != 1 && int64(len(mark)) != spans[i].count {
				rep.err = fmt.Errorf("%w: %d results for %d receipts", errReply, len(mark), spans[i].count)
			}
			marks = append(marks, mark)
		}
		if err := s.finished(scriptSettle, rep); err != nil {
			return nil, err
		}
	}
	if reverse {
		slices.Reverse(p.spans)
		slices.Reverse(marks)
	}
	sent := 0
	for i, sp := range p.spans {
		for j := range sp.count {
			mark := marks[i][0]
			if len(marks[i]) > 1 {
				mark = marks[i][j]
			}
			if sp.first >= 0 {
				out.OK[sp.first+int(j)] = mark == '1'
			} else {
				out.OK[p.at[sent]] = mark == '1'
				sent++
			}
		}
	}
	for i, d := range p.doubles {
		out.OK[d] = out.OK[p.doubleOf[i]]
	}
	if op == OpExtend {
		out.Expires = make([]int64, len(receipts))
		for i, ok := range out.OK {
			if ok {
				out.Expires[i] = out.Now + arg
			}
		}
	}
	return out, nil
}

func (s *Store) settle(ctx context.Context, q *Queue, op Op, arg int64, reason string, partitions []int32, spans []span) (*reply, error) {
	backoff := "0 0 1 0 1"
	if op == OpNack && arg < 0 {
		seed, err := s.nonces.seed()
		if err != nil {
			return nil, fmt.Errorf("draw the jitter: %w", err)
		}
		jitter := 0
		if q.Backoff.Jitter {
			jitter = 1
		}
		backoff = fmt.Sprintf("%d %d %g %d %d", ms(q.Backoff.Initial), ms(q.Backoff.Max), max(q.Backoff.Multiplier, 1), jitter, seed)
	}
	args := make([]any, 0, 6+len(partitions)+4*len(spans))
	args = append(args, int(op), arg, packReason(reason), backoff, len(partitions))
	for _, n := range partitions {
		args = append(args, n)
	}
	args = append(args, len(spans))
	for i := range spans {
		args = append(args, spans[i].partition+1, spans[i].start, spans[i].count, spans[i].nonce)
	}
	return s.run(ctx, scriptSettle, q, args...)
}

// opSchedule is the operation of Schedule, in the script alone.
const opSchedule Op = 6

// Schedule sets leased records aside until they are due. The frontier passes them and their attempt is not counted. Receipts that are not live are
// passed over.
func (s *Store) Schedule(ctx context.Context, q *Queue, rs []ScheduleRequest) (*Effects, error) {
	p := &plan{}
	for i, r := range rs {
		p.spans = append(p.spans, span{p.partition(r.Receipt.Partition), r.Receipt.Offset, r.Due, r.Receipt.Nonce, i})
	}
	if len(rs) == 0 {
		return &Effects{NextDue: -1}, nil
	}
	rep, err := s.settle(ctx, q, opSchedule, 0, "", p.partitions, p.spans)
	if err != nil {
		return nil, err
	}
	e := rep.effects()
	for range p.spans {
		rep.word()
	}
	return &e, s.finished(scriptSettle, rep)
}
