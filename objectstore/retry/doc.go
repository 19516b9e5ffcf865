// Package retry is the one place that retries requests to an object store.
//
// Reads are tried again after ErrUnavailable, ErrThrottled and ErrTruncated. Writes are as well, and after ErrConflict and
// unknown outcomes: always with the same writer's ID, so that an attempt that meets the work of an earlier one of this call is a
// success. A call whose attempts leave it open whether there was an effect ends in *objectstore.OutcomeUnknownError; any other error is
// definite. Between attempts it waits with exponential backoff and jitter, or until the context ends.
package retry
