package compactor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/fetch"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

// TestMergeLevels writes many small objects over several topics and partitions and merges them, level by level. Every record keeps offset,
// time and bytes; the index shrinks to one entry per partition and object; objects are grouped by class and no more than needed.
func TestMergeLevels(t *testing.T) {
	w := newWorld(t)
	topics := []*metadata.Topic{
		w.topic("days", func(c *api.TopicConfig) { c.RetentionTime = 72 * time.Hour }),
		w.topic("week", func(c *api.TopicConfig) { c.RetentionTime = 7 * 24 * time.Hour }),
		w.topicOf("other", "kept", func(c *api.TopicConfig) { c.RetentionTime = 0 }),
	}
	f := w.fetcher(w.objects)
	want := map[string][]segment.Record{}
	c := w.compactor()
	for round := range 60 {
		var bs []batch
		for _, topic := range topics {
			for p := range int32(4) {
				if w.rng.IntN(3) == 0 {
					continue
				}
				b := batch{topic: topic, partition: p}
				for i := range 1 + w.rng.IntN(4) {
					r := text(fmt.Sprintf("k%d", w.rng.IntN(10)), strings.Repeat(fmt.Sprint(round, ".", i, " "), 1+w.rng.IntN(20)))
					r.Headers = []segment.Header{{Name: "round", Value: fmt.Sprint(round)}}
					b.records = append(b.records, r)
				}
				bs = append(bs, b)
			}
		}
		if len(bs) == 0 {
			continue
		}
		at := w.clock.Now().UnixMilli()
		for i, base := range w.publish(bs...) {
			key := fmt.Sprint(bs[i].topic.Name, bs[i].partition)
			for j, r := range bs[i].records {
				r.Offset, r.AppendTime = base+int64(j), at
				want[key] = append(want[key], r)
			}
		}
		if round%5 == 4 {
			w.run(c)
		}
	}
	w.clock.Advance(time.Minute)
	w.run(c)
	levels := map[uint8]int{}
	for _, topic := range topics {
		class := ClassFor(topic.Config)
		for p := range int32(4) {
			sameRecords(t, w.read(f, topic, p, 0), want[fmt.Sprint(topic.Name, p)])
			for _, e := range w.entries(topic, p) {
				levels[e.Segment.Level]++
				if e.Segment.Class != class || !e.Sparse {
					t.Errorf("topic %s has a batch of class %q level %d", topic.Name, e.Segment.Class, e.Segment.Level)
				}
			}
			// every offset is reachable, and gives what follows it
			all := want[fmt.Sprint(topic.Name, p)]
			for i := range all {
				res, err := f.Read(t.Context(), fetch.ReadRequest{TopicID: topic.ID, Partition: p, Offset: all[i].Offset, MaxRecords: 2, MaxBytes: 1 << 20})
				if err != nil {
					t.Fatal(err)
				}
				sameRecords(t, res.Records, all[i:min(i+2, len(all))])
				off, found, err := f.OffsetForTime(t.Context(), topic.ID, p, all[i].AppendTime)
				if err != nil || !found || all[off].AppendTime != all[i].AppendTime || off > 0 && all[off-1].AppendTime >= all[i].AppendTime {
					t.Fatalf("offset for the time of record %d: %d, %v, %v", i, off, found, err)
				}
			}
		}
	}
	if levels[0] != 0 || levels[1]+levels[2] == 0 || levels[2] == 0 {
		t.Errorf("batches by level: %v", levels)
	}
	for shard := range w.log.Shards() {
		for _, s := range w.log.Segments(shard, [16]byte{}, 1000) {
			body, _, err := w.objects.Get(t.Context(), objectKey(&s.SegmentRef))
			if err != nil {
				t.Fatal(err)
			}
			if err := segment.Verify(body); err != nil {
				t.Errorf("%s: %v", objectKey(&s.SegmentRef), err)
			}
		}
	}
}

// TestTrimmedRecordsAreLeft: what is below logStart is not written again.
func TestTrimmedRecordsAreLeft(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("t")
	for range 5 {
		w.publish(batch{topic: topic, records: []segment.Record{text("k", "a"), text("k", "b"), text("k", "c")}})
	}
	w.trim(topic, 0, 4)
	w.run(w.compactor())
	e := w.entries(topic, 0)
	if len(e) != 1 || e[0].Base != 4 || e[0].Records != 11 || e[0].Last != 14 {
		t.Errorf("entries %+v", e)
	}
}
