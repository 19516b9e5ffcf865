package work

import (
	"context"
	"errors"
	"time"

	"github.com/forebaymq/forebay/client"
)

// Queue is one subscription. Remote is one.
type Queue interface {
	Lease(ctx context.Context, o client.LeaseOptions) ([]client.Message, error)
	Ack(ctx context.Context, receipts []string) ([]client.SettleResult, error)
	Nack(ctx context.Context, receipts []string, o client.NackOptions) ([]client.SettleResult, error)
	Extend(ctx context.Context, receipts []string, visibility time.Duration) ([]client.SettleResult, error)
}

// Remote is a subscription of a server.
type Remote struct {
	Client              *client.Client
	Topic, Subscription string
}

var _ Queue = (*Remote)(nil)

// Lease leases records.
func (r *Remote) Lease(ctx context.Context, o client.LeaseOptions) ([]client.Message, error) {
	return r.Client.Lease(ctx, r.Topic, r.Subscription, o)
}

// LeaseRaw leases records in the server's own words.
func (r *Remote) LeaseRaw(ctx context.Context, o client.LeaseOptions) ([]client.RawMessage, error) {
	return r.Client.LeaseRaw(ctx, r.Topic, r.Subscription, o)
}

// Ack settles records.
func (r *Remote) Ack(ctx context.Context, receipts []string) ([]client.SettleResult, error) {
	return r.Client.AckMany(ctx, r.Topic, r.Subscription, receipts)
}

// Nack gives records back as failed.
func (r *Remote) Nack(ctx context.Context, receipts []string, o client.NackOptions) ([]client.SettleResult, error) {
	return r.Client.NackMany(ctx, r.Topic, r.Subscription, receipts, o)
}

// Extend makes leases live longer.
func (r *Remote) Extend(ctx context.Context, receipts []string, visibility time.Duration) ([]client.SettleResult, error) {
	return r.Client.ExtendMany(ctx, r.Topic, r.Subscription, receipts, visibility)
}

// Causes of the end of a handler's context.
var (
	ErrLeaseLost = errors.New("the lease was lost")
	ErrStopped   = errors.New("the worker was stopped")
)

// Stats counts records.
type Stats struct {
	Leased    int64 `json:"leased"`
	Acked     int64 `json:"acked"`
	Nacked    int64 `json:"nacked"`
	Lost      int64 `json:"lost"`      // the lease was gone before the record was settled: it is delivered again
	GivenBack int64 `json:"givenBack"` // not handled, or not to the end, because the worker stopped
	Unsettled int64 `json:"unsettled"` // the server could not be told: they are delivered again when their leases lapse
}

// Whole says whether every record that was leased was acked.
func (s Stats) Whole() bool { return s.Acked == s.Leased }
