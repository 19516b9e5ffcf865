package store

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebaymq/forebay/metadata"
)

// Notify tells every process that listens, this one included.
func (s *Store) Notify(ctx context.Context, w Wake) error {
	due := int64(-1)
	if w.Due > 0 {
		due = ms(w.Due)
	}
	if err := s.c.Publish(ctx, s.channel(), fmt.Sprintf("%d %d %d", w.Subscription, w.Freed, due)).Err(); err != nil {
		return unavailable(err)
	}
	return nil
}

// listenPing is how long Listen waits for a message before it asks whether the connection is alive.
const listenPing = 5 * time.Second

// Listen calls f for each Wake until ctx ends, and answers nil then. It subscribes again by itself; what is said meanwhile is lost, so nobody may
// depend on it alone. f must not block.
func (s *Store) Listen(ctx context.Context, f func(Wake)) error {
	ps := s.c.Subscribe(ctx, s.channel())
	defer func() { _ = ps.Close() }()
	defer context.AfterFunc(ctx, func() { _ = ps.Close() })() // a receive under way does not look at ctx
	pinged := false
	for {
		msg, err := ps.ReceiveTimeout(ctx, listenPing)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			// A quiet channel times out; a dead connection does not answer a ping, and the next receive connects anew.
			if perr := ps.Ping(ctx); perr == nil && !pinged {
				pinged = true
				continue
			}
			pinged = false
			timer := s.o.Clock.NewTimer(orphanRetry)
			select {
			case <-timer.Chan():
			case <-ctx.Done():
				timer.Stop()
				return nil
			}
			continue
		}
		pinged = false
		m, ok := msg.(*redis.Message)
		if !ok {
			continue
		}
		var id uint64
		var w Wake
		var due int64
		if _, err := fmt.Sscanf(m.Payload, "%d %d %d", &id, &w.Freed, &due); err != nil {
			continue
		}
		w.Subscription = metadata.SubscriptionID(id)
		if due > 0 {
			w.Due = time.Duration(due) * time.Millisecond
		}
		f(w)
	}
}
