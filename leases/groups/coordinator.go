package groups

import (
	"context"
	"encoding/base32"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/metadata"
)

// Limits of groups.
const (
	MaxMembers         = 1000
	MaxTopics          = 100
	MaxPartitions      = 100_000 // of all topics that a group reads
	MaxOffsets         = 10_000  // of one commit
	MaxMetadataBytes   = 4096
	MaxMemberIDBytes   = 200
	MinSessionTimeout  = time.Second
	MaxSessionTimeout  = 5 * time.Minute
	DefaultSession     = 10 * time.Second
	heartbeatsASession = 3
)

// Coordinator serves the consumer groups on one node.
type Coordinator struct {
	o      Options
	m      *metrics
	holder string        // this process, in locks and positions
	writes atomic.Uint64 // how many times positions were noted

	ctx    context.Context // ends with the coordinator
	cancel context.CancelCauseFunc

	known struct {
		sync.Mutex
		byID map[metadata.GroupID]*group
	}
	random struct{ sync.Mutex } // of o.Rand

	life struct {
		sync.Mutex
		started, closing, closed bool
		running                  sync.WaitGroup
		draining                 chan struct{} // closed when Close begins: whoever waits for records is answered
		ended                    chan struct{}
		err                      error
	}
}

var _ Groups = (*Coordinator)(nil)

// errClosed is why the coordinator's context ends.
var errClosed = errors.New("the coordinator was closed")

// New makes a Coordinator. Without Start it serves requests, but nobody looks for lapsed sessions.
func New(o Options) (*Coordinator, error) {
	o = o.WithDefaults()
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("options of consumer groups: %w", err)
	}
	c := &Coordinator{o: o}
	c.ctx, c.cancel = context.WithCancelCause(context.Background()) // the coordinator's own life, which no request's is
	c.known.byID = map[metadata.GroupID]*group{}
	c.life.draining, c.life.ended = make(chan struct{}), make(chan struct{})
	var err error
	if c.holder, err = c.newID("n-"); err != nil {
		return nil, err
	}
	if c.m, err = newMetrics(o.Registerer); err != nil {
		return nil, err
	}
	return c, nil
}

// Start starts the background work. It is idempotent.
func (c *Coordinator) Start() {
	c.life.Lock()
	started := c.life.started
	c.life.started = true
	c.life.Unlock()
	if started {
		return
	}
	c.spawn(func() { c.every(c.o.SweepInterval, c.sweep) })
	c.spawn(func() { c.every(c.o.LagInterval, c.measure) })
}

// Close answers whoever waits for records, waits for what is under way until ctx ends, and cuts it short then. It may be called more than once.
func (c *Coordinator) Close(ctx context.Context) error {
	c.life.Lock()
	first := !c.life.closing
	c.life.closing = true
	if first {
		close(c.life.draining)
		c.life.closed = true
	}
	c.life.Unlock()
	if !first {
		<-c.life.ended
		return c.life.err
	}
	stop := context.AfterFunc(ctx, func() { c.cancel(errClosed) })
	defer stop()
	c.life.running.Wait()
	if ctx.Err() != nil {
		c.life.err = context.Cause(ctx)
	}
	c.cancel(errClosed)
	close(c.life.ended)
	return c.life.err
}

// spawn runs f in a goroutine that Close waits for; false when the coordinator is closed.
func (c *Coordinator) spawn(f func()) bool {
	c.life.Lock()
	defer c.life.Unlock()
	if c.life.closed {
		return false
	}
	c.life.running.Go(f)
	return true
}

// every calls f at each interval until the coordinator is closed.
func (c *Coordinator) every(d time.Duration, f func(ctx context.Context)) {
	t := c.o.Clock.NewTicker(d)
	defer t.Stop()
	for {
		select {
		case <-t.Chan():
			ctx, cancel := c.bounded(c.ctx)
			f(ctx)
			cancel()
		case <-c.life.draining:
			return
		}
	}
}

// bounded gives a context that ends after CallTimeout by the coordinator's clock.
func (c *Coordinator) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	bounded, cancel := context.WithCancelCause(ctx)
	t := c.o.Clock.AfterFunc(c.o.CallTimeout, func() { cancel(context.DeadlineExceeded) })
	return bounded, func() { t.Stop(); cancel(context.Canceled) }
}

// pause waits.
func (c *Coordinator) pause(ctx context.Context, d time.Duration) error {
	t := c.o.Clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.Chan():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// jitter gives between half of d and d.
func (c *Coordinator) jitter(d time.Duration) time.Duration {
	c.random.Lock()
	defer c.random.Unlock()
	var b [1]byte
	if _, err := io.ReadFull(c.o.Rand, b[:]); err != nil {
		return d
	}
	return d/2 + d/2*time.Duration(b[0])/256
}

func (c *Coordinator) newID(prefix string) (string, error) {
	c.random.Lock()
	defer c.random.Unlock()
	var b [15]byte
	if _, err := io.ReadFull(c.o.Rand, b[:]); err != nil {
		return "", api.Errorf(api.CodeInternal, "draw an ID: %w", err)
	}
	return prefix + strings.ToLower(base32.HexEncoding.EncodeToString(b[:])), nil
}

// writer gives a name for what is noted once.
func (c *Coordinator) writer() string {
	return c.holder + "." + strconv.FormatUint(c.writes.Add(1), 36)
}

func (c *Coordinator) now() int64 { return c.o.Clock.Now().UnixMilli() }

// resolve gives the group of that name. UNKNOWN_GROUP, unless create.
func (c *Coordinator) resolve(ctx context.Context, n Name, create bool) (*group, error) {
	meta, err := c.o.Catalog.Group(n.Tenant, n.Group)
	if api.CodeOf(err) == api.CodeUnknownGroup {
		if create {
			meta, _, err = c.o.Catalog.PutGroup(ctx, n.Tenant, n.Group)
		} else if err = c.o.View.Sync(ctx); err == nil {
			meta, err = c.o.Catalog.Group(n.Tenant, n.Group)
		}
	}
	if err != nil {
		return nil, err
	}
	return c.group(meta), nil
}

func (c *Coordinator) group(meta *metadata.ConsumerGroup) *group {
	c.known.Lock()
	defer c.known.Unlock()
	g := c.known.byID[meta.ID]
	if g == nil {
		g = &group{meta: meta}
		c.known.byID[meta.ID] = g
	}
	g.used.Store(c.now())
	return g
}

// with calls f with the group of that name. Should it turn out to have been deleted, f is called again with the one that has its name now.
func (c *Coordinator) with(ctx context.Context, n Name, create bool, f func(g *group) error) error {
	var err error
	for range 5 {
		var g *group
		if g, err = c.resolve(ctx, n, create); err != nil {
			return err
		}
		if err = f(g); !errors.Is(err, errGone) {
			return err
		}
		c.drop(g)
	}
	return err
}

// drop forgets a group of this node.
func (c *Coordinator) drop(g *group) {
	c.known.Lock()
	defer c.known.Unlock()
	if c.known.byID[g.meta.ID] == g {
		delete(c.known.byID, g.meta.ID)
	}
}

// all lists the groups that this node has met.
func (c *Coordinator) all() []*group {
	c.known.Lock()
	defer c.known.Unlock()
	out := make([]*group, 0, len(c.known.byID))
	for _, g := range c.known.byID {
		out = append(out, g)
	}
	return out
}

// topics looks topics up by name. Those that do not exist are left out.
func (c *Coordinator) topics(tenant string, names []string) (map[string]topicView, error) {
	out := make(map[string]topicView, len(names))
	for _, name := range names {
		t, err := c.o.View.Topic(tenant, name)
		switch {
		case err == nil:
			out[name] = topicView{ID: t.ID, Partitions: t.Config.Partitions}
		case api.CodeOf(err) != api.CodeUnknownTopic:
			return nil, err
		}
	}
	return out, nil
}

// topic gives a topic by name; UNKNOWN_TOPIC is not said before the log was asked.
func (c *Coordinator) topic(ctx context.Context, tenant, name string) (*metadata.Topic, error) {
	t, err := c.o.View.Topic(tenant, name)
	if api.CodeOf(err) != api.CodeUnknownTopic {
		return t, err
	}
	if err := c.o.View.Sync(ctx); err != nil {
		return nil, err
	}
	return c.o.View.Topic(tenant, name)
}

// Errors.

// errGone says that a group was deleted; another one may have its name.
var errGone = &api.Error{Code: api.CodeUnknownGroup, Detail: "the group was deleted"}

func staleGeneration(n Name, generation int64) error {
	return api.Errorf(api.CodeStaleGeneration, "group %q is in generation %d: heartbeat to learn of it, or join again", n.Group, generation).With("generation", generation)
}

func mustRejoin(n Name, generation int64) error {
	return api.Errorf(api.CodeStaleGeneration, "the membership of group %q has ended: join again", n.Group).With("generation", generation)
}

func liveMembers(n int) error {
	if n == 1 {
		return api.Errorf(api.CodeConflict, "the group has a live member: stop it first")
	}
	return api.Errorf(api.CodeConflict, "the group has %d live members: stop them first", n)
}

func draining() error {
	return &api.Error{Code: api.CodeLeasesUnavailable, Detail: "this node is shutting down", RetryAfter: time.Second}
}

func unknownOutcome(ctx context.Context) error {
	return &api.Error{Code: api.CodeOutcomeUnknown, Detail: "the request ended before its outcome was known; it may be repeated", Cause: context.Cause(ctx)}
}

// fenced says whether an append failed because its generation is over, or is not known any more.
func fenced(err error) bool {
	var e *api.Error
	if !errors.As(err, &e) {
		return false
	}
	_, epoch := e.Extra["epoch"]
	return e.Code == api.CodeProducerFenced || e.Code == api.CodeInvalidRequest && epoch
}

var _ Journal = (*journal.Groups)(nil)
