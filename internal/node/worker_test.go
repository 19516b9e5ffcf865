package node

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/forebaymq/forebay/client"
	"github.com/forebaymq/forebay/internal/redistest"
)

// TestWorkerOutlivesRedis: Redis is away when a worker begins, and is killed and comes back empty in the middle. The worker tells of it, goes on by
// itself, and at the end every record is settled.
func TestWorkerOutlivesRedis(t *testing.T) {
	const records = 300
	redis := redistest.Start(t)
	cfg := embedded(t.TempDir())
	cfg.Redis = redis.URL()
	n := start(t, cfg)
	c := connect(t, n, "acme", client.WithRetry(client.RetryPolicy{Attempts: 1}))
	queue(t, c, records, 5)
	redis.Kill()

	// What happens to Redis, in this order, each step once.
	var do struct {
		sync.Mutex
		outages, kills int
		handled        map[int64]bool
	}
	do.handled = map[int64]bool{}
	down := true
	w, err := client.NewWorker(c, "orders", "work", func(_ context.Context, m *client.Message) error {
		do.Lock()
		defer do.Unlock()
		do.handled[m.Offset] = true
		if len(do.handled) == records/3 && do.kills == 0 {
			do.kills++
			redis.Kill()
			down = true
		}
		return nil
	}, client.WithWorkerConcurrency(8), client.WithWorkerVisibility(2*time.Second), client.WithWorkerUntilEmpty(), client.WithWorkerNotify(func(m *client.Message, err error) {
		do.Lock()
		defer do.Unlock()
		if m == nil && errors.Is(err, client.ErrLeasesUnavailable) && down {
			do.outages++
			redis.Restart()
			down = false
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stats, err := w.Run(ctx)
	if err != nil || ctx.Err() != nil || stats.Nacked != 0 || len(do.handled) != records || do.outages != 2 || do.kills != 1 {
		t.Errorf("%+v, %d handled, %d outages, %d kills: %v", stats, len(do.handled), do.outages, do.kills, err)
	}
	s, err := c.GetSubscription(t.Context(), "orders", "work")
	if err != nil {
		t.Fatal(err)
	}
	if p := s.Partitions[0]; p.Frontier != records || p.Lag != 0 || p.InFlight != 0 || p.DeadLetters != 0 {
		t.Errorf("at the end: %+v", p)
	}
}
