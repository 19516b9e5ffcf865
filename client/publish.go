package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
)

// PublishResult answers a publish: one position a record, in the order of the request.
type PublishResult struct {
	Records   []Position
	Duplicate bool // an exact retry: these are the first answer's positions
}

// TopicRecords are the records of one topic in a publish to several.
type TopicRecords struct {
	Topic   string
	Records []Record
}

// PublishTopicsResult answers a publish to several topics: per topic one position a record, in the order of the request.
type PublishTopicsResult struct {
	Topics    map[string][]Position
	Duplicate bool
}

// Publish stores all records or none, durably, before it returns. With a producer it is repeated as long as the policy allows, because
// its sequence makes that harmless; without, an unknown outcome is returned at once (see Classify).
func (c *Client) Publish(ctx context.Context, topic string, records []Record, producer *ProducerSequence) (*PublishResult, error) {
	p, err := c.Prepare(records, producer)
	if err != nil {
		return nil, err
	}
	return c.PublishPrepared(ctx, topic, p)
}

// Prepared is an encoded publish, to be sent once or many times.
type Prepared struct {
	Body            []byte
	ContentType     string // "application/x-protobuf" or "application/json"
	ContentEncoding string // "", "gzip" or "zstd"
	Records         int    // how many records Body holds
	Idempotent      bool   // Body names a producer
}

// Prepare encodes (and compresses, as the client was told to) a publish.
func (c *Client) Prepare(records []Record, producer *ProducerSequence) (*Prepared, error) {
	body, encoding, err := c.compress(encodePublish(nil, records, producer))
	if err != nil {
		return nil, &Error{Op: "publish", Cause: err}
	}
	return &Prepared{
		Body: body, ContentType: contentProtobuf, ContentEncoding: encoding, Records: len(records), Idempotent: producer != nil,
	}, nil
}

// PublishPrepared sends an encoded publish.
func (c *Client) PublishPrepared(ctx context.Context, topic string, p *Prepared) (*PublishResult, error) {
	r := &request{
		op: "publish to " + topic, method: http.MethodPost, path: topicPath(topic) + "/records",
		body: p.Body, contentType: p.ContentType, contentEncoding: p.ContentEncoding, accept: p.ContentType,
		twice: repeatable(p.Idempotent), appends: true,
	}
	var result *PublishResult
	err := c.call(ctx, r, func(_ int, body []byte) (err error) {
		if p.ContentType == contentProtobuf {
			result, err = decodePublish(body, p.Records)
			return err
		}
		result = &PublishResult{}
		return json.Unmarshal(body, &jsonPublishResult{&result.Records, &result.Duplicate})
	})
	if err != nil {
		return nil, err
	}
	return result, nil
}

// jsonPublishResult gives the JSON names to the fields that it points to.
type jsonPublishResult struct {
	Records   *[]Position `json:"records"`
	Duplicate *bool       `json:"duplicate"`
}

// PublishTopics stores the records of all topics or none. Each topic is named once.
func (c *Client) PublishTopics(ctx context.Context, topics []TopicRecords, producer *ProducerSequence) (*PublishTopicsResult, error) {
	body, encoding, err := c.compress(encodePublishTopics(nil, topics, producer))
	if err != nil {
		return nil, &Error{Op: "publish", Cause: err}
	}
	r := &request{
		op: "publish to several topics", method: http.MethodPost, path: "/v1/records",
		body: body, contentType: contentProtobuf, contentEncoding: encoding, accept: contentProtobuf,
		twice: repeatable(producer != nil), appends: true,
	}
	var result *PublishTopicsResult
	err = c.call(ctx, r, func(_ int, body []byte) (err error) {
		result, err = decodePublishTopics(body)
		return err
	})
	if err != nil {
		return nil, err
	}
	return result, nil
}

func topicPath(topic string) string { return "/v1/topics/" + url.PathEscape(topic) }

// PrepareJSON wraps (and compresses, as the client was told to) a publish that is JSON already. It counts as not idempotent.
func (c *Client) PrepareJSON(body []byte, records int) (*Prepared, error) {
	body, encoding, err := c.compress(body)
	if err != nil {
		return nil, &Error{Op: "publish", Cause: err}
	}
	return &Prepared{Body: body, ContentType: "application/json", ContentEncoding: encoding, Records: records}, nil
}
