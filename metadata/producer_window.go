package metadata

import (
	"encoding/binary"
	"sort"
)

// Bounds of a window, part of the state's definition.
const (
	windowSequences = 4096     // remembered at most
	windowBytes     = 64 << 10 // of packed data at most, but for one block
	blockSequences  = 256      // of one block
	blockBytes      = 4 << 10  // a block that has reached them is closed
)

// window is what one partition remembers of one producer: accepted sequences, rising strictly, with their record counts and offsets.
// They are packed in blocks, and forgotten a block at a time, oldest first.
type window struct {
	producer *producer
	part     *partition
	topic    *topic
	lastUse  int64 // Unix ms by the shard's clock
	floor    int64 // highest forgotten sequence, where forgot
	forgot   bool
	n        int32 // sequences remembered
	size     int32 // bytes of packed data
	sealed   []block
	tail     block
	global   node[window] // in State.windows, by last use
	local    node[window] // in the partition's list, by last use
}

// block packs accepted sequences:
//
//	{ sequence - previous (uvarint, from first) base - end of previous (zigzag, from 0) records<<1|hasRuns (uvarint) [runs] }
//	runs = count(uvarint) { ordinal - end of previous run (uvarint) length (uvarint) offset - end of previous run's offsets (zigzag) }
//
// Runs are the offsets of records that were dropped as duplicates by event ID; all others are dense from base.
type block struct {
	first, last int64
	end         int64 // offset after the last batch
	n           int32
	data        []byte
}

// accepted is the first answer to a sequence.
type accepted struct {
	base    int64
	records int32
	runs    []offsetRun
}

// offsetRun says that records from ordinal on have offsets from offset on.
type offsetRun struct {
	ordinal, length int32
	offset          int64
}

type windowVerdict uint8

const (
	windowNew       windowVerdict = iota // above all accepted ones
	windowDuplicate                      // accepted before
	windowNever                          // in what is remembered, and never accepted
	windowForgotten                      // below what is remembered
)

// last gives the highest accepted sequence.
func (w *window) lastSequence() int64 { return w.tail.last }

// judge says what the window knows of a sequence. A window has at least one sequence.
func (w *window) judge(seq int64) (windowVerdict, accepted) {
	if seq > w.tail.last {
		return windowNew, accepted{}
	}
	if w.forgot && seq <= w.floor {
		return windowForgotten, accepted{}
	}
	b := &w.tail
	if seq < b.first {
		i := sort.Search(len(w.sealed), func(i int) bool { return w.sealed[i].last >= seq })
		if i == len(w.sealed) {
			return windowNever, accepted{}
		}
		b = &w.sealed[i]
	}
	if a, ok := b.find(seq); ok {
		return windowDuplicate, a
	}
	return windowNever, accepted{}
}

// record remembers a sequence above all others.
func (w *window) record(seq int64, a accepted) {
	if w.tail.n >= blockSequences || len(w.tail.data) >= blockBytes {
		b := w.tail
		b.data = append(make([]byte, 0, len(b.data)), b.data...)
		w.sealed = append(w.sealed, b)
		w.tail = block{}
	}
	before := len(w.tail.data)
	w.tail.append(seq, a)
	w.n++
	w.size += int32(len(w.tail.data) - before)
	drop := 0
	for drop < len(w.sealed) && (w.n > windowSequences || w.size > windowBytes) {
		b := &w.sealed[drop]
		w.n -= b.n
		w.size -= int32(len(b.data))
		w.floor, w.forgot = b.last, true
		drop++
	}
	if drop > 0 {
		w.sealed = append(w.sealed[:0:0], w.sealed[drop:]...)
	}
}

func (b *block) append(seq int64, a accepted) {
	if b.n == 0 {
		b.first, b.last = seq, seq
	}
	d := binary.AppendUvarint(b.data, uint64(seq)-uint64(b.last))
	d = appendVarint(d, a.base-b.end)
	records := uint64(a.records) << 1
	if len(a.runs) > 0 {
		records |= 1
	}
	d = binary.AppendUvarint(d, records)
	visible := int64(a.records)
	if len(a.runs) > 0 {
		d = binary.AppendUvarint(d, uint64(len(a.runs)))
		var ordinal int32
		var offset int64
		for _, r := range a.runs {
			d = binary.AppendUvarint(d, uint64(r.ordinal-ordinal))
			d = binary.AppendUvarint(d, uint64(r.length))
			d = appendVarint(d, r.offset-offset)
			ordinal, offset = r.ordinal+r.length, r.offset+int64(r.length)
			visible -= int64(r.length)
		}
	}
	b.data, b.last, b.end = d, seq, a.base+visible
	b.n++
}

// blockReader walks a block's data. It is used on bytes of snapshots too, so it checks everything.
type blockReader struct {
	r    reader
	seq  int64
	end  int64
	runs bool // also decode runs
}

func (br *blockReader) next() accepted {
	r := &br.r
	br.seq = int64(uint64(br.seq) + r.uvarint())
	a := accepted{base: br.end + r.varint()}
	records := r.uvarint()
	if records>>1 < 1 || records>>1 > 1<<31-1 {
		r.fail("record count out of range")
		return accepted{}
	}
	a.records = int32(records >> 1)
	visible := int64(a.records)
	if records&1 != 0 {
		n := r.count(3)
		if br.runs {
			a.runs = make([]offsetRun, 0, n)
		}
		var ordinal, offset int64
		for i := 0; i < n && r.err == nil; i++ {
			ordinal += int64(r.int32())
			length := int64(r.int32())
			offset += r.varint()
			if length < 1 || ordinal+length > int64(a.records) {
				r.fail("run out of range")
				return accepted{}
			}
			if br.runs {
				a.runs = append(a.runs, offsetRun{int32(ordinal), int32(length), offset})
			}
			ordinal, offset, visible = ordinal+length, offset+length, visible-length
		}
	}
	br.end = a.base + visible
	return a
}

func (b *block) find(seq int64) (accepted, bool) {
	br := blockReader{r: reader{b: b.data, structure: "window"}, seq: b.first, runs: true}
	for range b.n {
		a := br.next()
		if br.seq >= seq || br.r.err != nil {
			return a, br.seq == seq && br.r.err == nil
		}
	}
	return accepted{}, false
}

// offsets gives the offset of each record where they are not dense, else nil.
func (a *accepted) offsets() []int64 {
	if len(a.runs) == 0 {
		return nil
	}
	out := make([]int64, a.records)
	next, i := a.base, int32(0)
	for _, r := range a.runs {
		for ; i < r.ordinal; i++ {
			out[i] = next
			next++
		}
		for k := range r.length {
			out[i] = r.offset + int64(k)
			i++
		}
	}
	for ; i < a.records; i++ {
		out[i] = next
		next++
	}
	return out
}

// runsOf is the inverse of offsets, for the ordinals that were dropped.
func runsOf(offsets []int64, dropped []int32) []offsetRun {
	var runs []offsetRun
	for _, d := range dropped {
		if n := len(runs); n > 0 {
			if r := &runs[n-1]; r.ordinal+r.length == d && r.offset+int64(r.length) == offsets[d] {
				r.length++
				continue
			}
		}
		runs = append(runs, offsetRun{ordinal: d, length: 1, offset: offsets[d]})
	}
	return runs
}

// partitionWindows are the windows of one partition, by last use. A map is made only for more than a few.
type partitionWindows struct {
	list list[window]
	byID map[*producer]*window
}

func (p *partitionWindows) find(id *producer) *window {
	if id == nil {
		return nil
	}
	if p.byID != nil {
		return p.byID[id]
	}
	for w := range p.list.all {
		if w.producer == id {
			return w
		}
	}
	return nil
}

func (p *partitionWindows) add(w *window) {
	p.list.toBack(&w.local)
	switch {
	case p.byID != nil:
		p.byID[w.producer] = w
	case p.list.n > smallPartitionProducers:
		p.byID = make(map[*producer]*window, 2*smallPartitionProducers)
		for w := range p.list.all {
			p.byID[w.producer] = w
		}
	}
}

func (p *partitionWindows) remove(w *window) {
	p.list.remove(&w.local)
	delete(p.byID, w.producer)
	if p.list.n == 0 {
		p.byID = nil
	}
}

// addWindow makes a window. The caller records a sequence in it at once.
func (s *State) addWindow(t *topic, part *partition, id *producer) *window {
	pw := &part.needMore().windows
	if pw.list.n >= maxProducers {
		s.dropWindow(pw.list.front())
	}
	w := &window{producer: id, part: part, topic: t}
	w.global.owner, w.local.owner = w, w
	id.windows++
	pw.add(w)
	return w
}

// remember records an accepted sequence in the partition's window for the producer.
func (s *State) remember(t *topic, part *partition, id *producer, seq int64, a accepted) (added bool) {
	w := part.needMore().windows.find(id)
	if w == nil {
		w = s.addWindow(t, part, id)
		added = true
	}
	w.record(seq, a)
	w.lastUse = s.clock
	s.windows.toBack(&w.global)
	part.more.windows.list.toBack(&w.local)
	return added
}

func (s *State) dropWindow(w *window) {
	s.windows.remove(&w.global)
	w.part.more.windows.remove(w)
	w.producer.windows--
	s.releaseProducer(w.producer)
}
