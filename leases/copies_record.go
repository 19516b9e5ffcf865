package leases

import (
	"fmt"
	"strconv"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases/store"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

// Headers of a copy in a dead-letter topic. They come before those of the record itself, which all follow in their order, trace context
// included. Times are RFC 3339 with milliseconds, UTC.
const (
	HeaderOriginTopic        = "forebay-origin-topic"
	HeaderOriginPartition    = "forebay-origin-partition"
	HeaderOriginOffset       = "forebay-origin-offset"
	HeaderOriginTime         = "forebay-origin-time" // append time
	HeaderOriginID           = "forebay-origin-id"   // event ID, where the record has one
	HeaderOriginSubscription = "forebay-origin-subscription"
	HeaderDeadAttempts       = "forebay-dead-attempts"
	HeaderDeadReason         = "forebay-dead-reason"
	HeaderFirstFailed        = "forebay-first-failed-at"
	HeaderDied               = "forebay-died-at"
)

// copyID is the event ID of the copy of one death: the same for every attempt to copy it, and another for another death of the same record,
// which a redrive makes possible. Whoever reads the copies can tell repeats by it.
func copyID(id metadata.SubscriptionID, d *store.DeadLetter) string {
	return fmt.Sprintf("forebay-dead:%d:%d:%d:%d", id, d.Partition, d.Offset, d.LastFailed)
}

// deadCopy makes the record for the dead-letter topic to of a record that died in subscription s, and says into which partition it goes. It shares
// memory with r.
func deadCopy(s *metadata.Subscription, d *store.DeadLetter, r *segment.Record, to *metadata.Topic) (segment.Record, int32) {
	id := copyID(s.ID, d)
	headers := make([]segment.Header, 0, len(r.Headers)+10)
	add := func(name, value string) {
		if value != "" {
			headers = append(headers, segment.Header{Name: name, Value: value})
		}
	}
	add(HeaderOriginTopic, s.Topic)
	add(HeaderOriginPartition, strconv.FormatInt(int64(d.Partition), 10))
	add(HeaderOriginOffset, strconv.FormatInt(d.Offset, 10))
	add(HeaderOriginTime, headerTime(r.AppendTime))
	add(HeaderOriginID, r.ID)
	add(HeaderOriginSubscription, s.Name)
	add(HeaderDeadAttempts, strconv.FormatInt(int64(d.Attempts), 10))
	add(HeaderDeadReason, d.Reason)
	add(HeaderFirstFailed, headerTime(d.FirstFailed))
	add(HeaderDied, headerTime(d.LastFailed))
	c := segment.Record{
		ProducerTime: r.ProducerTime, DeliverAt: segment.NoTime, Kind: r.Kind, KeyBinary: r.KeyBinary, Key: r.Key, Value: r.Value,
		Headers: append(headers, r.Headers...), ID: id,
	}
	partition := d.Partition % int32(to.Config.Partitions)
	if c.Key == nil && to.Config.Cleanup.Compacts() {
		c.Key = []byte(id) // a compacted topic takes no record without a key; each death is a fact of its own
	}
	if c.Key != nil {
		partition = int32(api.PartitionForKey(c.Key, to.Config.Partitions))
	}
	return c, partition
}

// headerTime shows Unix ms, and 0 and less as "".
func headerTime(ms int64) string {
	if ms <= 0 {
		return ""
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}
