package groups

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/metadata"
)

// The state of a group changes by events only, and every change is a generation: next computes it. A partition goes through
//
//	free       nobody owns it and nobody is to: no member wants its topic
//	owned      Owner == Target
//	revoked    Owner != Target: the owner was told in generation Since to let go, and may commit until it has
//
// free -> owned when somebody wants it; owned -> revoked when it is to go to another; revoked -> owned by the other only when the owner has let go, has
// left, or its session has lapsed. A member that is absent (Redis has forgotten its session) keeps what it owns until that session's time is over.

// event is one thing that happens to a group.
type event interface{ apply(s *journal.GroupState) }

// joined makes a member, or renews one: by its ID, or by its instance, whose earlier member it replaces.
type joined struct{ member journal.GroupMember }

func (e joined) apply(s *journal.GroupState) {
	if e.member.Instance != "" {
		i := slices.IndexFunc(s.Members, func(m journal.GroupMember) bool { return m.Instance == e.member.Instance })
		if i >= 0 && s.Members[i].ID != e.member.ID {
			was := s.Members[i].ID
			s.Members = slices.Delete(s.Members, i, i+1)
			forSlots(s, func(l *journal.GroupSlot) {
				if l.Owner == was {
					l.Owner = e.member.ID
				}
				if l.Target == was {
					l.Target = e.member.ID
				}
			})
		}
	}
	if i, ok := findMember(s, e.member.ID); ok {
		s.Members[i] = e.member
	} else {
		s.Members = slices.Insert(s.Members, i, e.member)
	}
}

// left ends a membership: the member has left, or its session has lapsed.
type left struct{ member string }

func (e left) apply(s *journal.GroupState) {
	i, ok := findMember(s, e.member)
	if !ok {
		return
	}
	s.Members = slices.Delete(s.Members, i, i+1)
	forSlots(s, func(l *journal.GroupSlot) {
		if l.Owner == e.member {
			l.Owner = ""
		}
		if l.Target == e.member {
			l.Target = ""
		}
	})
}

// forgotten says that Redis does not know the member's session any more.
type forgotten struct{ member string }

func (e forgotten) apply(s *journal.GroupState) {
	if i, ok := findMember(s, e.member); ok {
		s.Members[i].Absent = true
	}
}

// letGo says what a member that has heard of generation still holds. What it was told to let go by then and does not hold any more is free.
type letGo struct {
	member     string
	generation int64
	holds      map[journal.GroupPartition]bool
}

func (e letGo) apply(s *journal.GroupState) {
	for _, p := range e.released(s) {
		s.Topics[p.topic].Slots[p.partition].Owner = ""
	}
}

type slotAt struct{ topic, partition int }

// released lists the partitions that the member has let go. A heartbeat that was sent before the member knew that it is to let go says nothing about
// that: it may have got the partition since.
func (e letGo) released(s *journal.GroupState) (out []slotAt) {
	for t := range s.Topics {
		for p := range s.Topics[t].Slots {
			l := &s.Topics[t].Slots[p]
			if l.Owner == e.member && l.Target != l.Owner && l.Since <= e.generation && !e.holds[journal.GroupPartition{Topic: s.Topics[t].ID, Partition: int32(p)}] {
				out = append(out, slotAt{t, p})
			}
		}
	}
	return out
}

// topicView is what there is of a topic now.
type topicView struct {
	ID         metadata.TopicID
	Partitions int
}

// next gives the state of the next generation: after the events, in order, with the topics as they are now, by name; names that are not in it
// are of topics that are no more. It is pure and leaves s as it is. s may be nil: a new group.
func next(s *journal.GroupState, generation int64, topics map[string]topicView, events []event) *journal.GroupState {
	n := &journal.GroupState{}
	if s != nil {
		n = s.Clone()
	}
	n.Generation = generation
	for _, e := range events {
		e.apply(n)
	}
	look(n, topics)
	retarget(n)
	return n
}

// look brings the topics up to date. Of topics that nobody wants, what is owned is still to be let go; beside that it is only remembered how many
// partitions the group knew. Topics that are no more are remembered as well, without partitions: one of the same name is not new to the group.
func look(s *journal.GroupState, topics map[string]topicView) {
	wanted := wantedTopics(s)
	for i := range s.Topics {
		if t := &s.Topics[i]; topics[t.Name].ID != t.ID {
			t.Slots = nil
		}
	}
	for name := range wanted {
		v, ok := topics[name]
		if !ok {
			continue
		}
		i, known := slices.BinarySearchFunc(s.Topics, name, func(t journal.GroupTopic, name string) int { return strings.Compare(t.Name, name) })
		if !known {
			s.Topics = slices.Insert(s.Topics, i, journal.GroupTopic{Name: name})
		}
		s.Topics[i].ID = v.ID
		if more := v.Partitions - len(s.Topics[i].Slots); more > 0 {
			s.Topics[i].Slots = append(s.Topics[i].Slots, make([]journal.GroupSlot, more)...)
		}
	}
	forget(s, topics, wanted)
}

// maxDeleted is how many deleted topics that nobody wants are remembered.
const maxDeleted = MaxTopics

// forget forgets the oldest of too many topics that are no more.
func forget(s *journal.GroupState, topics map[string]topicView, wanted map[string]bool) {
	var gone []metadata.TopicID
	for i := range s.Topics {
		if t := &s.Topics[i]; topics[t.Name].ID != t.ID && !wanted[t.Name] {
			gone = append(gone, t.ID)
		}
	}
	if len(gone) <= maxDeleted {
		return
	}
	slices.Sort(gone)
	gone = gone[:len(gone)-maxDeleted]
	s.Topics = slices.DeleteFunc(s.Topics, func(t journal.GroupTopic) bool { return slices.Contains(gone, t.ID) })
}

func wantedTopics(s *journal.GroupState) map[string]bool {
	wanted := map[string]bool{}
	for i := range s.Members {
		for _, t := range s.Members[i].Topics {
			wanted[t] = true
		}
	}
	return wanted
}

// retarget computes who is to own what, and gives away what nobody owns.
func retarget(s *journal.GroupState) {
	wants, prefer := make([][]int, len(s.Members)), make([][][2]int, len(s.Topics))
	places := make(map[string]int, len(s.Topics))
	for t := range s.Topics {
		if len(s.Topics[t].Slots) > 0 {
			places[s.Topics[t].Name] = t
		}
	}
	index := make(map[string]int, len(s.Members)+1)
	index[""] = none
	for m := range s.Members {
		index[s.Members[m].ID] = m
		for _, name := range s.Members[m].Topics {
			if t, ok := places[name]; ok {
				wants[m] = append(wants[m], t)
			}
		}
		slices.Sort(wants[m])
	}
	for t := range s.Topics {
		prefer[t] = make([][2]int, len(s.Topics[t].Slots))
		for p, l := range s.Topics[t].Slots {
			prefer[t][p] = [2]int{index[l.Target], index[l.Owner]}
		}
	}
	to := assign(wants, prefer)
	for t := range s.Topics {
		for p := range s.Topics[t].Slots {
			l := &s.Topics[t].Slots[p]
			l.Target = ""
			if m := to[t][p]; m != none {
				l.Target = s.Members[m].ID
			}
			switch {
			case l.Owner == "" || l.Owner == l.Target:
				l.Owner, l.Since = l.Target, 0
			case l.Since == 0:
				l.Since = s.Generation
			}
		}
	}
}

// begin is a partition that is new to a group, and where the group begins.
type begin struct {
	journal.GroupPartition
	earliest bool
}

// begins lists the partitions of the new state that somebody is to own and that have no offset yet. Partitions that were added to a topic which
// the group knows begin at their first record, and so does a topic that was deleted and made again: nothing is skipped. was may be nil.
func begins(was, now *journal.GroupState, has func(journal.GroupPartition) bool) (out []begin) {
	known, before := map[metadata.TopicID]int{}, map[string]metadata.TopicID{}
	if was != nil {
		for i := range was.Topics {
			known[was.Topics[i].ID] = len(was.Topics[i].Slots)
			before[was.Topics[i].Name] = was.Topics[i].ID
		}
	}
	earliest := map[string]bool{}
	for i := range now.Members {
		earliest[now.Members[i].ID] = now.Members[i].Earliest
	}
	for t := range now.Topics {
		topic := &now.Topics[t]
		for p, l := range topic.Slots {
			at := journal.GroupPartition{Topic: topic.ID, Partition: int32(p)}
			if l.Target == "" || has(at) {
				continue
			}
			added := known[topic.ID] > 0 && p >= known[topic.ID]
			id, was := before[topic.Name]
			out = append(out, begin{at, added || was && id != topic.ID || earliest[l.Target]})
		}
	}
	return out
}

// Questions about a state.

func findMember(s *journal.GroupState, id string) (int, bool) {
	return slices.BinarySearchFunc(s.Members, id, func(m journal.GroupMember, id string) int { return cmp.Compare(m.ID, id) })
}

// memberOf gives a member, nil when there is none of that ID.
func memberOf(s *journal.GroupState, id string) *journal.GroupMember {
	if s == nil {
		return nil
	}
	if i, ok := findMember(s, id); ok {
		return &s.Members[i]
	}
	return nil
}

func forSlots(s *journal.GroupState, f func(l *journal.GroupSlot)) {
	for t := range s.Topics {
		for p := range s.Topics[t].Slots {
			f(&s.Topics[t].Slots[p])
		}
	}
}

// place is a partition of a state, by name and by ID.
type place struct {
	TopicPartition
	journal.GroupPartition
}

// settled says whether everything is where it is to be.
func settled(s *journal.GroupState) bool {
	for i := range s.Members {
		if s.Members[i].Absent {
			return false
		}
	}
	for t := range s.Topics {
		for p := range s.Topics[t].Slots {
			if l := &s.Topics[t].Slots[p]; l.Owner != l.Target {
				return false
			}
		}
	}
	return true
}

// outdated says whether the topics are not what they were when the state was computed.
func outdated(s *journal.GroupState, topics map[string]topicView) bool {
	for name := range maps.Keys(wantedTopics(s)) {
		v, is := topics[name]
		i, was := slices.BinarySearchFunc(s.Topics, name, func(t journal.GroupTopic, name string) int { return strings.Compare(t.Name, name) })
		was = was && (is || len(s.Topics[i].Slots) > 0) // else it is known that it was deleted
		switch {
		case is != was, is && (s.Topics[i].ID != v.ID || len(s.Topics[i].Slots) < v.Partitions):
			return true
		}
	}
	return false
}

// topicNames lists the topics that matter for a state: those that are wanted, and those that are remembered.
func topicNames(s *journal.GroupState) []string {
	names := map[string]bool{}
	if s != nil {
		names = wantedTopics(s)
		for i := range s.Topics {
			names[s.Topics[i].Name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}
