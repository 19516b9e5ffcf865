package metadata

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/forebaymq/forebay/api"
)

// Topic gives a topic by name, as far as this node has applied. UNKNOWN_TOPIC.
func (l *Log) Topic(tenant, name string) (*Topic, error) {
	s := l.tenantShard(tenant)
	s.mu.RLock()
	defer s.mu.RUnlock()
	if t, ok := s.mu.state.Topic(tenant, name); ok {
		return t, nil
	}
	return nil, api.Errorf(api.CodeUnknownTopic, "topic %q does not exist", name)
}

// TopicByID gives a topic by ID. UNKNOWN_TOPIC.
func (l *Log) TopicByID(id TopicID) (*Topic, error) {
	s := l.shardOf(id)
	s.mu.RLock()
	defer s.mu.RUnlock()
	if t, ok := s.mu.state.TopicByID(id); ok {
		return t, nil
	}
	return nil, api.Errorf(api.CodeUnknownTopic, "topic %d does not exist", id)
}

// Topics lists a tenant's topics after a name, ascending, at most limit, and the name to go on after ("" = that was all).
func (l *Log) Topics(tenant, after string, limit int) ([]*Topic, string) {
	s := l.tenantShard(tenant)
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mu.state.Topics(tenant, after, limit)
}

// maxPutAttempts bounds how often PutTopic decides again because another writer was faster.
const maxPutAttempts = 10

// PutTopic creates a topic or changes its configuration. decide sees the present topic, linearizably, or nil, and gives the configuration
// that shall be, or refuses; it may be called several times. When what it gives is what is there, nothing is written.
func (l *Log) PutTopic(ctx context.Context, tenant, name string, decide func(current *Topic) (api.TopicConfig, error)) (t *Topic, created bool, err error) {
	for range maxPutAttempts {
		if err := l.Sync(ctx); err != nil {
			return nil, false, err
		}
		current, err := l.Topic(tenant, name)
		if err != nil && api.CodeOf(err) != api.CodeUnknownTopic {
			return nil, false, err
		}
		config, err := decide(current)
		if err != nil {
			return nil, false, err
		}
		var cmd Command
		if current == nil {
			cmd = &CreateTopic{Tenant: tenant, Name: name, Config: config, Now: l.o.Clock.Now().UnixMilli()}
		} else {
			if current.Config == config {
				return current, false, nil
			}
			cmd = &UpdateTopic{TopicID: current.ID, Version: current.Version, Config: config}
		}
		r, err := l.Do(ctx, cmd, nil)
		if err != nil {
			return nil, false, err
		}
		switch code := api.CodeOf(r.Err); {
		case r.Err == nil:
			return r.Topic, current == nil, nil
		case code == api.CodeConflict, code == api.CodeUnknownTopic && current != nil:
			continue // created, changed or deleted meanwhile
		default:
			return nil, false, r.Err
		}
	}
	return nil, false, api.Errorf(api.CodeConflict, "topic %q is being changed by others", name)
}

// DeleteTopic removes a topic. UNKNOWN_TOPIC.
func (l *Log) DeleteTopic(ctx context.Context, tenant, name string) error {
	if err := l.Sync(ctx); err != nil {
		return err
	}
	t, err := l.Topic(tenant, name)
	if err != nil {
		return err
	}
	r, err := l.Do(ctx, &DeleteTopic{TopicID: t.ID}, nil)
	if err != nil {
		return err
	}
	return r.Err
}

// StartProducer starts a session of a producer and gives its epoch. Sessions with older epochs are fenced from then on.
func (l *Log) StartProducer(ctx context.Context, tenant, id string) (epoch int64, err error) {
	nonce, err := l.newULID()
	if err != nil {
		return 0, err
	}
	r, err := l.Do(ctx, &ProducerEpoch{Tenant: tenant, ID: id, Now: l.o.Clock.Now().UnixMilli(), Nonce: nonce.String()}, nil)
	if err != nil {
		return 0, err
	}
	return r.Epoch, r.Err
}

// ProducerPositions gives the highest sequence that each partition has accepted of a producer, linearizably: all topics of the tenant, or
// the one named.
func (l *Log) ProducerPositions(ctx context.Context, tenant, id, topic string) ([]ProducerPosition, error) {
	if err := l.Sync(ctx); err != nil {
		return nil, err
	}
	s := l.tenantShard(tenant)
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mu.state.ProducerPositions(tenant, id, topic), nil
}

// Do submits one command and waits for its result; Result.Err is what apply decided. With a guard the command has a transaction of its
// own, which takes effect only while the claim is held. Errors: METADATA_UNAVAILABLE (nothing happened), OUTCOME_UNKNOWN (ctx ended
// first), ErrClaimLost.
func (l *Log) Do(ctx context.Context, cmd Command, guard *Guard) (Result, error) {
	shards, err := l.commandShards(cmd)
	if err != nil {
		return Result{}, err
	}
	parts := make([]part, len(shards))
	for i, shard := range shards {
		parts[i] = part{shard, cmd}
	}
	results, err := l.doParts(ctx, parts, guard)
	if err != nil {
		return Result{}, err
	}
	for _, r := range results {
		if r.Err != nil {
			return r, nil // of a command to several shards, the first refusal
		}
	}
	return results[0], nil
}

// doParts submits commands that go into one transaction, and waits for their results, one a part.
func (l *Log) doParts(ctx context.Context, parts []part, guard *Guard) ([]Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, unavailable(err, "the request ended before it was submitted")
	}
	s := &submission{parts: parts, guard: guard}
	for _, p := range parts {
		s.size += commandSize(p.cmd)
	}
	type outcome struct {
		results []Result
		err     error
	}
	ch := make(chan outcome, 1)
	s.done = func(results []Result, err error) { ch <- outcome{results, err} }
	l.enqueue(s)
	select {
	case o := <-ch:
		return o.results, o.err
	case <-ctx.Done():
		return nil, outcomeUnknown(ctx.Err())
	}
}

// commandShards says which shards a command goes to.
func (l *Log) commandShards(cmd Command) ([]int, error) {
	n := len(l.shards)
	of := func(id TopicID) []int { return []int{int(uint64(id) % uint64(n))} }
	switch c := cmd.(type) {
	case *CreateTopic:
		return []int{ShardOf(c.Tenant, n)}, nil
	case *ProducerEpoch:
		return []int{ShardOf(c.Tenant, n)}, nil
	case *UpdateTopic:
		return of(c.TopicID), nil
	case *DeleteTopic:
		return of(c.TopicID), nil
	case *Trim:
		return of(c.TopicID), nil
	case *CreateSubscription:
		return of(c.TopicID), nil
	case *UpdateSubscription:
		return of(TopicID(c.ID)), nil // IDs of every kind name the shard in the same way
	case *DeleteSubscription:
		return of(TopicID(c.ID)), nil
	case *CreateGroup:
		return []int{ShardOf(c.Tenant, n)}, nil
	case *DeleteGroup:
		return of(TopicID(c.ID)), nil
	case *Replace:
		return of(c.TopicID), nil
	case *GCBoundary:
		all := make([]int, n)
		for i := range all {
			all[i] = i
		}
		return all, nil
	case *Commit:
		return nil, errors.New("commits go through SubmitCommit")
	default:
		return nil, fmt.Errorf("unknown command %T", cmd)
	}
}

// commandSize estimates the encoded size, generously.
func commandSize(cmd Command) int {
	n := 96
	switch c := cmd.(type) {
	case *CreateTopic, *UpdateTopic:
		n += 1024
	case *CreateSubscription:
		n += 1024 + 14*len(c.Starts)
	case *UpdateSubscription:
		n += 1024
	case *ProducerEpoch:
		n += len(c.Tenant) + len(c.ID)
	case *CreateGroup:
		n += len(c.Tenant) + len(c.Name)
	case *Replace:
		n += 32*len(c.Remove) + 96*len(c.Add)
	}
	return n
}

// Claim takes a named claim for this node, or answers held=false when another holder has it.
func (l *Log) Claim(ctx context.Context, name string, ttl time.Duration) (*HeldClaim, bool, error) {
	return l.o.Driver.Claim(ctx, name, l.o.NodeID, ttl)
}

// Release gives a claim back.
func (l *Log) Release(ctx context.Context, c *HeldClaim) error { return l.o.Driver.Release(ctx, c) }
