package main

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/forebaymq/forebay/client"
	"github.com/forebaymq/forebay/internal/bench"
)

type benchQueueCmd struct {
	benchFlags
	Backlog    int64         `help:"Records that are there when the clock starts, at least; what is missing is published first. A topic that has them is used again." default:"500000"`
	Partitions int           `help:"Partitions of the topic, if it is to be made." default:"16"`
	RecordSize int           `help:"Bytes of key and value of a record that is published." default:"1024"`
	Batch      int           `help:"Records of a lease, acked in one request." default:"100"`
	Encoding   string        `help:"protobuf or json." enum:"protobuf,json" default:"protobuf"`
	Clients    int           `help:"Consumers; each leases, acks, and leases again. With --pickup: parked leases." default:"16"`
	Duration   time.Duration `help:"How long to measure; 0 = until the backlog is settled." default:"10s"`
	Warmup     time.Duration `help:"How long to run before that." default:"1s"`
	RequestIDs bool          `name:"request-ids" help:"Make leases repeatable, as the client library does where it retries."`
	Transport  string        `help:"lean: an HTTP/1.1 connection that costs little of a machine which client and server share; standard: that of other clients, which --h2c and https:// need." enum:"lean,standard" default:"lean"`
	Keep       bool          `help:"Leave the subscription behind."`
	Seed       uint64        `help:"Seed of keys and values." default:"1"`
	Progress   bool          `help:"Show a progress bar while publishing, if standard error is a terminal." default:"true" negatable:""`
	Pickup     bool          `help:"Measure instead the time from a publish to the answer of a parked lease, on an idle system."`
	Count      int           `help:"With --pickup: records to publish." default:"100"`
	Interval   time.Duration `help:"With --pickup: pause before each, so that the system is idle." default:"200ms"`
}

func (c *benchQueueCmd) Run(ctx context.Context, e *env) error {
	var opts []client.Option
	if c.Transport == "lean" && !c.H2C && strings.HasPrefix(c.Server, "http://") {
		opts = append(opts, client.WithHTTPClient(&http.Client{
			Transport: &bench.Transport{}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}))
	}
	cl, err := c.once(e, opts...)
	if err != nil {
		return err
	}
	defer cl.Close()
	o := bench.QueueOptions{
		Client: cl, Topic: c.Topic, Backlog: c.Backlog, RecordSize: c.RecordSize, Batch: c.Batch, JSON: c.Encoding == "json", Clients: c.Clients,
		Warmup: c.Warmup, Duration: c.Duration, RequestIDs: c.RequestIDs, Keep: c.Keep, Seed: c.Seed,
	}
	if err := o.Validate(); err != nil {
		return usageError{err}
	}
	ctx, stop := withSignals(ctx)
	defer stop()
	if _, err := ensureTopic(ctx, cl, c.Topic, c.Partitions); err != nil {
		return err
	}
	if c.Pickup {
		report, err := bench.Pickup(ctx, bench.PickupOptions{QueueOptions: o, Count: c.Count, Interval: c.Interval})
		return printResult(&c.benchFlags, e, report, err)
	}
	if c.Progress && onTerminal(e.err) {
		bar := progressbar.NewOptions64(c.Backlog,
			progressbar.OptionSetWriter(e.err), progressbar.OptionSetDescription("backlog of "+c.Topic), progressbar.OptionShowCount(),
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionFullWidth(), progressbar.OptionClearOnFinish())
		o.Progress = func(done, all int64) {
			bar.ChangeMax64(all)
			_ = bar.Set64(done)
		}
	}
	report, err := bench.Queue(ctx, o)
	return printResult(&c.benchFlags, e, report, err)
}
