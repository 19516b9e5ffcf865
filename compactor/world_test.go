package compactor

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/oklog/ulid/v2"
	"go.uber.org/goleak"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/fetch"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/objectstore/mem"
	"github.com/forebaymq/forebay/segment"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start is when the clock of a world begins.
var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// world is a fabric in memory with one log, whose data is written by the test. Its clock is the compactor's and the writers'; the log has the
// real one, for its timeouts.
type world struct {
	t       testing.TB
	clock   *clockwork.FakeClock
	objects *mem.Store
	driver  *metadata.MemDriver
	log     *metadata.Log
	rng     *rand.Rand
	entropy io.Reader
}

const worldShards = 2

func newWorld(t testing.TB) *world {
	clock := clockwork.NewFakeClockAt(start)
	w := &world{t: t, clock: clock, objects: mem.New(mem.Options{Clock: clock}), driver: metadata.NewMemDriver(metadata.MemOptions{}), rng: rand.New(rand.NewPCG(1, 2))}
	w.entropy = &rngReader{w.rng}
	w.log = w.openLog("n1", w.driver, w.objects)
	t.Cleanup(func() {
		if err := w.driver.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

type rngReader struct{ r *rand.Rand }

func (r *rngReader) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(r.r.Uint32())
	}
	return len(b), nil
}

func (w *world) openLog(id string, d metadata.Driver, s objectstore.Store, change ...func(*metadata.Options)) *metadata.Log {
	w.t.Helper()
	o := metadata.Options{Driver: d, Store: s, NodeID: id, Shards: worldShards, Region: "here", NoHousekeeping: true}
	for _, c := range change {
		c(&o)
	}
	l, err := metadata.Open(w.t.Context(), o)
	if err != nil {
		w.t.Fatalf("open log: %v", err)
	}
	w.t.Cleanup(func() {
		if err := l.Close(); err != nil {
			w.t.Errorf("close log: %v", err)
		}
	})
	return l
}

// small is a policy for data of a few KiB.
func small() Policy {
	return Policy{MergeObjects: 4, BatchBytes: 512, ObjectBytes: 8 << 10, FanIn: 3, GoodRunBytes: 4 << 10}
}

// compactor makes one that is not started: the test calls its steps.
func (w *world) compactor(change ...func(*Options)) *Compactor {
	w.t.Helper()
	o := Options{Log: w.log, Store: w.objects, Policy: small(), Clock: w.clock, Entropy: w.entropy, Logger: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&o)
	}
	c, err := New(o)
	if err != nil {
		w.t.Fatal(err)
	}
	c.ctx, c.cancel = context.WithCancel(w.t.Context())
	w.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			w.t.Error(err)
		}
	})
	return c
}

func (w *world) fetcher(store objectstore.Store) *fetch.Fetcher {
	w.t.Helper()
	f, err := fetch.New(fetch.Options{View: w.log, Store: store, BlockBytes: 1 << 10, CacheBytes: 64 << 10, Clock: w.clock, OldBytesPerSecond: -1})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := f.Close(); err != nil {
			w.t.Error(err)
		}
	})
	return f
}

func (w *world) topic(name string, change ...func(*api.TopicConfig)) *metadata.Topic {
	w.t.Helper()
	return w.topicOf("tenant", name, change...)
}

func (w *world) topicOf(tenant, name string, change ...func(*api.TopicConfig)) *metadata.Topic {
	w.t.Helper()
	t, _, err := w.log.PutTopic(w.t.Context(), tenant, name, func(now *metadata.Topic) (api.TopicConfig, error) {
		c := api.DefaultTopicConfig()
		if now != nil {
			c = now.Config
		}
		for _, f := range change {
			f(&c)
		}
		return c, nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return t
}

func text(key, value string) segment.Record {
	r := segment.Record{ProducerTime: segment.NoTime, DeliverAt: segment.NoTime, Kind: segment.KindText, Value: []byte(value)}
	if key != "" {
		r.Key = []byte(key)
	}
	if value == "" {
		r.Value, r.Kind = nil, segment.KindNone
	}
	return r
}

// batch is records of one partition.
type batch struct {
	topic     *metadata.Topic
	partition int32
	records   []segment.Record
	hashes    [][16]byte
}

// put writes a level-0 object without committing it.
func (w *world) put(store objectstore.Store, batches ...batch) *metadata.Commit {
	w.t.Helper()
	id, err := ulid.New(ulid.Timestamp(w.clock.Now()), w.entropy)
	if err != nil {
		w.t.Fatal(err)
	}
	c := &metadata.Commit{Segment: metadata.SegmentRef{ID: id}, AppendTime: w.clock.Now().UnixMilli()}
	sw := segment.NewWriter(segment.WriterOptions{ID: id, Created: c.AppendTime})
	for _, b := range batches {
		var enc []byte
		for i := range b.records {
			enc = segment.AppendRecord(enc, &b.records[i])
		}
		ref, raw, err := sw.Append(&segment.Batch{TopicID: uint64(b.topic.ID), Partition: b.partition, Records: len(b.records), Chunks: [][]byte{enc}})
		if err != nil {
			w.t.Fatal(err)
		}
		d := metadata.BatchDelta{TopicID: b.topic.ID, Partition: b.partition, Records: int32(len(b.records)), Ref: ref, RawBytes: raw, Group: -1}
		if b.hashes != nil {
			d.IDHashes, d.Group = b.hashes, int32(len(c.Groups))
			c.Groups = append(c.Groups, metadata.Group{Tenant: b.topic.Tenant})
		}
		c.Batches = append(c.Batches, d)
	}
	body, err := sw.Finish()
	if err != nil {
		w.t.Fatal(err)
	}
	c.Segment.Size = int64(len(body))
	if _, err := store.PutIfAbsent(w.t.Context(), objectKey(&c.Segment), body, id.String()); err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (w *world) commit(c *metadata.Commit) []metadata.BatchResult {
	w.t.Helper()
	p := w.log.SubmitCommit(c)
	<-p.Done()
	results, err := p.Result()
	if err != nil {
		w.t.Fatal(err)
	}
	return results
}

// publish writes and commits one level-0 object and gives the base offset of each batch. The clock moves on by a millisecond.
func (w *world) publish(batches ...batch) []int64 {
	w.t.Helper()
	var bases []int64
	for _, r := range w.commit(w.put(w.objects, batches...)) {
		if r.Err != nil {
			w.t.Fatal(r.Err)
		}
		bases = append(bases, r.Base)
	}
	w.clock.Advance(time.Millisecond)
	return bases
}

// run does all the work there is in all shards.
func (w *world) run(c *Compactor) (jobs int) {
	w.t.Helper()
	for n := range 1000 {
		did, err := w.step(c, n < 100)
		if err != nil {
			w.t.Fatal(err)
		}
		if did == 0 {
			return jobs
		}
		jobs += did
	}
	w.t.Fatal("there is always work: no progress")
	return 0
}

// steps is run, up to an error.
func (w *world) steps(c *Compactor) error {
	w.t.Helper()
	for n := range 1000 {
		if did, err := w.step(c, n < 100); err != nil || did == 0 {
			return err
		}
	}
	w.t.Fatal("there is always work: no progress")
	return nil
}

// step does one job in each shard that has one.
func (w *world) step(c *Compactor, sweep bool) (jobs int, err error) {
	w.t.Helper()
	for shard := range w.log.Shards() {
		claim, held, err := w.log.Claim(w.t.Context(), fmt.Sprint(claimPrefix, shard), time.Minute)
		if err != nil || !held {
			w.t.Fatalf("claim: %v, %v", held, err)
		}
		did, err := c.step(w.t.Context(), claim, shard, &findings{clean: true, sweep: sweep})
		if e := w.log.Release(w.t.Context(), claim); e != nil {
			w.t.Fatal(e)
		}
		if err != nil {
			return jobs, fmt.Errorf("step: %w", err)
		}
		if did {
			jobs++
		}
	}
	return jobs, nil
}

// read reads a partition from offset to its head.
func (w *world) read(f *fetch.Fetcher, topic *metadata.Topic, partition int32, offset int64) []segment.Record {
	w.t.Helper()
	out, err := readAll(w.t.Context(), f, topic, partition, offset, 1000)
	if err != nil {
		w.t.Fatalf("read topic %s partition %d: %v", topic.Name, partition, err)
	}
	return out
}

func readAll(ctx context.Context, f *fetch.Fetcher, topic *metadata.Topic, partition int32, offset int64, limit int) ([]segment.Record, error) {
	var out []segment.Record
	for {
		res, err := f.Read(ctx, fetch.ReadRequest{Tenant: topic.Tenant, TopicID: topic.ID, Partition: partition, Offset: offset, MaxRecords: limit, MaxBytes: 1 << 20})
		if err != nil {
			return out, fmt.Errorf("at %d: %w", offset, err)
		}
		out = append(out, res.Records...)
		if res.NextOffset >= res.Head {
			return out, nil
		}
		if offset >= 0 && res.NextOffset <= offset {
			return out, fmt.Errorf("no progress at %d", offset)
		}
		offset = res.NextOffset
	}
}

// entries gives the live batches of a partition.
func (w *world) entries(topic *metadata.Topic, partition int32) []metadata.IndexEntry {
	w.t.Helper()
	all, _, err := w.log.Locate(topic.ID, partition, 0, 1<<20)
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// keys lists the bucket.
func (w *world) keys(prefix string) []string {
	w.t.Helper()
	var out []string
	for after := ""; ; {
		page, err := w.objects.List(w.t.Context(), prefix, after, 1000)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, o := range page.Objects {
			out = append(out, o.Key)
		}
		if after = page.Next; after == "" {
			return out
		}
	}
}

// sameRecords compares everything but the memory.
func sameRecords(t testing.TB, got, want []segment.Record) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	for i := range got {
		g, w := &got[i], &want[i]
		if g.Offset != w.Offset || g.AppendTime != w.AppendTime || string(g.Key) != string(w.Key) || (g.Key == nil) != (w.Key == nil) ||
			string(g.Value) != string(w.Value) || (g.Value == nil) != (w.Value == nil) || g.Kind != w.Kind || g.ID != w.ID || !slices.Equal(g.Headers, w.Headers) {
			t.Fatalf("record %d is %+v, want %+v", i, g, w)
		}
	}
}
