package objectstore

import (
	"context"
	"errors"
)

// Op names an operation of Store, in metrics labels and fault rules.
type Op string

// The operations.
const (
	OpGet      Op = "get"
	OpGetRange Op = "get_range"
	OpGetTail  Op = "get_tail"
	OpPut      Op = "put" // PutIfAbsent
	OpPutMatch Op = "put_match"
	OpList     Op = "list"
	OpDelete   Op = "delete"
	OpStat     Op = "stat"
)

// Ops lists all operations.
func Ops() []Op {
	return []Op{OpGet, OpGetRange, OpGetTail, OpPut, OpPutMatch, OpList, OpDelete, OpStat}
}

// Outcome classifies the result of an operation, for metrics labels and decisions about retries.
type Outcome string

// The outcomes.
const (
	OK                 Outcome = "ok"
	NotFound           Outcome = "not_found"
	Exists             Outcome = "exists"
	PreconditionFailed Outcome = "precondition_failed"
	Conflict           Outcome = "conflict"
	Throttled          Outcome = "throttled"
	Unavailable        Outcome = "unavailable"
	Truncated          Outcome = "truncated"
	Unknown            Outcome = "unknown"     // indefinite
	Invalid            Outcome = "invalid"     // key, range or argument
	Unsupported        Outcome = "unsupported" // the store lacks the feature
	Cancelled          Outcome = "cancelled"   // the context was cancelled
	TimedOut           Outcome = "timed_out"   // the context's deadline passed
	KeysFailed         Outcome = "keys_failed" // a Delete with errors of single keys
	Other              Outcome = "other"
)

// Outcomes lists all outcomes.
func Outcomes() []Outcome {
	return []Outcome{OK, NotFound, Exists, PreconditionFailed, Conflict, Throttled, Unavailable, Truncated, Unknown, Invalid, Unsupported,
		Cancelled, TimedOut, KeysFailed, Other}
}

// OutcomeOf classifies an error of a Store. The order matters where an error carries several classes.
func OutcomeOf(err error) Outcome {
	if err == nil {
		return OK
	}
	var failed KeyErrors
	if errors.As(err, &failed) {
		return KeysFailed // the keys' own errors say more; a caller that cares looks at each
	}
	if IsIndefinite(err) {
		return Unknown // first: its cause (a lost connection, an ended context) is of a definite class when it stands alone
	}
	for _, c := range []struct {
		is      error
		outcome Outcome
	}{
		{context.Canceled, Cancelled}, // before ErrUnavailable: a driver may wrap both when its client gave up with the context
		{context.DeadlineExceeded, TimedOut},
		{ErrNotFound, NotFound},
		{ErrExists, Exists},
		{ErrPreconditionFailed, PreconditionFailed},
		{ErrConflict, Conflict},
		{ErrThrottled, Throttled},
		{ErrTruncated, Truncated},
		{ErrInvalidKey, Invalid},
		{ErrInvalidRange, Invalid},
		{ErrInvalidArgument, Invalid},
		{ErrUnsupported, Unsupported},
		{ErrUnavailable, Unavailable},
	} {
		if errors.Is(err, c.is) {
			return c.outcome
		}
	}
	return Other
}
