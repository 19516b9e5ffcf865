package proof

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

// cluster is three etcd members and some nodes over one file store, each a process of its own.
type cluster struct {
	t       *testing.T
	dir     string
	peers   []string // etcd peer addresses
	clients []string // etcd client addresses
	rest    []string // node REST addresses
	ops     []string // node ops addresses
	members []*process
	nodes   []*process
	extra   []string // further arguments of the nodes
	token   string
}

// newCluster starts three members and n nodes, with further arguments, and leaves addresses for one more node.
func newCluster(ctx context.Context, t *testing.T, n int, extra ...string) *cluster {
	t.Helper()
	addrs := ports(t, 6+2*(n+1))
	c := &cluster{t: t, dir: t.TempDir(), extra: extra, peers: addrs[:3], clients: addrs[3:6], rest: addrs[6 : 7+n], ops: addrs[7+n:]}
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "token", "--data", c.dir, "--tenant", "proof", "--subject", "checker")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")} // not the settings of this test: forebay refuses variables that it does not know
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("make token: %v", err)
	}
	c.token = strings.TrimSpace(string(out))
	for i := range 3 {
		c.members = append(c.members, nil)
		c.startMember(i)
	}
	for i := range n {
		c.nodes = append(c.nodes, nil)
		c.startNode(i)
	}
	for i := range n {
		if err := c.nodes[i].ready(ctx); err != nil {
			t.Fatalf("%v\netcd:\n%s", err, c.members[0].log.tail())
		}
	}
	return c
}

func (c *cluster) startMember(i int) {
	var initial []string
	for j, p := range c.peers {
		initial = append(initial, fmt.Sprintf("m%d=%s", j, p))
	}
	c.members[i] = start(c.t, fmt.Sprintf("etcd m%d", i), "", nil, "etcd", "--name", fmt.Sprintf("m%d", i), "--data", filepath.Join(c.dir, fmt.Sprintf("m%d", i)),
		"--listen-client", c.clients[i], "--listen-peer", c.peers[i], "--initial-cluster", strings.Join(initial, ","))
}

func (c *cluster) startNode(i int) {
	args := append([]string{"serve", "--node-id", fmt.Sprintf("n%d", i), "--listen", c.rest[i], "--ops-listen", c.ops[i],
		"--object-store", "file://" + filepath.Join(c.dir, "objects"), "--etcd", strings.Join(c.clients, ","), "--dev-key", filepath.Join(c.dir, "dev.key")}, c.extra...)
	c.nodes[i] = start(c.t, fmt.Sprintf("node %d", i), c.ops[i], nil, args...)
}

func (c *cluster) client(i int) *rest {
	r := newRest("http://"+c.rest[i], c.token)
	c.t.Cleanup(r.http.CloseIdleConnections)
	return r
}

// hashes gives a node's state: the revision and hash of each shard.
func (c *cluster) hashes(i int) (map[string]any, error) {
	resp, err := http.Get("http://" + c.ops[i] + "/debug/state")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	var out struct {
		State struct {
			Hashes map[string]any `json:"hashes"`
		} `json:"state"`
	}
	if err := json.Unmarshal(b, &out); err != nil {
		return nil, fmt.Errorf("%w: %s", err, b)
	}
	if len(out.State.Hashes) == 0 {
		return nil, fmt.Errorf("no shard state in %s", b)
	}
	return out.State.Hashes, nil
}

// within retries f until it succeeds or the context ends.
func within(ctx context.Context, f func() error) error {
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond): // polls other processes
		}
	}
}

// TestCluster: three nodes on one quorum behave as one, while nodes are killed and members stopped; one member of three down changes
// nothing; two down acknowledge nothing, say so in time, and all is well when they are back; a node that joins late agrees.
//
// FOREBAY_PROOF_SECONDS sets how long the disturbed history lasts (default 8).
func TestCluster(t *testing.T) {
	seconds := envInt(t, "FOREBAY_PROOF_SECONDS", 8)
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(seconds+240)*time.Second)
	defer cancel()
	c := newCluster(ctx, t, 3)
	nodes := []*rest{c.client(0), c.client(1), c.client(2)}
	const topic = "cluster"
	if err := nodes[0].createTopic(ctx, topic, 2); err != nil {
		t.Fatal(err)
	}

	t.Run("what one acknowledged every other shows at once", func(t *testing.T) {
		if err := nodes[0].createTopic(ctx, "at-once", 1); err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			text := fmt.Sprintf("x%d", i)
			pos, _, err := nodes[i%3].publish(ctx, "at-once", 0, []string{text}, nil)
			if err != nil {
				t.Fatal(err)
			}
			for j := range 3 {
				texts, head, err := nodes[j].readAll(ctx, "at-once", 0, pos[0].Offset)
				if err != nil || head != pos[0].Offset+1 || len(texts) != 1 || texts[0] != text {
					t.Fatalf("node %d does not show %s at %d: %v head %d (%v)", j, text, pos[0].Offset, texts, head, err)
				}
			}
		}
	})

	t.Run("history under kills is linearizable", func(t *testing.T) {
		h := NewHistory()
		w := workload{topic: topic, partitions: 2, clients: 6, ops: seconds * 25, seed: 1, nodes: nodes, pace: 40 * time.Millisecond}
		quiet := make(chan struct{})
		var wg sync.WaitGroup
		wg.Add(1)
		kills := 0
		go func() { // one disturbance at a time, healed before the next
			defer wg.Done()
			rng := rand.New(rand.NewPCG(7, 7))
			for {
				select {
				case <-quiet:
					return
				case <-time.After(time.Duration(300+rng.IntN(500)) * time.Millisecond):
				}
				kills++
				i := rng.IntN(3)
				if kills%2 == 1 {
					c.nodes[i].kill()
					c.startNode(i)
					if err := c.nodes[i].ready(ctx); err != nil {
						t.Error(err)
						return
					}
				} else {
					c.members[i].kill()
					select {
					case <-quiet:
					case <-time.After(time.Duration(200+rng.IntN(800)) * time.Millisecond):
					}
					c.startMember(i)
				}
			}
		}()
		w.run(ctx, t, h)
		close(quiet)
		wg.Wait()
		var final map[int][]string
		if err := within(ctx, func() (err error) { final, err = w.final(ctx, nodes[1]); return err }); err != nil {
			t.Fatal(err)
		}
		done, indefinite := h.Counts()
		v := h.Check(final, time.Minute)
		t.Logf("%d operations answered, %d indefinite, %d disturbances: %v", done, indefinite, kills, v.Result)
		if !v.OK {
			t.Errorf("not linearizable: %v %v (%s)", v.Result, v.Problems, v.draw())
		}
		if kills < 3 || done < w.clients*w.ops/4 {
			t.Errorf("%d disturbances, %d of %d operations answered: the history proves little", kills, done, w.clients*w.ops)
		}
	})

	t.Run("one member down: writes go on", func(t *testing.T) {
		c.members[0].kill()
		for i := range 20 {
			if err := within(ctx, func() error {
				_, _, err := nodes[i%3].publish(ctx, topic, 0, []string{fmt.Sprintf("one-down-%d", i)}, nil)
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
	})

	t.Run("two members down: nothing acknowledged, said in time; well after they return", func(t *testing.T) {
		c.members[1].kill()
		sawUnavailable := false
		for i := range 12 {
			began := time.Now()
			octx, cancel := context.WithTimeout(ctx, 20*time.Second)
			_, _, err := nodes[i%3].publish(octx, topic, 0, []string{fmt.Sprintf("two-down-%d", i)}, nil)
			cancel()
			var p *problem
			switch {
			case err == nil:
				t.Fatal("a publish was acknowledged without a quorum")
			case !errors.As(err, &p):
				t.Fatalf("no answer within the deadline, after %v: %v", time.Since(began), err)
			case p.Code == "METADATA_UNAVAILABLE" && p.Status == 503:
				sawUnavailable = true
			case p.Code != "OUTCOME_UNKNOWN": // the ones in flight when the quorum went
				t.Fatalf("unexpected answer: %v", err)
			}
		}
		if !sawUnavailable {
			t.Error("METADATA_UNAVAILABLE was never answered")
		}
		_, _, err := nodes[0].readAll(ctx, topic, 0, 0)
		var p *problem
		if !errors.As(err, &p) || p.Code != "METADATA_UNAVAILABLE" {
			t.Errorf("a linearizable read without a quorum answers %v", err)
		}
		c.startMember(0)
		c.startMember(1)
		for i := range 3 {
			if err := within(ctx, func() error {
				_, _, err := nodes[i].publish(ctx, topic, 0, []string{fmt.Sprintf("back-%d", i)}, nil)
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
	})

	t.Run("all nodes agree, one that joins late too", func(t *testing.T) {
		c.nodes = append(c.nodes, nil)
		c.startNode(3)
		if err := c.nodes[3].ready(ctx); err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.client(3).readAll(ctx, topic, 0, 0); err != nil {
			t.Fatal(err)
		}
		if err := within(ctx, func() error {
			want, err := c.hashes(0)
			if err != nil {
				return err
			}
			for i := 1; i < 4; i++ {
				got, err := c.hashes(i)
				if err != nil {
					return err
				}
				if !reflect.DeepEqual(got, want) {
					return fmt.Errorf("node %d has %v, node 0 has %v", i, got, want)
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	})
}
