package compactor

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/fetch"
	"github.com/forebaymq/forebay/ingest"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/segment"
)

// replayCost reads all partitions of a topic with a cold cache of the default block sizes and gives the GETs and bytes by level.
func (w *world) replayCost(topic *metadata.Topic) []fetch.LevelReads {
	w.t.Helper()
	f, err := fetch.New(fetch.Options{View: w.log, Store: w.objects, CacheBytes: 64 << 20, Clock: w.clock, OldBytesPerSecond: -1})
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() {
		if err := f.Close(); err != nil {
			w.t.Error(err)
		}
	}()
	for p := range topic.Config.Partitions {
		w.read(f, topic, int32(p), fetch.Earliest)
	}
	if err := f.Close(); err != nil { // GETs ahead have ended and are counted
		w.t.Fatal(err)
	}
	return f.Reads()
}

// TestGetsPerGiBFallWithLevels replays the same records from level 0, from level 1, and from the levels above: each costs fewer GETs per GiB
// delivered than the one before.
func TestGetsPerGiBFallWithLevels(t *testing.T) {
	w := newWorld(t)
	const partitions, objects, perBatch = 4, 64, 64 // of about 1 KiB
	topic := w.topic("t", func(c *api.TopicConfig) { c.Partitions, c.RetentionTime = partitions, 0 })
	rng := rand.New(rand.NewPCG(3, 4))
	for range objects {
		var bs []batch
		for p := range partitions {
			x := batch{topic: topic, partition: int32(p)}
			for i := range perBatch {
				x.records = append(x.records, text(fmt.Sprint("k", i), payload(rng, 1000)))
			}
			bs = append(bs, x)
		}
		w.publish(bs...)
	}
	w.clock.Advance(time.Hour) // old data
	c := w.compactor(func(o *Options) {
		o.Policy = Policy{MergeObjects: 1, JobBytes: 1 << 20, FanIn: 4, MaxLevel: 1}
	})
	last := 1e18
	var delivered int64
	for _, step := range []struct {
		name     string
		maxLevel int
		least    int // level
	}{{"level 0", 0, 0}, {"level 1", 1, 1}, {"level 2 and above", 8, 2}} {
		if step.maxLevel > 0 {
			c.o.Policy.MaxLevel = step.maxLevel
			w.run(c)
		}
		var sum fetch.LevelReads
		for _, r := range w.replayCost(topic) {
			if r.Level < step.least {
				t.Errorf("%s: level %d was read: %+v", step.name, r.Level, r)
			}
			sum.Add(r)
		}
		if delivered == 0 {
			delivered = sum.Delivered
		}
		if sum.Delivered != delivered || delivered < partitions*objects*perBatch*1000 {
			t.Errorf("%s: %d bytes were delivered, before %d", step.name, sum.Delivered, delivered)
		}
		rate := sum.GetsPerGiB()
		t.Logf("%s: %d GETs for %d bytes delivered (%d read), %.0f GETs per GiB", step.name, sum.Gets, sum.Delivered, sum.GetBytes, rate)
		if rate <= 0 || rate > last/2 {
			t.Errorf("%s: %.0f GETs per GiB, the level before %.0f", step.name, rate, last)
		}
		last = rate
	}
}

// counted counts GETs.
type counted struct {
	objectstore.Store
	gets, read atomic.Int64
}

func (c *counted) GetRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	c.gets.Add(1)
	c.read.Add(n)
	return c.Store.GetRange(ctx, key, off, n)
}

// recorded accepts commits without a log.
type recorded struct{ commits []*metadata.Commit }

func (r *recorded) Available() error { return nil }

func (r *recorded) SubmitCommit(c *metadata.Commit) *metadata.Pending {
	r.commits = append(r.commits, c)
	p := metadata.NewPending()
	p.Resolve(make([]metadata.BatchResult, len(c.Batches)), nil)
	return p
}

// held holds the first PUT until the test lets it go.
type held struct {
	objectstore.Store
	puts atomic.Int64
	hold chan struct{}
}

func (h *held) PutIfAbsent(ctx context.Context, key string, body []byte, id string) (objectstore.Info, error) {
	if h.puts.Add(1) == 1 {
		<-h.hold
	}
	return h.Store.PutIfAbsent(ctx, key, body, id)
}

// ingestTogether publishes a record to each topic: to the first alone, and, while that is being written, to all others.
func ingestTogether(t *testing.T, w *world, log *recorded, shards int, topics []*metadata.Topic) {
	store := &held{Store: w.objects, hold: make(chan struct{})}
	in, err := ingest.New(ingest.Options{
		Store: store, Committer: log, Shards: shards, UploadConcurrency: 1, Compression: segment.CompressNone, Rand: w.entropy,
	})
	if err != nil {
		t.Fatal(err)
	}
	var publishers sync.WaitGroup
	for _, topic := range topics {
		publishers.Go(func() {
			r := ingest.Request{Tenant: topic.Tenant, Topics: []ingest.TopicRecords{{Topic: topic, Partitions: []int32{0},
				Records: []segment.Record{text("k", strings.Repeat("x", chunkGap+1))}}}}
			if _, err := in.Append(t.Context(), &r); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
	}
	close(store.hold)
	publishers.Wait()
	if err := in.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestSharedObjectsAreReadInPieces: ingest writes the records of many tenants to one object, whose batches stand by shard. So the compactor,
// which works shard by shard, reads the part of each in one piece, and the object once altogether.
func TestSharedObjectsAreReadInPieces(t *testing.T) {
	const tenants = 40
	for shards, most := range map[int]int64{
		worldShards: worldShards + 1, // a part that is longer than a chunk takes two GETs
		1:           tenants,         // batches stand by topic: tenants of the two shards take turns
	} {
		w := newWorld(t)
		var topics []*metadata.Topic
		for i := range tenants + 1 {
			topics = append(topics, w.topicOf(fmt.Sprint("tenant", i), "t"))
		}
		log := &recorded{}
		synctest.Test(t, func(t *testing.T) { ingestTogether(t, w, log, shards, topics) })
		for _, commit := range log.commits {
			w.commit(commit)
		}
		if n := len(w.keys("l0/")); n != 2 {
			t.Fatalf("%d objects, want that of the first tenant and that of all others", n)
		}
		store := &counted{Store: w.objects}
		c := w.compactor(func(o *Options) { o.Store, o.Policy = store, Policy{MergeObjects: 1} })
		w.run(c)
		gets, read := store.gets.Load()-1, store.read.Load() // one for the first object
		t.Logf("ordered for %d shards: %d GETs, %d bytes", shards, gets, read)
		if gets > most || shards == 1 && gets < most/2 || read < tenants*chunkGap || read > (tenants+2)*chunkGap {
			t.Errorf("ordered for %d shards: %d GETs of %d bytes", shards, gets, read)
		}
	}
}
