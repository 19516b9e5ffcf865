package ingest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

func TestOffsetsAnswerWhereEachRecordIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, nil)
		tp := topic(1, 4)
		for round := range 3 {
			values := []string{"a", "b", "c", "d", "e"}
			parts := []int32{2, 0, 2, 3, 2}
			for i := range values {
				values[i] = fmt.Sprintf("%d-%s", round, values[i])
			}
			res, err := f.Append(t.Context(), publish(tp, values, parts...))
			if err != nil {
				t.Fatal(err)
			}
			stored := f.stored(t)
			for i, off := range res.Topics[0].Offsets {
				if got := stored[topicPartition{1, parts[i]}][off]; got != values[i] {
					t.Errorf("round %d: partition %d offset %d has %q, want %q", round, parts[i], off, got, values[i])
				}
			}
			if res.Duplicate {
				t.Error("a first append is called a duplicate")
			}
		}
	})
}

// Many callers at once: every acknowledged offset holds the caller's record, none is given twice, and the order of a caller's own
// sequential requests is the order of their offsets.
func TestConcurrentAppendsKeepOffsetsAndOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, func(o *Options) { o.SegmentBytes = 4000; o.BatchBytes = 500 })
		f.store.put = func(_ context.Context, n int, _ string) error {
			time.Sleep(time.Duration(n*7%13) * time.Millisecond) // uploads end out of order
			return nil
		}
		topics := []*metadata.Topic{topic(1, 3), topic(2, 1)}
		type ack struct {
			tp    topicPartition
			off   int64
			value string
		}
		var mu sync.Mutex
		var acks []ack
		var wg sync.WaitGroup
		for c := range 20 {
			wg.Go(func() {
				last := map[topicPartition]int64{}
				for i := range 15 {
					tp := topics[(c+i)%2]
					n := 1 + (c*i)%5
					var values []string
					var parts []int32
					for k := range n {
						values = append(values, fmt.Sprintf("client %d request %d record %d %s", c, i, k, string(make([]byte, 40))))
						parts = append(parts, int32((c+k)%tp.Config.Partitions))
					}
					q := publish(tp, values, parts...)
					if c%3 == 0 {
						q.Producer = &metadata.Producer{ID: fmt.Sprint(c), Sequence: int64(i)}
					}
					res, err := f.Append(t.Context(), q)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					for k, off := range res.Topics[0].Offsets {
						at := topicPartition{tp.ID, parts[k]}
						if prev, ok := last[at]; ok && off <= prev {
							t.Errorf("client %d: offset %d after %d in %v", c, off, prev, at)
						}
						last[at] = off
						acks = append(acks, ack{at, off, values[k]})
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		stored := f.stored(t)
		records := 0
		for _, byOffset := range stored {
			records += len(byOffset)
		}
		if records != len(acks) {
			t.Errorf("%d records stored, %d acknowledged", records, len(acks))
		}
		for _, a := range acks {
			if got := stored[a.tp][a.off]; got != a.value {
				t.Fatalf("%v offset %d has %q, acknowledged for %q", a.tp, a.off, got, a.value)
			}
		}
		if n := f.store.count(); n < 2 || n > 300 {
			t.Errorf("%d segments for 300 requests", n)
		}
	})
}

func TestRequestOverTopicsIsOneGroupInOneCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, nil)
		a, b := topic(1, 4), topic(2, 4)
		q := publish(a, []string{"a0", "a1"}, 3, 1)
		q.Topics = append(q.Topics, publish(b, []string{"b0", "b1", "b2"}, 1, 1, 0).Topics...)
		res, err := f.Append(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if len(res.Topics) != 2 || len(res.Topics[0].Offsets) != 2 || !slices.Equal(res.Topics[1].Offsets, []int64{0, 1, 0}) {
			t.Errorf("result %+v", res)
		}
		cs := f.log.commits()
		if len(cs) != 1 || len(cs[0].Groups) != 1 || cs[0].Groups[0].Tenant != "t" || cs[0].Groups[0].Producer != nil {
			t.Fatalf("commits %+v", cs)
		}
		var where []string
		for _, d := range cs[0].Batches {
			if d.Group != 0 {
				t.Errorf("batch %+v is not in the group", d)
			}
			where = append(where, fmt.Sprintf("%d/%d", d.TopicID, d.Partition))
		}
		if !slices.Equal(where, []string{"1/1", "1/3", "2/0", "2/1"}) {
			t.Errorf("batches stand as %v, want by topic and partition", where)
		}
	})
}

func TestPlainRequestsShareABatchAndGroupedOnesDoNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		f := start(t, nil)
		f.store.put = func(_ context.Context, n int, _ string) error {
			if n == 1 {
				<-gate
			}
			return nil
		}
		tp := topic(1, 1)
		first := f.async(t.Context(), publish(tp, []string{"opens the way"}, 0))
		synctest.Wait() // it is in flight: the next ones wait for each other
		var chans []<-chan outcome
		for i := range 5 {
			q := publish(tp, []string{fmt.Sprintf("%d-0", i), fmt.Sprintf("%d-1", i)}, 0, 0)
			if i == 2 {
				q.Producer = &metadata.Producer{ID: "p", Epoch: 3, Sequence: 9}
			}
			chans = append(chans, f.async(t.Context(), q))
			synctest.Wait()
		}
		close(gate)
		<-first
		for i, ch := range chans {
			o := <-ch
			if o.err != nil {
				t.Fatal(o.err)
			}
			if want := int64(1 + 2*i); !slices.Equal(o.res.Topics[0].Offsets, []int64{want, want + 1}) {
				t.Errorf("request %d got %v, want arrival order", i, o.res.Topics[0].Offsets)
			}
		}
		cs := f.log.commits()
		if len(cs) != 2 || len(cs[1].Batches) != 3 || len(cs[1].Groups) != 1 {
			t.Fatalf("commits %+v", cs)
		}
		for i, want := range []struct{ group, records int32 }{{-1, 4}, {0, 2}, {-1, 4}} {
			if b := cs[1].Batches[i]; b.Group != want.group || b.Records != want.records {
				t.Errorf("batch %d: group %d records %d, want %+v", i, b.Group, b.Records, want)
			}
		}
		if p := cs[1].Groups[0].Producer; p == nil || *p != (metadata.Producer{ID: "p", Epoch: 3, Sequence: 9}) {
			t.Errorf("producer %+v", p)
		}
		f.stored(t)
	})
}

func TestEventIDsAreHashedWhereTheTopicAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, nil)
		f.log.decide = func(c *metadata.Commit, b int, r *metadata.BatchResult) {
			if len(c.Batches[b].IDHashes) == 3 { // the middle one is there already, at 70
				r.Offsets = []int64{r.Base, 70, r.Base + 1}
			}
		}
		plain, dedupe := topic(1, 2), topic(2, 2)
		dedupe.Config.DedupeWindow = time.Hour
		with := func(tp *metadata.Topic) *Request {
			q := publish(tp, []string{"a", "b", "c", "d"}, 1, 0, 1, 1)
			q.Topics[0].Records[0].ID = "x"
			q.Topics[0].Records[3].ID = "x"
			return q
		}
		if _, err := f.Append(t.Context(), with(plain)); err != nil {
			t.Fatal(err)
		}
		res, err := f.Append(t.Context(), with(dedupe))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(res.Topics[0].Offsets, []int64{0, 0, 70, 1}) {
			t.Errorf("offsets %v, want those that the log gave", res.Topics[0].Offsets)
		}
		if _, err := f.Append(t.Context(), publish(dedupe, []string{"no id"}, 0)); err != nil {
			t.Fatal(err)
		}
		cs := f.log.commits()
		for _, b := range append(cs[0].Batches, cs[2].Batches...) {
			if b.IDHashes != nil || b.Group != -1 {
				t.Errorf("batch %+v has hashes or a group without need", b)
			}
		}
		b0, b1 := cs[1].Batches[0], cs[1].Batches[1]
		if b0.Partition != 0 || len(b0.IDHashes) != 1 || b0.IDHashes[0] != [16]byte{} || len(b1.IDHashes) != 3 {
			t.Fatalf("batches %+v %+v", b0, b1)
		}
		if b1.IDHashes[0] == ([16]byte{}) || b1.IDHashes[0] != b1.IDHashes[2] || b1.IDHashes[1] != ([16]byte{}) || b0.Group != 0 || b1.Group != 0 {
			t.Errorf("hashes %x, groups %d %d", b1.IDHashes, b0.Group, b1.Group)
		}
	})
}

func TestDuplicateIsReportedWhenAllOfItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, nil)
		all := true
		f.log.decide = func(c *metadata.Commit, b int, r *metadata.BatchResult) {
			r.Duplicate = all || b == 0
			r.Base = 40
		}
		q := publish(topic(1, 2), []string{"a", "b"}, 0, 1)
		q.Producer = &metadata.Producer{ID: "p", Sequence: 1}
		res, err := f.Append(t.Context(), q)
		if err != nil || !res.Duplicate || !slices.Equal(res.Topics[0].Offsets, []int64{40, 40}) {
			t.Errorf("%+v, %v", res, err)
		}
		all = false
		if res, err = f.Append(t.Context(), q); err != nil || res.Duplicate {
			t.Errorf("%+v, %v: half a duplicate is none", res, err)
		}
	})
}

func TestBatchErrorsGoToTheirRequestsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		f := start(t, nil)
		f.store.put = func(_ context.Context, n int, _ string) error {
			if n == 1 {
				<-gate
			}
			return nil
		}
		f.log.decide = func(c *metadata.Commit, b int, r *metadata.BatchResult) {
			switch {
			case c.Batches[b].TopicID == 2:
				r.Err = api.Errorf(api.CodeUnknownTopic, "gone")
			case c.Batches[b].Group >= 0 && c.Groups[c.Batches[b].Group].Producer.ID == "old":
				r.Err = api.Errorf(api.CodeProducerFenced, "fenced")
			case c.Batches[b].TopicID == 3 && c.Batches[b].Partition == 1:
				r.Err = api.Errorf(api.CodeUnknownPartition, "odd")
			}
		}
		a, gone, odd := topic(1, 2), topic(2, 2), topic(3, 2)
		first := f.async(t.Context(), publish(a, []string{"x"}, 0))
		synctest.Wait()
		good := f.async(t.Context(), publish(a, []string{"g0", "g1"}, 0, 1))
		bad := f.async(t.Context(), publish(gone, []string{"b0", "b1"}, 0, 1))
		q := publish(a, []string{"f0", "f1"}, 0, 1)
		q.Producer = &metadata.Producer{ID: "old"}
		fenced := f.async(t.Context(), q)
		mixed := f.async(t.Context(), publish(odd, []string{"m0", "m1"}, 0, 1))
		synctest.Wait()
		close(gate)
		if o := <-first; o.err != nil {
			t.Error(o.err)
		}
		if o := <-good; o.err != nil || len(o.res.Topics[0].Offsets) != 2 {
			t.Errorf("good request: %+v", o)
		}
		e1, e2 := wantCode(t, (<-bad).err, api.CodeUnknownTopic), wantCode(t, (<-fenced).err, api.CodeProducerFenced)
		e1.With("renderer", "adds to its own copy")
		if e2.Extra != nil {
			t.Error("errors share their extras")
		}
		// Apply refuses a request as a whole. If ever it did not, a claim that nothing was stored would be a lie.
		wantCode(t, (<-mixed).err, api.CodeOutcomeUnknown)
		f.stored(t)
	})
}

func TestInvalidRequestsAreRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, func(o *Options) { o.MaxInFlightBytes = 200_000; o.MaxTenantBytes = 100_000; o.CommitBytes = 3000 })
		tp := topic(1, 4000)
		other := topic(2, 1)
		other.Tenant = "somebody else"
		wide := publish(tp, nil)
		for p := range int32(100) {
			wide.Topics[0].Records = append(wide.Topics[0].Records, record("x"))
			wide.Topics[0].Partitions = append(wide.Topics[0].Partitions, p)
		}
		for name, c := range map[string]struct {
			q    *Request
			code api.Code
		}{
			"no such partition":     {publish(tp, []string{"a"}, 4000), api.CodeUnknownPartition},
			"negative partition":    {publish(tp, []string{"a"}, -1), api.CodeUnknownPartition},
			"no record":             {publish(tp, nil), api.CodeInvalidRequest},
			"no topic":              {&Request{Tenant: "t"}, api.CodeInvalidRequest},
			"another tenant's":      {&Request{Tenant: "t", Topics: publish(other, []string{"a"}, 0).Topics}, api.CodeUnknownTopic},
			"larger than ever fits": {publish(tp, []string{string(make([]byte, 100_000))}, 0), api.CodeTooLarge},
			"commit too large":      {wide, api.CodeTooLarge},
		} {
			_, err := f.Append(t.Context(), c.q)
			if e := wantCode(t, err, c.code); e.Detail == "" {
				t.Errorf("%s: no detail", name)
			}
		}
		if _, err := f.Append(t.Context(), &Request{Tenant: "t", Topics: []TopicRecords{{Topic: tp, Records: []segment.Record{record("a")}}}}); err == nil {
			t.Error("records without partitions were taken")
		}
		// After all these the scratch memory is clean: an ordinary request works.
		if _, err := f.Append(t.Context(), publish(tp, []string{"a", "b"}, 0, 3999)); err != nil {
			t.Error(err)
		}
		if n := f.metric(t, "forebay_ingest_refusals_total", "too_large"); n != 2 {
			t.Errorf("%v refusals for size counted", n)
		}
	})
}

func TestSinkGetsTheObjectBeforeTheCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &fakeSink{objects: map[string][]byte{}}
		f := start(t, func(o *Options) { o.Sink = sink })
		f.log.hold = func(c *metadata.Commit, answer func(error)) {
			key := segment.Name{ID: c.Segment.ID}.Key()
			if string(sink.get(key)) != string(f.store.body(key)) || len(sink.get(key)) == 0 {
				t.Errorf("at commit the sink has %d bytes of %s, the store %d", len(sink.get(key)), key, len(f.store.body(key)))
			}
			answer(nil)
		}
		for i := range 5 {
			if _, err := f.Append(t.Context(), publish(topic(1, 1), []string{fmt.Sprint("value ", i)}, 0)); err != nil {
				t.Fatal(err)
			}
		}
		for key, body := range sink.objects { // nothing that the sink holds was written to again
			if string(body) != string(f.store.body(key)) {
				t.Errorf("%s changed in the sink", key)
			}
		}
	})
}

type fakeSink struct {
	mu      sync.Mutex
	objects map[string][]byte
}

func (s *fakeSink) Put(object string, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[object] = body
}

func (s *fakeSink) get(object string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[object]
}

func TestCommitNamesTheSegment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, nil)
		begin := time.Now()
		for range 3 {
			if _, err := f.Append(t.Context(), publish(topic(1, 1), []string{"v"}, 0)); err != nil {
				t.Fatal(err)
			}
		}
		cs := f.log.commits()
		for i, c := range cs {
			if c.Segment.Level != 0 || c.Segment.Class != "" || c.AppendTime != begin.UnixMilli() || c.Segment.ID.Time() != uint64(begin.UnixMilli()) {
				t.Errorf("commit %d: %+v", i, c)
			}
			if i > 0 && cs[i-1].Segment.ID.Compare(c.Segment.ID) >= 0 {
				t.Errorf("ID %s is not above %s", c.Segment.ID, cs[i-1].Segment.ID)
			}
			key := segment.Name{ID: c.Segment.ID}.Key()
			if err := segment.Verify(f.store.body(key)); err != nil {
				t.Errorf("%s: %v", key, err)
			}
		}
	})
}
