package compactor

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/fetch"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

func compacted(c *api.TopicConfig) { c.Cleanup, c.RetentionTime = api.CleanupCompact, 0 }

// merged brings all of level 0 to level 1, so that it may be cleaned.
func (w *world) merged(c *Compactor) {
	w.t.Helper()
	w.clock.Advance(2 * time.Minute)
	w.run(c)
}

// TestHole is a reader in the holes of compaction: keys k1,k2,k2,k2,k1,k3 at 0 to 5, read from each offset.
func TestHole(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("t", compacted)
	var records []segment.Record
	for i, k := range []string{"k1", "k2", "k2", "k2", "k1", "k3"} {
		records = append(records, text(k, fmt.Sprint(i)))
	}
	w.publish(batch{topic: topic, records: records[:3]})
	w.publish(batch{topic: topic, records: records[3:]})
	c := w.compactor(func(o *Options) { o.Policy.DirtyFraction = 0.01 })
	w.merged(c)
	f := w.fetcher(w.objects)
	next := []int64{3, 3, 3, 3, 4, 5}
	for offset := range int64(6) {
		res, err := f.Read(t.Context(), fetch.ReadRequest{TopicID: topic.ID, Offset: offset, MaxRecords: 1, MaxBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		if len(res.Records) != 1 || res.Records[0].Offset != next[offset] || res.NextOffset != next[offset]+1 {
			t.Errorf("read at %d: %+v", offset, res)
		}
		if string(res.Records[0].Value) != fmt.Sprint(next[offset]) {
			t.Errorf("offset %d has value %s", next[offset], res.Records[0].Value)
		}
	}
	if all := w.read(f, topic, 0, fetch.Earliest); len(all) != 3 {
		t.Errorf("%d records, want 3", len(all))
	}
	// Everything is deleted: once the tombstones have gone too, a reader passes straight to the head.
	w.publish(batch{topic: topic, records: []segment.Record{text("k1", ""), text("k2", ""), text("k3", "")}})
	w.merged(c)
	if all := w.read(f, topic, 0, 0); len(all) != 3 || all[0].Value != nil || all[0].Offset != 6 {
		t.Fatalf("after the deletes: %+v", all)
	}
	w.clock.Advance(26 * time.Hour)
	w.run(c)
	res, err := f.Read(t.Context(), fetch.ReadRequest{TopicID: topic.ID, Offset: 2, MaxRecords: 10, MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Records) != 0 || res.NextOffset != 9 || res.Head != 9 {
		t.Errorf("the emptied partition: %+v", res)
	}
	if e := w.entries(topic, 0); len(e) != 0 {
		t.Errorf("index entries of an empty partition: %+v", e)
	}
}

// TestTombstones: a tombstone stays for its retention from when it became clean, however old it was then, and rewriting it does not prolong
// its life; a lag keeps the tail as it is; keyless records stay.
func TestTombstones(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("t", compacted, func(c *api.TopicConfig) { c.TombstoneRetention, c.MinCompactionLag = 16*time.Hour, time.Hour })
	c := w.compactor(func(o *Options) { o.Policy.DirtyFraction = 0.01 })
	f := w.fetcher(w.objects)
	w.publish(batch{topic: topic, records: []segment.Record{text("a", "1"), text("b", "1"), text("", "keyless")}})
	w.publish(batch{topic: topic, records: []segment.Record{text("a", "")}})
	w.merged(c)
	if got := shape(w.read(f, topic, 0, 0)); got != "0a=1 1b=1 2=keyless 3a-" {
		t.Fatalf("within the lag: %s", got)
	}
	w.clock.Advance(100 * time.Hour) // nobody cleaned for long
	w.run(c)
	if got := shape(w.read(f, topic, 0, 0)); got != "1b=1 2=keyless 3a-" {
		t.Fatalf("cleaned: %s", got)
	}
	for hour := range 20 {
		w.publish(batch{topic: topic, records: []segment.Record{text("c", fmt.Sprint(hour))}})
		w.merged(c)
		w.clock.Advance(time.Hour - 2*time.Minute - time.Millisecond)
		w.run(c)
		got := shape(w.read(f, topic, 0, 0))
		if has := strings.Contains(got, "3a-"); has != (hour < 16) {
			t.Fatalf("after %d hours: %s", hour+1, got)
		}
		if !strings.Contains(got, "2=keyless") || !strings.Contains(got, "1b=1") {
			t.Fatalf("after %d hours: %s", hour+1, got)
		}
	}
}

// TestCleanOrder: a tombstone must not become clean before what it deletes has gone. The first group of a partition is refused, because its
// batches have changed: then none after it is replaced, and nothing comes back after the tombstone's horizon.
func TestCleanOrder(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("t", compacted)
	c := w.compactor(func(o *Options) { o.Policy.DirtyFraction, o.Policy.ObjectBytes = 0.01, 1<<20 })
	filler := func(n int) (out []segment.Record) {
		for i := range n {
			out = append(out, text(fmt.Sprint("filler", i), strings.Repeat(fmt.Sprint(w.rng.Uint64()), 5)))
		}
		return out
	}
	w.publish(batch{topic: topic, records: append(filler(30), text("k", "must go"))})
	w.merged(c)
	w.publish(batch{topic: topic, records: append(filler(30), text("k", ""))})
	w.publish(batch{topic: topic, records: filler(30)})
	w.clock.Advance(2 * time.Minute)
	shard := int(uint64(topic.ID) % worldShards)
	claim, _, err := w.log.Claim(t.Context(), fmt.Sprint(claimPrefix, shard), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	c.o.Policy.ObjectBytes = 1 // each batch is a group and an object
	if _, err := c.step(t.Context(), claim, shard, &findings{}); err != nil {
		t.Fatal(err)
	}
	job, err := c.plan(t.Context(), claim, shard, &findings{clean: true})
	if err != nil || job == nil || job.Kind != KindClean || len(job.tasks[0].groups(c.o.Policy)) < 2 {
		t.Fatal(job, err)
	}
	move := newJob(KindWaste, shard, []Group{{Topic: topic, Class: ClassKeep, Level: cleanLevel, Entries: w.entries(topic, 0)[:1]}})
	if _, err := c.runJob(t.Context(), claim, &move); err != nil {
		t.Fatal(err)
	}
	stats, err := c.runJob(t.Context(), claim, job)
	if err != nil || stats.replaced != 0 || stats.refused < 2 {
		t.Fatalf("%+v, %v", stats, err)
	}
	if err := w.log.Release(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	f := w.fetcher(w.objects)
	for range 3 {
		w.merged(c)
		w.clock.Advance(26 * time.Hour)
		for _, r := range w.read(f, topic, 0, 0) {
			if string(r.Value) == "must go" && !strings.Contains(shape(w.read(f, topic, 0, 0)), "k-") {
				t.Fatal("what was deleted is back")
			}
		}
	}
	if got := shape(w.read(f, topic, 0, 0)); strings.Contains(got, "must go") || strings.Contains(got, "k-") {
		t.Error("the key is not gone")
	}
}

func shape(records []segment.Record) string {
	var out []string
	for _, r := range records {
		s := fmt.Sprint(r.Offset, string(r.Key))
		if r.Value == nil {
			s += "-"
		} else {
			s += "=" + string(r.Value)
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

// TestCleanModel compacts random streams with maps of all sizes, and compares with what must and may be left.
func TestCleanModel(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t)
			rng := rand.New(rand.NewPCG(seed, 7))
			topic := w.topic("t", compacted)
			c := w.compactor(func(o *Options) {
				o.Policy.KeyMapBytes = []int64{minKeyMapBytes, 4 << 10, 1 << 20}[seed%3]
				o.Policy.DirtyFraction = 0.01
				o.Policy.ObjectBytes = []int64{2 << 10, 16 << 10}[seed%2]
			})
			f := w.fetcher(w.objects)
			var all []segment.Record
			for range 12 {
				for range 1 + rng.IntN(5) {
					var b []segment.Record
					for range 1 + rng.IntN(60) {
						r := text(fmt.Sprint("key", rng.IntN(80)), strings.Repeat("x", 1+rng.IntN(40)))
						switch rng.IntN(12) {
						case 0:
							r = text(fmt.Sprint("key", rng.IntN(80)), "")
						case 1:
							r = text("", "keyless")
						}
						b = append(b, r)
					}
					at := w.clock.Now().UnixMilli()
					base := w.publish(batch{topic: topic, records: b})[0]
					for i := range b {
						b[i].Offset, b[i].AppendTime = base+int64(i), at
					}
					all = append(all, b...)
				}
				w.merged(c)
				got := w.read(f, topic, 0, 0)
				checkCompacted(t, all, got)
				if len(got) > len(newestOf(all))+keyless(all) {
					t.Fatalf("%d records are left, %d keys and %d keyless records", len(got), len(newestOf(all)), keyless(all))
				}
			}
			for _, e := range w.entries(topic, 0) {
				if e.Segment.Level != cleanLevel {
					t.Errorf("offsets %d to %d are at level %d: not everything was cleaned", e.Base, e.Last, e.Segment.Level)
				}
			}
		})
	}
}

func newestOf(all []segment.Record) map[string]int64 {
	out := map[string]int64{}
	for _, r := range all {
		if r.Key != nil {
			out[string(r.Key)] = r.Offset
		}
	}
	return out
}

func keyless(all []segment.Record) (n int) {
	for _, r := range all {
		if r.Key == nil {
			n++
		}
	}
	return n
}

// checkCompacted: what is left is in order and unchanged, and has the newest record of each key and every record without one.
func checkCompacted(t *testing.T, all, got []segment.Record) {
	t.Helper()
	byOffset := map[int64]segment.Record{}
	for _, r := range all {
		byOffset[r.Offset] = r
	}
	newest := newestOf(all)
	last := int64(-1)
	seen := map[int64]bool{}
	for _, r := range got {
		if r.Offset <= last {
			t.Fatalf("offset %d after %d", r.Offset, last)
		}
		last = r.Offset
		seen[r.Offset] = true
		sameRecords(t, []segment.Record{r}, []segment.Record{byOffset[r.Offset]})
	}
	for key, offset := range newest {
		if !seen[offset] {
			t.Fatalf("the newest record of %s, at %d, is gone", key, offset)
		}
	}
	for _, r := range all {
		if r.Key == nil && !seen[r.Offset] {
			t.Fatalf("the keyless record at %d is gone", r.Offset)
		}
	}
}

// change is one line of the real input.
type change struct{ path, kind, commit, line string }

func changes(t testing.TB) []change {
	t.Helper()
	file, err := os.Open("../internal/proof/testdata/changes.ndjson.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	z, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	var out []change
	s := bufio.NewScanner(z)
	for s.Scan() {
		var c struct{ Path, Change, Commit string }
		if err := json.Unmarshal(s.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		out = append(out, change{c.Path, c.Change, c.Commit, s.Text()})
	}
	if err := s.Err(); err != nil || len(out) != 30481 {
		t.Fatalf("%d changes, %v", len(out), err)
	}
	return out
}

func live(t testing.TB) map[string]string {
	t.Helper()
	raw, err := os.ReadFile("testdata/changes.live.tsv")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for line := range strings.Lines(string(raw)) {
		path, commit, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if !ok {
			t.Fatalf("line %q", line)
		}
		out[path] = commit
	}
	return out
}

// replay applies the records of all partitions in order, and compares the end with the known one.
func replay(t *testing.T, w *world, f *fetch.Fetcher, topic *metadata.Topic) (records int) {
	t.Helper()
	state := map[string]string{}
	for p := range int32(topic.Config.Partitions) {
		last := int64(-1)
		for _, r := range w.read(f, topic, p, 0) {
			if r.Offset <= last {
				t.Fatalf("partition %d: offset %d after %d", p, r.Offset, last)
			}
			last = r.Offset
			records++
			if r.Value == nil {
				delete(state, string(r.Key))
				continue
			}
			var c struct{ Commit string }
			if err := json.Unmarshal(r.Value, &c); err != nil {
				t.Fatal(err)
			}
			state[string(r.Key)] = c.Commit
		}
	}
	want := live(t)
	if len(state) != len(want) {
		t.Errorf("%d paths at the end, want %d", len(state), len(want))
	}
	for path, commit := range want {
		if state[path] != commit {
			t.Errorf("%s is at %q, want %q", path, state[path], commit)
		}
	}
	return records
}

// partitionOf spreads keys, as a client does.
func partitionOf(key string, n int) int32 { return int32(api.PartitionForKey([]byte(key), n)) }

// changeBatches makes level-0 batches of some changes.
func changeBatches(topic *metadata.Topic, some []change) []batch {
	parts := map[int32][]segment.Record{}
	for _, c := range some {
		r := text(c.path, c.line)
		if c.kind == "D" {
			r = text(c.path, "")
		}
		p := partitionOf(c.path, topic.Config.Partitions)
		parts[p] = append(parts[p], r)
	}
	var out []batch
	for p := range int32(topic.Config.Partitions) {
		if len(parts[p]) > 0 {
			out = append(out, batch{topic: topic, partition: p, records: parts[p]})
		}
	}
	return out
}

// TestChanges compacts the real input while it comes in, by compactors that are killed: the first at its first request to the store, the
// second at its second, and so on, before and after its effect. Readers run meanwhile. Replay from the start converges on exactly the known
// end; only what is live at the end is left; each record has the offset that it got.
func TestChanges(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("changes", compacted, func(c *api.TopicConfig) { c.Partitions = 6 })
	newest := func(o *Options) {
		o.Policy = Policy{MergeObjects: 16, DirtyFraction: 0.3, ObjectBytes: 256 << 10, BatchBytes: 16 << 10, KeyMapBytes: 16 << 10, FanIn: 4}
	}
	offsets := make([][]string, 6) // by partition: key and value at each offset
	all := changes(t)
	kills := 0
	compact := func() {
		t.Helper()
		w.clock.Advance(2 * time.Minute)
		for n := int64(1); ; n++ {
			m := &mortal{Store: w.objects, after: n%2 == 0}
			m.left.Store(n)
			c := w.compactor(newest, func(o *Options) { o.Store = m })
			err := w.steps(c)
			if m.left.Load() > 0 {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			kills++
		}
	}
	f := w.fetcher(w.objects)
	for i := 0; i < len(all); i += 300 {
		bs := changeBatches(topic, all[i:min(i+300, len(all))])
		for j, base := range w.publish(bs...) {
			p := bs[j].partition
			if int(base) != len(offsets[p]) {
				t.Fatalf("base %d, want %d", base, len(offsets[p]))
			}
			for _, r := range bs[j].records {
				offsets[p] = append(offsets[p], string(r.Key)+" "+string(r.Value))
			}
		}
		if i%9000 == 0 {
			compact()
		}
	}
	// A reader that began before everything is compacted and goes on while it is: what it has in the end is right.
	slow := map[string]string{}
	next := make([]int64, 6)
	read := func(limit int) (more bool) {
		t.Helper()
		for p := range int32(6) {
			res, err := f.Read(t.Context(), fetch.ReadRequest{TopicID: topic.ID, Partition: p, Offset: next[p], MaxRecords: limit, MaxBytes: 1 << 30})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range res.Records {
				if r.Offset < next[p] {
					t.Fatalf("partition %d: offset %d again", p, r.Offset)
				}
				next[p] = r.Offset + 1
				if slow[string(r.Key)] = string(r.Value); r.Value == nil {
					delete(slow, string(r.Key))
				}
			}
			next[p] = res.NextOffset
			more = more || next[p] < res.Head
		}
		return more
	}
	read(2000)
	compact()
	for read(500) {
		w.clock.Advance(time.Hour)
		compact()
	}
	want := live(t)
	if len(slow) != len(want) {
		t.Errorf("a reader meanwhile has %d paths, want %d", len(slow), len(want))
	}
	for path, value := range slow {
		if !strings.Contains(value, want[path]) || want[path] == "" {
			t.Errorf("a reader meanwhile has %s at %s, want %s", path, value, want[path])
		}
	}
	w.clock.Advance(26 * time.Hour)
	compact()
	n := replay(t, w, f, topic)
	t.Logf("%d of %d records are left, %d compactors were killed", n, len(all), kills)
	if n != len(want) {
		t.Errorf("%d records are left of %d, want the %d that are live", n, len(all), len(want))
	}
	for p := range int32(6) {
		for _, r := range w.read(f, topic, p, 0) {
			if want := offsets[p][r.Offset]; want != string(r.Key)+" "+string(r.Value) {
				t.Fatalf("partition %d offset %d is %s %s, was %s", p, r.Offset, r.Key, r.Value, want)
			}
		}
	}
}

// TestTrickleIsCleaned: ten keys, of which one is written every second. What is readable stays near the number of keys, though merging makes
// the batches young again and again.
func TestTrickleIsCleaned(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("t", compacted)
	c := w.compactor(func(o *Options) {
		o.Policy = Policy{MergeAge: 5 * time.Second, CleanAge: 10 * time.Second, FanIn: 2}
	})
	f := w.fetcher(w.objects)
	most := 0
	for i := range 200 {
		w.publish(batch{topic: topic, records: []segment.Record{text(fmt.Sprint("k", i%10), fmt.Sprint(i))}})
		w.clock.Advance(time.Second - time.Millisecond)
		if i%2 == 1 {
			w.run(c)
		}
		most = max(most, len(w.read(f, topic, 0, fetch.Earliest)))
	}
	// Ten clean ones, those of the time until the first of the others is old enough, and those of the time until that is seen.
	if most > 10+10+3 {
		t.Errorf("up to %d records of ten keys are readable", most)
	}
}
