package metadata

import (
	"context"
	"iter"
	"slices"
	"sync"

	"github.com/forebaymq/forebay/api"
)

// Subscription gives a subscription by name, as far as this node has applied. UNKNOWN_TOPIC, UNKNOWN_SUBSCRIPTION.
func (l *Log) Subscription(tenant, topic, name string) (*Subscription, error) {
	s := l.tenantShard(tenant)
	s.mu.RLock()
	x, err := s.mu.state.Subscription(tenant, topic, name)
	s.mu.RUnlock()
	switch api.CodeOf(err) {
	case api.CodeUnknownTopic:
		return nil, api.Errorf(api.CodeUnknownTopic, "topic %q does not exist", topic)
	case api.CodeUnknownSubscription:
		return nil, api.Errorf(api.CodeUnknownSubscription, "topic %q has no subscription %q", topic, name)
	}
	return x, err
}

// SubscriptionByID gives a subscription by ID. UNKNOWN_SUBSCRIPTION.
func (l *Log) SubscriptionByID(id SubscriptionID) (*Subscription, error) {
	s := l.shards[uint64(id)%uint64(len(l.shards))]
	s.mu.RLock()
	defer s.mu.RUnlock()
	if x, ok := s.mu.state.SubscriptionByID(id); ok {
		return x, nil
	}
	return nil, api.Errorf(api.CodeUnknownSubscription, "subscription %d does not exist", id)
}

// Subscriptions lists a topic's subscriptions after a name, ascending, at most limit, and the name to go on after ("" = that was all).
// UNKNOWN_TOPIC.
func (l *Log) Subscriptions(tenant, topic, after string, limit int) ([]*Subscription, string, error) {
	s := l.tenantShard(tenant)
	s.mu.RLock()
	defer s.mu.RUnlock()
	found, next, err := s.mu.state.Subscriptions(tenant, topic, after, limit)
	if err != nil {
		return nil, "", api.Errorf(api.CodeUnknownTopic, "topic %q does not exist", topic)
	}
	return found, next, nil
}

// TopicSubscriptions gives all subscriptions of a topic, by name; none when the topic is not there.
func (l *Log) TopicSubscriptions(id TopicID) []*Subscription {
	s := l.shardOf(id)
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mu.state.TopicSubscriptions(id)
}

// subscriptionPage is how many subscriptions AllSubscriptions takes under one lock.
const subscriptionPage = 256

// AllSubscriptions goes through the subscriptions of all tenants, shard by shard and by ID. One that is created or deleted meanwhile may or
// may not come up; every other comes up once. No lock is held while the loop's body runs.
func (l *Log) AllSubscriptions() iter.Seq[*Subscription] {
	return func(yield func(*Subscription) bool) {
		for _, s := range l.shards {
			for after := SubscriptionID(0); ; {
				s.mu.RLock()
				page := s.mu.state.ScanSubscriptions(after, subscriptionPage)
				s.mu.RUnlock()
				for _, x := range page {
					if !yield(x) {
						return
					}
				}
				if len(page) < subscriptionPage {
					break
				}
				after = page[len(page)-1].ID
			}
		}
	}
}

// subscriptionChanges wakes those who follow the set of subscriptions.
type subscriptionChanges struct {
	sync.Mutex
	ch chan struct{} // nil: nobody has asked since the last change
}

func (c *subscriptionChanges) wake() {
	c.Lock()
	defer c.Unlock()
	if c.ch != nil {
		close(c.ch)
		c.ch = nil
	}
}

// SubscriptionsChanged returns a channel that is closed when any subscription is created, changed or deleted, alone or with its topic, as this
// node sees it. Take the channel, look, then wait: no change is missed. It may be closed without a change after a reload.
func (l *Log) SubscriptionsChanged() <-chan struct{} {
	c := &l.subscriptions
	c.Lock()
	defer c.Unlock()
	if c.ch == nil {
		c.ch = make(chan struct{})
	}
	return c.ch
}

// PutSubscription creates a subscription or changes its configuration. decide sees the present one, linearizably, or nil, and gives the
// configuration that shall be, or refuses; it may be called several times. What it gives as starts counts only for a new one: ascending by
// partition, moved into what the partitions hold when the creation is applied; partitions left out begin at 0. When the
// configuration is what is there, nothing is written. UNKNOWN_TOPIC, CONFLICT (too many, or being changed by others).
func (l *Log) PutSubscription(ctx context.Context, tenant, topic, name string,
	decide func(current *Subscription) (api.SubscriptionConfig, []api.PartitionOffset, error)) (x *Subscription, created bool, err error) {
	for range maxPutAttempts {
		if err := l.Sync(ctx); err != nil {
			return nil, false, err
		}
		t, err := l.Topic(tenant, topic)
		if err != nil {
			return nil, false, err
		}
		current, err := l.Subscription(tenant, topic, name)
		if err != nil && api.CodeOf(err) != api.CodeUnknownSubscription {
			return nil, false, err
		}
		config, starts, err := decide(current)
		if err != nil {
			return nil, false, err
		}
		var cmd Command
		if current == nil {
			cmd = &CreateSubscription{TopicID: t.ID, Name: name, Config: config, Starts: slices.Clone(starts), Now: l.o.Clock.Now().UnixMilli()}
		} else {
			if current.Config == config {
				return current, false, nil
			}
			cmd = &UpdateSubscription{ID: current.ID, Version: current.Version, Config: config}
		}
		r, err := l.Do(ctx, cmd, nil)
		if err != nil {
			return nil, false, err
		}
		switch code := api.CodeOf(r.Err); {
		case r.Err == nil:
			return r.Subscription, current == nil, nil
		case code == api.CodeConflict && r.Subscription != nil, code == api.CodeUnknownTopic, code == api.CodeUnknownSubscription:
			continue // created, changed or deleted meanwhile
		default:
			return nil, false, r.Err
		}
	}
	return nil, false, api.Errorf(api.CodeConflict, "subscription %q is being changed by others", name)
}

// DeleteSubscription removes a subscription and gives what it was. UNKNOWN_TOPIC, UNKNOWN_SUBSCRIPTION.
func (l *Log) DeleteSubscription(ctx context.Context, tenant, topic, name string) (*Subscription, error) {
	if err := l.Sync(ctx); err != nil {
		return nil, err
	}
	x, err := l.Subscription(tenant, topic, name)
	if err != nil {
		return nil, err
	}
	r, err := l.Do(ctx, &DeleteSubscription{ID: x.ID}, nil)
	if err != nil {
		return nil, err
	}
	return r.Subscription, r.Err
}
