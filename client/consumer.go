package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Consumer is a member of a consumer group: it joins, keeps its session alive, reads the partitions that it owns, and commits how far it has come. A new
// member makes the others hand over what is to be its share, partition by partition; whatever stays where it is is read on meanwhile.
//
// There are two ways to use it. Run and RunBatches call a handler, many at a time, in order per key. With Poll, Mark and Commit the loop is the
// caller's. A Consumer is used in one of them, once.
//
// # What is committed
//
// Of each partition the offset up to which every record is done: its handler has returned nil, or it was marked, or skipped by decision. A record that
// is done before an earlier one is not committed yet. Commits are made every second (WithConsumerCommit), before a partition goes to another
// member, and at the end; one that failed or whose outcome is unknown is repeated. While the consumer has a partition, its commits only rise. A
// commit that was not answered may arrive at a server late, behind a higher one; so after such a loss the newest offset is committed again for a while.
//
// # How a partition is let go
//
// When one goes to another member, or the consumer is closed, nothing more of it is read, and the records that wait before the last one that was
// begun, for their key or for a free handler, are still handled. Nothing after that one is begun. So everything that is done can be committed. One key that is slow
// and has many records there holds that up, by the time to finish at most (WithConsumerGrace).
//
// # What happens twice
//
// Delivery is at least once. Records between the committed offset and what was done are handled again, by whoever owns the partition then, when
//   - the process ends without Close, or its machine does: what was done since the last commit, a second of work or so, and what was done beyond a
//     record that was not;
//   - the session lapses, because the process stood still, or nobody answered its heartbeats for as long as the session is: the same. The consumer
//     notices by its own clock, not later than the servers do, ends the contexts of the handlers with ErrPartitionLost, and joins again. What a handler
//     does after that is not committed, whatever it returns;
//   - what is begun is not finished in time when a partition is revoked or the consumer is closed: what the handlers did that were ended, and what was done
//     beyond the first record that was not;
//   - a handler fails for good (FailureStop), or still fails in the attempt that is made when its partition is let go (FailureRetry), or a record of
//     Poll is not marked by then: what was done beyond that record;
//   - a commit fails to the end.
//
// ConsumerStats.Repeats counts what was done and will be handled again so, but for the first case. Run and Close return an *UnfinishedError where it happens
// because the consumer is closed. Otherwise a member that comes and one that is closed repeat nothing. Package client/inbox makes the
// effects in a database happen once in all these cases.
//
// # Order
//
// Records with the same key are handled one after the other, in the order of their partition (see ConsumerOrder). When a partition moves from
// one member to another, the second one begins when the first one's handlers have returned; a handler that does not heed the end of its context holds up
// the handover. Only after a lapsed session may two members handle records of one key at the same time.
//
// # What retention has deleted
//
// is never passed over in silence. Run ends with a *GapError that names the range, or WithConsumerGap decides.
//
// # Failures
//
// A server that is away, a lease store that is away, a node that is killed: all that is retried, and what is owned goes on as long as the session lives. Only the
// first join gives up, as the retry policy of the Client says. What the server refuses for good ends the consumer.
type Consumer struct {
	c      *Client // sends everything once: the loops of the consumer know better when to repeat
	policy RetryPolicy
	group  string
	topics []string
	id     string
	o      consumerOptions
	base   context.Context // of the handlers: the values of Run's, not its end. Set once, before anything runs

	ending  chan struct{} // closed when it is to end
	ended   chan struct{} // closed when it has
	closing chan struct{} // closed by Close, where Polls are used
	beat    chan struct{} // the next heartbeat is due now
	commit  chan struct{} // the next commit is due now
	calls   chan struct{} // there are callbacks to make
	slots   chan struct{} // of reads at a time

	background sync.WaitGroup // all goroutines but the handlers'
	workers    sync.WaitGroup
	work       *sync.Cond // on mu: there is something to handle, or never will be

	mu struct {
		sync.Mutex
		phase      consumerPhase
		pull       bool          // Poll, not a handler
		order      ConsumerOrder // of the handlers
		batch      int           // records of one call of the handler
		failure    error         // why it ends, nil = it was told to
		unfinished error         // what could not be committed at the end

		member     memberState
		tried      bool // a join was sent
		lapsed     bool // the session has, and the server may not know
		generation int64
		interval   time.Duration // between heartbeats
		deadline   time.Time     // the session may have lapsed from then on
		heard      chan struct{} // closed at the next answer of the group, and when the session lapses

		owned     map[TopicPartition]*ownedPartition
		lingering map[TopicPartition]*ownedPartition // ended, with handlers that have not returned
		ready     []*ownedPartition                  // with something to handle, in turn
		turn      int                                // of Poll, over the partitions
		queue     []func()                           // callbacks, in order
		news      chan struct{}                      // closed when something was committed, ended, or is there to be polled
		since     int                                // records done since the last commit was asked for
		handled   bool                               // nothing is left to handle, and nothing will come
		stats     ConsumerStats
	}
}

// consumerPhase is where a consumer is in its life. They follow each other:
//
//	idle      made, nothing runs
//	running   reads and handles
//	draining  reads nothing more; what is begun is finished and committed (see partitionState), while heartbeats go on
//	closed    nothing runs
type consumerPhase uint8

const (
	phaseIdle consumerPhase = iota
	phaseRunning
	phaseDraining
	phaseClosed
)

// consumerSlots is how many reads a consumer has under way at most. With more partitions than that they take turns.
const consumerSlots = 128

// NewConsumer makes a consumer of the topics for a group. It does nothing yet.
func NewConsumer(c *Client, group string, topics []string, opts ...ConsumerOption) (*Consumer, error) {
	o := consumerDefaults()
	for _, opt := range opts {
		opt(&o)
	}
	faults := []error{o.check()}
	if group == "" {
		faults = append(faults, errors.New("name a group"))
	}
	if len(topics) == 0 {
		faults = append(faults, errors.New("name at least one topic"))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("new consumer: %w", err)
	}
	once := *c
	once.policy.Attempts = 1
	k := &Consumer{
		c: &once, policy: c.policy, group: group, topics: append([]string(nil), topics...), id: NewMemberID(), o: o,
		ending: make(chan struct{}), ended: make(chan struct{}), closing: make(chan struct{}), beat: make(chan struct{}, 1), commit: make(chan struct{}, 1),
		calls: make(chan struct{}, 1), slots: make(chan struct{}, consumerSlots),
	}
	k.work = sync.NewCond(&k.mu.Mutex)
	k.mu.owned, k.mu.lingering = map[TopicPartition]*ownedPartition{}, map[TopicPartition]*ownedPartition{}
	k.mu.heard, k.mu.news = make(chan struct{}), make(chan struct{})
	return k, nil
}

// MemberID is what the group knows the consumer by. It is made with the consumer.
func (c *Consumer) MemberID() string { return c.id }

// Run joins the group and calls handle for each record, until ctx ends or the consumer is closed (nil, if all was committed), a handler fails
// (a *HandlerError, unless WithConsumerFailure decides otherwise), records were deleted before they were read (a *GapError, unless
// WithConsumerGap does), or the server refuses to go on. Before it returns, what is begun is finished (see above), what is done is committed,
// and the group is left. It does not return with partitions that somebody may wait for. If something that was begun is not done or not committed then,
// it returns an error: an *UnfinishedError, or why commits failed. Beside a *HandlerError that is only counted, in ConsumerStats.Repeats.
//
// The context of a handler has the values of ctx. It ends, with a cause, when the partition is lost (ErrPartitionLost), or when the time to
// finish is over (ErrPartitionRevoked, ErrConsumerClosed); the record is not done then if the handler returns an error. It does not end with
// ctx: what runs is finished. A panic of a handler is an error like others, a *PanicError.
func (c *Consumer) Run(ctx context.Context, handle func(ctx context.Context, r *GroupRecord) error) error {
	return c.run(ctx, c.o.order, 1, func(ctx context.Context, records []*GroupRecord) error { return handle(ctx, records[0]) })
}

// RunBatches is Run for handlers that take up to most records of one partition together, as many as are there. The batches of a
// partition come one after the other. A batch is done or fails as a whole.
func (c *Consumer) RunBatches(ctx context.Context, most int, handle func(ctx context.Context, records []*GroupRecord) error) error {
	if most < 1 {
		return fmt.Errorf("run group %s: batches of %d records: want 1 or more", c.group, most)
	}
	return c.run(ctx, OrderByPartition, most, handle)
}

type consumerHandler func(ctx context.Context, records []*GroupRecord) error

func (c *Consumer) run(ctx context.Context, order ConsumerOrder, batch int, handle consumerHandler) error {
	if err := c.start(ctx, false, order, batch); err != nil {
		return err
	}
	for range c.o.concurrency {
		c.workers.Go(func() { c.worker(handle) })
	}
	stop := context.AfterFunc(ctx, c.end)
	defer stop()
	<-c.ended
	return c.result()
}

// start begins what goes on in the background.
func (c *Consumer) start(ctx context.Context, pull bool, order ConsumerOrder, batch int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.phase != phaseIdle {
		if pull && c.mu.pull {
			return nil
		}
		if c.mu.phase == phaseClosed {
			return fmt.Errorf("run group %s: %w", c.group, ErrConsumerClosed)
		}
		return fmt.Errorf("run group %s: the consumer is in use: make one for each Run, or for a loop of Polls", c.group)
	}
	c.mu.phase, c.mu.pull, c.mu.order, c.mu.batch = phaseRunning, pull, order, batch
	c.base = context.WithoutCancel(ctx)
	// What goes on in the background lives until the shutdown ends it, in its order.
	membership, endMembership := context.WithCancel(c.base)
	commits, endCommits := context.WithCancel(c.base)
	var loops sync.WaitGroup
	loops.Go(func() { c.memberLoop(membership) })
	loops.Go(func() { c.commitLoop(commits) })
	calling := make(chan struct{})
	c.background.Go(func() { c.callLoop(calling) })
	go func() { // ended by c.ending, waited for by c.ended
		<-c.ending
		c.shutdown(func() {
			endCommits()
			endMembership()
			loops.Wait()
		}, calling)
	}()
	return nil
}

// shutdown ends a consumer, in this order: (1) nothing more is read; (2) partition by partition, what is begun is finished or ended, committed, and
// OnRevoked is called, all of which needs heartbeats and commits to go on; (3) those end; (4) the group is left; (5) the callbacks that were asked for
// are made; (6) every goroutine has returned.
func (c *Consumer) shutdown(endLoops func(), calling chan struct{}) {
	c.mu.Lock()
	c.mu.phase = phaseDraining
	for _, p := range c.mu.owned {
		c.releaseLocked(p, ErrConsumerClosed)
	}
	finished := make([]chan struct{}, 0, len(c.mu.owned))
	for _, p := range c.mu.owned {
		finished = append(finished, p.finished)
	}
	c.work.Broadcast()
	c.mu.Unlock()
	for _, f := range finished {
		<-f
	}
	endLoops()
	c.mu.Lock()
	c.mu.handled = true
	c.work.Broadcast()
	tried := c.mu.tried
	c.mu.Unlock()
	if stay := c.o.stay; tried && (stay == nil && c.o.instanceID == "" || stay != nil && !*stay) {
		ctx, cancel := context.WithTimeout(c.base, consumerLeaveTimeout)
		if err := c.c.LeaveGroup(ctx, c.group, c.id); err != nil && !errors.Is(err, ErrUnknownGroup) {
			c.notify(err)
		}
		cancel()
	}
	close(calling)
	c.workers.Wait()
	c.background.Wait()
	c.mu.Lock()
	c.mu.phase = phaseClosed
	c.mu.member = memberNone
	c.tellLocked()
	c.mu.Unlock()
	close(c.ended)
}

// consumerLeaveTimeout is how long a consumer that ends tries to say so to the group, which finds out by itself otherwise.
const consumerLeaveTimeout = 5 * time.Second

// end asks for the shutdown.
func (c *Consumer) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endLocked()
}

func (c *Consumer) endLocked() {
	select {
	case <-c.ending:
	default:
		close(c.ending)
		c.tellLocked()
	}
	// Nothing more is begun, also before the shutdown gets that far.
	if c.mu.phase == phaseRunning {
		c.mu.phase = phaseDraining
	}
}

// fail ends the consumer because of err. The first failure is the one that is told.
func (c *Consumer) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failLocked(err)
}

func (c *Consumer) failLocked(err error) {
	if c.mu.failure == nil {
		c.mu.failure = err
	}
	c.endLocked()
}

// Close ends the consumer: nothing more is read, what is begun may finish (WithConsumerGrace), what is done or marked is committed, and the
// group is left. It returns when all that is over, with what could not be finished or committed, if anything (an *UnfinishedError, of records of Poll too when later
// ones were marked). A Run that goes on returns, too. It may be called
// at any time, also again, but not by a handler or a callback, for which it would wait: these end the context of Run.
func (c *Consumer) Close() error {
	c.mu.Lock()
	if c.mu.phase == phaseIdle {
		c.mu.phase = phaseClosed
		close(c.ending)
		close(c.ended)
	}
	if c.mu.pull {
		select {
		case <-c.closing:
		default:
			close(c.closing)
		}
	}
	c.endLocked()
	c.mu.Unlock()
	<-c.ended
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.unfinished
}

// result is what Run returns.
func (c *Consumer) result() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.failure != nil && c.mu.unfinished != nil {
		return errors.Join(c.mu.failure, c.mu.unfinished)
	}
	if c.mu.failure != nil {
		return c.mu.failure
	}
	return c.mu.unfinished
}

func (c *Consumer) notify(err error) {
	if c.o.notify != nil {
		c.o.notify(err)
	}
}

// tellLocked wakes who waits for news.
func (c *Consumer) tellLocked() {
	close(c.mu.news)
	c.mu.news = make(chan struct{})
}

// consumerNudge asks for something at once.
func consumerNudge(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
