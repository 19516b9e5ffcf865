package compactor

import (
	"cmp"
	"slices"

	"github.com/oklog/ulid/v2"

	"github.com/forebaymq/forebay/metadata"
)

// Report says what is stored, as far as this node's metadata knows.
type Report struct {
	Revision int64         `json:"revision"` // of the metadata
	Topics   []TopicReport `json:"topics"`   // by tenant and name
	Levels   []LevelReport `json:"levels"`   // by class and level
	Objects  int           `json:"objects"`  // live
	Bytes    int64         `json:"bytes"`    // of live objects, what is dead in them included
	Live     int64         `json:"liveBytes"`
}

// TopicReport is one topic. An object that several topics share counts as one in each.
type TopicReport struct {
	Tenant     string             `json:"tenant"`
	Topic      string             `json:"topic"`
	Class      string             `json:"class"` // of its data from level 1 on
	Partitions int                `json:"partitions"`
	Records    int64              `json:"records"` // stored
	Bytes      int64              `json:"bytes"`
	Batches    int                `json:"indexEntries"`
	Levels     []TopicLevelReport `json:"levels"`
}

// TopicLevelReport is what a topic has in one level.
type TopicLevelReport struct {
	Level   int   `json:"level"`
	Objects int   `json:"objects"`
	Bytes   int64 `json:"bytes"`
	Batches int   `json:"indexEntries"`
}

// LevelReport is one class and level.
type LevelReport struct {
	Class   string `json:"class,omitempty"` // "" at level 0
	Level   int    `json:"level"`
	Objects int    `json:"objects"`
	Bytes   int64  `json:"bytes"`
	Live    int64  `json:"liveBytes"`
}

// Report looks at all shards. It reads metadata only.
func (c *Compactor) Report() *Report { return NewReport(c.o.Log) }

// NewReport makes the report of a log.
func NewReport(log *metadata.Log) *Report {
	r := &Report{Revision: log.Revision(), Topics: []TopicReport{}, Levels: []LevelReport{}}
	b := &reporter{topics: map[metadata.TopicID]*topicSum{}, objects: map[ulid.ULID]*objectSum{}}
	for shard := range log.Shards() {
		var after metadata.PartitionKey
		for done := false; !done; {
			var found []metadata.PartitionScan
			found, after, done = log.ScanPartitions(shard, after, scanBudget, func(*metadata.Topic, metadata.SegmentRef) bool { return true })
			for i := range found {
				b.add(&found[i])
			}
		}
	}
	b.finish(r)
	return r
}

type objectSum struct {
	ref  metadata.SegmentRef
	live int64
}

type levelSum struct {
	objects map[ulid.ULID]bool
	bytes   int64
	batches int
}

type topicSum struct {
	report TopicReport
	levels map[uint8]*levelSum
}

type reporter struct {
	topics  map[metadata.TopicID]*topicSum
	objects map[ulid.ULID]*objectSum
}

func (b *reporter) add(x *metadata.PartitionScan) {
	t := b.topics[x.Topic.ID]
	if t == nil {
		t = &topicSum{levels: map[uint8]*levelSum{}, report: TopicReport{Tenant: x.Topic.Tenant, Topic: x.Topic.Name, Class: ClassFor(x.Topic.Config)}}
		b.topics[x.Topic.ID] = t
	}
	t.report.Partitions++
	for i := range x.Entries {
		e := &x.Entries[i]
		o := b.objects[e.Segment.ID]
		if o == nil {
			o = &objectSum{ref: e.Segment}
			b.objects[e.Segment.ID] = o
		}
		o.live += int64(e.Ref.Len)
		l := t.levels[e.Segment.Level]
		if l == nil {
			l = &levelSum{objects: map[ulid.ULID]bool{}}
			t.levels[e.Segment.Level] = l
		}
		l.objects[e.Segment.ID] = true
		l.bytes += int64(e.Ref.Len)
		l.batches++
		t.report.Records += int64(e.Records) - int64(len(e.Dropped))
		t.report.Bytes += int64(e.Ref.Len)
		t.report.Batches++
	}
}

func (b *reporter) finish(r *Report) {
	for _, t := range b.topics {
		for level, l := range t.levels {
			t.report.Levels = append(t.report.Levels, TopicLevelReport{Level: int(level), Objects: len(l.objects), Bytes: l.bytes, Batches: l.batches})
		}
		slices.SortFunc(t.report.Levels, func(x, y TopicLevelReport) int { return cmp.Compare(x.Level, y.Level) })
		r.Topics = append(r.Topics, t.report)
	}
	slices.SortFunc(r.Topics, func(x, y TopicReport) int {
		return cmp.Or(cmp.Compare(x.Tenant, y.Tenant), cmp.Compare(x.Topic, y.Topic))
	})
	levels := map[bucket]*LevelReport{}
	for _, o := range b.objects {
		k := bucket{o.ref.Class, o.ref.Level}
		l := levels[k]
		if l == nil {
			l = &LevelReport{Class: k.class, Level: int(k.level)}
			levels[k] = l
		}
		l.Objects++
		l.Bytes += o.ref.Size
		l.Live += o.live
		r.Objects++
		r.Bytes += o.ref.Size
		r.Live += o.live
	}
	for _, l := range levels {
		r.Levels = append(r.Levels, *l)
	}
	slices.SortFunc(r.Levels, func(x, y LevelReport) int {
		return cmp.Or(cmp.Compare(x.Class, y.Class), cmp.Compare(x.Level, y.Level))
	})
}
