package leases

import (
	"context"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases/store"
	"github.com/forebaymq/forebay/metadata"
)

// queue is a subscription as it is described at one moment. It is immutable; a changed description is another queue with the same active.
type queue struct {
	*active
	sub   *metadata.Subscription
	topic *metadata.Topic
	store store.Queue // goes with every call to the store
}

func (q *queue) name() Name {
	return Name{Tenant: q.sub.Tenant, Topic: q.sub.Topic, Subscription: q.sub.Name}
}

// lookup finds a subscription by name in what this node has applied, and asks for what it may have missed only when it is not there. That is
// enough for leasing and settling: a subscription that was deleted elsewhere is not in Redis any more, and opening it looks again.
func (e *Engine) lookup(ctx context.Context, n Name) (*queue, error) {
	q, err := e.find(n)
	if code := api.CodeOf(err); code != api.CodeUnknownSubscription && code != api.CodeUnknownTopic {
		return q, err
	}
	return e.resolve(ctx, n)
}

// resolve finds a subscription by name, linearizably.
func (e *Engine) resolve(ctx context.Context, n Name) (*queue, error) {
	if err := e.o.View.Sync(ctx); err != nil {
		return nil, err
	}
	return e.find(n)
}

func (e *Engine) find(n Name) (*queue, error) {
	sub, err := e.o.View.Subscription(n.Tenant, n.Topic, n.Subscription)
	if err != nil {
		return nil, err
	}
	return e.describe(sub)
}

// byID finds a subscription that Redis named, in what this node has applied. UNKNOWN_SUBSCRIPTION.
func (e *Engine) byID(id metadata.SubscriptionID) (*queue, error) {
	sub, err := e.o.View.SubscriptionByID(id)
	if err != nil {
		return nil, err
	}
	return e.describe(sub)
}

// describe gives the queue of a subscription's description.
func (e *Engine) describe(sub *metadata.Subscription) (*queue, error) {
	topic, err := e.o.View.TopicByID(sub.TopicID)
	if err != nil {
		return nil, err
	}
	a := e.active(sub.ID)
	if q := a.described.Load(); q != nil && q.sub.Version == sub.Version && q.topic.Version == topic.Version {
		return q, nil
	}
	c := &sub.Config
	q := &queue{active: a, sub: sub, topic: topic, store: store.Queue{
		ID: sub.ID, MaxAttempts: c.MaxAttempts, Backoff: c.Backoff, MaxInFlight: c.MaxInFlight, MaxAckedAhead: c.MaxAckedAhead,
		Ordered: c.Ordering == api.OrderingKey, Fair: c.FairShare.Enabled(), CopyDead: c.DeadLetterTopic != "", SkipGaps: c.GapPolicy == api.GapSkip,
	}}
	for {
		newest := a.described.Load()
		if newest != nil && (newest.sub.Version > sub.Version || newest.sub.Version == sub.Version && newest.topic.Version > topic.Version) {
			return q, nil // found before the change; only the request that found it uses it
		}
		if a.described.CompareAndSwap(newest, q) {
			return q, nil
		}
	}
}
