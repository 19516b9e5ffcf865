// Command queue works off a queue of mails with a Worker. One of them cannot be sent and becomes a dead letter.
//
//	make run                                      # in another terminal
//	export FOREBAY_TOKEN=$(cat .forebay/token)
//	go run ./client/examples/queue
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/forebaymq/forebay/client"
)

const (
	topic        = "example-mails"
	subscription = "sender"
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
	if err := fill(ctx, c); err != nil {
		return err
	}
	w, err := client.NewWorker(c, topic, subscription, send,
		client.WithWorkerConcurrency(4),
		client.WithWorkerUntilEmpty(), // a real worker goes on until ctx ends, which lets the handlers finish
		client.WithWorkerNotify(func(m *client.Message, err error) {
			if m == nil {
				log.Printf("the server is away: %v", err) // it goes on trying
				return
			}
			fmt.Printf("mail to %s, attempt %d: %v\n", m.Value, m.Attempt, err)
		}))
	if err != nil {
		return err
	}
	stats, err := w.Run(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("%d sent, %d attempts failed\n", stats.Acked, stats.Nacked)
	for d, err := range c.DeadLetters(ctx, topic, subscription, client.DeadLetterOptions{}) {
		if err != nil {
			return err
		}
		fmt.Printf("dead letter after %d attempts: %s\n", d.Attempts, d.Reason)
	}
	return nil
}

// send handles one record: nil acks it, an error gives it back with a reason.
func send(ctx context.Context, m *client.Message) error {
	switch string(m.Value) {
	case "nobody":
		return errors.New("no such mailbox")
	case "busy":
		if m.Attempt == 1 {
			return client.RetryAfter(errors.New("mailbox is busy"), 0) // again at once; normally the subscription's backoff decides
		}
	}
	// ctx ends when the lease is lost or the worker has to go: whatever takes long should heed it.
	select {
	case <-time.After(10 * time.Millisecond): // the mail goes out
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// fill makes the queue and puts five mails into it.
func fill(ctx context.Context, c *client.Client) error {
	attempts, start, pause := 2, "earliest", "0s"
	if _, _, err := c.PutTopic(ctx, topic, client.TopicSettings{}); err != nil { // as it is, where it is there already
		return err
	}
	settings := client.SubscriptionSettings{Start: &start, MaxAttempts: &attempts, Backoff: &client.BackoffSettings{Initial: &pause}}
	if _, _, err := c.PutSubscription(ctx, topic, subscription, settings); err != nil {
		return err
	}
	p, err := client.NewProducer(c, topic)
	if err != nil {
		return err
	}
	for _, to := range []string{"ann", "bob", "nobody", "busy", "cid"} {
		if _, err := p.Send(ctx, client.Record{Value: []byte(to), Kind: client.KindText}); err != nil {
			return err
		}
	}
	return p.Close(ctx)
}
