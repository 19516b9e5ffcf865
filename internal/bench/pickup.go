package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/forebaymq/forebay/client"
)

// PickupReport is what Pickup measured, from the start of each publish.
type PickupReport struct {
	Topic      string  `json:"topic"`
	RecordSize int     `json:"recordSize"`
	Waiters    int     `json:"waiters"`
	Pickup     Latency `json:"pickupMillis"` // to the answer of the parked lease that got the record
	Publish    Latency `json:"publishMillis"`
	Ack        Latency `json:"ackMillis"` // of the lease
}

// Print writes the report for people.
func (r *PickupReport) Print(w io.Writer) {
	fmt.Fprintf(w, "pickup       %d publishes of %d B, each to one of %d parked leases\n", r.Pickup.Count, r.RecordSize, r.Waiters)
	fmt.Fprintf(w, "leased       %s\n", r.Pickup)
	fmt.Fprintf(w, "published    %s\n", r.Publish)
	fmt.Fprintf(w, "acked        %s\n", r.Ack)
}

// PickupOptions say what Pickup does.
type PickupOptions struct {
	QueueOptions               // Client, Topic, RecordSize, Clients (parked leases) and JSON count
	Count        int           // records to publish
	Interval     time.Duration // pause before each, in which the leases park and the system is idle
}

// Pickup measures how long a record takes from the start of its publish to the answer of a lease that waits for it, on an idle queue.
func Pickup(ctx context.Context, o PickupOptions) (*PickupReport, error) {
	if o.Count < 1 || o.RecordSize < 1 || o.RecordSize > 1<<20 || o.Clients < 1 || o.Interval < 0 || o.Interval > pollWait/2 {
		return nil, fmt.Errorf("count, clients and record-size must be 1 or more, interval 0 to %s", pollWait/2)
	}
	name, err := o.subscribe(ctx, "latest")
	if err != nil {
		return nil, err
	}
	run := &pickupRun{o: o, queueRun: queueRun{o: o.QueueOptions, subscription: name}, picked: make(chan picked, o.Clients)}
	report, err := run.measure(ctx)
	if !o.Keep {
		err = errors.Join(err, o.unsubscribe(ctx, name))
	}
	return report, err
}

// picked is what one parked lease brought.
type picked struct {
	messages []client.Message
	err      error
	at       time.Time
}

type pickupRun struct {
	queueRun
	o      PickupOptions
	picked chan picked
}

// park leases one record, and parks again while there is none.
func (r *pickupRun) park(ctx context.Context) {
	for {
		p := picked{}
		o := client.LeaseOptions{Max: 1, Wait: pollWait}
		if r.o.JSON {
			p.messages, p.err = r.o.Client.LeaseJSON(ctx, r.o.Topic, r.subscription, o)
		} else {
			p.messages, p.err = r.o.Client.Lease(ctx, r.o.Topic, r.subscription, o)
		}
		p.at = time.Now()
		if p.err == nil && len(p.messages) == 0 {
			continue
		}
		r.picked <- p
		return
	}
}

func (r *pickupRun) measure(ctx context.Context) (*PickupReport, error) {
	parking, cancel := context.WithCancel(ctx)
	parked := 0
	defer func() {
		cancel()
		for ; parked > 0; parked-- {
			<-r.picked // every goroutine says one last word
		}
	}()
	p := &payloads{size: r.o.RecordSize, batch: 1, rng: rand.New(rand.NewPCG(1, 0xf0eb))}
	record := client.Record{Value: p.value(r.o.RecordSize), Kind: client.KindData}
	pickup, publish, ack := newRecorder(), newRecorder(), newRecorder()
	for range r.o.Count {
		for ; parked < r.o.Clients; parked++ {
			go r.park(parking)
		}
		if !sleepUntil(ctx, time.Now().Add(r.o.Interval)) {
			return nil, context.Cause(ctx)
		}
		begin := time.Now()
		published, err := r.o.Client.Publish(ctx, r.o.Topic, []client.Record{record}, nil)
		if err != nil {
			return nil, err
		}
		publish.success(time.Now(), time.Since(begin), 1, 0)
		got := <-r.picked
		parked--
		if got.err != nil {
			return nil, got.err
		}
		m, at := got.messages[0], published.Records[0]
		if m.Partition != at.Partition || m.Offset != at.Offset {
			return nil, fmt.Errorf("record %d:%d was published, and %d:%d was leased: is somebody else writing to %s?", at.Partition, at.Offset, m.Partition, m.Offset, r.o.Topic)
		}
		pickup.success(got.at, got.at.Sub(begin), 1, 0)
		settling := time.Now()
		if err := r.o.Client.Ack(ctx, r.o.Topic, r.subscription, m.Receipt); err != nil {
			return nil, err
		}
		ack.success(time.Now(), time.Since(settling), 1, 0)
	}
	return &PickupReport{
		Topic: r.o.Topic, RecordSize: r.o.RecordSize, Waiters: r.o.Clients, Pickup: pickup.latency(), Publish: publish.latency(), Ack: ack.latency(),
	}, nil
}
