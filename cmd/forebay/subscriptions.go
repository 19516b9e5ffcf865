package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/client"
)

type subscriptionsCmd struct {
	Create   subscriptionsCreateCmd   `cmd:"" help:"Create a subscription: a work queue on a topic."`
	Update   subscriptionsUpdateCmd   `cmd:"" help:"Change a subscription's settings."`
	List     subscriptionsListCmd     `cmd:"" help:"List the subscriptions of a topic."`
	Describe subscriptionsDescribeCmd `cmd:"" help:"Show a subscription, and where it stands on each partition."`
	Delete   subscriptionsDeleteCmd   `cmd:"" help:"Delete a subscription. The records stay in the topic."`
	Seek     subscriptionsSeekCmd     `cmd:"" help:"Move a subscription: what lies before counts as settled, what lies behind is delivered (again)."`
	Peek     subscriptionsPeekCmd     `cmd:"" help:"Print the records that would be leased next, without leasing them."`
}

// queueFlags name a subscription.
type queueFlags struct {
	connectFlags
	Subscription string `arg:""`
	Topic        string `help:"Topic of the subscription." required:"" placeholder:"TOPIC"`
}

// subscriptionFlags are the settings of a subscription. Absent ones are left to the server.
type subscriptionFlags struct {
	VisibilityTimeout *string  `help:"How long a lease lives, 1s to 12h (server's default 30s)." placeholder:"DURATION"`
	MaxAttempts       *int     `help:"Deliveries before a record becomes a dead letter (server's default 5)."`
	BackoffInitial    *string  `help:"Pause after a first failure (server's default 2s)." placeholder:"DURATION"`
	BackoffMax        *string  `help:"Longest pause after a failure (server's default 5m)." placeholder:"DURATION"`
	BackoffMultiplier *float64 `help:"By what each further failure multiplies the pause (server's default 2)." placeholder:"FACTOR"`
	BackoffJitter     *bool    `help:"Draw each pause at random, up to what it would be (server's default true)." negatable:""`
	MaxInFlight       *int     `help:"Leases at a time on a partition (server's default 1024)."`
	MaxAckedAhead     *int     `help:"Records leased or settled beyond the first unsettled one of a partition (server's default 1024)."`
	DeadLetterTopic   *string  `help:"Topic that gets a copy of each dead letter; none = no copies." placeholder:"TOPIC"`
	GapPolicy         *string  `help:"When retention has deleted what was not settled: fail (leasing stops until a seek) or skip." placeholder:"POLICY"`
	Ordering          *string  `help:"none, or key: one record of a key at a time, in order." placeholder:"ORDERING"`
	FairShare         *string  `help:"Share deliveries by key, or by header:NAME; none = first come, first served." placeholder:"BY"`
	Output            string   `help:"text, or json: on one line." enum:"text,json" default:"text"`
}

func (f *subscriptionFlags) settings() (client.SubscriptionSettings, error) {
	s := client.SubscriptionSettings{
		VisibilityTimeout: f.VisibilityTimeout, MaxAttempts: f.MaxAttempts, MaxInFlight: f.MaxInFlight, MaxAckedAhead: f.MaxAckedAhead,
		GapPolicy: f.GapPolicy, Ordering: f.Ordering,
	}
	if b := (client.BackoffSettings{Initial: f.BackoffInitial, Max: f.BackoffMax, Multiplier: f.BackoffMultiplier, Jitter: f.BackoffJitter}); b != (client.BackoffSettings{}) {
		s.Backoff = &b
	}
	if f.DeadLetterTopic != nil {
		s.DeadLetter = &client.DeadLetterSettings{Topic: orNull(f.DeadLetterTopic, "none")}
	}
	if f.FairShare != nil {
		by, header, _ := strings.Cut(*f.FairShare, ":")
		switch {
		case *f.FairShare == "none":
			s.FairShare = client.Null[client.FairShare]()
		case *f.FairShare == "key", by == "header" && header != "":
			s.FairShare = client.Value(client.FairShare{By: by, Header: header})
		default:
			return s, usagef("--fair-share %q: want key, header:NAME or none", *f.FairShare)
		}
	}
	return s, nil
}

type subscriptionsCreateCmd struct {
	queueFlags
	Start       string `help:"Where it begins: latest, earliest or a time (RFC 3339)." default:"latest" placeholder:"WHERE"`
	IfNotExists bool   `help:"Succeed, and change nothing, where the subscription is there already."`
	subscriptionFlags
}

func (c *subscriptionsCreateCmd) Run(ctx context.Context, e *env) error {
	s, err := c.settings()
	if err != nil {
		return err
	}
	s.Start = &c.Start
	cl, err := c.client(e)
	if err != nil {
		return err
	}
	defer cl.Close()
	switch present, err := cl.GetSubscription(ctx, c.Topic, c.Subscription); {
	case err == nil && c.IfNotExists:
		return printSubscription(e, present, c.Output)
	case err == nil:
		return fmt.Errorf("subscription %s of %s exists already: forebay subscriptions update changes it", c.Subscription, c.Topic)
	case !errors.Is(err, client.ErrUnknownSubscription):
		return err
	}
	made, _, err := cl.PutSubscription(ctx, c.Topic, c.Subscription, s)
	if err != nil {
		return err
	}
	return printSubscription(e, made, c.Output)
}

type subscriptionsUpdateCmd struct {
	queueFlags
	subscriptionFlags
}

func (c *subscriptionsUpdateCmd) Run(ctx context.Context, e *env) error {
	s, err := c.settings()
	if err != nil {
		return err
	}
	if body, err := json.Marshal(s); err != nil {
		return err
	} else if string(body) == "{}" {
		return usagef("subscriptions update: name at least one setting to change")
	}
	cl, err := c.client(e)
	if err != nil {
		return err
	}
	defer cl.Close()
	if _, err := cl.GetSubscription(ctx, c.Topic, c.Subscription); err != nil {
		return err
	}
	changed, _, err := cl.PutSubscription(ctx, c.Topic, c.Subscription, s)
	if err != nil {
		return err
	}
	return printSubscription(e, changed, c.Output)
}

type subscriptionsListCmd struct {
	connectFlags
	Topic  string `help:"Topic of the subscriptions." required:"" placeholder:"TOPIC"`
	Output string `help:"text, or json: one subscription a line." enum:"text,json" default:"text"`
}

func (c *subscriptionsListCmd) Run(ctx context.Context, e *env) error {
	cl, err := c.client(e)
	if err != nil {
		return err
	}
	defer cl.Close()
	return printList(e, c.Output, "SUBSCRIPTION\tLAG\tIN FLIGHT\tDELAYED\tDEAD LETTERS\tOLDEST UNACKED\tVISIBILITY\tATTEMPTS",
		func(cursor string) ([]client.Subscription, string, error) {
			page, err := cl.ListSubscriptions(ctx, c.Topic, api.MaxListLimit, cursor)
			if err != nil {
				return nil, "", err
			}
			return page.Items, page.Next, nil
		},
		func(v *client.Subscription) json.RawMessage { return v.JSON },
		func(w io.Writer, v *client.Subscription) {
			t := sum(v.Partitions)
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%s\t%s\t%d\n", v.Name, t.Lag, t.InFlight, t.Delayed, t.DeadLetters, age(t.OldestUnackedAgeSeconds), v.VisibilityTimeout, v.MaxAttempts)
		})
}

// sum adds up the partitions of a subscription; the age is that of the oldest.
func sum(partitions []client.SubscriptionPartition) (t client.SubscriptionPartition) {
	for i := range partitions {
		p := &partitions[i]
		t.InFlight += p.InFlight
		t.Owed += p.Owed
		t.Delayed += p.Delayed
		t.Waiting += p.Waiting
		t.Lag += p.Lag
		t.DeadLetters += p.DeadLetters
		t.Skipped += p.Skipped
		t.OldestUnackedAgeSeconds = max(t.OldestUnackedAgeSeconds, p.OldestUnackedAgeSeconds)
	}
	return t
}

func age(seconds float64) string {
	if seconds <= 0 {
		return "-"
	}
	return (time.Duration(seconds*1000) * time.Millisecond).Round(100 * time.Millisecond).String()
}

type subscriptionsDescribeCmd struct {
	queueFlags
	Output string `help:"text, or json: on one line." enum:"text,json" default:"text"`
}

func (c *subscriptionsDescribeCmd) Run(ctx context.Context, e *env) error {
	cl, err := c.client(e)
	if err != nil {
		return err
	}
	defer cl.Close()
	s, err := cl.GetSubscription(ctx, c.Topic, c.Subscription)
	if err != nil {
		return err
	}
	return printSubscription(e, s, c.Output)
}

func printSubscription(e *env, s *client.Subscription, output string) error {
	if output == "json" {
		return printJSON(e.out, s.JSON)
	}
	return printIndented(e.out, s.JSON)
}

type subscriptionsDeleteCmd struct {
	queueFlags
	deleteFlags
}

func (c *subscriptionsDeleteCmd) Run(ctx context.Context, e *env) error {
	cl, err := c.client(e)
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := cl.DeleteSubscription(ctx, c.Topic, c.Subscription); err != nil {
		return err
	}
	return c.deleted(e, "subscription", c.Subscription)
}

// seekFlags say where to.
type seekFlags struct {
	To        string   `help:"earliest or latest." xor:"target" placeholder:"WHERE"`
	Timestamp string   `help:"The first record appended at or after this time (RFC 3339)." xor:"target" placeholder:"TIME"`
	Offset    []string `help:"Next offset of a partition; several with commas, or repeated. The others stay where they are." xor:"target" placeholder:"PARTITION:OFFSET"`
}

func (c *seekFlags) target() (to client.SeekTarget, err error) {
	switch c.To {
	case "earliest":
		to.Earliest = true
	case "latest":
		to.Latest = true
	case "":
	default:
		return to, usagef("--to %q: want earliest or latest", c.To)
	}
	if c.Timestamp != "" {
		if to.Time, err = time.Parse(time.RFC3339Nano, c.Timestamp); err != nil {
			return to, usagef("--timestamp %q: want an RFC 3339 time such as 2026-01-02T15:04:05Z", c.Timestamp)
		}
		// The server counts milliseconds: the first one at or after.
		to.Time = to.Time.Add(time.Millisecond - 1).Truncate(time.Millisecond)
	}
	positions, err := parsePositions(c.Offset)
	if err != nil {
		return to, err
	}
	for _, p := range positions {
		if to.Offsets == nil {
			to.Offsets = map[int32]int64{}
		}
		if _, twice := to.Offsets[p.Partition]; twice {
			return to, usagef("--offset: partition %d is named twice", p.Partition)
		}
		to.Offsets[p.Partition] = p.Offset
	}
	if c.To == "" && c.Timestamp == "" && len(positions) == 0 {
		return to, usagef("seek: where to? One of --to, --timestamp and --offset")
	}
	return to, nil
}

// parsePositions reads "partition:offset".
func parsePositions(texts []string) ([]client.Position, error) {
	var out []client.Position
	for _, text := range texts {
		partition, offset, ok := strings.Cut(text, ":")
		p, err1 := strconv.ParseInt(partition, 10, 32)
		o, err2 := strconv.ParseInt(offset, 10, 64)
		if !ok || err1 != nil || err2 != nil || p < 0 || o < 0 {
			return nil, usagef("--offset %q: want PARTITION:OFFSET such as 0:42", text)
		}
		out = append(out, client.Position{Partition: int32(p), Offset: o})
	}
	return out, nil
}

type subscriptionsSeekCmd struct {
	queueFlags
	seekFlags
	Output string `help:"text, or json: on one line." enum:"text,json" default:"text"`
}

func (c *subscriptionsSeekCmd) Run(ctx context.Context, e *env) error {
	to, err := c.target()
	if err != nil {
		return err
	}
	cl, err := c.client(e)
	if err != nil {
		return err
	}
	defer cl.Close()
	s, err := cl.Seek(ctx, c.Topic, c.Subscription, to)
	if err != nil {
		return err
	}
	return printSubscription(e, s, c.Output)
}

type subscriptionsPeekCmd struct {
	queueFlags
	Max    int    `help:"Most records, 1 to 100." default:"10"`
	Output string `help:"json: one record a line." enum:"json" default:"json"`
}

func (c *subscriptionsPeekCmd) Run(ctx context.Context, e *env) error {
	if c.Max < 1 || c.Max > 100 {
		return usagef("--max must be 1 to 100")
	}
	cl, err := c.client(e)
	if err != nil {
		return err
	}
	defer cl.Close()
	peeked, err := cl.Peek(ctx, c.Topic, c.Subscription, c.Max)
	if err != nil {
		return explainQueue(err)
	}
	w := bufio.NewWriter(e.out)
	for i := range peeked {
		if err := printLine(w, peeked[i].JSON); err != nil {
			return err
		}
	}
	return w.Flush()
}

// explainQueue adds what the user can do about errors that have an obvious remedy.
func explainQueue(err error) error {
	var e *client.Error
	if !errors.As(err, &e) || !errors.Is(err, client.ErrRetentionGap) {
		return err
	}
	gaps := make([]string, len(e.Gaps))
	for i, g := range e.Gaps {
		gaps[i] = fmt.Sprintf("%d to %d of partition %d", g.From, g.To-1, g.Partition)
	}
	return fmt.Errorf("%w (deleted before they were settled: %s; forebay subscriptions seek decides where to go on)", err, strings.Join(gaps, ", "))
}
