package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/forebaymq/forebay/client"
	"github.com/forebaymq/forebay/internal/work"
)

type consumeCmd struct {
	connectFlags
	Command        []string      `arg:"" optional:"" help:"Command to run for each record, after --: the value on its standard input, the rest in RECORD_TOPIC, RECORD_KEY, RECORD_PARTITION, RECORD_OFFSET, RECORD_GROUP, RECORD_HEADERS (JSON) and others. Records of one key one after the other, in order. Exit status 0 means done. Without a command records are printed as JSON lines, and committed once they are written."`
	Group          string        `help:"Group to be a member of. It is made where there is none." required:"" placeholder:"GROUP"`
	Topic          []string      `help:"Topic to read; several with commas, or repeated." required:"" placeholder:"TOPIC"`
	Start          string        `help:"Where the group begins on partitions that it has no offset for: latest or earliest. Decided once." enum:"latest,earliest" default:"latest"`
	InstanceID     string        `help:"Static membership: a process that starts with the instance of another one takes over what that owned, and nothing else moves. It does not leave when it ends." placeholder:"ID"`
	SessionTimeout time.Duration `help:"After how long without a sign of life others get the partitions, 1s to 5m." default:"10s"`
	UntilCaughtUp  bool          `help:"End when the lag of all partitions that this member owns is 0. What other members own is theirs to read: beside them the group may still be behind."`
	Max            int64         `help:"End after so many records; 0 = no limit. The others are left to the next member, or run. Commands get those of each partition one after the other then." default:"0"`
	Concurrency    int           `help:"Commands at a time." default:"1"`
	TimeLimit      time.Duration `help:"End a command that takes longer; it has failed then. 0 = no limit." default:"0"`
	OnFailure      string        `help:"When a command fails: stop (end; its record is not committed), retry (after a pause, until it succeeds) or skip (commit it all the same)." enum:"stop,retry,skip" default:"stop"`
	Output         string        `help:"How to print the summary, on standard error: text or json." enum:"text,json" default:"text"`
}

// consumeSummary is what a consumer did.
type consumeSummary struct {
	Group   string   `json:"group"`
	Topics  []string `json:"topics"`
	Records int64    `json:"records"` // printed, or handled by a command
	Skipped int64    `json:"skipped"` // of them: the command failed
	Repeats int64    `json:"repeats"` // of them: not committed, so they come again
	Lost    int64    `json:"lost"`    // partitions that others got before what was done could be committed
	Seconds float64  `json:"seconds"`
	Error   string   `json:"error,omitempty"`
}

// consumeGrace is how long partitions that go to somebody else wait for records that are being printed. Standard output may be a pipe into something
// that takes its time; what is not written by then is not committed.
const consumeGrace = 5 * time.Second

func (c *consumeCmd) validate() error {
	switch {
	case c.SessionTimeout < time.Second || c.SessionTimeout > 5*time.Minute:
		return usagef("--session-timeout must be 1s to 5m")
	case c.Max < 0:
		return usagef("--max must not be negative")
	case c.Concurrency < 1 || c.Concurrency > 1000:
		return usagef("--concurrency must be 1 to 1000")
	case c.TimeLimit < 0:
		return usagef("--time-limit must not be negative")
	case len(c.Command) == 0 && (c.Concurrency != 1 || c.TimeLimit != 0 || c.OnFailure != "stop"):
		return usagef("--concurrency, --time-limit and --on-failure are for commands, and there is none (after --)")
	}
	if len(c.Command) > 0 {
		if _, err := exec.LookPath(c.Command[0]); err != nil {
			return usageError{err}
		}
	}
	return nil
}

func (c *consumeCmd) Run(ctx context.Context, e *env) error {
	if err := c.validate(); err != nil {
		return err
	}
	// Signals, retries, commands and the consumer tell their troubles at the same time.
	locked := *e
	locked.err = work.LockWriter(e.err)
	e = &locked
	cl, err := c.client(e)
	if err != nil {
		return err
	}
	defer cl.Close()
	working, drain, stop := c.signals(ctx, e)
	defer stop()
	var consumer *client.Consumer
	consumer, err = client.NewConsumer(cl, c.Group, c.Topic, c.options(e, func() bool { return consumer.Stats().State == "draining" })...)
	if err != nil {
		return usageError{err}
	}
	begin := time.Now()
	reading, end := context.WithCancelCause(working)
	defer end(nil)
	ended := make(chan struct{})
	go func() { // ends reading when it is drained
		defer close(ended)
		select {
		case <-drain:
			if len(c.Command) == 0 {
				fmt.Fprintln(e.err, "forebay: committing what is printed; a second signal ends it")
			}
			end(nil)
		case <-reading.Done():
		}
	}()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if c.UntilCaughtUp {
			end(c.watch(reading, cl, consumer))
		}
	}()
	caughtUp := false
	if len(c.Command) > 0 {
		err = c.commands(working, reading, e, consumer)
	} else {
		err = c.lines(reading, e, consumer)
	}
	cause := context.Cause(reading)
	end(nil)
	<-ended
	<-watched
	if cause != nil && !errors.Is(cause, context.Canceled) && cause != errCaughtUp && err == nil {
		err = cause
	}
	if c.UntilCaughtUp && cause == errCaughtUp && err == nil {
		caughtUp = true
	}
	err = explainConsume(err, c.Group)
	return errors.Join(c.summary(e, consumer.Stats(), time.Since(begin), caughtUp, err), err)
}

// signals gives a channel that closes at the first signal, when reading is to end. The second one ends working, and with it the commands that run. Where
// there are none it has its usual effect: printing may hang in standard output.
func (c *consumeCmd) signals(ctx context.Context, e *env) (working context.Context, drain <-chan struct{}, stop func()) {
	if len(c.Command) > 0 {
		return drainSignals(ctx, e)
	}
	signalled, stop := withSignals(ctx)
	return context.WithoutCancel(ctx), signalled.Done(), stop
}

// options makes the consumer's. ends says whether it is ending: that it gives up everything then is nothing to tell.
func (c *consumeCmd) options(e *env, ends func() bool) []client.ConsumerOption {
	say := func(what string, places string) { fmt.Fprintf(e.err, "forebay: %s %s\n", what, places) }
	told := &troubles{to: e.err, now: time.Now}
	o := []client.ConsumerOption{
		client.WithConsumerStart(c.Start),
		client.WithConsumerSession(c.SessionTimeout),
		client.WithConsumerConcurrency(c.Concurrency),
		client.WithConsumerNotify(func(err error) {
			if _, unfinished := errors.AsType[*client.UnfinishedError](err); unfinished && ends() {
				return // the summary says how many records come again
			}
			told.tell(err)
		}),
		client.WithConsumerOnAssigned(func(partitions []client.GroupOffset) {
			all := make([]client.TopicPartition, len(partitions))
			for i, p := range partitions {
				all[i] = client.TopicPartition{Topic: p.Topic, Partition: p.Partition}
			}
			say("reads", places(all))
		}),
		client.WithConsumerOnRevoked(func(partitions []client.TopicPartition) {
			if !ends() {
				say("gives up", places(partitions))
			}
		}),
		client.WithConsumerOnLost(func(partitions []client.TopicPartition) { say("has lost", places(partitions)) }),
	}
	if c.InstanceID != "" {
		o = append(o, client.WithConsumerInstanceID(c.InstanceID))
	}
	if len(c.Command) == 0 {
		o = append(o, client.WithConsumerGrace(consumeGrace))
		if c.Max > 0 {
			o = append(o, client.WithConsumerPollRecords(1)) // so that nothing is handed out beyond the limit
		}
	}
	if len(c.Command) > 0 && c.Max > 0 {
		// Of several keys the first records would be done before others that are in front of them, which the limit leaves: they would come again.
		o = append(o, client.WithConsumerOrder(client.OrderByPartition))
	}
	action := map[string]client.FailureAction{"stop": client.FailureStop, "retry": client.FailureRetry, "skip": client.FailureSkip}[c.OnFailure]
	return append(o, client.WithConsumerFailure(func(_ context.Context, r *client.GroupRecord, err error, _ int) client.FailureAction {
		if errors.Is(err, errEnough) || errors.Is(err, errSecondSignal) {
			return client.FailureStop
		}
		if action == client.FailureSkip {
			fmt.Fprintf(e.err, "forebay: record %d of %s partition %d is skipped: %v\n", r.Offset, r.Topic, r.Partition, err)
		}
		return action
	}))
}

// troubles tells of the failures that a consumer deals with by itself. With a server that is away every partition has the same to say, several times a
// second: of each kind one is told in a while.
type troubles struct {
	to  io.Writer
	now func() time.Time
	mu  struct {
		sync.Mutex
		told map[string]time.Time // by code; "" = no answer
	}
}

const troubleEvery = 2 * time.Second

func (t *troubles) tell(err error) {
	if errors.Is(err, client.ErrStaleGeneration) {
		return // members come and go
	}
	if e, ok := errors.AsType[*client.Error](err); ok && !t.first(string(e.Code)) {
		return
	}
	fmt.Fprintf(t.to, "forebay: %v\n", err)
}

func (t *troubles) first(kind string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	if last, ok := t.mu.told[kind]; ok && now.Sub(last) < troubleEvery {
		return false
	}
	if t.mu.told == nil {
		t.mu.told = map[string]time.Time{}
	}
	t.mu.told[kind] = now
	return true
}

var errCaughtUp = errors.New("caught up")

// watch waits until the member has nothing to do: everything that it owns is committed up to the head (errCaughtUp). nil: ctx has ended. Whoever
// waits for the end of the command is not to wait for ever: a server that is away, or takes no commits, is waited for as long as patience says.
func (c *consumeCmd) watch(ctx context.Context, cl *client.Client, consumer *client.Consumer) error {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	member := time.Now() // when it was one, the last time
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
		switch consumer.Stats().State {
		case "stable":
			member = time.Now()
		case "joining", "rejoining":
			if away := time.Since(member); away > c.patience() {
				return fmt.Errorf("not a member of group %s for %s", c.Group, away.Round(time.Second))
			}
			continue
		default:
			continue
		}
		if err := c.commit(ctx, consumer); errors.Is(err, client.ErrPartitionLost) {
			continue // others read it
		} else if err != nil {
			return err
		}
		g, err := cl.GetGroup(ctx, c.Group)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, client.ErrUnknownGroup):
			continue // it was deleted; the consumer joins again
		case err != nil:
			return fmt.Errorf("see whether all is read: %w", err)
		case caughtUp(g, consumer):
			return errCaughtUp
		}
	}
}

// commit commits what is done.
func (c *consumeCmd) commit(ctx context.Context, consumer *client.Consumer) error {
	ctx, cancel := context.WithTimeout(ctx, c.patience())
	defer cancel()
	return consumer.Commit(ctx)
}

// patience is --retry-for, but not so short that a session that lapses ends the command.
func (c *consumeCmd) patience() time.Duration { return max(c.RetryFor, 2*c.SessionTimeout) }

// caughtUp says whether a member has read all that it owns. Of another generation than the server's it may not know yet what that is.
func caughtUp(g *client.Group, consumer *client.Consumer) bool {
	stats := consumer.Stats()
	if g.State != "stable" || stats.State != "stable" || g.Generation != stats.Generation {
		return false
	}
	lag := make(map[client.TopicPartition]int64, len(g.Partitions))
	for i := range g.Partitions {
		p := &g.Partitions[i]
		lag[client.TopicPartition{Topic: p.Topic, Partition: p.Partition}] = p.Lag
	}
	for _, p := range consumer.Partitions() {
		if n, ok := lag[client.TopicPartition{Topic: p.Topic, Partition: p.Partition}]; !ok || n > 0 {
			return false
		}
	}
	return true
}

// lines prints records. What is marked as done, and committed, was written before. When nobody reads them any more, the group is left as usual.
func (c *consumeCmd) lines(reading context.Context, e *env, consumer *client.Consumer) (err error) {
	// Where somebody listens for the signal it does not end the process, and the write fails. Nobody needs to hear it.
	gone := make(chan os.Signal, 1)
	signal.Notify(gone, syscall.SIGPIPE)
	defer signal.Stop(gone)
	out := lineWriter{w: e.out}
	for left := c.Max; c.Max == 0 || left > 0; {
		batches, polled := consumer.Poll(reading)
		if polled != nil {
			if reading.Err() == nil {
				err = polled
			}
			break
		}
		for _, b := range batches {
			left -= int64(len(b.Records))
		}
		if err = out.batches(batches); err != nil {
			break
		}
		for _, b := range batches {
			consumer.Mark(b.Records...)
		}
	}
	return errors.Join(err, consumer.Close())
}

// lineWriter writes whole lines, many at a time.
type lineWriter struct {
	w   io.Writer
	buf []byte
}

func (l *lineWriter) batches(batches []client.Batch) error {
	for _, b := range batches {
		for _, r := range b.Records {
			if err := l.record(r); err != nil {
				return err
			}
		}
	}
	return l.flush()
}

func (l *lineWriter) record(r *client.GroupRecord) error {
	begin := len(l.buf)
	l.buf = appendTopicRecord(l.buf, r.Topic, &r.Record)
	if line := l.buf[begin:]; bytes.IndexByte(line, '\n') >= 0 || bytes.IndexByte(line, '\r') >= 0 { // of a value of JSON
		var b bytes.Buffer
		if err := json.Compact(&b, line); err != nil {
			return fmt.Errorf("print record: %w", err)
		}
		l.buf = append(l.buf[:begin], b.Bytes()...)
	}
	l.buf = append(l.buf, '\n')
	if len(l.buf) >= 64<<10 {
		return l.flush()
	}
	return nil
}

func (l *lineWriter) flush() error {
	if len(l.buf) == 0 {
		return nil
	}
	_, err := l.w.Write(l.buf)
	if l.buf = l.buf[:0]; err != nil {
		return fmt.Errorf("print records: %w", err)
	}
	return nil
}

// commands runs the command for each record.
func (c *consumeCmd) commands(working, reading context.Context, e *env, consumer *client.Consumer) error {
	command := &work.Command{Args: c.Command, Environ: e.environ, Stdout: shared(e.out), Stderr: e.err, TimeLimit: c.TimeLimit}
	var begun atomic.Int64
	err := consumer.Run(reading, func(ctx context.Context, r *client.GroupRecord) error {
		if n := begun.Add(1); c.Max > 0 && n > c.Max {
			return errEnough
		}
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(working, func() { cancel(errSecondSignal) })()
		if working.Err() != nil {
			return errSecondSignal
		}
		err := command.HandleOfGroup(ctx, c.Group, r.Topic, &r.Record)
		if err != nil && working.Err() != nil && !errors.Is(err, errSecondSignal) {
			return fmt.Errorf("%w: %w", errSecondSignal, err) // which is not the command's failure
		}
		return err
	})
	if errors.Is(err, errEnough) {
		return consumer.Close() // what could not be committed, if anything
	}
	return err
}

var errSecondSignal = errors.New("ended by a second signal")

// summary says what was done. Of a consumer that was never a member there is nothing to say but the failure.
func (c *consumeCmd) summary(e *env, s client.ConsumerStats, took time.Duration, caughtUp bool, failure error) error {
	if c.Output == "json" {
		sum := consumeSummary{Group: c.Group, Topics: c.Topic, Records: s.Records, Skipped: s.Skipped, Repeats: s.Repeats, Lost: s.Lost, Seconds: took.Seconds()}
		if failure != nil {
			sum.Error = failure.Error()
		}
		return printJSON(e.err, sum)
	}
	if failure != nil && s.Generation == 0 {
		return nil
	}
	text := fmt.Sprintf("%s of %s done for group %s", plural(s.Records, "record"), strings.Join(c.Topic, ", "), c.Group)
	if s.Skipped > 0 {
		text += fmt.Sprintf(", %d of them skipped", s.Skipped)
	}
	if s.Repeats > 0 {
		text += fmt.Sprintf(", %d of them will come again: they are not committed", s.Repeats)
	}
	if caughtUp {
		text += ", caught up on the partitions that this member owned"
	}
	if s.Lost > 0 {
		text += fmt.Sprintf("; %s lost to others (what was not committed is read again)", plural(s.Lost, "partition"))
	}
	_, err := fmt.Fprintf(e.err, "%s, in %s\n", text, took.Round(time.Millisecond))
	return err
}

// explainConsume adds what the user can do about errors that have an obvious remedy.
func explainConsume(err error, group string) error {
	var gap *client.GapError
	var failed *client.HandlerError
	switch {
	case errors.As(err, &gap):
		return fmt.Errorf("%w\n%s", err, gapText(group, []client.Gap{gap.Gap}))
	case errors.As(err, &failed) && !errors.Is(err, errSecondSignal):
		return fmt.Errorf("%w (the record is not committed, and comes again with the next run; --on-failure retry or skip goes on)", err)
	}
	return err
}
