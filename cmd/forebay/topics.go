package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/client"
)

type topicsCmd struct {
	List   topicsListCmd   `cmd:"" help:"List the tenant's topics."`
	Get    topicsGetCmd    `cmd:"" help:"Show a topic and its partitions."`
	Create topicsCreateCmd `cmd:"" help:"Create a topic."`
	Update topicsUpdateCmd `cmd:"" help:"Change a topic's settings."`
	Delete topicsDeleteCmd `cmd:"" help:"Delete a topic and its records."`
}

type topicsListCmd struct {
	connectFlags
	Output string `help:"text, or json: one topic a line." enum:"text,json" default:"text"`
}

func (c *topicsListCmd) Run(ctx context.Context, e *env) error {
	cl, err := c.client(e)
	if err != nil {
		return err
	}
	defer cl.Close()
	return printList(e, c.Output, "TOPIC\tPARTITIONS\tRETENTION\tCLEANUP",
		func(cursor string) ([]client.Topic, string, error) {
			page, err := cl.ListTopics(ctx, api.MaxListLimit, cursor)
			if err != nil {
				return nil, "", err
			}
			return page.Items, page.Next, nil
		},
		func(v *client.Topic) json.RawMessage { return v.JSON },
		func(w io.Writer, v *client.Topic) {
			fmt.Fprintf(w, "%s\t%d\t%s\t%s\n", v.Name, v.Partitions, retention(v.Retention), v.Cleanup)
		})
}

func retention(r client.Retention) string {
	s := "keep"
	if r.Time != nil {
		s = *r.Time
	}
	if r.Bytes != nil {
		s += fmt.Sprintf(", %d bytes a partition", *r.Bytes)
	}
	return s
}

type topicsGetCmd struct {
	connectFlags
	Topic  string `arg:""`
	Output string `help:"text, or json: on one line." enum:"text,json" default:"text"`
}

func (c *topicsGetCmd) Run(ctx context.Context, e *env) error {
	cl, err := c.client(e)
	if err != nil {
		return err
	}
	defer cl.Close()
	t, err := cl.GetTopic(ctx, c.Topic)
	if err != nil {
		return err
	}
	return printTopic(e, t, c.Output)
}

func printTopic(e *env, t *client.Topic, output string) error {
	if output == "json" {
		return printJSON(e.out, t.JSON)
	}
	return printIndented(e.out, t.JSON)
}

// topicFlags are the settings of a topic. Absent ones are left to the server.
type topicFlags struct {
	Partitions         *int    `help:"Number of partitions, 1 to 10000 (server's default 8)."`
	Retention          *string `help:"How long records are kept by append time, such as 72h or 3d (server's default 72h); keep = for ever." placeholder:"DURATION"`
	RetentionBytes     *int64  `help:"Most stored bytes of a partition; 0 = no bound." placeholder:"BYTES"`
	Cleanup            *string `help:"delete, compact or compact,delete." placeholder:"POLICY"`
	MinCompactionLag   *string `help:"Records younger than this are not compacted." placeholder:"DURATION"`
	TombstoneRetention *string `help:"How long a tombstone stays after it could be compacted." placeholder:"DURATION"`
	Residency          *string `help:"Region that the records may not leave; none = no restriction." placeholder:"REGION"`
	MaxRecordBytes     *int    `help:"Largest record." placeholder:"BYTES"`
	DedupeWindow       *string `help:"Records with an event ID seen within this time are dropped." placeholder:"DURATION"`
	Output             string  `help:"text, or json: on one line." enum:"text,json" default:"text"`
}

func (f *topicFlags) settings() client.TopicSettings {
	s := client.TopicSettings{
		Partitions: f.Partitions, Cleanup: f.Cleanup, MinCompactionLag: f.MinCompactionLag, TombstoneRetention: f.TombstoneRetention,
		MaxRecordBytes: f.MaxRecordBytes, DedupeWindow: f.DedupeWindow,
	}
	if f.Residency != nil {
		s.Residency = orNull(f.Residency, "none")
	}
	if f.Retention != nil || f.RetentionBytes != nil {
		s.Retention = &client.RetentionSettings{}
		if f.Retention != nil {
			s.Retention.Time = orNull(f.Retention, "keep")
		}
		if f.RetentionBytes != nil {
			s.Retention.Bytes = orNull(f.RetentionBytes, 0)
		}
	}
	return s
}

func orNull[T comparable](v *T, null T) *client.Nullable[T] {
	if *v == null {
		return client.Null[T]()
	}
	return client.Value(*v)
}

type topicsCreateCmd struct {
	connectFlags
	Topic       string `arg:""`
	IfNotExists bool   `help:"Succeed, and change nothing, where the topic is there already."`
	topicFlags
}

func (c *topicsCreateCmd) Run(ctx context.Context, e *env) error {
	cl, err := c.client(e)
	if err != nil {
		return err
	}
	defer cl.Close()
	switch t, err := cl.GetTopic(ctx, c.Topic); {
	case err == nil && c.IfNotExists:
		return printTopic(e, t, c.Output)
	case err == nil:
		return fmt.Errorf("topic %s exists already: forebay topics update changes it", c.Topic)
	case !errors.Is(err, &client.Error{Code: api.CodeUnknownTopic}):
		return err
	}
	t, _, err := cl.PutTopic(ctx, c.Topic, c.settings())
	if err != nil {
		return err
	}
	return printTopic(e, t, c.Output)
}

type topicsUpdateCmd struct {
	connectFlags
	Topic               string `arg:""`
	AcknowledgeKeyRemap bool   `help:"More partitions: yes, keys may go to other partitions from now on."`
	topicFlags
}

func (c *topicsUpdateCmd) Run(ctx context.Context, e *env) error {
	cl, err := c.client(e)
	if err != nil {
		return err
	}
	defer cl.Close()
	if _, err := cl.GetTopic(ctx, c.Topic); err != nil {
		return err
	}
	s := c.settings()
	s.AcknowledgeKeyRemap = c.AcknowledgeKeyRemap
	if body, err := json.Marshal(s); err != nil {
		return err
	} else if string(body) == "{}" {
		return usagef("topics update: name at least one setting to change")
	}
	t, _, err := cl.PutTopic(ctx, c.Topic, s)
	if err != nil {
		return err
	}
	return printTopic(e, t, c.Output)
}

type topicsDeleteCmd struct {
	connectFlags
	Topic string `arg:""`
	deleteFlags
}

func (c *topicsDeleteCmd) Run(ctx context.Context, e *env) error {
	cl, err := c.client(e)
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := cl.DeleteTopic(ctx, c.Topic); err != nil {
		return err
	}
	return c.deleted(e, "topic", c.Topic)
}
