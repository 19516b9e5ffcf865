package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/client"
	"github.com/forebaymq/forebay/gateway/auth"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/objectstore/mem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var key = []byte("0123456789abcdef0123456789abcdef")

func embedded(dir string) Config {
	return Config{
		NodeID: "n1", Listen: "127.0.0.1:0", OpsListen: "127.0.0.1:0", Linger: 5 * time.Millisecond,
		ObjectStore: "file://" + filepath.Join(dir, "objects"), Etcd: Etcd{Dir: filepath.Join(dir, "etcd")}, Auth: Auth{DevKey: key},
	}
}

func start(t *testing.T, c Config) *Node {
	t.Helper()
	n, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return n
}

func connect(t *testing.T, n *Node, tenant string, opts ...client.Option) *client.Client {
	t.Helper()
	token, err := auth.SignDev(key, auth.Claims{Tenant: tenant, Subject: "test", Expires: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New("http://"+n.Addr(), append(opts, client.WithToken(token))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func readAll(t *testing.T, c *client.Client, topic string, partitions int) map[int][]string {
	t.Helper()
	all := map[int][]string{}
	for p := range partitions {
		for at := int64(0); ; {
			r, err := c.Read(t.Context(), topic, p, client.ReadOptions{Offset: at, Limit: 70})
			if err != nil {
				t.Fatal(err)
			}
			for i, rec := range r.Records {
				if rec.Offset != at+int64(i) || rec.Partition != int32(p) {
					t.Fatalf("record %d of partition %d has offset %d of partition %d", at+int64(i), p, rec.Offset, rec.Partition)
				}
				all[p] = append(all[p], string(rec.Key)+"="+string(rec.Value))
			}
			if at = r.NextOffset; at >= r.Head {
				break
			}
		}
	}
	return all
}

// TestEverythingAcknowledgedIsThereAfterARestart publishes, reads, stops, starts on the same folder, reads the same, and goes on.
func TestEverythingAcknowledgedIsThereAfterARestart(t *testing.T) {
	const partitions, records = 6, 500
	dir := t.TempDir()
	n := start(t, embedded(dir))
	c := connect(t, n, "acme")
	p := partitions
	if _, created, err := c.PutTopic(t.Context(), "orders", client.TopicSettings{Partitions: &p}); err != nil || !created {
		t.Fatal(created, err)
	}
	want := map[int][]string{}
	var batch []client.Record
	for i := range records {
		k, v := fmt.Sprintf("key-%d", i%41), fmt.Sprintf("value-%d", i)
		batch = append(batch, client.Record{Key: []byte(k), Value: []byte(v), Kind: client.KindText})
		to := api.PartitionForKey([]byte(k), partitions)
		want[to] = append(want[to], k+"="+v)
		if len(batch) == 50 {
			if _, err := c.Publish(t.Context(), "orders", batch, nil); err != nil {
				t.Fatal(err)
			}
			batch = batch[:0]
		}
	}
	if diff := cmp.Diff(want, readAll(t, c, "orders", partitions)); diff != "" {
		t.Fatal(diff)
	}
	hashes := n.Log().Hashes()
	if err := n.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}

	again := start(t, embedded(dir))
	c = connect(t, again, "acme")
	if diff := cmp.Diff(want, readAll(t, c, "orders", partitions)); diff != "" {
		t.Fatal(diff)
	}
	if diff := cmp.Diff(hashes, again.Log().Hashes()); diff != "" {
		t.Errorf("the state has changed: %s", diff)
	}
	r, err := c.Publish(t.Context(), "orders", []client.Record{{Key: []byte("key-1"), Value: []byte("new")}}, nil)
	to := api.PartitionForKey([]byte("key-1"), partitions)
	if err != nil || r.Records[0] != (client.Position{Partition: int32(to), Offset: int64(len(want[to]))}) {
		t.Errorf("the next record is at %+v, %v; want offset %d", r, err, len(want[to]))
	}
	// Another tenant sees nothing of it.
	if _, err := connect(t, again, "other").GetTopic(t.Context(), "orders"); !errors.Is(err, &client.Error{Code: api.CodeUnknownTopic}) {
		t.Errorf("another tenant's look at the topic: %v", err)
	}
}

// TestTwoNodesAreOne: what one node acknowledged, the other shows in the very next read.
func TestTwoNodesAreOne(t *testing.T) {
	store := mem.New(mem.Options{})
	driver := metadata.NewMemDriver(metadata.MemOptions{})
	var clients []*client.Client
	for i := range 2 {
		c := embedded(t.TempDir())
		c.NodeID, c.Store, c.ObjectStore, c.Driver, c.Etcd = fmt.Sprint("n", i), store, "", driver, Etcd{}
		clients = append(clients, connect(t, start(t, c), "acme"))
	}
	t.Cleanup(func() {
		if err := errors.Join(driver.Close(), store.Close()); err != nil {
			t.Error(err)
		}
	})
	one := 1
	if _, _, err := clients[0].PutTopic(t.Context(), "t", client.TopicSettings{Partitions: &one}); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		writer, reader := clients[i%2], clients[(i+1)%2]
		if _, err := writer.Publish(t.Context(), "t", []client.Record{{Value: fmt.Append(nil, i)}}, nil); err != nil {
			t.Fatal(err)
		}
		r, err := reader.Read(t.Context(), "t", 0, client.ReadOptions{Offset: int64(i)})
		if err != nil || len(r.Records) != 1 || string(r.Records[0].Value) != fmt.Sprint(i) {
			t.Fatalf("record %d: %+v, %v", i, r, err)
		}
	}
}

func TestStartAndStopAreIdempotent(t *testing.T) {
	store, driver := mem.New(mem.Options{}), metadata.NewMemDriver(metadata.MemOptions{})
	c := embedded(t.TempDir())
	c.Store, c.ObjectStore, c.Driver, c.Etcd = store, "", driver, Etcd{}
	n, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	each := func(what string, f func(context.Context) error) {
		t.Helper()
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if err := f(t.Context()); err != nil {
					t.Errorf("%s: %v", what, err)
				}
			})
		}
		wg.Wait()
	}
	each("start", n.Start)
	if n.Addr() == "" || n.OpsAddr() == "" {
		t.Error("a running node has no address")
	}
	each("stop", n.Stop)
	if err := n.Start(t.Context()); err == nil {
		t.Error("a stopped node was started")
	}
	unused, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	each("stop before start", unused.Stop)
	if err := errors.Join(driver.Close(), store.Close()); err != nil {
		t.Error(err)
	}
}

// TestFailedStartLeavesNothing: the port is taken, so the gateway cannot start; everything below it has ended again (goleak watches), and
// the folder can be used at once.
func TestFailedStartLeavesNothing(t *testing.T) {
	first := start(t, embedded(t.TempDir()))
	dir := t.TempDir()
	c := embedded(dir)
	c.Listen = first.Addr()
	n, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Fatalf("got %v", err)
	}
	if err := n.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	start(t, embedded(dir))
}

func TestFaultsComeThroughRetries(t *testing.T) {
	c := embedded(t.TempDir())
	c.StoreFaults = "seed=1;put:every=2:error=503"
	cl := connect(t, start(t, c), "acme")
	if _, _, err := cl.PutTopic(t.Context(), "t", client.TopicSettings{}); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if _, err := cl.Publish(t.Context(), "t", []client.Record{{Value: []byte("x")}}, nil); err != nil {
			t.Fatal(err)
		}
	}
}

func TestValidateNamesEveryFault(t *testing.T) {
	bad := Config{
		NodeID: "a b", Region: "__x", Listen: "nowhere", OpsListen: "nowhere", TLSCertFile: "c", StoreFaults: "put:what", Shards: -1,
		Linger: -1, SegmentBytes: -1, MemoryBytes: -1, TenantBytes: -1, CacheBytes: -1, DrainTimeout: -1, StartupTimeout: -1, OTLPEndpoint: "x",
		Etcd: Etcd{Dir: "d", Endpoints: []string{""}, CertFile: "c", Username: "u"}, Auth: Auth{JWTKeyFiles: []string{"k"}},
	}
	err := bad.WithDefaults().Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, field := range []string{
		"node-id:", "region:", "listen:", "ops-listen:", "tls-cert:", "object-store:", "store-faults:", "shards:", "linger:", "segment-bytes:",
		"memory:", "tenant-memory:", "cache-bytes:", "drain-timeout:", "startup-timeout:", "otlp-endpoint:", "etcd:", "etcd-cert:", "etcd-user:",
		"jwt-issuer:", "jwt-audience:",
	} {
		if !strings.Contains(err.Error(), "\n"+field) && !strings.HasPrefix(err.Error(), field) {
			t.Errorf("%s is not reported", field)
		}
	}
	if _, err := New(Config{ObjectStore: "mem:", Etcd: Etcd{Endpoints: []string{"h:1"}}}); err == nil || !strings.Contains(err.Error(), "jwt-key") {
		t.Errorf("a node without keys: %v", err)
	}
}
