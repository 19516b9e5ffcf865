package groups

import (
	"fmt"
	"strings"
	"testing"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/metadata"
)

// largeGroup is a group at its limits of members and topics, all of whom read all topics.
func largeGroup(partitions int) (s *journal.GroupState, ts map[string]topicView) {
	ts = map[string]topicView{}
	var names []string
	for i := range MaxTopics {
		name := fmt.Sprintf("a-topic-with-a-usual-name-%03d", i)
		ts[name] = topicView{ID: metadata.TopicID(1000 + i), Partitions: partitions / MaxTopics}
		names = append(names, name)
	}
	var events []event
	for i := range MaxMembers {
		m := member(fmt.Sprintf("m-0123456789abcdef0123%04d", i), names...)
		events = append(events, joined{m})
	}
	return next(nil, 1, ts, events), ts
}

// TestLargeGroup: a group at its limits fits the journal and Redis, and one member more is refused.
func TestLargeGroup(t *testing.T) {
	s, ts := largeGroup(1000)
	value, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if len(value) > 128<<10 {
		t.Errorf("a state of %d bytes", len(value))
	}
	back, err := journal.DecodeGroupState(value)
	if err != nil || len(back.Members) != MaxMembers || len(back.Topics) != MaxTopics {
		t.Fatal(err)
	}
	shares := newShares(s)
	for _, m := range s.Members {
		if n := len(shares.by[m.ID].keeps); n != 1 {
			t.Fatalf("member %s has %d partitions", m.ID, n)
		}
	}
	more := member("one-more", s.Topics[0].Name)
	if err := room(s, ts, &more); api.CodeOf(err) != api.CodeConflict || !strings.Contains(err.Error(), "as many as a group may have") {
		t.Error(err)
	}
	again := s.Members[0]
	if err := room(s, ts, &again); err != nil {
		t.Error("a member that comes again is refused:", err)
	}
	s.Members = s.Members[:MaxMembers-1]
	ts["z"] = topicView{ID: 1, Partitions: 1}
	wider := member("one-more", "z")
	if err := room(s, ts, &wider); api.CodeOf(err) != api.CodeConflict || !strings.Contains(err.Error(), "101 topics") {
		t.Error(err)
	}
	ts[s.Topics[0].Name] = topicView{ID: s.Topics[0].ID, Partitions: MaxPartitions}
	if err := room(s, ts, &more); api.CodeOf(err) != api.CodeConflict || !strings.Contains(err.Error(), "partitions") {
		t.Error(err)
	}
}

// BenchmarkLargeGroup is a death in a group of 1,000 members that read 100 topics: the next state, and its way to the journal and back.
func BenchmarkLargeGroup(b *testing.B) {
	for _, partitions := range []int{1000, 10_000, MaxPartitions} {
		s, ts := largeGroup(partitions)
		value, err := s.Encode()
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("next/%d", partitions), func(b *testing.B) {
			b.ReportMetric(float64(len(value)), "B/state")
			for b.Loop() {
				next(s, 2, ts, []event{left{s.Members[500].ID}})
			}
		})
		b.Run(fmt.Sprintf("encode/%d", partitions), func(b *testing.B) {
			for b.Loop() {
				if _, err := s.Encode(); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("decode/%d", partitions), func(b *testing.B) {
			for b.Loop() {
				if _, err := journal.DecodeGroupState(value); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("shares/%d", partitions), func(b *testing.B) {
			for b.Loop() {
				newShares(s)
			}
		})
	}
}
