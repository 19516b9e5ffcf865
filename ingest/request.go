package ingest

import (
	"crypto/sha256"
	"fmt"

	"go.opentelemetry.io/otel/trace"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

// requestOverhead and recordOverhead are what a request costs besides its encodings, for the budgets: bookkeeping, slots, offsets.
const (
	requestOverhead = 1024
	recordOverhead  = 16
)

// stage says where a request is. It changes under Ingester.mu.
type stage uint8

const (
	entering  stage = iota // accepted, being encoded
	buffered               // in the open segment: can still be withdrawn
	sealed                 // in a flight: may be committed
	answered               // outcome known
	withdrawn              // taken back before it was sealed
)

// slot is what one request has for one topic-partition: it becomes a batch or a part of one.
type slot struct {
	topic     metadata.TopicID
	partition int32
	records   int32
	size      int        // encoded bytes
	end       int        // in planning and encoding: where the next record goes
	chunk     []byte     // encodings, until the segment is built
	hashes    [][16]byte // of event IDs, or nil

	// The outcome, set by the flight before the request is answered.
	base      int64
	offsets   []int64
	duplicate bool
	err       error
}

// request is one Append on its way. Its memory is reused once its caller has taken the answer; a caller that leaves early leaves it to
// the garbage collector, because a flight still refers to it.
type request struct {
	tenant  string
	grouped bool
	group   metadata.Group
	slots   []slot
	where   []int32 // slot of each record, in request order over all topics
	counts  []int   // records of each topic
	bytes   int     // encoded
	cost    int64   // against the budgets
	commit  int     // estimated bytes in the metadata entry
	epoch   uint64  // of failures, when it was accepted
	span    trace.SpanContext
	buf     *buffer
	done    chan struct{} // receives once, when answered

	// Guarded by Ingester.mu.
	stage  stage
	flight *flight

	err error // the outcome, if it is one for the whole request; set before done
}

func newRequest() *request { return &request{done: make(chan struct{}, 1)} }

// reset clears r for reuse, keeping its memory.
func (r *request) reset() {
	clear(r.slots)
	*r = request{slots: r.slots[:0], where: r.where[:0], counts: r.counts[:0], done: r.done}
}

// planner is scratch memory that finds the slot of a partition without a map.
type planner struct {
	slotOf []int32 // by partition: slot + 1, 0 = none
	id     []byte
}

// plan checks q, counts and measures its records by topic-partition, and so knows what it will cost before any memory is taken for
// its encodings.
func (r *request) plan(p *planner, q *Request) error {
	r.tenant = q.Tenant
	r.group = metadata.Group{Tenant: q.Tenant}
	r.grouped = q.Producer != nil || len(q.Topics) > 1
	if q.Producer != nil {
		pr := *q.Producer // the caller's may change once Append has returned
		r.group.Producer = &pr
	}
	for t := range q.Topics {
		if err := r.planTopic(p, q.Tenant, &q.Topics[t]); err != nil {
			return err
		}
	}
	r.bytes = 0
	for i := range r.slots {
		r.bytes += r.slots[i].size
		r.commit += batchCommitBytes + len(r.slots[i].hashes)*hashCommitBytes
	}
	if r.grouped {
		r.commit += groupCommitBytes + len(q.Tenant)
		if q.Producer != nil {
			r.commit += len(q.Producer.ID)
		}
	}
	r.cost = requestOverhead + int64(r.bytes) + int64(len(r.where))*recordOverhead
	return nil
}

func (r *request) planTopic(p *planner, tenant string, t *TopicRecords) error {
	if t.Topic == nil || len(t.Partitions) != len(t.Records) {
		return fmt.Errorf("append: a topic needs its description and one partition a record, got %d for %d", len(t.Partitions), len(t.Records))
	}
	if t.Topic.Tenant != tenant {
		return api.Errorf(api.CodeUnknownTopic, "topic %s does not exist", t.Topic.Name)
	}
	partitions := t.Topic.Config.Partitions
	if len(p.slotOf) < partitions {
		p.slotOf = make([]int32, partitions)
	}
	first := len(r.slots)
	defer func() { // leave no trace for the next topic
		for i := first; i < len(r.slots); i++ {
			p.slotOf[r.slots[i].partition] = 0
		}
	}()
	ids := false
	for i := range t.Records {
		part := t.Partitions[i]
		if part < 0 || int(part) >= partitions {
			return api.Errorf(api.CodeUnknownPartition, "topic %s has no partition %d: it has %d", t.Topic.Name, part, partitions)
		}
		s := p.slotOf[part]
		if s == 0 {
			r.slots = append(r.slots, slot{topic: t.Topic.ID, partition: part})
			s = int32(len(r.slots))
			p.slotOf[part] = s
		}
		rec := &t.Records[i]
		sl := &r.slots[s-1]
		sl.records++
		sl.size += segment.RecordSize(rec)
		r.where = append(r.where, s-1)
		ids = ids || rec.ID != ""
	}
	r.counts = append(r.counts, len(t.Records))
	if ids && t.Topic.Config.DedupeWindow > 0 {
		r.grouped = true
		r.hashIDs(p, t, first)
	}
	return nil
}

// hashIDs gives the slots of one topic the hashes of their records' event IDs: the first 128 bits of SHA-256, so that nobody can make
// two IDs that meet.
func (r *request) hashIDs(p *planner, t *TopicRecords, first int) {
	all := make([][16]byte, len(t.Records))
	at := 0
	for i := first; i < len(r.slots); i++ {
		r.slots[i].hashes = all[at : at : at+int(r.slots[i].records)]
		at += int(r.slots[i].records)
	}
	where := r.where[len(r.where)-len(t.Records):]
	for i := range t.Records {
		var h [16]byte
		if id := t.Records[i].ID; id != "" {
			p.id = append(p.id[:0], id...)
			sum := sha256.Sum256(p.id)
			copy(h[:], sum[:])
		}
		sl := &r.slots[where[i]]
		sl.hashes = append(sl.hashes, h)
	}
}

// encode writes the encodings into one buffer, those of a slot next to each other.
func (r *request) encode(pool *bufferPool, q *Request) error {
	r.buf = pool.get(r.bytes)
	at := 0
	for i := range r.slots {
		sl := &r.slots[i]
		sl.chunk = r.buf.b[at : at+sl.size : at+sl.size]
		at += sl.size
	}
	n := 0
	for t := range q.Topics {
		recs := q.Topics[t].Records
		for i := range recs {
			sl := &r.slots[r.where[n]]
			n++
			sl.end += len(segment.AppendRecord(sl.chunk[sl.end:sl.end:len(sl.chunk)], &recs[i]))
		}
	}
	for i := range r.slots {
		if r.slots[i].end != r.slots[i].size {
			return fmt.Errorf("append: records changed while they were encoded: %d bytes measured, %d written", r.slots[i].size, r.slots[i].end)
		}
	}
	return nil
}

// outcome gives the error of the whole request once every slot has its own. A request is atomic, so its slots agree; should they not, the
// only honest answer is that the outcome is mixed.
func (r *request) outcome() error {
	var failed error
	n := 0
	for i := range r.slots {
		if err := r.slots[i].err; err != nil {
			failed = err
			n++
		}
	}
	if n != 0 && n != len(r.slots) {
		return api.Errorf(api.CodeOutcomeUnknown, "only %d of %d partitions took the request: %w", len(r.slots)-n, len(r.slots), failed)
	}
	return failed
}

// result lists the offsets in the order of the request. Call it after done, without an error.
func (r *request) result() *Result {
	offsets := make([]int64, len(r.where))
	for i := range r.slots {
		r.slots[i].end = 0
	}
	for i, s := range r.where {
		sl := &r.slots[s]
		if sl.offsets != nil {
			offsets[i] = sl.offsets[sl.end]
		} else {
			offsets[i] = sl.base + int64(sl.end)
		}
		sl.end++
	}
	res := &Result{Topics: make([]TopicResult, len(r.counts)), Duplicate: len(r.slots) > 0}
	for i := range r.slots {
		res.Duplicate = res.Duplicate && r.slots[i].duplicate
	}
	for t, n := range r.counts {
		res.Topics[t].Offsets = offsets[:n:n]
		offsets = offsets[n:]
	}
	return res
}
