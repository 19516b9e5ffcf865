package proof

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebaymq/forebay/internal/failpoint"
	"github.com/forebaymq/forebay/internal/redistest"
)

// valve is a TCP address that leads to another one, and may be shut: connections stay open and nothing goes through, either way, until it is opened.
type valve struct {
	l  net.Listener
	wg sync.WaitGroup

	mu    sync.Mutex
	open  chan struct{} // closed while it is open
	over  chan struct{} // closed at the end of the test
	conns []net.Conn
}

func newValve(t *testing.T, target string) *valve {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	v := &valve{l: l, open: make(chan struct{}), over: make(chan struct{})}
	close(v.open)
	v.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", target)
			if err != nil {
				conn.Close()
				continue
			}
			v.mu.Lock()
			v.conns = append(v.conns, conn, up)
			v.mu.Unlock()
			v.wg.Go(func() { v.pass(up, conn) })
			v.wg.Go(func() { v.pass(conn, up) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		close(v.over)
		v.mu.Lock()
		for _, c := range v.conns {
			c.Close()
		}
		v.mu.Unlock()
		v.wg.Wait()
	})
	return v
}

// pass carries bytes one way.
func (v *valve) pass(dst, src net.Conn) {
	defer dst.Close()
	defer src.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		v.mu.Lock()
		open := v.open
		v.mu.Unlock()
		select {
		case <-open:
		case <-v.over:
			return
		}
		if _, werr := dst.Write(buf[:n]); werr != nil || err != nil {
			return
		}
	}
}

func (v *valve) shut() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.open = make(chan struct{})
}

func (v *valve) reopen() {
	v.mu.Lock()
	defer v.mu.Unlock()
	close(v.open)
}

// heldCommit has the commit of a member pass the first check, at the door of one node, and then holds it up on its way into the log. Meanwhile who
// takes the member for dead has it leave, and another one, on another node, goes on where it was and commits more. It gives what the checker says, and
// what the commit was answered.
func heldCommit(t *testing.T, failpoints string) (*groupReport, error) {
	t.Helper()
	if _, err := binary(); err != nil { // which may take long, and is not what is timed
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dir := t.TempDir()
	addrs := ports(t, 6)
	redis := redistest.Start(t)
	start(t, "etcd", "", nil, "etcd", "--name", "m0", "--data", filepath.Join(dir, "etcd"), "--listen-client", addrs[0], "--listen-peer", addrs[1])
	etcd := newValve(t, addrs[0])
	tok := devToken(t, dir)
	var nodes []*process
	for i, log := range []string{addrs[0], etcd.l.Addr().String()} {
		nodes = append(nodes, start(t, fmt.Sprintf("node %d", i), addrs[3+2*i], []string{"FOREBAY_FAILPOINTS=" + failpoints}, "serve", "--node-id", fmt.Sprintf("n%d", i),
			"--listen", addrs[2+2*i], "--ops-listen", addrs[3+2*i], "--object-store", "file://"+filepath.Join(dir, "objects"), "--etcd", log, "--redis", redis.URL(),
			"--dev-key", filepath.Join(dir, "dev.key")))
		if err := nodes[i].ready(ctx); err != nil {
			t.Fatal(err)
		}
	}
	defer func() {
		if t.Failed() {
			for _, n := range nodes {
				t.Logf("%s:\n%s", n.name, n.log.tail())
			}
		}
	}()
	url := []string{"http://" + addrs[2], "http://" + addrs[4]}
	node := newRest(url[0], tok)
	if err := node.createTopic(ctx, "orders", 1); err != nil {
		t.Fatal(err)
	}
	texts := make([]string, 30)
	for i := range texts {
		texts[i] = fmt.Sprint(i)
	}
	if _, _, err := node.publish(ctx, "orders", 0, texts, nil); err != nil {
		t.Fatal(err)
	}
	records := map[slot]origin{}
	for i := range texts {
		records[slot{0, int64(i)}] = origin{}
	}
	l := newGroupLoad("billing", "orders", 2, records, tok, url...)
	l.heads, l.batch, l.session = []int64{30}, 40, 10*time.Second // a quarter of the batch at a time
	rng := rand.New(rand.NewPCG(1, 1))
	a, _ := l.member(t, rng, "a")
	b, _ := l.member(t, rng, "b")
	a.nodes, b.nodes = url[1:], url[:1]
	done := make(chan struct{})
	some := func(m *groupMember) {
		t.Helper()
		if found, err := m.some(ctx); !found || err != nil {
			t.Fatalf("%s has read nothing: %v", m.who, err)
		}
	}
	commit := func(m *groupMember) {
		t.Helper()
		if err := m.commit(ctx, m.generation, false); err != nil {
			t.Fatalf("commit of %s: %v", m.who, err)
		}
	}
	offsets := func() {
		t.Helper()
		for _, u := range url {
			_, observer := l.process(t, "observer")
			observer.base = u
			if err := observer.call(ctx, "GET", "/v1/groups/billing/offsets", nil, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	a.join(ctx, done)
	some(a)
	commit(a) // 10
	some(a)   // 20
	uploaded := metric(t, ctx, addrs[5], "forebay_ingest_uploaded_bytes_total")
	etcd.shut()
	answer := make(chan error, 1)
	go func() { answer <- a.commit(ctx, a.generation, false) }()
	// The door was passed when what is to be committed is in the store: only the log is missing.
	for metric(t, ctx, addrs[5], "forebay_ingest_uploaded_bytes_total") == uploaded {
		if !pause(ctx, nil, 5*time.Millisecond) {
			t.Fatal("the commit did not get to the log")
		}
	}
	warden, _ := l.member(t, rng, "warden")
	warden.nodes, warden.id = b.nodes, a.id
	warden.leave(ctx)
	b.join(ctx, done)
	for len(b.at) == 0 {
		if !pause(ctx, nil, 50*time.Millisecond) || !b.heartbeat(ctx, done) {
			t.Fatal("the other member did not get the partition")
		}
	}
	some(b)
	some(b)
	commit(b) // 30
	select {
	case err := <-answer:
		t.Fatalf("the commit was not held up: %v", err)
	default:
	}
	etcd.reopen()
	answered := <-answer
	offsets()
	b.leave(ctx)
	return l.h.Check(groupRules{session: l.session, slack: 20 * time.Millisecond}), answered
}

// devToken makes a token for a fabric whose development key is in dir.
func devToken(t *testing.T, dir string) string {
	t.Helper()
	p := start(t, "token", "", nil, "token", "--data", dir, "--tenant", "proof", "--subject", "checker")
	<-p.exited
	if p.err != nil {
		t.Fatalf("make token: %v\n%s", p.err, p.log.tail())
	}
	return strings.TrimSpace(p.log.tail())
}

// TestHeldCommit: a commit that was let in at the door and arrives in the log when its generation is over is refused there.
func TestHeldCommit(t *testing.T) {
	r, err := heldCommit(t, "")
	for _, p := range r.problems {
		t.Error(p)
	}
	if code(err) != "STALE_GENERATION" {
		t.Errorf("a commit that came late was answered %v", err)
	}
}

// TestBrokenGroupsAreCaught is the same with a build that does not check in the order of the log: it lets the late commit win. A judge that passes that proves nothing.
func TestBrokenGroupsAreCaught(t *testing.T) {
	r, err := heldCommit(t, failpoint.NoGroupFence+"=off")
	if len(r.problems) == 0 {
		t.Errorf("a build without the fence was accepted; the late commit was answered %v", err)
	} else {
		t.Logf("caught: %s", r.problems[0])
	}
}
