package main

import (
	"context"
	"time"

	"github.com/forebaymq/forebay/client"
	"github.com/forebaymq/forebay/internal/bench"
)

type benchProducerCmd struct {
	benchFlags
	Partitions   int           `help:"Partitions of the topic, if it is to be made." default:"16"`
	RecordSize   int           `help:"Bytes of key and value of a record." default:"1024"`
	Compress     string        `help:"Compress requests: none, gzip or zstd." enum:"none,gzip,zstd" default:"none"`
	Senders      int           `help:"Goroutines that send through the one producer." default:"4"`
	InFlight     int           `help:"Requests in flight at most; 0 = the producer's default." default:"0"`
	BatchBytes   int           `help:"Most bytes of one request; 0 = the producer's default." default:"0"`
	Duration     time.Duration `help:"How long to measure." default:"10s"`
	Warmup       time.Duration `help:"How long to run before that." default:"2s"`
	Compressible float64       `help:"Share of each value that compresses away, 0 to 1." default:"0.5"`
	Seed         uint64        `help:"Seed of keys and values." default:"1"`
}

func (c *benchProducerCmd) Run(ctx context.Context, e *env) error {
	encoding := client.Encoding(c.Compress)
	if c.Compress == "none" {
		encoding = client.Identity
	}
	opts := []client.Option{client.WithEncoding(encoding)}
	if c.H2C {
		opts = append(opts, client.WithH2C())
	}
	cl, err := c.client(e, opts...) // with its retries: they are the producer's
	if err != nil {
		return err
	}
	defer cl.Close()
	o := bench.ProducerOptions{
		Client: cl, Topic: c.Topic, RecordSize: c.RecordSize, Senders: c.Senders, InFlight: c.InFlight, BatchBytes: c.BatchBytes,
		Duration: c.Duration, Warmup: c.Warmup, Compressible: c.Compressible, Seed: c.Seed,
	}
	if err := o.Validate(); err != nil {
		return usageError{err}
	}
	ctx, stop := withSignals(ctx)
	defer stop()
	if _, err := ensureTopic(ctx, cl, c.Topic, c.Partitions); err != nil {
		return err
	}
	report, err := bench.Producer(ctx, o)
	return printResult(&c.benchFlags, e, report, err)
}
