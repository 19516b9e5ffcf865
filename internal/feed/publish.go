package feed

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/client"
)

// Sink takes requests. *client.Client is one.
type Sink interface {
	Publish(ctx context.Context, topic string, records []client.Record, producer *client.ProducerSequence) (*client.PublishResult, error)
}

// Job is what Publish does.
type Job struct {
	Sink       Sink
	Topic      string
	Partitions int // of the topic
	Shape      Shape
	Batch      int         // most records of a request; > 0
	BatchBytes int         // about how many bytes of keys and values a request may hold; > 0
	Pinned     *int32      // partition of records without a key, where not nil
	Producer   *Session    // nil = not resumable
	Progress   func(Stats) // called after each answer; may be nil
}

// Session is a producer's session and what its partitions have accepted before.
type Session struct {
	ID       string
	Epoch    int64
	Accepted map[int32]int64 // highest sequence by partition; absent = none
}

// Stats counts records.
type Stats struct {
	Acked      int64 // acknowledged by the server in this run, duplicates included
	Duplicates int64 // of those: the server had them already
	Skipped    int64 // not sent: an earlier run had them acknowledged
	Bytes      int64 // of keys and values acknowledged
	LastLine   int64 // the last line that is known to be stored
}

// LineError says which lines a failure concerns.
type LineError struct {
	First, Last int64
	// Outcome of the lines: client.Definite and client.Retriable mean that none of them is stored, client.Indefinite that all or none are.
	Outcome client.Outcome
	Cause   error
}

func (e *LineError) Error() string {
	where := fmt.Sprintf("line %d", e.First)
	if e.First != e.Last {
		where = fmt.Sprintf("lines %d to %d", e.First, e.Last)
	}
	if e.Outcome == client.Indefinite {
		return fmt.Sprintf("%s: stored all or not at all, it is not known which: %v", where, e.Cause)
	}
	return fmt.Sprintf("%s: not stored: %v", where, e.Cause)
}

// Unwrap gives the cause.
func (e *LineError) Unwrap() error { return e.Cause }

// Input gives lines; io.EOF after the last. *Lines is one.
type Input interface {
	Next() (Line, error)
}

// Flusher is an Input that knows whether its next line may be long in coming.
type Flusher interface {
	Input
	// Pending says whether a line is there at once.
	Pending() bool
}

// Publish sends every line. It stops at the first failure, which is a *LineError where it concerns lines; what was acknowledged
// before it is in the Stats.
func Publish(ctx context.Context, in Input, job Job) (Stats, error) {
	p := &publisher{job: job}
	flusher, _ := in.(Flusher)
	for {
		line, err := in.Next()
		if errors.Is(err, io.EOF) {
			err := p.send(ctx)
			return p.stats, err
		}
		if err != nil {
			err = errors.Join(p.send(ctx), err)
			return p.stats, err
		}
		if err := p.add(ctx, line); err != nil {
			return p.stats, err
		}
		if p.full() || flusher != nil && !flusher.Pending() {
			if err := p.send(ctx); err != nil {
				return p.stats, err
			}
		}
	}
}

type publisher struct {
	job         Job
	records     []client.Record
	bytes       int
	first, last int64 // lines of records
	passed      int64 // the last line that was skipped
	stats       Stats
}

func (p *publisher) full() bool {
	return len(p.records) >= p.job.Batch || p.bytes >= p.job.BatchBytes
}

func (p *publisher) add(ctx context.Context, line Line) error {
	r, err := p.job.Shape.Record(line.Text)
	if err != nil {
		// What came before the bad line is good, and is sent, so that the message and the topic agree.
		return errors.Join(p.send(ctx), &LineError{First: line.Number, Last: line.Number, Outcome: client.Definite, Cause: err})
	}
	p.place(&r, line.Number)
	if s := p.job.Producer; s != nil {
		if accepted, ok := s.Accepted[r.Partition]; ok && accepted >= line.Number {
			p.stats.Skipped++
			p.passed = line.Number
			if len(p.records) == 0 {
				p.stats.LastLine = line.Number
			}
			return nil
		}
	}
	if len(p.records) == 0 {
		p.first = line.Number
	}
	p.last = line.Number
	p.records = append(p.records, r)
	p.bytes += len(r.Key) + len(r.Value)
	return nil
}

// place finds the partition of a record, and tells it to the server where the server could not know it by itself.
func (p *publisher) place(r *client.Record, line int64) {
	switch {
	case r.Key != nil:
		r.Partition = int32(api.PartitionForKey(r.Key, p.job.Partitions))
	case p.job.Pinned != nil:
		r.Partition, r.Pinned = *p.job.Pinned, true
	case p.job.Producer != nil:
		r.Partition, r.Pinned = int32(line%int64(p.job.Partitions)), true
	}
}

func (p *publisher) send(ctx context.Context) error {
	if len(p.records) == 0 {
		return nil
	}
	var producer *client.ProducerSequence
	if s := p.job.Producer; s != nil {
		producer = &client.ProducerSequence{ID: s.ID, Epoch: s.Epoch, Sequence: p.last}
	}
	result, err := p.job.Sink.Publish(ctx, p.job.Topic, p.records, producer)
	if err == nil && len(result.Records) != len(p.records) {
		err = fmt.Errorf("%d records were sent, %d positions came back", len(p.records), len(result.Records))
	}
	if err != nil {
		outcome, _ := client.Classify(err)
		return &LineError{First: p.first, Last: p.last, Outcome: outcome, Cause: err}
	}
	p.stats.Acked += int64(len(p.records))
	if result.Duplicate {
		p.stats.Duplicates += int64(len(p.records))
	}
	p.stats.Bytes += int64(p.bytes)
	p.stats.LastLine = max(p.last, p.passed)
	p.records, p.bytes = p.records[:0], 0
	if p.job.Progress != nil {
		p.job.Progress(p.stats)
	}
	return nil
}
