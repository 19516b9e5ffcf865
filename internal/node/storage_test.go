package node

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forebaymq/forebay/client"
	"github.com/forebaymq/forebay/compactor"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/metadata/metafault"
	"github.com/forebaymq/forebay/objectstore/mem"
)

// shared is a fabric in memory for several nodes. worked gets a token when a claim is given back: something was done under it.
func shared(t *testing.T) (config func(id string) Config, worked chan struct{}) {
	t.Helper()
	driver := metadata.NewMemDriver(metadata.MemOptions{})
	store := mem.New(mem.Options{})
	t.Cleanup(func() {
		if err := driver.Close(); err != nil {
			t.Error(err)
		}
	})
	worked = make(chan struct{}, 1)
	hook := func(c metafault.Call) metafault.Action {
		if c.Op == metafault.Release {
			select {
			case worked <- struct{}{}:
			default:
			}
		}
		return metafault.Action{}
	}
	return func(id string) Config {
		d := metafault.Wrap(driver.Peer(), nil, hook)
		t.Cleanup(func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
		return Config{
			NodeID: id, Listen: "127.0.0.1:0", OpsListen: "127.0.0.1:0", Linger: time.Millisecond, Store: store, Driver: d, Auth: Auth{DevKey: key},
			Compaction: Compaction{Policy: compactor.Policy{MergeObjects: 5}, Every: time.Millisecond},
		}
	}, worked
}

func fill(t *testing.T, c *client.Client, topic string, objects int) {
	t.Helper()
	p := 3
	if _, _, err := c.PutTopic(t.Context(), topic, client.TopicSettings{Partitions: &p}); err != nil {
		t.Fatal(err)
	}
	for i := range objects {
		r := []client.Record{{Key: []byte(fmt.Sprint(i)), Value: []byte("v"), Kind: client.KindText}}
		if _, err := c.Publish(t.Context(), topic, r, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// report asks an ops port.
func report(t *testing.T, ops string) *StorageReport {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+ops+"/debug/storage", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	defer http.DefaultClient.CloseIdleConnections()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatal(res.Status, string(body), err)
	}
	r := &StorageReport{}
	if err := json.Unmarshal(body, r); err != nil {
		t.Fatal(err)
	}
	return r
}

func level(r *StorageReport, n int) (objects int) {
	for _, l := range r.Levels {
		if l.Level == n {
			objects += l.Objects
		}
	}
	return objects
}

// TestNodeCompacts: a node merges what it writes, and its ops port reports it; one with compaction off does not, and reports too.
func TestNodeCompacts(t *testing.T) {
	config, worked := shared(t)
	off := config("off")
	off.Compaction.Off = true
	idle := start(t, off)
	c := connect(t, idle, "acme")
	fill(t, c, "orders", 20)
	before := report(t, idle.OpsAddr())
	if level(before, 0) == 0 || level(before, 1) != 0 || len(before.Topics) != 1 || before.Topics[0].Records != 20 {
		t.Fatalf("%+v", before)
	}
	busy := start(t, config("busy"))
	for level(report(t, busy.OpsAddr()), 0) >= 5 {
		<-worked
	}
	after := report(t, idle.OpsAddr())
	if level(after, 1) == 0 || after.Topics[0].Records != 20 || after.Topics[0].Batches >= before.Topics[0].Batches {
		t.Errorf("before %+v, after %+v", before, after)
	}
	total := 0
	for _, records := range readAll(t, c, "orders", 3) {
		total += len(records)
	}
	if total != 20 {
		t.Errorf("%d records", total)
	}
	var delivered, gets int64
	for _, l := range report(t, idle.OpsAddr()).Reads {
		delivered, gets = delivered+l.Delivered, gets+l.Gets
		if (l.GetsPerGiB > 0) != (l.Gets > 0) {
			t.Errorf("%+v", l)
		}
	}
	if delivered < 20 || gets == 0 {
		t.Errorf("20 records were read: %d bytes, %d GETs", delivered, gets)
	}
}

// TestCompactorAlone runs without a node, beside one that does not compact.
func TestCompactorAlone(t *testing.T) {
	config, worked := shared(t)
	off := config("node")
	off.Compaction.Off = true
	n := start(t, off)
	fill(t, connect(t, n, "acme"), "orders", 20)
	ctx, stop := context.WithCancel(t.Context())
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- RunCompactor(ctx, config("alone"), func(ops string) error { ready <- ops; return nil })
	}()
	var ops string
	select {
	case ops = <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	for level(report(t, ops), 0) >= 5 {
		<-worked
	}
	for path, want := range map[string]string{"/healthz": "alive", "/readyz": "ready", "/metrics": "forebay_compactor_jobs_total"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+ops+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || !strings.Contains(string(body), want) {
			t.Errorf("%s: %s, %v", path, body, err)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

func TestOpenStorageFaults(t *testing.T) {
	for want, c := range map[string]Config{
		"object-store": {Driver: metadata.NewMemDriver(metadata.MemOptions{})},
		"etcd":         {ObjectStore: "mem:"},
		"shards":       {ObjectStore: "mem:", Shards: -1, Driver: metadata.NewMemDriver(metadata.MemOptions{})},
	} {
		if s, err := OpenStorage(t.Context(), c); err == nil || s != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want a fault of %s, got %v", want, err)
		}
	}
}
