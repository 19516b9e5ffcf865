package metadata

import (
	"context"
	"iter"

	"github.com/forebaymq/forebay/api"
)

// Group gives a consumer group by name, as far as this node has applied. UNKNOWN_GROUP.
func (l *Log) Group(tenant, name string) (*ConsumerGroup, error) {
	s := l.tenantShard(tenant)
	s.mu.RLock()
	defer s.mu.RUnlock()
	if g, ok := s.mu.state.Group(tenant, name); ok {
		return g, nil
	}
	return nil, api.Errorf(api.CodeUnknownGroup, "group %q does not exist", name)
}

// GroupByID gives a consumer group by ID, as far as this node has applied. UNKNOWN_GROUP.
func (l *Log) GroupByID(id GroupID) (*ConsumerGroup, error) {
	s := l.shards[uint64(id)%uint64(len(l.shards))]
	s.mu.RLock()
	defer s.mu.RUnlock()
	if g, ok := s.mu.state.GroupByID(id); ok {
		return g, nil
	}
	return nil, api.Errorf(api.CodeUnknownGroup, "group %d does not exist", id)
}

// Groups lists a tenant's consumer groups after a name, ascending, at most limit, and the name to go on after ("" = that was all).
func (l *Log) Groups(tenant, after string, limit int) ([]*ConsumerGroup, string) {
	s := l.tenantShard(tenant)
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mu.state.Groups(tenant, after, limit)
}

// groupPage is how many groups AllGroups takes under one lock.
const groupPage = 256

// AllGroups goes through the consumer groups of all tenants, shard by shard and by ID. One that is created or deleted meanwhile may or may
// not come up; every other comes up once. No lock is held while the loop's body runs.
func (l *Log) AllGroups() iter.Seq[*ConsumerGroup] {
	return func(yield func(*ConsumerGroup) bool) {
		for _, s := range l.shards {
			for after := GroupID(0); ; {
				s.mu.RLock()
				page := s.mu.state.ScanGroups(after, groupPage)
				s.mu.RUnlock()
				for _, g := range page {
					if !yield(g) {
						return
					}
				}
				if len(page) < groupPage {
					break
				}
				after = page[len(page)-1].ID
			}
		}
	}
}

// PutGroup gives the tenant's group of that name, linearizably, and creates it when it is not there. CONFLICT when the tenant has as many
// groups as it may.
func (l *Log) PutGroup(ctx context.Context, tenant, name string) (g *ConsumerGroup, created bool, err error) {
	if err := l.Sync(ctx); err != nil {
		return nil, false, err
	}
	if g, err := l.Group(tenant, name); err == nil {
		return g, false, nil
	}
	r, err := l.Do(ctx, &CreateGroup{Tenant: tenant, Name: name, Now: l.o.Clock.Now().UnixMilli()}, nil)
	switch {
	case err != nil:
		return nil, false, err
	case r.Err == nil:
		return r.Group, true, nil
	case r.Group != nil:
		return r.Group, false, nil // another was faster
	}
	return nil, false, r.Err
}

// DeleteGroup removes a consumer group and gives what it was. UNKNOWN_GROUP.
func (l *Log) DeleteGroup(ctx context.Context, tenant, name string) (*ConsumerGroup, error) {
	if err := l.Sync(ctx); err != nil {
		return nil, err
	}
	g, err := l.Group(tenant, name)
	if err != nil {
		return nil, err
	}
	return l.DeleteGroupByID(ctx, g.ID)
}

// DeleteGroupByID removes exactly that consumer group, and never one that has taken its name since. It gives what it was. UNKNOWN_GROUP.
func (l *Log) DeleteGroupByID(ctx context.Context, id GroupID) (*ConsumerGroup, error) {
	r, err := l.Do(ctx, &DeleteGroup{ID: id}, nil)
	if err != nil {
		return nil, err
	}
	return r.Group, r.Err
}
