package journal

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/forebaymq/forebay/metadata"
)

// Flags of a group's state.
const (
	flagDeleted     = 1 << 0
	groupFlagsKnown = 1<<1 - 1
)

// Flags of a member.
const (
	flagEarliest     = 1 << 0
	flagAbsent       = 1 << 1
	flagSameTopics   = 1 << 2 // as the member before: they are not written again
	memberFlagsKnown = 1<<3 - 1
)

// maxGroupText bounds each text of a group: IDs, names and metadata.
const maxGroupText = 4096

func appendText(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// Encode gives the value of kindGeneration. It is what Redis holds of a group as well. Slots name members by their place in the list, from 1.
func (s *GroupState) Encode() ([]byte, error) {
	if s.Generation < 0 {
		return nil, fmt.Errorf("a group's state has generation %d", s.Generation)
	}
	b := make([]byte, 2, 256+32*len(s.Members))
	b[0], b[1] = valueVersion, bit(s.Deleted, flagDeleted)
	b = appendNumbers(b, s.Generation, int64(len(s.Members)))
	place := make(map[string]int64, len(s.Members))
	for i := range s.Members {
		m := &s.Members[i]
		if i > 0 && s.Members[i-1].ID >= m.ID || m.ID == "" || m.Session < 0 {
			return nil, fmt.Errorf("member %q of a group: members must have IDs, in order, and a session: %d ms", m.ID, m.Session)
		}
		place[m.ID] = int64(i) + 1
		// Most members of a group read the same. A thousand of them with a hundred topics each would be megabytes otherwise.
		same := i > 0 && slices.Equal(s.Members[i-1].Topics, m.Topics)
		b = append(b, bit(m.Earliest, flagEarliest)|bit(m.Absent, flagAbsent)|bit(same, flagSameTopics))
		b = appendText(appendText(b, m.ID), m.Instance)
		b = appendNumbers(b, m.Session)
		if same {
			continue
		}
		b = appendNumbers(b, int64(len(m.Topics)))
		for _, t := range m.Topics {
			b = appendText(b, t)
		}
	}
	b = appendNumbers(b, int64(len(s.Topics)))
	for i := range s.Topics {
		t := &s.Topics[i]
		b = binary.AppendUvarint(b, uint64(t.ID))
		b = appendText(b, t.Name)
		b = appendNumbers(b, int64(len(t.Slots)))
		for p := range t.Slots {
			l := &t.Slots[p]
			owner, target := place[l.Owner], place[l.Target]
			if owner == 0 && l.Owner != "" || target == 0 && l.Target != "" || l.Since < 0 {
				return nil, fmt.Errorf("partition %d of topic %s: %+v names somebody who is no member", p, t.Name, *l)
			}
			b = appendNumbers(b, owner, target)
			if owner != target {
				b = appendNumbers(b, l.Since)
			}
		}
	}
	return b, nil
}

func (r *reader) id() uint64 {
	if r.err != nil {
		return 0
	}
	n, size := binary.Uvarint(r.b)
	if size <= 0 {
		r.fail("value ends early")
		return 0
	}
	r.b = r.b[size:]
	return n
}

// DecodeGroupState is the inverse of Encode.
func DecodeGroupState(b []byte) (*GroupState, error) {
	r := reader{b: b}
	r.begin()
	flags := r.byte()
	if flags&^groupFlagsKnown != 0 {
		r.fail("flags %x of a group", flags)
	}
	s := &GroupState{Deleted: flags&flagDeleted != 0, Generation: r.number()}
	ids := []string{""}
	for range r.count(4) {
		flags := r.byte()
		if flags&^memberFlagsKnown != 0 {
			r.fail("flags %x of a member", flags)
		}
		m := GroupMember{Earliest: flags&flagEarliest != 0, Absent: flags&flagAbsent != 0, ID: r.text(maxGroupText), Instance: r.text(maxGroupText), Session: r.number()}
		switch {
		case flags&flagSameTopics == 0:
			for range r.count(1) {
				m.Topics = append(m.Topics, r.text(maxGroupText))
			}
		case len(s.Members) == 0:
			r.fail("the first member has the topics of the one before")
		default:
			m.Topics = s.Members[len(s.Members)-1].Topics
		}
		if m.ID <= ids[len(ids)-1] {
			r.fail("members are not in order")
		}
		if r.err != nil {
			return nil, r.err
		}
		s.Members = append(s.Members, m)
		ids = append(ids, m.ID)
	}
	member := func() string {
		n := r.number()
		if n >= int64(len(ids)) {
			r.fail("member %d of %d", n, len(ids)-1)
			return ""
		}
		return ids[n]
	}
	for range r.count(3) {
		t := GroupTopic{ID: metadata.TopicID(r.id()), Name: r.text(maxGroupText)}
		n := r.count(2)
		if r.err != nil {
			return nil, r.err
		}
		t.Slots = make([]GroupSlot, n)
		for p := range t.Slots {
			l := &t.Slots[p]
			if l.Owner, l.Target = member(), member(); l.Owner != l.Target {
				l.Since = r.number()
			}
		}
		if r.err != nil {
			return nil, r.err
		}
		s.Topics = append(s.Topics, t)
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	return s, nil
}

// Clone gives a copy that shares nothing which changes.
func (s *GroupState) Clone() *GroupState {
	c := *s
	c.Members = slices.Clone(s.Members)
	c.Topics = slices.Clone(s.Topics)
	for i := range c.Topics {
		c.Topics[i].Slots = slices.Clone(c.Topics[i].Slots)
	}
	return &c
}

func (o *GroupOffset) check() error {
	if o.Offset < 0 || o.Partition < 0 || o.Generation < 0 || o.Time < 0 || len(o.Metadata) > maxGroupText {
		return fmt.Errorf("an offset has a negative number or too long a text: partition %d, offset %d, %d bytes", o.Partition, o.Offset, len(o.Metadata))
	}
	return nil
}

// encode gives the value of kindOffset.
func (o *GroupOffset) encode() []byte {
	b := make([]byte, 1, 24+len(o.Metadata))
	b[0] = valueVersion
	b = appendNumbers(b, o.Offset, o.Generation, o.Time)
	return appendText(b, o.Metadata)
}

// decodeGroupOffset reads a value of kindOffset. Topic and partition come from the key.
func decodeGroupOffset(b []byte) (GroupOffset, error) {
	r := reader{b: b}
	r.begin()
	o := GroupOffset{Offset: r.number(), Generation: r.number(), Time: r.number(), Metadata: r.text(maxGroupText)}
	if err := r.end(); err != nil {
		return GroupOffset{}, err
	}
	if o.Offset == math.MaxInt64 {
		return GroupOffset{}, fmt.Errorf("offset %d: %w", o.Offset, errFormat)
	}
	return o, nil
}
