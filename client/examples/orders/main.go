// Command orders publishes orders with a Producer and reads them back with a Reader.
//
//	make run                                      # in another terminal
//	export FOREBAY_TOKEN=$(cat .forebay/token)
//	go run ./client/examples/orders
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"maps"
	"os"
	"os/signal"
	"slices"

	"github.com/forebaymq/forebay/client"
)

const topic = "example-orders"

type order struct {
	Customer string `json:"customer"`
	Total    int    `json:"total"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
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
	// No settings: the topic gets the server's defaults, or stays as it is where it is there already.
	if _, _, err := c.PutTopic(ctx, topic, client.TopicSettings{}); err != nil {
		return err
	}
	if err := publish(ctx, c); err != nil {
		return err
	}
	return totals(ctx, c)
}

// publish sends three orders of each customer. The customer is the key, so the orders of one stay in their order.
func publish(ctx context.Context, c *client.Client) error {
	p, err := client.NewProducer(c, topic)
	if err != nil {
		return err
	}
	for i := range 9 {
		o := order{Customer: []string{"ann", "bob", "cid"}[i%3], Total: 10 * (i + 1)}
		value, err := json.Marshal(o)
		if err != nil {
			return err
		}
		// Send returns at once; the Delivery that it gives tells when the record is stored, and where. Here it is enough that all are.
		if _, err := p.Send(ctx, client.Record{Key: []byte(o.Customer), Value: value, Kind: client.KindJSON}); err != nil {
			return err
		}
	}
	return p.Close(ctx) // waits until all are stored, and says if one is not
}

// totals reads the topic from its first record to its present end.
func totals(ctx context.Context, c *client.Client) error {
	r, err := client.NewReader(c, topic)
	if err != nil {
		return err
	}
	count, sum := map[string]int{}, map[string]int{}
	for record, err := range r.Records(ctx) {
		if err != nil {
			return err
		}
		var o order
		if err := json.Unmarshal(record.Value, &o); err != nil {
			return fmt.Errorf("record %d of partition %d: %w", record.Offset, record.Partition, err)
		}
		count[o.Customer]++
		sum[o.Customer] += o.Total
	}
	for _, customer := range slices.Sorted(maps.Keys(count)) {
		fmt.Printf("%s: %d orders, %d in all\n", customer, count[customer], sum[customer])
	}
	return nil
}
