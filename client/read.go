package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Special offsets of ReadOptions.
const (
	Earliest int64 = -2 // the lowest offset still readable
	Latest   int64 = -1 // the offset that the next record will get
)

// ReadOptions say where a read begins and how much it answers.
type ReadOptions struct {
	Offset    int64         // >= 0, Earliest or Latest
	Timestamp time.Time     // if not zero, begin at the first record appended at or after it, instead of Offset
	Limit     int           // most records; 0 = the server's default (1,000)
	MaxBytes  int64         // most bytes, but at least one record; 0 = the server's default (4 MiB)
	Wait      time.Duration // how long the server waits for a first record, at most 30 s
}

// ReadResult is what a read found.
type ReadResult struct {
	Records    []Record // may be empty: at the head, or where compaction left a hole
	NextOffset int64    // where to go on
	Head       int64    // the offset that the next record will get
	LogStart   int64    // the lowest offset still readable
}

// Read reads records of one partition. An offset outside the partition is OFFSET_OUT_OF_RANGE, with LogStart and Head in the *Error.
func (c *Client) Read(ctx context.Context, topic string, partition int, o ReadOptions) (*ReadResult, error) {
	var result *ReadResult
	err := c.read(ctx, topic, partition, o, contentProtobuf, func(_ int, body []byte) (err error) {
		result, err = decodeRead(body)
		return err
	})
	if err != nil {
		return nil, err
	}
	return result, nil
}

// JSONReadResult is what a read in the JSON form found: each record in the server's own words.
type JSONReadResult struct {
	Records    []json.RawMessage `json:"records"`
	NextOffset int64             `json:"nextOffset"`
	Head       int64             `json:"head"`
	LogStart   int64             `json:"logStart"`
}

// ReadJSON is Read in the JSON form, for tools that print records.
func (c *Client) ReadJSON(ctx context.Context, topic string, partition int, o ReadOptions) (*JSONReadResult, error) {
	result := &JSONReadResult{}
	err := c.read(ctx, topic, partition, o, "application/json", func(_ int, body []byte) error {
		*result = JSONReadResult{}
		return json.Unmarshal(body, result)
	})
	if err != nil {
		return nil, err
	}
	return result, nil
}

func (c *Client) read(ctx context.Context, topic string, partition int, o ReadOptions, accept string, decode func(int, []byte) error) error {
	query := url.Values{}
	switch {
	case !o.Timestamp.IsZero():
		query.Set("timestamp", formatTime(o.Timestamp))
	case o.Offset == Earliest:
		query.Set("offset", "earliest")
	case o.Offset == Latest:
		query.Set("offset", "latest")
	default:
		query.Set("offset", strconv.FormatInt(o.Offset, 10))
	}
	if o.Limit > 0 {
		query.Set("limit", strconv.Itoa(o.Limit))
	}
	if o.MaxBytes > 0 {
		query.Set("maxBytes", strconv.FormatInt(o.MaxBytes, 10))
	}
	if o.Wait > 0 {
		query.Set("wait", formatDuration(o.Wait))
	}
	r := &request{
		op:     fmt.Sprintf("read %s partition %d", topic, partition),
		method: http.MethodGet, path: partitionPath(topic, partition) + "/records", query: query,
		accept: accept, twice: safeTwice, wait: o.Wait,
	}
	return c.call(ctx, r, decode)
}

// OffsetForTime gives the first offset of a partition whose append time is at or after t; found is false if there is none.
func (c *Client) OffsetForTime(ctx context.Context, topic string, partition int, t time.Time) (offset int64, found bool, err error) {
	r := &request{
		op:     fmt.Sprintf("offset for time in %s partition %d", topic, partition),
		method: http.MethodGet, path: partitionPath(topic, partition) + "/offset", query: url.Values{"timestamp": {formatTime(t)}},
		accept: "application/json", twice: safeTwice,
	}
	var answer struct {
		Offset *int64 `json:"offset"`
	}
	err = c.call(ctx, r, func(_ int, body []byte) error {
		answer.Offset = nil
		return json.Unmarshal(body, &answer)
	})
	if err != nil || answer.Offset == nil {
		return 0, false, err
	}
	return *answer.Offset, true, nil
}

func partitionPath(topic string, partition int) string {
	return topicPath(topic) + "/partitions/" + strconv.Itoa(partition)
}

// formatTime writes a time as the contract does: RFC 3339 with milliseconds, UTC.
func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// formatDuration writes a duration to the millisecond.
func formatDuration(d time.Duration) string {
	return strconv.FormatInt(int64(d.Round(time.Millisecond)/time.Millisecond), 10) + "ms"
}
