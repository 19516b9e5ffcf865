package ingest

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

// build makes the object of f and its commit, and gives the requests' buffers back. Batches stand by shard and topic-partition, those of one
// topic-partition in arrival order. Shards are compacted apart: each then reads its own part of the object, in one piece.
func (in *Ingester) build(f *flight) (*metadata.Commit, []byte, error) {
	seg := f.seg
	order := make([]int32, len(seg.batches))
	for i := range order {
		order[i] = int32(i)
	}
	shard := func(id metadata.TopicID) uint64 { return uint64(id) % uint64(in.o.Shards) }
	slices.SortFunc(order, func(a, b int32) int {
		x, y := &seg.batches[a], &seg.batches[b]
		return cmp.Or(cmp.Compare(shard(x.topic), shard(y.topic)), cmp.Compare(x.topic, y.topic), cmp.Compare(x.partition, y.partition), cmp.Compare(a, b))
	})
	byBatch, starts := seg.partsByBatch()

	scratch := in.scratch.get()
	body := in.bodies.get(seg.bytes)
	w := segment.NewWriter(segment.WriterOptions{ID: f.id, Created: f.appendTime, Buf: body, Scratch: scratch, Compression: in.o.Compression})
	commit := &metadata.Commit{
		Segment:    metadata.SegmentRef{ID: f.id},
		AppendTime: f.appendTime,
		Batches:    make([]metadata.BatchDelta, 0, len(order)),
	}
	groups := seg.commitGroups(commit)
	var batch segment.Batch
	for _, b := range order {
		ob := &seg.batches[b]
		batch = segment.Batch{TopicID: uint64(ob.topic), Partition: ob.partition, Chunks: batch.Chunks[:0]}
		delta := metadata.BatchDelta{TopicID: ob.topic, Partition: ob.partition, Group: -1}
		for _, i := range byBatch[starts[b]:starts[b+1]] {
			p := &seg.parts[i]
			sl := &p.req.slots[p.slot]
			batch.Chunks = append(batch.Chunks, sl.chunk)
			batch.Records += int(sl.records)
			delta.IDHashes = sl.hashes // a batch with hashes has a group, and so one part
		}
		if batch.Records == 0 {
			continue // all of it was withdrawn
		}
		if ob.group >= 0 {
			delta.Group = groups[ob.group]
			if p := commit.Groups[delta.Group].Producer; p != nil {
				batch.ProducerID, batch.ProducerEpoch, batch.Sequence = p.ID, p.Epoch, p.Sequence
			}
		}
		ref, raw, err := w.Append(&batch)
		if err != nil {
			return nil, nil, fmt.Errorf("build segment %s: %w", f.key, err)
		}
		delta.Records, delta.Ref, delta.RawBytes = int32(batch.Records), ref, raw
		ob.place = int32(len(commit.Batches))
		commit.Batches = append(commit.Batches, delta)
	}
	out, err := w.Finish()
	if err != nil {
		return nil, nil, fmt.Errorf("build segment %s: %w", f.key, err)
	}
	in.scratch.put(w.Scratch())
	in.bodies.built(seg.bytes, len(out))
	commit.Segment.Size = int64(len(out))
	for _, r := range seg.requests {
		if r.stage != withdrawn {
			in.buffers.put(r.buf)
			r.buf = nil
		}
	}
	return commit, out, nil
}

// partsByBatch lists the parts that were not withdrawn by batch, in arrival order: those of batch b are byBatch[starts[b]:starts[b+1]].
func (o *openSegment) partsByBatch() (byBatch, starts []int32) {
	starts = make([]int32, len(o.batches)+2)
	live := 0
	for i := range o.parts {
		if o.parts[i].req.stage != withdrawn {
			starts[o.parts[i].batch+2]++
			live++
		}
	}
	for b := 2; b < len(starts); b++ {
		starts[b] += starts[b-1]
	}
	byBatch = make([]int32, live)
	for i := range o.parts {
		if o.parts[i].req.stage != withdrawn {
			at := &starts[o.parts[i].batch+1]
			byBatch[*at] = int32(i)
			*at++
		}
	}
	return byBatch, starts[:len(o.batches)+1]
}

// commitGroups puts the groups of the requests that were not withdrawn into the commit, and tells where each went.
func (o *openSegment) commitGroups(c *metadata.Commit) []int32 {
	to := make([]int32, len(o.groups))
	for i, r := range o.groups {
		to[i] = -1
		if r.stage != withdrawn {
			to[i] = int32(len(c.Groups))
			c.Groups = append(c.Groups, r.group)
		}
	}
	return to
}

// bodyPool provides memory for objects. Those that a sink keeps are never reused, so they are made about as large as recent segments became
// by compression; others go round.
type bodyPool struct {
	keeps bool // a sink keeps every body
	pool  sync.Pool
	mu    struct {
		sync.Mutex
		ratio float64 // stored bytes per encoded byte, smoothed
	}
}

// slack is room for headers, index and footer beside the payload.
const slack = 64 << 10

func (p *bodyPool) get(encoded int) []byte {
	if !p.keeps {
		if b, ok := p.pool.Get().(*[]byte); ok {
			return *b
		}
		return make([]byte, 0, encoded+slack)
	}
	p.mu.Lock()
	ratio := p.mu.ratio
	p.mu.Unlock()
	if ratio == 0 {
		ratio = 1
	}
	return make([]byte, 0, int(float64(encoded)*min(ratio*1.1, 1))+encoded/256+4096)
}

// built learns from a finished segment.
func (p *bodyPool) built(encoded, stored int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ratio := float64(stored) / float64(max(encoded, 1))
	if p.mu.ratio == 0 {
		p.mu.ratio = ratio
	}
	p.mu.ratio += (ratio - p.mu.ratio) / 8
}

func (p *bodyPool) put(b []byte) {
	b = b[:0]
	p.pool.Put(&b)
}

// scratchPool lends the writers' memory for one uncompressed batch.
type scratchPool struct{ pool sync.Pool }

func (p *scratchPool) get() []byte {
	if b, ok := p.pool.Get().(*[]byte); ok {
		return *b
	}
	return nil
}

func (p *scratchPool) put(b []byte) { p.pool.Put(&b) }
