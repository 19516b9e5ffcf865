package fetch

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

const (
	// locateMax is how many index entries one Locate asks for.
	locateMax = 128
	// maxInitialRecords bounds what a read allocates before it has seen a record.
	maxInitialRecords = 4096
)

// position is how far a read has come.
type position struct {
	tenant    string
	topic     metadata.TopicID
	partition int32
	next      int64 // every offset below it is returned or passed
}

// reading is one Read.
type reading struct {
	position
	maxRecords int
	maxBytes   int64
	bytes      int64 // of the records so far
	res        *ReadResult
	full       bool // a limit is reached
	relocated  bool // an object was missing and the index was asked again
}

// Read implements Reader.
func (f *Fetcher) Read(ctx context.Context, r ReadRequest) (*ReadResult, error) {
	if r.MaxRecords < 1 || r.MaxBytes < 1 {
		return nil, api.Errorf(api.CodeInvalidRequest, "limits must be at least 1: %d records, %d bytes", r.MaxRecords, r.MaxBytes)
	}
	if r.Offset < 0 && r.Offset != Earliest && r.Offset != Latest {
		return nil, api.Errorf(api.CodeInvalidRequest, "offset %d is negative", r.Offset)
	}
	if !r.Stale {
		if err := f.o.View.Sync(ctx); err != nil {
			return nil, err
		}
	}
	rd := &reading{
		position:   position{tenant: r.Tenant, topic: r.TopicID, partition: r.Partition, next: r.Offset},
		maxRecords: r.MaxRecords, maxBytes: r.MaxBytes, res: &ReadResult{},
	}
	ask := r.Offset
	switch r.Offset {
	case Earliest:
		ask = 0
	case Latest:
		ask = math.MaxInt64
	}
	entries, info, err := f.o.View.Locate(r.TopicID, r.Partition, ask, locateMax)
	if err != nil {
		return nil, err
	}
	switch {
	case r.Offset == Earliest:
		rd.next = info.LogStart
	case r.Offset == Latest:
		rd.next = info.Head
	case r.Offset < info.LogStart || r.Offset > info.Head:
		return nil, outOfRange(r.Offset, info)
	}
	return f.read(ctx, rd, entries, info)
}

// read goes through the live batches from rd.next on.
func (f *Fetcher) read(ctx context.Context, rd *reading, entries []metadata.IndexEntry, info metadata.PartitionInfo) (*ReadResult, error) {
	start := rd.next
	sequential := false
	if _, ok := f.scans.take(scanKey{rd.topic, rd.partition, rd.next}); ok {
		sequential = true
	}
	for {
		rest, err := f.readEntries(ctx, rd, entries)
		if err != nil && !(errors.Is(err, errRelocate) && !rd.relocated) {
			if len(rd.res.Records) == 0 {
				return nil, err
			}
			// What was read is whole. The next read begins at the fault and reports it.
			f.finish(rd, info)
			return rd.res, nil
		}
		missing := err != nil
		more := missing || len(entries) == locateMax
		if rd.full || !more {
			if !rd.full {
				rd.next = max(rd.next, info.Head) // nothing is live from here to the head
			}
			f.finish(rd, info)
			if rd.next < info.Head {
				f.scans.put(struct{}{}, scanKey{rd.topic, rd.partition, rd.next})
				if sequential {
					f.readAhead(rd, rest)
				}
			}
			return rd.res, nil
		}
		var now metadata.PartitionInfo
		entries, now, err = f.locateAgain(ctx, rd, missing)
		if err != nil {
			if len(rd.res.Records) > 0 {
				f.finish(rd, info)
				return rd.res, nil
			}
			return nil, err
		}
		if rd.next < now.LogStart { // retention has overtaken the read: never a silent jump
			if len(rd.res.Records) == 0 {
				return nil, outOfRange(start, now)
			}
			f.finish(rd, now)
			return rd.res, nil
		}
		info = now
	}
}

// locateAgain asks the index for what comes next.
func (f *Fetcher) locateAgain(ctx context.Context, rd *reading, missing bool) ([]metadata.IndexEntry, metadata.PartitionInfo, error) {
	if missing {
		// Before a live object is called missing, this node must know of every replacement.
		rd.relocated = true
		if err := f.o.View.Sync(ctx); err != nil {
			return nil, metadata.PartitionInfo{}, err
		}
	}
	return f.o.View.Locate(rd.topic, rd.partition, rd.next, locateMax)
}

func (f *Fetcher) finish(rd *reading, info metadata.PartitionInfo) {
	rd.res.NextOffset, rd.res.Head, rd.res.LogStart = rd.next, info.Head, info.LogStart
	f.m.records.Add(float64(len(rd.res.Records)))
}

// errRelocate: the object of a live batch is missing. The compactor may have replaced it since the index was asked.
var errRelocate = errors.New("object is missing, ask the index again")

// readEntries reads batches until a limit is reached or the entries end. rest are the entries that it has not finished. It returns
// errRelocate for the first missing object of a read.
func (f *Fetcher) readEntries(ctx context.Context, rd *reading, entries []metadata.IndexEntry) (rest []metadata.IndexEntry, err error) {
	ready := 0 // entries at the front that are known to be single batches
	for len(entries) > 0 && !rd.full && err == nil {
		if entries, ready, err = f.expand(ctx, rd, entries, ready); err != nil {
			break
		}
		var loads []load
		if loads, err = f.begin(ctx, rd, entries[:ready]); err != nil {
			break
		}
		for i := range loads {
			if err = f.readBatch(ctx, rd, &loads[i]); err != nil || rd.full {
				break
			}
			entries = entries[1:]
			ready--
		}
		f.blocks.release(loads)
	}
	return entries, err
}

// window gives how many entries the rest of the read probably needs: one at least.
func (f *Fetcher) window(rd *reading, entries []metadata.IndexEntry) int {
	n, _ := f.estimate(rd, entries)
	return n
}

// estimate gives the window, and how many records it has from rd.next on.
func (f *Fetcher) estimate(rd *reading, entries []metadata.IndexEntry) (n, records int) {
	ratio := math.Float64frombits(f.ratio.Load())
	size := rd.bytes
	for n < len(entries) && (n == 0 || records < rd.maxRecords-len(rd.res.Records) && size < rd.maxBytes) {
		e := &entries[n]
		// Of the first batch only a part may be wanted; the others count whole.
		share := float64(e.Last+1-max(rd.next, e.Base)) / float64(e.Last+1-e.Base)
		size += int64(float64(e.Ref.Len) * ratio * share)
		records += int(math.Ceil(float64(e.Records) * share))
		n++
	}
	return n, records
}

// begin starts to load the batches that the rest of the read probably needs: one at least.
func (f *Fetcher) begin(ctx context.Context, rd *reading, entries []metadata.IndexEntry) ([]load, error) {
	n, records := f.estimate(rd, entries)
	if rd.res.Records == nil {
		rd.res.Records = make([]segment.Record, 0, max(1, min(records, rd.maxRecords, maxInitialRecords)))
	}
	loads, missing := f.lookup(entries[:n])
	waited, err := f.limits.wait(ctx, rd.tenant, missing)
	if waited {
		f.m.throttled.Inc()
	}
	if err != nil {
		return nil, mapError(err)
	}
	f.blocks.start(loads)
	return loads, nil
}

// lookup collects what the caches have of the batches, and how many bytes of old data are to be read.
func (f *Fetcher) lookup(entries []metadata.IndexEntry) ([]load, int64) {
	return f.blocks.lookup(entries, cutoff(f.o.Clock, f.o.OldAge), f.batches)
}

// readBatch appends the wanted records of one batch to the result and moves rd.next past what it passed.
func (f *Fetcher) readBatch(ctx context.Context, rd *reading, l *load) error {
	e := &l.entry
	b, err := f.decoded(ctx, rd, l)
	if err != nil {
		return err
	}
	before := rd.bytes
	err = f.take(rd, e, b)
	f.m.levels.delivered[e.Segment.Level].Add(rd.bytes - before)
	if err != nil {
		return f.unreadable(rd, e, err) // the checksum was right and the records are not: reading again cannot help
	}
	// The next read begins in this batch, or others are tailing too.
	if l.batch == nil && (rd.next <= e.Last || !l.old) {
		f.keep(l, b)
	}
	return nil
}

// decoded gives the batch of l, or an error for the client, or errRelocate. A corrupt batch is read once more, past the cache: only
// what the store itself has wrong is permanent.
func (f *Fetcher) decoded(ctx context.Context, rd *reading, l *load) (*segment.DecodedBatch, error) {
	e := &l.entry
	if l.batch != nil {
		f.m.decoded.WithLabelValues("cache").Inc()
		if err := belongs(rd, l.batch); err != nil {
			return nil, f.unreadable(rd, e, err)
		}
		return l.batch, nil
	}
	b, err := f.decode(ctx, rd, l)
	if errors.Is(err, segment.ErrCorrupt) {
		f.m.refetched.Inc()
		f.blocks.drop(e)
		again, _ := f.lookup([]metadata.IndexEntry{*e})
		f.blocks.start(again)
		defer f.blocks.release(again)
		b, err = f.decode(ctx, rd, &again[0])
	}
	if err != nil {
		return nil, f.loadError(rd, e, err)
	}
	return b, nil
}

// belongs makes sure that one topic's records are never shown to a reader of another, whatever the index says.
func belongs(rd *reading, b *segment.DecodedBatch) error {
	if h := b.Header(); metadata.TopicID(h.TopicID) != rd.topic || h.Partition != rd.partition {
		return &segment.CorruptError{Structure: "batch", Reason: fmt.Sprintf("it belongs to topic %d partition %d", h.TopicID, h.Partition)}
	}
	return nil
}

func (f *Fetcher) decode(ctx context.Context, rd *reading, l *load) (*segment.DecodedBatch, error) {
	e := &l.entry
	if l.batch != nil { // another reader has decoded it meanwhile
		return l.batch, belongs(rd, l.batch)
	}
	stored, err := f.blocks.wait(ctx, l)
	if err != nil {
		return nil, err
	}
	l.stored = stored
	b, err := segment.DecodeBatch(stored)
	if err != nil {
		return nil, err
	}
	if err := belongs(rd, b); err != nil {
		return nil, err
	}
	f.m.decoded.WithLabelValues("decode").Inc()
	h := b.Header()
	last, _ := b.Last()
	if h.Records != int(e.Records) || h.Sparse != e.Sparse || h.Sparse && (h.FirstOffset < e.Base || last > e.Last) {
		return nil, &segment.CorruptError{Structure: "batch", Reason: fmt.Sprintf("the index says %d records at offsets %d to %d, the batch has %d at %d to %d",
			e.Records, e.Base, e.Last, h.Records, h.FirstOffset, last)}
	}
	if now := float64(h.RawBytes) / float64(h.StoredBytes); now > 0 { // lost updates of the average do not matter
		f.ratio.Store(math.Float64bits(math.Float64frombits(f.ratio.Load())*0.9 + now*0.1))
	}
	return b, nil
}

// keep caches a decompressed batch. One that is stored raw shares the memory of its block, which is cached as it is.
func (f *Fetcher) keep(l *load, b *segment.DecodedBatch) {
	k := batchKey{l.entry.Segment.ID, l.entry.Ref.Pos}
	if b.Header().Codec != segment.CodecRaw {
		f.batches.put(b, k)
		return
	}
	if !l.old {
		return
	}
	// The blocks of old data make room as soon as they were used. The copy does not keep them in memory.
	if b, err := segment.DecodeBatch(slices.Clone(l.stored)); err == nil {
		f.batches.put(b, k)
	}
}

// take appends the records of b from rd.next on, as far as the limits permit.
func (f *Fetcher) take(rd *reading, e *metadata.IndexEntry, b *segment.DecodedBatch) error {
	it := b.Iter()
	dropped := e.Dropped
	offset := e.Base // dense: of the next visible record
	switch {
	case e.Sparse:
		it.SkipTo(rd.next)
	case len(dropped) == 0 && rd.next > e.Base:
		it.Skip(int(min(rd.next-e.Base, int64(e.Records))))
		offset = rd.next
	}
	out := rd.res.Records
	defer func() { rd.res.Records = out }()
	for {
		for len(dropped) > 0 && it.Ordinal() == int(dropped[0]) {
			it.Skip(1)
			dropped = dropped[1:]
		}
		if !e.Sparse && offset < rd.next { // only where records were dropped: offsets and ordinals differ
			if !it.Skip(1) {
				break
			}
			offset++
			continue
		}
		n := len(out)
		if n == cap(out) {
			grown := make([]segment.Record, n, min(max(2*n, 64), rd.maxRecords))
			copy(grown, out)
			out = grown
		}
		out = out[:n+1]
		r := &out[n]
		if !it.Next(r) {
			out = out[:n]
			break
		}
		if !e.Sparse {
			r.Offset, r.AppendTime = offset, e.AppendTime
			offset++
		}
		size := recordBytes(r)
		if n > 0 && rd.bytes+size > rd.maxBytes {
			rd.next = r.Offset
			rd.full = true
			*r = segment.Record{}
			out = out[:n]
			return nil
		}
		rd.bytes += size
		rd.next = r.Offset + 1
		if len(out) == rd.maxRecords || rd.bytes >= rd.maxBytes {
			rd.full = true
			if it.Ordinal() == int(e.Records) {
				break
			}
			return nil
		}
	}
	if err := it.Err(); err != nil {
		return err
	}
	rd.next = max(rd.next, e.Last+1)
	return nil
}

// recordBytes is what counts against MaxBytes.
func recordBytes(r *segment.Record) int64 {
	n := len(r.Key) + len(r.Value) + len(r.ID)
	for i := range r.Headers {
		n += len(r.Headers[i].Name) + len(r.Headers[i].Value)
	}
	return int64(n)
}

// unreadable reports a batch that will never be readable: counted and logged once, returned each time.
func (f *Fetcher) unreadable(rd *reading, e *metadata.IndexEntry, cause error) error {
	err := unreadable(&rd.position, e, cause)
	k := batchKey{e.Segment.ID, e.Ref.Pos}
	if _, known := f.reports.get(k); known {
		return err
	}
	f.reports.put(struct{}{}, k)
	reason, structure, at := reasonMissing, "object", int64(e.Ref.Pos)
	var c *segment.CorruptError
	if errors.As(cause, &c) {
		reason, structure, at = reasonCorrupt, c.Structure, c.Offset
		if c.Structure != "object" { // offsets of a batch count from its start
			at += int64(e.Ref.Pos)
		}
	} else if errors.Is(cause, segment.ErrUnsupportedVersion) {
		reason, structure = reasonCorrupt, "version"
	}
	f.m.unreadable.WithLabelValues(reason).Inc()
	f.o.Logger.Error("live batch is unreadable", "reason", reason, "object", objectKey(e), "structure", structure, "offset", at,
		"topicID", uint64(rd.topic), "partition", rd.partition, "firstOffset", e.Base, "lastOffset", e.Last,
		"appendTime", time.UnixMilli(e.AppendTime).UTC(), "error", cause)
	return err
}

// readAhead starts to load the blocks after the ones just read, without waiting: for old data only as far as the tenant's rate permits
// at once. It does so when half of them are missing, or the next is: so a scan makes few large GETs, however little each of its reads takes.
func (f *Fetcher) readAhead(rd *reading, rest []metadata.IndexEntry) {
	if f.o.ReadAhead < 0 || len(rest) < 2 {
		return
	}
	rest = rest[1:] // the first one was being read when the limit was reached, and is cached
	budget := min(int64(f.o.ReadAhead)*f.o.BlockBytes, f.blocks.window.limit/4)
	n := 0
	for n < len(rest) && budget > 0 {
		budget -= int64(rest[n].Ref.Len)
		n++
	}
	ahead := rest[:n]
	if last := &rest[n-1]; budget < 0 && isRun(last) { // of a long run only as much as fits
		ahead = slices.Clone(ahead)
		ahead[n-1].Ref.Len = uint32(max(1, int64(last.Ref.Len)+budget))
	}
	loads, missing := f.lookup(ahead)
	absent, all, next := f.blocks.absent(loads)
	if absent == 0 || !next && 2*absent < all || !f.limits.take(rd.tenant, missing) {
		return
	}
	f.m.ahead.Add(float64(f.blocks.startAhead(loads, absent)))
}
