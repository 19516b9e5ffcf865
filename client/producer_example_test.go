package client_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/forebaymq/forebay/client"
)

func ExampleProducer() {
	server := fakeServer() // in real life: "http://127.0.0.1:8080", and a token
	defer server.Close()
	c, err := client.New(server.URL, client.WithToken("secret"))
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	p, err := client.NewProducer(c, "orders", client.WithProducerLinger(10*time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()

	// Many records: hand them over, and look at their outcomes later.
	var deliveries []*client.Delivery
	for i := range 3 {
		d, err := p.Send(ctx, client.Record{Key: []byte("customer-1"), Value: fmt.Appendf(nil, `{"order":%d}`, i), Kind: client.KindJSON})
		if err != nil {
			log.Fatal(err) // not taken: too large, or the context ended while the buffer was full
		}
		deliveries = append(deliveries, d)
	}
	for _, d := range deliveries {
		at, err := d.Wait(ctx)
		if outcome, _ := client.Classify(err); outcome == client.Indefinite {
			log.Printf("stored or not, who knows: %v", err)
			continue
		} else if err != nil {
			log.Fatal(err) // not stored
		}
		fmt.Printf("partition %d, offset %d\n", at.Partition, at.Offset)
	}

	// One record: wait until it is stored.
	at, err := p.Publish(ctx, client.Record{Key: []byte("customer-1"), Value: []byte("bye"), Kind: client.KindText})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("partition %d, offset %d\n", at.Partition, at.Offset)

	// The end: what was sent is delivered, for at most 30 seconds.
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := p.Close(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// partition 0, offset 0
	// partition 0, offset 1
	// partition 0, offset 2
	// partition 0, offset 3
}

// A source that can be read again, such as a file, is fed by position: however often the program dies, each line is stored once.
func ExampleProducer_SendAt() {
	server := fakeServer()
	defer server.Close()
	c, err := client.New(server.URL, client.WithToken("secret"))
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	ctx := context.Background()

	feed := func(source string) error {
		p, err := client.NewProducer(c, "orders", client.WithProducerID("orders-feed"))
		if err != nil {
			return err
		}
		lines := bufio.NewScanner(strings.NewReader(source))
		for n := int64(1); lines.Scan() && err == nil; n++ {
			_, err = p.SendAt(ctx, client.Record{Value: lines.Bytes(), Kind: client.KindText}, n)
		}
		return errors.Join(err, p.Close(ctx))
	}
	if err := feed("one\ntwo\n"); err != nil { // it dies here ...
		log.Fatal(err)
	}
	if err := feed("one\ntwo\nthree\n"); err != nil { // ... and begins anew
		log.Fatal(err)
	}
	fmt.Println(server.values())
	// Output: [one two three]
}

type exampleServer struct {
	*httptest.Server
	values func() []string
}

// fakeServer keeps records in memory: a topic of one partition.
func fakeServer() exampleServer {
	server, values := client.FakeProducerServer()
	return exampleServer{server, values}
}
