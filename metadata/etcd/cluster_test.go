package etcd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/metadata"
	objmem "github.com/forebaymq/forebay/objectstore/mem"
	"github.com/forebaymq/forebay/segment"
)

// freeAddrs finds loopback addresses that are free now.
func freeAddrs(t testing.TB, n int) []string {
	t.Helper()
	var out []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		out = append(out, l.Addr().String())
	}
	return out
}

// cluster is three members in this process, which can be stopped and started.
type cluster struct {
	t       testing.TB
	configs []ServerConfig
	members []*Server
}

func newCluster(t testing.TB) *cluster {
	t.Helper()
	c := &cluster{t: t, members: make([]*Server, 3)}
	addrs := freeAddrs(t, 6)
	peers := map[string]string{"m0": addrs[0], "m1": addrs[1], "m2": addrs[2]}
	for i := range 3 {
		name := fmt.Sprint("m", i)
		c.configs = append(c.configs, ServerConfig{Dir: t.TempDir(), Name: name, ListenPeer: peers[name], ListenClient: addrs[3+i], Cluster: peers})
	}
	c.start(0, 1, 2)
	t.Cleanup(func() { c.stop(0, 1, 2) })
	return c
}

func (c *cluster) start(which ...int) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for _, i := range which {
		wg.Go(func() {
			s, err := StartServer(ctx, c.configs[i])
			if err != nil {
				c.t.Errorf("start member %d: %v", i, err)
				return
			}
			c.members[i] = s
		})
	}
	wg.Wait()
}

// stop stops members one after the other: a leader hands over to one that is still there.
func (c *cluster) stop(which ...int) {
	for _, i := range which {
		if s := c.members[i]; s != nil {
			c.members[i] = nil
			if err := s.Close(); err != nil {
				c.t.Errorf("stop member %d: %v", i, err)
			}
		}
	}
}

func (c *cluster) endpoints() []string {
	var out []string
	for _, m := range c.configs {
		out = append(out, m.ListenClient)
	}
	return out
}

func openLog(t testing.TB, d metadata.Driver, store *objmem.Store, id string) *metadata.Log {
	t.Helper()
	l, err := metadata.Open(t.Context(), metadata.Options{Driver: d, Store: store, NodeID: id, Shards: 4})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func putTopic(t testing.TB, l *metadata.Log, name string, partitions int) *metadata.Topic {
	t.Helper()
	topic, _, err := l.PutTopic(t.Context(), "acme", name, func(*metadata.Topic) (api.TopicConfig, error) {
		c := api.DefaultTopicConfig()
		c.Partitions = partitions
		return c, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return topic
}

func commitOf(topic *metadata.Topic, batches int) *metadata.Commit {
	now := time.Now()
	c := &metadata.Commit{Segment: metadata.SegmentRef{ID: ulid.MustNew(ulid.Timestamp(now), ulid.DefaultEntropy()), Size: 1 << 20}, AppendTime: now.UnixMilli()}
	for i := range batches {
		c.Batches = append(c.Batches, metadata.BatchDelta{
			TopicID: topic.ID, Partition: int32(i % topic.Config.Partitions), Records: 1, Group: -1, Ref: segment.BatchRef{Pos: uint64(100 * i), Len: 100}, RawBytes: 100,
		})
	}
	return c
}

// One member of three down: writes go on. Two down: refused or unknown within the deadline, nothing acknowledged. All is well after
// they return.
func TestMembersStop(t *testing.T) {
	c := newCluster(t)
	store := objmem.New(objmem.Options{})
	var logs []*metadata.Log
	for i := range 2 {
		d := dial(t, ClientConfig{Endpoints: c.endpoints()})
		l := openLog(t, d, store, fmt.Sprint("n", i))
		logs = append(logs, l)
		defer func() { _ = l.Close(); _ = d.Close() }()
	}
	topic := putTopic(t, logs[0], "orders", 1)
	acked := map[int64]bool{}
	unknown := 0
	// commit answers the code of the outcome within six seconds: "" when it was acknowledged.
	commit := func(l *metadata.Log) api.Code {
		p := l.SubmitCommit(commitOf(topic, 1))
		ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
		defer cancel()
		select {
		case <-p.Done():
		case <-ctx.Done():
			unknown++
			return api.CodeOutcomeUnknown
		}
		r, err := p.Result()
		if err == nil {
			err = r[0].Err
		}
		if err != nil {
			return api.CodeOf(err)
		}
		if acked[r[0].Base] {
			t.Errorf("offset %d was given twice", r[0].Base)
		}
		acked[r[0].Base] = true
		return ""
	}
	for i := range 10 {
		if code := commit(logs[i%2]); code != "" {
			t.Fatalf("commit %d: %s", i, code)
		}
	}
	c.stop(0)
	for i := range 10 {
		if code := commit(logs[i%2]); code != "" {
			t.Errorf("with one member down, commit %d: %s", i, code)
		}
		if err := logs[i%2].Sync(t.Context()); err != nil {
			t.Errorf("with one member down, sync %d: %v", i, err)
		}
	}
	c.stop(1)
	var wg sync.WaitGroup
	for _, l := range logs {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if err := l.Sync(ctx); api.CodeOf(err) != api.CodeMetadataUnavailable {
				t.Errorf("sync without a quorum: %v", err)
			}
		})
	}
	wg.Wait()
	for i := range 3 {
		begin := time.Now()
		code := commit(logs[0])
		if code != api.CodeMetadataUnavailable && code != api.CodeOutcomeUnknown {
			t.Errorf("without a quorum, commit %d: %q", i, code)
		}
		if took := time.Since(begin); took > 7*time.Second {
			t.Errorf("without a quorum, commit %d was answered after %s", i, took)
		}
	}
	if logs[0].Available() == nil || logs[0].Status().Ready {
		t.Error("ready without a quorum")
	}
	c.start(0, 1)
	for i, l := range logs {
		deadline := time.After(60 * time.Second)
		for commit(l) != "" {
			select {
			case <-deadline:
				t.Fatalf("node %d does not come back: %v, %+v", i, l.Available(), l.Status())
			default:
			}
		}
	}
	for _, l := range logs {
		if err := l.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		info, err := l.Partition(topic.ID, 0)
		if err != nil {
			t.Fatal(err)
		}
		if stored := int(info.Head); stored < len(acked) || stored > len(acked)+unknown {
			t.Errorf("head %d, with %d acknowledged and %d unknown", info.Head, len(acked), unknown)
		}
	}
	if a, b := logs[0].Hashes(), logs[1].Hashes(); fmt.Sprint(a) != fmt.Sprint(b) {
		t.Error("the nodes differ")
	}
}

// The log on a member of its own: snapshots truncate, a restart has everything, a late node agrees.
func TestLogOverEtcd(t *testing.T) {
	dir := t.TempDir()
	s := startServer(t, ServerConfig{Dir: dir, ListenClient: "127.0.0.1:0"})
	store := objmem.New(objmem.Options{})
	open := func(d metadata.Driver, id string) (*metadata.Log, func()) {
		l, err := metadata.Open(t.Context(), metadata.Options{
			Driver: d, Store: store, NodeID: id, Shards: 4,
			SnapshotEvery: metadata.SnapshotPolicy{Entries: 20}, HousekeepEvery: 20 * time.Millisecond, ClaimTTL: time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		var once sync.Once
		end := func() { once.Do(func() { _ = l.Close(); _ = d.Close() }) }
		t.Cleanup(end)
		return l, end
	}
	a, endA := open(s.Driver(t.Context(), DriverOptions{}), "a")
	b, _ := open(dial(t, ClientConfig{Endpoints: s.Endpoints()}), "b")
	topic := putTopic(t, a, "orders", 4)
	probe := s.Driver(t.Context(), DriverOptions{})
	defer func() { _ = probe.Close() }()
	snapshots := 0
	commits := 0
	for ; commits < 1000 && snapshots < 3 || commits < 100; commits++ {
		l := []*metadata.Log{a, b}[commits%2]
		p := l.SubmitCommit(commitOf(topic, 4))
		<-p.Done()
		if _, err := p.Result(); err != nil {
			t.Fatal(err)
		}
		if commits%10 == 0 {
			snapshots = 0
			l := load(t, probe)
			for _, p := range l.Snapshots {
				snapshots = int(p.Revision)
			}
			if snapshots > 0 {
				snapshots = 3
			}
		}
	}
	if snapshots == 0 {
		t.Error("no snapshot was taken")
	}
	late, _ := open(dial(t, ClientConfig{Endpoints: s.Endpoints()}), "late")
	for _, l := range []*metadata.Log{a, b, late} {
		if err := l.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		for p := range int32(4) {
			if info, err := l.Partition(topic.ID, p); err != nil || info.Head != int64(commits) {
				t.Errorf("partition %d: %+v, %v, want head %d", p, info, err, commits)
			}
		}
	}
	if x, y := a.Hashes(), late.Hashes(); fmt.Sprint(x) != fmt.Sprint(y) {
		t.Error("the late node differs")
	}
	endA()
	again, _ := open(s.Driver(t.Context(), DriverOptions{}), "a")
	p := again.SubmitCommit(commitOf(topic, 1))
	<-p.Done()
	if r, err := p.Result(); err != nil || r[0].Base != int64(commits) {
		t.Errorf("after the restart: %+v, %v", r, err)
	}
	if _, held, err := probe.Claim(t.Context(), "other", "x", time.Second); err != nil || !held {
		t.Error(held, err)
	}
	if errors.Is(t.Context().Err(), context.Canceled) {
		t.Error("the test ran out of time")
	}
}
