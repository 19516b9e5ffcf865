package client

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// recordOverhead is what a record costs in memory beside its encoding, about: its Delivery and its places in the batch.
const recordOverhead = 64

// Delivery is the future of one record.
type Delivery struct {
	b *producerBatch
	i int32
}

// Done is closed when the record's outcome is there.
func (d *Delivery) Done() <-chan struct{} { return d.b.done }

// Wait gives where the record is, or a *DeliveryError. It ends early with the context, which says nothing about the record: the producer
// goes on with it.
//
// The offset is -1 where the producer learned that the record is stored, but not where: the answers were lost until the deadline had
// passed, or an earlier run of a producer that uses SendAt had stored it. The partition is -1, too, where the producer does not know the
// topic's.
func (d *Delivery) Wait(ctx context.Context) (Position, error) {
	select {
	case <-d.b.done:
		return d.b.outcome(d.i)
	default:
	}
	select {
	case <-d.b.done:
		return d.b.outcome(d.i)
	case <-ctx.Done():
		return Position{}, fmt.Errorf("wait for delivery to %s: %w", d.b.topic, context.Cause(ctx))
	}
}

// Duplicate says whether an earlier attempt, or an earlier run of the producer, had stored the record already. It waits like Wait without
// an end.
func (d *Delivery) Duplicate() bool {
	<-d.b.done
	return d.b.duplicate
}

// producerBatch is the records of one request, from their Sends to their outcomes. Until it is taken by its lane it is guarded by
// Producer.mu, then it belongs to the lane, and after done is closed it does not change.
type producerBatch struct {
	topic    string
	created  time.Time // of its first record
	deadline time.Time
	bytes    int64 // taken from the budget

	encoded    []byte  // the records as fields of a PublishRequest
	built      bool    // the first body has been made in the room behind encoded
	ends       []int32 // by record: where its encoding ends
	partitions []int32 // by record; -1 = the server chooses
	sequences  []int64 // by record, with SendAt; else nil
	records    []Record
	alive      []int32 // records that are still in encoded, where some were taken out; else nil
	slab       []Delivery

	attempts   int
	unknown    bool  // the outcome of an attempt is unknown
	sequence   int64 // of the request, where numbered
	numbered   bool
	renumbered int   // how often it got another one
	renewed    bool  // the session was renewed for its sake
	last       error // of the last attempt

	done      chan struct{}
	positions []Position      // by record, where err is nil
	errs      map[int32]error // records that were refused by themselves
	err       error           // of all others
	duplicate bool
}

// newBatch makes a batch with room for about hint encoded bytes.
func (p *Producer) newBatch(now time.Time, hint int) *producerBatch {
	return &producerBatch{
		topic: p.topic, created: now, deadline: now.Add(p.o.deadline), done: make(chan struct{}), encoded: make([]byte, 0, hint+producerSlack),
	}
}

// add appends a record and gives its Delivery.
func (b *producerBatch) add(r *Record, size int, partition int32) *Delivery {
	b.encoded = protowire.AppendTag(b.encoded, 1, protowire.BytesType)
	b.encoded = protowire.AppendVarint(b.encoded, uint64(size))
	b.encoded = appendRecord(b.encoded, r)
	b.ends = append(b.ends, int32(len(b.encoded)))
	b.partitions = append(b.partitions, partition)
	if len(b.slab) == cap(b.slab) {
		b.slab = make([]Delivery, 0, min(max(2*len(b.slab), 1), 256)) // those given out stay where they are
	}
	b.slab = append(b.slab, Delivery{b: b, i: int32(len(b.ends) - 1)})
	return &b.slab[len(b.slab)-1]
}

func (b *producerBatch) len() int { return len(b.ends) }

// live gives the number of records of the request.
func (b *producerBatch) live() int {
	if b.alive != nil {
		return len(b.alive)
	}
	return len(b.ends)
}

// original gives the place among all of the batch's records of record i of the request.
func (b *producerBatch) original(i int) int32 {
	if b.alive != nil {
		return b.alive[i]
	}
	return int32(i)
}

// drop takes records from the request, the i-th and n-1 behind it, and gives them their error.
func (b *producerBatch) drop(i, n int, err error) {
	if b.alive == nil {
		b.alive = make([]int32, len(b.ends))
		for k := range b.alive {
			b.alive[k] = int32(k)
		}
	}
	if b.errs == nil {
		b.errs = map[int32]error{}
	}
	for _, k := range b.alive[i : i+n] {
		b.errs[k] = err
	}
	b.alive = append(append(make([]int32, 0, len(b.alive)-n), b.alive[:i]...), b.alive[i+n:]...)
}

// body is the request's body with a producer's place, or nil for none. A body that was built is never written to again: the transport of
// an attempt that was given up may still be reading it.
func (b *producerBatch) body(place *ProducerSequence) []byte {
	if b.alive == nil {
		if b.built {
			return appendProducer(append(make([]byte, 0, len(b.encoded)+producerSlack), b.encoded...), 2, place)
		}
		b.built = true
		return appendProducer(b.encoded, 2, place)
	}
	body := make([]byte, 0, len(b.encoded)+producerSlack)
	for _, k := range b.alive {
		start := int32(0)
		if k > 0 {
			start = b.ends[k-1]
		}
		body = append(body, b.encoded[start:b.ends[k]]...)
	}
	return appendProducer(body, 2, place)
}

func (b *producerBatch) outcome(i int32) (Position, error) {
	if err := b.errs[i]; err != nil {
		return Position{}, err
	}
	if b.err != nil {
		return Position{}, b.err
	}
	return b.positions[i], nil
}

// storedBefore is the Delivery of a record that an earlier run of the producer has stored.
func storedBefore(topic string, partition int32) *Delivery {
	b := &producerBatch{topic: topic, done: make(chan struct{}), positions: []Position{{Partition: partition, Offset: -1}}, duplicate: true}
	close(b.done)
	return &Delivery{b: b}
}
