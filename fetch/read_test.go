package fetch

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

func TestReadDense(t *testing.T) {
	w := newWorld(t)
	w.commit(values("a", "b"), values("c"))
	w.commit(values("d", "e", "f"))
	f := w.fetcher(Options{})
	w.wantShape(w.read(f, request(0)), "0:a 1:b 2:c 3:d 4:e 5:f next 6 head 6 start 0")
	w.wantShape(w.read(f, request(Earliest)), "0:a 1:b 2:c 3:d 4:e 5:f next 6 head 6 start 0")
	w.wantShape(w.read(f, request(4)), "4:e 5:f next 6 head 6 start 0")
	w.wantShape(w.read(f, request(6)), "next 6 head 6 start 0")
	w.wantShape(w.read(f, request(Latest)), "next 6 head 6 start 0")
	r := request(1)
	r.MaxRecords = 2
	w.wantShape(w.read(f, r), "1:b 2:c next 3 head 6 start 0")
	r.MaxRecords = 3
	w.wantShape(w.read(f, r), "1:b 2:c 3:d next 4 head 6 start 0")

	res := w.read(f, request(2))
	if res.Records[0].AppendTime != testNow || res.Records[1].AppendTime != testNow+1000 {
		t.Errorf("append times %d and %d", res.Records[0].AppendTime, res.Records[1].AppendTime)
	}
}

func TestReadEmptyPartition(t *testing.T) {
	w := newWorld(t)
	f := w.fetcher(Options{})
	for _, offset := range []int64{0, Earliest, Latest} {
		w.wantShape(w.read(f, request(offset)), "next 0 head 0 start 0")
	}
}

// Case L1: at least one record a read, however small the limit.
func TestReadGivesOneRecordBeyondTheByteLimit(t *testing.T) {
	sizes := []int{100, 900 << 10, 100}
	for name, together := range map[string]bool{"one batch": true, "three batches": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var records []segment.Record
			for _, n := range sizes {
				records = append(records, rec("k", strings.Repeat("x", n)))
			}
			if together {
				w.commit(records)
			} else {
				for i := range records {
					w.commit(records[i : i+1])
				}
			}
			f := w.fetcher(Options{})
			offset := int64(0)
			for i, n := range sizes {
				r := request(offset)
				r.MaxBytes = 1
				res := w.read(f, r)
				if len(res.Records) != 1 || res.Records[0].Offset != int64(i) || len(res.Records[0].Value) != n || res.NextOffset != int64(i+1) {
					t.Fatalf("read %d: %d records, next %d", i, len(res.Records), res.NextOffset)
				}
				offset = res.NextOffset
			}
		})
	}
}

func TestReadStopsBeforeTheByteLimit(t *testing.T) {
	w := newWorld(t)
	w.commit(values("aaaa", "bbbb", "cccc"), values("dddd"))
	f := w.fetcher(Options{})
	for limit, want := range map[int64]int{1: 1, 5: 1, 9: 1, 10: 2, 14: 2, 15: 3, 20: 4, 21: 4} { // five bytes a record, its key included
		r := request(0)
		r.MaxBytes = limit
		res := w.read(f, r)
		if len(res.Records) != want || res.NextOffset != int64(want) {
			t.Errorf("limit %d: %d records, next %d, want %d", limit, len(res.Records), res.NextOffset, want)
		}
	}
}

// Case L2: holes of compaction are passed, and the next offset always moves on.
func TestReadPassesHoles(t *testing.T) {
	w := newWorld(t)
	// Keys k1 k2 k2 k2 k1 k3 at 0 to 5, compacted: 3, 4 and 5 survive. 6 to 9 were one object, emptied. 10 is alive, 11 and 12 are a hole.
	at := func(offset int64, value string) segment.Record {
		r := rec("k", value)
		r.Offset, r.AppendTime = offset, testNow+offset
		return r
	}
	a := w.compacted(at(3, "d"), at(4, "e"), at(5, "f"))
	a.Base = 0 // an entry may cover the hole before it
	b := w.compacted(at(10, "k"))
	w.replace(a, b)
	w.view.set(func() { w.view.info.Head = 13 })
	f := w.fetcher(Options{})
	want := map[int64]string{
		0: "3:d 4:e 5:f 10:k next 13", 3: "3:d 4:e 5:f 10:k next 13", 4: "4:e 5:f 10:k next 13", 5: "5:f 10:k next 13",
		6: "10:k next 13", 9: "10:k next 13", 10: "10:k next 13", 11: "next 13", 12: "next 13", 13: "next 13",
	}
	for offset, shape := range want {
		w.wantShape(w.read(f, request(offset)), shape+" head 13 start 0")
	}
	// One by one: every read moves on, and the last ends at the head.
	var seen []int64
	offset := int64(0)
	for reads := 0; offset < 13; reads++ {
		if reads > 5 {
			t.Fatal("the reader stalls")
		}
		r := request(offset)
		r.MaxRecords = 1
		res := w.read(f, r)
		if res.NextOffset <= offset {
			t.Fatalf("next offset %d does not move past %d", res.NextOffset, offset)
		}
		for _, rec := range res.Records {
			seen = append(seen, rec.Offset)
			if rec.AppendTime != testNow+rec.Offset {
				t.Errorf("append time of %d is %d", rec.Offset, rec.AppendTime)
			}
		}
		offset = res.NextOffset
	}
	if fmt.Sprint(seen) != "[3 4 5 10]" {
		t.Errorf("read %v", seen)
	}
}

func TestReadSkipsDropped(t *testing.T) {
	w := newWorld(t)
	w.commit(values("a", "B", "c", "D", "e", "F"))
	w.commit(values("g"))
	w.view.set(func() { // B, D and F were duplicates by event ID
		w.view.entries[0].Dropped = []int32{1, 3, 5}
		w.view.entries[0].Last = 2
		w.view.entries[1].Base, w.view.entries[1].Last = 3, 3
		w.view.info.Head = 4
	})
	f := w.fetcher(Options{})
	w.wantShape(w.read(f, request(0)), "0:a 1:c 2:e 3:g next 4 head 4 start 0")
	w.wantShape(w.read(f, request(1)), "1:c 2:e 3:g next 4 head 4 start 0")
	w.wantShape(w.read(f, request(2)), "2:e 3:g next 4 head 4 start 0")
	r := request(0)
	r.MaxRecords = 3
	w.wantShape(w.read(f, r), "0:a 1:c 2:e next 3 head 4 start 0")
	r.MaxRecords = 1
	w.wantShape(w.read(f, r), "0:a next 1 head 4 start 0")
}

func TestReadOutOfRange(t *testing.T) {
	w := newWorld(t)
	w.commit(values("a", "b", "c", "d"))
	w.view.set(func() { w.view.info.LogStart = 2 })
	f := w.fetcher(Options{})
	for _, offset := range []int64{0, 1, 5, math.MaxInt64} {
		_, err := f.Read(context.Background(), request(offset))
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.CodeOffsetOutOfRange || e.Extra["logStart"] != int64(2) || e.Extra["head"] != int64(4) {
			t.Errorf("offset %d: %v", offset, err)
		}
	}
	w.wantShape(w.read(f, request(Earliest)), "2:c 3:d next 4 head 4 start 2")
	for _, r := range []ReadRequest{{Offset: -3}, {Offset: 0, MaxRecords: 0, MaxBytes: 1}, {Offset: 0, MaxRecords: 1}} {
		r.TopicID, r.Partition = testTopic, testPartition
		if r.Offset < 0 {
			r.MaxRecords, r.MaxBytes = 1, 1
		}
		if _, err := f.Read(context.Background(), r); api.CodeOf(err) != api.CodeInvalidRequest {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

func TestReadUnknown(t *testing.T) {
	w := newWorld(t)
	f := w.fetcher(Options{})
	r := request(0)
	r.TopicID++
	if _, err := f.Read(context.Background(), r); api.CodeOf(err) != api.CodeUnknownTopic {
		t.Error(err)
	}
	r = request(0)
	r.Partition++
	if _, err := f.Read(context.Background(), r); api.CodeOf(err) != api.CodeUnknownPartition {
		t.Error(err)
	}
}

func TestReadSyncs(t *testing.T) {
	w := newWorld(t)
	w.commit(values("a"))
	f := w.fetcher(Options{})
	w.read(f, request(0))
	if w.view.syncs != 1 {
		t.Fatalf("%d barriers for a linearizable read", w.view.syncs)
	}
	w.view.syncErr = api.Errorf(api.CodeMetadataUnavailable, "no quorum")
	if _, err := f.Read(context.Background(), request(0)); api.CodeOf(err) != api.CodeMetadataUnavailable {
		t.Fatalf("a read without a barrier: %v", err)
	}
	r := request(0)
	r.Stale = true
	w.wantShape(w.read(f, r), "0:a next 1 head 1 start 0")
}

// A read goes on when the index answers in pages.
func TestReadManyBatches(t *testing.T) {
	w := newWorld(t)
	var batches [][]segment.Record
	for i := range 2*locateMax + 10 {
		batches = append(batches, values(fmt.Sprint(i)))
	}
	w.commit(batches...)
	f := w.fetcher(Options{})
	res := w.read(f, request(0))
	if len(res.Records) != len(batches) || res.NextOffset != int64(len(batches)) {
		t.Fatalf("%d records, next %d", len(res.Records), res.NextOffset)
	}
	for i, r := range res.Records {
		if r.Offset != int64(i) || string(r.Value) != fmt.Sprint(i) {
			t.Fatalf("record %d is %d:%s", i, r.Offset, r.Value)
		}
	}
}

// Retention that overtakes a read between two pages of the index never makes it jump.
func TestReadOvertakenByRetention(t *testing.T) {
	w := newWorld(t)
	var batches [][]segment.Record
	for i := range locateMax + 10 {
		batches = append(batches, values(fmt.Sprint(i)))
	}
	w.commit(batches...)
	w.view.onLocate = func(n int) {
		if n == 2 {
			w.view.set(func() {
				w.view.info.LogStart = locateMax + 5
				w.view.entries = w.view.entries[locateMax+5:]
			})
		}
	}
	f := w.fetcher(Options{})
	res := w.read(f, request(0))
	if len(res.Records) != locateMax || res.NextOffset != locateMax || res.LogStart != locateMax+5 {
		t.Fatalf("%d records, next %d, start %d", len(res.Records), res.NextOffset, res.LogStart)
	}
	if _, err := f.Read(context.Background(), request(res.NextOffset)); api.CodeOf(err) != api.CodeOffsetOutOfRange {
		t.Fatalf("the next read: %v", err)
	}
}

// Whatever the batches, block size, limits and starting offset: a scan returns each live record at or after the start, once, in order.
func TestScanProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		w.compress = rapid.SampledFrom([]segment.Compression{segment.CompressFastest, segment.CompressNone}).Draw(rt, "compression")
		type live struct {
			offset int64
			value  string
		}
		var want []live
		head := int64(0)
		for range rapid.IntRange(1, 6).Draw(rt, "objects") {
			n := rapid.IntRange(1, 30).Draw(rt, "records")
			records := make([]segment.Record, n)
			for i := range records {
				records[i] = rec("k", strings.Repeat(fmt.Sprint(i), rapid.IntRange(0, 40).Draw(rt, "size")))
			}
			if rapid.Bool().Draw(rt, "sparse") {
				base := head
				for i := range records {
					head += int64(rapid.IntRange(0, 3).Draw(rt, "gap"))
					records[i].Offset, records[i].AppendTime = head, w.time
					want = append(want, live{head, string(records[i].Value)})
					head++
				}
				e := w.compacted(records...)
				e.Base = base
				head += int64(rapid.IntRange(0, 3).Draw(rt, "hole"))
				w.view.set(func() { w.view.entries, w.view.info.Head = append(w.view.entries, e), head })
				continue
			}
			cut := rapid.IntRange(0, n-1).Draw(rt, "cut")
			w.view.set(func() { w.view.info.Head = head })
			batches := [][]segment.Record{records[cut:]}
			if cut > 0 {
				batches = [][]segment.Record{records[:cut], records[cut:]}
			}
			w.commit(batches...)
			for i := range records {
				want = append(want, live{head + int64(i), string(records[i].Value)})
			}
			head += int64(n)
		}
		block := int64(rapid.IntRange(16, 2000).Draw(rt, "block"))
		f, err := New(Options{View: w.view, Store: w.store, BlockBytes: block, CacheBytes: max(4*block, int64(rapid.IntRange(1000, 1<<20).Draw(rt, "cache"))),
			OldBytesPerSecond: -1})
		if err != nil {
			rt.Fatal(err)
		}
		defer f.Close()
		offset := int64(rapid.IntRange(0, int(head)).Draw(rt, "start"))
		for len(want) > 0 && want[0].offset < offset {
			want = want[1:]
		}
		r := request(offset)
		r.MaxRecords = rapid.IntRange(1, 50).Draw(rt, "maxRecords")
		r.MaxBytes = int64(rapid.IntRange(1, 500).Draw(rt, "maxBytes"))
		for r.Offset < head {
			res, err := f.Read(context.Background(), r)
			if err != nil {
				rt.Fatalf("read at %d: %v", r.Offset, err)
			}
			if res.NextOffset <= r.Offset || res.NextOffset > head || res.Head != head {
				rt.Fatalf("read at %d: next %d, head %d of %d", r.Offset, res.NextOffset, res.Head, head)
			}
			bytes := int64(0)
			for i := range res.Records {
				got := &res.Records[i]
				if len(want) == 0 || got.Offset != want[0].offset || string(got.Value) != want[0].value || got.AppendTime < testNow {
					rt.Fatalf("read at %d: got %d:%s at %d, want %v", r.Offset, got.Offset, got.Value, got.AppendTime, want)
				}
				want = want[1:]
				bytes += recordBytes(got)
			}
			if len(res.Records) > r.MaxRecords || len(res.Records) > 1 && bytes > r.MaxBytes {
				rt.Fatalf("%d records of %d bytes exceed the limits", len(res.Records), bytes)
			}
			r.Offset = res.NextOffset
		}
		if len(want) > 0 {
			rt.Fatalf("never read: %v", want)
		}
	})
}

func TestReadNeverShowsAnotherTopic(t *testing.T) {
	w := newWorld(t)
	records := values("secret")
	seg, refs := w.write(0, &segment.Batch{TopicID: uint64(testTopic) + 16, Partition: testPartition, Records: 1, Chunks: encode(records)})
	w.replace(metadata.IndexEntry{Segment: seg, Ref: refs[0], Records: 1, AppendTime: testNow, FirstTime: testNow})
	w.view.set(func() { w.view.info.Head = 1 })
	f := w.fetcher(Options{})
	for range 2 {
		_, err := f.Read(context.Background(), request(0))
		if api.CodeOf(err) != api.CodeInternal {
			t.Fatalf("another topic's batch: %v", err)
		}
	}
}
