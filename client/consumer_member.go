package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// memberState is what a consumer is to its group:
//
//	none       no member, nothing is owned. It joins: -> member. Where the server refuses for good, the consumer ends
//	member     a member of a generation. Heartbeats keep it so. -> none when no heartbeat was answered for as long as the session is, or the group is
//	           gone: all that is owned is lost. -> rejoining when the server knows of no such membership
//	rejoining  the server has forgotten the membership (its lease store was lost, or it takes the session for lapsed), but by the consumer's own clock the
//	           session lives, so nobody else has been given what it owns: that goes on, but nothing is committed. It joins: -> member, with what is in
//	           the answer at the place where it was; the rest is lost. -> none when the session lapses
type memberState uint8

const (
	memberNone memberState = iota
	memberIn
	memberRejoining
)

// Bounds of what is waited for.
const (
	consumerJoinPause    = 5 * time.Second // between joins, at most
	consumerFirstPause   = 50 * time.Millisecond
	consumerBeatPause    = 100 * time.Millisecond // between heartbeats, at least, unless there is something to tell
	consumerBeatAtLeast  = 500 * time.Millisecond // for one heartbeat
	consumerReadPause    = 2 * time.Second        // between reads that fail, at most
	consumerCommitPause  = time.Second            // between commits that fail, at most
	consumerCommitAtMost = 1000                   // offsets in one request
)

// memberLoop joins and keeps the session alive until ctx ends. It alone speaks about membership, so answers come in the order of requests.
func (c *Consumer) memberLoop(ctx context.Context) {
	l := &memberWork{c: c, begun: time.Now()}
	for ctx.Err() == nil {
		c.mu.Lock()
		c.lapseLocked()
		state, phase := c.mu.member, c.mu.phase
		c.mu.Unlock()
		switch {
		case state == memberIn:
			l.heartbeat(ctx)
		case state == memberNone && phase == phaseDraining:
			<-ctx.Done() // there is nothing to finish
		default:
			l.join(ctx)
		}
	}
}

// memberWork is what the member's loop remembers.
type memberWork struct {
	c      *Consumer
	begun  time.Time
	joined bool      // it has been a member
	failed int       // requests in a row
	joins  int       // in a row, without a heartbeat between them that was answered
	next   time.Time // when the next heartbeat is due
}

// join makes one attempt, and waits after one that failed.
func (l *memberWork) join(ctx context.Context) {
	c := l.c
	if l.joins++; l.joins > 2 && !consumerSleep(ctx, consumerPause(l.joins-2, consumerFirstPause, consumerJoinPause, nil)) {
		return // what is answered contradicts itself
	}
	c.mu.Lock()
	tried := c.mu.tried
	c.mu.tried = true
	timeout, lapses := c.commitTimeout(), time.Duration(0)
	if c.mu.member == memberRejoining {
		lapses = max(0, time.Until(c.mu.deadline))
		timeout = min(timeout, lapses) // what is owned is lost by then
	}
	c.mu.Unlock()
	// One that was sent is waited for, if need be beyond the end of ctx: a server that takes it up after the leave that is to follow would have a member
	// that nobody is, and keep partitions for it until its session lapses.
	ending, endWaiting := outlive(ctx, consumerLeaveTimeout)
	defer endWaiting()
	attempt, cancel := context.WithTimeout(ending, timeout)
	defer cancel()
	var m *Membership
	err := l.replaced(attempt)
	if err == nil {
		err = l.fence(attempt)
	}
	sent := time.Now()
	if err == nil {
		m, err = c.c.JoinGroup(attempt, c.group, JoinOptions{
			Topics: c.topics, MemberID: c.id, InstanceID: c.o.instanceID, SessionTimeout: c.o.session, Start: c.o.start,
		})
	}
	if err == nil {
		l.joined, l.failed = true, 0
		l.next = sent.Add(c.joined(sent, m))
		return
	}
	if outcome, _ := Classify(err); outcome == Definite {
		c.mu.Lock()
		c.mu.tried = tried // there is no membership that this could have made
		c.mu.Unlock()
	}
	if ctx.Err() != nil {
		return
	}
	l.failed++
	over := !l.joined && (l.failed >= c.policy.Attempts || time.Since(l.begun) > c.policy.MaxElapsed)
	if over || consumerFatal(err) || errors.Is(err, ErrInstanceReplaced) {
		c.fail(err)
		c.loseAll()
		return
	}
	c.notify(err)
	pause := consumerPause(l.failed, consumerFirstPause, consumerJoinPause, err)
	if !l.joined {
		pause = consumerPause(l.failed, c.policy.Initial, min(c.policy.Max, c.policy.MaxRetryAfter), err)
	}
	if lapses > 0 {
		pause = min(pause, lapses)
	}
	consumerSleep(ctx, pause)
}

// replaced says whether another process has taken over the instance of a static member. Without asking, two processes with one instance would take
// everything from each other for ever.
func (l *memberWork) replaced(ctx context.Context) error {
	c := l.c
	if !l.joined || c.o.instanceID == "" {
		return nil
	}
	g, err := c.c.GetGroup(ctx, c.group)
	if errors.Is(err, ErrUnknownGroup) {
		return nil
	}
	if err != nil {
		return err
	}
	for i := range g.Members {
		if m := &g.Members[i]; m.InstanceID != nil && *m.InstanceID == c.o.instanceID && m.MemberID != c.id {
			return fmt.Errorf("group %s: instance %s is member %s now: %w", c.group, c.o.instanceID, m.MemberID, ErrInstanceReplaced)
		}
	}
	return nil
}

// fence ends a membership that has lapsed by the consumer's clock. For the server it may live, and to join would change nothing then: a commit from before,
// which nobody waits for any more, could still come into effect behind those to come. What has been left cannot commit.
func (l *memberWork) fence(ctx context.Context) error {
	c := l.c
	c.mu.Lock()
	lapsed := c.mu.lapsed
	c.mu.Unlock()
	if !lapsed {
		return nil
	}
	if err := c.c.LeaveGroup(ctx, c.group, c.id); err != nil && !errors.Is(err, ErrUnknownGroup) {
		return err
	}
	c.mu.Lock()
	c.mu.lapsed = false
	c.mu.Unlock()
	return nil
}

// heartbeat waits until one is due, and sends it.
func (l *memberWork) heartbeat(ctx context.Context) {
	c := l.c
	c.mu.Lock()
	deadline, interval := c.mu.deadline, c.mu.interval
	c.mu.Unlock()
	if wait := min(time.Until(l.next), time.Until(deadline)); wait > 0 && !consumerSleep(ctx, wait, c.beat) {
		return
	}
	c.mu.Lock()
	if c.lapseLocked() || c.mu.member != memberIn {
		c.mu.Unlock()
		return
	}
	owned := make([]TopicPartition, 0, len(c.mu.owned))
	for at := range c.mu.owned {
		owned = append(owned, at)
	}
	me := GroupMember{c.id, c.mu.generation}
	c.mu.Unlock()
	slices.SortFunc(owned, compareTopicPartitions)

	attempt, cancel := context.WithTimeout(ctx, max(min(max(interval, consumerBeatAtLeast), time.Until(deadline)), time.Millisecond))
	defer cancel()
	sent := time.Now()
	m, err := c.c.Heartbeat(attempt, c.group, me, owned)
	switch {
	case err == nil:
		l.failed, l.joins = 0, 0
		l.next = sent.Add(interval)
		c.beaten(sent, owned, m)
		return
	case ctx.Err() != nil:
		return
	case errors.Is(err, ErrStaleGeneration):
		c.notify(err)
		l.failed = 0
		c.mu.Lock()
		c.mu.member = memberRejoining
		c.hearLocked()
		c.mu.Unlock()
		return
	case errors.Is(err, ErrUnknownGroup):
		c.notify(err)
		c.loseAll()
		return
	case consumerFatal(err):
		c.fail(err)
	default:
		c.notify(err)
	}
	l.failed++
	l.next = time.Now().Add(consumerPause(l.failed, consumerFirstPause, max(interval/2, consumerFirstPause), err))
}

// joined takes the answer to a join that was sent at a time, and says how long after that the first heartbeat is due.
func (c *Consumer) joined(sent time.Time, m *Membership) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lapseLocked()
	c.newGenerationLocked(m.Generation)
	c.mu.member = memberIn
	c.mu.interval = max(m.HeartbeatInterval, consumerBeatPause)
	if m.HeartbeatInterval <= 0 || c.mu.interval > c.o.session/2 { // that would not keep the session alive
		c.mu.interval = c.o.session / 3
	}
	c.mu.deadline = sent.Add(c.o.session)
	defer c.hearLocked()
	if !time.Now().Before(c.mu.deadline) {
		// The answer took so long that the session may be over already. A heartbeat tells, and what is owned as well.
		for _, p := range c.mu.owned {
			c.loseLocked(p)
		}
		c.mu.deadline = time.Now().Add(max(c.mu.interval, consumerBeatAtLeast))
		return 0
	}
	assigned := make(map[TopicPartition]GroupOffset, len(m.Assignment))
	for _, a := range m.Assignment {
		assigned[TopicPartition{a.Topic, a.Partition}] = a
	}
	for at, p := range c.mu.owned {
		// Where the place is not one that this consumer has committed, another one has had the partition meanwhile.
		if a, ok := assigned[at]; !ok || p.another(a.TopicID) || a.Offset < p.committed || a.Offset > p.attempted {
			c.loseLocked(p)
		} else if a.Offset > p.committed {
			p.committed = a.Offset // by a commit that was not answered
			if a.Offset == p.attempted {
				p.kept = p.tried
			}
		}
	}
	c.assignLocked(m.Assignment, nil)
	return c.mu.interval
}

// beaten takes the answer to a heartbeat that was sent at a time and named what was owned then.
func (c *Consumer) beaten(sent time.Time, named []TopicPartition, m *Membership) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.hearLocked()
	if c.mu.member != memberIn {
		return // the session had lapsed by the time of the answer
	}
	c.mu.deadline = sent.Add(c.o.session)
	if m.Generation != c.mu.generation {
		c.newGenerationLocked(m.Generation)
	}
	holds := make(map[TopicPartition]bool, len(m.Assignment)+len(m.Revoke))
	for _, a := range m.Assignment {
		at := TopicPartition{a.Topic, a.Partition}
		// A topic that was deleted and created again is another one: what was read of the first says nothing about the place in the second.
		p := c.mu.owned[at]
		holds[at] = p == nil || !p.another(a.TopicID)
	}
	for _, at := range m.Revoke {
		holds[at] = true
		if p := c.mu.owned[at]; p != nil {
			c.releaseLocked(p, ErrPartitionRevoked)
		}
	}
	for at, p := range c.mu.owned {
		if !holds[at] {
			c.loseLocked(p) // its topic is gone
		}
	}
	c.assignLocked(m.Assignment, named)
}

// assignLocked begins with what is new. What was named in the request and has been let go since may be there only because the server did not know
// that yet, and its offset may be older than the last commit: the next heartbeat tells.
func (c *Consumer) assignLocked(assignment []GroupOffset, named []TopicPartition) {
	var added []*ownedPartition
	for _, a := range assignment {
		at := TopicPartition{a.Topic, a.Partition}
		switch {
		case c.mu.owned[at] != nil || c.mu.phase != phaseRunning:
		case a.Offset < 0:
			c.callLocked(func() {
				c.notify(fmt.Errorf("group %s: %s partition %d is assigned at offset %d", c.group, at.Topic, at.Partition, a.Offset))
			})
		case slices.Contains(named, at):
			consumerNudge(c.beat)
		default:
			added = append(added, c.addLocked(at, a.TopicID, a.Offset))
		}
	}
	if len(added) > 0 {
		c.beginLocked(added)
	}
}

func (c *Consumer) newGenerationLocked(generation int64) {
	if generation != c.mu.generation {
		c.mu.generation = generation
		c.mu.stats.Rebalances++
	}
	consumerNudge(c.commit) // what could not be committed before can be now
}

// hearLocked wakes who waits for an answer of the group.
func (c *Consumer) hearLocked() {
	close(c.mu.heard)
	c.mu.heard = make(chan struct{})
}

// lapseLocked ends the membership when its session may be over by the consumer's own clock: the time since the last heartbeat that was answered was
// sent. Servers count from when they got it, so they are not earlier. Everything that acts for a partition asks this first, because a process that
// stood still does not know in which order its goroutines go on.
func (c *Consumer) lapseLocked() bool {
	if c.mu.member == memberNone || time.Now().Before(c.mu.deadline) {
		return false
	}
	c.mu.stats.Lapses++
	c.mu.member, c.mu.lapsed = memberNone, true
	for _, p := range c.mu.owned {
		c.loseLocked(p)
	}
	c.hearLocked()
	consumerNudge(c.beat)
	// In a goroutine of the queue: the caller has the lock.
	c.callLocked(func() {
		c.notify(fmt.Errorf("group %s: no heartbeat was answered for %s: %w", c.group, c.o.session, errSessionLapsed))
	})
	return true
}

var errSessionLapsed = errors.New("the session has lapsed, all partitions are lost")

// loseAll ends the membership.
func (c *Consumer) loseAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.member = memberNone
	for _, p := range c.mu.owned {
		c.loseLocked(p)
	}
	c.hearLocked()
}

func compareTopicPartitions(a, b TopicPartition) int {
	if n := strings.Compare(a.Topic, b.Topic); n != 0 {
		return n
	}
	return int(a.Partition) - int(b.Partition)
}

// sortedPartitions gives the keys of a map in order.
func sortedPartitions[V any](m map[TopicPartition]V) []TopicPartition {
	return slices.SortedFunc(maps.Keys(m), compareTopicPartitions)
}
