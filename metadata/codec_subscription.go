package metadata

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/forebaymq/forebay/api"
)

func appendCreateSubscription(dst []byte, c *CreateSubscription) ([]byte, error) {
	dst = binary.AppendUvarint(dst, uint64(c.TopicID))
	dst = appendString(dst, c.Name)
	dst = appendVarint(dst, c.Now)
	dst, err := appendSubscriptionConfig(dst, &c.Config)
	if err != nil {
		return dst, err
	}
	return appendStarts(dst, c.Starts)
}

func readCreateSubscription(r *reader) *CreateSubscription {
	r.structure = "createSubscription"
	c := &CreateSubscription{TopicID: TopicID(r.uvarint()), Name: r.string(), Now: r.varint()}
	c.Config = readSubscriptionConfig(r)
	c.Starts = readStarts(r)
	return c
}

func appendUpdateSubscription(dst []byte, c *UpdateSubscription) ([]byte, error) {
	dst = binary.AppendUvarint(dst, uint64(c.ID))
	dst = appendVarint(dst, c.Version)
	return appendSubscriptionConfig(dst, &c.Config)
}

func readUpdateSubscription(r *reader) *UpdateSubscription {
	r.structure = "updateSubscription"
	c := &UpdateSubscription{ID: SubscriptionID(r.uvarint()), Version: r.varint()}
	c.Config = readSubscriptionConfig(r)
	return c
}

// appendSubscriptionConfig is shared by commands and snapshots.
func appendSubscriptionConfig(dst []byte, c *api.SubscriptionConfig) ([]byte, error) {
	if err := checkSubscriptionConfig(c); err != nil {
		return dst, err
	}
	dst = appendVarint(dst, int64(c.VisibilityTimeout))
	dst = appendVarint(dst, int64(c.MaxAttempts))
	dst = appendVarint(dst, int64(c.Backoff.Initial))
	dst = appendVarint(dst, int64(c.Backoff.Max))
	dst = binary.BigEndian.AppendUint64(dst, math.Float64bits(c.Backoff.Multiplier))
	dst = appendBool(dst, c.Backoff.Jitter)
	dst = appendVarint(dst, int64(c.MaxInFlight))
	dst = appendVarint(dst, int64(c.MaxAckedAhead))
	dst = appendString(dst, c.DeadLetterTopic)
	dst = appendString(dst, string(c.GapPolicy))
	dst = appendString(dst, string(c.Ordering))
	dst = appendBool(dst, c.FairShare.Key)
	return appendString(dst, c.FairShare.Header), nil
}

func readSubscriptionConfig(r *reader) api.SubscriptionConfig {
	c := api.SubscriptionConfig{
		VisibilityTimeout: time.Duration(r.varint()),
		MaxAttempts:       int(r.varint()),
		Backoff:           api.Backoff{Initial: time.Duration(r.varint()), Max: time.Duration(r.varint()), Multiplier: r.float(), Jitter: r.bool()},
		MaxInFlight:       int(r.varint()),
		MaxAckedAhead:     int(r.varint()),
		DeadLetterTopic:   r.string(),
		GapPolicy:         api.GapPolicy(r.string()),
		Ordering:          api.Ordering(r.string()),
	}
	c.FairShare.Key = r.bool()
	c.FairShare.Header = r.string()
	return c
}

// float reads a finite number, in the 8 bytes of IEEE 754.
func (r *reader) float() float64 {
	b := r.bytes(8)
	if r.err != nil {
		return 0
	}
	v := math.Float64frombits(binary.BigEndian.Uint64(b))
	if math.IsNaN(v) || math.IsInf(v, 0) {
		r.fail("not a finite number")
		return 0
	}
	return v
}

// minStartBytes is what one start takes at least: partition and offset.
const minStartBytes = 2

// appendStarts writes positions in ascending order of their partitions. The first difference is to -1, so that none is 0.
func appendStarts(dst []byte, starts []api.PartitionOffset) ([]byte, error) {
	dst = binary.AppendUvarint(dst, uint64(len(starts)))
	last := int32(-1)
	for _, x := range starts {
		if x.Partition <= last || x.Offset < 0 {
			return dst, fmt.Errorf("start of partition %d at %d after partition %d", x.Partition, x.Offset, last)
		}
		dst = binary.AppendUvarint(dst, uint64(int64(x.Partition)-int64(last)))
		dst = binary.AppendUvarint(dst, uint64(x.Offset))
		last = x.Partition
	}
	return dst, nil
}

func readStarts(r *reader) []api.PartitionOffset {
	n := r.count(minStartBytes)
	if n == 0 {
		return nil
	}
	out := make([]api.PartitionOffset, 0, n)
	last := int64(-1)
	for i := 0; i < n && r.err == nil; i++ {
		step := r.upTo(math.MaxInt32 + 1)
		if last += int64(step); step == 0 || last > math.MaxInt32 {
			r.fail("partitions of starts out of order")
			break
		}
		out = append(out, api.PartitionOffset{Partition: int32(last), Offset: r.int63()})
	}
	return out
}

// minSubscriptionBytes is what a subscription takes at least in a snapshot.
const minSubscriptionBytes = 5 + 19 + 1

// subscriptions is the part of the body that version 2 has added.
func (w *snapshotWriter) subscriptions() {
	s := w.s
	w.uvarint(s.subs.counter)
	w.uvarint(uint64(len(s.subs.order)))
	prev := SubscriptionID(0)
	for _, x := range s.subs.order {
		w.uvarint(uint64(x.ID - prev))
		prev = x.ID
		w.uvarint(uint64(x.TopicID))
		w.string(x.Name)
		w.varint(x.Created)
		w.varint(x.Version)
		var err error
		if w.b, err = appendSubscriptionConfig(w.b, &x.Config); err == nil {
			w.b, err = appendStarts(w.b, x.Starts)
		}
		if err != nil {
			panic(fmt.Sprintf("assertion failed: subscription %d was applied and cannot be encoded: %v", x.ID, err))
		}
	}
}

func (r *snapshotReader) subscriptions() {
	r.structure = "snapshot subscriptions"
	s := r.s
	s.subs.counter = r.uvarint()
	n := r.count(minSubscriptionBytes)
	var id SubscriptionID
	for i := 0; i < n && r.err == nil; i++ {
		step := SubscriptionID(r.uvarint())
		if id+step <= id || uint64(id+step)%uint64(s.shards) != uint64(s.shard) || uint64(id+step)/uint64(s.shards) > s.subs.counter {
			r.fail("bad subscription ID")
			break
		}
		id += step
		t := s.topics[TopicID(r.uvarint())]
		x := &Subscription{ID: id, Name: r.string(), Created: r.varint(), Version: r.varint()}
		x.Config = readSubscriptionConfig(&r.reader)
		x.Starts = readStarts(&r.reader)
		if r.err != nil {
			break
		}
		if t == nil {
			r.fail("topic does not exist")
			break
		}
		if n := len(x.Starts); n > 0 && int(x.Starts[n-1].Partition) >= t.config.Partitions {
			r.fail("start of a partition that the topic does not have")
			break
		}
		x.Tenant, x.TopicID, x.Topic = t.tenant.name, t.id, t.name
		s.subs.byID[id] = x
		s.subs.order = append(s.subs.order, x)
		t.subscriptions = append(t.subscriptions, x)
	}
	for _, t := range s.order {
		slices.SortFunc(t.subscriptions, func(a, b *Subscription) int { return cmp.Compare(a.Name, b.Name) })
		for i := 1; i < len(t.subscriptions); i++ {
			if t.subscriptions[i-1].Name == t.subscriptions[i].Name {
				r.fail("subscription named twice")
			}
		}
	}
}
