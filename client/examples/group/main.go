// Command group handles events as a consumer group of two members, and shows how the group stands.
//
//	make run                                      # in another terminal
//	export FOREBAY_TOKEN=$(cat .forebay/token)
//	go run ./client/examples/group
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"github.com/forebaymq/forebay/client"
)

const (
	topic  = "example-events"
	group  = "counters"
	events = 60
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	c, err := client.New(cmp.Or(os.Getenv("FOREBAY_SERVER"), "http://127.0.0.1:8080"), client.WithToken(os.Getenv("FOREBAY_TOKEN")))
	if err != nil {
		return err
	}
	defer c.Close()
	if err := publish(ctx, c); err != nil {
		return err
	}

	// Both members are in this process here. In earnest each is a process of its own, and calls Run until its context ends.
	working, done := context.WithCancel(ctx)
	defer done()
	var handled atomic.Int64
	handle := func(_ context.Context, r *client.GroupRecord) error {
		if handled.Add(1) == events {
			done()
		}
		return nil // an error would end Run, unless WithConsumerFailure decides otherwise
	}
	members := make(chan error, 2)
	for range 2 {
		consumer, err := client.NewConsumer(c, group, []string{topic}, client.WithConsumerStart("earliest"))
		if err != nil {
			return err
		}
		// The end of working is no error: Run finishes what it has begun, commits, and leaves the group.
		go func() { members <- consumer.Run(working, handle) }()
	}
	if err := errors.Join(<-members, <-members); err != nil {
		return err
	}
	fmt.Printf("%d events handled\n", handled.Load())
	return describe(ctx, c)
}

// describe shows how the group stands, and what reading everything once more would mean.
func describe(ctx context.Context, c *client.Client) error {
	g, err := c.GetGroup(ctx, group)
	if err != nil {
		return err
	}
	var lag int64
	for _, p := range g.Partitions {
		lag += p.Lag
	}
	fmt.Printf("group %s: %d partitions, %d records behind\n", g.Name, len(g.Partitions), lag)
	// A seek is for groups without live members. A dry run changes nothing, and is for all.
	back, err := c.SeekGroup(ctx, group, client.GroupSeek{Topic: topic, To: client.SeekTarget{Earliest: true}, DryRun: true})
	if err != nil {
		return err
	}
	var repeats int64
	for _, p := range back.Partitions {
		repeats += p.Repeats
	}
	fmt.Printf("a seek to the earliest record would repeat %d\n", repeats)
	return nil
}

func publish(ctx context.Context, c *client.Client) error {
	if _, _, err := c.PutTopic(ctx, topic, client.TopicSettings{}); err != nil { // as it is, where it is there already
		return err
	}
	p, err := client.NewProducer(c, topic)
	if err != nil {
		return err
	}
	for i := range events {
		if _, err := p.Send(ctx, client.Record{Key: fmt.Appendf(nil, "device-%d", i%10), Value: []byte(`{"on":true}`), Kind: client.KindJSON}); err != nil {
			return err
		}
	}
	return p.Close(ctx)
}
