package metadata

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/forebaymq/forebay/api"
)

// The model of publishing: what is accepted, refused and repeated, and which offset each record has, in the plainest terms.
type (
	modelState struct {
		parts  map[PartitionKey]*modelPart
		epochs map[string]int64
	}
	modelPart struct {
		records []int64 // append time by offset: its length is the head
		seqs    map[string][]modelSeq
		ids     map[[16]byte]int64 // offset of the newest record with the ID
	}
	modelSeq struct {
		seq int64
		ans *modelAnswer
	}
	modelAnswer struct {
		offsets []int64
		dup     bool
	}
)

func (m *modelState) part(k PartitionKey) *modelPart {
	p := m.parts[k]
	if p == nil {
		p = &modelPart{seqs: map[string][]modelSeq{}, ids: map[[16]byte]int64{}}
		m.parts[k] = p
	}
	return p
}

// commit gives for each batch a code, or the offsets of its records and whether it is a repeat.
func (m *modelState) commit(c *Commit, topics map[TopicID]*Topic) (codes []api.Code, answers []*modelAnswer) {
	n := len(c.Batches)
	codes, answers = make([]api.Code, n), make([]*modelAnswer, n)
	repeats := make([]*modelAnswer, n)
	for i, b := range c.Batches {
		answers[i] = &modelAnswer{}
		switch x := topics[b.TopicID]; {
		case x == nil, b.Group >= 0 && c.Groups[b.Group].Tenant != x.Tenant:
			codes[i] = api.CodeUnknownTopic
		case int(b.Partition) >= x.Config.Partitions:
			codes[i] = api.CodeUnknownPartition
		}
	}
	for g := range c.Groups {
		var members []int
		var code api.Code
		for i, b := range c.Batches {
			if b.Group == int32(g) {
				members = append(members, i)
				if code == "" {
					code = codes[i]
				}
			}
		}
		pr := c.Groups[g].Producer
		who := c.Groups[g].Tenant
		if code == "" && pr != nil {
			who += "/" + pr.ID
			switch e := m.epochs[who]; {
			case pr.Epoch < e:
				code = api.CodeProducerFenced
			case pr.Epoch > e:
				code = api.CodeInvalidRequest
			}
		}
		if pr != nil && pr.Sequence == NoSequence {
			pr = nil // nothing more is asked, and nothing remembered
		}
		if code == "" && pr != nil {
			known := 0
			for _, i := range members {
				seqs := m.part(PartitionKey{c.Batches[i].TopicID, c.Batches[i].Partition}).seqs[who]
				for _, s := range seqs {
					if s.seq == pr.Sequence {
						repeats[i] = s.ans
						known++
						if len(s.ans.offsets) != int(c.Batches[i].Records) {
							code = api.CodeConflict
						}
					}
				}
				if len(seqs) > 0 && repeats[i] == nil && pr.Sequence < seqs[len(seqs)-1].seq {
					code = api.CodeConflict
				}
			}
			if known > 0 && known < len(members) {
				code = api.CodeConflict
			}
		}
		for _, i := range members {
			switch {
			case code != "":
				if codes[i] == "" {
					codes[i] = code
				}
				repeats[i] = nil
			case pr != nil && repeats[i] == nil:
				answers[i].offsets = make([]int64, c.Batches[i].Records) // filled below; the count is known to later groups
				p := m.part(PartitionKey{c.Batches[i].TopicID, c.Batches[i].Partition})
				p.seqs[who] = append(p.seqs[who], modelSeq{pr.Sequence, answers[i]})
			}
		}
	}
	for i, b := range c.Batches {
		if codes[i] != "" || repeats[i] != nil {
			continue
		}
		p := m.part(PartitionKey{b.TopicID, b.Partition})
		now := c.AppendTime
		if n := len(p.records); n > 0 {
			now = max(now, p.records[n-1])
		}
		a := answers[i]
		a.offsets, a.dup = make([]int64, b.Records), true
		window := topics[b.TopicID].Config.DedupeWindow.Milliseconds()
		for k := range a.offsets {
			if window > 0 && b.IDHashes != nil && b.IDHashes[k] != ([16]byte{}) {
				if at, ok := p.ids[b.IDHashes[k]]; ok && p.records[at] >= now-window {
					a.offsets[k] = at
					continue
				}
				p.ids[b.IDHashes[k]] = int64(len(p.records))
			}
			a.offsets[k], a.dup = int64(len(p.records)), false
			p.records = append(p.records, now)
		}
	}
	for i, r := range repeats {
		if r != nil {
			answers[i] = &modelAnswer{offsets: r.offsets, dup: true}
		}
	}
	return codes, answers
}

// Publishing agrees with the model: offsets are dense and never given again, groups are accepted as one, exact repeats are answered
// with the first offsets.
func TestPublishingAgreesWithTheModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		m := &modelState{parts: map[PartitionKey]*modelPart{}, epochs: map[string]int64{}}
		topics := map[TopicID]*Topic{}
		var list []*Topic
		for i, tenant := range []string{"acme", "acme", "beta"} {
			c := stConfig(2)
			c.DedupeWindow = time.Duration(i) * time.Minute
			x := w.one(&CreateTopic{Tenant: tenant, Name: fmt.Sprint("t", i), Config: c, Now: w.now}).Topic
			topics[x.ID], list = x, append(list, x)
		}
		var sent []*Commit
		for step := range rapid.IntRange(1, 40).Draw(rt, "steps") {
			w.now += int64(rapid.SampledFrom([]int{0, 5, 30_000}).Draw(rt, "pause"))
			switch k := rapid.IntRange(0, 11).Draw(rt, "kind"); {
			case k == 0:
				tenant, id := rapid.SampledFrom([]string{"acme", "beta"}).Draw(rt, "tenant"), rapid.SampledFrom([]string{"p", "q"}).Draw(rt, "id")
				m.epochs[tenant+"/"+id]++
				if e := w.one(&ProducerEpoch{Tenant: tenant, ID: id, Now: w.now}).Epoch; e != m.epochs[tenant+"/"+id] {
					rt.Fatalf("step %d: epoch %d", step, e)
				}
				continue
			case k == 1:
				loaded, err := UnmarshalSnapshot(w.s.MarshalSnapshot())
				if err != nil {
					rt.Fatal(err)
				}
				w.s = loaded
				continue
			}
			c := genPublish(rt, w, m, list, sent)
			sent = append(sent, c)
			codes, answers := m.commit(c, topics)
			results := w.one(c).Batches
			for i, r := range results {
				if api.CodeOf(r.Err) != codes[i] {
					rt.Fatalf("step %d, batch %d: %v, want %q", step, i, r.Err, codes[i])
				}
				if r.Err != nil {
					continue
				}
				got := r.Offsets
				if got == nil {
					for k := range c.Batches[i].Records {
						got = append(got, r.Base+int64(k))
					}
				}
				if !reflect.DeepEqual(got, answers[i].offsets) || r.Duplicate != answers[i].dup || r.Base != got[0] {
					rt.Fatalf("step %d, batch %d: offsets %v (%+v), want %+v", step, i, got, r, answers[i])
				}
			}
			checkInvariants(t, w.s)
		}
		for k, p := range m.parts {
			entries, info, err := w.s.Locate(k.Topic, k.Partition, 0, 1<<20)
			if err != nil || info.Head != int64(len(p.records)) {
				rt.Fatalf("%v: head %d, want %d: %v", k, info.Head, len(p.records), err)
			}
			next := int64(0)
			for _, e := range entries {
				if e.Base != next || int64(e.Records)-int64(len(e.Dropped)) != e.Last-e.Base+1 || e.AppendTime != p.records[e.Base] || e.AppendTime != p.records[e.Last] {
					rt.Fatalf("%v: entry %+v, want it to begin at %d", k, e, next)
				}
				next = e.Last + 1
			}
			if next != info.Head {
				rt.Fatalf("%v: the index ends at %d, head %d", k, next, info.Head)
			}
		}
	})
}

// genPublish draws a commit, often with groups that were sent before.
func genPublish(rt *rapid.T, w *stWorld, m *modelState, topics []*Topic, sent []*Commit) *Commit {
	var batches []BatchDelta
	var groups []Group
	for range rapid.IntRange(1, 4).Draw(rt, "units") {
		if len(sent) > 0 && rapid.IntRange(0, 2).Draw(rt, "again") == 0 {
			old := rapid.SampledFrom(sent).Draw(rt, "old")
			if len(old.Groups) > 0 {
				g := rapid.IntRange(0, len(old.Groups)-1).Draw(rt, "group")
				for _, b := range old.Batches {
					if b.Group == int32(g) {
						b.Group = int32(len(groups))
						batches = append(batches, b)
					}
				}
				groups = append(groups, old.Groups[g])
				continue
			}
		}
		tenant := rapid.SampledFrom([]string{"acme", "beta"}).Draw(rt, "tenant")
		group := int32(-1)
		if kind := rapid.IntRange(0, 4).Draw(rt, "grouped"); kind > 0 {
			group = int32(len(groups))
			g := Group{Tenant: tenant}
			if kind > 1 {
				g.Producer = &Producer{ID: rapid.SampledFrom([]string{"p", "q"}).Draw(rt, "id"), Sequence: int64(rapid.IntRange(0, 30).Draw(rt, "sequence"))}
				g.Producer.Epoch = m.epochs[tenant+"/"+g.Producer.ID]
				if rapid.IntRange(0, 3).Draw(rt, "fence only") == 0 {
					g.Producer.Sequence = NoSequence
				}
				if rapid.IntRange(0, 15).Draw(rt, "wrong epoch") == 0 {
					g.Producer.Epoch += int64(rapid.SampledFrom([]int{-1, 1}).Draw(rt, "by"))
				}
			}
			groups = append(groups, g)
		}
		seen := map[PartitionKey]bool{}
		for range rapid.IntRange(1, 3).Draw(rt, "batches") {
			x := rapid.SampledFrom(topics).Draw(rt, "topic")
			if x.Tenant != tenant && rapid.IntRange(0, 9).Draw(rt, "stray") > 0 {
				continue
			}
			k := PartitionKey{x.ID, int32(rapid.IntRange(0, 8).Draw(rt, "partition")) / 4}
			if seen[k] {
				continue
			}
			seen[k] = true
			b := BatchDelta{TopicID: x.ID, Partition: k.Partition, Records: int32(rapid.IntRange(1, 3).Draw(rt, "records")), Group: group}
			if group >= 0 && rapid.Bool().Draw(rt, "hashed") {
				b.IDHashes = make([][16]byte, b.Records)
				for i := range b.IDHashes {
					b.IDHashes[i][0] = byte(rapid.IntRange(0, 6).Draw(rt, "hash"))
				}
			}
			batches = append(batches, b)
		}
	}
	return w.commit(groups, batches...)
}
