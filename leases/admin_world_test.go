package leases

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
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

// fabric is a whole fabric in memory with nodes that come and go: the real log, ingest, fetch, journal and lease store, over an in-process Redis,
// reached without sockets. It runs within a synctest bubble, so that time passes only when everybody waits.
type fabric struct {
	t       *testing.T
	meta    *metadata.MemDriver
	objects *objmem.Store
	redis   *miniredis.Miniredis
	born    int
	nodes   []*fabricNode
}

// fabricNode is one node.
type fabricNode struct {
	f      *fabric
	log    *metadata.Log
	in     *ingest.Ingester
	read   *fetch.Fetcher
	client *redis.Client
	store  *store.Store
	engine *Engine
	reg    *prometheus.Registry
	cut    chan struct{} // closed when the node is killed: it reaches nothing any more
	once   sync.Once
}

func newFabric(t *testing.T) *fabric {
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

func (n *fabricNode) dead() bool {
	select {
	case <-n.cut:
		return true
	default:
		return false
	}
}

// node starts a node. change may be nil.
func (f *fabric) node(change func(*Options)) *fabricNode {
	f.t.Helper()
	f.born++
	n := &fabricNode{f: f, cut: make(chan struct{}), reg: prometheus.NewRegistry()}
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
	n.store, err = store.New(ctx, store.Options{Client: n.client, Fabric: "f", Instance: name, Rand: rng, Logger: logger})
	must(err)
	j, err := journal.New(journal.Options{Log: &fabricLog{n}, Logger: logger})
	must(err)
	o := Options{
		Store: n.store, Journal: j, View: n.log, Catalog: n.log, Reader: fabricReader{n}, Publisher: fabricPublisher{n},
		CustodyInterval: 5 * time.Second, Rand: rng, Logger: logger, Registerer: n.reg,
	}
	if change != nil {
		change(&o)
	}
	n.engine, err = New(o)
	must(err)
	n.engine.Start()
	f.nodes = append(f.nodes, n)
	return n
}

// calm is for tests in which much time passes and nothing lapses: an in-process Redis takes its time for scripts.
func calm(o *Options) {
	o.SweepInterval, o.AuditInterval, o.EvictInterval, o.CustodyInterval = time.Hour, time.Hour, time.Hour, 10*time.Second
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

// kill ends the node as a crash does: from one moment on nothing that it does reaches anything.
func (n *fabricNode) kill() {
	n.once.Do(func() {
		close(n.cut)
		n.client.Close()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		n.end(ctx)
	})
}

// stop ends the node in order.
func (n *fabricNode) stop() {
	n.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		n.end(ctx)
		n.client.Close()
	})
}

func (n *fabricNode) end(ctx context.Context) {
	n.engine.Close(ctx)
	n.store.Close()
	n.read.Close()
	n.in.Close(ctx)
	n.log.Close()
}

// awaitTask waits until a task is in a state, for a minute at most.
func (n *fabricNode) awaitTask(name Name, id, state string) *Task {
	n.f.t.Helper()
	for range 600 {
		t, err := n.engine.Task(n.f.t.Context(), name, id)
		if err != nil {
			n.f.t.Fatal(err)
		}
		if t.State == state {
			return t
		}
		time.Sleep(100 * time.Millisecond)
	}
	n.f.t.Fatalf("task %s is not %s within a minute", id, state)
	return nil
}

// trim raises the start of a partition, as retention does.
func (n *fabricNode) trim(topic *metadata.Topic, partition int32, logStart int64) {
	n.f.t.Helper()
	r, err := n.log.Do(n.f.t.Context(), &metadata.Trim{TopicID: topic.ID, Partition: partition, LogStart: logStart}, nil)
	if err != nil || r.Err != nil {
		n.f.t.Fatal(err, r.Err)
	}
}

// hole takes the batch at an offset out of a partition, as compaction by key does.
func (n *fabricNode) hole(topic *metadata.Topic, partition int32, offset int64) {
	n.f.t.Helper()
	es, _, err := n.log.Locate(topic.ID, partition, offset, 1)
	if err != nil || len(es) != 1 || es[0].Base != offset || es[0].Last != offset {
		n.f.t.Fatalf("offset %d is not a batch of its own: %+v, %v", offset, es, err)
	}
	r, err := n.log.Do(n.f.t.Context(), &metadata.Replace{TopicID: topic.ID, Partition: partition, From: offset, Through: offset,
		Remove: []metadata.ReplaceRef{{Segment: es[0].Segment.ID, Pos: es[0].Ref.Pos}}}, nil)
	if err != nil || r.Err != nil {
		n.f.t.Fatal(err, r.Err)
	}
}

// counter gives the value of a counter of a node, those of all labels together.
func counter(t *testing.T, n *fabricNode, name string) float64 {
	t.Helper()
	total, found := gathered(t, n, name)
	if !found {
		t.Fatalf("there is no metric %s", name)
	}
	return total
}

// gathered adds up a metric.
func gathered(t *testing.T, n *fabricNode, name string) (total float64, found bool) {
	t.Helper()
	families, err := n.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			total += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			found = true
		}
	}
	return total, found
}

// fabricLog is the log as the journal sees it.
type fabricLog struct{ n *fabricNode }

func (l *fabricLog) EnsureTopic(ctx context.Context, tenant, name string, partitions int) (metadata.TopicID, error) {
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

func (l *fabricLog) Append(ctx context.Context, tenant, topic string, records []journal.Record) ([]int64, error) {
	if l.n.dead() {
		return nil, api.Errorf(api.CodeMetadataUnavailable, "%w", errCut)
	}
	t, err := l.n.log.Topic(tenant, topic)
	if err != nil {
		return nil, err
	}
	rs, ps := make([]segment.Record, len(records)), make([]int32, len(records))
	for i, r := range records {
		rs[i] = segment.Record{ProducerTime: segment.NoTime, DeliverAt: segment.NoTime, Kind: segment.KindData, Key: r.Key, Value: r.Value}
		ps[i] = r.Partition
	}
	return fabricPublisher{l.n}.Publish(ctx, t, rs, ps)
}

func (l *fabricLog) Read(ctx context.Context, tenant string, topic metadata.TopicID, partition int32, offset, maxBytes int64) ([]journal.Record, int64, int64, error) {
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

type fabricReader struct{ n *fabricNode }

func (r fabricReader) Read(ctx context.Context, tenant string, topic metadata.TopicID, partition int32, offset int64, maxRecords int, maxBytes int64) ([]segment.Record, int64, error) {
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

func (r fabricReader) OffsetForTime(ctx context.Context, topic metadata.TopicID, partition int32, ms int64) (int64, bool, error) {
	return r.n.read.OffsetForTime(ctx, topic, partition, ms)
}

type fabricPublisher struct{ n *fabricNode }

func (p fabricPublisher) Publish(ctx context.Context, topic *metadata.Topic, records []segment.Record, partitions []int32) ([]int64, error) {
	if p.n.dead() {
		return nil, api.Errorf(api.CodeMetadataUnavailable, "%w", errCut)
	}
	res, err := p.n.in.Append(ctx, &ingest.Request{Tenant: topic.Tenant, Topics: []ingest.TopicRecords{{Topic: topic, Records: records, Partitions: partitions}}})
	if err != nil {
		return nil, err
	}
	return res.Topics[0].Offsets, nil
}

// What tests do.

const fabricTenant = "acme"

func sub(topic, name string) Name {
	return Name{Tenant: fabricTenant, Topic: topic, Subscription: name}
}

// topic makes a topic.
func (n *fabricNode) topic(name string, partitions int, change func(*api.TopicConfig)) *metadata.Topic {
	n.f.t.Helper()
	t, _, err := n.log.PutTopic(n.f.t.Context(), fabricTenant, name, func(*metadata.Topic) (api.TopicConfig, error) {
		c := api.DefaultTopicConfig()
		c.Partitions = partitions
		if change != nil {
			change(&c)
		}
		return c, nil
	})
	if err != nil {
		n.f.t.Fatal(err)
	}
	return t
}

// subscribe makes or changes a subscription that starts at the earliest record.
func (n *fabricNode) subscribe(name Name, change func(*api.SubscriptionConfig)) *metadata.Subscription {
	n.f.t.Helper()
	s, _, err := n.engine.PutSubscription(n.f.t.Context(), name, Start{Earliest: true}, func(*metadata.Subscription) (api.SubscriptionConfig, error) {
		c := api.DefaultSubscriptionConfig()
		if change != nil {
			change(&c)
		}
		return c, nil
	})
	if err != nil {
		n.f.t.Fatal(err)
	}
	return s
}

// publish appends records to one partition and gives the offset of the first.
func (n *fabricNode) publish(topic string, partition int32, values ...string) int64 {
	n.f.t.Helper()
	rs := make([]segment.Record, len(values))
	for i, v := range values {
		rs[i] = segment.Record{ProducerTime: segment.NoTime, DeliverAt: segment.NoTime, Kind: segment.KindText, Value: []byte(v)}
	}
	return n.append(topic, partition, rs)
}

func (n *fabricNode) append(topic string, partition int32, rs []segment.Record) int64 {
	n.f.t.Helper()
	t, err := n.log.Topic(fabricTenant, topic)
	if err != nil {
		n.f.t.Fatal(err)
	}
	ps := make([]int32, len(rs))
	for i := range ps {
		ps[i] = partition
	}
	offsets, err := fabricPublisher{n}.Publish(n.f.t.Context(), t, rs, ps)
	if err != nil {
		n.f.t.Fatal(err)
	}
	return offsets[0]
}

// lease leases up to max records, without waiting.
func (n *fabricNode) lease(name Name, max int) []Message {
	n.f.t.Helper()
	ms, err := n.engine.Lease(n.f.t.Context(), LeaseRequest{Name: name, Max: max})
	if err != nil {
		n.f.t.Fatal(err)
	}
	return ms
}

func receipts(ms []Message) []string {
	out := make([]string, len(ms))
	for i := range ms {
		out[i] = ms[i].Receipt
	}
	return out
}

// settle acks or nacks, the latter without delay, and fails the test when a receipt is refused.
func (n *fabricNode) settle(name Name, kind SettleKind, reason string, ms []Message) {
	n.f.t.Helper()
	now := time.Duration(0)
	rs, err := n.engine.Settle(n.f.t.Context(), SettleRequest{Name: name, Kind: kind, Receipts: receipts(ms), Delay: &now, Reason: reason})
	if err != nil {
		n.f.t.Fatal(err)
	}
	for _, r := range rs {
		if r.Code != "" {
			n.f.t.Fatalf("receipt %s: %s", r.Receipt, r.Code)
		}
	}
}

// ackAll leases and acks until nothing is left, and gives the values in the order of delivery.
func (n *fabricNode) ackAll(name Name) []string {
	n.f.t.Helper()
	var out []string
	for {
		ms := n.lease(name, 100)
		if len(ms) == 0 {
			return out
		}
		for i := range ms {
			out = append(out, string(ms[i].Record.Value))
		}
		n.settle(name, Ack, "", ms)
	}
}

// killAll nacks everything that can be leased until nothing is left.
func (n *fabricNode) killAll(name Name, reason string) {
	n.f.t.Helper()
	for ms := n.lease(name, 1000); len(ms) > 0; ms = n.lease(name, 1000) {
		n.settle(name, Nack, reason, ms)
	}
}

func (n *fabricNode) stats(name Name) *Stats {
	n.f.t.Helper()
	s, err := n.engine.Subscription(n.f.t.Context(), name)
	if err != nil {
		n.f.t.Fatal(err)
	}
	return s
}

// dead lists all dead letters.
func (n *fabricNode) deadLetters(name Name, withRecords bool) []DeadLetter {
	n.f.t.Helper()
	var out []DeadLetter
	limit := 7
	for after := ""; ; limit = 1000 {
		page, next, err := n.engine.DeadLetters(n.f.t.Context(), name, after, limit, withRecords)
		if err != nil {
			n.f.t.Fatal(err)
		}
		out = append(out, page...)
		if after = next; after == "" {
			return out
		}
	}
}

// contents reads all records of a topic.
func (n *fabricNode) contents(topic string) []segment.Record {
	n.f.t.Helper()
	t, err := n.log.Topic(fabricTenant, topic)
	if err != nil {
		n.f.t.Fatal(err)
	}
	var out []segment.Record
	for p := range int32(t.Config.Partitions) {
		for offset := int64(0); ; {
			res, err := n.read.Read(n.f.t.Context(), fetch.ReadRequest{Tenant: fabricTenant, TopicID: t.ID, Partition: p, Offset: offset, MaxRecords: 1000, MaxBytes: 1 << 20})
			if err != nil {
				n.f.t.Fatal(err)
			}
			out = append(out, res.Records...)
			if offset = res.NextOffset; offset >= res.Head {
				break
			}
		}
	}
	return out
}

// abandon releases what a node has that was cut off.
func (n *fabricNode) abandon() {
	n.once.Do(func() {
		n.client.Close()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		n.end(ctx)
	})
}
