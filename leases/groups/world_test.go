package groups

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/fetch"
	"github.com/forebaymq/forebay/ingest"
	"github.com/forebaymq/forebay/internal/redistest"
	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/leases/store"
	"github.com/forebaymq/forebay/metadata"
	objmem "github.com/forebaymq/forebay/objectstore/mem"
	"github.com/forebaymq/forebay/segment"
)

// fabric is a whole fabric in memory with nodes that come and go: the real log, ingest, fetch, journal and store, over an in-process Redis, reached
// without sockets. It runs within a synctest bubble, so that time passes only when everybody waits.
type fabric struct {
	t       testing.TB
	meta    *metadata.MemDriver
	objects *objmem.Store
	redis   *miniredis.Miniredis
	url     string // of another Redis, "" = the one in process
	born    int
	nodes   []*node
}

// node is one node.
type node struct {
	f      *fabric
	log    *metadata.Log
	in     *ingest.Ingester
	read   *fetch.Fetcher
	client *redis.Client
	store  *store.Store
	jlog   *testLog
	*Coordinator
	reg      *prometheus.Registry
	onDelete func() error  // before a group's name is free; nil = nothing
	cut      chan struct{} // closed when the node is killed: it reaches nothing any more
	once     sync.Once
}

func newFabric(t testing.TB) *fabric {
	f := &fabric{t: t, meta: metadata.NewMemDriver(metadata.MemOptions{}), objects: objmem.New(objmem.Options{}), redis: miniredis.NewMiniRedis()}
	f.redis.ClockTTL(true)
	t.Cleanup(func() {
		for _, n := range f.nodes {
			n.stop()
		}
		f.redis.Close()
		if err := f.meta.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// errCut is what a node that was killed gets from everything.
var errCut = errors.New("the node was killed")

func (n *node) dead() bool {
	select {
	case <-n.cut:
		return true
	default:
		return false
	}
}

// lockedRand is a seeded source for several users.
type lockedRand struct {
	mu sync.Mutex
	r  io.Reader
}

func (l *lockedRand) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.r.Read(p)
}

// node starts a node.
func (f *fabric) node() *node { return f.nodeWith(nil) }

// quiet is for tests in which much time passes: an in-process Redis takes its time for scripts.
func quiet(o *Options) { o.SweepInterval, o.LagInterval = 24*time.Hour, 24*time.Hour }

func (f *fabric) nodeWith(change func(*Options)) *node {
	f.t.Helper()
	f.born++
	n := &node{f: f, cut: make(chan struct{}), reg: prometheus.NewRegistry()}
	name := fmt.Sprintf("n%d", f.born)
	rng := &lockedRand{r: rand.NewChaCha8([32]byte{1: byte(f.born)})}
	logger := slog.New(slog.DiscardHandler)
	if os.Getenv("FOREBAY_TEST_LOG") != "" {
		logger = slog.New(slog.NewTextHandler(f.t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})).With("node", name)
	}
	ctx := f.t.Context()
	must := func(err error) {
		f.t.Helper()
		if err != nil {
			f.t.Fatal(err)
		}
	}
	var err error
	n.log, err = metadata.Open(ctx, metadata.Options{Driver: f.meta.Peer(), Store: f.objects, NodeID: name, Shards: 2, NoHousekeeping: true, Entropy: rng})
	must(err)
	n.in, err = ingest.New(ingest.Options{Store: f.objects, Committer: n.log, Rand: rng, Compression: segment.CompressNone, Linger: 2 * time.Millisecond})
	must(err)
	n.read, err = fetch.New(fetch.Options{View: n.log, Store: f.objects, CacheBytes: 8 << 20})
	must(err)
	n.client = redis.NewClient(&redis.Options{
		Addr:                     "127.0.0.1:6379", // never dialed, and a number: no name is to be looked up
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		DisableIdentity:          true,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			if n.dead() {
				return nil, errCut
			}
			return redistest.DialBuffered(f.redis)
		},
		MaxRetries: -1,
	})
	so := store.Options{Client: n.client, Fabric: "f", Instance: name, Rand: rng, Logger: logger}
	if f.url != "" {
		so.Client, so.URL = nil, f.url
	}
	n.store, err = store.New(ctx, so)
	must(err)
	gs, err := store.NewGroupStore(n.store)
	must(err)
	n.jlog = &testLog{n: n}
	j, err := journal.New(journal.Options{Log: n.jlog, Logger: logger})
	must(err)
	o := Options{Store: gs, Journal: journal.NewGroups(j, n.jlog), View: n.log, Catalog: &testCatalog{n.log, n}, Reader: testReader{n},
		Rand: rng, Logger: logger, Registerer: n.reg}
	if change != nil {
		change(&o)
	}
	n.Coordinator, err = New(o)
	must(err)
	n.Start()
	f.nodes = append(f.nodes, n)
	return n
}

// kill ends the node as a crash does: from one moment on nothing that it does reaches anything.
func (n *node) kill() {
	n.once.Do(func() {
		close(n.cut)
		n.client.Close()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		n.end(ctx)
	})
}

// stop ends the node in order.
func (n *node) stop() {
	n.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		n.end(ctx)
		n.client.Close()
	})
}

func (n *node) end(ctx context.Context) {
	n.Close(ctx)
	n.store.Close()
	n.read.Close()
	n.in.Close(ctx)
	n.log.Close()
}

// testCatalog can hold a node between the fence and what follows.
type testCatalog struct {
	*metadata.Log
	n *node
}

func (c *testCatalog) StartProducer(ctx context.Context, tenant, id string) (int64, error) {
	if c.n.dead() {
		return 0, api.Errorf(api.CodeMetadataUnavailable, "%w", errCut)
	}
	return c.Log.StartProducer(ctx, tenant, id)
}

func (c *testCatalog) DeleteGroupByID(ctx context.Context, id metadata.GroupID) (*metadata.ConsumerGroup, error) {
	if c.n.onDelete != nil {
		if err := c.n.onDelete(); err != nil {
			return nil, err
		}
	}
	return c.Log.DeleteGroupByID(ctx, id)
}

// testLog is the log as the journal sees it. hold is called before a fenced append; it may wait, or fail.
type testLog struct {
	n    *node
	mu   sync.Mutex
	hold func(epoch int64) error
}

func (l *testLog) onAppend(f func(epoch int64) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hold = f
}

func (l *testLog) EnsureTopic(ctx context.Context, tenant, name string, partitions int) (metadata.TopicID, error) {
	if t, err := l.n.log.Topic(tenant, name); err == nil {
		return t.ID, nil
	}
	t, _, err := l.n.log.PutTopic(ctx, tenant, name, func(current *metadata.Topic) (api.TopicConfig, error) {
		if current != nil {
			return current.Config, nil
		}
		c := api.DefaultTopicConfig()
		c.Partitions, c.RetentionTime, c.Cleanup = partitions, 0, api.CleanupCompact
		return c, nil
	})
	if err != nil {
		return 0, err
	}
	return t.ID, nil
}

func (l *testLog) Append(ctx context.Context, tenant, topic string, records []journal.Record) ([]int64, error) {
	return l.append(ctx, tenant, topic, nil, records)
}

func (l *testLog) AppendFenced(ctx context.Context, tenant, topic string, p metadata.Producer, records []journal.Record) ([]int64, error) {
	l.mu.Lock()
	hold := l.hold
	l.mu.Unlock()
	if hold != nil {
		if err := hold(p.Epoch); err != nil {
			return nil, err
		}
	}
	return l.append(ctx, tenant, topic, &p, records)
}

func (l *testLog) append(ctx context.Context, tenant, topic string, p *metadata.Producer, records []journal.Record) ([]int64, error) {
	t, err := l.n.log.Topic(tenant, topic)
	if err != nil {
		return nil, err
	}
	rs, ps := make([]segment.Record, len(records)), make([]int32, len(records))
	for i, r := range records {
		rs[i] = segment.Record{ProducerTime: segment.NoTime, DeliverAt: segment.NoTime, Kind: segment.KindData, Key: r.Key, Value: r.Value}
		ps[i] = r.Partition
	}
	return l.n.append(ctx, t, p, rs, ps)
}

func (n *node) append(ctx context.Context, t *metadata.Topic, p *metadata.Producer, rs []segment.Record, ps []int32) ([]int64, error) {
	if n.dead() {
		return nil, api.Errorf(api.CodeMetadataUnavailable, "%w", errCut)
	}
	res, err := n.in.Append(ctx, &ingest.Request{Tenant: t.Tenant, Producer: p, Topics: []ingest.TopicRecords{{Topic: t, Records: rs, Partitions: ps}}})
	if err != nil {
		return nil, err
	}
	return res.Topics[0].Offsets, nil
}

func (l *testLog) Read(ctx context.Context, tenant string, topic metadata.TopicID, partition int32, offset, maxBytes int64) ([]journal.Record, int64, int64, error) {
	res, err := l.n.read.Read(ctx, fetch.ReadRequest{Tenant: tenant, TopicID: topic, Partition: partition, Offset: offset, MaxRecords: 10_000, MaxBytes: maxBytes})
	if err != nil {
		return nil, 0, 0, err
	}
	out := make([]journal.Record, len(res.Records))
	for i, r := range res.Records {
		out[i] = journal.Record{Partition: partition, Offset: r.Offset, Key: r.Key, Value: r.Value}
	}
	return out, res.NextOffset, res.Head, nil
}

type testReader struct{ n *node }

func (r testReader) Read(ctx context.Context, tenant string, topic metadata.TopicID, partition int32, offset int64, maxRecords int, maxBytes int64) ([]segment.Record, int64, error) {
	res, err := r.n.read.Read(ctx, fetch.ReadRequest{Tenant: tenant, TopicID: topic, Partition: partition, Offset: offset, MaxRecords: maxRecords, MaxBytes: maxBytes, Stale: true})
	var bad *fetch.UnreadableError
	if errors.As(err, &bad) {
		return nil, 0, &UnreadableError{Next: bad.Next, Cause: err}
	}
	if err != nil {
		return nil, 0, err
	}
	return res.Records, res.NextOffset, nil
}

func (r testReader) OffsetForTime(ctx context.Context, topic metadata.TopicID, partition int32, ms int64) (int64, bool, error) {
	return r.n.read.OffsetForTime(ctx, topic, partition, ms)
}

// What tests do.

const tenant = "acme"

func named(group string) Name { return Name{Tenant: tenant, Group: group} }

// topic makes or changes a topic.
func (n *node) makeTopic(name string, partitions int) *metadata.Topic {
	n.f.t.Helper()
	t, _, err := n.log.PutTopic(n.f.t.Context(), tenant, name, func(*metadata.Topic) (api.TopicConfig, error) {
		c := api.DefaultTopicConfig()
		c.Partitions = partitions
		return c, nil
	})
	if err != nil {
		n.f.t.Fatal(err)
	}
	return t
}

func (n *node) deleteTopic(name string) {
	n.f.t.Helper()
	if err := n.log.DeleteTopic(n.f.t.Context(), tenant, name); err != nil {
		n.f.t.Fatal(err)
	}
}

// publish appends records to one partition and gives the offset of the first.
func (n *node) publish(topic string, partition int32, values ...string) int64 {
	n.f.t.Helper()
	t, err := n.log.Topic(tenant, topic)
	if err != nil {
		n.f.t.Fatal(err)
	}
	rs := make([]segment.Record, len(values))
	for i, v := range values {
		rs[i] = segment.Record{ProducerTime: segment.NoTime, DeliverAt: segment.NoTime, Kind: segment.KindText, Value: []byte(v)}
	}
	offsets, err := n.append(n.f.t.Context(), t, nil, rs, slices.Repeat([]int32{partition}, len(rs)))
	if err != nil {
		n.f.t.Fatal(err)
	}
	return offsets[0]
}

// gauge gives the value of a metric without labels, or the sum of a metric with some.
func (n *node) gauge(name string) (total float64) {
	n.f.t.Helper()
	families, err := n.reg.Gather()
	if err != nil {
		n.f.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				total += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
			return total
		}
	}
	n.f.t.Fatalf("there is no metric %s", name)
	return 0
}

func (n *node) trim(t *metadata.Topic, partition int32, logStart int64) {
	n.f.t.Helper()
	r, err := n.log.Do(n.f.t.Context(), &metadata.Trim{TopicID: t.ID, Partition: partition, LogStart: logStart}, nil)
	if err != nil || r.Err != nil {
		n.f.t.Fatal(err, r.Err)
	}
}

// peer is a member as a well-behaved client is one.
type peer struct {
	n          *node
	group      string
	topics     []string
	instance   string
	id         string
	generation int64
	start      Start
	session    time.Duration
	at         map[TopicPartition]int64 // what it holds, and where it is
	revoked    []TopicPartition
}

func (n *node) peer(group string, topics ...string) *peer {
	return &peer{n: n, group: group, topics: topics, start: Earliest, at: map[TopicPartition]int64{}}
}

func (p *peer) tryJoin() error {
	j, err := p.n.Join(p.n.f.t.Context(), JoinRequest{Name: named(p.group), Topics: p.topics, MemberID: p.id, InstanceID: p.instance, Start: p.start, SessionTimeout: p.session})
	if err != nil {
		return err
	}
	p.id, p.generation = j.MemberID, j.Generation
	p.take(j.Assignment, nil)
	return nil
}

func (p *peer) join() *peer {
	p.n.f.t.Helper()
	if err := p.tryJoin(); err != nil {
		p.n.f.t.Fatal(err)
	}
	return p
}

// take makes what it holds what it is told to.
func (p *peer) take(as []Assigned, revoke []TopicPartition) {
	now := map[TopicPartition]int64{}
	for _, a := range as {
		if at, ok := p.at[a.TopicPartition]; ok {
			now[a.TopicPartition] = at
		} else {
			now[a.TopicPartition] = a.Offset
		}
	}
	p.revoked = nil
	for _, r := range revoke {
		if at, ok := p.at[r]; ok {
			now[r] = at
			p.revoked = append(p.revoked, r)
		}
	}
	p.at = now
}

func (p *peer) owned() []TopicPartition {
	var out []TopicPartition
	for at := range p.at {
		out = append(out, at)
	}
	slices.SortFunc(out, compare)
	return out
}

func (p *peer) tryBeat() (*Beat, error) {
	b, err := p.n.Heartbeat(p.n.f.t.Context(), HeartbeatRequest{Name: named(p.group), MemberID: p.id, Generation: p.generation, Owned: p.owned(), OwnedSet: true})
	if err != nil {
		return nil, err
	}
	p.generation = b.Generation
	p.take(b.Assignment, b.Revoke)
	return b, nil
}

func (p *peer) beat() *Beat {
	p.n.f.t.Helper()
	b, err := p.tryBeat()
	if err != nil {
		p.n.f.t.Fatal(err)
	}
	return b
}

// letGo gives up what it was told to.
func (p *peer) letGo() {
	for _, at := range p.revoked {
		delete(p.at, at)
	}
	p.revoked = nil
}

// calm lets all peers heartbeat and let go until nothing changes any more.
func calm(t testing.TB, ps ...*peer) {
	t.Helper()
	for range 20 {
		changed := false
		for _, p := range ps {
			had := len(p.at)
			before := p.generation
			p.beat()
			changed = changed || p.generation != before || len(p.revoked) > 0 || len(p.at) != had
			p.letGo()
		}
		if !changed {
			return
		}
	}
	t.Fatal("the group does not come to rest")
}

// commit commits where it is.
func (p *peer) commit(ats ...TopicPartition) error {
	r := CommitRequest{Name: named(p.group), MemberID: p.id, Generation: p.generation}
	for _, at := range ats {
		r.Offsets = append(r.Offsets, Offset{TopicPartition: at, Offset: p.at[at]})
	}
	return p.n.Commit(p.n.f.t.Context(), r)
}

func (n *node) describe(group string) *Description {
	n.f.t.Helper()
	d, err := n.Group(n.f.t.Context(), named(group))
	if err != nil {
		n.f.t.Fatal(err)
	}
	return d
}

// committed gives the offsets of a group, by partition.
func (n *node) committed(group string) map[TopicPartition]int64 {
	n.f.t.Helper()
	os, err := n.Offsets(n.f.t.Context(), named(group))
	if err != nil {
		n.f.t.Fatal(err)
	}
	out := map[TopicPartition]int64{}
	for _, o := range os {
		out[o.TopicPartition] = o.Offset
	}
	return out
}

func wantCode(t testing.TB, err error, code api.Code) *api.Error {
	t.Helper()
	var e *api.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("%v, want %s", err, code)
	}
	return e
}
