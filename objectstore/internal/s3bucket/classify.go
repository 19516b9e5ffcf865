package s3bucket

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/forebaymq/forebay/objectstore"
)

// failure gives the error of an operation that the library ended with err. what says which request failed, such as "put".
func (s *Store) failure(ctx context.Context, c *Call, what, key string, err error) error {
	seen := c.seen()
	write := c.op == objectstore.OpPut || c.op == objectstore.OpPutMatch || c.op == objectstore.OpDelete
	if seen.status >= 300 {
		class, definite := answerClass(seen.status, seen.fault.Code, key != "")
		if errors.Is(class, errNoBucket) {
			class = s.noBucket()
		}
		return outcome(c.op, what, key, write && !definite, explain(class, seen.status, seen.fault))
	}
	// Without an answer, or within one that was good so far. What ended before a request was made (credentials that cannot be fetched, for
	// instance) is unavailable as well.
	indefinite := write && seen.sent
	switch {
	case errors.Is(err, objectstore.ErrInvalidKey):
		return outcome(c.op, what, key, false, err)
	case ctx.Err() != nil:
		// The context is why, whatever the library says about it.
		return outcome(c.op, what, key, indefinite, fmt.Errorf("%w: %w", ctx.Err(), err))
	case seen.status != 0 && !write:
		return outcome(c.op, what, key, false, fmt.Errorf("%w: %w", objectstore.ErrTruncated, err))
	}
	if seen.err != nil {
		err = seen.err // libraries replace it by texts of their own
	}
	return outcome(c.op, what, key, indefinite, fmt.Errorf("%w: %w", objectstore.ErrUnavailable, err))
}

// outcome wraps a cause as definite or indefinite.
func outcome(op objectstore.Op, what, key string, indefinite bool, cause error) error {
	if indefinite {
		return &objectstore.OutcomeUnknownError{Op: string(op), Key: key, Cause: cause}
	}
	if key == "" {
		return fmt.Errorf("%s: %w", what, cause)
	}
	return fmt.Errorf("%s %s: %w", what, key, cause)
}

// explain joins a class with what the store said.
func explain(class error, status int, f fault) error {
	text := http.StatusText(status)
	switch {
	case f.Code != "" && f.Message != "":
		text = f.Code + ": " + f.Message
	case f.Code != "":
		text = f.Code
	}
	if class == nil {
		return fmt.Errorf("the store answered %d %s", status, text)
	}
	return fmt.Errorf("%w: the store answered %d %s", class, status, text)
}

var (
	errNoBucket = errors.New("no such bucket")
	errDenied   = errors.New("access denied: check the credentials, and that they allow s3:GetObject, s3:PutObject, s3:DeleteObject and s3:ListBucket " +
		"(without the last, an absent object looks like a forbidden one)")
)

// answerClass says what an error answer means: the class of error (nil: none of the contract's), and whether it is certain that the
// request had no effect. ofKey says that the request was about one object.
func answerClass(status int, code string, ofKey bool) (class error, definite bool) {
	if isThrottle(code) {
		return objectstore.ErrThrottled, true // refused at the door
	}
	if status >= 400 && status < 500 {
		switch code {
		case "NoSuchBucket":
			return errNoBucket, true
		case "RequestTimeout", "IncompleteBody": // the store did not get the whole body, so it wrote nothing
			return objectstore.ErrUnavailable, true
		case "BadDigest", "InvalidDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch": // damaged on the way, refused
			return objectstore.ErrUnavailable, true
		case "KeyTooLongError":
			return objectstore.ErrInvalidKey, true
		case "InvalidRange":
			return objectstore.ErrInvalidRange, true
		}
	}
	switch status {
	case http.StatusForbidden, http.StatusUnauthorized:
		return errDenied, true
	case http.StatusNotFound:
		if ofKey {
			return objectstore.ErrNotFound, true
		}
		return errNoBucket, true
	case http.StatusConflict:
		// Another conditional write of the key was under way. A store over folders says it too when a delete takes the folder away under a
		// put (and, for good, of keys below keys).
		return objectstore.ErrConflict, true
	case http.StatusPreconditionFailed:
		return objectstore.ErrPreconditionFailed, true
	case http.StatusRequestedRangeNotSatisfiable:
		return objectstore.ErrInvalidRange, true
	case http.StatusRequestTimeout:
		return objectstore.ErrUnavailable, true
	case http.StatusTooManyRequests:
		return objectstore.ErrThrottled, true
	case http.StatusNotImplemented: // older stores, of If-None-Match
		return objectstore.ErrUnsupported, true
	case http.StatusServiceUnavailable:
		// Not the store's own "slow down": a balancer in front of it may say so after it had passed the request on.
		return objectstore.ErrThrottled, false
	case http.StatusInsufficientStorage:
		return objectstore.ErrUnavailable, true
	}
	if status >= 500 {
		return objectstore.ErrUnavailable, false // the store may have done it before it failed
	}
	return nil, true
}

// isThrottle knows the codes of stores that refuse a request for its rate.
func isThrottle(code string) bool {
	switch code {
	case "SlowDown", "SlowDownRead", "SlowDownWrite", "TooManyRequests", "RequestLimitExceeded", "Throttling", "ThrottlingException",
		"RequestThrottled", "RequestThrottledException", "BandwidthLimitExceeded", "ServerBusy", "XMinioServerNotInitialized":
		return true
	}
	return false
}

// keyClass is answerClass for one key of a delete that was answered 200.
func keyClass(code string) (class error, definite bool) {
	switch code {
	case "InternalError":
		return objectstore.ErrUnavailable, false
	case "ServiceUnavailable":
		return objectstore.ErrThrottled, false
	case "AccessDenied":
		return errDenied, true
	case "OperationAborted", "ConditionalRequestConflict":
		return objectstore.ErrConflict, true
	}
	if isThrottle(code) {
		return objectstore.ErrThrottled, true
	}
	return nil, true
}
