package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/client"
)

type dlqCmd struct {
	List    dlqListCmd    `cmd:"" help:"List the dead letters of a subscription."`
	Redrive dlqRedriveCmd `cmd:"" help:"Deliver dead letters again, their attempts counted from one."`
	Discard dlqDiscardCmd `cmd:"" help:"Forget dead letters. Their records stay in the topic."`
	Task    dlqTaskCmd    `cmd:"" help:"Show how far a redrive is."`
	Cancel  dlqCancelCmd  `cmd:"" help:"Stop a redrive. What it has redriven stays so."`
}

type dlqListCmd struct {
	queueFlags
	Records bool   `help:"With the records themselves, as JSON lines (--output json)."`
	Limit   int64  `help:"Most dead letters; 0 = all." default:"0"`
	Output  string `help:"text, or json: one dead letter a line." enum:"text,json" default:"text"`
}

func (c *dlqListCmd) Run(ctx context.Context, e *env) error {
	switch {
	case c.Limit < 0:
		return usagef("--limit must not be negative")
	case c.Records && c.Output != "json":
		return usagef("--records needs --output json")
	}
	cl, err := c.client(e)
	if err != nil {
		return err
	}
	defer cl.Close()
	w := tabwriter.NewWriter(e.out, 0, 8, 2, ' ', 0)
	if c.Output == "text" {
		fmt.Fprintln(w, "RECORD\tATTEMPTS\tFIRST FAILED\tDEAD SINCE\tREASON")
	}
	o := client.DeadLetterOptions{Records: c.Records, Page: api.MaxListLimit}
	if c.Limit > 0 {
		o.Page = int(min(c.Limit, api.MaxListLimit))
	}
	listed := int64(0)
	for d, err := range cl.DeadLetters(ctx, c.Topic, c.Subscription, o) {
		if err != nil {
			if listed == 0 {
				return err // without the head of a table that is not there
			}
			return errors.Join(w.Flush(), err)
		}
		if c.Output == "json" {
			if err := printJSON(e.out, d.JSON); err != nil {
				return err
			}
		} else {
			reason := strings.Join(strings.Fields(d.Reason), " ")
			if d.Expired {
				reason += " (the record has expired)"
			}
			fmt.Fprintf(w, "%d:%d\t%d\t%s\t%s\t%s\n", d.Partition, d.Offset, d.Attempts, moment(d.FirstFailedAt), moment(d.DeadAt), reason)
		}
		if listed++; listed == c.Limit {
			break
		}
	}
	return w.Flush()
}

func moment(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02T15:04:05Z")
}

// selectionFlags name dead letters.
type selectionFlags struct {
	All    bool     `help:"All of them." xor:"which"`
	Offset []string `help:"This one; may be repeated." xor:"which" placeholder:"PARTITION:OFFSET"`
}

func (f *selectionFlags) selection() (client.DeadLetterSelection, error) {
	positions, err := parsePositions(f.Offset)
	switch {
	case err != nil:
		return client.DeadLetterSelection{}, err
	case !f.All && len(positions) == 0:
		return client.DeadLetterSelection{}, usagef("which dead letters? --all or --offset PARTITION:OFFSET")
	case len(positions) > api.MaxRedriveOffsets:
		return client.DeadLetterSelection{}, usagef("--offset: at most %d", api.MaxRedriveOffsets)
	}
	return client.DeadLetterSelection{All: f.All, Offsets: positions}, nil
}

type dlqRedriveCmd struct {
	queueFlags
	selectionFlags
	Rate     int           `help:"Records a second; 0 = the server's default." default:"0"`
	Poll     time.Duration `help:"How often to look how far it is." default:"500ms"`
	NoWait   bool          `help:"Print the task's ID at once, instead of waiting for its end."`
	Progress bool          `help:"Show a progress bar, if standard error is a terminal." default:"true" negatable:""`
	Output   string        `help:"text, or json: the task on one line." enum:"text,json" default:"text"`
}

func (c *dlqRedriveCmd) Run(ctx context.Context, e *env) error {
	sel, err := c.selection()
	if err != nil {
		return err
	}
	if c.Rate < 0 || c.Rate > api.MaxRedriveRate {
		return usagef("--rate must be 0 to %d", api.MaxRedriveRate)
	}
	if c.Poll < 10*time.Millisecond {
		return usagef("--poll must be 10ms or more")
	}
	cl, err := c.client(e)
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, stop := withSignals(ctx)
	defer stop()
	task, err := cl.Redrive(ctx, c.Topic, c.Subscription, sel, c.Rate)
	if err != nil {
		return err
	}
	if !c.NoWait {
		if task, err = c.watch(ctx, e, cl, task); err != nil {
			return err
		}
	}
	if err := printTask(e, task, c.Output); err != nil {
		return err
	}
	if task.State == client.TaskCancelled {
		return fmt.Errorf("the redrive was cancelled after %d of %d", task.Done, task.Total)
	}
	return nil
}

// watch follows a task to its end. It goes on in the server when this side is interrupted.
func (c *dlqRedriveCmd) watch(ctx context.Context, e *env, cl *client.Client, task *client.Task) (*client.Task, error) {
	var bar *progressbar.ProgressBar
	if c.Progress && onTerminal(e.err) {
		bar = progressbar.NewOptions64(max(task.Total, 1),
			progressbar.OptionSetWriter(e.err), progressbar.OptionSetDescription("redrive "+c.Topic+"/"+c.Subscription), progressbar.OptionShowCount(),
			progressbar.OptionShowIts(), progressbar.OptionSetItsString("records"), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionFullWidth())
		defer fmt.Fprintln(e.err)
	}
	ticker := time.NewTicker(c.Poll)
	defer ticker.Stop()
	for task.State == client.TaskRunning {
		if bar != nil {
			_ = bar.Set64(min(task.Done, max(task.Total, 1)))
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
		next, err := cl.Task(ctx, c.Topic, c.Subscription, task.ID)
		if err != nil {
			id := fmt.Sprintf("%s --topic %s %s", c.Subscription, c.Topic, task.ID)
			return nil, fmt.Errorf("the redrive goes on in the server, after %d of %d; forebay dlq task %s shows it, forebay dlq cancel %s stops it: %w", task.Done, task.Total, id, id, err)
		}
		task = next
	}
	if bar != nil {
		_ = bar.Set64(min(task.Done, max(task.Total, 1)))
	}
	return task, nil
}

func printTask(e *env, t *client.Task, output string) error {
	if output == "json" {
		return printJSON(e.out, t.JSON)
	}
	_, err := fmt.Fprintf(e.out, "task %s: %s, %d of %d\n", t.ID, t.State, t.Done, t.Total)
	return err
}

type dlqDiscardCmd struct {
	queueFlags
	selectionFlags
	Output string `help:"text or json." enum:"text,json" default:"text"`
}

func (c *dlqDiscardCmd) Run(ctx context.Context, e *env) error {
	sel, err := c.selection()
	if err != nil {
		return err
	}
	cl, err := c.client(e)
	if err != nil {
		return err
	}
	defer cl.Close()
	n, err := cl.Discard(ctx, c.Topic, c.Subscription, sel)
	if err != nil {
		return err
	}
	if c.Output == "json" {
		return printJSON(e.out, map[string]int64{"discarded": n})
	}
	_, err = fmt.Fprintf(e.out, "%d dead letters discarded\n", n)
	return err
}

type dlqTaskCmd struct {
	queueFlags
	ID     string `arg:"" help:"As redrive printed it."`
	Output string `help:"text, or json: the task on one line." enum:"text,json" default:"text"`
}

func (c *dlqTaskCmd) Run(ctx context.Context, e *env) error {
	return c.do(ctx, e, (*client.Client).Task)
}

type dlqCancelCmd struct{ dlqTaskCmd }

func (c *dlqCancelCmd) Run(ctx context.Context, e *env) error {
	return c.do(ctx, e, (*client.Client).CancelTask)
}

type taskCall func(cl *client.Client, ctx context.Context, topic, subscription, id string) (*client.Task, error)

func (c *dlqTaskCmd) do(ctx context.Context, e *env, call taskCall) error {
	cl, err := c.client(e)
	if err != nil {
		return err
	}
	defer cl.Close()
	task, err := call(cl, ctx, c.Topic, c.Subscription, c.ID)
	if err != nil {
		return err
	}
	return printTask(e, task, c.Output)
}
