package compactor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/fetch"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/objectstore/mem"
	"github.com/forebaymq/forebay/segment"
)

// ruled is a bucket in memory that has lifecycle rules. Apply does what a store does once a day.
type ruled struct {
	*mem.Store
	rules []objectstore.LifecycleRule
	puts  int
	err   error
}

func (r *ruled) LifecycleRules(context.Context) ([]objectstore.LifecycleRule, error) {
	return slices.Clone(r.rules), r.err
}

func (r *ruled) PutLifecycleRules(_ context.Context, rules []objectstore.LifecycleRule) error {
	r.puts++
	r.rules = slices.Clone(rules)
	return r.err
}

// apply deletes what the rules say.
func (r *ruled) apply(t *testing.T, now time.Time) (deleted []string) {
	t.Helper()
	for _, rule := range r.rules {
		for after := ""; ; {
			page, err := r.List(t.Context(), rule.Prefix, after, 1000)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range page.Objects {
				if rule.Enabled && rule.Days > 0 && now.Sub(o.Modified) >= time.Duration(rule.Days)*day {
					deleted = append(deleted, o.Key)
				}
			}
			if after = page.Next; after == "" {
				break
			}
		}
	}
	for _, key := range deleted {
		if err := r.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	return deleted
}

// TestRules: ours are added and kept right, those of others stay as they are and in their order, and nothing of ours covers what must be kept.
func TestRules(t *testing.T) {
	foreign := []objectstore.LifecycleRule{
		{ID: "theirs", Prefix: "logs/", Days: 3, Enabled: true, Native: "verbatim"},
		{ID: "", Prefix: "elsewhere/", Days: 0, Enabled: true, Native: 7},
		{ID: "forebay-but-not-ours", Prefix: "x/", Days: 1, Enabled: true},
	}
	wrong := objectstore.LifecycleRule{ID: rulePrefix + "7d", Prefix: "ttl=7", Days: 8, Enabled: true}
	gone := objectstore.LifecycleRule{ID: rulePrefix + "6d", Prefix: "ttl=6d/", Days: 7, Enabled: true}
	w := newWorld(t)
	b := &ruled{Store: w.objects, rules: []objectstore.LifecycleRule{foreign[0], wrong, foreign[1], gone, foreign[2]}}
	c := w.compactor(func(o *Options) { o.Lifecycle = b })
	for range 2 {
		if active, err := c.reconcileRules(t.Context()); err != nil || !active {
			t.Fatal(active, err)
		}
	}
	if b.puts != 1 {
		t.Errorf("%d writes", b.puts)
	}
	if !slices.Equal(b.rules[:3], foreign) || len(b.rules) != 3+9 {
		t.Errorf("rules %+v", b.rules)
	}
	protected := []string{"l0/aa/x.seg", "snap/0001/x.snap", "keep/l1/aa/x.seg", "keep/l16/aa/x.seg", "probe/x", "ttl=1d", "ttl=365days/x", "", "ttl=70d/l1/aa/x.seg"}
	for _, r := range b.rules[3:] {
		if !strings.HasSuffix(r.Prefix, "/") || r.Native != nil || !r.Enabled {
			t.Errorf("rule %+v", r)
		}
		for _, key := range protected {
			if strings.HasPrefix(key, r.Prefix) {
				t.Errorf("rule %s covers %s", r.ID, key)
			}
		}
		age, ok := classAge(strings.TrimSuffix(r.Prefix, "/"))
		if !ok || time.Duration(r.Days)*day != age+day {
			t.Errorf("rule %+v", r)
		}
	}
	if ids := dangers(append(foreign, objectstore.LifecycleRule{ID: "all", Days: 9, Enabled: true}, objectstore.LifecycleRule{ID: "part", Prefix: "keep/l1/", Days: 9, Enabled: true},
		objectstore.LifecycleRule{ID: "off", Days: 9}, objectstore.LifecycleRule{ID: "snapshots", Prefix: "s", Days: 9, Enabled: true})); !slices.Equal(ids, []string{"all", "part", "snapshots"}) {
		t.Errorf("dangers %v", ids)
	}
	b.err = errors.New("no")
	if active, err := c.reconcileRules(t.Context()); !errors.Is(err, b.err) || active {
		t.Error(active, err)
	}
	b.err = fmt.Errorf("this store has none: %w", objectstore.ErrUnsupported)
	if active, err := c.reconcileRules(t.Context()); err != nil || active {
		t.Error(active, err)
	}
}

// TestArchiveRules: a rule that moves what may be read to an archive is found, also among others and by a part of our prefixes; one that
// comes too late to meet anything, that is off, or that is elsewhere is not.
func TestArchiveRules(t *testing.T) {
	rule := func(prefix string, days int) objectstore.LifecycleRule {
		return objectstore.LifecycleRule{ID: "cold", Prefix: prefix, Enabled: true, Archive: "GLACIER", ArchiveDays: days, Native: 1}
	}
	off := rule("", 1)
	off.Enabled = false
	for _, tc := range []struct {
		rule   objectstore.LifecycleRule
		covers string
	}{
		{rule("", 100), "l0/ ttl=365d/ keep/ snap/"}, {rule("", 1000), "l0/ keep/ snap/"}, {rule("l0/", 30), "l0/"}, {rule("ttl=7d/", 8), "ttl=7d/"},
		{rule("ttl=7d/", 9), ""}, {rule("ttl=7d/l1/", 2), "ttl=7d/"}, {rule("ttl=", 4), "ttl=3d/ ttl=5d/ ttl=7d/ ttl=14d/ ttl=30d/ ttl=90d/ ttl=365d/"},
		{rule("k", 4000), "keep/"}, {rule("logs/", 1), ""}, {off, ""}, {objectstore.LifecycleRule{ID: "deletes", Days: 1, Enabled: true}, ""},
	} {
		b := &ruled{rules: []objectstore.LifecycleRule{{ID: "other", Prefix: "x/", Enabled: true, Archive: "GLACIER"}, tc.rule}}
		err := CheckRules(t.Context(), b)
		var e *ArchiveRuleError
		if errors.As(err, &e); (err == nil) != (tc.covers == "") || e != nil && (strings.Join(e.Covers, " ") != tc.covers || e.Rule.ID != "cold") {
			t.Errorf("%+v: %v", tc.rule, err)
		}
	}
	b := &ruled{err: fmt.Errorf("it has none: %w", objectstore.ErrUnsupported)}
	if err := CheckRules(t.Context(), b); err != nil {
		t.Error(err)
	}
	b.err = errors.New("forbidden")
	if err := CheckRules(t.Context(), b); !errors.Is(err, b.err) {
		t.Error(err)
	}
}

// TestRetentionRaised raises a topic's retention from 1 to 7 days just before the rule of its class would delete the data, which is copied in
// time; lowers it, and the data is gone from readers at once and from storage later. A topic that shares the objects keeps its class.
func TestRetentionRaised(t *testing.T) {
	w := newWorld(t)
	b := &ruled{Store: w.objects}
	retention := func(d time.Duration) func(*api.TopicConfig) {
		return func(c *api.TopicConfig) { c.RetentionTime = d }
	}
	topic, other := w.topic("raised", retention(day)), w.topic("other", retention(day))
	for i := range 8 {
		w.publish(batch{topic: topic, records: []segment.Record{text("k", fmt.Sprint(i))}}, batch{topic: other, records: []segment.Record{text("k", fmt.Sprint(i))}})
	}
	c := w.compactor(func(o *Options) {
		o.Lifecycle = b
		o.Collect = Collection{Grace: time.Hour, ReadGrace: time.Minute}
	})
	k := w.collecting(c)
	w.round(k) // writes the rules
	w.run(c)
	if len(w.keys("ttl=1d/")) != 1 || len(w.keys("ttl=7d/")) != 0 {
		t.Fatalf("keys %v", w.keys(""))
	}
	// The retention is raised when the first record has a minute to go, the housekeeper is late, and the rule will fire a day later.
	w.clock.Advance(day - time.Minute)
	topic = w.topic("raised", retention(7*day))
	w.clock.Advance(2 * time.Minute)
	w.run(c)
	if len(w.keys("ttl=7d/")) != 1 {
		t.Fatalf("not copied: %v", w.keys(""))
	}
	w.clock.Advance(day + time.Hour)
	deleted := b.apply(t, w.clock.Now())
	if len(deleted) != 1 || !strings.HasPrefix(deleted[0], "ttl=1d/") {
		t.Fatalf("the rules deleted %v", deleted)
	}
	f := w.fetcher(w.objects)
	if got := w.read(f, topic, 0, 0); len(got) != 8 {
		t.Fatalf("%d records", len(got))
	}
	// Of the other topic, retention has trimmed what the rule has deleted. Here the housekeeper is the test.
	w.retain(other, 0)
	if err := checkNothingDangles(w); err != nil {
		t.Error(err)
	}
	if got := w.read(f, topic, 0, 0); len(got) != 8 {
		t.Fatalf("%d records", len(got))
	}

	// Lowered: the class of what is there stays, readers lose it at once.
	topic = w.topic("raised", retention(day))
	w.retain(topic, 0)
	res, err := f.Read(t.Context(), fetch.ReadRequest{TopicID: topic.ID, Offset: 0, MaxRecords: 1, MaxBytes: 1})
	if api.CodeOf(err) != api.CodeOffsetOutOfRange {
		t.Errorf("read of what retention has deleted: %+v, %v", res, err)
	}
	if len(w.keys("ttl=7d/")) != 1 {
		t.Errorf("keys %v", w.keys(""))
	}
	for range 3 {
		w.round(k)
		w.clock.Advance(2 * time.Hour)
	}
	if len(w.keys("ttl=7d/")) != 0 {
		t.Errorf("the storage is not freed: %v", w.keys(""))
	}
}

// retain trims a partition as the housekeeper of the metadata log does: whole index entries.
func (w *world) retain(topic *metadata.Topic, p int32) {
	w.t.Helper()
	before := w.clock.Now().Add(-topic.Config.RetentionTime).UnixMilli()
	for _, e := range w.entries(topic, p) {
		if e.AppendTime >= before {
			return
		}
		w.trim(topic, p, e.Last+1)
	}
}

func (w *world) trim(topic *metadata.Topic, p int32, to int64) {
	w.t.Helper()
	r, err := w.log.Do(w.t.Context(), &metadata.Trim{TopicID: topic.ID, Partition: p, LogStart: to}, nil)
	if err != nil || r.Err != nil {
		w.t.Fatal(err, r.Err)
	}
}

// TestExactTrim: logStart moves to within a run, by time to the first record that is young enough, by size to the first that the bound needs;
// what is read does not change otherwise, and nothing is trimmed twice.
func TestExactTrim(t *testing.T) {
	w := newWorld(t)
	timed := w.topic("timed", func(c *api.TopicConfig) { c.RetentionTime = 3 * time.Hour })
	sized := w.topic("sized", func(c *api.TopicConfig) { c.RetentionBytes = 4000 })
	c := w.compactor(func(o *Options) {
		o.Policy.ObjectBytes, o.Policy.MergeAge = 1<<20, time.Hour
		o.Policy.MergeObjects = 1000
	})
	var times []time.Time
	for i := range 200 {
		value := fmt.Sprint(i, strings.Repeat(fmt.Sprint(w.rng.Uint64()), 4))
		times = append(times, w.clock.Now())
		w.publish(batch{topic: timed, records: []segment.Record{text("k", value)}}, batch{topic: sized, records: []segment.Record{text("k", value)}})
		w.clock.Advance(time.Minute - time.Millisecond)
	}
	w.run(c)
	f := w.fetcher(w.objects)
	for range 3 {
		w.run(c)
		w.clock.Advance(7 * time.Minute)
		w.run(c)
		now := w.clock.Now()
		got := w.read(f, timed, 0, fetch.Earliest)
		oldest := times[got[0].Offset]
		if now.Sub(oldest) > 3*time.Hour+3*time.Minute || now.Sub(oldest) < 3*time.Hour-3*time.Minute || int(got[0].Offset)+len(got) != 200 {
			t.Errorf("the oldest record is %v old, at %d of %d", now.Sub(oldest), got[0].Offset, len(got))
		}
	}
	e := w.entries(timed, 0)
	info, err := w.log.Partition(timed.ID, 0)
	if err != nil || len(e) != 1 || info.LogStart <= e[0].Base || info.LogStart >= e[0].Last {
		t.Errorf("logStart %d in %+v, %v", info.LogStart, e, err)
	}
	// Every record of the sized topic takes about the same space.
	run := w.entries(sized, 0)
	info, err = w.log.Partition(sized.ID, 0)
	if err != nil || len(run) != 1 {
		t.Fatal(run, err)
	}
	one := int64(run[0].Ref.Len) / int64(run[0].Records)
	if info.LogStart == run[0].Base || info.Bytes < 4000-2*one || info.Bytes > 4000+4000/retainSlack+2*one {
		t.Errorf("%d bytes are kept from offset %d on, with records of %d; the bound is 4000", info.Bytes, info.LogStart, one)
	}
	before := counterOf(t, c.m.trims)
	w.run(c)
	if n := counterOf(t, c.m.trims); n != before {
		t.Errorf("%v further trims", n-before)
	}
}

// TestTrimWithinBatch: a bound of bytes holds within a single batch too, to the record, whatever the sizes of the records; a look that finds
// nothing more to do takes no claim.
func TestTrimWithinBatch(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("t", func(c *api.TopicConfig) { c.RetentionBytes = 3000 })
	x := batch{topic: topic}
	for i := range 50 {
		x.records = append(x.records, text("k", payload(w.rng, 100+10*i)))
	}
	w.publish(x)
	c := w.compactor(func(o *Options) {
		o.Policy = Policy{MergeObjects: 1}
	})
	w.run(c)
	e := w.entries(topic, 0)
	if len(e) != 1 || e[0].Segment.Level != 1 {
		t.Fatalf("%+v", e)
	}
	got := w.read(w.fetcher(w.objects), topic, 0, fetch.Earliest)
	var kept, total, largest float64
	for i := range x.records {
		n := float64(segment.RecordSize(&x.records[i]))
		total += n
		if i >= 50-len(got) {
			kept += n
			largest = max(largest, n)
		}
	}
	ratio := float64(e[0].Ref.Len) / total
	if kept*ratio < 2950 || (kept-largest)*ratio > 3000 {
		t.Errorf("%d records of %.0f stored bytes are kept, the bound is 3000", len(got), kept*ratio)
	}
	sweeps := func() (n int) {
		w.clock.Advance(time.Hour)
		for shard := range w.log.Shards() {
			if f, _ := c.due(t.Context(), shard); f.sweep {
				n++
			}
		}
		return n
	}
	if n := sweeps(); n != 0 {
		t.Errorf("there is nothing to do, and %d shards are due", n)
	}
	w.topic("t", func(c *api.TopicConfig) { c.RetentionBytes = 2000 })
	if n := sweeps(); n != 1 {
		t.Errorf("the bound was lowered, and %d shards are due", n)
	}
}

// TestLeftToRules: what a rule deletes soon anyway is left to it; without rules the collector deletes.
func TestLeftToRules(t *testing.T) {
	for _, rules := range []bool{true, false} {
		w := newWorld(t)
		topic := w.topic("t", func(c *api.TopicConfig) { c.RetentionTime = day })
		for i := range 4 {
			w.publish(batch{topic: topic, records: []segment.Record{text("k", fmt.Sprint(i))}})
		}
		c := w.compactor(func(o *Options) {
			if rules {
				o.Lifecycle = &ruled{Store: w.objects}
			}
			o.Collect = Collection{Grace: time.Hour, ReadGrace: time.Minute}
		})
		w.run(c)
		w.clock.Advance(25 * time.Hour)
		w.trim(topic, 0, 4)
		k := w.collecting(c)
		for range 3 {
			w.round(k)
			w.clock.Advance(10 * time.Minute)
		}
		if left := len(w.keys("ttl=1d/")); (left == 1) != rules || len(w.keys("l0/")) != 0 {
			t.Errorf("rules %v: %v", rules, w.keys(""))
		}
	}
}
