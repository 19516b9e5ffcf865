package work

import (
	"context"

	"github.com/forebaymq/forebay/client"
)

// RawQueue is a subscription whose records come in the server's own words. Remote is one.
type RawQueue interface {
	LeaseRaw(ctx context.Context, o client.LeaseOptions) ([]client.RawMessage, error)
	Ack(ctx context.Context, receipts []string) ([]client.SettleResult, error)
	Nack(ctx context.Context, receipts []string, o client.NackOptions) ([]client.SettleResult, error)
}

// Remote is a subscription of a server.
type Remote struct {
	Client              *client.Client
	Topic, Subscription string
}

var _ RawQueue = (*Remote)(nil)

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
