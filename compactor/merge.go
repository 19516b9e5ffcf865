package compactor

import (
	"context"
	"errors"
	"fmt"

	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

// merger runs one job: it reads the groups in their order, writes runs, and replaces what it has read as soon as what it wrote is durable.
type merger struct {
	c       *Compactor
	job     *Job
	claim   *metadata.HeldClaim
	src     *sources
	out     *output
	run     runWriter
	waiting []*pending
	stopped map[metadata.PartitionKey]bool // partitions of which a Replace was refused
	decoded []byte                         // memory for a payload
	stats   jobStats
}

// jobStats says what a job did.
type jobStats struct {
	replaced  int // groups
	refused   int // groups whose Replace was refused
	gone      int // groups of which nothing is live any more
	removed   int // index entries
	added     int
	inBytes   int64
	recordsIn int64
	records   int64 // written
}

// runJob merges, moves or rewrites the groups of a job. What was replaced before an error stays replaced.
func (c *Compactor) runJob(ctx context.Context, claim *metadata.HeldClaim, job *Job) (jobStats, error) {
	if job.Kind == KindClean {
		return c.runClean(ctx, claim, job)
	}
	ctx, cancel := context.WithCancel(ctx)
	var entries []*metadata.IndexEntry
	for i := range job.Groups {
		for j := range job.Groups[i].Entries {
			entries = append(entries, &job.Groups[i].Entries[j])
		}
	}
	m := &merger{c: c, job: job, claim: claim, stopped: map[metadata.PartitionKey]bool{}, src: newSources(ctx, c.o.Store, entries, c.o.ReadBytes, &c.known, func(n int) {
		c.m.read.WithLabelValues(string(job.Kind)).Add(float64(n))
	})}
	defer func() {
		cancel()
		m.src.close()
		m.out.release()
	}()
	for i := range job.Groups {
		if err := m.group(ctx, &job.Groups[i]); err != nil {
			return m.stats, err
		}
	}
	if err := m.out.end(ctx); err != nil {
		return m.stats, err
	}
	return m.stats, m.commit(ctx)
}

// group merges one group.
func (m *merger) group(ctx context.Context, g *Group) error {
	if b := (bucket{g.Class, g.Level}); m.out == nil || m.out.bucket != b {
		if err := m.out.end(ctx); err != nil {
			return err
		}
		if err := m.commit(ctx); err != nil {
			return err
		}
		m.out = m.c.newOutput(m.job, b, m.out)
	}
	p := &pending{group: g}
	m.waiting = append(m.waiting, p)
	w := &m.run
	w.begin(m.out, p)
	for i := range g.Entries {
		if err := m.entry(ctx, w, g, &g.Entries[i]); err != nil {
			return err
		}
	}
	if err := w.close(ctx); err != nil {
		return err
	}
	p.done = true
	if err := m.out.poll(); err != nil {
		return err
	}
	return m.commit(ctx)
}

// entry feeds the batches of one index entry to the run.
func (m *merger) entry(ctx context.Context, w *runWriter, g *Group, e *metadata.IndexEntry) error {
	cur := m.src.open(e)
	records := 0
	for {
		stored, err := cur.next()
		if err != nil {
			return err
		}
		if stored == nil {
			break
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		m.stats.inBytes += int64(len(stored))
		h, err := segment.ReadBatchHeader(stored)
		if err != nil {
			return unreadable(&e.Segment, err)
		}
		records += h.Records
		if err := checkBatch(g, e, &h); err != nil {
			return unreadable(&e.Segment, err)
		}
		if m.asItIs(w, g, &h) {
			m.stats.recordsIn += int64(h.Records)
			m.stats.records += int64(h.Records)
			err = w.move(ctx, stored)
		} else {
			err = m.records(ctx, w, g, e, stored)
		}
		if errors.Is(err, segment.ErrCorrupt) {
			return unreadable(&e.Segment, err)
		}
		if err != nil {
			return err
		}
	}
	if records != int(e.Records) {
		return unreadable(&e.Segment, corruptEntry(e, "the batches have %d records, the index says %d", records, e.Records))
	}
	return nil
}

// asItIs says whether a batch is moved without being unpacked: what is clean keeps its horizons, and what is of good size is not worth it.
func (m *merger) asItIs(w *runWriter, g *Group, h *segment.BatchHeader) bool {
	if !h.Sparse || h.FirstOffset < g.LogStart && g.Level != cleanLevel {
		return false
	}
	if g.Level == cleanLevel || m.job.Kind == KindMove {
		return true
	}
	size := m.c.o.Policy.BatchBytes
	return h.RawBytes >= size/2 && len(w.payload) < size/8
}

// records unpacks a batch and adds its visible records.
func (m *merger) records(ctx context.Context, w *runWriter, g *Group, e *metadata.IndexEntry, stored []byte) error {
	return m.visit(e, stored, func(r *segment.RawRecord) error {
		m.stats.recordsIn++
		if r.Offset < g.LogStart {
			return nil
		}
		m.stats.records++
		return w.add(ctx, r, 0)
	})
}

// visit calls fn with each visible record of a stored batch, with its offset and append time. The record is valid during the call.
func (m *merger) visit(e *metadata.IndexEntry, stored []byte, fn func(r *segment.RawRecord) error) error {
	b, err := segment.DecodeBatchTo(m.decoded, stored)
	if err != nil {
		return err
	}
	h := b.Header()
	if h.Codec != segment.CodecRaw && h.RawBytes > cap(m.decoded) {
		m.decoded = make([]byte, 0, h.RawBytes+h.RawBytes/4)
	}
	if last, _ := b.Last(); h.Sparse && last > e.Last {
		return corruptEntry(e, "a record has offset %d", last)
	}
	it := b.Iter()
	var r segment.RawRecord
	dropped, offset := e.Dropped, e.Base
	for i := int32(0); it.NextRaw(&r); i++ {
		if !e.Sparse {
			if len(dropped) > 0 && dropped[0] == i {
				dropped = dropped[1:]
				continue
			}
			r.Offset, r.AppendTime = offset, e.AppendTime
			offset++
		}
		if err := fn(&r); err != nil {
			return err
		}
	}
	return it.Err()
}

// checkBatch makes sure that a batch is what the index says, so that records of one topic can never get into another.
func checkBatch(g *Group, e *metadata.IndexEntry, h *segment.BatchHeader) error {
	switch {
	case metadata.TopicID(h.TopicID) != g.Topic.ID || h.Partition != g.Partition:
		return corruptEntry(e, "it belongs to topic %d partition %d", h.TopicID, h.Partition)
	case h.Sparse != e.Sparse || h.Sparse && h.FirstOffset < e.Base:
		return corruptEntry(e, "the index says offsets from %d, the batch %d", e.Base, h.FirstOffset)
	}
	return nil
}

func corruptEntry(e *metadata.IndexEntry, format string, args ...any) error {
	return &segment.CorruptError{Object: objectKey(&e.Segment), Offset: int64(e.Ref.Pos), Structure: "batch", Reason: fmt.Sprintf(format, args...)}
}
