package groups

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/metadata"
)

// Seek moves a group on one topic, and says what that skips and what it repeats. It is a generation of its own: no late commit of a member that has
// been can undo it. CONFLICT with live members, but for a dry run, which changes nothing. A group that does not exist is created; a dry run answers as if
// it were. INVALID_REQUEST, UNKNOWN_TOPIC, UNKNOWN_PARTITION, OFFSET_OUT_OF_RANGE.
func (c *Coordinator) Seek(ctx context.Context, r SeekRequest) ([]Sought, error) {
	topic, err := c.topic(ctx, r.Tenant, r.Topic)
	if err != nil {
		return nil, err
	}
	targets, infos, err := c.targets(ctx, topic, &r)
	if err != nil {
		return nil, err
	}
	var out []Sought
	err = c.with(ctx, r.Name, !r.DryRun, func(g *group) error {
		if r.DryRun {
			l, err := c.load(ctx, g)
			if err == nil {
				out = sought(topic, targets, infos, l.Offsets)
			}
			return err
		}
		if err := c.alone(ctx, g); err != nil {
			return err
		}
		return c.change(ctx, g, &request{why: whyAdmin, act: func(t *turn) error {
			if n := len(t.state.Members); n > 0 {
				return liveMembers(n)
			}
			out = sought(topic, targets, infos, t.offsets)
			now := c.now()
			for _, s := range out {
				t.commit(journal.GroupOffset{GroupPartition: journal.GroupPartition{Topic: topic.ID, Partition: s.Partition}, Offset: s.To, Time: now})
			}
			if len(targets) == len(infos) {
				remember(t.state, topic, len(infos))
			}
			return nil
		}})
	})
	if r.DryRun && api.CodeOf(err) == api.CodeUnknownGroup {
		return sought(topic, targets, infos, nil), nil
	}
	return out, err
}

// remember notes a topic that a group has offsets of. Partitions that are added later than those that it knows begin at their first record, and so does a
// topic of the same name that is made later. partitions = 0: of some partitions only.
func remember(s *journal.GroupState, topic *metadata.Topic, partitions int) {
	i, ok := slices.BinarySearchFunc(s.Topics, topic.Name, func(t journal.GroupTopic, name string) int { return strings.Compare(t.Name, name) })
	if !ok {
		s.Topics = slices.Insert(s.Topics, i, journal.GroupTopic{ID: topic.ID, Name: topic.Name})
	}
	t := &s.Topics[i]
	if partitions == 0 {
		return // where it was made again, the partitions that have no offset are still to begin at their first record
	}
	if t.ID != topic.ID {
		t.ID, t.Slots = topic.ID, nil
	}
	if more := partitions - len(t.Slots); more > 0 {
		t.Slots = append(t.Slots, make([]journal.GroupSlot, more)...)
	}
}

// sought says what a seek does, by partition. What retention has deleted is neither skipped nor repeated.
func sought(topic *metadata.Topic, targets map[int32]int64, infos []metadata.PartitionInfo, offsets map[journal.GroupPartition]journal.GroupOffset) []Sought {
	out := make([]Sought, 0, len(targets))
	for _, p := range slices.Sorted(maps.Keys(targets)) {
		s := Sought{TopicPartition: TopicPartition{topic.Name, p}, To: targets[p]}
		if o, ok := offsets[journal.GroupPartition{Topic: topic.ID, Partition: p}]; ok {
			was := o.Offset
			s.From = &was
			from := max(was, infos[p].LogStart)
			s.Skipped, s.Repeats, s.Lost = max(s.To-from, 0), max(from-s.To, 0), from-was
		}
		out = append(out, s)
	}
	return out
}

// targets gives the offset of every partition that a request names, linearizably: all of the topic's, or those of r.Offsets.
func (c *Coordinator) targets(ctx context.Context, topic *metadata.Topic, r *SeekRequest) (map[int32]int64, []metadata.PartitionInfo, error) {
	named := 0
	for _, is := range []bool{r.Earliest, r.Latest, r.Time != nil, r.Offsets != nil} {
		if is {
			named++
		}
	}
	if named != 1 {
		return nil, nil, api.Errorf(api.CodeInvalidRequest, "name one target: earliest, latest, a timestamp, or offsets")
	}
	if err := c.o.View.Sync(ctx); err != nil {
		return nil, nil, err
	}
	infos, err := c.o.View.PartitionInfos(topic.ID)
	if err != nil {
		return nil, nil, err
	}
	out := make(map[int32]int64, len(infos))
	for p, offset := range r.Offsets {
		switch {
		case p < 0 || int(p) >= len(infos):
			return nil, nil, api.Errorf(api.CodeUnknownPartition, "topic %q has no partition %d: it has %d", topic.Name, p, len(infos))
		case offset < infos[p].LogStart || offset > infos[p].Head:
			return nil, nil, api.Errorf(api.CodeOffsetOutOfRange, "offset %d of partition %d is outside [%d, %d]", offset, p, infos[p].LogStart, infos[p].Head).
				With("partition", p).With("logStart", infos[p].LogStart).With("head", infos[p].Head)
		}
		out[p] = offset
	}
	if r.Offsets != nil {
		return out, infos, nil
	}
	for p, info := range infos {
		out[int32(p)] = info.Head
		if r.Earliest {
			out[int32(p)] = info.LogStart
		}
	}
	if r.Time != nil {
		err = c.timeTargets(ctx, topic.ID, infos, *r.Time, out)
	}
	return out, infos, err
}

// timeLookups is how many partitions are asked for a time at once.
const timeLookups = 16

// timeTargets lowers the offsets in out from the heads to the first record at or after ms, where there is one.
func (c *Coordinator) timeTargets(ctx context.Context, topic metadata.TopicID, infos []metadata.PartitionInfo, ms int64, out map[int32]int64) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		mu    sync.Mutex
		wg    sync.WaitGroup
		first error
		slots = make(chan struct{}, timeLookups)
	)
	for p, info := range infos {
		if info.LogStart == info.Head || info.LastAppend < ms {
			continue // nothing is there, or nothing so late
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			offset, found, err := c.o.Reader.OffsetForTime(ctx, topic, int32(p), ms)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil && first == nil:
				first = err
				cancel(err)
			case err == nil && found:
				out[int32(p)] = min(offset, info.Head) // whatever came since the heads were read is to be read
			}
		})
	}
	wg.Wait()
	return first
}

// Delete ends a group for ever: one of the same name is another one, into which nobody of this one can commit. CONFLICT with live members,
// UNKNOWN_GROUP. It goes on when ctx ends.
func (c *Coordinator) Delete(ctx context.Context, n Name) error {
	g, err := c.resolve(ctx, n, false)
	if err != nil {
		return err
	}
	if err := c.alone(ctx, g); err != nil {
		return err
	}
	return c.change(ctx, g, &request{why: whyAdmin, act: func(t *turn) error {
		if n := len(t.state.Members); n > 0 {
			return liveMembers(n)
		}
		t.delete, t.state.Deleted = true, true
		return nil
	}})
}
