package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/client"
)

type groupsCmd struct {
	List     groupsListCmd     `cmd:"" help:"List the groups."`
	Describe groupsDescribeCmd `cmd:"" help:"Show a group: its members, and per partition its owner, its place, its lag, and what retention will delete or has deleted before it was read."`
	Seek     groupsSeekCmd     `cmd:"" help:"Move a group without members to another place in a topic, and say what that skips and repeats."`
	Delete   groupsDeleteCmd   `cmd:"" help:"Delete a group without members, and its offsets. Final."`
}

// groupFlags name a group.
type groupFlags struct {
	connectFlags
	Group string `arg:""`
}

type groupsListCmd struct {
	connectFlags
	Output string `help:"text, or json: one group a line." enum:"text,json" default:"text"`
}

func (c *groupsListCmd) Run(ctx context.Context, e *env) error {
	cl, err := c.client(e)
	if err != nil {
		return err
	}
	defer cl.Close()
	return printList(e, c.Output, "GROUP\tCREATED\tID",
		func(cursor string) ([]client.Group, string, error) {
			page, err := cl.ListGroups(ctx, api.MaxListLimit, cursor)
			if err != nil {
				return nil, "", err
			}
			return page.Items, page.Next, nil
		},
		func(v *client.Group) json.RawMessage { return v.JSON },
		func(w io.Writer, v *client.Group) {
			fmt.Fprintf(w, "%s\t%s\t%s\n", v.Name, moment(v.Created), v.GroupID)
		})
}

type groupsDescribeCmd struct {
	groupFlags
	Output string `help:"text, or json: on one line." enum:"text,json" default:"text"`
}

func (c *groupsDescribeCmd) Run(ctx context.Context, e *env) error {
	cl, err := c.client(e)
	if err != nil {
		return err
	}
	defer cl.Close()
	g, err := cl.GetGroup(ctx, c.Group)
	if err != nil {
		return explainGroup(err, c.Group)
	}
	if c.Output == "json" {
		return printJSON(e.out, g.JSON)
	}
	var b strings.Builder
	writeGroup(&b, g)
	_, err = io.WriteString(e.out, b.String())
	return err
}

// writeGroup writes a group for people. Writing to a strings.Builder does not fail.
func writeGroup(b *strings.Builder, g *client.Group) {
	fmt.Fprintf(b, "group %s: %s, generation %d, %s\n", g.Name, g.State, g.Generation, plural(int64(len(g.Members)), "member"))
	w := tabwriter.NewWriter(b, 0, 8, 2, ' ', 0)
	if len(g.Members) > 0 {
		fmt.Fprintln(w, "\nMEMBER\tINSTANCE\tSESSION ENDS\tOWNS\tLETS GO OF")
	}
	for i := range g.Members {
		m := &g.Members[i]
		ends := "-"
		if m.SessionExpiresAt != nil {
			ends = moment(*m.SessionExpiresAt)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", m.MemberID, orDash(m.InstanceID), ends, places(m.Owned), places(m.Revoking))
	}
	_ = w.Flush()
	if len(g.Partitions) > 0 {
		fmt.Fprintln(w, "\nTOPIC\tPARTITION\tOWNER\tCOMMITTED\tHEAD\tLAG\tLAG TIME\tRETENTION HEADROOM\tLOST")
	}
	var gaps []client.Gap
	for i := range g.Partitions {
		p := &g.Partitions[i]
		lost := "-"
		if p.Gap != nil {
			lost = offsets(*p.Gap)
			gaps = append(gaps, *p.Gap)
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%d\t%d\t%s\t%s\t%s\n",
			p.Topic, p.Partition, orDash(p.Owner), orDash(p.Committed), p.Head, p.Lag, age(p.LagSeconds), headroom(p), lost)
	}
	_ = w.Flush()
	if len(gaps) > 0 {
		b.WriteByte('\n')
		b.WriteString(gapText(g.Name, gaps))
		b.WriteByte('\n')
	}
}

// headroom is how long the first record that is not committed has until retention deletes it.
func headroom(p *client.GroupPartitionInfo) string {
	switch {
	case p.RetentionHeadroomSeconds == nil:
		return "-"
	case *p.RetentionHeadroomSeconds <= 0:
		return "none"
	}
	return age(*p.RetentionHeadroomSeconds)
}

func orDash[T any](v *T) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprint(*v)
}

func plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// places writes partitions as "orders:0,3", by topic.
func places(all []client.TopicPartition) string {
	if len(all) == 0 {
		return "-"
	}
	var b strings.Builder
	topic := ""
	for i, p := range all {
		switch {
		case i == 0 || p.Topic != topic:
			if topic = p.Topic; i > 0 {
				b.WriteByte(' ')
			}
			fmt.Fprintf(&b, "%s:%d", topic, p.Partition)
		default:
			fmt.Fprintf(&b, ",%d", p.Partition)
		}
	}
	return b.String()
}

// offsets writes a gap as "5 to 8": the first and the last offset that are lost.
func offsets(g client.Gap) string {
	if g.To == g.From+1 {
		return fmt.Sprint(g.From)
	}
	return fmt.Sprintf("%d to %d", g.From, g.To-1)
}

// gapText names what a group has lost, and what to run.
func gapText(group string, gaps []client.Gap) string {
	var b strings.Builder
	for _, g := range gaps {
		fmt.Fprintf(&b, "LOST: retention has deleted %s of %s partition %d before group %s read it: %s\n", plural(g.To-g.From, "offset"), g.Topic, g.Partition, group, offsets(g))
	}
	b.WriteString("There the group stands still until it is decided where to go on, while it reads its other partitions. An owner may commit an offset behind what is lost. Or stop all members, and run for example:\n")
	var topics []string
	next := map[string][]string{}
	for _, g := range gaps {
		if next[g.Topic] == nil {
			topics = append(topics, g.Topic)
		}
		next[g.Topic] = append(next[g.Topic], fmt.Sprintf("%d:%d", g.Partition, g.To))
	}
	for i, topic := range topics {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "  forebay groups seek %s --topic %s --offset %s   # the first that are left", group, topic, strings.Join(next[topic], ","))
	}
	return b.String()
}

type groupsSeekCmd struct {
	groupFlags
	Topic string `help:"Topic to move in." required:"" placeholder:"TOPIC"`
	seekFlags
	DryRun bool   `help:"Change nothing, and say what would be skipped and repeated. Works with members, too."`
	Output string `help:"text, or json: on one line." enum:"text,json" default:"text"`
}

func (c *groupsSeekCmd) Run(ctx context.Context, e *env) error {
	to, err := c.target()
	if err != nil {
		return err
	}
	cl, err := c.client(e)
	if err != nil {
		return err
	}
	defer cl.Close()
	r, err := cl.SeekGroup(ctx, c.Group, client.GroupSeek{Topic: c.Topic, To: to, DryRun: c.DryRun})
	if err != nil {
		return explainGroup(unknownChange(err, c.Group), c.Group)
	}
	if r.Repeated {
		fmt.Fprintln(e.err, "forebay: an answer was lost and the seek was sent again: the first one may have moved the group already, and then FROM is where that put it")
	}
	if c.Output == "json" {
		return printJSON(e.out, r.JSON)
	}
	w := tabwriter.NewWriter(e.out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "TOPIC\tPARTITION\tFROM\tTO\tSKIPPED\tREPEATED\tLOST")
	var skipped, repeats, lost int64
	for _, p := range r.Partitions {
		fmt.Fprintf(w, "%s\t%d\t%s\t%d\t%d\t%d\t%d\n", p.Topic, p.Partition, orDash(p.From), p.To, p.Skipped, p.Repeats, p.Lost)
		skipped, repeats, lost = skipped+p.Skipped, repeats+p.Repeats, lost+p.Lost
	}
	if err := w.Flush(); err != nil {
		return err
	}
	would := ""
	if r.DryRun {
		would = "dry run, nothing was changed: "
	}
	gone := ""
	if lost > 0 {
		gone = fmt.Sprintf(", %s lost to retention", plural(lost, "offset"))
	}
	_, err = fmt.Fprintf(e.err, "%s%s skipped, %s to be read again%s\n", would, plural(skipped, "record"), plural(repeats, "record"), gone)
	return err
}

type groupsDeleteCmd struct {
	groupFlags
	deleteFlags
}

func (c *groupsDeleteCmd) Run(ctx context.Context, e *env) error {
	cl, err := c.client(e)
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := cl.DeleteGroup(ctx, c.Group); err != nil {
		return explainGroup(unknownChange(err, c.Group), c.Group)
	}
	return c.deleted(e, "group", c.Group)
}

// unknownChange says of a change whose outcome is unknown where to look.
func unknownChange(err error, group string) error {
	if outcome, _ := client.Classify(err); outcome == client.Indefinite {
		return fmt.Errorf("%w (it is not known whether that took effect: forebay groups describe %s shows it)", err, group)
	}
	return err
}

// explainGroup adds what the user can do about errors that have an obvious remedy.
func explainGroup(err error, group string) error {
	var e *client.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Code {
	case api.CodeConflict:
		return fmt.Errorf("%w (forebay groups describe %s shows them; one that was killed, or is static, counts until its session ends)", err, group)
	case api.CodeUnknownGroup:
		return fmt.Errorf("%w (forebay groups list shows those that there are; a group is there once somebody has joined it)", err)
	case api.CodeRetentionGap:
		return fmt.Errorf("%w\n%s", err, gapText(group, e.Gaps))
	}
	return err
}
