package client

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/forebaymq/forebay/api"
)

// commitLoop commits what is done, when it is due or somebody waits for it, until ctx ends. It alone commits, so a commit that has failed is never behind a
// later one.
func (c *Consumer) commitLoop(ctx context.Context) {
	w := &commitWork{c: c}
	tick := time.NewTicker(c.o.commitEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			c.mu.Lock()
			for _, p := range c.mu.owned {
				p.recommitLocked()
			}
			c.mu.Unlock()
		case <-c.commit:
		case <-ctx.Done():
			return
		}
		for w.round(ctx) {
		}
	}
}

// commitWork is what the committing loop remembers.
type commitWork struct {
	c       *Consumer
	failed  int       // rounds in a row
	refused time.Time // since when all that failed was refused for good, in one generation; zero = it was not
	by      int64     // the generation of the last round
}

// commitProgress is what a partition has come to.
type commitProgress struct {
	p      *ownedPartition
	offset int64
	place  uint64 // of that in the window
}

// How a commit is repeated that meets a generation which has begun since: so often at once, and then with pauses up to this.
const (
	consumerStaleAtOnce = 5
	consumerStalePause  = 200 * time.Millisecond
)

// round commits what there is. true: it failed, waited, and is to be repeated.
func (w *commitWork) round(ctx context.Context) bool {
	c := w.c
	c.mu.Lock()
	c.lapseLocked()
	heard, me := c.mu.heard, GroupMember{c.id, c.mu.generation}
	var work []commitProgress
	if c.mu.member == memberIn { // else the next answer of the group says so
		work = c.progressLocked()
	}
	c.mu.since = 0
	c.mu.Unlock()
	if me.Generation != w.by { // what was refused in another generation says nothing about this one
		w.by, w.refused = me.Generation, time.Time{}
	}
	err := w.send(ctx, me, work)
	if err == nil || ctx.Err() != nil {
		w.failed, w.refused = 0, time.Time{}
		return false
	}
	w.failed++
	pause := consumerPause(w.failed, consumerFirstPause, consumerCommitPause, err)
	if errors.Is(err, ErrStaleGeneration) {
		// A heartbeat tells the next generation, or that there is none. While members come and go there may soon be another, so the next attempt is made at
		// once, but not for ever: each one costs the servers a heartbeat as well.
		w.refused = time.Time{}
		if w.failed > consumerStaleAtOnce { // else it is as usual
			c.notify(err)
		}
		consumerNudge(c.beat)
		consumerSleep(ctx, max(pause, c.o.session/10), heard)
		c.mu.Lock()
		told := c.mu.generation != me.Generation
		c.mu.Unlock()
		if told && w.failed <= consumerStaleAtOnce {
			return ctx.Err() == nil
		}
		if told {
			pause = consumerPause(w.failed-consumerStaleAtOnce, consumerFirstPause/5, consumerStalePause, nil)
		}
		return consumerSleep(ctx, pause)
	}
	if consumerFatal(err) {
		if w.refused.IsZero() {
			w.refused = time.Now()
		} else if time.Since(w.refused) > 2*c.o.session {
			c.fail(err)
		}
		// The group knows more than this consumer: a heartbeat tells.
		consumerNudge(c.beat)
		consumerSleep(ctx, max(pause, c.o.session/10), heard)
	} else {
		w.refused = time.Time{}
	}
	c.notify(err)
	return consumerSleep(ctx, pause)
}

// consumerUnsure is how long a commit that was not answered may still come into effect: a server that has taken it does not try for longer.
const consumerUnsure = 30 * time.Second

// recommitLocked asks for another commit where an earlier one may come into effect behind the last: a request that was given up on is on its way, or waits in
// a server, while a later one went by another connection. That would put the group back. When the partition is let go the generation ends, and with
// it what such a request could do.
func (p *ownedPartition) recommitLocked() {
	now := time.Now()
	if p.unsure.IsZero() || now.Before(p.againAt) {
		return
	}
	p.again, p.againAt = true, now.Add(time.Second)
	if now.After(p.unsure) {
		p.unsure = time.Time{}
	}
}

// progressLocked lists what can be committed and is not, in order.
func (c *Consumer) progressLocked() (work []commitProgress) {
	for _, at := range sortedPartitions(c.mu.owned) {
		p := c.mu.owned[at]
		if offset := p.window.prefix(); offset > p.committed || p.again {
			p.attempted, p.tried = max(p.attempted, offset), p.window.first
			work = append(work, commitProgress{p, offset, p.window.first})
		}
	}
	return work
}

// send commits. Where the server refuses one topic (it is gone, or may not be read any more) the others are committed without it.
func (w *commitWork) send(ctx context.Context, me GroupMember, work []commitProgress) error {
	for part := range slices.Chunk(work, consumerCommitAtMost) {
		err := w.sendOnce(ctx, me, part)
		several := part[0].p.at.Topic != part[len(part)-1].p.at.Topic
		if err == nil || !several || !consumerFatal(err) || errors.Is(err, ErrStaleGeneration) || errors.Is(err, ErrNotOwner) {
			if err != nil {
				return err
			}
			continue
		}
		var first error
		for len(part) > 0 {
			n := slices.IndexFunc(part, func(g commitProgress) bool { return g.p.at.Topic != part[0].p.at.Topic })
			if n < 0 {
				n = len(part)
			}
			if err := w.sendOnce(ctx, me, part[:n]); err != nil && first == nil {
				first = err
			}
			part = part[n:]
		}
		if first != nil {
			return first
		}
	}
	return nil
}

// commitTimeout is how long one commit, or one join, may take: both wait for the log. One that hangs holds up what comes after it, so what must be
// committed waits for several.
func (c *Consumer) commitTimeout() time.Duration {
	return min(max(c.o.session, 5*time.Second), 20*time.Second)
}

func (w *commitWork) sendOnce(ctx context.Context, me GroupMember, work []commitProgress) error {
	c := w.c
	offsets := make([]GroupOffset, len(work))
	for i, g := range work {
		offsets[i] = GroupOffset{Topic: g.p.at.Topic, Partition: g.p.at.Partition, Offset: g.offset}
	}
	attempt, cancel := context.WithTimeout(ctx, c.commitTimeout())
	defer cancel()
	err := c.c.CommitOffsets(attempt, c.group, me, offsets)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.mu.stats.CommitFailures++
		if outcome, _ := Classify(err); outcome == Indefinite {
			for _, g := range work {
				g.p.unsure = time.Now().Add(consumerUnsure)
			}
		}
		return err
	}
	c.mu.stats.Commits++
	for _, g := range work {
		g.p.again = false
		g.p.acks++
		g.p.committed, g.p.kept = max(g.p.committed, g.offset), max(g.p.kept, g.place)
	}
	c.tellLocked()
	return nil
}

// flush waits until what is done of partitions now is committed. ErrPartitionLost where that cannot be any more; or why it failed, when ctx ends.
func (c *Consumer) flush(ctx context.Context, partitions []*ownedPartition) error {
	c.mu.Lock()
	targets, acks := make([]int64, len(partitions)), make([]int, len(partitions))
	for i, p := range partitions {
		targets[i] = p.window.prefix()
		if !p.unsure.IsZero() {
			p.again, acks[i] = true, p.acks+1
		}
	}
	c.mu.Unlock()
	consumerNudge(c.commit)
	for {
		c.mu.Lock()
		c.lapseLocked()
		news, open, lost := c.mu.news, false, false
		for i, p := range partitions {
			if p.committed < targets[i] || p.acks < acks[i] {
				open = open || p.state != partitionOver
				lost = lost || p.state == partitionOver
			}
		}
		c.mu.Unlock()
		switch {
		case !open && lost:
			return ErrPartitionLost
		case !open:
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return &Error{Op: "commit to group " + c.group, Code: api.CodeOutcomeUnknown, Detail: "it did not succeed in time", Cause: context.Cause(ctx)}
		}
	}
}
