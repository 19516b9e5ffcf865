package etcd

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/forebaymq/forebay/metadata"
)

func entry(stream string, seq uint64) []metadata.LogEntry {
	return []metadata.LogEntry{{Shard: 1, Stream: metadata.Stream(stream), Seq: seq, Value: []byte(stream)}}
}

func load(t *testing.T, d *Driver) *metadata.Loaded {
	t.Helper()
	l, err := d.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// I3: etcd has applied the write, and the answer is lost with the connection. The client library does not send it again by itself; the
// repeat of the same keys finds it.
func TestAnswerLostOnTheWire(t *testing.T) {
	s := startServer(t, ServerConfig{ListenClient: "127.0.0.1:0"})
	p := newProxy(t, s.Endpoints()[0])
	d := dial(t, ClientConfig{Endpoints: []string{p.addr()}})
	defer func() { _ = d.Close() }()
	if _, err := d.Append(t.Context(), entry("a", 1), nil); err != nil {
		t.Fatal(err)
	}
	local := s.Driver(t.Context(), DriverOptions{})
	defer func() { _ = local.Close() }()
	applied := 0 // how often the write had its effect before the answer was lost
	for seq := uint64(2); seq < 12 || applied == 0 && seq < 500; seq++ {
		swallowed := p.swallowNext()
		rev, err := d.Append(t.Context(), entry("a", seq), nil)
		if err != nil && !metadata.IsIndefinite(err) {
			t.Fatalf("sequence %d: %v, want an indefinite error", seq, err)
		}
		<-swallowed // it may have been a frame of the connection's own, before the request was sent
		if err != nil && len(load(t, local).Entries) == int(seq) {
			applied++
		}
		// Retry as the log does, until the connection is back.
		for err != nil {
			if rev, err = d.Append(t.Context(), entry("a", seq), nil); t.Context().Err() != nil {
				t.Fatal(err)
			}
		}
		l := load(t, local)
		if last := l.Entries[len(l.Entries)-1]; len(l.Entries) != int(seq) || last.Revision != rev || last.Seq != seq {
			t.Fatalf("sequence %d: %d entries, the last %+v, answered revision %d", seq, len(l.Entries), last, rev)
		}
	}
	if applied == 0 {
		t.Error("no write had its effect before its answer was lost: the test has tested nothing")
	}
}

// A watch over a connection that breaks again and again skips and repeats nothing.
func TestWatchOverABrokenConnection(t *testing.T) {
	s := startServer(t, ServerConfig{ListenClient: "127.0.0.1:0"})
	p := newProxy(t, s.Endpoints()[0])
	d := dial(t, ClientConfig{Endpoints: []string{p.addr()}})
	defer func() { _ = d.Close() }()
	local := s.Driver(t.Context(), DriverOptions{})
	defer func() { _ = local.Close() }()
	const n = 60
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	got := make(chan metadata.LogEntry, n)
	ended := make(chan error, 1)
	go func() {
		ended <- d.Watch(ctx, 1, func(ev metadata.Events) error {
			for _, e := range ev.Entries {
				got <- e
			}
			return nil
		})
	}()
	for seq := range uint64(n) {
		rev, err := local.Append(ctx, entry("a", seq), nil)
		if err != nil {
			t.Fatal(err)
		}
		if seq%6 == 3 {
			p.cut(false)
		}
		if seq%3 == 0 {
			continue // let some pile up behind a cut
		}
		for {
			e := <-got
			if e.Revision == rev {
				break
			}
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("watch: %v", err)
	}
}

// A holder that cannot reach etcd gives up before its lease ends there, and cannot write with its epoch after that.
func TestClaimRunsOutWithoutItsHolder(t *testing.T) {
	s := startServer(t, ServerConfig{ListenClient: "127.0.0.1:0"})
	p := newProxy(t, s.Endpoints()[0])
	d := dial(t, ClientConfig{Endpoints: []string{p.addr()}})
	defer func() { _ = d.Close() }()
	local := s.Driver(t.Context(), DriverOptions{})
	defer func() { _ = local.Close() }()
	c, held, err := d.Claim(t.Context(), "house", "a", time.Second)
	if err != nil || !held {
		t.Fatal(held, err)
	}
	key := local.keys.claim("house")
	gone := local.c.Watch(t.Context(), key, clientv3.WithRev(c.Epoch+1))
	p.cut(true)
	select {
	case <-c.Done:
	case <-gone:
		t.Error("etcd freed the claim before its holder knew")
	}
	select {
	case <-gone:
	case <-time.After(30 * time.Second):
		t.Fatal("etcd did not free the claim")
	}
	next, held, err := local.Claim(t.Context(), "house", "b", time.Minute)
	if err != nil || !held || next.Epoch <= c.Epoch {
		t.Fatalf("successor: %+v, %v, %v", next, held, err)
	}
	p.cut(false)
	g := metadata.Guard{Claim: "house", Epoch: c.Epoch}
	for {
		_, err := d.Append(t.Context(), entry("a", 1), &g)
		if errors.Is(err, metadata.ErrClaimLost) {
			break
		}
		if err == nil {
			t.Fatal("the old holder wrote")
		}
		if t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
}

// A claim outlives its ttl as long as its holder is there.
func TestClaimIsRenewed(t *testing.T) {
	s := startServer(t, ServerConfig{})
	d := s.Driver(t.Context(), DriverOptions{})
	defer func() { _ = d.Close() }()
	c, _, err := d.Claim(t.Context(), "house", "a", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-c.Done:
		t.Error("the claim was lost")
	case <-time.After(2500 * time.Millisecond): // the time that the lease must be renewed for; there is no signal of nothing happening
	}
	if err := d.Release(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	<-c.Done
}

func TestMemberKeepsItsDataOverARestart(t *testing.T) {
	dir := t.TempDir()
	d, err := OpenEmbedded(t.Context(), ServerConfig{Dir: dir}, DriverOptions{})
	if err != nil {
		t.Fatal(err)
	}
	first, err := d.Init(t.Context(), metadata.Fabric{Format: 1, Shards: 16, ID: "first"})
	if err != nil {
		t.Fatal(err)
	}
	rev, err := d.Append(t.Context(), entry("a", 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d, err = OpenEmbedded(t.Context(), ServerConfig{Dir: dir}, DriverOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	if again, err := d.Init(t.Context(), metadata.Fabric{Format: 1, ID: "second"}); err != nil || again != first {
		t.Errorf("fabric after the restart: %+v, %v, want %+v", again, err, first)
	}
	if l := load(t, d); len(l.Entries) != 1 || l.Entries[0].Revision != rev {
		t.Errorf("entries after the restart: %+v", l.Entries)
	}
	if again, err := d.Append(t.Context(), entry("a", 1), nil); err != nil || again != rev {
		t.Errorf("repeat after the restart: %d, %v, want %d", again, err, rev)
	}
}

func TestConfigsReportEveryFault(t *testing.T) {
	err := ServerConfig{ListenClient: "x", Cluster: map[string]string{"other": "1.2.3.4:1", "o2": "1.2.3.4:2"}, Election: time.Millisecond}.WithDefaults().Validate()
	for _, field := range []string{"Dir", "ListenClient", "Cluster", "ListenPeer", "Election"} {
		if !mentions(err, "ServerConfig."+field) {
			t.Errorf("%s is not reported: %v", field, err)
		}
	}
	err = ClientConfig{Endpoints: []string{"nowhere"}, CertFile: "a", Username: "u", DialTimeout: -1}.Validate()
	for _, field := range []string{"Endpoints", "CertFile", "Username", "DialTimeout"} {
		if !mentions(err, "ClientConfig."+field) {
			t.Errorf("%s is not reported: %v", field, err)
		}
	}
	if _, err := StartServer(t.Context(), ServerConfig{}); err == nil {
		t.Error("a server without a directory started")
	}
	if _, err := Dial(t.Context(), ClientConfig{Endpoints: []string{"127.0.0.1:1"}, CAFile: "/nonexistent"}, DriverOptions{}); err == nil {
		t.Error("a CA file that is not there was accepted")
	}
}

// Nobody listens: a definite answer, within the deadline.
func TestNobodyThere(t *testing.T) {
	d := dial(t, ClientConfig{Endpoints: []string{"127.0.0.1:1"}})
	defer func() { _ = d.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := d.Append(ctx, entry("a", 1), nil); !errors.Is(err, metadata.ErrNoQuorum) || metadata.IsIndefinite(err) {
		t.Errorf("append: %v, want ErrNoQuorum", err)
	}
	short, cancelShort := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancelShort()
	if _, err := d.Head(short); !errors.Is(err, metadata.ErrNoQuorum) {
		t.Errorf("head: %v, want ErrNoQuorum", err)
	}
}
