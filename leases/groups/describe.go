package groups

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/metadata"
)

// Offsets gives what was committed, by topic and partition, linearizably. Offsets of topics that are no more are left out.
func (c *Coordinator) Offsets(ctx context.Context, n Name) ([]Offset, error) {
	var out []Offset
	err := c.with(ctx, n, false, func(g *group) error {
		l, err := c.load(ctx, g)
		if err != nil {
			return err
		}
		names := map[metadata.TopicID]string{}
		out = make([]Offset, 0, len(l.Offsets))
		for at, o := range l.Offsets {
			name, ok := names[at.Topic]
			if !ok {
				if t, err := c.o.View.TopicByID(at.Topic); err == nil {
					name = t.Name
				}
				names[at.Topic] = name
			}
			if name != "" {
				out = append(out, Offset{TopicPartition{name, at.Partition}, o.Offset, o.Metadata})
			}
		}
		slices.SortFunc(out, func(a, b Offset) int { return compare(a.TopicPartition, b.TopicPartition) })
		return nil
	})
	return out, err
}

func compare(a, b TopicPartition) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}

// load gives what the journal has of a group that exists.
func (c *Coordinator) load(ctx context.Context, g *group) (*journal.LoadedGroup, error) {
	l, err := c.o.Journal.Load(ctx, g.meta.Tenant, g.meta.ID)
	if err != nil {
		return nil, err
	}
	if _, err := c.o.Catalog.GroupByID(g.meta.ID); err != nil || l.State != nil && l.State.Deleted {
		return nil, errGone
	}
	g.noteOffsets(l.Offsets)
	return l, nil
}

// Groups lists a tenant's groups by name after a name, and the name to go on after; "" = that was all.
func (c *Coordinator) Groups(ctx context.Context, tenant, after string, limit int) ([]*metadata.ConsumerGroup, string, error) {
	if err := c.o.View.Sync(ctx); err != nil {
		return nil, "", err
	}
	gs, more := c.o.Catalog.Groups(tenant, after, limit)
	return gs, more, nil
}

// The states of a group.
const (
	stateEmpty       = "empty"
	stateStable      = "stable"
	stateRebalancing = "rebalancing"
)

// Group describes a group. What it says of offsets and lag is linearizable and does not need Redis; while that is away nobody knows when sessions end.
func (c *Coordinator) Group(ctx context.Context, n Name) (*Description, error) {
	var out *Description
	err := c.with(ctx, n, false, func(g *group) error {
		l, err := c.load(ctx, g)
		if err != nil {
			return err
		}
		s := l.State
		if s == nil {
			s = &journal.GroupState{}
		}
		out = &Description{Group: g.meta, State: stateEmpty, Generation: s.Generation}
		sessions, err := c.o.Store.Sessions(ctx, g.meta.ID)
		if err != nil {
			c.o.Logger.Debug("a group is described without its sessions", "group", g.meta.ID, "error", err)
		}
		for i := range s.Members {
			m := &s.Members[i]
			member := Member{ID: m.ID, InstanceID: m.Instance, Topics: m.Topics}
			if sessions != nil {
				member.Expires = sessions.Expires[m.ID]
			}
			mine := g.share(s, m.ID)
			for _, p := range mine.keeps {
				if !c.deleted(p.GroupPartition.Topic) { // the next generation is without it
					member.Owned = append(member.Owned, p.TopicPartition)
				}
			}
			for _, p := range mine.revoked {
				if !c.deleted(p.GroupPartition.Topic) {
					member.Owned = append(member.Owned, p.TopicPartition)
					member.Revoking = append(member.Revoking, p.TopicPartition)
				}
			}
			slices.SortFunc(member.Owned, compare)
			out.Members = append(out.Members, member)
		}
		switch {
		case len(s.Members) > 0 && settled(s):
			out.State = stateStable
		case len(s.Members) > 0:
			out.State = stateRebalancing
		}
		out.Partitions = c.lags(ctx, g, s, l.Offsets)
		return nil
	})
	return out, err
}

// maxAgeReads bounds how many records one call reads to learn their time. Most times are in the index; beyond the bound the age is that of the
// batch, which is older.
const maxAgeReads = 64

// lags computes where a group stands on every partition of the topics that it reads or has offsets of, in what this node has applied.
func (c *Coordinator) lags(ctx context.Context, g *group, s *journal.GroupState, offsets map[journal.GroupPartition]journal.GroupOffset) []PartitionLag {
	ids := map[metadata.TopicID]bool{}
	wanted := wantedTopics(s)
	for i := range s.Topics {
		if wanted[s.Topics[i].Name] {
			ids[s.Topics[i].ID] = true
		}
	}
	for at := range offsets {
		ids[at.Topic] = true
	}
	var out []PartitionLag
	now, reads := c.now(), maxAgeReads
	for id := range ids {
		topic, err := c.o.View.TopicByID(id)
		if err != nil {
			continue // it is gone
		}
		infos, err := c.o.View.PartitionInfos(id)
		if err != nil {
			continue
		}
		for p, info := range infos {
			at := journal.GroupPartition{Topic: id, Partition: int32(p)}
			var committed *journal.GroupOffset
			if o, ok := offsets[at]; ok {
				committed = &o
			}
			slot := slotOf(s, at)
			if committed == nil && (slot == nil || !wanted[topic.Name]) {
				continue // the group has never been there
			}
			l := lagOf(topic, int32(p), info, committed)
			if slot != nil {
				l.Owner = slot.Owner
			}
			if l.Lag > 0 {
				if ms, ok := c.appended(ctx, topic, int32(p), info.Head-l.Lag, &reads); ok {
					l.setTimes(ms, now, topic.Config)
				}
			}
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b PartitionLag) int { return compare(a.TopicPartition, b.TopicPartition) })
	return out
}

// lagOf computes what needs no time. What retention has deleted is not lag but a gap: nobody can read it any more.
func lagOf(topic *metadata.Topic, partition int32, info metadata.PartitionInfo, committed *journal.GroupOffset) PartitionLag {
	l := PartitionLag{TopicPartition: TopicPartition{topic.Name, partition}, Head: info.Head, LogStart: info.LogStart}
	at := info.LogStart
	if committed != nil {
		o := committed.Offset
		l.Committed, l.Metadata = &o, committed.Metadata
		if o < info.LogStart {
			l.Gap = &Gap{From: o, To: info.LogStart}
		}
		at = max(o, info.LogStart)
	}
	l.Lag = max(info.Head-at, 0)
	return l
}

// setTimes says how old the first unread record is, and how long retention leaves it. Retention by bytes depends on what is yet to come and is not
// foretold.
func (l *PartitionLag) setTimes(appended, now int64, config api.TopicConfig) {
	l.LagTime = max(time.Duration(now-appended)*time.Millisecond, 0)
	if config.Cleanup.Deletes() && config.RetentionTime > 0 {
		left := max(time.Duration(appended-now)*time.Millisecond+config.RetentionTime, 0)
		l.Headroom = &left
	}
}

// appended gives the append time (Unix ms) of the first record at or after an offset, from the index where it says it. reads is how many records may
// still be read for it.
func (c *Coordinator) appended(ctx context.Context, topic *metadata.Topic, partition int32, offset int64, reads *int) (ms int64, ok bool) {
	entries, _, err := c.o.View.Locate(topic.ID, partition, offset, 1)
	if err != nil || len(entries) == 0 {
		return 0, false
	}
	b := &entries[0]
	switch {
	case !b.Sparse:
		return b.AppendTime, true
	case offset <= b.Base || b.FirstTime == b.AppendTime || *reads <= 0:
		return b.FirstTime, true
	}
	*reads--
	records, _, err := c.o.Reader.Read(ctx, topic.Tenant, topic.ID, partition, offset, 1, 1)
	if err != nil || len(records) == 0 {
		return b.FirstTime, true // a description answers when storage does not: this is the most that the age can be
	}
	return records[0].AppendTime, true
}
