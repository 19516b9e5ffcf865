package compactor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/fetch"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/metadata/metafault"
	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/objectstore/faults"
	"github.com/forebaymq/forebay/objectstore/retry"
	"github.com/forebaymq/forebay/segment"
)

// mortal is the store as one process sees it that dies at its nth request: before it had its effect, or after. Nothing that the process
// does later has one.
type mortal struct {
	objectstore.Store
	left  atomic.Int64
	after bool
}

var errDead = errors.New("this process was killed")

// pass says whether a request has its effect, and whether its answer arrives.
func (m *mortal) pass() (effect, answer bool) {
	n := m.left.Add(-1)
	return n > 0 || n == 0 && m.after, n > 0
}

func die[T any](m *mortal, call func() (T, error)) (T, error) {
	effect, answer := m.pass()
	var out T
	var err error
	if effect {
		out, err = call()
	}
	if !answer {
		var zero T
		return zero, errDead
	}
	return out, err
}

func (m *mortal) GetRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	return die(m, func() ([]byte, error) { return m.Store.GetRange(ctx, key, off, n) })
}

func (m *mortal) GetTail(ctx context.Context, key string, n int64) (b []byte, info objectstore.Info, err error) {
	b, err = die(m, func() ([]byte, error) {
		b, i, err := m.Store.GetTail(ctx, key, n)
		info = i
		return b, err
	})
	return b, info, err
}

func (m *mortal) PutIfAbsent(ctx context.Context, key string, body []byte, id string) (objectstore.Info, error) {
	return die(m, func() (objectstore.Info, error) { return m.Store.PutIfAbsent(ctx, key, body, id) })
}

func (m *mortal) List(ctx context.Context, prefix, after string, limit int) (objectstore.Page, error) {
	return die(m, func() (objectstore.Page, error) { return m.Store.List(ctx, prefix, after, limit) })
}

func (m *mortal) Delete(ctx context.Context, keys ...string) error {
	_, err := die(m, func() (struct{}, error) { return struct{}{}, m.Store.Delete(ctx, keys...) })
	return err
}

func (m *mortal) Stat(ctx context.Context, key string) (objectstore.Info, error) {
	return die(m, func() (objectstore.Info, error) { return m.Store.Stat(ctx, key) })
}

// stormy is a store with faults under retries that do not wait.
func (w *world) stormy(seed uint64, rules ...faults.Rule) objectstore.Store {
	w.t.Helper()
	f, err := faults.New(w.objects, faults.Options{Plan: faults.Plan{Seed: seed, Rules: rules}})
	if err != nil {
		w.t.Fatal(err)
	}
	r, err := retry.New(f, retry.Options{Attempts: 4, Base: time.Nanosecond, Max: time.Nanosecond, PerTry: -1})
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func storm() []faults.Rule {
	reads := []objectstore.Op{objectstore.OpGetRange, objectstore.OpGetTail, objectstore.OpList, objectstore.OpStat}
	return []faults.Rule{
		{Ops: reads, Error: faults.Throttled, Probability: 0.2},
		{Ops: []objectstore.Op{objectstore.OpGetRange}, Error: faults.Truncated, Probability: 0.1},
		{Ops: []objectstore.Op{objectstore.OpPut, objectstore.OpDelete}, Error: faults.Lost, Probability: 0.15},
		{Ops: []objectstore.Op{objectstore.OpPut, objectstore.OpDelete}, Error: faults.Unknown, Probability: 0.1},
		{Ops: []objectstore.Op{objectstore.OpPut}, Error: faults.Conflict, Probability: 0.1},
	}
}

// ledger is what was acknowledged.
type ledger struct {
	sync.Mutex
	values map[metadata.PartitionKey][]string // by offset
}

func (l *ledger) get(key metadata.PartitionKey) []string {
	l.Lock()
	defer l.Unlock()
	return l.values[key][:len(l.values[key]):len(l.values[key])]
}

// sim is one simulation: a writer, compactors that die and are born again, collectors that do, readers.
type sim struct {
	w       *world
	rng     *rand.Rand
	topics  []*metadata.Topic
	ledger  ledger
	log     *metadata.Log // of the compactors, with faults
	pause   sync.RWMutex  // held by a read; the clock moves far only when nobody holds it: no read lasts longer than the read grace
	readers sync.WaitGroup
	stop    chan struct{}
	reads   atomic.Int64
	lives   int
}

// TestSimulation: whatever dies, fails or is collected meanwhile, every reader sees every record once, in order, and in the end the bucket
// has what is live and nothing else.
func TestSimulation(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { simulate(t, seed) })
	}
}

func simulate(t *testing.T, seed uint64) {
	w := newWorld(t)
	s := &sim{w: w, rng: rand.New(rand.NewPCG(seed, 99)), stop: make(chan struct{})}
	s.ledger.values = map[metadata.PartitionKey][]string{}
	s.topics = []*metadata.Topic{
		w.topic("log", func(c *api.TopicConfig) { c.Partitions, c.RetentionTime = 3, 400*24*time.Hour }),
		w.topicOf("b", "compacted", compacted, func(c *api.TopicConfig) { c.Partitions = 2 }),
		w.topicOf("b", "week", func(c *api.TopicConfig) { c.Partitions, c.RetentionTime = 2, 300*24*time.Hour }),
	}
	driver := metafault.Wrap(w.driver.Peer(), nil, nil)
	t.Cleanup(func() {
		if err := driver.Close(); err != nil {
			t.Error(err)
		}
	})
	s.log = w.openLog("n2", driver, w.objects)
	driver.SetHook(metafault.Random(seed, metafault.Rates{Lost: 0.1, MaxDelay: 100 * time.Microsecond}))
	for i := range 3 {
		s.startReader(seed, i)
	}
	k := s.newLife()
	for range 60 {
		if err := s.publish(); err != nil {
			t.Fatal(err)
		}
		if s.rng.IntN(3) > 0 {
			k = s.act(k)
		}
		if s.rng.IntN(8) == 0 {
			s.pause.Lock()
			w.clock.Advance(time.Duration(1+s.rng.IntN(40)) * time.Minute)
			s.pause.Unlock()
		}
	}
	close(s.stop)
	s.readers.Wait()
	driver.SetHook(nil)
	s.settle()
	if t.Failed() {
		return
	}
	t.Logf("%d lives, %d reads", s.lives, s.reads.Load())
	if s.reads.Load() == 0 || s.lives < 5 {
		t.Errorf("%d lives, %d reads: the simulation does not do what it says", s.lives, s.reads.Load())
	}
}

// publish commits one object.
func (s *sim) publish() error {
	var bs []batch
	for _, topic := range s.topics {
		for p := range int32(topic.Config.Partitions) {
			if s.rng.IntN(3) == 0 {
				continue
			}
			b := batch{topic: topic, partition: p}
			for range 1 + s.rng.IntN(12) {
				key := fmt.Sprint("k", s.rng.IntN(20))
				b.records = append(b.records, text(key, key+"."+strings.Repeat(fmt.Sprint(s.rng.IntN(1000)), 1+s.rng.IntN(12))))
			}
			bs = append(bs, b)
		}
	}
	if len(bs) == 0 {
		return nil
	}
	// The ledger first: a reader may see a record before publish has returned.
	s.ledger.Lock()
	for _, b := range bs {
		key := metadata.PartitionKey{Topic: b.topic.ID, Partition: b.partition}
		for _, r := range b.records {
			s.ledger.values[key] = append(s.ledger.values[key], string(r.Value))
		}
	}
	s.ledger.Unlock()
	for i, base := range s.w.publish(bs...) {
		key := metadata.PartitionKey{Topic: bs[i].topic.ID, Partition: bs[i].partition}
		if want := len(s.ledger.get(key)) - len(bs[i].records); int(base) != want {
			return fmt.Errorf("%v: base %d, want %d", key, base, want)
		}
	}
	return nil
}

// life is one process that compacts and collects.
type life struct {
	store   *mortal
	c       *Compactor
	collect *collecting
	claim   *metadata.HeldClaim
}

func (s *sim) newLife() *life {
	s.lives++
	m := &mortal{Store: s.w.stormy(s.rng.Uint64(), storm()...), after: s.rng.IntN(2) == 0}
	m.left.Store(int64(1 + s.rng.IntN(60)))
	c := s.w.compactor(func(o *Options) {
		o.Log, o.Store, o.Entropy = s.log, m, &rngReader{rand.New(rand.NewPCG(s.rng.Uint64(), 1))}
		o.Policy.KeyMapBytes, o.Policy.DirtyFraction = minKeyMapBytes, 0.2
		o.Collect = Collection{Grace: 30 * time.Minute, ReadGrace: 10 * time.Minute}
	})
	return &life{store: m, c: c}
}

func (l *life) dead() bool { return l.store.left.Load() <= 0 }

// act does some work. A life that has ended is followed by another.
func (s *sim) act(l *life) *life {
	for range 4 {
		if l.dead() {
			if l.claim != nil {
				s.release(l.claim)
			}
			l = s.newLife()
		}
		if s.rng.IntN(4) == 0 {
			s.collect(l)
			continue
		}
		shard := s.rng.IntN(worldShards)
		claim := s.take(fmt.Sprint(claimPrefix, shard))
		if err := s.log.Sync(s.w.t.Context()); err != nil {
			s.w.t.Fatal(err)
		}
		_, err := l.c.step(s.w.t.Context(), claim, shard, &findings{clean: true, sweep: s.rng.IntN(2) == 0})
		s.check(l, err)
		s.release(claim)
	}
	return l
}

// check takes errors that come from what was injected.
func (s *sim) check(l *life, err error) {
	s.w.t.Helper()
	if err != nil && !errors.Is(err, errDead) && !errors.Is(err, faults.ErrInjected) && !strings.Contains(err.Error(), errDead.Error()) {
		s.w.t.Fatalf("unexpected failure: %v", err)
	}
}

func (s *sim) collect(l *life) {
	if l.collect == nil {
		l.claim = s.take(CollectorClaim)
		l.collect = l.c.newCollecting(l.claim)
	}
	s.check(l, l.collect.round(s.w.t.Context()))
}

// take claims, on a connection without faults.
func (s *sim) take(name string) *metadata.HeldClaim {
	s.w.t.Helper()
	claim, held, err := s.w.log.Claim(s.w.t.Context(), name, time.Minute)
	if err != nil || !held {
		s.w.t.Fatalf("claim %s: %v, %v", name, held, err)
	}
	return claim
}

func (s *sim) release(c *metadata.HeldClaim) {
	s.w.t.Helper()
	if err := s.w.log.Release(s.w.t.Context(), c); err != nil {
		s.w.t.Fatal(err)
	}
}

// startReader reads all partitions from their start, over and over.
func (s *sim) startReader(seed uint64, i int) {
	f := s.w.fetcher(s.w.stormy(seed+uint64(i), faults.Rule{Ops: []objectstore.Op{objectstore.OpGetRange}, Error: faults.Throttled, Probability: 0.1}))
	rng := rand.New(rand.NewPCG(seed, uint64(i)))
	s.readers.Go(func() {
		for {
			topic := s.topics[rng.IntN(len(s.topics))]
			if err := s.readOnce(f, topic, rng.Int32N(int32(topic.Config.Partitions)), rng); err != nil {
				s.w.t.Errorf("reader %d of %s: %v", i, topic.Name, err)
				return
			}
			select {
			case <-s.stop:
				return
			default:
			}
		}
	})
}

// readOnce reads a partition from its start to the head that it meets.
func (s *sim) readOnce(f *fetch.Fetcher, topic *metadata.Topic, p int32, rng *rand.Rand) error {
	key := metadata.PartitionKey{Topic: topic.ID, Partition: p}
	offset := int64(0)
	for {
		s.pause.RLock()
		res, err := f.Read(s.w.t.Context(), fetch.ReadRequest{Tenant: topic.Tenant, TopicID: topic.ID, Partition: p, Offset: offset,
			MaxRecords: 1 + rng.IntN(50), MaxBytes: int64(1 + rng.IntN(8<<10))})
		s.pause.RUnlock()
		if errors.Is(err, faults.ErrInjected) {
			continue
		}
		if err != nil {
			return err
		}
		s.reads.Add(1)
		want := s.ledger.get(key)
		next := offset
		for _, r := range res.Records {
			if r.Offset < next || !topic.Config.Cleanup.Compacts() && r.Offset != next {
				return fmt.Errorf("read at %d gave offset %d, want %d", offset, r.Offset, next)
			}
			if string(r.Value) != want[r.Offset] {
				return fmt.Errorf("offset %d has %q, want %q", r.Offset, r.Value, want[r.Offset])
			}
			next = r.Offset + 1
		}
		if res.NextOffset < next || !topic.Config.Cleanup.Compacts() && res.NextOffset != next {
			return fmt.Errorf("read at %d ends at %d, its records at %d", offset, res.NextOffset, next)
		}
		if offset = res.NextOffset; offset >= res.Head {
			return nil
		}
	}
}

// settle lets a healthy compactor and collector finish, and checks the end.
func (s *sim) settle() {
	w, t := s.w, s.w.t
	if err := w.log.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := w.compactor(func(o *Options) { o.Collect = Collection{Grace: 30 * time.Minute, ReadGrace: 10 * time.Minute} })
	w.merged(c)
	k := c.newCollecting(s.take(lastClaim))
	for range 3 {
		w.round(k)
		w.clock.Advance(time.Hour)
	}
	w.round(k)
	f := w.fetcher(w.objects)
	for _, topic := range s.topics {
		for p := range int32(topic.Config.Partitions) {
			want := s.ledger.get(metadata.PartitionKey{Topic: topic.ID, Partition: p})
			got := w.read(f, topic, p, 0)
			if !topic.Config.Cleanup.Compacts() && len(got) != len(want) {
				t.Errorf("%s %d: %d records, want %d", topic.Name, p, len(got), len(want))
			}
			for _, r := range got {
				if string(r.Value) != want[r.Offset] {
					t.Errorf("%s %d: offset %d has %q, want %q", topic.Name, p, r.Offset, r.Value, want[r.Offset])
				}
			}
			if topic.Config.Cleanup.Compacts() {
				s.checkNewest(topic, p, got, want)
			}
		}
	}
	liveKeys := map[string]bool{}
	for shard := range w.log.Shards() {
		for _, x := range w.log.Segments(shard, [16]byte{}, 1<<20) {
			liveKeys[objectKey(&x.SegmentRef)] = true
		}
	}
	for _, key := range w.keys("") {
		if !liveKeys[key] {
			t.Errorf("garbage is left: %s", key)
		}
		delete(liveKeys, key)
	}
	for key := range liveKeys {
		t.Errorf("a live object is missing: %s", key)
	}
}

// lastClaim is the claim of the collector that ends the simulation: the last life may hold the other one.
const lastClaim = "collect-at-the-end"

// checkNewest: a compacted partition has the newest record of each key. The value of a record begins with its key and a dot.
func (s *sim) checkNewest(topic *metadata.Topic, p int32, got []segment.Record, want []string) {
	seen := map[int64]bool{}
	for _, r := range got {
		seen[r.Offset] = true
	}
	newest := map[string]int64{}
	for offset, v := range want {
		key, _, _ := strings.Cut(v, ".")
		newest[key] = int64(offset)
	}
	for key, offset := range newest {
		if !seen[offset] {
			s.w.t.Errorf("%s %d: the newest record of %s, at %d, is gone", topic.Name, p, key, offset)
		}
	}
}
