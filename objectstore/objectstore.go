package objectstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Sentinels. Drivers translate their own errors to these, wrapped with the operation and the key.
var (
	// ErrNotFound: no object has this key.
	ErrNotFound = errors.New("object not found")
	// ErrExists: PutIfAbsent met an object that somebody else wrote (its ID differs from ours). Definite.
	ErrExists = errors.New("object exists")
	// ErrPreconditionFailed: PutIfMatch met another version. Definite.
	ErrPreconditionFailed = errors.New("object changed")
	// ErrConflict: the store saw a concurrent conditional write (409): try again. Definite: this attempt had no effect.
	ErrConflict = errors.New("concurrent conditional write")
	// ErrThrottled: the store asked to slow down (503 SlowDown, 429). Definite, retriable.
	ErrThrottled = errors.New("object store asks to slow down")
	// ErrUnavailable: the store could not be reached or refused before any effect. Definite for writes, retriable.
	ErrUnavailable = errors.New("object store unavailable")
	// ErrInvalidRange: the range starts at or beyond the end of the object.
	ErrInvalidRange = errors.New("range outside the object")
	// ErrTruncated: fewer bytes came back than the object or range has. Retriable.
	ErrTruncated = errors.New("object read truncated")
	// ErrUnsupported: the store lacks the feature (PutIfMatch).
	ErrUnsupported = errors.New("not supported by this object store")
	// ErrInvalidKey: the key is empty, absolute, has a "." or ".." element, a control character, or is too long.
	ErrInvalidKey = errors.New("invalid object key")
	// ErrInvalidArgument: a writer's ID, a list limit or a number of keys that the contract does not allow. Definite.
	ErrInvalidArgument = errors.New("invalid argument")
)

// OutcomeUnknownError is an indefinite write: it may have taken effect now or may do so later.
type OutcomeUnknownError struct {
	Op, Key string
	Cause   error
}

func (e *OutcomeUnknownError) Error() string {
	return fmt.Sprintf("%s %s: outcome unknown: %v", e.Op, e.Key, e.Cause)
}

// Unwrap gives the cause.
func (e *OutcomeUnknownError) Unwrap() error { return e.Cause }

// IsIndefinite says whether a failed write may have taken effect.
func IsIndefinite(err error) bool {
	var u *OutcomeUnknownError
	return errors.As(err, &u)
}

// KeyErrors is what Delete returns when some keys could not be deleted. Keys that are not in it are gone.
type KeyErrors map[string]error

func (e KeyErrors) Error() string {
	if len(e) == 0 {
		return "delete: no key failed"
	}
	first := slices.Min(slices.Collect(maps.Keys(e)))
	return fmt.Sprintf("delete: %d keys failed, the first is %s: %v", len(e), first, e[first])
}

// Unwrap gives the errors in the order of their keys, so that errors.Is finds what any key met.
func (e KeyErrors) Unwrap() []error {
	errs := make([]error, 0, len(e))
	for _, k := range slices.Sorted(maps.Keys(e)) {
		errs = append(errs, e[k])
	}
	return errs
}

// OrNil gives nil when no key failed: a KeyErrors without keys must not become a non-nil error.
func (e KeyErrors) OrNil() error {
	if len(e) == 0 {
		return nil
	}
	return e
}

// Info describes one object.
type Info struct {
	Key      string
	Size     int64     // bytes
	Modified time.Time // by the store's clock
	ETag     string    // opaque version, for PutIfMatch
	ID       string    // the writer's ID given to PutIfAbsent; "" where a driver cannot tell without a Stat (List)
}

// Page is one page of List.
type Page struct {
	Objects []Info // ascending by key, in byte order
	Next    string // pass as startAfter to go on; "" = this was the last page
}

// Store is a bucket, or a prefix of one.
type Store interface {
	// Get reads a whole object.
	Get(ctx context.Context, key string) ([]byte, Info, error)
	// GetRange reads up to n bytes from off (n > 0, off >= 0). A range that ends beyond the object is cut; one that starts at or
	// beyond its end is ErrInvalidRange.
	GetRange(ctx context.Context, key string, off, n int64) ([]byte, error)
	// GetTail reads the last n bytes (n > 0), or the whole object if it is smaller, with its Info.Size, in one request.
	GetTail(ctx context.Context, key string, n int64) ([]byte, Info, error)
	// PutIfAbsent creates an object, durably, all or nothing. id (1..128 printable ASCII) names this write: when the key exists and was
	// written with the same id, the call succeeds (an earlier attempt of ours had its effect); with another id it is ErrExists.
	// body is not kept and not changed.
	PutIfAbsent(ctx context.Context, key string, body []byte, id string) (Info, error)
	// PutIfMatch replaces an object if its ETag is still etag. ErrNotFound if there is none, ErrPreconditionFailed if it changed,
	// ErrUnsupported where the store cannot.
	PutIfMatch(ctx context.Context, key, etag string, body []byte, id string) (Info, error)
	// List pages through the keys that start with prefix (a plain string, not a folder), after startAfter, ascending in byte order, at most
	// limit (1..1000) a page.
	List(ctx context.Context, prefix, startAfter string, limit int) (Page, error)
	// Delete removes up to MaxDeleteKeys keys. An absent key counts as deleted. Failures are KeyErrors.
	Delete(ctx context.Context, keys ...string) error
	// Stat describes an object, ID included.
	Stat(ctx context.Context, key string) (Info, error)
	// Close releases what the driver holds. The store must not be used after it.
	Close() error
}
