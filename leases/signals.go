package leases

import (
	"context"
	"sync"

	"github.com/forebaymq/forebay/metadata"
)

// signals is a set of queues that want something done, each at most once, and a way to wait for one.
type signals struct {
	mu struct {
		sync.Mutex
		queues map[metadata.SubscriptionID]*queue
	}
	some chan struct{} // holds a token while there may be queues
}

func newSignals() *signals {
	s := &signals{some: make(chan struct{}, 1)}
	s.mu.queues = map[metadata.SubscriptionID]*queue{}
	return s
}

// add says that q wants it.
func (s *signals) add(q *queue) {
	s.mu.Lock()
	s.mu.queues[q.id] = q
	s.mu.Unlock()
	select {
	case s.some <- struct{}{}:
	default:
	}
}

// wait returns the queues that were added since the last wait, when there are any, or nil when ctx ends.
func (s *signals) wait(ctx context.Context) []*queue {
	for {
		select {
		case <-s.some:
		case <-ctx.Done():
			return nil
		}
		s.mu.Lock()
		var out []*queue
		for id, q := range s.mu.queues {
			out = append(out, q)
			delete(s.mu.queues, id)
		}
		s.mu.Unlock()
		if len(out) > 0 {
			return out
		}
	}
}
