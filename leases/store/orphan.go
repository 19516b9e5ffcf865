package store

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// orphan is a lease call whose outcome is not known: what it was granted, nobody will ever ack.
type orphan struct {
	q     *Queue
	nonce string
	until time.Time // then it has lapsed anyway
}

// orphanRetry is the pause before Redis is asked again what an orphan got.
const orphanRetry = 500 * time.Millisecond

func (s *Store) orphaned(q *Queue, nonce string, visibility time.Duration) {
	c := *q
	select {
	case s.orphans <- orphan{&c, nonce, s.o.Clock.Now().Add(visibility)}:
	default: // too many: they lapse
		s.m.orphans.WithLabelValues("lapse").Inc()
	}
}

// releaseOrphans gives back what calls of unknown outcome were granted, one after the other.
func (s *Store) releaseOrphans() {
	for {
		var o orphan
		select {
		case o = <-s.orphans:
		case <-s.ctx.Done():
			return
		}
		for {
			err := s.releaseOrphan(s.ctx, o)
			if err == nil {
				s.m.orphans.WithLabelValues("released").Inc()
				break
			}
			if s.o.Clock.Now().After(o.until) {
				s.m.orphans.WithLabelValues("lapse").Inc()
				break
			}
			timer := s.o.Clock.NewTimer(orphanRetry)
			select {
			case <-timer.Chan():
			case <-s.ctx.Done():
				timer.Stop()
				return
			}
		}
	}
}

func (s *Store) releaseOrphan(ctx context.Context, o orphan) error {
	prefix := s.prefix(o.q.ID)
	it := s.c.ZScan(ctx, prefix+keyExpiries, 0, "*:"+o.nonce+"*", 1000).Iterator()
	var receipts []Receipt
	for it.Next(ctx) {
		p, nonce, ok := strings.Cut(it.Val(), ":")
		if !ok {
			continue // the score that follows each member
		}
		block, err := s.c.HGet(ctx, prefix+keyBlocks+":"+p, nonce).Result()
		if err != nil {
			return fmt.Errorf("read an orphan: %w", err)
		}
		rs, err := blockReceipts(p, nonce, block)
		if err != nil {
			return err
		}
		receipts = append(receipts, rs...)
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("look for orphans: %w", err)
	}
	if len(receipts) == 0 {
		return nil
	}
	_, err := s.Settle(ctx, o.q, OpRelease, receipts, SettleOptions{})
	return err
}

// blockReceipts gives every receipt of a block as the scripts keep it: "attempt|begin,count,expiry,states|...".
func blockReceipts(partition, nonce, block string) ([]Receipt, error) {
	var p int32
	if _, err := fmt.Sscan(partition, &p); err != nil {
		return nil, fmt.Errorf("partition %q: %w", clip(partition), errReply)
	}
	var rs []Receipt
	_, extents, _ := strings.Cut(block, "|")
	for x := range strings.SplitSeq(extents, "|") {
		var from, n int64
		if _, err := fmt.Sscanf(x, "%d,%d,", &from, &n); err != nil || n < 0 || n > 1<<20 {
			return nil, fmt.Errorf("block %q: %w", clip(block), errReply)
		}
		for i := range n {
			rs = append(rs, Receipt{p, from + i, nonce})
		}
	}
	return rs, nil
}
