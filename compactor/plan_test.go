package compactor

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"pgregory.net/rapid"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

func TestClassFor(t *testing.T) {
	for _, tc := range []struct {
		cleanup   api.Cleanup
		retention time.Duration
		want      string
	}{
		{api.CleanupDelete, time.Minute, "ttl=1d"},
		{api.CleanupDelete, day, "ttl=1d"},
		{api.CleanupDelete, day + 1, "ttl=2d"},
		{api.CleanupDelete, 72 * time.Hour, "ttl=3d"},
		{api.CleanupDelete, 4 * day, "ttl=5d"},
		{api.CleanupDelete, 8 * day, "ttl=14d"},
		{api.CleanupCompactDelete, 31 * day, "ttl=90d"},
		{api.CleanupDelete, 365 * day, "ttl=365d"},
		{api.CleanupDelete, 366 * day, ClassKeep},
		{api.CleanupDelete, 0, ClassKeep},
		{api.CleanupCompact, day, ClassKeep},
	} {
		if got := ClassFor(api.TopicConfig{Cleanup: tc.cleanup, RetentionTime: tc.retention}); got != tc.want {
			t.Errorf("%s %v: class %s, want %s", tc.cleanup, tc.retention, got, tc.want)
		}
	}
	for _, class := range Classes() {
		if err := (segment.Name{Level: 1, Class: class}).Check(); err != nil {
			t.Error(err)
		}
	}
	for _, class := range []string{"", "keep", "ttl=d", "ttl=0d", "ttl=01d", "ttl=-1d", "ttl=1", "1d", "ttl=99999999999999d"} {
		if _, ok := classAge(class); ok {
			t.Errorf("class %q has an age", class)
		}
	}
}

// TestClassDeadlines: data in its own class never outlives its object; data whose retention was raised does, and is due before the rule can
// fire, whatever the class.
func TestClassDeadlines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		created := rapid.Int64Range(1e12, 2e12).Draw(t, "created")
		retention := time.Duration(rapid.Int64Range(1, int64(400*day)).Draw(t, "retention"))
		appended := created - rapid.Int64Range(0, int64(retention/time.Millisecond)).Draw(t, "age")
		c := api.TopicConfig{Cleanup: api.CleanupDelete, RetentionTime: retention}
		class := ClassFor(c)
		if outlives(c, class, created, appended) {
			t.Fatalf("data outlives an object of its own class %s", class)
		}
		at, ok := expiry(class, created)
		if !ok {
			return
		}
		if appended+retention.Milliseconds() > at {
			t.Fatalf("the rule of %s deletes data that is still readable", class)
		}
		if by := moveBy(class, created); by >= at || by <= created {
			t.Fatalf("copies of %s are due at %d, made at %d, deleted at %d", class, by, created, at)
		}
		longer := api.TopicConfig{Cleanup: api.CleanupDelete, RetentionTime: retention + time.Duration(rapid.Int64Range(0, int64(400*day)).Draw(t, "more"))}
		if still := appended + longer.RetentionTime.Milliseconds(); still > at && !outlives(longer, class, created, appended) {
			t.Fatalf("data that is readable until %d is not copied from an object that goes at %d", still, at)
		}
		if !outlives(api.TopicConfig{Cleanup: api.CleanupCompact}, class, created, appended) {
			t.Fatal("what is kept for ever is not copied")
		}
	})
}

func use(at time.Time, n byte, level uint8, class string, size int64, batches int) metadata.SegmentUse {
	id := ulid.ULID{15: n}
	if err := id.SetTime(ulid.Timestamp(at)); err != nil {
		panic(err)
	}
	return metadata.SegmentUse{SegmentRef: metadata.SegmentRef{ID: id, Level: level, Class: class, Size: size}, Batches: batches}
}

func TestPickLevel0(t *testing.T) {
	p := Policy{MergeObjects: 3, MergeBytes: 1000}.WithDefaults()
	old := start.Add(-p.MergeAge)
	for _, tc := range []struct {
		name string
		segs []metadata.SegmentUse
		skip int // first of segs
		due  bool
		ids  int
	}{
		{"nothing", nil, 0, false, 0},
		{"young, few, small", []metadata.SegmentUse{use(start, 1, 0, "", 10, 1), use(start, 2, 0, "", 10, 1)}, 0, false, 2},
		{"old", []metadata.SegmentUse{use(old, 1, 0, "", 10, 1)}, 0, true, 1},
		{"many", []metadata.SegmentUse{use(start, 1, 0, "", 10, 1), use(start, 2, 0, "", 10, 1), use(start, 3, 0, "", 10, 1)}, 0, true, 3},
		{"large", []metadata.SegmentUse{use(start, 1, 0, "", 600, 1), use(start, 2, 0, "", 400, 1)}, 0, true, 2},
		{"other levels do not count", []metadata.SegmentUse{use(old, 1, 1, "keep", 9999, 1), use(start, 2, 0, "", 10, 1)}, 0, false, 1},
		{"what cannot be read does not count", []metadata.SegmentUse{use(old, 1, 0, "", 10, 1), use(start, 2, 0, "", 10, 1)}, 1, false, 1},
	} {
		skip := map[ulid.ULID]bool{}
		for _, s := range tc.segs[:tc.skip] {
			skip[s.ID] = true
		}
		k, due := pickLevel0(tc.segs, skip, start, p)
		if due != tc.due || len(k.ids) != tc.ids {
			t.Errorf("%s: due %v, %d objects", tc.name, due, len(k.ids))
		}
	}
}

func TestPickLevel(t *testing.T) {
	p := Policy{FanIn: 3, ObjectBytes: 1000, GoodRunBytes: 200, MaxLevel: 3}.WithDefaults()
	seg := func(n byte, level uint8, class string, size int64, batches int) metadata.SegmentUse {
		return use(start, n, level, class, size, batches)
	}
	for _, tc := range []struct {
		name  string
		segs  []metadata.SegmentUse
		want  int
		class string
		level uint8
		deep  bool
	}{
		{"too few", []metadata.SegmentUse{seg(1, 1, "a", 10, 5), seg(2, 1, "a", 10, 5)}, 0, "", 0, false},
		{"three of a class and level", []metadata.SegmentUse{seg(1, 1, "a", 10, 5), seg(2, 1, "b", 10, 5), seg(3, 1, "a", 10, 5), seg(4, 2, "a", 10, 5), seg(5, 1, "a", 10, 5)}, 3, "a", 1, false},
		{"the lowest level first", []metadata.SegmentUse{seg(1, 2, "a", 10, 5), seg(2, 2, "a", 10, 5), seg(3, 2, "a", 10, 5), seg(4, 1, "b", 10, 5), seg(5, 1, "b", 10, 5), seg(6, 1, "b", 10, 5)}, 3, "b", 1, false},
		{"small ones without the large", []metadata.SegmentUse{seg(1, 1, "a", 10, 5), seg(2, 1, "a", 900, 50), seg(3, 1, "a", 10, 5), seg(4, 1, "a", 10, 5)}, 3, "a", 1, false},
		{"large ones if they are deep", []metadata.SegmentUse{seg(1, 1, "a", 900, 50), seg(2, 1, "a", 900, 50), seg(3, 1, "a", 900, 50)}, 3, "a", 1, true},
		{"looked at before", []metadata.SegmentUse{seg(1, 2, "a", 900, 50), seg(2, 2, "a", 900, 50), seg(3, 2, "a", 900, 50)}, 0, "", 0, false},
		{"one more", []metadata.SegmentUse{seg(1, 2, "a", 900, 50), seg(2, 2, "a", 900, 50), seg(3, 2, "a", 900, 50), seg(4, 2, "a", 900, 50)}, 4, "a", 2, true},
		{"good runs stay", []metadata.SegmentUse{seg(1, 1, "a", 1000, 5), seg(2, 1, "a", 1000, 5), seg(3, 1, "a", 1000, 5)}, 0, "", 0, false},
		{"the highest level stays", []metadata.SegmentUse{seg(1, 3, "a", 10, 5), seg(2, 3, "a", 10, 5), seg(3, 3, "a", 10, 5)}, 0, "", 0, false},
		{"clean ones stay", []metadata.SegmentUse{seg(1, cleanLevel, "a", 10, 5), seg(2, cleanLevel, "a", 10, 5), seg(3, cleanLevel, "a", 10, 5)}, 0, "", 0, false},
	} {
		k, ok := pickLevel(tc.segs, nil, map[bucket]int{{"a", 2}: 3}, p)
		if ok != (tc.want > 0) || len(k.ids) != tc.want || k.class != tc.class || k.level != tc.level || k.deep != tc.deep {
			t.Errorf("%s: %v %+v", tc.name, ok, k)
		}
	}
}

// TestGroups: of random partitions, every batch of the picked objects is in exactly one group, with its neighbours and only with them; a job of
// level 0 stays within its limit by leaving out the newest objects.
func TestGroups(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Policy{}.WithDefaults()
		objects := rapid.IntRange(1, 8).Draw(t, "objects")
		k := pick{kind: KindMerge, ids: map[ulid.ULID]bool{}}
		for i := range objects {
			if rapid.Bool().Draw(t, "picked") {
				k.ids[ulid.ULID{5: 1, 15: byte(i)}] = true
			}
		}
		var found []metadata.PartitionScan
		want := map[string]int{}
		for part := range rapid.IntRange(1, 4).Draw(t, "partitions") {
			x := metadata.PartitionScan{Topic: &metadata.Topic{ID: 1, Config: api.TopicConfig{Cleanup: api.CleanupCompact}}, Partition: int32(part)}
			for ordinal := range rapid.IntRange(0, 20).Draw(t, "batches") {
				id := ulid.ULID{5: 1, 15: byte(rapid.IntRange(0, objects-1).Draw(t, "object"))}
				e := metadata.IndexEntry{Segment: metadata.SegmentRef{ID: id}, Base: int64(ordinal) * 10, Last: int64(ordinal)*10 + 9}
				e.Ref.Pos, e.Ref.Len = uint64(ordinal), uint32(rapid.IntRange(1, 100).Draw(t, "len"))
				if k.ids[id] {
					x.Entries, x.Ordinals = append(x.Entries, e), append(x.Ordinals, ordinal)
					want[fmt.Sprint(part, " ", e.Base)] = ordinal
				}
			}
			if len(x.Entries) > 0 {
				found = append(found, x)
			}
		}
		p.JobBytes = rapid.Int64Range(1, 2000).Draw(t, "limit")
		job := planMerge(5, k, found, p)
		taken := map[ulid.ULID]bool{}
		var total int64
		for _, g := range job.Groups {
			if g.Class != ClassKeep || g.Level != 1 || len(g.Entries) == 0 {
				t.Fatalf("group %+v", g)
			}
			for i, e := range g.Entries {
				key := fmt.Sprint(g.Partition, " ", e.Base)
				ordinal, ok := want[key]
				if !ok {
					t.Fatalf("batch %s is in two groups, or was not wanted", key)
				}
				if i > 0 && e.Base != g.Entries[i-1].Last+1 {
					t.Fatalf("batch %d of a group is no neighbour of the one before", ordinal)
				}
				delete(want, key)
				taken[e.Segment.ID] = true
				total += int64(e.Ref.Len)
			}
		}
		if total != job.Bytes || total > p.JobBytes && len(taken) > 1 {
			t.Fatalf("%d bytes of %d objects, limit %d", total, len(taken), p.JobBytes)
		}
		// What is left out is of newer objects, wholly.
		newest := ulid.ULID{}
		for id := range taken {
			if id.Compare(newest) > 0 {
				newest = id
			}
		}
		for _, x := range found {
			for _, e := range x.Entries {
				if _, left := want[fmt.Sprint(x.Partition, " ", e.Base)]; left == taken[e.Segment.ID] || left && e.Segment.ID.Compare(newest) < 0 {
					t.Fatalf("object %s is taken in part, or an older one was left out", e.Segment.ID)
				}
			}
		}
	})
}

// TestLevelsConverge merges an abstract stream of small objects of many partitions: the work ends, no partition has more runs than a few a
// level, and each byte is written a few times only.
func TestLevelsConverge(t *testing.T) {
	p := Policy{FanIn: 4, ObjectBytes: 1 << 20, GoodRunBytes: 128 << 10, MaxLevel: 8}.WithDefaults()
	const partitions = 64
	type object struct {
		use  metadata.SegmentUse
		runs map[int]int64 // bytes by partition
	}
	var objects []*object
	var written, ingested int64
	n := 0
	add := func(level uint8, runs map[int]int64) {
		n++
		o := &object{runs: runs, use: metadata.SegmentUse{SegmentRef: metadata.SegmentRef{ID: ulid.ULID{4: byte(n >> 16), 5: byte(n >> 8), 6: byte(n)}, Level: level, Class: "keep"}, Batches: len(runs)}}
		for _, b := range runs {
			o.use.Size += b
		}
		written += o.use.Size
		objects = append(objects, o)
	}
	shallow := map[bucket]int{}
	for range 600 {
		runs := map[int]int64{}
		for part := range partitions {
			runs[part] = 4 << 10
			ingested += 4 << 10
		}
		add(1, runs)
		for steps := 0; ; steps++ {
			var segs []metadata.SegmentUse
			for _, o := range objects {
				segs = append(segs, o.use)
			}
			k, ok := pickLevel(segs, nil, shallow, p)
			if !ok {
				break
			}
			if steps > 100 {
				t.Fatal("no end of merging")
			}
			found := make([]metadata.PartitionScan, partitions)
			merged := map[int]int64{}
			var left []*object
			for _, o := range objects {
				if !k.ids[o.use.ID] {
					left = append(left, o)
					continue
				}
				for part, b := range o.runs {
					merged[part] += b
					found[part].Entries = append(found[part].Entries, metadata.IndexEntry{})
				}
			}
			found = slices.DeleteFunc(found, func(x metadata.PartitionScan) bool { return len(x.Entries) == 0 })
			if k.deep && !deepEnough(found, p) {
				shallow[bucket{k.class, k.level}] = len(k.ids)
				continue
			}
			objects = left
			out := map[int]int64{}
			var size int64
			for part := range partitions {
				if merged[part] == 0 {
					continue
				}
				out[part] = merged[part]
				if size += merged[part]; size >= p.ObjectBytes {
					add(k.level+1, out)
					out, size = map[int]int64{}, 0
				}
			}
			if len(out) > 0 {
				add(k.level+1, out)
			}
		}
	}
	most := 0
	for part := range partitions {
		runs := 0
		for _, o := range objects {
			if o.runs[part] > 0 {
				runs++
			}
		}
		most = max(most, runs)
	}
	amplification := float64(written) / float64(ingested)
	t.Logf("%d objects for %d bytes, at most %d runs a partition, write amplification %.1f", len(objects), ingested, most, amplification)
	if most > 40 || amplification > 4.5 || len(objects) > 200 {
		t.Errorf("%d objects, %d runs, write amplification %.1f", len(objects), most, amplification)
	}
}

func TestKeyMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newKeyMap(rapid.Int64Range(0, 200).Draw(t, "records"), rapid.Int64Range(0, 4000).Draw(t, "limit"))
		model := map[string]int64{}
		full := false
		for offset := range int64(rapid.IntRange(0, 300).Draw(t, "puts")) {
			key := fmt.Sprint(rapid.IntRange(0, 120).Draw(t, "key"))
			_, known := model[key]
			ok := m.put(hashKey([]byte(key)), offset)
			if !ok && (known || len(model) < m.limit) {
				t.Fatalf("refused key %s with %d of %d", key, len(model), m.limit)
			}
			if full = full || !ok; ok {
				model[key] = offset
			}
		}
		for i := range 130 {
			newest, ok := model[fmt.Sprint(i)]
			h := hashKey([]byte(fmt.Sprint(i)))
			for _, at := range []int64{0, newest - 1, newest, newest + 1} {
				if at >= 0 && m.newer(h, at) != (ok && newest > at) {
					t.Fatalf("key %d at %d: newer is %v, newest %d, %v", i, at, m.newer(h, at), newest, ok)
				}
			}
		}
	})
	if m := newKeyMap(1<<40, 64<<20); len(m.hashes) != 1<<21 {
		t.Errorf("%d slots in 64 MiB", len(m.hashes))
	}
}

// TestHorizon: it is no earlier than the retention, at most a sixteenth later, and does not depend on when in a step it is asked.
func TestHorizon(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := rapid.Int64Range(0, 4e12).Draw(t, "now")
		retention := time.Duration(rapid.Int64Range(0, int64(1000*day)).Draw(t, "retention"))
		h := horizon(now, retention)
		if h < now+retention.Milliseconds() || h > now+retention.Milliseconds()+max(retention.Milliseconds()/16, 1) {
			t.Fatalf("horizon %d", h)
		}
		if later := horizon(now+1, retention); later < h {
			t.Fatal("a later tombstone goes earlier")
		}
	})
	if h := horizon(math.MaxInt64/2, math.MaxInt64); h < 0 {
		t.Errorf("horizon %d", h)
	}
}

func TestCleaningDue(t *testing.T) {
	p := Policy{}.WithDefaults()
	now := start.UnixMilli()
	entry := func(level uint8, n uint32, age time.Duration) metadata.IndexEntry {
		e := metadata.IndexEntry{Segment: metadata.SegmentRef{Level: level}, AppendTime: now - age.Milliseconds(), FirstTime: now - age.Milliseconds()}
		e.Ref.Len = n
		return e
	}
	merged := func(n uint32, first, last time.Duration) metadata.IndexEntry {
		e := entry(2, n, last)
		e.FirstTime = now - first.Milliseconds()
		return e
	}
	for _, tc := range []struct {
		name    string
		topic   string
		lag     time.Duration
		entries []metadata.IndexEntry
		skip    int // ordinal of a batch that is not in the scan, -1 = none
		want    int // batches of the task, 0 = not due
	}{
		{"nothing dirty", "t", 0, []metadata.IndexEntry{entry(16, 100, time.Hour)}, -1, 0},
		{"all dirty, old enough", "t", 0, []metadata.IndexEntry{entry(1, 100, time.Hour), entry(2, 100, time.Hour)}, -1, 2},
		{"a little that has just come", "t", 0, []metadata.IndexEntry{entry(1, 100, time.Second)}, -1, 0},
		{"much that has just come", "t", 0, []metadata.IndexEntry{entry(1, 2<<20, time.Second)}, -1, 1},
		{"a little that was merged with what has just come", "t", 0, []metadata.IndexEntry{merged(100, 2*time.Minute, time.Second)}, -1, 1},
		{"a small share", "t", 0, []metadata.IndexEntry{entry(16, 10<<20, time.Hour), entry(1, 1<<20, time.Hour)}, -1, 0},
		{"a small share for very long", "t", 0, []metadata.IndexEntry{entry(16, 10<<20, 30*time.Hour), entry(1, 1<<20, 25*time.Hour)}, -1, 2},
		{"a small share of a little", "t", 0, []metadata.IndexEntry{entry(16, 1000, time.Hour), entry(1, 100, 5*time.Minute)}, -1, 0},
		{"a small share of a little for long", "t", 0, []metadata.IndexEntry{entry(16, 1000, time.Hour), merged(100, 11*time.Minute, time.Second)}, -1, 2},
		{"a small share of an internal topic", "__journal", 0, []metadata.IndexEntry{entry(16, 800, time.Hour), entry(1, 100, 0)}, -1, 2},
		{"the tail within the lag stays", "t", time.Hour, []metadata.IndexEntry{entry(1, 100, 3*time.Hour), entry(1, 100, time.Minute)}, -1, 1},
		{"all within the lag", "t", 4 * time.Hour, []metadata.IndexEntry{entry(1, 100, 3*time.Hour)}, -1, 0},
		{"a gap ends it", "t", 0, []metadata.IndexEntry{entry(1, 100, time.Hour), entry(1, 100, time.Hour), entry(1, 100, time.Hour)}, 1, 1},
		{"clean batches behind dirty ones are dirty", "t", 0, []metadata.IndexEntry{entry(1, 100, time.Hour), entry(16, 100, time.Hour)}, -1, 2},
	} {
		x := metadata.PartitionScan{Topic: &metadata.Topic{Name: tc.topic, Config: api.TopicConfig{Cleanup: api.CleanupCompact, MinCompactionLag: tc.lag}}}
		for i, e := range tc.entries {
			if i != tc.skip {
				x.Entries, x.Ordinals = append(x.Entries, e), append(x.Ordinals, i)
			}
		}
		got := planCleaning([]metadata.PartitionScan{x}, now, p)
		if (len(got) > 0) != (tc.want > 0) || len(got) > 0 && len(got[0].entries) != tc.want {
			t.Errorf("%s: %+v", tc.name, got)
		}
	}
}
