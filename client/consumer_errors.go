package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/forebaymq/forebay/api"
)

// Causes of the end of a handler's context, and of the end of a Consumer.
var (
	// ErrPartitionLost: the partition is not the consumer's any more, and what was done for it since the last commit will be done again by whoever
	// owns it now.
	ErrPartitionLost = errors.New("the partition was lost")
	// ErrPartitionRevoked: the partition goes to another member, and the handler has used up the time that it had to finish.
	ErrPartitionRevoked = errors.New("the partition was revoked")
	// ErrConsumerClosed: the consumer is closed, or is being closed and the handler has used up the time that it had to finish.
	ErrConsumerClosed = errors.New("the consumer is closed")
	// ErrInstanceReplaced ends a consumer whose instance another process has taken over.
	ErrInstanceReplaced = errors.New("another process has the instance")
)

// HandlerError says which record a handler failed on. It is what Run returns then.
type HandlerError struct {
	Topic     string
	Partition int32
	Offset    int64 // of the first record, where a batch failed
	Attempts  int
	Err       error
}

func (e *HandlerError) Error() string {
	return fmt.Sprintf("handle record %d of %s partition %d: %v", e.Offset, e.Topic, e.Partition, e.Err)
}

// Unwrap gives the handler's error.
func (e *HandlerError) Unwrap() error { return e.Err }

// UnfinishedError says that a partition was let go while records were begun and not done, because the time to finish was over (WithConsumerGrace), their handlers
// failed, or they were not marked. It is what Run and Close return where a consumer was closed so; with several partitions, that of one of them.
type UnfinishedError struct {
	Topic     string
	Partition int32
	Offset    int64 // of the first record that is not done: it is what is committed
	Repeats   int64 // records behind it that are done, and will be handled again
}

func (e *UnfinishedError) Error() string {
	return fmt.Sprintf("%s partition %d is let go at offset %d, whose record is not done; %d done behind it will be handled again",
		e.Topic, e.Partition, e.Offset, e.Repeats)
}

// GapError says what retention has deleted before the group read it. errors.Is finds ErrRetentionGap in it.
type GapError struct{ Gap }

func (e *GapError) Error() string {
	return fmt.Sprintf("read %s partition %d: RETENTION_GAP: retention has deleted the offsets %d to %d before the group has read them",
		e.Topic, e.Partition, e.From, e.To-1)
}

// Is makes ErrRetentionGap match.
func (e *GapError) Is(target error) bool { return ErrRetentionGap.Is(target) }

// consumerFatal says whether no repetition will help: the server itself refuses, for a reason that stays. What somebody between says in his own words
// is not final: a gateway answers 404 while what is behind it starts.
func consumerFatal(err error) bool {
	outcome, _ := Classify(err)
	if outcome != Definite {
		return false
	}
	var e *Error
	if !errors.As(err, &e) || e.Status == 0 {
		return true
	}
	_, known := api.Codes[e.Code]
	return known
}

// consumerPause is how long to wait before the n-th repetition (from 1): doubled from initial to limit, with jitter. A server's Retry-After may make
// it longer, up to the limit.
func consumerPause(n int, initial, limit time.Duration, err error) time.Duration {
	pause := initial
	for i := 1; i < n && pause < limit; i++ {
		pause *= 2
	}
	var e *Error
	if errors.As(err, &e) {
		pause = max(pause, e.RetryAfter)
	}
	pause = min(pause, limit)
	return pause/2 + rand.N(pause/2+1)
}

// consumerSleep waits for d, for ctx, or for any of the channels, whichever is first. false: ctx has ended.
func consumerSleep(ctx context.Context, d time.Duration, until ...<-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	var first, second <-chan struct{}
	switch len(until) {
	case 2:
		first, second = until[0], until[1]
	case 1:
		first = until[0]
	}
	select {
	case <-timer.C:
	case <-first:
	case <-second:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
