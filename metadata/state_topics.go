package metadata

import (
	"fmt"
	"slices"
	"sort"

	"github.com/forebaymq/forebay/api"
)

func (s *State) getTenant(name string) *tenant {
	t := s.tenants[name]
	if t == nil {
		t = &tenant{name: name, byName: map[string]*topic{}}
		s.tenants[name] = t
	}
	return t
}

// empty says that nothing of the tenant is left to keep it for.
func (t *tenant) empty() bool { return len(t.order) == 0 && t.producers == 0 && len(t.groups) == 0 }

func (s *State) releaseTenant(t *tenant) {
	if t.empty() {
		delete(s.tenants, t.name)
	}
}

func (s *State) internConfig(c api.TopicConfig) *topicConfig {
	x := s.configs[c]
	if x == nil {
		x = &topicConfig{TopicConfig: c}
		s.configs[c] = x
	}
	x.topics++
	return x
}

func (s *State) releaseConfig(c *topicConfig) {
	if c.topics--; c.topics == 0 {
		delete(s.configs, c.TopicConfig)
	}
}

func (s *State) public(t *topic) *Topic {
	return &Topic{ID: t.id, Tenant: t.tenant.name, Name: t.name, Config: t.config.TopicConfig, Created: t.created, Version: t.version}
}

// searchName gives the place of the first topic whose name is not below name.
func (t *tenant) searchName(name string) int {
	n := len(t.order)
	if n == 0 || t.order[n-1].name < name {
		return n
	}
	return sort.Search(n, func(i int) bool { return t.order[i].name >= name })
}

func checkPartitions(n int) error {
	if n < 1 || n > api.MaxPartitions {
		return api.Errorf(api.CodeInvalidRequest, "a topic has 1 to %d partitions, not %d", api.MaxPartitions, n)
	}
	return nil
}

func (s *State) createTopic(c *CreateTopic) Result {
	if ShardOf(c.Tenant, s.shards) != s.shard {
		return Result{Err: api.Errorf(api.CodeInvalidRequest, "the tenant belongs to another shard")}
	}
	if err := checkPartitions(c.Config.Partitions); err != nil {
		return Result{Err: err}
	}
	s.advance(c.Now)
	if tn := s.tenants[c.Tenant]; tn != nil {
		if t := tn.byName[c.Name]; t != nil {
			return Result{Err: api.Errorf(api.CodeConflict, "topic %s exists", c.Name), Topic: s.public(t)}
		}
	}
	s.counter++
	tn := s.getTenant(c.Tenant)
	t := &topic{
		id:     TopicID(s.counter*uint64(s.shards) + uint64(s.shard)),
		tenant: tn, name: c.Name, config: s.internConfig(c.Config), created: c.Now, version: s.revision,
	}
	tn.byName[t.name] = t
	tn.order = slices.Insert(tn.order, tn.searchName(t.name), t)
	s.topics[t.id] = t
	s.order = append(s.order, t)
	return Result{Topic: s.public(t)}
}

func (s *State) updateTopic(c *UpdateTopic) Result {
	t := s.topics[c.TopicID]
	if t == nil {
		return Result{Err: errUnknownTopic()}
	}
	switch err := checkPartitions(c.Config.Partitions); {
	case err != nil:
		return Result{Err: err, Topic: s.public(t)}
	case c.Version != t.version:
		return Result{Err: api.Errorf(api.CodeConflict, "topic %s has changed since it was read: version %d, not %d", t.name, t.version, c.Version),
			Topic: s.public(t)}
	case c.Config.Partitions < t.config.Partitions:
		return Result{Err: api.Errorf(api.CodePartitionsCannotShrink, "topic %s has %d partitions and cannot have %d", t.name, t.config.Partitions, c.Config.Partitions),
			Topic: s.public(t)}
	}
	old := t.config
	t.config = s.internConfig(c.Config)
	s.releaseConfig(old)
	t.version = s.revision
	if t.config.DedupeWindow <= 0 {
		for _, p := range t.parts {
			if p.more != nil && p.more.dedupe != nil {
				s.dropDedupe(p.more.dedupe)
			}
		}
	}
	return Result{Topic: s.public(t)}
}

func (s *State) deleteTopic(c *DeleteTopic, a *Applied) Result {
	t := s.topics[c.TopicID]
	if t == nil {
		return Result{Err: errUnknownTopic()}
	}
	for _, p := range t.parts {
		if m := p.more; m != nil {
			for w := m.windows.list.front(); w != nil; w = m.windows.list.front() {
				s.dropWindow(w)
			}
			if m.dedupe != nil {
				s.dropDedupe(m.dedupe)
			}
		}
		for i := range p.entries {
			s.segments.unref(p.entries[i].seg)
		}
		s.entries -= len(p.entries)
	}
	s.forgetSubscriptionsOf(t, a)
	s.touched -= len(t.parts)
	s.releaseConfig(t.config)
	delete(s.topics, t.id)
	i := s.searchID(t.id)
	s.order = slices.Delete(s.order, i, i+1)
	tn := t.tenant
	i = tn.searchName(t.name)
	tn.order = slices.Delete(tn.order, i, i+1)
	delete(tn.byName, t.name)
	s.releaseTenant(tn)
	a.Changed = append(a.Changed, PartitionKey{Topic: t.id, Partition: -1})
	return Result{}
}

// searchID gives the place of the first topic whose ID is not below id.
func (s *State) searchID(id TopicID) int {
	return sort.Search(len(s.order), func(i int) bool { return s.order[i].id >= id })
}

// addPartition makes the state of a partition that is written for the first time.
func (s *State) addPartition(t *topic, num int32) *partition {
	p := &partition{num: num}
	i := sort.Search(len(t.parts), func(i int) bool { return t.parts[i].num >= num })
	t.parts = slices.Insert(t.parts, i, p)
	s.touched++
	return p
}

// find gives a tenant's topic by name, or nil.
func (s *State) find(tenantName, name string) *topic {
	tn := s.tenants[tenantName]
	if tn == nil {
		return nil
	}
	return tn.byName[name]
}

// Topic gives a tenant's topic by name.
func (s *State) Topic(tenantName, name string) (*Topic, bool) {
	t := s.find(tenantName, name)
	if t == nil {
		return nil, false
	}
	return s.public(t), true
}

// TopicByID gives a topic by ID.
func (s *State) TopicByID(id TopicID) (*Topic, bool) {
	t := s.topics[id]
	if t == nil {
		return nil, false
	}
	return s.public(t), true
}

// Topics lists up to limit topics of a tenant with names above after, by name. next is the cursor for more, "" at the end.
func (s *State) Topics(tenantName, after string, limit int) (topics []*Topic, next string) {
	tn := s.tenants[tenantName]
	if tn == nil || limit <= 0 {
		return nil, ""
	}
	i := sort.Search(len(tn.order), func(i int) bool { return tn.order[i].name > after })
	for ; i < len(tn.order) && len(topics) < limit; i++ {
		topics = append(topics, s.public(tn.order[i]))
	}
	if i < len(tn.order) {
		next = topics[len(topics)-1].Name
	}
	return topics, next
}

func (t *topic) String() string { return fmt.Sprintf("%s/%s(%d)", t.tenant.name, t.name, t.id) }
