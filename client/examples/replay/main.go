// Command replay reads on where it was the last time: its positions are in a file.
//
//	make run                                      # in another terminal
//	export FOREBAY_TOKEN=$(cat .forebay/token)
//	go run ./client/examples/replay positions.json
//	go run ./client/examples/replay positions.json
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/signal"

	"github.com/forebaymq/forebay/client"
)

const topic = "example-measurements"

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: replay FILE")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, file string) error {
	c, err := client.New(cmp.Or(os.Getenv("FOREBAY_SERVER"), "http://127.0.0.1:8080"), client.WithToken(os.Getenv("FOREBAY_TOKEN")))
	if err != nil {
		return err
	}
	defer c.Close()
	if err := measure(ctx, c); err != nil {
		return err
	}

	var opts []client.ReaderOption // the default: from the first record of all partitions to the present end
	switch positions, err := load(file); {
	case err == nil:
		opts = append(opts, client.WithReaderPositions(positions))
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	r, err := client.NewReader(c, topic, opts...)
	if err != nil {
		return err
	}
	n := 0
	for _, err := range r.Records(ctx) {
		if err != nil {
			return err // an *OutOfRangeError where retention was faster than we are: see WithReaderGap
		}
		n++
	}
	fmt.Printf("%d measurements since the last time\n", n)
	return save(file, r.Positions())
}

// measure publishes ten records.
func measure(ctx context.Context, c *client.Client) error {
	if _, _, err := c.PutTopic(ctx, topic, client.TopicSettings{}); err != nil {
		return err
	}
	p, err := client.NewProducer(c, topic)
	if err != nil {
		return err
	}
	for i := range 10 {
		if _, err := p.Send(ctx, client.Record{Key: fmt.Appendf(nil, "sensor-%d", i), Value: []byte("21.5"), Kind: client.KindJSON}); err != nil {
			return err
		}
	}
	return p.Close(ctx)
}

func load(file string) (positions []client.Position, err error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return positions, json.Unmarshal(raw, &positions)
}

// save replaces the file as a whole: one that is half written would be read as the wrong place.
func save(file string, positions []client.Position) error {
	raw, err := json.Marshal(positions)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", raw, 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
