package ingest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/metadata/metafault"
	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/objectstore/faults"
	objmem "github.com/forebaymq/forebay/objectstore/mem"
	"github.com/forebaymq/forebay/segment"
)

// world is a fabric in memory: one metadata store, one bucket, and nodes that come and go. It runs within a synctest bubble.
type world struct {
	t       *testing.T
	seed    uint64
	meta    *metadata.MemDriver
	objects *objmem.Store
	rules   []faults.Rule
	rates   metafault.Rates
	options func(*Options)
	born    int
	ending  sync.WaitGroup // nodes that were killed
}

// worldNode is one incarnation of a node.
type worldNode struct {
	w     *world
	in    *Ingester
	log   *metadata.Log
	meta  *metafault.Driver
	store *faults.Store
	dead  chan struct{} // closed when the node is killed: nobody hears from it any more
	once  sync.Once
}

func newWorld(t *testing.T, seed uint64) *world {
	return &world{t: t, seed: seed, meta: metadata.NewMemDriver(metadata.MemOptions{}), objects: objmem.New(objmem.Options{})}
}

// node starts a node.
func (w *world) node() *worldNode {
	w.t.Helper()
	w.born++
	seed := w.seed*1000 + uint64(w.born)
	n := &worldNode{w: w, dead: make(chan struct{})}
	store, err := faults.New(w.objects, faults.Options{Plan: faults.Plan{Seed: seed, Rules: w.rules}})
	if err != nil {
		w.t.Fatal(err)
	}
	n.store = store
	n.meta = metafault.Wrap(w.meta.Peer(), nil, nil)
	rng := rand.NewChaCha8([32]byte{1: byte(w.born), 2: byte(w.seed), 3: byte(w.seed >> 8)})
	n.log, err = metadata.Open(w.t.Context(), metadata.Options{
		Driver: n.meta, Store: w.objects, NodeID: fmt.Sprintf("n%d", w.born), Shards: 2, Region: "here", NoHousekeeping: true, Entropy: rng,
		SubmitTimeout: 500 * time.Millisecond, StuckAfter: 2 * time.Second, CloseTimeout: time.Second, ProbeInterval: 200 * time.Millisecond,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if w.rates != (metafault.Rates{}) {
		n.meta.SetHook(metafault.Random(seed, w.rates))
	}
	o := Options{Store: &mortalStore{Store: n.store, dead: n.dead}, Committer: &mortalLog{Log: n.log, dead: n.dead}, Rand: rng,
		Compression: segment.CompressNone, Linger: 20 * time.Millisecond, UploadTimeout: 10 * time.Second}
	if w.options != nil {
		w.options(&o)
	}
	if n.in, err = New(o); err != nil {
		w.t.Fatal(err)
	}
	return n
}

// mortalStore does nothing new once its node is dead. What is under way goes on, as packets do.
type mortalStore struct {
	objectstore.Store
	dead chan struct{}
}

func (s *mortalStore) PutIfAbsent(ctx context.Context, key string, body []byte, id string) (objectstore.Info, error) {
	select {
	case <-s.dead:
		return objectstore.Info{}, objectstore.ErrUnavailable
	default:
		return s.Store.PutIfAbsent(ctx, key, body, id)
	}
}

// mortalLog takes no commit once its node is dead.
type mortalLog struct {
	*metadata.Log
	dead chan struct{}
}

func (l *mortalLog) SubmitCommit(c *metadata.Commit) *metadata.Pending {
	select {
	case <-l.dead:
		return metadata.NewPending()
	default:
		return l.Log.SubmitCommit(c)
	}
}

// errCrashed is what a client sees of a node that was killed: the connection breaks, and the outcome is unknown.
var errCrashed = errors.New("connection reset by a node that died")

// append sends a request as a client over a connection does.
func (n *worldNode) append(ctx context.Context, q *Request) (*Result, error) {
	type answer struct {
		res *Result
		err error
	}
	ch := make(chan answer, 1)
	go func() {
		res, err := n.in.Append(ctx, q)
		ch <- answer{res, err}
	}()
	select {
	case <-n.dead:
		return nil, errCrashed
	case a := <-ch:
		select {
		case <-n.dead:
			return nil, errCrashed
		default:
			return a.res, a.err
		}
	}
}

// kill ends the node without a drain, at once for everybody outside.
func (n *worldNode) kill() {
	n.once.Do(func() {
		close(n.dead)
		n.w.ending.Go(func() {
			ctx, cancel := context.WithCancel(n.w.t.Context())
			cancel()
			if err := n.in.Close(ctx); err != nil && !errors.Is(err, context.Canceled) {
				n.w.t.Errorf("kill: %v", err)
			}
			n.end()
		})
	})
}

// stop drains the node.
func (n *worldNode) stop() {
	n.once.Do(func() {
		if err := n.in.Close(n.w.t.Context()); err != nil {
			n.w.t.Errorf("close: %v", err)
		}
		n.end()
	})
}

func (n *worldNode) end() {
	n.meta.SetHook(nil)
	// The store's wrapper is left open: closing it would close the bucket that all share. Late writes end with it.
	if err := errors.Join(n.log.Close(), n.meta.Close()); err != nil {
		n.w.t.Errorf("end node: %v", err)
	}
}

// close ends the world.
func (w *world) close() {
	w.ending.Wait()
	if err := errors.Join(w.meta.Close(), w.objects.Close()); err != nil {
		w.t.Errorf("close: %v", err)
	}
}

func (w *world) topic(name string, partitions int, dedupe time.Duration) *metadata.Topic {
	w.t.Helper()
	n := w.node()
	defer n.stop()
	n.meta.SetHook(nil)
	tp, _, err := n.log.PutTopic(w.t.Context(), "t", name, func(*metadata.Topic) (api.TopicConfig, error) {
		c := api.DefaultTopicConfig()
		c.Partitions, c.DedupeWindow = partitions, dedupe
		return c, nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return tp
}

// read replays everything as a fresh node sees it: the values of each partition by offset, dense from 0.
func (w *world) read(topics ...*metadata.Topic) map[topicPartition][]string {
	w.t.Helper()
	rules, rates := w.rules, w.rates
	w.rules, w.rates = nil, metafault.Rates{}
	n := w.node()
	w.rules, w.rates = rules, rates
	defer n.stop()
	out := map[topicPartition][]string{}
	for _, tp := range topics {
		for p := range int32(tp.Config.Partitions) {
			entries, info, err := n.log.Locate(tp.ID, p, 0, 1<<20)
			if err != nil {
				w.t.Fatal(err)
			}
			var values []string
			for _, e := range entries {
				values = append(values, w.batch(e, int64(len(values)))...)
			}
			if info.Head != int64(len(values)) {
				w.t.Fatalf("partition %d of %s: head %d, %d records", p, tp.Name, info.Head, len(values))
			}
			out[topicPartition{tp.ID, p}] = values
		}
	}
	return out
}

func (w *world) batch(e metadata.IndexEntry, next int64) []string {
	w.t.Helper()
	if e.Base != next {
		w.t.Fatalf("a batch begins at %d, the one before it ended at %d: %+v", e.Base, next, e)
	}
	body, _, err := w.objects.Get(w.t.Context(), segment.Name{ID: e.Segment.ID}.Key())
	if err != nil {
		w.t.Fatalf("committed segment: %v", err)
	}
	d, err := segment.DecodeBatch(body[e.Ref.Pos : e.Ref.Pos+uint64(e.Ref.Len)])
	if err != nil {
		w.t.Fatal(err)
	}
	dropped := map[int32]bool{}
	for _, i := range e.Dropped {
		dropped[i] = true
	}
	var values []string
	if err := d.Scan(func(i int, r *segment.Record) bool {
		if !dropped[int32(i)] {
			values = append(values, string(r.Value))
		}
		return true
	}); err != nil {
		w.t.Fatal(err)
	}
	return values
}
