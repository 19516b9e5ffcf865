package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/schollz/progressbar/v3"

	"github.com/forebaymq/forebay/client"
	"github.com/forebaymq/forebay/internal/config"
	"github.com/forebaymq/forebay/internal/feed"
)

type publishCmd struct {
	connectFlags
	Topic          string       `arg:""`
	Values         []string     `arg:"" optional:"" name:"value" help:"Values to publish, one record each. Without any, and without --file, lines of standard input."`
	File           string       `help:"Publish the lines of this file, gzip or not; - is standard input." placeholder:"FILE"`
	ValueAs        string       `help:"json: each line is one JSON text. text: any line of UTF-8." enum:"json,text" default:"json"`
	Key            *string      `help:"Key of every record." placeholder:"KEY"`
	KeyField       string       `help:"Where in a JSON line the key is: path, user.id or a JSON pointer." placeholder:"PATH"`
	TombstoneField string       `help:"Lines whose field has this value become tombstones of their key, as change=D." placeholder:"PATH=VALUE"`
	Header         []string     `help:"Header of every record; may be repeated." placeholder:"NAME=VALUE" sep:"none"`
	Partition      *int32       `help:"Partition of records without a key."`
	Batch          int          `help:"Most records of a request." default:"1000"`
	BatchBytes     config.Bytes `help:"About the largest request." default:"4MiB"`
	Compress       string       `help:"Compress requests: none, gzip or zstd." enum:"none,gzip,zstd" default:"none"`
	KeyOptional    bool         `help:"Publish lines without the key field without a key, instead of refusing them."`
	ProducerID     string       `help:"Publish as this producer, with line numbers as sequence: repeated after an interruption, the command goes on where the topic ends, and nothing is missing or there twice. One ID for one input: the lines of another file would count as stored as far as the first one's numbers go." placeholder:"ID"`
	Progress       bool         `help:"Show a progress bar, if standard error is a terminal." default:"true" negatable:""`
	Output         string       `help:"How to print the summary: text (on standard error) or json (on standard output)." enum:"text,json" default:"text"`
}

// publishSummary is what a run did.
type publishSummary struct {
	Topic      string  `json:"topic"`
	Acked      int64   `json:"acked"`
	Duplicates int64   `json:"duplicates"`
	Skipped    int64   `json:"skipped"`
	Bytes      int64   `json:"bytes"`
	LastLine   int64   `json:"lastLine"`
	Seconds    float64 `json:"seconds"`
	Error      string  `json:"error,omitempty"`
}

func (c *publishCmd) shape() (feed.Shape, error) {
	s := feed.Shape{Kind: client.KindJSON, KeyField: c.KeyField, KeyOptional: c.KeyOptional, Tombstone: c.TombstoneField}
	if c.ValueAs == "text" {
		s.Kind = client.KindText
	}
	if c.Key != nil {
		s.Key = []byte(*c.Key)
	}
	for _, h := range c.Header {
		name, value, ok := strings.Cut(h, "=")
		if !ok || name == "" {
			return s, usagef("--header %q: want NAME=VALUE", h)
		}
		s.Headers = append(s.Headers, client.Header{Name: name, Value: value})
	}
	switch {
	case c.Partition != nil && (c.Key != nil || c.KeyField != ""):
		return s, usagef("--partition is for records without a key")
	case c.Batch < 1 || c.BatchBytes < 1:
		return s, usagef("--batch and --batch-bytes must be at least 1")
	case c.BatchBytes > 8<<20:
		return s, usagef("--batch-bytes: at most 8MiB, since a request of more than 16 MiB with its framing is refused")
	case len(c.Values) > 0 && c.File != "":
		return s, usagef("publish values or a --file, not both")
	case len(c.Values) > 0 && c.ProducerID != "":
		return s, usagef("--producer-id numbers lines: it needs --file or standard input, since values on the command line are new each time")
	}
	if err := s.Validate(); err != nil {
		return s, usageError{err}
	}
	return s, nil
}

func (c *publishCmd) Run(ctx context.Context, e *env) error {
	shape, err := c.shape()
	if err != nil {
		return err
	}
	encoding := client.Encoding(c.Compress)
	if c.Compress == "none" {
		encoding = client.Identity
	}
	cl, err := c.client(e, client.WithEncoding(encoding))
	if err != nil {
		return err
	}
	defer cl.Close()
	topic, err := cl.GetTopic(ctx, c.Topic)
	if err != nil {
		return err
	}
	job := feed.Job{
		Sink: cl, Topic: c.Topic, Partitions: topic.Partitions, Shape: shape, Batch: c.Batch, BatchBytes: int(c.BatchBytes), Pinned: c.Partition,
	}
	if c.ProducerID != "" {
		if job.Producer, err = startSession(ctx, cl, c.ProducerID, c.Topic); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in, done, err := c.input(ctx, e)
	if err != nil {
		return err
	}
	defer done()
	bar := c.bar(e)
	if bar != nil {
		job.Progress = func(s feed.Stats) { _ = bar.Set64(s.Acked + s.Skipped) }
	}
	start := time.Now()
	stats, err := feed.Publish(ctx, in, job)
	if bar != nil {
		_ = bar.Exit()
		fmt.Fprintln(e.err)
	}
	return errors.Join(c.summary(e, stats, time.Since(start), err), err)
}

// startSession fences earlier runs of the producer and then asks what they have had accepted; in this order, so that nothing can be
// accepted from them in between.
func startSession(ctx context.Context, cl *client.Client, id, topic string) (*feed.Session, error) {
	epoch, err := cl.StartProducer(ctx, id)
	if err != nil {
		return nil, err
	}
	positions, err := cl.ProducerPositions(ctx, id, topic)
	if err != nil {
		return nil, err
	}
	s := &feed.Session{ID: id, Epoch: epoch, Accepted: make(map[int32]int64, len(positions))}
	for _, p := range positions {
		if p.Topic == topic {
			s.Accepted[int32(p.Partition)] = p.Sequence
		}
	}
	return s, nil
}

// input opens what is to be published. done must be called.
func (c *publishCmd) input(ctx context.Context, e *env) (in feed.Input, done func(), err error) {
	nothing := func() {}
	switch {
	case len(c.Values) > 0:
		return &valueInput{values: c.Values}, nothing, nil
	case c.File != "" && c.File != "-":
		f, err := os.Open(c.File)
		if err != nil {
			return nil, nothing, fmt.Errorf("open input: %w", err)
		}
		lines, err := feed.NewLines(f)
		if err != nil {
			_ = f.Close()
			return nil, nothing, err
		}
		return lines, func() { _ = f.Close() }, nil
	}
	lines, err := feed.NewLines(e.in)
	if err != nil {
		return nil, nothing, err
	}
	return feed.NewStream(ctx, lines, max(c.Batch, 1)), nothing, nil
}

// valueInput gives the values of the command line, one a "line".
type valueInput struct {
	values []string
	next   int
}

// Next gives the next value.
func (v *valueInput) Next() (feed.Line, error) {
	if v.next == len(v.values) {
		return feed.Line{}, io.EOF
	}
	v.next++
	return feed.Line{Number: int64(v.next), Text: []byte(v.values[v.next-1])}, nil
}

func (c *publishCmd) bar(e *env) *progressbar.ProgressBar {
	if !c.Progress || !onTerminal(e.err) {
		return nil
	}
	name := c.Topic
	if c.File != "" {
		name = filepath.Base(c.File) + " to " + c.Topic
	}
	return progressbar.NewOptions64(-1,
		progressbar.OptionSetWriter(e.err), progressbar.OptionSetDescription(name), progressbar.OptionShowCount(),
		progressbar.OptionShowIts(), progressbar.OptionSetItsString("records"), progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionSpinnerType(14), progressbar.OptionFullWidth())
}

func (c *publishCmd) summary(e *env, s feed.Stats, took time.Duration, failure error) error {
	if c.Output == "json" {
		sum := publishSummary{
			Topic: c.Topic, Acked: s.Acked, Duplicates: s.Duplicates, Skipped: s.Skipped, Bytes: s.Bytes, LastLine: s.LastLine, Seconds: took.Seconds(),
		}
		if failure != nil {
			sum.Error = failure.Error()
		}
		return printJSON(e.out, sum)
	}
	text := fmt.Sprintf("%d records acknowledged by %s (%s in %s)", s.Acked, c.Topic, humanize.IBytes(uint64(s.Bytes)), took.Round(time.Millisecond))
	if s.Skipped > 0 {
		text += fmt.Sprintf(", %d skipped: producer %s has stored lines of their numbers before (another input needs another --producer-id)", s.Skipped, c.ProducerID)
	}
	if s.Duplicates > 0 {
		text += fmt.Sprintf(", %d of them recognised as repetitions", s.Duplicates)
	}
	var line *feed.LineError
	if errors.As(failure, &line) && line.Outcome == client.Indefinite && c.ProducerID == "" {
		text += "; with --producer-id such a run can be repeated safely"
	}
	_, err := fmt.Fprintln(e.err, text)
	return err
}
