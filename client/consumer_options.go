package client

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ConsumerOrder says which records of a partition a Consumer may handle at the same time.
type ConsumerOrder uint8

// The orders.
const (
	// OrderByKey: records with the same key one after the other, in the order of the partition; others at the same time. Records without a key have no
	// order among each other.
	OrderByKey ConsumerOrder = iota
	// OrderByPartition: all records of a partition one after the other.
	OrderByPartition
)

// FailureAction is what becomes of a record whose handler has failed.
type FailureAction uint8

// The actions.
const (
	FailureStop FailureAction = iota // end the consumer with a *HandlerError; the record is not committed
	// Handle it again after a pause; what is behind it in its order waits. When its partition is let go, it is tried once more at once, and then left to
	// who has the partition next.
	FailureRetry
	FailureSkip // go on behind it, and commit it
)

// GapAction is what becomes of a partition of which retention has deleted records before a group, or a Reader, has read them.
type GapAction uint8

// The actions.
const (
	GapStop GapAction = iota // end the consumer with a *GapError, the Reader's loop with an *OutOfRangeError
	GapSkip                  // go on at the first record that is still there, and, of a group, commit that
)

type consumerOptions struct {
	instanceID    string
	start         string
	session       time.Duration
	concurrency   int
	order         ConsumerOrder
	buffer        int64
	window        int
	pollRecords   int
	commitEvery   time.Duration
	commitRecords int
	grace         time.Duration
	retryInitial  time.Duration
	retryMax      time.Duration
	onFailure     func(ctx context.Context, r *GroupRecord, err error, attempt int) FailureAction
	onGap         func(ctx context.Context, g Gap) GapAction
	onAssigned    func(partitions []GroupOffset)
	onRevoked     func(partitions []TopicPartition)
	onLost        func(partitions []TopicPartition)
	notify        func(err error)
	stay          *bool
}

// ConsumerOption changes one setting of a Consumer.
type ConsumerOption func(*consumerOptions)

// WithConsumerInstanceID makes the membership static, overriding the default of a new member with each start: a process that starts with the instance of
// another one takes over what that one owned, and nothing else moves. Such a consumer does not leave when it is closed (see WithConsumerLeave).
func WithConsumerInstanceID(id string) ConsumerOption {
	return func(o *consumerOptions) { o.instanceID = id }
}

// WithConsumerLeave says whether the consumer leaves the group when it is closed, overriding the default of leaving unless the membership is static. One
// that does not leave keeps its partitions from the others until its session lapses, or until it comes back.
func WithConsumerLeave(leave bool) ConsumerOption {
	return func(o *consumerOptions) { stay := !leave; o.stay = &stay }
}

// WithConsumerStart says where the group begins on partitions for which it has no offset, "earliest" or "latest", overriding the default of "latest".
func WithConsumerStart(start string) ConsumerOption {
	return func(o *consumerOptions) { o.start = start }
}

// WithConsumerSession is how long the group waits for a member that is silent before others get its partitions, 1 s to 5 min, overriding the default of 10 s.
func WithConsumerSession(d time.Duration) ConsumerOption {
	return func(o *consumerOptions) { o.session = d }
}

// WithConsumerConcurrency is how many handlers run at a time, over all partitions, overriding the default of 16.
func WithConsumerConcurrency(n int) ConsumerOption {
	return func(o *consumerOptions) { o.concurrency = n }
}

// WithConsumerOrder overrides the default of OrderByKey.
func WithConsumerOrder(order ConsumerOrder) ConsumerOption {
	return func(o *consumerOptions) { o.order = order }
}

// WithConsumerBuffer bounds the bytes of records that are read and not handled yet, over all partitions, overriding the default of 64 MiB. Each
// partition may have its share, and one answer, be it ever so small a share.
func WithConsumerBuffer(bytes int64) ConsumerOption {
	return func(o *consumerOptions) { o.buffer = bytes }
}

// WithConsumerWindow bounds, per partition, the records from the first one that is not handled on, overriding the default of 20,000. It is also how
// many may be handled again after a crash while one record takes long, and how many may have to be handled before the partition is let go.
func WithConsumerWindow(records int) ConsumerOption {
	return func(o *consumerOptions) { o.window = records }
}

// WithConsumerPollRecords is how many records a Poll returns at most, overriding the default of 1,000.
func WithConsumerPollRecords(n int) ConsumerOption {
	return func(o *consumerOptions) { o.pollRecords = n }
}

// WithConsumerCommit says how often progress is committed: after so long, or after so many records (0 = no matter how many), whichever is first. It
// overrides the default of 1 s and 10,000.
func WithConsumerCommit(every time.Duration, records int) ConsumerOption {
	return func(o *consumerOptions) { o.commitEvery, o.commitRecords = every, records }
}

// WithConsumerGrace is how long handlers may go on when their partition is revoked or the consumer is closed, with what they have begun
// and what waits before that, until their contexts end. It overrides the default of 30 s. Another member waits for the partition as long.
// With Poll it is how long the consumer waits for records of a revoked partition to be marked.
func WithConsumerGrace(d time.Duration) ConsumerOption {
	return func(o *consumerOptions) { o.grace = d }
}

// WithConsumerFailure decides about records whose handler has failed, overriding the default of FailureStop. attempt counts from 1; of a batch, r is the
// first record. It is called by several goroutines.
func WithConsumerFailure(decide func(ctx context.Context, r *GroupRecord, err error, attempt int) FailureAction) ConsumerOption {
	return func(o *consumerOptions) { o.onFailure = decide }
}

// WithConsumerBackoff is the pause before a record is handled again with FailureRetry, doubled each time, overriding the default of 200 ms to 30 s.
func WithConsumerBackoff(initial, limit time.Duration) ConsumerOption {
	return func(o *consumerOptions) { o.retryInitial, o.retryMax = initial, limit }
}

// WithConsumerGap decides about records that retention has deleted before the group read them, overriding the default of GapStop. g names what is lost.
func WithConsumerGap(decide func(ctx context.Context, g Gap) GapAction) ConsumerOption {
	return func(o *consumerOptions) { o.onGap = decide }
}

// WithConsumerOnAssigned calls f before the first record of new partitions is handled, with where they begin, overriding the default of nothing. Calls
// of this kind, and of OnRevoked and OnLost, come one after the other, in the order of the events; heartbeats go on meanwhile.
func WithConsumerOnAssigned(f func(partitions []GroupOffset)) ConsumerOption {
	return func(o *consumerOptions) { o.onAssigned = f }
}

// WithConsumerOnRevoked calls f when the handlers of partitions have ended and their progress is committed, before another member may get them,
// overriding the default of nothing. It is also called when the consumer is closed. What could not be finished or committed is told to WithConsumerNotify.
func WithConsumerOnRevoked(f func(partitions []TopicPartition)) ConsumerOption {
	return func(o *consumerOptions) { o.onRevoked = f }
}

// WithConsumerOnLost calls f when partitions were lost: others may have them already, nothing can be committed any more, and the contexts of their handlers
// have ended. It overrides the default of nothing.
func WithConsumerOnLost(f func(partitions []TopicPartition)) ConsumerOption {
	return func(o *consumerOptions) { o.onLost = f }
}

// WithConsumerNotify hears of failures that the consumer deals with by itself: requests that are sent again, sessions that lapse, partitions that go with
// something unfinished (*UnfinishedError). That a commit meets a new generation is no failure, unless it goes on. It overrides the default
// of nobody. It is called by several goroutines and must not block.
func WithConsumerNotify(f func(err error)) ConsumerOption {
	return func(o *consumerOptions) { o.notify = f }
}

func consumerDefaults() consumerOptions {
	return consumerOptions{
		session: 10 * time.Second, concurrency: 16, buffer: 64 << 20, window: 20_000, pollRecords: 1000,
		commitEvery: time.Second, commitRecords: 10_000, grace: 30 * time.Second, retryInitial: 200 * time.Millisecond, retryMax: 30 * time.Second,
	}
}

// check reports every fault.
func (o *consumerOptions) check() error {
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	fault(o.start != "" && o.start != "earliest" && o.start != "latest", "start %q: want earliest or latest", o.start)
	fault(o.session < time.Second || o.session > 5*time.Minute, "session %s: want 1s to 5m", o.session)
	fault(o.concurrency < 1, "concurrency %d: want 1 or more", o.concurrency)
	fault(o.order > OrderByPartition, "order %d: want OrderByKey or OrderByPartition", o.order)
	fault(o.buffer < 1, "buffer of %d bytes: want 1 or more", o.buffer)
	fault(o.window < 1, "window of %d records: want 1 or more", o.window)
	fault(o.pollRecords < 1, "polls of %d records: want 1 or more", o.pollRecords)
	fault(o.commitEvery <= 0, "commits every %s: want more than 0", o.commitEvery)
	fault(o.commitRecords < 0, "commits after %d records: want 0 or more", o.commitRecords)
	fault(o.grace < 0, "grace %s: want 0 or more", o.grace)
	fault(o.retryInitial <= 0 || o.retryMax < o.retryInitial, "backoff %s to %s: want rising, above 0", o.retryInitial, o.retryMax)
	return errors.Join(faults...)
}
