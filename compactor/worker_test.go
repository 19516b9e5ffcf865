package compactor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/fetch"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/metadata/metafault"
	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/segment"
)

// watched tells of each put and holds it up before its effect.
type watched struct {
	objectstore.Store
	puts chan string
	hold chan struct{}
}

func (w *watched) PutIfAbsent(ctx context.Context, key string, body []byte, id string) (objectstore.Info, error) {
	w.puts <- key
	<-w.hold
	return w.Store.PutIfAbsent(ctx, key, body, id)
}

// TestStartClose: started compactors of two nodes share the shards, do what there is to do, and give everything back when they close.
func TestStartClose(t *testing.T) {
	w := newWorld(t)
	var topics []*metadata.Topic
	for i := range 6 {
		topics = append(topics, w.topicOf(fmt.Sprint("tenant", i), "t", func(c *api.TopicConfig) { c.RetentionTime = 0 }))
	}
	released := make(chan struct{}, 1)
	hook := func(c metafault.Call) metafault.Action {
		if c.Op == metafault.Release {
			select {
			case released <- struct{}{}:
			default:
			}
		}
		return metafault.Action{}
	}
	var nodes []*Compactor
	for i := range 2 {
		driver := metafault.Wrap(w.driver.Peer(), nil, hook)
		t.Cleanup(func() {
			if err := driver.Close(); err != nil {
				t.Error(err)
			}
		})
		c, err := New(Options{Log: w.openLog(fmt.Sprint("node", i), driver, w.objects), Store: w.objects, Policy: small(), Every: time.Millisecond, Workers: 2,
			Entropy: &rngReader{rand.New(rand.NewPCG(uint64(i), 5))}, Collect: Collection{Every: time.Millisecond}})
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, c)
		c.Start(t.Context())
		c.Start(t.Context())
	}
	for round := range 4 {
		for _, topic := range topics {
			w.publish(batch{topic: topic, records: []segment.Record{text("k", fmt.Sprint(round))}})
		}
	}
	merged := func() bool {
		for _, topic := range topics {
			for _, e := range w.entries(topic, 0) {
				if e.Segment.Level == 0 {
					return false
				}
			}
		}
		return true
	}
	// The objects are old by the real clock, so that every shard is due. A claim is released when work is done.
	for !merged() {
		<-released
		if err := w.log.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range nodes {
		for range 2 {
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
		c.Start(t.Context()) // too late: nothing starts
	}
	for shard := range w.log.Shards() {
		claim, held, err := w.log.Claim(t.Context(), fmt.Sprint(claimPrefix, shard), time.Minute)
		if err != nil || !held {
			t.Fatalf("shard %d is still claimed: %v", shard, err)
		}
		if err := w.log.Release(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
	}
	f := w.fetcher(w.objects)
	for _, topic := range topics {
		if got := shape(w.read(f, topic, 0, 0)); got != "0k=0 1k=1 2k=2 3k=3" {
			t.Errorf("%s: %s", topic.Tenant, got)
		}
	}
}

// TestPausedHolder: a compactor is paused in the middle of a PUT until its claim has gone to another, which does the work. What it sends after
// that changes nothing; nor does a Replace of an old epoch that gets past the store.
func TestPausedHolder(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("t")
	shard := int(uint64(topic.ID) % worldShards)
	for i := range 4 {
		w.publish(batch{topic: topic, records: []segment.Record{text("k", fmt.Sprint(i))}})
	}
	name := fmt.Sprint(claimPrefix, shard)
	claimA, _, err := w.log.Claim(t.Context(), name, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	paused := &watched{Store: w.objects, puts: make(chan string), hold: make(chan struct{})}
	a := w.compactor(func(o *Options) { o.Store, o.Entropy = paused, &rngReader{rand.New(rand.NewPCG(8, 8))} })
	var wg sync.WaitGroup
	var late error
	wg.Go(func() { _, late = a.step(t.Context(), claimA, shard, &findings{}) })
	<-paused.puts
	if err := w.log.Release(t.Context(), claimA); err != nil {
		t.Fatal(err)
	}
	b := w.compactor()
	if jobs := w.run(b); jobs != 1 {
		t.Fatalf("%d jobs", jobs)
	}
	after := w.entries(topic, 0)
	close(paused.hold)
	wg.Wait()
	if !errors.Is(late, metadata.ErrClaimLost) {
		t.Errorf("the paused holder got %v", late)
	}
	if got := w.entries(topic, 0); len(got) != 1 || got[0].Segment != after[0].Segment {
		t.Errorf("the paused holder changed the index: %+v", got)
	}
	r, err := w.log.Do(t.Context(), &metadata.Trim{TopicID: topic.ID, LogStart: 2, Claim: name, ClaimEpoch: claimA.Epoch}, nil)
	if err != nil || api.CodeOf(r.Err) != api.CodeConflict {
		t.Errorf("a trim of the old epoch: %v, %v", r.Err, err)
	}
	if got := shape(w.read(w.fetcher(w.objects), topic, 0, 0)); got != "0k=0 1k=1 2k=2 3k=3" {
		t.Error(got)
	}
}

// TestMeanwhile: what a job has planned is trimmed, or its topic deleted, or its data replaced, before it commits. Nothing dangles, nothing
// comes back, the rest is merged.
func TestMeanwhile(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(w *world, topic *metadata.Topic)
		want   string // of the partition, "" = the topic is gone
	}{
		{"trimmed within a batch", func(w *world, topic *metadata.Topic) { w.trim(topic, 0, 3) }, "3k=3 4k=4 5k=5 6k=6 7k=7"},
		{"trimmed whole batches", func(w *world, topic *metadata.Topic) { w.trim(topic, 0, 5) }, "5k=5 6k=6 7k=7"},
		{"trimmed all", func(w *world, topic *metadata.Topic) { w.trim(topic, 0, 8) }, ""},
		{"deleted", func(w *world, topic *metadata.Topic) {
			if err := w.log.DeleteTopic(w.t.Context(), topic.Tenant, topic.Name); err != nil {
				w.t.Fatal(err)
			}
		}, "gone"},
		{"grown", func(w *world, topic *metadata.Topic) {
			w.publish(batch{topic: topic, records: []segment.Record{text("k", "8")}})
		}, "0k=0 1k=1 2k=2 3k=3 4k=4 5k=5 6k=6 7k=7 8k=8"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			topic, other := w.topic("t"), w.topic("other")
			for i := range 4 {
				w.publish(batch{topic: topic, records: []segment.Record{text("k", fmt.Sprint(2*i)), text("k", fmt.Sprint(2*i+1))}},
					batch{topic: other, records: []segment.Record{text("k", fmt.Sprint(i))}})
			}
			shard := int(uint64(topic.ID) % worldShards)
			claim, _, err := w.log.Claim(t.Context(), fmt.Sprint(claimPrefix, shard), time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			c := w.compactor()
			job, err := c.plan(t.Context(), claim, shard, &findings{})
			if err != nil || job == nil {
				t.Fatal(job, err)
			}
			tc.change(w, topic)
			if err := c.execute(t.Context(), claim, job); err != nil {
				t.Fatal(err)
			}
			if err := checkNothingDangles(w); err != nil {
				t.Error(err)
			}
			f := w.fetcher(w.objects)
			if e := w.entries(other, 0); len(e) != 1 || e[0].Segment.Level != 1 {
				t.Errorf("the other topic has %+v", e)
			}
			if got := shape(w.read(f, other, 0, 0)); got != "0k=0 1k=1 2k=2 3k=3" {
				t.Errorf("the other topic has %s", got)
			}
			if tc.want == "gone" {
				if _, err := w.log.Partition(topic.ID, 0); api.CodeOf(err) != api.CodeUnknownTopic {
					t.Error(err)
				}
				return
			}
			if got := shape(w.read(f, topic, 0, fetch.Earliest)); got != tc.want {
				t.Errorf("read %s, want %s", got, tc.want)
			}
			for _, e := range w.entries(topic, 0)[:min(1, len(w.entries(topic, 0)))] {
				if e.Segment.Level != 1 {
					t.Errorf("not merged: %+v", e)
				}
			}
		})
	}
}

// TestWideOffsets: offsets 0, 1, 2147483648 and 4294967296 of one object survive merging, compaction by key and copying.
func TestWideOffsets(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("t", compacted)
	// A commit says how many records it has: the offsets in between are those of records that compaction has removed.
	fake := func(records int32) *metadata.Commit {
		id, err := ulid.New(ulid.Timestamp(w.clock.Now()), w.entropy)
		if err != nil {
			t.Fatal(err)
		}
		return &metadata.Commit{Segment: metadata.SegmentRef{ID: id, Size: 1000}, AppendTime: w.clock.Now().UnixMilli(),
			Batches: []metadata.BatchDelta{{TopicID: topic.ID, Records: records, Ref: segment.BatchRef{Pos: 48, Len: 100}, Group: -1}}}
	}
	offsets := []int64{0, 1, 1 << 31, 1 << 32}
	w.commit(fake(1<<31 - 1))
	w.commit(fake(1<<31 - 1))
	w.commit(fake(3))
	c := w.compactor(func(o *Options) { o.Policy.DirtyFraction = 0.01 })
	out := c.newOutput(&Job{Kind: KindMerge}, bucket{ClassKeep, 1}, nil)
	g := &Group{Topic: topic, Entries: w.entries(topic, 0)}
	p := &pending{group: g}
	var run runWriter
	run.begin(out, p)
	for i, offset := range offsets {
		r := text(fmt.Sprint("k", i), "v")
		raw := &segment.RawRecord{Encoding: segment.AppendRecord(nil, &r), Offset: offset, AppendTime: w.clock.Now().UnixMilli()}
		if err := run.add(t.Context(), raw, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := run.close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := out.end(t.Context()); err != nil {
		t.Fatal(err)
	}
	m := &merger{c: c, job: &Job{}, claim: &metadata.HeldClaim{}}
	if r, err := w.log.Do(t.Context(), m.command(p), nil); err != nil || r.Err != nil {
		t.Fatal(err, r.Err)
	}
	f := w.fetcher(w.objects)
	check := func(want string) {
		t.Helper()
		if got := shape(w.read(f, topic, 0, 0)); got != want {
			t.Fatalf("read %s, want %s", got, want)
		}
		for _, r := range strings.Fields(want) {
			var offset int64
			if _, err := fmt.Sscanf(r, "%d", &offset); err != nil {
				t.Fatal(err)
			}
			if got := w.read(f, topic, 0, offset); got[0].Offset != offset {
				t.Errorf("read at %d gave %d", offset, got[0].Offset)
			}
		}
	}
	check("0k0=v 1k1=v 2147483648k2=v 4294967296k3=v")
	if base := w.publish(batch{topic: topic, records: []segment.Record{text("k1", "new")}}); base[0] != 1<<32+1 {
		t.Fatal(base)
	}
	w.merged(c)
	check("0k0=v 2147483648k2=v 4294967296k3=v 4294967297k1=new")
	for _, e := range w.entries(topic, 0) {
		if e.Segment.Level != cleanLevel {
			t.Errorf("level %d", e.Segment.Level)
		}
	}
}

// TestDroppedOrdinals: records that were dropped as duplicates by event ID are stored at level 0 and gone after the merge; the others keep their
// offsets.
func TestDroppedOrdinals(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("t", func(c *api.TopicConfig) { c.DedupeWindow = time.Hour })
	publish := func(ids ...string) {
		b := batch{topic: topic}
		for _, id := range ids {
			r := text("k", id)
			r.ID = id
			b.records = append(b.records, r)
			b.hashes = append(b.hashes, hashKey([]byte(id)))
		}
		w.publish(b)
	}
	publish("a", "b", "a", "c")
	publish("c", "d", "d", "e")
	publish("f")
	publish("a", "b", "g")
	f := w.fetcher(w.objects)
	want := shape(w.read(f, topic, 0, 0))
	if want != "0k=a 1k=b 2k=c 3k=d 4k=e 5k=f 6k=g" {
		t.Fatal(want)
	}
	c := w.compactor()
	w.run(c)
	e := w.entries(topic, 0)
	if len(e) != 1 || e[0].Records != 7 || len(e[0].Dropped) != 0 {
		t.Errorf("entries %+v", e)
	}
	if got := shape(w.read(f, topic, 0, 0)); got != want {
		t.Errorf("read %s, want %s", got, want)
	}
}

// TestWaste: what is live in objects that are mostly dead is written anew, clean batches as clean ones.
func TestWaste(t *testing.T) {
	w := newWorld(t)
	var topics []*metadata.Topic
	for i := range 5 {
		topics = append(topics, w.topic(fmt.Sprint("t", i), compacted))
	}
	for i := range 4 {
		var bs []batch
		for _, topic := range topics {
			bs = append(bs, batch{topic: topic, records: []segment.Record{text(fmt.Sprint("k", i), strings.Repeat("v", 100)), text("gone", "")}})
		}
		w.publish(bs...)
	}
	c := w.compactor()
	w.merged(c)
	before := w.entries(topics[0], 0)
	if len(before) != 1 || before[0].Segment.Level != cleanLevel {
		t.Fatalf("%+v", before)
	}
	for _, topic := range topics[1:] {
		if err := w.log.DeleteTopic(t.Context(), topic.Tenant, topic.Name); err != nil {
			t.Fatal(err)
		}
	}
	f := w.fetcher(w.objects)
	want := shape(w.read(f, topics[0], 0, 0))
	w.clock.Advance(time.Hour)
	w.run(c)
	after := w.entries(topics[0], 0)
	if len(after) != 1 || after[0].Segment.ID == before[0].Segment.ID || after[0].Segment.Level != cleanLevel || after[0].Segment.Size >= before[0].Segment.Size/2 {
		t.Errorf("before %+v, after %+v", before, after)
	}
	if got := shape(w.read(f, topics[0], 0, 0)); got != want {
		t.Errorf("read %s, want %s", got, want)
	}
	if tagged, _, err := c.tagged(t.Context(), &after[0]); err != nil || !tagged {
		t.Errorf("the horizon of the tombstone was lost: %v, %v", tagged, err)
	}
}
