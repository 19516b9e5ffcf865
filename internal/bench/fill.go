package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebaymq/forebay/client"
)

// Publishing a backlog: requests of about this many bytes, so many at a time.
const (
	fillBytes   = 512 << 10
	fillClients = 8
)

// fill publishes what a topic lacks of the backlog.
func fill(ctx context.Context, o QueueOptions) error {
	topic, err := o.Client.GetTopic(ctx, o.Topic)
	if err != nil {
		return err
	}
	missing := o.Backlog
	for _, p := range topic.PartitionInfo {
		missing -= p.Head - p.LogStart
	}
	if missing <= 0 {
		return nil
	}
	batch := int(min(int64(max(1, fillBytes/o.RecordSize)), missing, 10_000))
	p := &payloads{size: o.RecordSize, batch: batch, compressible: 0.5, rng: rand.New(rand.NewPCG(o.Seed, 0xf111))}
	shots := make([]*client.Prepared, 4*fillClients)
	for i := range shots {
		if shots[i], _, err = p.request(o.Client); err != nil {
			return fmt.Errorf("build requests: %w", err)
		}
	}
	// The last request is larger than what is missing then; a backlog may be.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next, done atomic.Int64
	var wg sync.WaitGroup
	for range fillClients {
		wg.Go(func() {
			for n := next.Add(1) - 1; n*int64(batch) < missing; n = next.Add(1) - 1 {
				if err := publishOne(ctx, o, shots[n%int64(len(shots))]); err != nil {
					cancel(err)
					return
				}
				if all := done.Add(int64(batch)); o.Progress != nil {
					o.Progress(min(all, missing), missing)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// publishOne publishes one request. A refusal is waited for; what is not known to have failed would make the backlog larger.
func publishOne(ctx context.Context, o QueueOptions, request *client.Prepared) error {
	for {
		_, err := o.Client.PublishPrepared(ctx, o.Topic, request)
		if outcome, _ := client.Classify(err); err == nil || outcome == client.Definite || ctx.Err() != nil {
			return err
		}
		if !sleepUntil(ctx, time.Now().Add(pauseAfter(err))) {
			return err
		}
	}
}
