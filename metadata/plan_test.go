package metadata

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/forebaymq/forebay/api"
)

func TestPlanTrim(t *testing.T) {
	w := newWorld(t)
	hour := func(change func(*api.TopicConfig)) api.TopicConfig {
		c := stConfig(2)
		c.RetentionTime = time.Hour
		change(&c)
		return c
	}
	byTime := w.topic("time", hour(func(*api.TopicConfig) {}))
	byBytes := w.topic("bytes", hour(func(c *api.TopicConfig) { c.RetentionTime, c.RetentionBytes = 0, 250 }))
	both := w.topic("both", hour(func(c *api.TopicConfig) { c.RetentionBytes = 1 }))
	kept := w.topic("kept", hour(func(c *api.TopicConfig) { c.RetentionTime = 0 }))
	compacted := w.topic("compacted", hour(func(c *api.TopicConfig) { c.Cleanup = api.CleanupCompact }))
	mixed := w.topic("mixed", hour(func(c *api.TopicConfig) { c.Cleanup = api.CleanupCompactDelete }))
	var batches []BatchDelta
	for _, x := range []*Topic{byTime, byBytes, both, kept, compacted, mixed} {
		batches = append(batches, free(x, 1, 5))
	}
	for range 4 { // at 0, 20, 40 and 60 minutes
		w.one(w.commit(nil, batches...))
		w.tick(20 * time.Minute)
	}
	plan := func(now int64) []*Trim {
		trims, next, done := w.s.PlanTrim(now, PartitionKey{}, 1000)
		if !done || next != (PartitionKey{}) {
			t.Fatalf("next %v, done %v", next, done)
		}
		return trims
	}
	// At 100 minutes what is older than 40 minutes goes: a record exactly one hour old stays. Of 250 bytes the last three records of a batch of
	// five are needed, and one record always stays.
	want := []*Trim{
		{TopicID: byTime.ID, Partition: 1, LogStart: 10}, {TopicID: byBytes.ID, Partition: 1, LogStart: 7},
		{TopicID: both.ID, Partition: 1, LogStart: 19}, {TopicID: mixed.ID, Partition: 1, LogStart: 10},
	}
	got := plan(stEpoch + (100 * time.Minute).Milliseconds())
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("plan %+v, want %+v", got, want)
	}
	for _, c := range got {
		w.one(c)
	}
	if again := plan(stEpoch + (100 * time.Minute).Milliseconds()); len(again) != 0 {
		t.Fatalf("planned again: %+v", again)
	}
	// By time even the newest record goes, by bytes it never does.
	for _, c := range plan(stEpoch + (1000 * time.Hour).Milliseconds()) {
		w.one(c)
	}
	for topic, logStart := range map[*Topic]int64{byTime: 20, byBytes: 7, both: 20, kept: 0, compacted: 0, mixed: 20} {
		if got := w.info(topic, 1).LogStart; got != logStart {
			t.Errorf("%s: logStart %d, want %d", topic.Name, got, logStart)
		}
	}
}

// A scan in small steps plans what a scan in one step plans, also when topics go away in between.
func TestPlanTrimIsIncremental(t *testing.T) {
	w := newWorld(t)
	c := stConfig(5)
	c.RetentionTime = time.Hour
	var topics []*Topic
	var batches []BatchDelta
	for i := range 10 {
		x := w.topic(fmt.Sprint("t", i), c)
		topics = append(topics, x)
		for p := int32(i % 3); p < 5; p += 2 {
			batches = append(batches, free(x, p, 1))
		}
	}
	w.one(w.commit(nil, batches...))
	now := w.now + (2 * time.Hour).Milliseconds()
	whole, _, _ := w.s.PlanTrim(now, PartitionKey{}, 1000)
	if len(whole) != len(batches) {
		t.Fatalf("%d trims for %d partitions", len(whole), len(batches))
	}
	for limit := 1; limit < 8; limit++ {
		var parts []*Trim
		after, steps := PartitionKey{}, 0
		for done := false; !done; steps++ {
			var trims []*Trim
			trims, after, done = w.s.PlanTrim(now, after, limit)
			if len(trims) > limit {
				t.Fatalf("%d trims, limit %d", len(trims), limit)
			}
			parts = append(parts, trims...)
		}
		if !reflect.DeepEqual(parts, whole) || steps < len(batches)/limit {
			t.Fatalf("limit %d: %d trims in %d steps, want %d", limit, len(parts), steps, len(whole))
		}
	}
	_, after, _ := w.s.PlanTrim(now, PartitionKey{}, 4)
	for _, x := range topics[:9] {
		w.one(&DeleteTopic{TopicID: x.ID})
	}
	rest, _, done := w.s.PlanTrim(now, after, 1000)
	if !done || len(rest) == 0 || rest[0].TopicID != topics[9].ID {
		t.Fatalf("%+v", rest)
	}
}
