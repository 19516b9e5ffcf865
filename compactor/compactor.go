package compactor

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/forebaymq/forebay/metadata"
)

// claimPrefix and the number of a shard name the claim under which the shard is compacted; CollectorClaim is that of the collector.
const (
	claimPrefix    = "compact/"
	CollectorClaim = "collect"
)

// Compactor merges, compacts and collects in the background, from Start to Close.
type Compactor struct {
	o       Options
	m       *metrics
	entropy struct {
		sync.Mutex
		src *ulid.LockedMonotonicReader
	}
	shards  []shardState
	buffers sync.Pool // of *[]byte: memory for objects, kept between jobs as long as there is enough
	trims   trimMemory
	untag   segmentSet   // objects whose clean batches hold no tombstones
	known   segmentSet   // level-0 objects whose header was read
	next    atomic.Int64 // shard at which the next worker looks first

	ctx    context.Context // ends in Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
	mu     struct {
		sync.Mutex
		started, closed bool
	}
}

// shardState is what this node remembers of a shard.
type shardState struct {
	mu struct {
		sync.Mutex
		busy    bool                    // a worker of this node is at it
		rest    time.Time               // not before
		bad     map[ulid.ULID]time.Time // objects that cannot be read, and until when they are left alone
		cleaned time.Time               // when partitions were last looked at that are compacted by key; zero = at once
		swept   time.Time               // when all partitions were last looked at; zero = at once
		reports map[ulid.ULID]bool      // objects that were reported as unreadable
		forgot  time.Time               // when shallow was last cleared
		shallow map[bucket]int          // objects of a class and level that were found not to be worth merging
	}
}

// New makes a Compactor. Nothing runs before Start.
func New(o Options) (*Compactor, error) {
	o = o.WithDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	c := &Compactor{o: o, m: m, shards: make([]shardState, o.Log.Shards())}
	c.entropy.src = &ulid.LockedMonotonicReader{MonotonicReader: ulid.Monotonic(o.Entropy, 0)}
	for i := range c.shards {
		c.shards[i].mu.bad = map[ulid.ULID]time.Time{}
		c.shards[i].mu.reports = map[ulid.ULID]bool{}
		c.shards[i].mu.shallow = map[bucket]int{}
	}
	return c, nil
}

// Start starts the workers and the collector. A second call does nothing. ctx gives its values only; Close ends the work.
func (c *Compactor) Start(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.started || c.mu.closed || c.o.Off {
		return
	}
	c.mu.started = true
	c.ctx, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	for range c.o.Workers {
		c.wg.Go(c.worker)
	}
	if !c.o.Collect.Off {
		c.wg.Go(c.collector)
	}
	c.wg.Go(c.gauges)
}

// Close gives the claims back and waits for everything to end. A job in the middle ends at its next step; what it has not replaced stays as
// it was. It is idempotent.
func (c *Compactor) Close() error {
	c.mu.Lock()
	closed := c.mu.closed
	c.mu.closed = true
	if c.cancel != nil {
		c.cancel()
	}
	c.mu.Unlock()
	c.wg.Wait()
	if !closed {
		c.m.unregister(c.o.Registerer)
	}
	return nil
}

// worker looks for a shard with work, claims it, and works until there is none or its tenure is over. Claims are short and taken only for
// work that is there: so nodes share the shards by what each gets done, without knowing of each other.
func (c *Compactor) worker() {
	for {
		worked := false
		start := int(c.next.Add(1))
		for i := range c.shards {
			if c.ctx.Err() != nil {
				return
			}
			if c.visit((start + i) % len(c.shards)) {
				worked = true
				c.next.Store(int64(start + i))
			}
		}
		if worked {
			continue
		}
		select {
		case <-c.o.Clock.After(c.o.Every):
		case <-c.ctx.Done():
			return
		}
	}
}

// visit works on one shard if there is work and nobody else is at it. It says whether something was done.
func (c *Compactor) visit(shard int) (worked bool) {
	s := &c.shards[shard]
	now := c.o.Clock.Now()
	s.mu.Lock()
	if s.mu.busy || now.Before(s.mu.rest) {
		s.mu.Unlock()
		return false
	}
	s.mu.busy = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.mu.busy = false
		s.mu.Unlock()
	}()
	if c.o.Log.Available() != nil {
		return false
	}
	found, ok := c.due(c.ctx, shard)
	if !ok {
		return false
	}
	claim, held, err := c.o.Log.Claim(c.ctx, claimPrefix+strconv.Itoa(shard), c.o.ClaimTTL)
	if err != nil || !held {
		if err != nil && c.ctx.Err() == nil {
			c.o.Logger.Debug("cannot claim a shard", "shard", shard, "error", err)
		}
		c.restUntil(shard, now.Add(c.o.Every))
		c.putBack(shard, found)
		return false
	}
	c.m.claims.Inc()
	defer c.m.claims.Dec()
	ctx, cancel := context.WithCancel(c.ctx)
	c.wg.Go(func() {
		select {
		case <-claim.Done:
		case <-ctx.Done():
		}
		cancel()
	})
	defer func() {
		cancel()
		release, end := context.WithTimeout(context.WithoutCancel(c.ctx), c.o.ClaimTTL)
		defer end()
		if err := c.o.Log.Release(release, claim); err != nil {
			c.o.Logger.Debug("cannot release a shard", "shard", shard, "error", err)
		}
	}()
	worked, err = c.work(ctx, claim, shard, &found)
	c.putBack(shard, found)
	if err != nil && ctx.Err() == nil {
		c.o.Logger.Warn("compaction of a shard failed", "shard", shard, "error", err)
		c.restUntil(shard, c.o.Clock.Now().Add(c.o.Backoff))
		return false
	}
	if !worked {
		c.restUntil(shard, c.o.Clock.Now().Add(c.o.Every))
	}
	return worked
}

func (c *Compactor) restUntil(shard int, t time.Time) {
	s := &c.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.rest = t
}

// work runs jobs of a claimed shard until there is none, or the tenure is over.
func (c *Compactor) work(ctx context.Context, claim *metadata.HeldClaim, shard int, f *findings) (worked bool, err error) {
	end := c.o.Clock.Now().Add(c.o.Tenure)
	for {
		// What the last holder did must be seen before anything is planned.
		if err := c.o.Log.Sync(ctx); err != nil {
			return worked, err
		}
		did, err := c.step(ctx, claim, shard, f)
		worked = worked || did
		if err != nil || !did || c.o.Clock.Now().After(end) {
			return worked, err
		}
	}
}

// step finds the most urgent job of a shard and runs it.
func (c *Compactor) step(ctx context.Context, claim *metadata.HeldClaim, shard int, f *findings) (did bool, err error) {
	job, err := c.plan(ctx, claim, shard, f)
	if job == nil || err != nil {
		return false, err
	}
	return true, c.execute(ctx, claim, job)
}

// putBack lets what was found and not done be looked for again at the next opportunity.
func (c *Compactor) putBack(shard int, f findings) {
	if f.clean {
		c.again(shard, lastCleaned)
	}
	if f.sweep {
		c.again(shard, lastSwept)
	}
}

// execute runs a job and accounts for it.
func (c *Compactor) execute(ctx context.Context, claim *metadata.HeldClaim, job *Job) error {
	begin := c.o.Clock.Now()
	stats, err := c.runJob(ctx, claim, job)
	took := c.o.Clock.Since(begin)
	kind := string(job.Kind)
	c.m.seconds.WithLabelValues(kind).Observe(took.Seconds())
	c.m.records.WithLabelValues(kind, "read").Add(float64(stats.recordsIn))
	c.m.records.WithLabelValues(kind, "written").Add(float64(stats.records))
	var bad *UnreadableError
	switch {
	case err == nil:
		c.m.jobs.WithLabelValues(kind, "ok").Inc()
		c.o.Logger.Debug("compacted", "kind", kind, "shard", job.Shard, "bytes", job.Bytes, "groups", len(job.Groups)+len(job.tasks), "entriesBefore", stats.removed,
			"entriesAfter", stats.added, "recordsBefore", stats.recordsIn, "recordsAfter", stats.records, "refused", stats.refused, "took", took)
	case errors.As(err, &bad):
		c.m.jobs.WithLabelValues(kind, "unreadable").Inc()
		return c.quarantine(ctx, job.Shard, bad)
	default:
		c.m.jobs.WithLabelValues(kind, "failed").Inc()
	}
	if err == nil && stats.replaced == 0 && stats.refused > 0 {
		return fmt.Errorf("all %d groups of a %s job were refused", stats.refused, kind)
	}
	return err
}

// quarantine leaves an object alone that cannot be read, so that the rest of the shard goes on. It is reported once, if live batches refer
// to it still: one that was deleted with its topic is not missed.
func (c *Compactor) quarantine(ctx context.Context, shard int, bad *UnreadableError) error {
	if err := c.o.Log.Sync(ctx); err != nil {
		return err
	}
	if _, live := c.o.Log.Segment(bad.Segment); !live {
		return nil
	}
	s := &c.shards[shard]
	s.mu.Lock()
	s.mu.bad[bad.Segment] = c.o.Clock.Now().Add(40 * c.o.Backoff)
	known := s.mu.reports[bad.Segment]
	s.mu.reports[bad.Segment] = true
	s.mu.Unlock()
	if known {
		return nil
	}
	reason := "corrupt"
	if bad.Missing {
		reason = "missing"
	}
	c.m.unreadable.WithLabelValues(reason).Inc()
	c.o.Logger.Error("a live object cannot be compacted", "object", bad.Object, "reason", reason, "error", bad.Cause)
	return nil
}

// skipped gives the objects that are left alone.
func (c *Compactor) skipped(shard int) map[ulid.ULID]bool {
	s := &c.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.bad) == 0 {
		return nil
	}
	now := c.o.Clock.Now()
	out := map[ulid.ULID]bool{}
	for id, until := range s.mu.bad {
		if now.After(until) {
			delete(s.mu.bad, id)
			continue
		}
		out[id] = true
	}
	return out
}
