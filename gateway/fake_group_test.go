package gateway

import (
	"context"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases/groups"
	"github.com/forebaymq/forebay/metadata"
)

// groupsFake are consumer groups in memory: one member a group, which owns partition 0 of every topic that it names.
type groupsFake struct {
	f  *fabric
	mu sync.Mutex

	all    map[groups.Name]*groupFake
	nextID metadata.GroupID

	joins   []groups.JoinRequest
	beats   []groups.HeartbeatRequest
	commits []groups.CommitRequest
	seeks   []groups.SeekRequest
	polls   []groups.PollRequest
	cause   error // why the last poll was cut short
}

type groupFake struct {
	meta    *metadata.ConsumerGroup
	member  string
	topics  []string
	gen     int64
	offsets []groups.Offset
	ready   []groups.Polled
}

func newGroupsFake(f *fabric) *groupsFake {
	return &groupsFake{f: f, all: map[groups.Name]*groupFake{}}
}

var _ Groups = (*groupsFake)(nil)

func (g *groupsFake) putLocked(n groups.Name) *groupFake {
	x := g.all[n]
	if x == nil {
		g.nextID++
		x = &groupFake{meta: &metadata.ConsumerGroup{ID: g.nextID, Tenant: n.Tenant, Name: n.Group, Created: 1_700_000_000_000}}
		g.all[n] = x
	}
	return x
}

// put makes a group of tenantA without members.
func (g *groupsFake) put(names ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, name := range names {
		g.putLocked(groups.Name{Tenant: tenantA, Group: name})
	}
}

// joined makes a group of tenantA with the member m-1 in generation 1.
func (g *groupsFake) joined(name string, topics ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	x := g.putLocked(groups.Name{Tenant: tenantA, Group: name})
	x.member, x.topics, x.gen = "m-1", topics, 1
}

// offer gives the next poll of a group something.
func (g *groupsFake) offer(name string, p ...groups.Polled) {
	g.mu.Lock()
	defer g.mu.Unlock()
	x := g.all[groups.Name{Tenant: tenantA, Group: name}]
	x.ready = append(x.ready, p...)
}

// enter calls f with a group, unless a test has put something in the way.
func (g *groupsFake) enter(method string, n groups.Name, f func(x *groupFake) error) error {
	if err := g.f.enter(method); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	x := g.all[n]
	if x == nil {
		return api.Errorf(api.CodeUnknownGroup, "group %s does not exist", n.Group)
	}
	return f(x)
}

func (x *groupFake) check(member string, generation int64) error {
	if member != x.member || generation != x.gen {
		return api.Errorf(api.CodeStaleGeneration, "the group is in generation %d", x.gen).With("generation", x.gen)
	}
	return nil
}

func (x *groupFake) assignment() (out []groups.Assigned) {
	for _, t := range x.topics {
		out = append(out, groups.Assigned{TopicPartition: groups.TopicPartition{Topic: t}, Offset: 7, TopicID: math.MaxUint64})
	}
	return out
}

func (g *groupsFake) Join(_ context.Context, r groups.JoinRequest) (*groups.Joined, error) {
	if err := g.f.enter("Join"); err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.joins = append(g.joins, r)
	x := g.putLocked(r.Name)
	x.member, x.topics, x.gen = "m-1", r.Topics, x.gen+1
	return &groups.Joined{MemberID: "m-1", Generation: x.gen, Assignment: x.assignment(), HeartbeatInterval: 3333 * time.Millisecond}, nil
}

func (g *groupsFake) Heartbeat(_ context.Context, r groups.HeartbeatRequest) (b *groups.Beat, err error) {
	err = g.enter("Heartbeat", r.Name, func(x *groupFake) error {
		g.beats = append(g.beats, r)
		b = &groups.Beat{Generation: x.gen, Assignment: x.assignment(), Revoke: []groups.TopicPartition{{Topic: "orders", Partition: 1}}}
		return x.check(r.MemberID, x.gen)
	})
	return b, err
}

func (g *groupsFake) Leave(_ context.Context, n groups.Name, member string) error {
	return g.enter("Leave", n, func(x *groupFake) error {
		if member == x.member {
			x.member, x.gen = "", x.gen+1
		}
		return nil
	})
}

func (g *groupsFake) Commit(_ context.Context, r groups.CommitRequest) error {
	return g.enter("Commit", r.Name, func(x *groupFake) error {
		g.commits = append(g.commits, r)
		if r.MemberID != "" {
			if err := x.check(r.MemberID, r.Generation); err != nil {
				return err
			}
		}
		for _, o := range r.Offsets {
			if o.Partition != 0 {
				return api.Errorf(api.CodeNotOwner, "partition %d of topic %s is not the member's", o.Partition, o.Topic).With("partitions", []int{1})
			}
		}
		x.offsets = slices.Clone(r.Offsets)
		return nil
	})
}

func (g *groupsFake) Offsets(_ context.Context, n groups.Name) (out []groups.Offset, err error) {
	err = g.enter("Offsets", n, func(x *groupFake) error { out = x.offsets; return nil })
	return out, err
}

func (g *groupsFake) Group(_ context.Context, n groups.Name) (d *groups.Description, err error) {
	err = g.enter("Group", n, func(x *groupFake) error {
		committed, headroom := int64(3), 90*time.Second
		d = &groups.Description{Group: x.meta, State: "empty", Generation: x.gen}
		if x.member != "" {
			d.State = "rebalancing"
			at := []groups.TopicPartition{{Topic: "orders"}}
			d.Members = []groups.Member{{ID: x.member, InstanceID: "i", Topics: x.topics, Owned: at, Revoking: at, Expires: 1_700_000_000_000}, {ID: "m-2", Topics: x.topics}}
			d.Partitions = []groups.PartitionLag{
				{TopicPartition: at[0], Owner: x.member, Committed: &committed, Head: 9, LogStart: 5, Lag: 4, LagTime: 1500 * time.Millisecond, Headroom: &headroom, Gap: &groups.Gap{From: 3, To: 5}, Metadata: "a"},
				{TopicPartition: groups.TopicPartition{Topic: "orders", Partition: 1}, Lag: -1},
			}
		}
		return nil
	})
	return d, err
}

func (g *groupsFake) Groups(_ context.Context, tenant, after string, limit int) (out []*metadata.ConsumerGroup, next string, err error) {
	if err := g.f.enter("Groups"); err != nil {
		return nil, "", err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for n, x := range g.all {
		if n.Tenant == tenant && n.Group > after {
			out = append(out, x.meta)
		}
	}
	slices.SortFunc(out, func(a, b *metadata.ConsumerGroup) int { return strings.Compare(a.Name, b.Name) })
	if len(out) > limit {
		out = out[:limit]
		next = out[limit-1].Name
	}
	return out, next, nil
}

func (g *groupsFake) Seek(_ context.Context, r groups.SeekRequest) (out []groups.Sought, err error) {
	err = g.enter("GroupSeek", r.Name, func(x *groupFake) error {
		g.seeks = append(g.seeks, r)
		if x.member != "" && !r.DryRun {
			return api.Errorf(api.CodeConflict, "the group has 1 live members: stop them first")
		}
		from := int64(3)
		out = []groups.Sought{
			{TopicPartition: groups.TopicPartition{Topic: r.Topic}, From: &from, To: 5, Skipped: 2, Lost: 1},
			{TopicPartition: groups.TopicPartition{Topic: r.Topic, Partition: 1}, To: 4},
		}
		return nil
	})
	return out, err
}

func (g *groupsFake) Delete(_ context.Context, n groups.Name) error {
	return g.enter("DeleteGroup", n, func(x *groupFake) error {
		if x.member != "" {
			return api.Errorf(api.CodeConflict, "the group has 1 live members: stop them first")
		}
		delete(g.all, n)
		return nil
	})
}

// Poll waits for nothing but Enough and the end of the request, so that a test which sees it answer knows why.
func (g *groupsFake) Poll(ctx context.Context, r groups.PollRequest) (out []groups.Polled, err error) {
	err = g.enter("Poll", r.Name, func(x *groupFake) error {
		g.polls = append(g.polls, r)
		out, x.ready = x.ready, nil
		return x.check(r.MemberID, r.Generation)
	})
	if err != nil || len(out) > 0 || r.Wait == 0 {
		return out, err
	}
	if err := g.f.enter("PollWaits"); err != nil {
		return nil, err
	}
	select {
	case <-r.Enough:
		return nil, nil
	case <-ctx.Done():
		g.mu.Lock()
		g.cause = context.Cause(ctx)
		g.mu.Unlock()
		_ = g.f.enter("PollCut")
		return nil, &api.Error{Code: api.CodeOutcomeUnknown, Detail: "the request ended", Cause: context.Cause(ctx)}
	}
}
