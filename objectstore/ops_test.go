package objectstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/forebaymq/forebay/objectstore"
)

func TestOutcomeOf(t *testing.T) {
	seen := map[objectstore.Outcome]bool{}
	for _, tc := range []struct {
		err  error
		want objectstore.Outcome
	}{
		{nil, objectstore.OK},
		{objectstore.ErrNotFound, objectstore.NotFound},
		{objectstore.ErrExists, objectstore.Exists},
		{objectstore.ErrPreconditionFailed, objectstore.PreconditionFailed},
		{objectstore.ErrConflict, objectstore.Conflict},
		{objectstore.ErrThrottled, objectstore.Throttled},
		{objectstore.ErrUnavailable, objectstore.Unavailable},
		{objectstore.ErrTruncated, objectstore.Truncated},
		{objectstore.ErrInvalidKey, objectstore.Invalid},
		{objectstore.ErrInvalidRange, objectstore.Invalid},
		{objectstore.ErrInvalidArgument, objectstore.Invalid},
		{objectstore.ErrUnsupported, objectstore.Unsupported},
		{context.Canceled, objectstore.Cancelled},
		{context.DeadlineExceeded, objectstore.TimedOut},
		{errors.New("what is this"), objectstore.Other},
		{&objectstore.OutcomeUnknownError{Cause: context.DeadlineExceeded}, objectstore.Unknown},
		{fmt.Errorf("%w: %w", objectstore.ErrUnavailable, context.Canceled), objectstore.Cancelled},
		{objectstore.KeyErrors{"k": objectstore.ErrThrottled}, objectstore.KeysFailed},
	} {
		seen[tc.want] = true
		if got := objectstore.OutcomeOf(tc.err); got != tc.want {
			t.Errorf("%v: %s, want %s", tc.err, got, tc.want)
		}
		if tc.err != nil && tc.want != objectstore.KeysFailed {
			if got := objectstore.OutcomeOf(fmt.Errorf("put k: %w", tc.err)); got != tc.want {
				t.Errorf("wrapped %v: %s, want %s", tc.err, got, tc.want)
			}
		}
	}
	for _, o := range objectstore.Outcomes() {
		if !seen[o] {
			t.Errorf("no case for %s", o)
		}
	}
}

func TestKeyErrors(t *testing.T) {
	if err := (objectstore.KeyErrors{}).OrNil(); err != nil {
		t.Errorf("no keys: %v", err)
	}
	err := objectstore.KeyErrors{"b": objectstore.ErrThrottled, "a": objectstore.ErrInvalidKey}.OrNil()
	if !errors.Is(err, objectstore.ErrThrottled) || !errors.Is(err, objectstore.ErrInvalidKey) || errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("%v does not unwrap to its keys' errors", err)
	}
	if got, want := err.Error(), "delete: 2 keys failed, the first is a: invalid object key"; got != want {
		t.Errorf("text %q, want %q", got, want)
	}
}
