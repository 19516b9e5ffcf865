package proof

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/forebaymq/forebay/internal/redistest"
)

// TestGroupsChaos has two groups read the real input, one of the client's Consumers that nobody helps and one of members by REST, while Redis is flushed, is killed
// and comes back empty, or as it was some generations ago, and nodes are killed. Generations rise, what was committed stays, nobody owns what another one
// does, members come back by themselves, and in the end there is no lag.
//
// FOREBAY_GROUP_ROUNDS is how often each disturbance comes (default 1); with more, the members work more slowly.
func TestGroupsChaos(t *testing.T) {
	t.Parallel() // they wait most of the time
	rounds := envInt(t, "FOREBAY_GROUP_ROUNDS", 1)
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(4+rounds)*time.Minute)
	defer cancel()
	redis := redistest.Start(t)
	c := newCluster(ctx, t, 2, "--redis", redis.URL())
	tokenFile := filepath.Join(c.dir, "token")
	if err := os.WriteFile(tokenFile, []byte(c.token), 0o600); err != nil {
		t.Fatal(err)
	}
	node := c.client(0)
	if err := node.createTopic(ctx, "changes", queuePartitions); err != nil {
		t.Fatal(err)
	}
	publishChanges(t, c.rest[0], tokenFile, "changes")
	records := origins(ctx, t, node, "changes", queuePartitions)
	urls := []string{"http://" + c.rest[0], "http://" + c.rest[1]}
	consumers, raw := newGroupLoad("consumers", "changes", 6, records, c.token, urls...), newGroupLoad("raw", "changes", 6, records, c.token, urls...)
	consumers.batch, consumers.concurrency, consumers.pace = 100, 2, time.Duration(rounds)*150*time.Millisecond
	raw.batch, raw.pace, raw.seed = 150, time.Duration(rounds)*120*time.Millisecond, 1
	loads := []*groupLoad{consumers, raw}

	quiet := make(chan struct{})
	came := 0
	var wg, disturbed sync.WaitGroup
	disturbed.Go(func() { // one disturbance at a time, healed before the next
		rng := rand.New(rand.NewPCG(11, 11))
		for n := 0; n < 4*rounds && pause(ctx, quiet, time.Duration(1200+rng.IntN(500))*time.Millisecond); n++ {
			kind := []string{"restart empty", "kill node", "flush", "roll back"}[n%4]
			began := []int64{consumers.h.now(), raw.h.now()}
			switch kind {
			case "restart empty":
				redis.Kill()
				pause(ctx, quiet, 300*time.Millisecond)
				redis.Restart()
			case "flush":
				redis.Flush()
			case "roll back":
				before := redis.Snapshot()
				for i, l := range loads { // a guest makes two generations
					guest, _ := l.member(t, rng, "guest")
					if guest.join(ctx, quiet) {
						guest.leave(ctx)
					}
					began[i] = l.h.now()
				}
				redis.Rollback(before)
			case "kill node":
				i := rng.IntN(len(c.nodes))
				c.nodes[i].kill()
				c.startNode(i)
				if err := c.nodes[i].ready(ctx); err != nil {
					t.Error(err)
					return
				}
			}
			for i, l := range loads {
				if kind != "kill node" {
					l.h.broken(kind, began[i], l.h.now())
				}
				t.Logf("group %s: %s at %v to %v", l.group, kind, time.Duration(began[i]), time.Duration(l.h.now()))
			}
			came++
		}
	})
	wg.Go(func() { consumers.run(ctx, t, consumers.consumerSeat) })
	wg.Go(func() { raw.run(ctx, t, raw.rawSeat) })
	wg.Wait()
	close(quiet)
	disturbed.Wait()
	for _, l := range loads {
		l.verdict(t)
	}
	if came < 4*rounds {
		t.Errorf("the work was done after %d disturbances of %d", came, 4*rounds)
	}
	if t.Failed() {
		for i, n := range c.nodes {
			t.Logf("node %d:\n%s", i, n.log.tail())
		}
	}
}
