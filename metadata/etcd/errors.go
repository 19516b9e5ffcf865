package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forebaymq/forebay/metadata"
)

// classifyWrite turns the error of a write transaction into one of metadata's. This is the one place that decides whether a failed write is
// definite. Every branch has a reason; what has none is indefinite, because that is always safe: the retry meets its own key.
func classifyWrite(err error) error {
	if err == nil {
		return nil
	}
	definite := func(class error) error { return fmt.Errorf("%w: %w", class, err) }
	switch {
	case errors.Is(err, rpctypes.ErrRequestTooLarge), errors.Is(err, rpctypes.ErrTooManyOps):
		// Checked before the request is proposed to raft.
		return definite(metadata.ErrTooLarge)
	case errors.Is(err, rpctypes.ErrNoLeader):
		// For a transaction it comes only from the interceptor that checks for a leader before the request is handled.
		return definite(metadata.ErrNoQuorum)
	case errors.Is(err, rpctypes.ErrTooManyRequests):
		// The gap between committed and applied is too large: checked before the proposal.
		return definite(metadata.ErrNoQuorum)
	case errors.Is(err, rpctypes.ErrUserEmpty), errors.Is(err, rpctypes.ErrAuthFailed), errors.Is(err, rpctypes.ErrPermissionDenied),
		errors.Is(err, rpctypes.ErrInvalidAuthToken), errors.Is(err, rpctypes.ErrAuthOldRevision):
		// Refused by the authorization, which stands before the effect both at the door and in etcd's own apply.
		return definite(metadata.ErrNoQuorum)
	case errors.Is(err, rpctypes.ErrNoSpace):
		// Indefinite: etcd's quota check at the end of apply answers this although the write has taken effect.
		return &metadata.IndefiniteError{Cause: err}
	case errors.Is(err, rpctypes.ErrTimeout), errors.Is(err, rpctypes.ErrTimeoutDueToLeaderFail), errors.Is(err, rpctypes.ErrTimeoutDueToConnectionLost),
		errors.Is(err, rpctypes.ErrStopped), errors.Is(err, rpctypes.ErrLeaderChanged):
		// Indefinite: the proposal was made, and may still be committed, by the next leader too.
		return &metadata.IndefiniteError{Cause: err}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		// Indefinite: the request may be on its way, proposed or applied.
		return &metadata.IndefiniteError{Cause: err}
	}
	if s, ok := status.FromError(err); ok {
		switch {
		case s.Code() == codes.ResourceExhausted && strings.Contains(s.Message(), "larger than max"):
			// gRPC's own limit, before the request is sent or handled.
			return definite(metadata.ErrTooLarge)
		case s.Code() == codes.Unavailable && strings.Contains(s.Message(), "while dialing"):
			// No connection could be made, so nothing was sent: a broken connection says "error reading" or "closing" instead.
			return definite(metadata.ErrNoQuorum)
		}
	}
	return &metadata.IndefiniteError{Cause: err}
}

// classifyRead turns the error of a read into one of metadata's: it had no effect, so that the store cannot be reached is all it says.
func classifyRead(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, rpctypes.ErrCompacted):
		return fmt.Errorf("%w: %w", metadata.ErrCompacted, err)
	default:
		return fmt.Errorf("%w: %w", metadata.ErrNoQuorum, err)
	}
}
