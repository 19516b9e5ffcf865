package bench

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/forebaymq/forebay/client"
)

// PollOptions say what Poll does.
type PollOptions struct {
	Client     *client.Client
	Topic      string
	Partition  int
	RecordSize int
	Count      int           // records to publish
	Interval   time.Duration // pause before each, in which the poll parks and the system is idle
}

// PollReport is what Poll measured, from the start of each publish.
type PollReport struct {
	Topic      string  `json:"topic"`
	RecordSize int     `json:"recordSize"`
	Poll       Latency `json:"pollMillis"` // to the answer of the long poll that waited for the record
	Ack        Latency `json:"ackMillis"`  // to the acknowledgement of the publish
}

// Print writes the report for people.
func (r *PollReport) Print(w io.Writer) {
	fmt.Fprintf(w, "poll         %d publishes of %d B, each to a parked long poll\n", r.Poll.Count, r.RecordSize)
	fmt.Fprintf(w, "delivered    %s\n", r.Poll)
	fmt.Fprintf(w, "acknowledged %s\n", r.Ack)
}

// pollWait is the wait of each long poll.
const pollWait = 30 * time.Second

// Poll runs the measurement.
func Poll(ctx context.Context, o PollOptions) (*PollReport, error) {
	if o.Count < 1 || o.RecordSize < 1 || o.RecordSize > 1<<20 || o.Interval < 0 || o.Interval > pollWait/2 {
		return nil, fmt.Errorf("count and record-size must be 1 or more, interval 0 to %s", pollWait/2)
	}
	p := &payloads{size: o.RecordSize, batch: 1, rng: rand.New(rand.NewPCG(1, 0xf0eb))}
	record := client.Record{Value: p.value(o.RecordSize), Kind: client.KindData, Partition: int32(o.Partition), Pinned: true}
	at, err := o.Client.Read(ctx, o.Topic, o.Partition, client.ReadOptions{Offset: client.Latest})
	if err != nil {
		return nil, err
	}
	delivered, acked := newRecorder(), newRecorder()
	offset := at.NextOffset
	for range o.Count {
		type answer struct {
			res *client.ReadResult
			err error
			at  time.Time
		}
		answers := make(chan answer, 1)
		go func(offset int64) {
			res, err := o.Client.Read(ctx, o.Topic, o.Partition, client.ReadOptions{Offset: offset, Wait: pollWait})
			answers <- answer{res, err, time.Now()}
		}(offset)
		parked := sleepUntil(ctx, time.Now().Add(o.Interval))
		begin := time.Now()
		var err error
		if parked {
			_, err = o.Client.Publish(ctx, o.Topic, []client.Record{record}, nil)
			if err == nil {
				acked.success(time.Now(), time.Since(begin), 1, int64(o.RecordSize))
			}
		}
		a := <-answers // also after a failure: the goroutine is waited for
		if err != nil {
			return nil, err
		}
		if a.err != nil {
			return nil, a.err
		}
		if len(a.res.Records) == 0 || a.at.Before(begin) {
			return nil, fmt.Errorf("the long poll answered %d records before the publish: is somebody else writing to %s?", len(a.res.Records), o.Topic)
		}
		delivered.success(a.at, a.at.Sub(begin), int64(len(a.res.Records)), 0)
		offset = a.res.NextOffset
	}
	return &PollReport{Topic: o.Topic, RecordSize: o.RecordSize, Poll: delivered.latency(), Ack: acked.latency()}, nil
}
