package metadata

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/forebaymq/forebay/api"
)

func errUnknownSubscription() error {
	return api.Errorf(api.CodeUnknownSubscription, "the subscription does not exist")
}

// subscriptions are those of one shard. What it points to is immutable: a change puts another description in place.
type subscriptions struct {
	counter uint64 // the next ID is (counter+1)*shards + shard
	byID    map[SubscriptionID]*Subscription
	order   []*Subscription // ascending by ID
}

// searchSubscription gives the place of the first subscription whose name is not below name.
func (t *topic) searchSubscription(name string) (int, bool) {
	return slices.BinarySearchFunc(t.subscriptions, name, func(x *Subscription, name string) int { return cmp.Compare(x.Name, name) })
}

// searchSubscriptionID gives the place of the first subscription whose ID is not below id.
func (s *State) searchSubscriptionID(id SubscriptionID) int {
	return sort.Search(len(s.subs.order), func(i int) bool { return s.subs.order[i].ID >= id })
}

// checkSubscriptionConfig refuses what cannot be compared or encoded. Everything else is checked where requests come in.
func checkSubscriptionConfig(c *api.SubscriptionConfig) error {
	if math.IsNaN(c.Backoff.Multiplier) || math.IsInf(c.Backoff.Multiplier, 0) {
		return api.Errorf(api.CodeInvalidRequest, "the backoff's multiplier must be a number")
	}
	return nil
}

// bound puts starts within what the partitions have, drops those at 0, which need not be told, and refuses those that cannot be.
func (t *topic) bound(starts []api.PartitionOffset) ([]api.PartitionOffset, error) {
	var out []api.PartitionOffset
	last := int32(-1)
	for _, x := range starts {
		if x.Partition <= last || int(x.Partition) >= t.config.Partitions {
			return nil, api.Errorf(api.CodeInvalidRequest, "starts must name partitions of the topic in ascending order: %d after %d, of %d", x.Partition, last, t.config.Partitions)
		}
		last = x.Partition
		p := t.find(x.Partition)
		if p == nil {
			continue // its first record is at 0
		}
		if x.Offset = min(max(x.Offset, p.logStart), p.head); x.Offset > 0 {
			out = append(out, x)
		}
	}
	return out, nil
}

func (s *State) createSubscription(c *CreateSubscription, a *Applied) Result {
	t := s.topics[c.TopicID]
	if t == nil {
		return Result{Err: errUnknownTopic()}
	}
	if err := checkSubscriptionConfig(&c.Config); err != nil {
		return Result{Err: err}
	}
	starts, err := t.bound(c.Starts)
	if err != nil {
		return Result{Err: err}
	}
	s.advance(c.Now)
	i, exists := t.searchSubscription(c.Name)
	if exists {
		return Result{Err: api.Errorf(api.CodeConflict, "subscription %s exists", c.Name), Subscription: t.subscriptions[i]}
	}
	if len(t.subscriptions) >= api.MaxSubscriptionsPerTopic {
		return Result{Err: api.Errorf(api.CodeConflict, "topic %s has %d subscriptions, which is as many as a topic may have", t.name, len(t.subscriptions))}
	}
	s.subs.counter++
	x := &Subscription{
		ID:     SubscriptionID(s.subs.counter*uint64(s.shards) + uint64(s.shard)),
		Tenant: t.tenant.name, TopicID: t.id, Topic: t.name, Name: c.Name,
		Config: c.Config, Starts: starts, Created: c.Now, Version: s.revision,
	}
	t.subscriptions = slices.Insert(t.subscriptions, i, x)
	s.subs.byID[x.ID] = x
	s.subs.order = append(s.subs.order, x)
	a.Subscriptions = append(a.Subscriptions, x.ID)
	return Result{Subscription: x}
}

func (s *State) updateSubscription(c *UpdateSubscription, a *Applied) Result {
	x := s.subs.byID[c.ID]
	if x == nil {
		return Result{Err: errUnknownSubscription()}
	}
	if err := checkSubscriptionConfig(&c.Config); err != nil {
		return Result{Err: err, Subscription: x}
	}
	if c.Version != x.Version {
		return Result{Err: api.Errorf(api.CodeConflict, "subscription %s has changed since it was read: version %d, not %d", x.Name, x.Version, c.Version), Subscription: x}
	}
	changed := *x // shares Starts, which nobody changes
	changed.Config, changed.Version = c.Config, s.revision
	t := s.topics[x.TopicID]
	i, _ := t.searchSubscription(x.Name)
	t.subscriptions[i] = &changed
	s.subs.byID[x.ID] = &changed
	s.subs.order[s.searchSubscriptionID(x.ID)] = &changed
	a.Subscriptions = append(a.Subscriptions, x.ID)
	return Result{Subscription: &changed}
}

func (s *State) deleteSubscription(c *DeleteSubscription, a *Applied) Result {
	x := s.subs.byID[c.ID]
	if x == nil {
		return Result{Err: errUnknownSubscription()}
	}
	t := s.topics[x.TopicID]
	i, _ := t.searchSubscription(x.Name)
	t.subscriptions = slices.Delete(t.subscriptions, i, i+1)
	i = s.searchSubscriptionID(x.ID)
	s.subs.order = slices.Delete(s.subs.order, i, i+1)
	delete(s.subs.byID, x.ID)
	a.Subscriptions = append(a.Subscriptions, x.ID)
	return Result{Subscription: x}
}

// forgetSubscriptionsOf drops the subscriptions of a topic that goes away.
func (s *State) forgetSubscriptionsOf(t *topic, a *Applied) {
	if len(t.subscriptions) == 0 {
		return
	}
	for _, x := range t.subscriptions {
		delete(s.subs.byID, x.ID)
		a.Subscriptions = append(a.Subscriptions, x.ID)
	}
	s.subs.order = slices.DeleteFunc(s.subs.order, func(x *Subscription) bool { return x.TopicID == t.id })
}

// Subscription gives a subscription by the names of its topic and its own. UNKNOWN_TOPIC, UNKNOWN_SUBSCRIPTION.
func (s *State) Subscription(tenantName, topicName, name string) (*Subscription, error) {
	t := s.find(tenantName, topicName)
	if t == nil {
		return nil, errUnknownTopic()
	}
	i, ok := t.searchSubscription(name)
	if !ok {
		return nil, errUnknownSubscription()
	}
	return t.subscriptions[i], nil
}

// SubscriptionByID gives a subscription by ID.
func (s *State) SubscriptionByID(id SubscriptionID) (*Subscription, bool) {
	x, ok := s.subs.byID[id]
	return x, ok
}

// Subscriptions lists up to limit subscriptions of a topic with names above after, by name. next is the cursor for more, "" at the end.
// UNKNOWN_TOPIC.
func (s *State) Subscriptions(tenantName, topicName, after string, limit int) (found []*Subscription, next string, err error) {
	t := s.find(tenantName, topicName)
	if t == nil {
		return nil, "", errUnknownTopic()
	}
	if limit <= 0 {
		return nil, "", nil
	}
	i, ok := t.searchSubscription(after)
	if ok {
		i++
	}
	end := min(i+limit, len(t.subscriptions))
	found = slices.Clone(t.subscriptions[i:end])
	if end < len(t.subscriptions) {
		next = found[len(found)-1].Name
	}
	return found, next, nil
}

// TopicSubscriptions gives all subscriptions of a topic, by name; none when the topic is not there.
func (s *State) TopicSubscriptions(id TopicID) []*Subscription {
	t := s.topics[id]
	if t == nil {
		return nil
	}
	return slices.Clone(t.subscriptions)
}

// ScanSubscriptions gives up to limit subscriptions of the shard with an ID above after, ascending.
func (s *State) ScanSubscriptions(after SubscriptionID, limit int) []*Subscription {
	i := sort.Search(len(s.subs.order), func(i int) bool { return s.subs.order[i].ID > after })
	return slices.Clone(s.subs.order[i:min(i+limit, len(s.subs.order))])
}
