package fetch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/segment"
)

// UnreadableError says that a live batch cannot be read and that trying again will not help: its bytes are corrupt, or its object is
// gone. It is the cause of an *api.Error (INTERNAL for corrupt bytes, STORAGE_UNAVAILABLE for a missing object), which carries firstOffset
// and nextOffset. A queue may go on at Next; a reader of the log should not skip silently.
type UnreadableError struct {
	TopicID   metadata.TopicID
	Partition int32
	First     int64  // first offset that was asked for and cannot be read
	Next      int64  // first offset after the batch
	Object    string // key
	Missing   bool   // the object is gone; else its bytes are corrupt
	Cause     error
}

func (e *UnreadableError) Error() string {
	what := "is corrupt"
	if e.Missing {
		what = "is missing"
	}
	return fmt.Sprintf("topic %d partition %d offsets %d to %d: object %s %s: %v", e.TopicID, e.Partition, e.First, e.Next-1, e.Object, what, e.Cause)
}

// Unwrap gives the cause.
func (e *UnreadableError) Unwrap() error { return e.Cause }

// retryAfter is what clients are told to wait where the store is the trouble.
const retryAfter = time.Second

func storageError(err error, format string, args ...any) *api.Error {
	return &api.Error{Code: api.CodeStorageUnavailable, Detail: fmt.Sprintf(format, args...), RetryAfter: retryAfter, Cause: err}
}

// mapError turns the outcome of a load into what a client sees. Errors that have a code, and a caller that went away, pass.
func mapError(err error) error {
	var coded *api.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &coded) || errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, errClosed):
		return storageError(err, "the node is shutting down: ask another one")
	case errors.Is(err, context.DeadlineExceeded):
		return storageError(err, "the object store did not answer in time")
	case errors.Is(err, objectstore.ErrThrottled):
		return storageError(err, "the object store asks to slow down")
	default:
		return storageError(err, "the object store cannot be read now")
	}
}

// unreadable makes the error for a batch that will never be readable.
func unreadable(r *position, e *metadata.IndexEntry, cause error) *api.Error {
	u := &UnreadableError{
		TopicID: r.topic, Partition: r.partition, First: max(e.Base, r.next), Next: e.Last + 1, Object: objectKey(e),
		Missing: errors.Is(cause, objectstore.ErrNotFound), Cause: cause,
	}
	out := &api.Error{Code: api.CodeInternal, Cause: u,
		Detail: fmt.Sprintf("the records at offsets %d to %d of partition %d are stored but cannot be read", u.First, u.Next-1, u.Partition)}
	if u.Missing {
		out.Code, out.RetryAfter = api.CodeStorageUnavailable, retryAfter
		out.Detail = fmt.Sprintf("the object that holds offsets %d to %d of partition %d is missing from the object store", u.First, u.Next-1, u.Partition)
	}
	return out.With("firstOffset", u.First).With("nextOffset", u.Next)
}

func outOfRange(offset int64, info metadata.PartitionInfo) *api.Error {
	return api.Errorf(api.CodeOffsetOutOfRange, "offset %d is outside the partition: it has %d up to its head %d", offset, info.LogStart, info.Head).
		With("logStart", info.LogStart).With("head", info.Head)
}

func objectKey(e *metadata.IndexEntry) string {
	return segment.Name{ID: e.Segment.ID, Level: e.Segment.Level, Class: e.Segment.Class}.Key()
}
