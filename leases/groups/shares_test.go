package groups

import (
	"fmt"
	"slices"
	"testing"

	"github.com/forebaymq/forebay/leases/journal"
)

// ownedBy lists what a member owns: what it keeps, and what it is to let go.
func ownedBy(s *journal.GroupState, member string) (keeps, revoked []place) {
	if who := newShares(s).by[member]; who != nil {
		return who.keeps, who.revoked
	}
	return nil, nil
}

func TestShareCompare(t *testing.T) {
	at := func(partitions ...int32) (out []TopicPartition) {
		for _, p := range partitions {
			out = append(out, TopicPartition{"t", p})
		}
		return out
	}
	places := func(all []TopicPartition) (out []place) {
		for _, p := range all {
			out = append(out, place{TopicPartition: p})
		}
		return out
	}
	for _, c := range []struct {
		keeps, revoked, owned []TopicPartition
		all                   bool
		released              []TopicPartition
	}{
		{nil, nil, nil, true, nil},
		{at(1, 2), nil, at(1, 2), true, nil},
		{at(1, 2), nil, at(2, 1), true, nil},
		{at(1, 2), nil, at(1, 3), false, nil},
		{at(1, 2), nil, at(1), false, nil},
		{at(1), nil, at(1, 2), true, nil}, // it says more than it has
		{at(1), at(2), at(1, 2), true, nil},
		{at(1), at(2), at(1), true, at(2)},
		{at(1), at(2, 3), at(2), false, at(3)},
		{nil, at(2, 3), nil, true, at(2, 3)},
	} {
		w := &share{keeps: places(c.keeps), revoked: places(c.revoked)}
		all, released := w.compare(c.owned)
		if all != c.all || !slices.Equal(released, places(c.released)) {
			t.Errorf("%v of which %v is to go, owned %v: %v, %v", c.keeps, c.revoked, c.owned, all, released)
		}
	}
}

// TestSharesFollowTheState: a group that has changed gives the new shares, and an old state its own.
func TestSharesFollowTheState(t *testing.T) {
	ts := topics(4)
	g := &group{}
	one := next(nil, 1, ts, []event{joined{member("a", "t0")}})
	two := next(one, 2, ts, []event{joined{member("b", "t0")}})
	for _, s := range []*journal.GroupState{one, two, one, two} {
		g.adopt(s)
		for _, who := range []string{"a", "b", "c"} {
			keeps, revoked := 0, 0
			for i := range s.Topics[0].Slots {
				switch l := s.Topics[0].Slots[i]; {
				case l.Owner != who:
				case l.Target == who:
					keeps++
				default:
					revoked++
				}
			}
			if w := g.share(s, who); len(w.keeps) != keeps || len(w.revoked) != revoked {
				t.Errorf("generation %d, %s: %d and %d, want %d and %d", s.Generation, who, len(w.keeps), len(w.revoked), keeps, revoked)
			}
		}
	}
	if g.mu.shares.of != two {
		t.Error("the shares of the newest state are not kept")
	}
}

// BenchmarkHeartbeatOfManyPartitions is what a heartbeat that changes nothing costs beside Redis, in a group with 1,000 members and 10,000 partitions.
func BenchmarkHeartbeatOfManyPartitions(b *testing.B) {
	var events []event
	for i := range 1000 {
		events = append(events, joined{member(fmt.Sprintf("m%04d", i), "t0")})
	}
	g := &group{}
	s := g.adopt(next(nil, 1, topics(10_000), events))
	offsets := map[journal.GroupPartition]journal.GroupOffset{}
	for i := range s.Topics[0].Slots {
		offsets[journal.GroupPartition{Topic: s.Topics[0].ID, Partition: int32(i)}] = journal.GroupOffset{}
	}
	g.noteOffsets(offsets)
	owned := make([]TopicPartition, 10)
	for i, p := range g.share(s, "m0500").keeps {
		owned[i] = p.TopicPartition
	}
	for b.Loop() {
		mine := g.share(s, "m0500")
		if all, released := mine.compare(owned); !all || released != nil {
			b.Fatal(all, released)
		}
		if a, ok := g.assigned(mine.keeps); !ok || len(a) != 10 {
			b.Fatal(a)
		}
	}
}
