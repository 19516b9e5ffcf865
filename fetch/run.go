package fetch

import (
	"context"
	"errors"
	"fmt"

	"github.com/oklog/ulid/v2"

	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/segment"
)

// The compactor keeps one index entry per partition and object. Its Ref spans a run: sparse batches of one partition, one after the other. A
// reader finds the batches of a run in its directory. Of a run within one block, that is made from the headers of the batches, which are
// read with the run. Of a longer one it comes from the index at the end of the object: one GET more, shared by all runs of the object,
// and then only the blocks that hold the wanted batches are read.

// runPart is one batch of a run. The parts of a run cover its offsets without a gap.
type runPart struct {
	ref                 segment.BatchRef
	records             int32
	base, last          int64
	firstTime, lastTime int64 // Unix ms; lastTime may be later than that of the last record, but not than the next part's first
}

const (
	runPartBytes = 64 // what a runPart weighs in the cache
	// indexTail is how much of an object's end is read for its index at first. What comes is at least a block.
	indexTail = 16 << 10
)

// isRun says whether an entry may span several batches.
func isRun(e *metadata.IndexEntry) bool { return e.Sparse && e.Segment.Level > 0 }

// entry makes the entry of one batch of a run.
func (p *runPart) entry(run *metadata.IndexEntry) metadata.IndexEntry {
	return metadata.IndexEntry{
		Segment: run.Segment, Ref: p.ref, Base: p.base, Last: p.last, Records: p.records, AppendTime: p.lastTime, FirstTime: p.firstTime, Sparse: true,
	}
}

// expand replaces the runs among the entries that the read probably needs next by their batches. ready is how many entries at the front are
// batches already; with some left, nothing is done.
func (f *Fetcher) expand(ctx context.Context, rd *reading, entries []metadata.IndexEntry, ready int) ([]metadata.IndexEntry, int, error) {
	if ready > 0 {
		return entries, ready, nil
	}
	n := f.window(rd, entries)
	first := 0
	for first < n && !isRun(&entries[first]) {
		first++
	}
	if first == n {
		return entries, n, nil
	}
	dirs, err := f.directories(ctx, rd, entries[first:n])
	if len(dirs) == 0 && first == 0 {
		return entries, 0, err
	}
	// An entry whose directory cannot be had is reported when it is the next to be read.
	out := append(make([]metadata.IndexEntry, 0, len(entries)+8*len(dirs)), entries[:first]...)
	for i, dir := range dirs {
		e := &entries[first+i]
		if dir == nil {
			out = append(out, *e)
			continue
		}
		for j := range dir {
			if dir[j].last >= rd.next {
				out = append(out, dir[j].entry(e))
			}
		}
	}
	return append(out, entries[first+len(dirs):]...), len(out), nil
}

// directories gives the directories of the runs among the entries, nil for what is no run. When one cannot be had, the result ends before
// it, with the reason.
func (f *Fetcher) directories(ctx context.Context, rd *reading, entries []metadata.IndexEntry) ([][]runPart, error) {
	dirs := make([][]runPart, len(entries))
	var wanted []metadata.IndexEntry
	var at []int
	for i := range entries {
		e := &entries[i]
		if !isRun(e) {
			continue
		}
		if dir, ok := f.runs.get(batchKey{e.Segment.ID, e.Ref.Pos}); ok {
			dirs[i] = dir
			continue
		}
		wanted, at = append(wanted, f.source(e, indexTail)), append(at, i)
	}
	if len(wanted) == 0 {
		return dirs, nil
	}
	loads, missing := f.blocks.lookup(wanted, cutoff(f.o.Clock, f.o.OldAge), f.none)
	waited, err := f.limits.wait(ctx, rd.tenant, missing)
	if waited {
		f.m.throttled.Inc()
	}
	if err != nil {
		return nil, mapError(err)
	}
	f.blocks.start(loads)
	defer f.blocks.release(loads)
	for k, i := range at {
		e := &entries[i]
		dir, err := f.directory(ctx, e, &loads[k])
		if errors.Is(err, segment.ErrCorrupt) {
			// Once more, past the cache: only what the store itself has wrong is permanent.
			f.m.refetched.Inc()
			f.blocks.drop(&loads[k].entry)
			dir, err = f.loadDirectory(ctx, e, loads[k].entry)
		}
		if err != nil {
			return dirs[:i], f.loadError(rd, e, err)
		}
		f.runs.put(dir, batchKey{e.Segment.ID, e.Ref.Pos})
		dirs[i] = dir
	}
	return dirs, nil
}

// source is what has to be read for the directory of a run: the run itself, or the last bytes of its object.
func (f *Fetcher) source(e *metadata.IndexEntry, tail int64) metadata.IndexEntry {
	out := *e
	if int64(e.Ref.Len) > f.o.BlockBytes && e.Segment.Size > 0 {
		tail = min(tail, e.Segment.Size)
		out.Ref = segment.BatchRef{Pos: uint64(e.Segment.Size - tail), Len: uint32(tail)}
	}
	return out
}

func (f *Fetcher) loadDirectory(ctx context.Context, e *metadata.IndexEntry, source metadata.IndexEntry) ([]runPart, error) {
	loads, _ := f.blocks.lookup([]metadata.IndexEntry{source}, cutoff(f.o.Clock, f.o.OldAge), f.none)
	f.blocks.start(loads)
	defer f.blocks.release(loads)
	return f.directory(ctx, e, &loads[0])
}

// directory makes the directory of a run from what source said.
func (f *Fetcher) directory(ctx context.Context, e *metadata.IndexEntry, l *load) ([]runPart, error) {
	stored, err := f.blocks.wait(ctx, l)
	if err != nil {
		return nil, err
	}
	if l.entry.Ref == e.Ref {
		return splitRun(e, stored)
	}
	x, err := segment.OpenIndex(stored, e.Segment.Size)
	var short *segment.ShortTailError
	if errors.As(err, &short) && short.Need > int64(len(stored)) {
		return f.loadDirectory(ctx, e, f.source(e, short.Need))
	}
	if err != nil {
		return nil, err
	}
	if ulid.ULID(x.ID) != e.Segment.ID {
		return nil, runFault(e, "it is a copy of segment %s", ulid.ULID(x.ID))
	}
	return cutIndex(e, x)
}

// splitRun makes the directory from the bytes of the run.
func splitRun(e *metadata.IndexEntry, stored []byte) ([]runPart, error) {
	if n, err := segment.StoredLength(stored); err == nil && n == len(stored) { // the usual small run: one batch, verified when it is decoded
		return []runPart{{ref: e.Ref, records: e.Records, base: e.Base, last: e.Last, firstTime: e.FirstTime, lastTime: e.AppendTime}}, nil
	}
	batches, err := segment.SplitRun(stored)
	if err != nil {
		return nil, err
	}
	dir := make([]runPart, len(batches))
	for i := range batches {
		h := &batches[i].Header
		if !h.Sparse {
			return nil, runFault(e, "batch %d of the run is dense", i)
		}
		ref := batches[i].Ref
		ref.Pos += e.Ref.Pos
		dir[i] = runPart{ref: ref, records: int32(h.Records), base: h.FirstOffset, firstTime: h.FirstTime}
	}
	return closeRun(e, dir)
}

// cutIndex makes the directory from the index of the object.
func cutIndex(e *metadata.IndexEntry, x *segment.Index) ([]runPart, error) {
	var dir []runPart
	next := e.Ref.Pos
	for i := range x.Batches {
		b := &x.Batches[i]
		if b.Ref.Pos != next || next >= e.Ref.Pos+uint64(e.Ref.Len) {
			continue
		}
		if !b.Sparse || len(dir) > 0 && (b.TopicID != x.Batches[i-1].TopicID || b.Partition != x.Batches[i-1].Partition) {
			return nil, runFault(e, "batch %d of the object does not belong to the run", i)
		}
		dir = append(dir, runPart{ref: b.Ref, records: int32(b.Records), base: b.FirstOffset, firstTime: b.FirstTime})
		next += uint64(b.Ref.Len)
	}
	if next != e.Ref.Pos+uint64(e.Ref.Len) {
		return nil, runFault(e, "the batches of the object end at %d, not at the run's end", next)
	}
	return closeRun(e, dir)
}

// closeRun lets each part reach to the next, and checks that all of them are what the entry says.
func closeRun(e *metadata.IndexEntry, dir []runPart) ([]runPart, error) {
	var records int64
	for i := range dir {
		p := &dir[i]
		records += int64(p.records)
		p.last, p.lastTime = e.Last, e.AppendTime
		if i+1 < len(dir) {
			p.last, p.lastTime = dir[i+1].base-1, dir[i+1].firstTime
		}
		if p.base < e.Base || p.last < p.base || p.last > e.Last || p.firstTime < e.FirstTime || p.lastTime < p.firstTime {
			return nil, runFault(e, "batch %d of the run has offsets from %d and times from %d, out of order", i, p.base, p.firstTime)
		}
	}
	if records != int64(e.Records) {
		return nil, runFault(e, "the batches of the run have %d records, the index says %d", records, e.Records)
	}
	dir[0].base = e.Base
	return dir, nil
}

func runFault(e *metadata.IndexEntry, format string, args ...any) error {
	return &segment.CorruptError{Offset: int64(e.Ref.Pos), Structure: "object", Reason: fmt.Sprintf(format, args...)}
}

// loadError is what a read answers that cannot have the bytes of an entry: an error for the client, or errRelocate.
func (f *Fetcher) loadError(rd *reading, e *metadata.IndexEntry, err error) error {
	switch {
	case errors.Is(err, objectstore.ErrNotFound) && !rd.relocated:
		return errRelocate
	case errors.Is(err, objectstore.ErrNotFound), errors.Is(err, segment.ErrCorrupt), errors.Is(err, segment.ErrUnsupportedVersion):
		return f.unreadable(rd, e, err)
	}
	return mapError(err)
}

// partForTime gives the first batch of a run that reaches to both rd.next and ms, or found=false.
func (f *Fetcher) partForTime(ctx context.Context, rd *reading, e *metadata.IndexEntry, ms int64) (part metadata.IndexEntry, found bool, err error) {
	if !isRun(e) {
		return *e, true, nil
	}
	dirs, err := f.directories(ctx, rd, []metadata.IndexEntry{*e})
	if err != nil {
		return part, false, err
	}
	for i := range dirs[0] {
		if p := &dirs[0][i]; p.last >= rd.next && p.lastTime >= ms {
			return p.entry(e), true, nil
		}
	}
	return part, false, nil
}
