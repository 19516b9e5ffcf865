package metadata

import (
	"cmp"
	"slices"
	"sort"

	"github.com/forebaymq/forebay/api"
)

func errUnknownGroup() error { return api.Errorf(api.CodeUnknownGroup, "the group does not exist") }

// groups are the consumer groups of one shard. What it points to is immutable.
type groups struct {
	counter uint64 // the next ID is (counter+1)*shards + shard
	byID    map[GroupID]*ConsumerGroup
	order   []*ConsumerGroup // ascending by ID
}

// searchGroup gives the place of the first group whose name is not below name.
func (t *tenant) searchGroup(name string) (int, bool) {
	return slices.BinarySearchFunc(t.groups, name, func(g *ConsumerGroup, name string) int { return cmp.Compare(g.Name, name) })
}

// searchGroupID gives the place of the first group whose ID is not below id.
func (s *State) searchGroupID(id GroupID) int {
	return sort.Search(len(s.groups.order), func(i int) bool { return s.groups.order[i].ID >= id })
}

func (s *State) createGroup(c *CreateGroup) Result {
	if ShardOf(c.Tenant, s.shards) != s.shard {
		return Result{Err: api.Errorf(api.CodeInvalidRequest, "the tenant belongs to another shard")}
	}
	s.advance(c.Now)
	if tn := s.tenants[c.Tenant]; tn != nil {
		if i, exists := tn.searchGroup(c.Name); exists {
			return Result{Err: api.Errorf(api.CodeConflict, "group %s exists", c.Name), Group: tn.groups[i]}
		}
		if len(tn.groups) >= api.MaxGroupsPerTenant {
			return Result{Err: api.Errorf(api.CodeConflict, "the tenant has %d groups, which is as many as it may have", len(tn.groups))}
		}
	}
	s.groups.counter++
	tn := s.getTenant(c.Tenant)
	g := &ConsumerGroup{ID: GroupID(s.groups.counter*uint64(s.shards) + uint64(s.shard)), Tenant: tn.name, Name: c.Name, Created: c.Now}
	i, _ := tn.searchGroup(g.Name)
	tn.groups = slices.Insert(tn.groups, i, g)
	s.groups.byID[g.ID] = g
	s.groups.order = append(s.groups.order, g)
	return Result{Group: g}
}

func (s *State) deleteGroup(c *DeleteGroup) Result {
	g := s.groups.byID[c.ID]
	if g == nil {
		return Result{Err: errUnknownGroup()}
	}
	tn := s.tenants[g.Tenant]
	i, _ := tn.searchGroup(g.Name)
	tn.groups = slices.Delete(tn.groups, i, i+1)
	i = s.searchGroupID(g.ID)
	s.groups.order = slices.Delete(s.groups.order, i, i+1)
	delete(s.groups.byID, g.ID)
	s.releaseTenant(tn)
	return Result{Group: g}
}

// Group gives a group by name.
func (s *State) Group(tenantName, name string) (*ConsumerGroup, bool) {
	tn := s.tenants[tenantName]
	if tn == nil {
		return nil, false
	}
	i, ok := tn.searchGroup(name)
	if !ok {
		return nil, false
	}
	return tn.groups[i], true
}

// GroupByID gives a group by ID.
func (s *State) GroupByID(id GroupID) (*ConsumerGroup, bool) {
	g, ok := s.groups.byID[id]
	return g, ok
}

// Groups lists up to limit groups of a tenant with names above after, by name. next is the cursor for more, "" at the end.
func (s *State) Groups(tenantName, after string, limit int) (found []*ConsumerGroup, next string) {
	tn := s.tenants[tenantName]
	if tn == nil || limit <= 0 {
		return nil, ""
	}
	i, ok := tn.searchGroup(after)
	if ok {
		i++
	}
	end := min(i+limit, len(tn.groups))
	found = slices.Clone(tn.groups[i:end])
	if end < len(tn.groups) {
		next = found[len(found)-1].Name
	}
	return found, next
}

// ScanGroups gives up to limit groups of the shard with an ID above after, ascending.
func (s *State) ScanGroups(after GroupID, limit int) []*ConsumerGroup {
	i := sort.Search(len(s.groups.order), func(i int) bool { return s.groups.order[i].ID > after })
	return slices.Clone(s.groups.order[i:min(i+limit, len(s.groups.order))])
}
