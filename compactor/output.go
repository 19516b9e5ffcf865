package compactor

import (
	"context"
	"fmt"

	"github.com/oklog/ulid/v2"

	"github.com/forebaymq/forebay/internal/failpoint"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

// tagProducer marks batches with tombstones. The sequence in their header is the horizon of those (see clean.go). Readers do not look at it.
const tagProducer = "compactor"

// piece is the part of a group's output that is in one object: one index entry.
type piece struct {
	of    *pending
	entry metadata.IndexEntry
}

// pending is a group whose output is on its way into objects. Its Replace can be submitted when none of its pieces is in an open one.
type pending struct {
	group  *Group
	pieces []*piece // in offset order
	open   int      // pieces whose object is not uploaded
	done   bool     // the whole group was read
	from   *[2]int64
}

// output builds the objects of one class and level, one at a time. The one before is uploaded meanwhile. It belongs to one goroutine.
type output struct {
	c       *Compactor
	kind    Kind
	bucket  bucket
	w       *segment.Writer
	ref     metadata.SegmentRef
	pieces  []*piece // in the open object
	up      *upload  // on its way, nil = none
	expect  int64    // bytes that the job may have left to write
	free    [][]byte // memory of objects that were uploaded
	scratch []byte
}

// upload is one object on its way into the store.
type upload struct {
	ref    metadata.SegmentRef
	pieces []*piece
	body   []byte
	done   chan error // capacity 1
}

// newOutput takes over the memory of before, which is settled, if that is not nil.
func (c *Compactor) newOutput(job *Job, b bucket, before *output) *output {
	o := &output{c: c, kind: job.Kind, bucket: b, expect: job.Bytes}
	if before != nil {
		o.free, o.scratch = before.free, before.scratch
	}
	return o
}

// open starts an object where none is open.
func (o *output) open() error {
	if o.w != nil {
		return nil
	}
	id, err := o.c.newID()
	if err != nil {
		return err
	}
	o.ref = metadata.SegmentRef{ID: id, Level: o.bucket.level, Class: o.bucket.class}
	compression := segment.CompressFastest
	if o.c.o.Policy.CompressBetter && o.bucket.level > 1 {
		compression = segment.CompressBetter
	}
	o.w = segment.NewWriter(segment.WriterOptions{
		ID: id, Level: o.bucket.level, Created: int64(id.Time()), Buf: o.memory(), Scratch: o.scratch, Compression: compression,
	})
	return nil
}

// memory gives memory for an object: that of one before, of this job or another, or new memory that need not grow.
func (o *output) memory() []byte {
	var b []byte
	if n := len(o.free) - 1; n >= 0 {
		b = o.free[n]
		o.free = o.free[:n]
	} else if p, ok := o.c.buffers.Get().(*[]byte); ok {
		b = *p
	}
	p := &o.c.o.Policy
	if want := int(min(p.ObjectBytes, o.expect)) + 2*p.BatchBytes; cap(b) < want {
		b = make([]byte, 0, want)
	}
	return b
}

// finish closes the open object, if there is one, and starts its upload when the one before has ended.
func (o *output) finish(ctx context.Context) error {
	if o.w == nil {
		return nil
	}
	w := o.w
	o.w = nil
	body, err := w.Finish()
	if err != nil {
		return fmt.Errorf("build segment %s: %w", o.ref.ID, err)
	}
	if err := o.settle(); err != nil {
		return err
	}
	o.scratch = w.Scratch()
	o.ref.Size = int64(len(body))
	o.expect = max(o.expect-o.ref.Size, 0)
	up := &upload{ref: o.ref, pieces: o.pieces, body: body, done: make(chan error, 1)}
	o.up, o.pieces = up, nil
	go func() { up.done <- o.put(ctx, up) }() // settle waits for it
	return nil
}

func (o *output) put(ctx context.Context, up *upload) error {
	failpoint.Hit(failpoint.CompactorBeforePut)
	if _, err := o.c.o.Store.PutIfAbsent(ctx, objectKey(&up.ref), up.body, up.ref.ID.String()); err != nil {
		return fmt.Errorf("write %s: %w", objectKey(&up.ref), err)
	}
	failpoint.Hit(failpoint.CompactorAfterPut)
	return nil
}

// settle waits for the upload under way, if there is one, and gives its pieces their segment.
func (o *output) settle() error {
	if o.up == nil {
		return nil
	}
	return o.settled(<-o.up.done)
}

// poll is settle, if that needs no waiting.
func (o *output) poll() error {
	if o == nil || o.up == nil {
		return nil
	}
	select {
	case err := <-o.up.done:
		return o.settled(err)
	default:
		return nil
	}
}

func (o *output) settled(err error) error {
	up := o.up
	o.up = nil
	o.free = append(o.free, up.body[:0])
	if err != nil {
		return err
	}
	o.c.m.written.WithLabelValues(string(o.kind)).Add(float64(len(up.body)))
	o.c.m.objects.WithLabelValues(string(o.kind)).Inc()
	for _, p := range up.pieces {
		p.entry.Segment = up.ref
		p.of.open--
	}
	return nil
}

// end uploads what is open and waits until everything is in the store.
func (o *output) end(ctx context.Context) error {
	if o == nil {
		return nil
	}
	if err := o.finish(ctx); err != nil {
		return err
	}
	return o.settle()
}

// release waits for what is under way, whatever comes of it, and gives the memory back.
func (o *output) release() {
	if o == nil {
		return
	}
	_ = o.settle() // a job that ends early has its error
	for i := range o.free {
		o.c.buffers.Put(&o.free[i])
	}
	o.free = nil
}

// runWriter writes the records of one group to an output, in batches of about BatchBytes.
type runWriter struct {
	o       *output
	p       *pending
	piece   *piece // in the open object, nil = none yet
	payload []byte
	offsets []int64
	times   []int64
	tag     int64 // of the records at hand, 0 = none needed
}

// begin starts a run. The memory of the one before, which has ended, is used again.
func (r *runWriter) begin(o *output, p *pending) { r.o, r.p, r.piece = o, p, nil }

// add writes one record. tag is what its batch must be tagged with; 0 = it may be in any. Two different tags are never in one batch.
func (r *runWriter) add(ctx context.Context, rec *segment.RawRecord, tag int64) error {
	if tag != 0 {
		if r.tag != 0 && tag != r.tag {
			if err := r.flush(ctx); err != nil {
				return err
			}
		}
		r.tag = tag
	}
	r.payload = append(r.payload, rec.Encoding...)
	r.offsets = append(r.offsets, rec.Offset)
	r.times = append(r.times, rec.AppendTime)
	if len(r.payload) >= r.o.c.o.Policy.BatchBytes {
		return r.flush(ctx)
	}
	return nil
}

// flush writes the records at hand as one batch.
func (r *runWriter) flush(ctx context.Context) error {
	if len(r.offsets) == 0 {
		return nil
	}
	if err := r.o.open(); err != nil {
		return err
	}
	g := r.p.group
	b := segment.Batch{
		TopicID: uint64(g.Topic.ID), Partition: g.Partition, Records: len(r.offsets), Chunks: [][]byte{r.payload}, Offsets: r.offsets, AppendTimes: r.times,
	}
	if r.tag != 0 {
		b.ProducerID, b.Sequence = tagProducer, r.tag
	}
	ref, _, err := r.o.w.Append(&b)
	if err != nil {
		return fmt.Errorf("merge topic %d partition %d: %w", g.Topic.ID, g.Partition, err)
	}
	n := len(r.offsets) - 1
	r.extend(segment.BatchInfo{Ref: ref, Records: n + 1, FirstOffset: r.offsets[0], LastOffset: r.offsets[n], FirstTime: r.times[0], LastTime: r.times[n]})
	r.payload, r.offsets, r.times, r.tag = r.payload[:0], r.offsets[:0], r.times[:0], 0
	return r.rotate(ctx)
}

// move writes a stored batch as it is.
func (r *runWriter) move(ctx context.Context, stored []byte) error {
	if err := r.flush(ctx); err != nil {
		return err
	}
	if err := r.o.open(); err != nil {
		return err
	}
	info, err := r.o.w.AppendStored(stored)
	if err != nil {
		return err
	}
	r.extend(info)
	return r.rotate(ctx)
}

// extend makes a batch part of the piece at hand.
func (r *runWriter) extend(b segment.BatchInfo) {
	if r.piece == nil {
		r.piece = &piece{of: r.p, entry: metadata.IndexEntry{
			Ref: segment.BatchRef{Pos: b.Ref.Pos}, Base: b.FirstOffset, FirstTime: b.FirstTime, Sparse: true,
		}}
		r.p.pieces = append(r.p.pieces, r.piece)
		r.p.open++
		r.o.pieces = append(r.o.pieces, r.piece)
	}
	e := &r.piece.entry
	e.Ref.Len += b.Ref.Len
	e.Records += int32(b.Records)
	e.Last, e.AppendTime = b.LastOffset, b.LastTime
}

// rotate closes the object when it is full. The run goes on in the next one.
func (r *runWriter) rotate(ctx context.Context) error {
	if int64(r.o.w.Size()) < r.o.c.o.Policy.ObjectBytes {
		return nil
	}
	r.piece = nil
	return r.o.finish(ctx)
}

// close writes what is left of the run. The object stays open for the next one.
func (r *runWriter) close(ctx context.Context) error {
	err := r.flush(ctx)
	r.piece = nil
	return err
}

// newID makes the ID of an object: its time is that of the clock, which lifecycle rules and the GC boundary are compared with.
func (c *Compactor) newID() (ulid.ULID, error) {
	c.entropy.Lock()
	defer c.entropy.Unlock()
	id, err := ulid.New(ulid.Timestamp(c.o.Clock.Now()), c.entropy.src)
	if err != nil {
		return id, fmt.Errorf("make an ID: %w", err)
	}
	return id, nil
}
