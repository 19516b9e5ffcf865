package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/client"
)

type readCmd struct {
	connectFlags
	Topic     string  `arg:""`
	Partition []int   `help:"Read these partitions only, one after the other." xor:"which" placeholder:"N"`
	All       bool    `help:"Read all partitions, one after the other (the default)." xor:"which"`
	From      string  `help:"Where to begin: earliest, latest or an offset." default:"earliest"`
	Timestamp *string `help:"Begin at the first record appended at or after this time (RFC 3339), whatever --from says." placeholder:"TIME"`
	Limit     int64   `help:"Most records in all; 0 = no limit." default:"0"`
	UntilHead bool    `help:"End at the head that each partition had when it was begun, even if it grows meanwhile."`
	Output    string  `help:"json: one record a line." enum:"json" default:"json"`
}

// start is where a read or tail begins.
type start struct {
	offset int64
	time   time.Time // where not zero
}

func parseStart(from string, timestamp *string) (s start, err error) {
	if timestamp != nil {
		if s.time, err = time.Parse(time.RFC3339Nano, *timestamp); err != nil {
			return s, usagef("--timestamp %q: want an RFC 3339 time such as 2026-01-02T15:04:05Z", *timestamp)
		}
		// The server counts milliseconds: the first one at or after.
		s.time = s.time.Add(time.Millisecond - 1).Truncate(time.Millisecond)
		return s, nil
	}
	switch from {
	case "earliest":
		s.offset = client.Earliest
	case "latest":
		s.offset = client.Latest
	default:
		if s.offset, err = strconv.ParseInt(from, 10, 64); err != nil || s.offset < 0 {
			return s, usagef("--from %q: want earliest, latest or an offset", from)
		}
	}
	return s, nil
}

// choose gives the partitions asked for, or all of them.
func choose(ctx context.Context, cl *client.Client, topic string, asked []int) ([]int, error) {
	if len(asked) > 0 {
		return asked, nil
	}
	t, err := cl.GetTopic(ctx, topic)
	if err != nil {
		return nil, err
	}
	all := make([]int, t.Partitions)
	for i := range all {
		all[i] = i
	}
	return all, nil
}

func (c *readCmd) Run(ctx context.Context, e *env) error {
	from, err := parseStart(c.From, c.Timestamp)
	if err != nil {
		return err
	}
	if c.Limit < 0 {
		return usagef("--limit must not be negative")
	}
	cl, err := c.client(e)
	if err != nil {
		return err
	}
	defer cl.Close()
	partitions, err := choose(ctx, cl, c.Topic, c.Partition)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(e.out, 64<<10)
	left := c.Limit
	if left == 0 {
		left = 1<<63 - 1
	}
	for _, p := range partitions {
		if left == 0 {
			break
		}
		n, err := c.partition(ctx, cl, w, p, from, left)
		left -= n
		if err != nil {
			return errors.Join(err, w.Flush())
		}
	}
	return w.Flush()
}

// partition prints up to limit records and says how many.
func (c *readCmd) partition(ctx context.Context, cl *client.Client, w *bufio.Writer, partition int, from start, limit int64) (printed int64, err error) {
	o := client.ReadOptions{Offset: from.offset, Timestamp: from.time, MaxBytes: api.MaxReadBytes / 2}
	end := int64(-1) // the head at the beginning
	for {
		o.Limit = int(min(limit-printed, api.MaxReadRecords))
		r, err := cl.ReadJSON(ctx, c.Topic, partition, o)
		if err != nil {
			return printed, explain(err)
		}
		if end < 0 {
			end = r.Head
		}
		for _, record := range r.Records {
			if c.UntilHead {
				at, err := offsetOf(record)
				if err != nil {
					return printed, err
				}
				if at >= end {
					return printed, nil
				}
			}
			if err := printLine(w, record); err != nil {
				return printed, err
			}
			printed++
		}
		if !c.UntilHead {
			end = r.Head
		}
		if printed >= limit || r.NextOffset >= end || len(r.Records) == 0 && r.NextOffset <= o.Offset {
			return printed, nil
		}
		o.Offset, o.Timestamp = r.NextOffset, time.Time{}
	}
}

// offsetOf reads the offset of a record in the JSON form.
func offsetOf(record json.RawMessage) (int64, error) {
	var r struct {
		Offset int64 `json:"offset"`
	}
	if err := json.Unmarshal(record, &r); err != nil {
		return 0, fmt.Errorf("read record: %w", err)
	}
	return r.Offset, nil
}

// explain adds what the user can do about errors that have an obvious remedy.
func explain(err error) error {
	var e *client.Error
	if errors.As(err, &e) && e.Code == api.CodeOffsetOutOfRange {
		return fmt.Errorf("%w (readable are %d to %d; --from earliest begins at the first)", err, e.LogStart, e.Head)
	}
	return err
}
