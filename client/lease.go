package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"time"
)

// LeaseOptions say how much a lease asks for.
type LeaseOptions struct {
	Max        int           // most records, at most 1,000; 0 = the server's default (10)
	Wait       time.Duration // how long the server waits for a first record, at most 30 s; 0 = not at all
	Visibility time.Duration // how long the leases live, 1 s to 12 h; 0 = the subscription's
	MaxBytes   int64         // most bytes, but at least one record; 0 = the server's default
	// RequestID makes the lease repeatable: a second one with the same ID gets the same leases while they live. "" = one is made where
	// the retry policy may send the request again.
	RequestID string
}

// Message is one leased record.
type Message struct {
	Receipt        string    // names the lease, for Ack, Nack and Extend
	Attempt        int32     // of this delivery; the first is 1
	LeaseExpiresAt time.Time // by the server's clock
	Record
}

// jsonLease is the body of a lease.
type jsonLease struct {
	Max        int    `json:"max,omitempty"`
	Wait       string `json:"wait,omitempty"`
	Visibility string `json:"visibility,omitempty"`
	MaxBytes   int64  `json:"maxBytes,omitempty"`
	RequestID  string `json:"requestId,omitempty"`
}

// Lease leases up to o.Max records to the caller, who acks, nacks or extends them before they expire. No messages and no error: there was
// nothing to lease within o.Wait.
//
// A lease is sent again where its answer was lost, with the same request ID: it gets the same leases.
func (c *Client) Lease(ctx context.Context, topic, subscription string, o LeaseOptions) ([]Message, error) {
	id := c.leaseID(o)
	r := leaseRequest(topic, subscription, o, id)
	r.body, r.contentType, r.accept = encodeLease(o, id), contentProtobuf, contentProtobuf
	var messages []Message
	err := c.lease(ctx, r, func(body []byte) (err error) {
		messages, err = decodeLease(body)
		return err
	})
	return messages, err
}

// LeaseJSON is Lease in the JSON form, for comparison; the messages are the same.
func (c *Client) LeaseJSON(ctx context.Context, topic, subscription string, o LeaseOptions) ([]Message, error) {
	var messages []Message
	err := c.leaseJSON(ctx, topic, subscription, o, func(body []byte) (err error) {
		messages, err = decodeMessagesJSON(body)
		return err
	})
	return messages, err
}

// RawMessage is one leased record in the server's own words.
type RawMessage struct {
	Receipt        string
	Partition      int32
	Offset         int64
	Attempt        int32
	LeaseExpiresAt time.Time
	JSON           json.RawMessage // all of it, the record included
}

// LeaseRaw is Lease in the JSON form, for tools that print records.
func (c *Client) LeaseRaw(ctx context.Context, topic, subscription string, o LeaseOptions) ([]RawMessage, error) {
	var messages []RawMessage
	err := c.leaseJSON(ctx, topic, subscription, o, func(body []byte) error {
		var answer struct {
			Messages []json.RawMessage `json:"messages"`
		}
		if err := json.Unmarshal(body, &answer); err != nil {
			return err
		}
		messages = make([]RawMessage, len(answer.Messages))
		for i, raw := range answer.Messages {
			m := &messages[i]
			if err := json.Unmarshal(raw, m); err != nil {
				return err
			}
			m.JSON = raw
		}
		return nil
	})
	return messages, err
}

func (c *Client) leaseJSON(ctx context.Context, topic, subscription string, o LeaseOptions, decode func([]byte) error) error {
	b := jsonLease{Max: o.Max, MaxBytes: o.MaxBytes, RequestID: c.leaseID(o)}
	if o.Wait > 0 {
		b.Wait = formatDuration(o.Wait)
	}
	if o.Visibility > 0 {
		b.Visibility = formatDuration(o.Visibility)
	}
	r, err := leaseRequest(topic, subscription, o, b.RequestID).withJSON(b)
	if err != nil {
		return err
	}
	return c.lease(ctx, r, decode)
}

func leaseRequest(topic, subscription string, o LeaseOptions, id string) *request {
	r := queueRequest("lease from", http.MethodPost, topic, subscription, "/lease", repeatable(id != ""))
	r.wait = o.Wait
	return r
}

func (c *Client) lease(ctx context.Context, r *request, decode func([]byte) error) error {
	return c.call(ctx, r, func(status int, body []byte) error {
		if status == http.StatusNoContent {
			return nil
		}
		return decode(body)
	})
}

// leaseID gives the request ID of a lease. One that is sent at most once needs none, and saves the server remembering it.
func (c *Client) leaseID(o LeaseOptions) string {
	if o.RequestID != "" || c.policy.Attempts == 1 {
		return o.RequestID
	}
	return rand.Text()
}
