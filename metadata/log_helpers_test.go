package metadata_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/metadata/metafault"
	objmem "github.com/forebaymq/forebay/objectstore/mem"
	"github.com/forebaymq/forebay/segment"
)

// fabric is a store of entries and one of objects, to which a test opens nodes.
type fabric struct {
	t       testing.TB
	entries *metadata.MemDriver
	objects *objmem.Store
	nodes   atomic.Int32
}

func newFabric(t testing.TB) *fabric {
	f := &fabric{t: t, entries: metadata.NewMemDriver(metadata.MemOptions{}), objects: objmem.New(objmem.Options{})}
	t.Cleanup(func() {
		if err := f.entries.Close(); err != nil {
			t.Errorf("close driver: %v", err)
		}
	})
	return f
}

// node is one Log with a driver of its own.
type node struct {
	*metadata.Log
	mem    *metadata.MemDriver
	faults *metafault.Driver
	close  func()
}

// open opens a node. It does no housekeeping unless change says so.
func (f *fabric) open(change ...func(*metadata.Options)) *node {
	f.t.Helper()
	n := &node{mem: f.entries.Peer()}
	n.faults = metafault.Wrap(n.mem, nil, nil)
	o := metadata.Options{
		Driver: n.faults, Store: f.objects, NodeID: fmt.Sprintf("n%d", f.nodes.Add(1)), Shards: 4, Region: "here", NoHousekeeping: true,
	}
	for _, c := range change {
		c(&o)
	}
	l, err := metadata.Open(f.t.Context(), o)
	if err != nil {
		f.t.Fatalf("open: %v", err)
	}
	n.Log = l
	var once atomic.Bool
	n.close = func() {
		if once.Swap(true) {
			return
		}
		if err := l.Close(); err != nil {
			f.t.Errorf("close log: %v", err)
		}
		if err := n.faults.Close(); err != nil {
			f.t.Errorf("close driver: %v", err)
		}
	}
	f.t.Cleanup(n.close)
	return n
}

func (n *node) topic(t testing.TB, tenant, name string, partitions int) *metadata.Topic {
	t.Helper()
	topic, _, err := n.PutTopic(t.Context(), tenant, name, func(*metadata.Topic) (api.TopicConfig, error) {
		c := api.DefaultTopicConfig()
		c.Partitions = partitions
		return c, nil
	})
	if err != nil {
		t.Fatalf("put topic %s: %v", name, err)
	}
	return topic
}

// batch is one batch of a commit under test.
type batch struct {
	topic     *metadata.Topic
	partition int32
	records   int32
}

func commitOf(batches ...batch) *metadata.Commit {
	now := time.Now()
	c := &metadata.Commit{
		Segment:    metadata.SegmentRef{ID: ulid.MustNew(ulid.Timestamp(now), ulid.DefaultEntropy()), Size: 1 << 20},
		AppendTime: now.UnixMilli(),
	}
	pos := uint64(16)
	for _, b := range batches {
		c.Batches = append(c.Batches, metadata.BatchDelta{
			TopicID: b.topic.ID, Partition: b.partition, Records: b.records, Ref: segment.BatchRef{Pos: pos, Len: 100}, RawBytes: 100, Group: -1,
		})
		pos += 100
	}
	return c
}

// await gives the outcome of p, or fails the test when it takes too long.
func await(t testing.TB, p *metadata.Pending) ([]metadata.BatchResult, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	select {
	case <-p.Done():
		return p.Result()
	case <-ctx.Done():
		t.Fatal("the commit has no outcome")
		return nil, nil
	}
}

// commit submits and gives the base offset of each batch.
func (n *node) commit(t testing.TB, batches ...batch) []int64 {
	t.Helper()
	r, err := await(t, n.SubmitCommit(commitOf(batches...)))
	if err != nil {
		t.Fatalf("commit: %v", err)
	}
	return bases(t, r)
}

func bases(t testing.TB, results []metadata.BatchResult) []int64 {
	t.Helper()
	out := make([]int64, len(results))
	for i, r := range results {
		if r.Err != nil {
			t.Fatalf("batch %d: %v", i, r.Err)
		}
		out[i] = r.Base
	}
	return out
}

func (n *node) head(t testing.TB, topic *metadata.Topic, partition int32) int64 {
	t.Helper()
	if err := n.Sync(t.Context()); err != nil {
		t.Fatalf("sync: %v", err)
	}
	info, err := n.Partition(topic.ID, partition)
	if err != nil {
		t.Fatalf("partition: %v", err)
	}
	return info.Head
}

// sameState demands that both nodes have the same state of every shard.
func sameState(t testing.TB, a, b *node) {
	t.Helper()
	for _, n := range []*node{a, b} {
		if err := n.Sync(t.Context()); err != nil {
			t.Fatalf("sync: %v", err)
		}
	}
	ha, hb := a.Hashes(), b.Hashes()
	for shard, h := range ha {
		if hb[shard] != h {
			t.Errorf("shard %d: %d %x on one node, %d %x on the other", shard, h.Revision, h.Hash, hb[shard].Revision, hb[shard].Hash)
		}
	}
}
