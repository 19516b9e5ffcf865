package client

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/forebaymq/forebay/api"
)

// TopicSettings is what a topic is created with or changed to. A nil field is left to the server: its default when the topic is
// created, its present value when it is changed. Durations are written as the contract writes them: "500ms", "72h", "3d".
type TopicSettings struct {
	Partitions         *int               `json:"partitions,omitempty"`
	Retention          *RetentionSettings `json:"retention,omitempty"`
	Cleanup            *string            `json:"cleanup,omitempty"` // "delete", "compact", "compact,delete"
	MinCompactionLag   *string            `json:"minCompactionLag,omitempty"`
	TombstoneRetention *string            `json:"tombstoneRetention,omitempty"`
	Residency          *Nullable[string]  `json:"residency,omitempty"`
	Mirror             *bool              `json:"mirror,omitempty"`
	MaxRecordBytes     *int               `json:"maxRecordBytes,omitempty"`
	DedupeWindow       *string            `json:"dedupeWindow,omitempty"`
	Schema             *SchemaSetting     `json:"schema,omitempty"`
	// AcknowledgeKeyRemap must be true where Partitions rises: keys then map to other partitions than before.
	AcknowledgeKeyRemap bool `json:"acknowledgeKeyRemap,omitempty"`
}

// RetentionSettings change the bounds of what a topic keeps. Null = no bound.
type RetentionSettings struct {
	Time  *Nullable[string] `json:"time,omitempty"`  // age by append time, such as "72h"
	Bytes *Nullable[int64]  `json:"bytes,omitempty"` // per partition, stored bytes
}

// Retention bounds what a topic keeps. nil = no bound.
type Retention struct {
	Time  *string `json:"time"`  // age by append time
	Bytes *int64  `json:"bytes"` // per partition, stored bytes
}

// SchemaSetting binds a topic to a schema subject.
type SchemaSetting struct {
	Subject *string `json:"subject"`
	Mode    string  `json:"mode"` // "enforce" or "off"
}

// Topic is a topic as the server describes it.
type Topic struct {
	Name               string          `json:"name"`
	TopicID            string          `json:"topicID"` // never reused: a topic deleted and created again has another
	Created            time.Time       `json:"created"`
	Partitions         int             `json:"partitions"`
	Retention          Retention       `json:"retention"`
	Cleanup            string          `json:"cleanup"`
	MinCompactionLag   string          `json:"minCompactionLag"`
	TombstoneRetention string          `json:"tombstoneRetention"`
	Residency          *string         `json:"residency"`
	Mirror             bool            `json:"mirror"`
	MaxRecordBytes     int             `json:"maxRecordBytes"`
	DedupeWindow       *string         `json:"dedupeWindow"`
	Schema             SchemaSetting   `json:"schema"`
	PartitionInfo      []PartitionInfo `json:"partitionInfo"` // with GetTopic
	// JSON is the server's answer, word for word, fields that this client does not know included.
	JSON json.RawMessage `json:"-"`
}

// PartitionInfo is the state of one partition.
type PartitionInfo struct {
	Partition int   `json:"partition"`
	LogStart  int64 `json:"logStart"` // the lowest offset still readable
	Head      int64 `json:"head"`     // the offset that the next record will get
	Bytes     int64 `json:"bytes"`    // stored bytes
}

func (t *Topic) decode(body []byte) error {
	*t = Topic{}
	if err := json.Unmarshal(body, t); err != nil {
		return err
	}
	t.JSON = body
	return nil
}

// PutTopic creates a topic (created is true) or changes it.
func (c *Client) PutTopic(ctx context.Context, name string, settings TopicSettings) (t *Topic, created bool, err error) {
	body, err := json.Marshal(settings)
	if err != nil {
		return nil, false, &Error{Op: "put topic " + name, Cause: err}
	}
	r := &request{
		op: "put topic " + name, method: http.MethodPut, path: topicPath(name),
		body: body, contentType: "application/json", accept: "application/json", twice: safeTwice,
	}
	t = &Topic{}
	err = c.call(ctx, r, func(status int, body []byte) error {
		created = status == http.StatusCreated
		return t.decode(body)
	})
	if err != nil {
		return nil, false, err
	}
	return t, created, nil
}

// GetTopic describes a topic and the state of its partitions.
func (c *Client) GetTopic(ctx context.Context, name string) (*Topic, error) {
	r := &request{
		op: "get topic " + name, method: http.MethodGet, path: topicPath(name), accept: "application/json", twice: safeTwice,
	}
	t := &Topic{}
	if err := c.call(ctx, r, func(_ int, body []byte) error { return t.decode(body) }); err != nil {
		return nil, err
	}
	return t, nil
}

// TopicPage is one page of ListTopics.
type TopicPage struct {
	Items []Topic
	Next  string // pass as cursor to go on; "" = this was the last page
}

// ListTopics pages through the tenant's topics. limit 0 = the server's default (100); cursor "" = from the start.
func (c *Client) ListTopics(ctx context.Context, limit int, cursor string) (*TopicPage, error) {
	r := &request{op: "list topics", method: http.MethodGet, path: "/v1/topics", query: pageQuery(limit, cursor), accept: contentJSON, twice: safeTwice}
	items, next, err := callPage[Topic](ctx, c, r)
	if err != nil {
		return nil, err
	}
	return &TopicPage{Items: items, Next: next}, nil
}

// DeleteTopic removes a topic and its records. It is sent again when an answer was lost; "unknown topic" is then success.
func (c *Client) DeleteTopic(ctx context.Context, name string) error {
	r := &request{op: "delete topic " + name, method: http.MethodDelete, path: topicPath(name), accept: "application/json", twice: safeTwice}
	lost := false
	return retry(ctx, c.policy, safeTwice, func(ctx context.Context) error {
		err := c.call(ctx, r.once(), nil)
		if lost && api.CodeUnknownTopic == codeOf(err) {
			return nil
		}
		if outcome, _ := Classify(err); outcome == Indefinite {
			lost = true
		}
		return err
	})
}
