package gateway

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/gateway/auth"
	"github.com/forebaymq/forebay/gateway/wire"
	"github.com/forebaymq/forebay/leases"
	"github.com/forebaymq/forebay/metadata"
)

// subscriptionName gives the subscription of the path, checked for form.
func (rq *request) subscriptionName() (n leases.Name, err error) {
	if n.Topic, err = rq.topicParam(); err != nil {
		return n, err
	}
	if n.Subscription, err = rq.pathParam("subscription"); err != nil {
		return n, err
	}
	n.Tenant = rq.principal.Tenant
	return n, api.CheckName("subscription", n.Subscription)
}

// subscription gives the subscription of the path, once the principal may do op on it and this node has queues at all.
func (rq *request) subscription(op auth.Operation) (leases.Name, error) {
	n, err := rq.subscriptionName()
	if err != nil {
		return n, err
	}
	if err := rq.authorize(op, auth.Subscription, subscriptionResource(n.Topic, n.Subscription)); err != nil {
		return n, err
	}
	return n, rq.s.queuesThere()
}

// subscriptionResource is the name of a subscription among the resources of its tenant.
func subscriptionResource(topic, name string) string { return topic + "/" + name }

func (s *Server) queuesThere() error {
	if s.o.Queues == nil {
		return api.Errorf(api.CodeLeasesUnavailable, "this node has no lease store and serves no subscriptions")
	}
	return nil
}

// queueTopic finds the topic of a subscription and refuses one that may only be used in another region.
func (s *Server) queueTopic(ctx context.Context, n leases.Name) (*metadata.Topic, error) {
	t, err := s.topic(ctx, n.Tenant, n.Topic)
	if err != nil {
		return nil, err
	}
	return t, s.resident(t)
}

// queueError names the end of a request's own time, where a queue did not.
func queueError(rq *request, err error) error {
	if api.CodeOf(err) == "" && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) && rq.ctx.Err() == nil {
		return &api.Error{Code: api.CodeLeasesUnavailable, Detail: "the answer was not there in time; try again", Cause: err}
	}
	return err
}

// putSubscription serves PUT /v1/topics/{topic}/subscriptions/{subscription}: 201 when it made the subscription, 200 when it was there.
// Members that the body leaves out keep their value, so the same request twice is the same as once; "start" counts only in the first.
func (s *Server) putSubscription(rq *request) error {
	if _, err := rq.parseQuery(); err != nil {
		return err
	}
	n, err := rq.subscription(auth.Configure)
	if err != nil {
		return err
	}
	body, release, err := rq.readJSON()
	if err != nil {
		return err
	}
	settings, err := wire.DecodeSubscription(body)
	release()
	if err != nil {
		return err
	}
	ctx, cancel := s.within(rq.ctx, s.o.Timeouts.Request)
	defer cancel()
	topic, err := s.queueTopic(ctx, n)
	if err != nil {
		return err
	}
	if settings.DeadLetterTopic != "" {
		if err := s.checkDeadLetterTopic(ctx, rq, topic, settings.DeadLetterTopic); err != nil {
			return err
		}
	}
	sub, created, err := s.o.Queues.PutSubscription(ctx, n, settings.Start, func(current *metadata.Subscription) (api.SubscriptionConfig, error) {
		if current == nil {
			return settings.Apply(nil)
		}
		return settings.Apply(&current.Config)
	})
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return rq.respondJSON(status, func(b []byte) []byte { return wire.AppendSubscriptionJSON(b, sub, nil) })
}

// checkDeadLetterTopic says whether copies of a topic's dead letters may go to the topic of that name: the caller may publish there, it
// exists, and the records do not leave their region by it.
func (s *Server) checkDeadLetterTopic(ctx context.Context, rq *request, topic *metadata.Topic, name string) error {
	const at = "/deadLetter/topic"
	if name == topic.Name {
		return invalidField(at, "must be another topic: copies would come back as new records")
	}
	if err := rq.authorize(auth.Publish, auth.Topic, name); err != nil {
		return err
	}
	dead, err := s.topic(ctx, rq.principal.Tenant, name)
	if err != nil {
		var e *api.Error
		if errors.As(err, &e) && e.Code == api.CodeUnknownTopic {
			return &api.Error{Code: e.Code, Detail: "topic " + name + " does not exist; create it first", Fields: []api.FieldError{{Pointer: at, Detail: "must be a topic that exists"}}}
		}
		return err
	}
	if from := topic.Config.Residency; from != "" && dead.Config.Residency != from {
		e := api.Errorf(api.CodeResidencyViolation, "topic %s resides in region %s, so its dead letters can only be copied to a topic that resides there too", topic.Name, from)
		e.Fields = []api.FieldError{{Pointer: at, Detail: "must be a topic with the same residency"}}
		return e
	}
	return s.resident(dead)
}

// getSubscription serves GET /v1/topics/{topic}/subscriptions/{subscription}, with statistics.
func (s *Server) getSubscription(rq *request) error {
	if _, err := rq.parseQuery(); err != nil {
		return err
	}
	n, err := rq.subscription(auth.Describe)
	if err != nil {
		return err
	}
	ctx, cancel := s.within(rq.ctx, s.o.Timeouts.Request)
	defer cancel()
	if _, err := s.queueTopic(ctx, n); err != nil {
		return err
	}
	stats, err := s.o.Queues.Subscription(ctx, n)
	if err != nil {
		return queueError(rq, err)
	}
	return rq.respondStats(stats)
}

func (rq *request) respondStats(stats *leases.Stats) error {
	return rq.respondJSON(http.StatusOK, func(b []byte) []byte { return wire.AppendSubscriptionJSON(b, stats.Subscription, partitionsOf(stats)) })
}

// partitionsOf gives the statistics of a subscription, which are shown even where there are none.
func partitionsOf(stats *leases.Stats) []leases.PartitionStats {
	if stats.Partitions == nil {
		return []leases.PartitionStats{}
	}
	return stats.Partitions
}

// deleteSubscription serves DELETE /v1/topics/{topic}/subscriptions/{subscription}.
func (s *Server) deleteSubscription(rq *request) error {
	if _, err := rq.parseQuery(); err != nil {
		return err
	}
	n, err := rq.subscription(auth.Configure)
	if err != nil {
		return err
	}
	ctx, cancel := s.within(rq.ctx, s.o.Timeouts.Request)
	defer cancel()
	if _, err := s.queueTopic(ctx, n); err != nil {
		return err
	}
	if err := s.o.Queues.DeleteSubscription(ctx, n); err != nil {
		return err
	}
	return rq.noContent()
}

// listSubscriptions serves GET /v1/topics/{topic}/subscriptions: those that the caller may describe, by name, with their statistics.
// A page may be shorter than its limit: it tells of a bounded number of partitions.
func (s *Server) listSubscriptions(rq *request) error {
	topic, err := rq.topicParam()
	if err != nil {
		return err
	}
	q, err := rq.parseQuery("limit", "cursor", "statistics")
	if err != nil {
		return err
	}
	limit, after, err := listParams(q)
	if err != nil {
		return err
	}
	statistics, err := q.boolean("statistics", true)
	if err != nil {
		return err
	}
	if err := s.queuesThere(); err != nil {
		return err
	}
	ctx, cancel := s.within(rq.ctx, s.o.Timeouts.Request)
	defer cancel()
	if _, err := s.queueTopic(ctx, leases.Name{Tenant: rq.principal.Tenant, Topic: topic}); err != nil {
		return err
	}
	items, next, err := visible(limit, after, rq.authorize(auth.Describe, auth.Subscription, ""),
		func(after string, limit int) ([]*metadata.Subscription, string, error) {
			return s.o.Queues.Subscriptions(ctx, rq.principal.Tenant, topic, after, limit)
		},
		func(sub *metadata.Subscription) (string, error) {
			return sub.Name, rq.authorize(auth.Describe, auth.Subscription, subscriptionResource(topic, sub.Name))
		})
	if err != nil {
		return queueError(rq, err)
	}
	all := make([]*leases.Stats, 0, len(items))
	partitions := 0
	for i, sub := range items {
		stats := &leases.Stats{Subscription: sub}
		if statistics {
			stats, err = s.o.Queues.Subscription(ctx, leases.Name{Tenant: rq.principal.Tenant, Topic: topic, Subscription: sub.Name})
			if c := api.CodeOf(err); c == api.CodeUnknownSubscription {
				continue // deleted since the page was taken
			} else if err != nil {
				return queueError(rq, err)
			}
			if partitions += len(stats.Partitions); partitions > listPartitions && len(all) > 0 {
				next = items[i-1].Name
				break
			}
			stats = &leases.Stats{Subscription: stats.Subscription, Partitions: partitionsOf(stats)}
		}
		all = append(all, stats)
	}
	return rq.respondJSON(http.StatusOK, func(b []byte) []byte {
		b = append(b, `{"items":[`...)
		for i, stats := range all {
			if i > 0 {
				b = append(b, ',')
			}
			b = wire.AppendSubscriptionJSON(b, stats.Subscription, stats.Partitions)
		}
		return appendNextCursor(append(b, ']'), next)
	})
}

// visible gives a page of what a caller may see. refused is why it may not see everything (nil = it may); then it is asked of each item.
// The name to go on after is always that of an item that the caller may see: a cursor must not tell of others. A caller that may see
// nothing at all gets refused.
func visible[T any](limit int, after string, refused error, page func(after string, limit int) ([]T, string, error), may func(T) (name string, err error)) (items []T, next string, err error) {
	if refused == nil {
		return page(after, limit)
	}
	last, from := "", after
	for {
		some, on, err := page(from, limit)
		if err != nil {
			return nil, "", err
		}
		for _, item := range some {
			name, denied := may(item)
			if denied != nil {
				continue
			}
			if len(items) == limit {
				return items, last, nil
			}
			items, last = append(items, item), name
		}
		if on == "" {
			break
		}
		from = on
	}
	if len(items) == 0 && after == "" {
		return nil, "", refused
	}
	return slices.Clip(items), "", nil
}
