package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/forebaymq/forebay/api"
)

// SettleResult answers for one receipt.
type SettleResult struct {
	Receipt        string
	Code           api.Code  // "" = done; LEASE_LOST: the lease has lapsed or was superseded, nothing changed
	LeaseExpiresAt time.Time // of ExtendMany, by the server's clock
}

// Err gives nil or an *Error with the code: errors.Is(r.Err(), ErrLeaseLost).
func (r *SettleResult) Err() error {
	if r.Code == "" {
		return nil
	}
	info := api.Codes[r.Code]
	return &Error{Op: "receipt " + r.Receipt, Status: info.Status, Code: r.Code, Title: info.Title, Attempts: 1}
}

// NackOptions say what becomes of records that could not be processed.
type NackOptions struct {
	Delay  *time.Duration // until the next delivery; nil = by the subscription's backoff
	Reason string         // kept with the record, shown where it becomes a dead letter; at most 1,024 bytes
}

// Ack settles one record: it is not delivered again. ErrLeaseLost: the lease was gone, and nothing changed. Acks are repeatable: one
// whose answer was lost is sent again.
func (c *Client) Ack(ctx context.Context, topic, subscription, receipt string) error {
	r := queueRequest("ack", http.MethodPost, topic, subscription, "/ack", safeTwice)
	r.query = url.Values{"receipt": {receipt}}
	return c.call(ctx, r, nil)
}

// AckMany settles records, each on its own: one result a receipt, in their order. An error means that not all outcomes are known; the
// results that came before it are returned with it, and the same call may be repeated.
func (c *Client) AckMany(ctx context.Context, topic, subscription string, receipts []string) ([]SettleResult, error) {
	return c.settle(ctx, "ack", topic, subscription, receipts, encodeReceipts)
}

// AckManyJSON is AckMany in the JSON form, for comparison.
func (c *Client) AckManyJSON(ctx context.Context, topic, subscription string, receipts []string) ([]SettleResult, error) {
	results := make([]SettleResult, 0, len(receipts))
	for len(receipts) > 0 {
		some := receipts[:min(len(receipts), api.MaxReceiptsPerRequest)]
		r, err := queueRequest("ack", http.MethodPost, topic, subscription, "/ack", safeTwice).withJSON(map[string][]string{"receipts": some})
		if err != nil {
			return results, err
		}
		before := len(results)
		err = c.call(ctx, r, func(_ int, body []byte) (err error) {
			results, err = decodeSettledJSON(body, some, results[:before])
			return err
		})
		if err != nil {
			return results[:before], err
		}
		receipts = receipts[len(some):]
	}
	return results, nil
}

// Nack gives one record back as failed. ErrLeaseLost: the lease was gone, and nothing changed.
func (c *Client) Nack(ctx context.Context, topic, subscription, receipt string, o NackOptions) error {
	results, err := c.NackMany(ctx, topic, subscription, []string{receipt}, o)
	return one(results, err)
}

// NackMany gives records back as failed, each on its own. Results and errors are as with AckMany, but a repetition of a nack that had
// its effect answers LEASE_LOST: the lease is gone.
func (c *Client) NackMany(ctx context.Context, topic, subscription string, receipts []string, o NackOptions) ([]SettleResult, error) {
	return c.settle(ctx, "nack", topic, subscription, receipts, func(some []string) []byte { return encodeNack(some, o) })
}

// Extend makes one lease live for visibility from now (0 = the subscription's), and says until when by the server's clock. ErrLeaseLost:
// the lease was gone, and nothing changed.
func (c *Client) Extend(ctx context.Context, topic, subscription, receipt string, visibility time.Duration) (time.Time, error) {
	results, err := c.ExtendMany(ctx, topic, subscription, []string{receipt}, visibility)
	if err := one(results, err); err != nil {
		return time.Time{}, err
	}
	return results[0].LeaseExpiresAt, nil
}

// ExtendMany is Extend for several leases, each on its own. Results and errors are as with AckMany.
func (c *Client) ExtendMany(ctx context.Context, topic, subscription string, receipts []string, visibility time.Duration) ([]SettleResult, error) {
	return c.settle(ctx, "extend", topic, subscription, receipts, func(some []string) []byte { return encodeExtend(some, visibility) })
}

// one gives the outcome of a call about one receipt.
func one(results []SettleResult, err error) error {
	if err != nil {
		return err
	}
	return results[0].Err()
}

// settle sends receipts, as many requests as the contract's limit makes necessary.
func (c *Client) settle(ctx context.Context, op, topic, subscription string, receipts []string, encode func([]string) []byte) ([]SettleResult, error) {
	results := make([]SettleResult, 0, len(receipts))
	for len(receipts) > 0 {
		some := receipts[:min(len(receipts), api.MaxReceiptsPerRequest)]
		r := queueRequest(op, http.MethodPost, topic, subscription, "/"+op, safeTwice)
		r.body, r.contentType, r.accept = encode(some), contentProtobuf, contentProtobuf
		before := len(results)
		err := c.call(ctx, r, func(_ int, body []byte) (err error) {
			results, err = decodeSettled(body, some, results[:before])
			return err
		})
		if err != nil {
			return results[:before], err
		}
		receipts = receipts[len(some):]
	}
	return results, nil
}
