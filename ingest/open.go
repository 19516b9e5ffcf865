package ingest

import (
	"time"

	"github.com/forebaymq/forebay/metadata"
)

// What one batch, one event-ID hash and one group take in a metadata entry, at most and roughly: the entry is limited to 1.5 MiB.
const (
	batchCommitBytes = 48
	hashCommitBytes  = 16
	groupCommitBytes = 48
)

// part is one slot of one request in the open segment.
type part struct {
	req   *request
	slot  int32
	batch int32
}

// openBatch is a batch that grows while its segment is open.
type openBatch struct {
	topic     metadata.TopicID
	partition int32
	group     int32 // index into openSegment.groups, -1 = merged from requests without a group
	bytes     int
	place     int32 // in the commit, once built
}

type topicPartition struct {
	topic     metadata.TopicID
	partition int32
}

// openSegment collects requests in arrival order. It holds references only: the encodings stay in the requests' own buffers.
type openSegment struct {
	first    time.Time // arrival of the first record
	requests []*request
	parts    []part
	batches  []openBatch
	groups   []*request
	merging  map[topicPartition]int32 // the batch that the next request without a group joins
	bytes    int
	commit   int // estimated bytes of the metadata entry
	waiting  int // requests that were not withdrawn
	probe    int // requests that had come when it waited on although everyone seemed to be there, 0 = did not
}

func newOpenSegment() *openSegment {
	return &openSegment{merging: map[topicPartition]int32{}}
}

// add takes a request. batchBytes bounds merged batches, so that a reader of a few records need not fetch and unpack a whole segment.
func (o *openSegment) add(r *request, now time.Time, batchBytes int) {
	if o.waiting == 0 {
		o.first = now
	}
	group := int32(-1)
	if r.grouped {
		group = int32(len(o.groups))
		o.groups = append(o.groups, r)
	}
	for i := range r.slots {
		sl := &r.slots[i]
		b := o.batchFor(sl, group, batchBytes)
		o.batches[b].bytes += sl.size
		o.parts = append(o.parts, part{req: r, slot: int32(i), batch: b})
	}
	o.requests = append(o.requests, r)
	o.bytes += r.bytes
	o.commit += r.commit
	o.waiting++
}

func (o *openSegment) batchFor(sl *slot, group int32, batchBytes int) int32 {
	tp := topicPartition{sl.topic, sl.partition}
	if group >= 0 {
		delete(o.merging, tp) // what comes later must stand behind this batch
	} else if b, ok := o.merging[tp]; ok && o.batches[b].bytes < batchBytes {
		o.commit -= batchCommitBytes // it shares the batch's line in the entry
		return b
	} else {
		o.merging[tp] = int32(len(o.batches))
	}
	o.batches = append(o.batches, openBatch{topic: sl.topic, partition: sl.partition, group: group})
	return int32(len(o.batches) - 1)
}

// fits says whether r can join without going over a limit. Everything fits an empty segment.
func (o *openSegment) fits(r *request, l flushLimits) bool {
	return o.waiting == 0 || o.bytes+r.bytes <= l.SegmentBytes && o.commit+r.commit <= l.CommitBytes &&
		len(o.batches)+len(r.slots) <= l.Batches
}

// withdraw takes r out again. Its parts stay in the list and are passed over when the segment is built.
func (o *openSegment) withdraw(r *request) {
	o.bytes -= r.bytes
	o.waiting--
	if o.waiting == 0 {
		*o = *newOpenSegment()
	}
}
