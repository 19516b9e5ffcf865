package work

import (
	"context"
	"errors"
	"time"

	"github.com/forebaymq/forebay/client"
)

// PrintOptions say what Print does.
type PrintOptions struct {
	Queue RawQueue
	Lease client.LeaseOptions
	// Print prints the records of one lease. They are acked when it has returned, and given back when it failed.
	Print      func([]client.RawMessage) error
	Once       bool // end after one lease
	UntilEmpty bool // end when nothing can be leased
	Drain      <-chan struct{}
	Notify     func(receipt string, err error)
}

// Print leases, prints and acks until o says to end, the queue or the printer fails, or ctx ends.
func Print(ctx context.Context, o PrintOptions) (s client.WorkerStats, err error) {
	leasing, cancel := context.WithCancel(ctx)
	defer cancel()
	watched := make(chan struct{})
	defer func() { cancel(); <-watched }()
	go func() {
		defer close(watched)
		select {
		case <-o.Drain:
			cancel()
		case <-leasing.Done():
		}
	}()
	if o.UntilEmpty {
		o.Lease.Wait = 0
	}
	for leasing.Err() == nil {
		messages, err := o.Queue.LeaseRaw(leasing, o.Lease)
		if err != nil {
			if leasing.Err() != nil {
				return s, nil
			}
			return s, err
		}
		s.Leased += int64(len(messages))
		if len(messages) > 0 {
			if err := o.printAndAck(ctx, messages, &s); err != nil {
				return s, err
			}
		}
		if o.Once || o.UntilEmpty && len(messages) == 0 {
			return s, nil
		}
	}
	return s, nil
}

func (o *PrintOptions) printAndAck(ctx context.Context, messages []client.RawMessage, s *client.WorkerStats) error {
	receipts := make([]string, len(messages))
	for i := range messages {
		receipts[i] = messages[i].Receipt
	}
	failed := o.Print(messages)
	var results []client.SettleResult
	var err error
	count := &s.Acked
	if failed == nil {
		results, err = o.Queue.Ack(ctx, receipts)
	} else {
		count = &s.GivenBack
		results, err = o.Queue.Nack(ctx, receipts, client.NackOptions{Delay: new(time.Duration), Reason: client.ErrWorkerStopped.Error()})
	}
	s.Unsettled += int64(len(receipts) - len(results))
	for i := range results {
		if results[i].Code == "" {
			*count++
			continue
		}
		s.Lost++
		if failed == nil && o.Notify != nil {
			o.Notify(results[i].Receipt, results[i].Err())
		}
	}
	return errors.Join(failed, err)
}
