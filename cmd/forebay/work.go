package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/client"
	"github.com/forebaymq/forebay/internal/work"
)

type workCmd struct {
	queueFlags
	Command     []string       `arg:"" optional:"" help:"Command to run for each record, after --: the value on its standard input, the rest in RECORD_KEY, RECORD_PARTITION, RECORD_OFFSET, RECORD_ATTEMPT, RECORD_HEADERS (JSON) and others. Exit status 0 acks, anything else nacks with the last line of its standard error. Without a command records are printed as JSON lines and acked."`
	Batch       int            `help:"Records of a lease; 0 = as many as commands may be started at once (100 without a command)." default:"0"`
	Concurrency int            `help:"Commands at a time." default:"1"`
	Visibility  *time.Duration `help:"How long leases live between extensions (default: the subscription's). After a crash of the worker its records wait that long." placeholder:"DURATION"`
	Wait        time.Duration  `help:"How long one lease waits for records, at most 30s." default:"20s"`
	NackDelay   *time.Duration `help:"Pause before a failed record is delivered again (default: the subscription's backoff)." placeholder:"DURATION"`
	TimeLimit   time.Duration  `help:"End a command that takes longer, and nack its record; 0 = no limit." default:"0"`
	Once        bool           `help:"End after one lease." xor:"until"`
	UntilEmpty  bool           `help:"End when nothing can be leased. Records that are delayed, backing off or leased by others are not waited for." xor:"until"`
	Output      string         `help:"How to print the summary, on standard error: text or json." enum:"text,json" default:"text"`
}

// workSummary is what a worker did.
type workSummary struct {
	Topic        string `json:"topic"`
	Subscription string `json:"subscription"`
	client.WorkerStats
	Seconds float64 `json:"seconds"`
	Error   string  `json:"error,omitempty"`
}

func (c *workCmd) validate() error {
	switch {
	case c.Batch < 0 || c.Batch > api.MaxLeaseRecords:
		return usagef("--batch must be 0 to %d", api.MaxLeaseRecords)
	case c.Concurrency < 1 || c.Concurrency > api.MaxLeaseRecords:
		return usagef("--concurrency must be 1 to %d", api.MaxLeaseRecords)
	case c.Visibility != nil && (*c.Visibility < api.MinVisibility || *c.Visibility > api.MaxVisibility):
		return usagef("--visibility must be %s to %s", api.MinVisibility, api.MaxVisibility)
	case c.Wait < 0 || c.Wait > api.MaxWait:
		return usagef("--wait must be 0 to %s", api.MaxWait)
	case c.NackDelay != nil && (*c.NackDelay < 0 || *c.NackDelay > api.MaxNackDelay):
		return usagef("--nack-delay must be 0 to %s", api.MaxNackDelay)
	case c.TimeLimit < 0:
		return usagef("--time-limit must not be negative")
	case len(c.Command) == 0 && (c.Concurrency != 1 || c.NackDelay != nil || c.TimeLimit != 0):
		return usagef("--concurrency, --nack-delay and --time-limit are for commands, and there is none (after --)")
	}
	if len(c.Command) > 0 {
		// A command that is not there would make a dead letter of every record.
		if _, err := exec.LookPath(c.Command[0]); err != nil {
			return usageError{err}
		}
	}
	return nil
}

func (c *workCmd) Run(ctx context.Context, e *env) error {
	if err := c.validate(); err != nil {
		return err
	}
	// Retries, signals, commands and records tell their troubles at the same time.
	locked := *e
	locked.err = work.LockWriter(e.err)
	e = &locked
	policy := c.retryPolicy(e)
	if len(c.Command) > 0 {
		policy.Notify = nil // the worker tells
	}
	cl, err := c.client(e, client.WithRetry(policy))
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, drain, stop := drainSignals(ctx, e)
	defer stop()
	begin := time.Now()
	var stats client.WorkerStats
	if len(c.Command) > 0 {
		stats, err = c.commands(ctx, e, cl, drain)
	} else {
		stats, err = c.lines(ctx, e, cl, drain)
	}
	if err == nil && (c.Once || c.UntilEmpty) && !stats.Whole() {
		err = fmt.Errorf("%d of %d records were not acked", stats.Leased-stats.Acked, stats.Leased)
	}
	err = explainQueue(err)
	return errors.Join(c.summary(e, stats, time.Since(begin), err), err)
}

// commands runs the command for each record.
func (c *workCmd) commands(ctx context.Context, e *env, cl *client.Client, drain <-chan struct{}) (client.WorkerStats, error) {
	command := &work.Command{
		Args: c.Command, Environ: e.environ, Topic: c.Topic, Subscription: c.Subscription,
		Stdout: shared(e.out), Stderr: e.err, TimeLimit: c.TimeLimit,
	}
	opts := []client.WorkerOption{
		client.WithWorkerConcurrency(c.Concurrency), client.WithWorkerBatch(c.Batch), client.WithWorkerWait(c.Wait),
		client.WithWorkerGrace(0),  // the first signal stops it, the second one ends ctx
		client.WithWorkerOutage(0), // --retry-for has passed by then
		client.WithWorkerNotify(func(m *client.Message, err error) {
			if m == nil {
				fmt.Fprintf(e.err, "forebay: %v; trying again\n", err)
				return
			}
			fmt.Fprintf(e.err, "forebay: record %d:%d, attempt %d: %v\n", m.Partition, m.Offset, m.Attempt, err)
		}),
	}
	if c.Visibility != nil {
		opts = append(opts, client.WithWorkerVisibility(*c.Visibility))
	}
	if c.NackDelay != nil {
		opts = append(opts, client.WithWorkerNackDelay(func(*client.Message, error) time.Duration { return *c.NackDelay }))
	}
	if c.Once {
		opts = append(opts, client.WithWorkerOnce())
	}
	if c.UntilEmpty {
		opts = append(opts, client.WithWorkerUntilEmpty())
	}
	w, err := client.NewWorker(cl, c.Topic, c.Subscription, command.Handle, opts...)
	if err != nil {
		return client.WorkerStats{}, err
	}
	ended, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-drain:
			w.Stop()
		case <-ended:
		}
	}()
	defer func() { close(ended); <-watched }()
	return w.Run(ctx)
}

// shared gives a writer that several commands may use: a file as it is, so that it is theirs without a detour.
func shared(w io.Writer) io.Writer {
	if f, ok := w.(*os.File); ok {
		return f
	}
	return work.LockWriter(w)
}

// lines prints records.
func (c *workCmd) lines(ctx context.Context, e *env, cl *client.Client, drain <-chan struct{}) (client.WorkerStats, error) {
	w := bufio.NewWriterSize(e.out, 64<<10)
	o := client.LeaseOptions{Max: c.Batch, Wait: c.Wait}
	if c.Visibility != nil {
		o.Visibility = *c.Visibility
	}
	if o.Max == 0 {
		o.Max = 100
	}
	return work.Print(ctx, work.PrintOptions{
		Queue: &work.Remote{Client: cl, Topic: c.Topic, Subscription: c.Subscription}, Lease: o, Once: c.Once, UntilEmpty: c.UntilEmpty, Drain: drain,
		Print: func(messages []client.RawMessage) error {
			for i := range messages {
				if err := printLine(w, messages[i].JSON); err != nil {
					return err
				}
			}
			return w.Flush()
		},
		Notify: func(receipt string, err error) { fmt.Fprintf(e.err, "forebay: printed, but not acked: %v\n", err) },
	})
}

func (c *workCmd) summary(e *env, s client.WorkerStats, took time.Duration, failure error) error {
	if c.Output == "json" {
		sum := workSummary{Topic: c.Topic, Subscription: c.Subscription, WorkerStats: s, Seconds: took.Seconds()}
		if failure != nil {
			sum.Error = failure.Error()
		}
		return printJSON(e.err, sum)
	}
	text := fmt.Sprintf("%d records leased from %s/%s: %d acked", s.Leased, c.Topic, c.Subscription, s.Acked)
	for _, more := range []struct {
		n    int64
		what string
	}{
		{s.Nacked, "nacked"},
		{s.Lost, "lost (the lease was gone: they are delivered again)"},
		{s.GivenBack, "given back"},
		{s.Unsettled, "not settled (the server could not be told: they are delivered again)"},
	} {
		if more.n > 0 {
			text += fmt.Sprintf(", %d %s", more.n, more.what)
		}
	}
	_, err := fmt.Fprintf(e.err, "%s, in %s\n", text, took.Round(time.Millisecond))
	return err
}
