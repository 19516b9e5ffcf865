package client

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/forebaymq/forebay/api"
)

// ErrWorkerStopped is the cause of the end of a handler's context when the context of Run has ended.
var ErrWorkerStopped = errors.New("the worker was stopped")

// errGoexit stands for a handler that ended its goroutine.
var errGoexit = errors.New("the handler ended its goroutine")

// PanicError is a panic of a handler.
type PanicError struct {
	Value any    // what it panicked with
	Stack []byte // of the goroutine, as debug.Stack gives it
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap gives the value, where it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// RetryAfter is err for the handler of a Worker to return: the record is delivered again no sooner than d from now, whatever the subscription's backoff
// and WithWorkerNackDelay say. What is negative counts as 0, and what is more than 12 h as 12 h. RetryAfter of nil is nil, which acks.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &retryAfterError{err, d}
}

type retryAfterError struct {
	error
	delay time.Duration
}

func (e *retryAfterError) Unwrap() error { return e.error }

// boundDelay makes a delay one that a nack can carry.
func boundDelay(d time.Duration) time.Duration { return min(max(d, 0), api.MaxNackDelay) }

// reasonText makes an error's text fit for a nack: valid UTF-8 of bounded length, and never empty.
func reasonText(err error) string {
	s := strings.ToValidUTF8(err.Error(), "\uFFFD")
	if s == "" {
		return "failed"
	}
	if len(s) <= api.MaxReasonBytes {
		return s
	}
	n := api.MaxReasonBytes
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
