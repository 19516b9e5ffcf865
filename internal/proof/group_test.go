package proof

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/forebaymq/forebay/internal/redistest"
)

// TestGroups has three groups read the real input at once, by 12, 5 and 1 members that die, stall past their sessions and come back with old generations,
// leave and join: by polls, by reads from the offsets that they are told, and by the client's Consumer. Per group every record is processed, per
// path in order, a partition has one owner at a time, no commit of an old generation is accepted, commits never regress, and in the end there is no lag.
//
// FOREBAY_GROUP_LIFE is about how many batches a member works on before it misbehaves (default 9).
func TestGroups(t *testing.T) {
	t.Parallel() // they wait most of the time
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
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
	if len(records) != 30481 {
		t.Fatalf("%d records stand, want 30481", len(records))
	}
	var wg sync.WaitGroup
	var loads []*groupLoad
	for i, g := range []struct {
		name         string
		seats, batch int
	}{{"twelve", 12, 100}, {"five", 5, 240}, {"one", 1, 700}} {
		l := newGroupLoad(g.name, "changes", g.seats, records, c.token, "http://"+c.rest[0], "http://"+c.rest[1])
		l.batch, l.life, l.pace, l.seed = g.batch, envInt(t, "FOREBAY_GROUP_LIFE", 9), 20*time.Millisecond, uint64(i)
		loads = append(loads, l)
		wg.Go(func() {
			l.run(ctx, t, func(ctx context.Context, t *testing.T, seat int, done <-chan struct{}) {
				if seat%3 == 2 {
					l.consumerSeat(ctx, t, seat, done)
				} else {
					l.rawSeat(ctx, t, seat, done)
				}
			})
		})
	}
	wg.Wait()
	for _, l := range loads {
		if r := l.verdict(t); r.zombies == 0 && l.seats > 1 || l.ends[groupDies].Load() == 0 || l.ends[groupStalls].Load() == 0 || l.ends[groupLeaves].Load() == 0 {
			t.Errorf("group %s: not every kind of trouble came: the history proves little", l.group)
		}
	}
	if t.Failed() {
		for i, n := range c.nodes {
			t.Logf("node %d:\n%s", i, n.log.tail())
		}
	}
}
