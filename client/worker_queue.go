package client

import (
	"context"
	"fmt"
	"time"

	"github.com/forebaymq/forebay/api"
)

// workerQueue is one subscription, as a Worker sees it.
type workerQueue interface {
	// Visibility gives how long its leases live where nobody says otherwise.
	Visibility(ctx context.Context) (time.Duration, error)
	Lease(ctx context.Context, o LeaseOptions) ([]Message, error)
	Ack(ctx context.Context, receipts []string) ([]SettleResult, error)
	Nack(ctx context.Context, receipts []string, o NackOptions) ([]SettleResult, error)
	Extend(ctx context.Context, receipts []string, visibility time.Duration) ([]SettleResult, error)
}

// remoteQueue is a subscription of a server.
type remoteQueue struct {
	c                   *Client
	topic, subscription string
}

var _ workerQueue = (*remoteQueue)(nil)

func (q *remoteQueue) Visibility(ctx context.Context) (time.Duration, error) {
	s, err := q.c.GetSubscription(ctx, q.topic, q.subscription)
	if err != nil {
		return 0, err
	}
	d, err := time.ParseDuration(s.VisibilityTimeout)
	if err != nil || d < api.MinVisibility {
		return 0, &Error{Op: "get subscription " + q.subscription, Cause: fmt.Errorf(
			"%w: its visibility timeout %q is no duration that this client knows; choose one with WithWorkerVisibility", errNotSent, s.VisibilityTimeout)}
	}
	return d, nil
}

func (q *remoteQueue) Lease(ctx context.Context, o LeaseOptions) ([]Message, error) {
	return q.c.Lease(ctx, q.topic, q.subscription, o)
}

func (q *remoteQueue) Ack(ctx context.Context, receipts []string) ([]SettleResult, error) {
	return q.c.AckMany(ctx, q.topic, q.subscription, receipts)
}

func (q *remoteQueue) Nack(ctx context.Context, receipts []string, o NackOptions) ([]SettleResult, error) {
	return q.c.NackMany(ctx, q.topic, q.subscription, receipts, o)
}

func (q *remoteQueue) Extend(ctx context.Context, receipts []string, visibility time.Duration) ([]SettleResult, error) {
	return q.c.ExtendMany(ctx, q.topic, q.subscription, receipts, visibility)
}
