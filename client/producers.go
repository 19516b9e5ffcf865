package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
)

// StartProducer begins a session of a producer and gives its epoch. Sessions with an older epoch are fenced from then on: their
// publishes get PRODUCER_FENCED. Where an answer was lost it is sent again, which fences the session that nobody heard of.
func (c *Client) StartProducer(ctx context.Context, id string) (epoch int64, err error) {
	r := &request{
		op: "start producer " + id, method: http.MethodPost, path: "/v1/producers/" + url.PathEscape(id),
		accept: "application/json", twice: safeTwice,
	}
	var answer struct {
		Epoch int64 `json:"epoch"`
	}
	err = c.call(ctx, r, func(_ int, body []byte) error { return json.Unmarshal(body, &answer) })
	return answer.Epoch, err
}

// ProducerPosition is the highest sequence of a producer that a partition has accepted.
type ProducerPosition struct {
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
	Sequence  int64  `json:"sequence"`
}

// ProducerPositions gives what a producer has had accepted, per partition of one topic, or of all topics ("").
func (c *Client) ProducerPositions(ctx context.Context, id, topic string) ([]ProducerPosition, error) {
	query := url.Values{}
	if topic != "" {
		query.Set("topic", topic)
	}
	r := &request{
		op: "positions of producer " + id, method: http.MethodGet, path: "/v1/producers/" + url.PathEscape(id), query: query,
		accept: "application/json", twice: safeTwice,
	}
	var answer struct {
		Partitions []ProducerPosition `json:"partitions"`
	}
	err := c.call(ctx, r, func(_ int, body []byte) error {
		answer.Partitions = nil
		return json.Unmarshal(body, &answer)
	})
	return answer.Partitions, err
}
