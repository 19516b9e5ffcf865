package fetch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

// runOf stores an object with one run per list of records: each run has batches of per records. It gives the entries of the runs. Records
// have their offsets and times.
func (w *world) runOf(per int, runs ...[]segment.Record) []metadata.IndexEntry {
	w.t.Helper()
	var batches []*segment.Batch
	counts := make([]int, len(runs))
	for i, records := range runs {
		for some := range slices.Chunk(records, per) {
			b := &segment.Batch{TopicID: uint64(testTopic), Partition: testPartition, Records: len(some), Chunks: encode(some)}
			if i > 0 {
				b.Partition = testPartition + int32(i)
			}
			for _, r := range some {
				b.Offsets, b.AppendTimes = append(b.Offsets, r.Offset), append(b.AppendTimes, r.AppendTime)
			}
			batches = append(batches, b)
			counts[i]++
		}
	}
	seg, refs := w.write(2, batches...)
	var out []metadata.IndexEntry
	for i, records := range runs {
		n := len(records) - 1
		e := metadata.IndexEntry{Segment: seg, Base: records[0].Offset, Last: records[n].Offset, Records: int32(n + 1),
			FirstTime: records[0].AppendTime, AppendTime: records[n].AppendTime, Sparse: true}
		e.Ref.Pos = refs[0].Pos
		for _, ref := range refs[:counts[i]] {
			e.Ref.Len += ref.Len
		}
		refs = refs[counts[i]:]
		out = append(out, e)
	}
	return out
}

// steps makes n records whose offsets rise by step, three to a millisecond.
func steps(n int, first, step int64, size int) []segment.Record {
	out := make([]segment.Record, n)
	for i := range out {
		out[i] = rec("k", fmt.Sprint(i, " ", strings.Repeat("v", size)))
		out[i].Offset = first + int64(i)*step
		out[i].AppendTime = testNow + int64(i/3)
	}
	return out
}

// TestRuns reads runs of all shapes from every offset, with blocks that make them short or long.
func TestRuns(t *testing.T) {
	for _, compress := range []segment.Compression{segment.CompressNone, segment.CompressFastest} {
		for _, block := range []int64{64, 1 << 10, 16 << 10, 1 << 20} {
			for _, per := range []int{1, 7, 100} {
				w := newWorld(t)
				w.compress = compress
				records := steps(100, 1<<33, 3, 40)
				later := steps(50, 1<<33+1000, 1, 10)
				entries := append(w.runOf(per, records, steps(20, 0, 1, 100))[:1], w.runOf(per, later)[0])
				w.replace(entries...)
				w.view.info = metadata.PartitionInfo{LogStart: 0, Head: 1<<33 + 1050}
				f := w.fetcher(Options{BlockBytes: block, CacheBytes: 64 * block})
				all := append(slices.Clone(records), later...)
				for i := 0; i < len(all); i += 3 {
					for _, back := range []int64{0, 1, 2} {
						r := request(all[i].Offset - back)
						r.MaxRecords = 1 + i%5
						res := w.read(f, r)
						first := i
						if back > 0 && i > 0 && all[i-1].Offset >= r.Offset {
							first = i - 1
						}
						if back > 1 && i > 1 && all[i-2].Offset >= r.Offset {
							first = i - 2
						}
						if len(res.Records) == 0 || res.Records[0].Offset != all[first].Offset || string(res.Records[0].Value) != string(all[first].Value) ||
							res.Records[0].AppendTime != all[first].AppendTime {
							t.Fatalf("block %d, %d a batch: read at %d gave %s", block, per, r.Offset, shape(res))
						}
						for j, x := range res.Records {
							if x.Offset != all[first+j].Offset {
								t.Fatalf("block %d, %d a batch: record %d of the read at %d has offset %d", block, per, j, r.Offset, x.Offset)
							}
						}
					}
					offset, found, err := f.OffsetForTime(t.Context(), testTopic, testPartition, records[i%100].AppendTime)
					want := records[i%100/3*3].Offset
					if err != nil || !found || offset != want {
						t.Fatalf("block %d, %d a batch: offset for the time of record %d is %d, %v, %v, want %d", block, per, i%100, offset, found, err, want)
					}
				}
				if res := w.read(f, request(1<<33+1050)); len(res.Records) != 0 {
					t.Fatalf("at the head: %s", shape(res))
				}
			}
		}
	}
}

// TestLongRunIsRanged: a read in the middle of a long run takes one GET for the index and one for the batch; the next ones less.
func TestLongRunIsRanged(t *testing.T) {
	w := newWorld(t)
	const block = 4 << 10
	records := steps(4000, 0, 1, 500) // 2 MB, 4 KB a batch
	w.replace(w.runOf(8, records)...)
	w.view.info = metadata.PartitionInfo{Head: 4000}
	f := w.fetcher(Options{BlockBytes: block, CacheBytes: 256 * block})
	r := request(2345)
	r.MaxRecords, r.MaxBytes = 1, 1
	if res := w.read(f, r); len(res.Records) != 1 || res.Records[0].Offset != 2345 {
		t.Fatal(shape(res))
	}
	// The index of 500 batches takes 34 KB: its end first, and then what is missing of it.
	if n := w.store.gets.Load(); n > 3 {
		t.Errorf("%d GETs: %v", n, w.store.log.ranges)
	}
	if n := w.store.bytes.Load(); n > 64<<10 {
		t.Errorf("%d bytes were read of a run of %d", n, w.view.entries[0].Ref.Len)
	}
	w.store.gets.Store(0)
	r.Offset = 700
	w.read(f, r)
	if n := w.store.gets.Load(); n != 1 {
		t.Errorf("the second read took %d GETs", n)
	}
}

// TestRunFaults: a directory that cannot be had is the error of the run; an index that is corrupt in the store is permanent, one that was
// corrupt on its way is read again; a run that was replaced is looked up again.
func TestRunFaults(t *testing.T) {
	const block = 256
	build := func(t *testing.T) (*world, *Fetcher, metadata.IndexEntry) {
		w := newWorld(t)
		e := w.runOf(5, steps(100, 10, 1, 50))[0]
		w.replace(e)
		w.view.info = metadata.PartitionInfo{LogStart: 10, Head: 110}
		return w, w.fetcher(Options{BlockBytes: block, CacheBytes: 64 * block}), e
	}
	unreadableAt := func(t *testing.T, err error, e *metadata.IndexEntry, missing bool) {
		t.Helper()
		var u *UnreadableError
		if !errors.As(err, &u) || u.Missing != missing || u.Next != e.Last+1 {
			t.Errorf("error %v", err)
		}
	}
	t.Run("corrupt once", func(t *testing.T) {
		w, f, _ := build(t)
		n := 0
		w.store.fault = func(_ string, _ int64, b []byte, err error) ([]byte, error) {
			if n++; n == 1 {
				b = slices.Clone(b)
				b[len(b)-20] ^= 1
			}
			return b, err
		}
		if res := w.read(f, request(50)); len(res.Records) != 60 {
			t.Error(shape(res))
		}
	})
	t.Run("corrupt", func(t *testing.T) {
		w, f, e := build(t)
		w.store.fault = func(_ string, off int64, b []byte, err error) ([]byte, error) {
			if off+int64(len(b)) == e.Segment.Size {
				b = slices.Clone(b)
				b[len(b)-20] ^= 1
			}
			return b, err
		}
		_, err := f.Read(context.Background(), request(50))
		unreadableAt(t, err, &e, false)
		if api.CodeOf(err) != api.CodeInternal {
			t.Error(err)
		}
		if _, _, err := f.OffsetForTime(context.Background(), testTopic, testPartition, testNow+5); api.CodeOf(err) != api.CodeInternal {
			t.Error(err)
		}
	})
	t.Run("missing", func(t *testing.T) {
		w, f, e := build(t)
		if err := w.store.Delete(context.Background(), w.lastKey); err != nil {
			t.Fatal(err)
		}
		_, err := f.Read(context.Background(), request(50))
		unreadableAt(t, err, &e, true)
	})
	t.Run("replaced", func(t *testing.T) {
		w, f, _ := build(t)
		old := w.lastKey
		other := w.runOf(9, steps(100, 10, 1, 50))[0]
		w.view.onLocate = func(n int) {
			if n == 2 {
				w.replace(other)
			}
		}
		if err := w.store.Delete(context.Background(), old); err != nil {
			t.Fatal(err)
		}
		if res := w.read(f, request(50)); len(res.Records) != 60 {
			t.Error(shape(res))
		}
	})
	t.Run("index disagrees", func(t *testing.T) {
		for i, change := range []func(e *metadata.IndexEntry){
			func(e *metadata.IndexEntry) { e.Records++ },
			func(e *metadata.IndexEntry) { e.Ref.Len -= 10 },
			func(e *metadata.IndexEntry) { e.Base = 60 },
			func(e *metadata.IndexEntry) { e.FirstTime += 20 },
		} {
			for _, size := range []int64{block, 1 << 20} {
				w, _, e := build(t)
				f := w.fetcher(Options{BlockBytes: size, CacheBytes: 64 * size})
				change(&e)
				w.replace(e)
				if _, err := f.Read(context.Background(), request(max(e.Base, 50))); api.CodeOf(err) != api.CodeInternal {
					t.Errorf("change %d with blocks of %d: %v", i, size, err)
				}
			}
		}
	})
}

// TestScanReadsAhead: a sequential scan through a long run reads each byte about once.
func TestScanReadsAhead(t *testing.T) {
	w := newWorld(t)
	const block = 4 << 10
	w.replace(w.runOf(8, steps(4000, 0, 1, 500))...)
	w.view.info = metadata.PartitionInfo{Head: 4000}
	f := w.fetcher(Options{BlockBytes: block, CacheBytes: 1024 * block})
	r := request(0)
	r.MaxBytes = 20 << 10
	n := 0
	for r.Offset < 4000 {
		res := w.read(f, r)
		n += len(res.Records)
		r.Offset = res.NextOffset
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if size := w.view.entries[0].Segment.Size; n != 4000 || w.store.bytes.Load() > size+size/10 {
		t.Errorf("%d records, %d bytes read of an object of %d", n, w.store.bytes.Load(), size)
	}
}
