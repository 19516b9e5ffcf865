package metadata

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"
)

// Log is a node's view of the metadata log. See the package comment.
//
// Its goroutines: the submitter runs one transaction at a time, the applier watches and applies, the probe checks the quorum, the
// housekeeper snapshots and trims, and each barrier has one while it runs. Close ends them all.
type Log struct {
	o       Options
	fabric  Fabric
	stream  Stream // of this incarnation; entries of one Log never share a stream with another's
	metrics *metrics
	shards  []*shardView

	ctx     context.Context // of everything in the background; ends last in Close
	cancel  context.CancelFunc
	closing chan struct{} // closed first in Close
	wg      sync.WaitGroup

	queue         queue
	awaiting      awaiting
	seq           uint64 // of the newest transaction; only the submitter touches it
	applied       applied
	settled       atomic.Int64 // the revision up to which own results were handed over; never above applied
	barriers      barriers
	health        health
	subscriptions subscriptionChanges
	watching      struct {
		sync.Mutex
		cancel context.CancelFunc // ends the watch that runs; the applier starts another
	}
	entropy struct {
		sync.Mutex
		src *ulid.LockedMonotonicReader
	}

	failed    chan struct{} // closed when an entry could not be applied
	failure   error         // set before failed is closed
	failOnce  sync.Once
	closeOnce sync.Once
	submitted chan struct{} // closed when the submitter has ended
}

// openRetry is how long Open waits before it asks a store without a quorum again.
const openRetry = 200 * time.Millisecond

// Open joins the fabric, or makes it if the store is empty, loads and applies what the store has, and starts to follow it. When it
// returns, the node has caught up with everything that was acknowledged before the call. While the store has no quorum it waits, as long
// as ctx goes on.
func Open(ctx context.Context, o Options) (*Log, error) {
	o = o.WithDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, err
	}
	l := &Log{o: o, metrics: m, closing: make(chan struct{}), failed: make(chan struct{}), submitted: make(chan struct{})}
	l.queue.kick = make(chan struct{}, 1)
	l.awaiting.m = map[txKey]*transaction{}
	id, err := l.newULID()
	if err != nil {
		return nil, err
	}
	l.stream = Stream(o.NodeID + "-" + id.String())
	if err := l.untilQuorum(ctx, l.join); err != nil {
		return nil, err
	}
	var loaded *loadedState
	if err := l.untilQuorum(ctx, func(ctx context.Context) (err error) { loaded, err = l.load(ctx, l.fabric.Shards); return err }); err != nil {
		return nil, err
	}
	l.shards = make([]*shardView, l.fabric.Shards)
	for i := range l.shards {
		l.shards[i] = &shardView{}
		l.shards[i].mu.state, l.shards[i].mu.tail = loaded.states[i], loaded.tails[i]
	}
	l.applied.raise(loaded.revision)
	l.settled.Store(loaded.revision)
	l.metrics.revision.Set(float64(loaded.revision))
	l.health.good(o.Clock.Now())
	l.ctx, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	l.wg.Go(l.applier)
	l.wg.Go(l.probe)
	l.wg.Go(func() { defer close(l.submitted); l.submitter() })
	if !o.NoHousekeeping {
		l.wg.Go(l.housekeeper)
	}
	return l, nil
}

// untilQuorum repeats f, which reads or creates if absent, while the store has no quorum and ctx goes on: nodes and etcd members are
// started together, and an election may be under way.
func (l *Log) untilQuorum(ctx context.Context, f func(context.Context) error) error {
	for first := true; ; first = false {
		err := f(ctx)
		if err == nil || !errors.Is(err, ErrNoQuorum) && !IsIndefinite(err) {
			return err
		}
		if first {
			l.o.Logger.Warn("the metadata store has no quorum, trying again", "error", err)
		}
		retry := l.o.Clock.NewTimer(openRetry)
		select {
		case <-retry.Chan():
		case <-ctx.Done():
			retry.Stop()
			return err
		}
	}
}

// join reads or makes the fabric, and refuses one that this node does not belong to.
func (l *Log) join(ctx context.Context) error {
	id, err := l.newULID()
	if err != nil {
		return err
	}
	want := Fabric{Format: FabricFormat, Shards: l.o.Shards, ID: id.String(), Region: l.o.Region}
	orDefault(&want.Shards, DefaultShards)
	f, err := l.o.Driver.Init(ctx, want)
	switch {
	case err != nil:
		return fmt.Errorf("join fabric: %w", err)
	case f.Format != FabricFormat:
		return fmt.Errorf("join fabric %s: its format is %d, this build knows %d", f.ID, f.Format, FabricFormat)
	case f.Shards < 1 || f.Shards > MaxShards || l.o.Shards != 0 && f.Shards != l.o.Shards:
		return fmt.Errorf("join fabric %s: it has %d shards, configured are %d", f.ID, f.Shards, l.o.Shards)
	case f.Region != l.o.Region:
		return fmt.Errorf("join fabric %s: it is in region %q, configured is %q", f.ID, f.Region, l.o.Region)
	}
	l.fabric = f
	return nil
}

// newULID makes an ID from the injected clock and entropy.
func (l *Log) newULID() (ulid.ULID, error) {
	l.entropy.Lock()
	defer l.entropy.Unlock()
	if l.entropy.src == nil {
		l.entropy.src = &ulid.LockedMonotonicReader{MonotonicReader: ulid.Monotonic(l.o.Entropy, 0)}
	}
	id, err := ulid.New(ulid.Timestamp(l.o.Clock.Now()), l.entropy.src)
	if err != nil {
		return id, fmt.Errorf("make an ID: %w", err)
	}
	return id, nil
}

// Available returns nil, or METADATA_UNAVAILABLE while the log is known to be without a quorum, stuck, or closing.
func (l *Log) Available() error {
	select {
	case <-l.closing:
		return unavailable(nil, "this node is shutting down")
	case <-l.failed:
		return l.fatal()
	default:
	}
	if !l.health.available() {
		return unavailable(nil, "the metadata log has no quorum")
	}
	return nil
}

// Status is what this node knows, for readiness and operators.
func (l *Log) Status() Status {
	l.queue.Lock()
	waiting := len(l.queue.items)
	l.queue.Unlock()
	return Status{Ready: l.Available() == nil, Revision: l.applied.get(), Stuck: l.health.stuckFor(l.o.Clock), Submitted: waiting}
}

// setFatal stops the log for good: an entry that this build cannot apply must not be skipped.
func (l *Log) setFatal(err error) {
	l.failOnce.Do(func() {
		l.o.Logger.Error("metadata log failed: this node serves nothing until it is replaced", "error", err)
		l.failure = unavailable(err, "this node cannot apply the metadata log")
		close(l.failed)
	})
	l.refuseQueued(l.failure, false)
}

// fatal is the error of setFatal, or nil.
func (l *Log) fatal() error {
	select {
	case <-l.failed:
		return l.failure
	default:
		return nil
	}
}

// SubmitCommit queues a commit behind those submitted before and returns at once. Commits of one Log take effect in submission order.
// The commit must not be changed any more.
func (l *Log) SubmitCommit(c *Commit) *Pending {
	p := NewPending()
	s, index := l.splitCommit(c)
	s.done = func(results []Result, err error) {
		if err != nil {
			p.Resolve(nil, err)
			return
		}
		p.Resolve(joinResults(results, index, len(c.Batches)))
	}
	if len(s.parts) == 0 {
		p.Resolve([]BatchResult{}, nil)
		return p
	}
	l.enqueue(s)
	return p
}

// splitCommit makes one part a shard. index says which batch of c each batch of a part is; nil when there is one part, c itself.
func (l *Log) splitCommit(c *Commit) (s *submission, index [][]int32) {
	shards := uint64(len(l.shards))
	s = &submission{size: commitSize(c)}
	if len(c.Batches) == 0 {
		return s, nil
	}
	first, one := uint64(c.Batches[0].TopicID)%shards, true
	for i := range c.Batches {
		if uint64(c.Batches[i].TopicID)%shards != first {
			one = false
			break
		}
	}
	if one {
		s.parts = []part{{shard: int(first), cmd: c}}
		return s, nil
	}
	byShard := map[uint64]int{}
	groups := map[int32]int32{} // a group belongs to one tenant, so to one shard
	for i := range c.Batches {
		b := c.Batches[i]
		shard := uint64(b.TopicID) % shards
		at, ok := byShard[shard]
		if !ok {
			at = len(s.parts)
			byShard[shard] = at
			s.parts = append(s.parts, part{shard: int(shard), cmd: &Commit{Segment: c.Segment, AppendTime: c.AppendTime}})
			index = append(index, nil)
		}
		sub := s.parts[at].cmd.(*Commit)
		if b.Group >= 0 && int(b.Group) < len(c.Groups) { // one that is outside stays so, and the encoder refuses it
			g, ok := groups[b.Group]
			if !ok {
				g = int32(len(sub.Groups))
				groups[b.Group] = g
				sub.Groups = append(sub.Groups, c.Groups[b.Group])
			}
			b.Group = g
		}
		sub.Batches = append(sub.Batches, b)
		index[at] = append(index[at], int32(i))
	}
	return s, index
}

// commitSize estimates the encoded size, generously.
func commitSize(c *Commit) int {
	n := 128
	for i := range c.Groups {
		n += 32 + len(c.Groups[i].Tenant)
		if p := c.Groups[i].Producer; p != nil {
			n += len(p.ID)
		}
	}
	for i := range c.Batches {
		n += 48 + 16*len(c.Batches[i].IDHashes)
	}
	return n
}

// joinResults puts the results of the parts into the order of the commit. A part that was applied before and whose first answer is
// forgotten makes the outcome of the whole unknown.
func joinResults(results []Result, index [][]int32, batches int) ([]BatchResult, error) {
	for _, r := range results {
		if errors.Is(r.Err, ErrAlreadyApplied) {
			return nil, outcomeUnknown(r.Err)
		}
	}
	if index == nil {
		return fanOut(results[0], batches), nil
	}
	out := make([]BatchResult, batches)
	for i, r := range results {
		for j, b := range fanOut(r, len(index[i])) {
			out[index[i][j]] = b
		}
	}
	return out, nil
}

// fanOut gives a command's error to each of its batches: a part that was refused as a whole does not speak for the other shards.
func fanOut(r Result, batches int) []BatchResult {
	if r.Err == nil {
		return r.Batches
	}
	out := make([]BatchResult, batches)
	for i := range out {
		out[i].Err = r.Err
	}
	return out
}

// Close ends the log. Submissions that were never attempted fail definitely; it waits up to CloseTimeout for the others, and what is
// still not known then is OUTCOME_UNKNOWN. The driver and the store stay open.
func (l *Log) Close() error {
	l.closeOnce.Do(func() {
		// 1. Take nothing new.
		close(l.closing)
		l.refuseQueued(unavailable(nil, "this node is shutting down"), true)
		// 2. Wait for the transaction in flight, and for the watch to show what was acknowledged.
		timeout := l.o.Clock.NewTimer(l.o.CloseTimeout)
		defer timeout.Stop()
		l.awaitResults(timeout.Chan())
		// 3. End the goroutines.
		l.barriers.Lock()
		l.barriers.closed = true
		l.barriers.Unlock()
		l.cancel()
		l.wg.Wait()
		// 4. Answer what is left.
		l.awaiting.Lock()
		left := l.awaiting.m
		l.awaiting.m = map[txKey]*transaction{}
		l.awaiting.Unlock()
		for _, tx := range left {
			for _, s := range tx.subs {
				s.done(nil, outcomeUnknown(errors.New("closed")))
			}
		}
		for _, s := range l.shards {
			s.mu.Lock()
			s.waiters.wakeAll()
			s.mu.Unlock()
		}
		l.metrics.unregister(l.o.Registerer)
	})
	return nil
}

func (l *Log) awaitResults(timeout <-chan time.Time) {
	select {
	case <-l.submitted:
	case <-timeout:
		return
	}
	l.awaiting.Lock()
	var open []*transaction
	for _, tx := range l.awaiting.m {
		open = append(open, tx)
	}
	l.awaiting.Unlock()
	for _, tx := range open {
		select {
		case <-tx.known:
		case <-timeout:
			return
		}
	}
}
