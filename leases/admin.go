package leases

import (
	"context"
	"fmt"
	"sync"

	"github.com/oklog/ulid/v2"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/metadata"
)

var _ Queues = (*Engine)(nil)

// admin is what the engine keeps for the administration of subscriptions.
type admin struct {
	holder  string     // of this engine's locks
	entropy sync.Mutex // a source of randomness need not be safe for several users
	m       *adminMetrics
	tasks   runners
	wards   wards
	copiers copiers
}

func newAdmin(o *Options) (*admin, error) {
	id, err := ulid.New(ulid.Timestamp(o.Clock.Now()), o.Rand)
	if err != nil {
		return nil, fmt.Errorf("make an ID for this engine: %w", err)
	}
	a := &admin{holder: id.String()}
	a.wards.behind = map[metadata.SubscriptionID]map[int32]int64{}
	a.copiers.busy = map[metadata.SubscriptionID]bool{}
	a.tasks.running = map[string]*runner{}
	if a.m, err = newAdminMetrics(o.Registerer, &a.wards); err != nil {
		return nil, err
	}
	return a, nil
}

// adminLoops are the background work of administration.
func (e *Engine) adminLoops() []func(ctx context.Context) {
	return []func(context.Context){e.copyLoop, e.custodyLoop}
}

// newID makes an ID that sorts by time.
func (e *Engine) newID() (string, error) {
	e.admin.entropy.Lock()
	defer e.admin.entropy.Unlock()
	id, err := ulid.New(ulid.Timestamp(e.o.Clock.Now()), e.o.Rand)
	if err != nil {
		return "", fmt.Errorf("make an ID: %w", err)
	}
	return id.String(), nil
}

// PutSubscription creates or changes a subscription. Where a new one starts is decided after everything that was acknowledged before the call
// is known, and before the answer: what is published after the answer is delivered.
func (e *Engine) PutSubscription(ctx context.Context, n Name, start Start,
	decide func(current *metadata.Subscription) (api.SubscriptionConfig, error)) (*metadata.Subscription, bool, error) {
	return e.o.Catalog.PutSubscription(ctx, n.Tenant, n.Topic, n.Subscription, func(current *metadata.Subscription) (api.SubscriptionConfig, []api.PartitionOffset, error) {
		config, err := decide(current)
		if err != nil {
			return config, nil, err
		}
		topic, err := e.o.View.Topic(n.Tenant, n.Topic)
		if err != nil {
			return config, nil, err
		}
		if err := e.checkDeadLetterTopic(topic, config.DeadLetterTopic); err != nil {
			return config, nil, err
		}
		if current != nil {
			return config, nil, nil
		}
		starts, err := e.starts(ctx, topic, start)
		return config, starts, err
	})
}

// checkDeadLetterTopic says whether copies of a topic's dead records may go to another topic; "" = no copies.
func (e *Engine) checkDeadLetterTopic(topic *metadata.Topic, name string) error {
	const pointer = "/deadLetter/topic"
	switch {
	case name == "":
		return nil
	case !api.ValidName(name):
		return fieldError(api.CodeInvalidRequest, pointer, "%q cannot be a dead-letter topic: name a topic of your own", name)
	case name == topic.Name:
		return fieldError(api.CodeInvalidRequest, pointer, "a topic cannot be its own dead-letter topic: its copies would be delivered and die again")
	}
	to, err := e.o.View.Topic(topic.Tenant, name)
	switch {
	case api.CodeOf(err) == api.CodeUnknownTopic:
		return fieldError(api.CodeInvalidRequest, pointer, "topic %q does not exist: create it first", name)
	case err != nil:
		return err
	case !mayCopy(topic, to):
		return fieldError(api.CodeInvalidRequest, pointer, "records of topic %s may not leave region %s: give topic %s the same residency", topic.Name, topic.Config.Residency, name)
	}
	return nil
}

// mayCopy says whether residency lets copies of one topic's records into another: what may not leave its region may not do so as a copy.
func mayCopy(from, to *metadata.Topic) bool {
	return from.Config.Residency == "" || from.Config.Residency == to.Config.Residency
}

// starts gives the offsets at which a new subscription begins, ascending by partition. Partitions that begin at 0 are not named.
func (e *Engine) starts(ctx context.Context, topic *metadata.Topic, start Start) ([]api.PartitionOffset, error) {
	if start.Offsets != nil {
		return nil, api.Errorf(api.CodeInvalidRequest, "a subscription starts at latest, earliest or a timestamp")
	}
	start.Latest = !start.Earliest && start.Time == nil
	targets, err := e.targets(ctx, topic, start)
	if err != nil {
		return nil, err
	}
	var out []api.PartitionOffset
	for p := range int32(topic.Config.Partitions) {
		if offset := targets[p]; offset > 0 {
			out = append(out, api.PartitionOffset{Partition: p, Offset: offset})
		}
	}
	return out, nil
}

// Subscriptions lists those of a topic by name, linearizably.
func (e *Engine) Subscriptions(ctx context.Context, tenant, topic, after string, limit int) ([]*metadata.Subscription, string, error) {
	if err := e.o.View.Sync(ctx); err != nil {
		return nil, "", err
	}
	return e.o.Catalog.Subscriptions(tenant, topic, after, limit)
}

// DeleteSubscription removes a subscription for good. What decides is the metadata log; what Redis and the journal have of it is removed before the
// answer, and looked for once more later: a node that had not heard of it may have put something back, which nobody can reach, because the ID is
// never used again. When Redis or the journal is away the subscription is deleted all the same, and they are cleaned later.
func (e *Engine) DeleteSubscription(ctx context.Context, n Name) error {
	sub, err := e.o.Catalog.DeleteSubscription(ctx, n.Tenant, n.Topic, n.Subscription)
	if err != nil {
		return err
	}
	if err := e.bury(ctx, sub.ID, sub.Tenant); err != nil {
		e.o.Logger.Warn("what a deleted subscription left is not removed yet", "tenant", sub.Tenant, "subscription", sub.Name, "id", sub.ID, "error", err)
	}
	e.admin.wards.deleted(sub.ID, sub.Tenant, e.now()+2*e.o.CallTimeout.Milliseconds())
	return nil
}
