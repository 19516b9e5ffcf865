package proof

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/forebaymq/forebay/internal/redistest"
)

// address is one TCP address that leads to whichever server is the primary, as a service address or a proxy does in production.
type address struct {
	l net.Listener

	mu     sync.Mutex
	target string
	conns  map[net.Conn]bool
	wg     sync.WaitGroup
}

func newAddress(t *testing.T, target string) *address {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := &address{l: l, target: target, conns: map[net.Conn]bool{}}
	a.wg.Add(1)
	go a.accept()
	t.Cleanup(func() {
		l.Close()
		a.point("")
		a.wg.Wait()
	})
	return a
}

func (a *address) accept() {
	defer a.wg.Done()
	for {
		conn, err := a.l.Accept()
		if err != nil {
			return
		}
		a.mu.Lock()
		target := a.target
		up, err := net.DialTimeout("tcp", target, time.Second)
		if err != nil {
			a.mu.Unlock()
			conn.Close()
			continue
		}
		a.conns[conn], a.conns[up] = true, true
		a.wg.Add(2)
		a.mu.Unlock()
		pipe := func(dst, src net.Conn) {
			defer a.wg.Done()
			_, _ = io.Copy(dst, src)
			a.drop(dst, src)
		}
		go pipe(conn, up)
		go pipe(up, conn)
	}
}

func (a *address) drop(conns ...net.Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range conns {
		c.Close()
		delete(a.conns, c)
	}
}

// point leads new connections elsewhere and ends the present ones.
func (a *address) point(target string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.target = target
	for c := range a.conns {
		c.Close()
		delete(a.conns, c)
	}
}

// TestQueueChaos is TestQueue on three nodes and a real Redis, while nodes are killed and Redis is killed, comes back empty, is flushed, loses
// its scripts, and fails over to a replica that lacks the last writes. Nothing is lost, nothing is delivered twice at a time, what was
// settled in time before a break is not delivered again, attempts are kept, and old receipts are refused.
//
// FOREBAY_REPEAT_WINDOW is how long before a break something must have been settled not to be repeated. The design says 100 ms; the default
// leaves room for a machine that stalls a process longer than that.
func TestQueueChaos(t *testing.T) {
	window := time.Second
	if s := os.Getenv("FOREBAY_REPEAT_WINDOW"); s != "" {
		var err error
		if window, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name    string
		config  map[string]any
		ordered bool
		pace    time.Duration
	}{
		{"unordered", map[string]any{"maxAttempts": 1000}, false, 40 * time.Millisecond},
		{"ordered", map[string]any{"maxAttempts": 1000, "ordering": "key"}, true, 10 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel() // they wait most of the time
			ctx, cancel := context.WithTimeout(context.Background(), 6*time.Minute)
			defer cancel()
			primary := redistest.Start(t)
			redis := newAddress(t, primary.Addr())
			c := newCluster(ctx, t, 3, "--redis", "redis://"+redis.l.Addr().String()+"/0")
			tokenFile := filepath.Join(c.dir, "token")
			if err := os.WriteFile(tokenFile, []byte(c.token), 0o600); err != nil {
				t.Fatal(err)
			}
			l := newQueue(ctx, t, c.client(0), c.rest[0], tokenFile, "changes", tc.config)
			l.nodes = []*rest{c.client(0), c.client(1), c.client(2)}
			l.batch, l.nack, l.stall, l.die = 20, 20, 3, 3
			l.pace = tc.pace // long enough for every kind of disturbance; records of one path come one after the other

			quiet := make(chan struct{})
			kinds := map[string]int{}
			var wg sync.WaitGroup
			wg.Add(1)
			go func() { // one disturbance at a time, healed before the next
				defer wg.Done()
				rng := rand.New(rand.NewPCG(11, 11))
				for n := 0; pause(ctx, quiet, time.Duration(1500+rng.IntN(500))*time.Millisecond); n++ {
					began := l.h.now()
					kind := []string{"flush", "kill node", "restart empty", "flush scripts", "failover"}[n%5]
					switch kind {
					case "kill node":
						i := rng.IntN(3)
						c.nodes[i].kill()
						c.startNode(i)
						if err := c.nodes[i].ready(ctx); err != nil {
							t.Error(err)
							return
						}
						t.Logf("node %d was killed at %v, ready again at %v", i, time.Duration(began), time.Duration(l.h.now()))
					case "flush":
						primary.Flush()
						l.h.broken(kind, began, l.h.now())
					case "flush scripts":
						primary.FlushScripts()
					case "restart empty":
						primary.Kill()
						pause(ctx, quiet, 300*time.Millisecond)
						primary.Restart()
						l.h.broken(kind, began, l.h.now())
					case "failover":
						replica := primary.Replica(t)
						replica.InSync()
						replica.Pause()
						pause(ctx, quiet, time.Second)
						began = l.h.now()
						primary.Kill()
						replica.Resume()
						replica.Promote()
						redis.point(replica.Addr())
						l.h.broken(kind, began, l.h.now())
						primary = replica
					}
					kinds[kind]++
				}
			}()
			l.run(ctx, t)
			close(quiet)
			wg.Wait()
			t.Logf("disturbances: %v", kinds)
			l.verdict(t, queueRules{maxAttempts: 1000, ordered: tc.ordered, repeats: window})
			if len(kinds) < 5 {
				t.Errorf("disturbances %v: not every kind came", kinds)
			}
			if t.Failed() {
				for i, n := range c.nodes {
					t.Logf("node %d:\n%s", i, n.log.tail())
				}
			}
		})
	}
}
