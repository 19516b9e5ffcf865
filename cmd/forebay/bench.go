package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/client"
	"github.com/forebaymq/forebay/internal/bench"
)

type benchCmd struct {
	Publish  benchPublishCmd  `cmd:"" help:"Throughput and ack latency of publishes."`
	Producer benchProducerCmd `cmd:"" help:"Throughput of one producer of the Go client: batches, an idempotent session, one request a partition."`
	Read     benchReadCmd     `cmd:"" help:"Throughput of a replay of a whole topic."`
	Poll     benchPollCmd     `cmd:"" help:"Time from a publish to the answer of a long poll that waits for it, on an idle system."`
	Queue    benchQueueCmd    `cmd:"" help:"Throughput and latency of lease and ack, and whether each record was settled once."`
	Groups   benchGroupsCmd   `cmd:"" help:"Many consumer groups: memory, what joins, heartbeats and commits cost, and publishes beside them."`
}

// benchFlags are those of every measurement.
type benchFlags struct {
	connectFlags
	Topic  string `help:"Topic to use." default:"bench"`
	Output string `help:"text, or json: one report on one line." enum:"text,json" default:"text"`
	H2C    bool   `name:"h2c" help:"Speak HTTP/2 without TLS."`
}

// once makes a client that does not retry: a refusal is a result.
func (f *benchFlags) once(e *env, opts ...client.Option) (*client.Client, error) {
	opts = append(opts, client.WithRetry(client.RetryPolicy{Attempts: 1}), client.WithConnections(4096))
	if f.H2C {
		opts = append(opts, client.WithH2C())
	}
	return f.client(e, opts...)
}

// ensureTopic makes the topic where it is not there, and gives its number of partitions.
func ensureTopic(ctx context.Context, cl *client.Client, name string, partitions int) (int, error) {
	t, err := cl.GetTopic(ctx, name)
	if errors.Is(err, &client.Error{Code: api.CodeUnknownTopic}) {
		t, _, err = cl.PutTopic(ctx, name, client.TopicSettings{Partitions: &partitions})
	}
	if err != nil {
		return 0, err
	}
	return t.Partitions, nil
}

type printable interface{ Print(w io.Writer) }

func (f *benchFlags) print(e *env, report printable) error {
	if f.Output == "json" {
		return printJSON(e.out, report)
	}
	report.Print(e.out)
	return nil
}

// printResult prints the report of a measurement, also of one that err has cut short. Where there is none, err says why.
func printResult[R any, P interface {
	*R
	printable
}](f *benchFlags, e *env, report P, err error) error {
	if report == nil {
		return err
	}
	return errors.Join(f.print(e, report), err)
}

type benchPublishCmd struct {
	benchFlags
	Partitions   int           `help:"Partitions of the topic, if it is to be made." default:"16"`
	RecordSize   int           `help:"Bytes of key and value of a record." default:"1024"`
	Batch        int           `help:"Records of a request." default:"100"`
	Encoding     string        `help:"protobuf or json." enum:"protobuf,json" default:"protobuf"`
	Compress     string        `help:"Compress requests: none, gzip or zstd." enum:"none,gzip,zstd" default:"none"`
	Clients      int           `help:"Requests in flight at most." default:"16"`
	Duration     time.Duration `help:"How long to measure." default:"10s"`
	Warmup       time.Duration `help:"How long to run before that." default:"2s"`
	Rate         float64       `help:"Records a second (open loop: latency counts from when a request was due); 0 = as fast as answers come (closed loop)." default:"0"`
	Compressible float64       `help:"Share of each value that compresses away, 0 to 1." default:"0.5"`
	Ops          string        `help:"Address of the node's ops port, to count PUTs per GiB." placeholder:"URL"`
	Seed         uint64        `help:"Seed of keys and values." default:"1"`
}

func (c *benchPublishCmd) Run(ctx context.Context, e *env) error {
	encoding := client.Encoding(c.Compress)
	if c.Compress == "none" {
		encoding = client.Identity
	}
	cl, err := c.once(e, client.WithEncoding(encoding))
	if err != nil {
		return err
	}
	defer cl.Close()
	o := bench.PublishOptions{
		Client: cl, Topic: c.Topic, RecordSize: c.RecordSize, Batch: c.Batch, JSON: c.Encoding == "json", Clients: c.Clients,
		Duration: c.Duration, Warmup: c.Warmup, Rate: c.Rate, Compressible: c.Compressible, OpsURL: c.Ops, Seed: c.Seed,
	}
	if err := o.Validate(); err != nil {
		return usageError{err}
	}
	ctx, stop := withSignals(ctx)
	defer stop()
	if _, err := ensureTopic(ctx, cl, c.Topic, c.Partitions); err != nil {
		return err
	}
	report, err := bench.Publish(ctx, o)
	return printResult(&c.benchFlags, e, report, err)
}

type benchReadCmd struct {
	benchFlags
	Encoding string        `help:"protobuf or json." enum:"protobuf,json" default:"protobuf"`
	Clients  int           `help:"Partitions read at a time." default:"8"`
	MaxBytes int64         `help:"Most bytes of one read." default:"4194304"`
	Duration time.Duration `help:"End earlier than at the heads of the partitions; 0 = do not." default:"0"`
}

func (c *benchReadCmd) Run(ctx context.Context, e *env) error {
	cl, err := c.once(e)
	if err != nil {
		return err
	}
	defer cl.Close()
	if c.MaxBytes < 1 || c.MaxBytes > api.MaxReadBytes {
		return usageError{fmt.Errorf("--max-bytes must be 1 to %d", api.MaxReadBytes)}
	}
	ctx, stop := withSignals(ctx)
	defer stop()
	report, err := bench.Read(ctx, bench.ReadOptions{
		Client: cl, Topic: c.Topic, JSON: c.Encoding == "json", Clients: c.Clients, MaxBytes: c.MaxBytes, Duration: c.Duration,
	})
	return printResult(&c.benchFlags, e, report, err)
}

type benchPollCmd struct {
	benchFlags
	Partition  int           `help:"Partition to use." default:"0"`
	RecordSize int           `help:"Bytes of the value." default:"1024"`
	Count      int           `help:"Records to publish." default:"100"`
	Interval   time.Duration `help:"Pause before each, so that the system is idle." default:"200ms"`
}

func (c *benchPollCmd) Run(ctx context.Context, e *env) error {
	cl, err := c.once(e)
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, stop := withSignals(ctx)
	defer stop()
	if _, err := ensureTopic(ctx, cl, c.Topic, c.Partition+1); err != nil {
		return err
	}
	report, err := bench.Poll(ctx, bench.PollOptions{
		Client: cl, Topic: c.Topic, Partition: c.Partition, RecordSize: c.RecordSize, Count: c.Count, Interval: c.Interval,
	})
	if err != nil {
		return err
	}
	return c.print(e, report)
}
