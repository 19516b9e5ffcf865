package main

import (
	"bufio"
	"context"
	"errors"

	"github.com/forebaymq/forebay/client"
)

type tailCmd struct {
	connectFlags
	Topic     string `arg:""`
	Partition *int   `help:"Follow one partition only, instead of all." placeholder:"N"`
	From      string `help:"Where to begin: latest, earliest or, with --partition, an offset." default:"latest"`
	Limit     int64  `help:"End after so many records; 0 = never." default:"0"`
	Output    string `help:"json: one record a line." enum:"json" default:"json"`
}

// errEnough ends a tail that has a limit.
var errEnough = errors.New("enough")

func (c *tailCmd) Run(ctx context.Context, e *env) error {
	from, err := parseStart(c.From, nil)
	if err != nil {
		return err
	}
	if from.offset >= 0 && c.Partition == nil {
		return usagef("--from %s: an offset needs --partition", c.From)
	}
	cl, err := c.client(e)
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, stop := withSignals(ctx)
	defer stop()
	w := bufio.NewWriter(e.out)
	var seen int64
	err = cl.Stream(ctx, c.Topic, client.StreamOptions{Partition: c.Partition, Offset: from.offset}, func(ev client.Event) error {
		if err := printLine(w, ev.JSON); err != nil {
			return err
		}
		if seen++; seen == c.Limit {
			return errEnough
		}
		return w.Flush()
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return errors.Join(explain(err), w.Flush())
}
