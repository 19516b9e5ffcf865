package proof

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/forebaymq/forebay/gateway/auth"
	"github.com/forebaymq/forebay/internal/node"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/metadata/metafault"
	"github.com/forebaymq/forebay/objectstore/mem"
)

// threeNodes starts three nodes in this process on one memory log and one memory store, with faults drawn from the seed between each
// node and the log, and between all of them and the store.
func threeNodes(ctx context.Context, t *testing.T, seed uint64, rates metafault.Rates) []*rest {
	t.Helper()
	key := bytes.Repeat([]byte{7}, 32)
	tok, err := auth.SignDev(key, auth.Claims{Tenant: "proof", Subject: "checker", Expires: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	store := mem.New(mem.Options{})
	driver := metadata.NewMemDriver(metadata.MemOptions{})
	t.Cleanup(func() { _ = driver.Close() })
	var nodes []*rest
	for i := range 3 {
		peer := driver.Peer()
		faulty := metafault.Wrap(peer, clockwork.NewRealClock(), nil)
		n, err := node.New(node.Config{
			NodeID: string(rune('a' + i)), Listen: "127.0.0.1:0", OpsListen: "127.0.0.1:0",
			Store: store, StoreFaults: "seed=1;put:latency=lognormal(3ms,20ms);put:every=7:error=503", Driver: faulty,
			Auth: node.Auth{DevKey: key},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
			defer cancel()
			if err := n.Stop(stopCtx); err != nil {
				t.Errorf("stop node %d: %v", i, err)
			}
			_ = peer.Close()
		})
		if err := n.Start(ctx); err != nil {
			t.Fatal(err)
		}
		faulty.SetHook(metafault.Random(seed*3+uint64(i), rates)) // a node that cannot join ends; faults begin after that
		r := newRest("http://"+n.Addr(), tok)
		t.Cleanup(r.http.CloseIdleConnections)
		nodes = append(nodes, r)
	}
	return nodes
}

// faultyHistory runs the workload over three nodes whose calls to the log are late, refused, or lose their answers, and judges it.
func faultyHistory(t *testing.T, seed uint64) Verdict {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	nodes := threeNodes(ctx, t, seed, metafault.Rates{Refused: 0.02, Lost: 0.05, Broken: 0.01, MaxDelay: 12 * time.Millisecond})
	w := workload{topic: "history", partitions: 2, clients: 6, ops: 60, seed: seed, nodes: nodes}
	for {
		if err := nodes[0].createTopic(ctx, w.topic, w.partitions); err == nil {
			break
		} else if ctx.Err() != nil {
			t.Fatalf("create topic: %v", err)
		}
	}
	h := NewHistory()
	w.run(ctx, t, h)
	var final map[int][]string
	for {
		var err error
		if final, err = w.final(ctx, nodes[seed%3]); err == nil {
			break
		} else if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	done, indefinite := h.Counts()
	v := h.Check(final, time.Minute)
	t.Logf("seed %d: %d operations answered, %d indefinite: %v %v", seed, done, indefinite, v.Result, v.Problems)
	if done < w.clients*w.ops/3 {
		t.Errorf("only %d of %d operations were answered: the history proves little", done, w.clients*w.ops)
	}
	return v
}

// TestHistory: whatever the log's answers do, appends and reads through any of three nodes are linearizable.
//
// FOREBAY_HISTORY_SEEDS sets the number of seeds (default 4).
func TestHistory(t *testing.T) {
	for seed := range uint64(envInt(t, "FOREBAY_HISTORY_SEEDS", 4)) {
		if v := faultyHistory(t, seed); !v.OK {
			t.Errorf("seed %d: not linearizable: %v %v (%s)", seed, v.Result, v.Problems, v.draw())
		}
	}
}
