package etcd

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forebaymq/forebay/metadata"
)

func TestClassifyWrite(t *testing.T) {
	const indefinite = "indefinite"
	class := func(err error) string {
		switch {
		case metadata.IsIndefinite(err):
			return indefinite
		case errors.Is(err, metadata.ErrTooLarge):
			return "too large"
		case errors.Is(err, metadata.ErrNoQuorum):
			return "no quorum"
		}
		return fmt.Sprint("none: ", err)
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{rpctypes.ErrRequestTooLarge, "too large"},
		{rpctypes.ErrTooManyOps, "too large"},
		{status.Error(codes.ResourceExhausted, "trying to send message larger than max (9 vs. 8)"), "too large"},
		{status.Error(codes.ResourceExhausted, "grpc: received message larger than max (9 vs. 8)"), "too large"},
		{rpctypes.ErrNoLeader, "no quorum"},
		{rpctypes.ErrTooManyRequests, "no quorum"},
		{rpctypes.ErrPermissionDenied, "no quorum"},
		{rpctypes.ErrInvalidAuthToken, "no quorum"},
		{rpctypes.ErrAuthFailed, "no quorum"},
		{rpctypes.ErrUserEmpty, "no quorum"},
		{rpctypes.ErrAuthOldRevision, "no quorum"},
		{status.Error(codes.Unavailable, `connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused"`), "no quorum"},
		{fmt.Errorf("wrapped: %w", rpctypes.ErrNoLeader), "no quorum"},
		// These look like refusals, and are not.
		{rpctypes.ErrNoSpace, indefinite},
		{rpctypes.ErrTimeout, indefinite},
		{rpctypes.ErrTimeoutDueToLeaderFail, indefinite},
		{rpctypes.ErrTimeoutDueToConnectionLost, indefinite},
		{rpctypes.ErrLeaderChanged, indefinite},
		{rpctypes.ErrStopped, indefinite},
		{rpctypes.ErrUnhealthy, indefinite},
		{rpctypes.ErrCorrupt, indefinite},
		{rpctypes.ErrNotLeader, indefinite},
		{context.DeadlineExceeded, indefinite},
		{context.Canceled, indefinite},
		{status.Error(codes.Canceled, "context canceled"), indefinite},
		{status.Error(codes.DeadlineExceeded, "context deadline exceeded"), indefinite},
		{status.Error(codes.Unavailable, "error reading from server: EOF"), indefinite},
		{status.Error(codes.Unavailable, "transport is closing"), indefinite},
		{status.Error(codes.Unavailable, "keepalive ping failed to receive ACK within timeout"), indefinite},
		{status.Error(codes.Internal, "stream terminated by RST_STREAM"), indefinite},
		{status.Error(codes.Unknown, "something"), indefinite},
		{status.Error(codes.ResourceExhausted, "something else"), indefinite},
		{errors.New("something"), indefinite},
	} {
		got := classifyWrite(c.err)
		if class(got) != c.want {
			t.Errorf("%v: %s, want %s", c.err, class(got), c.want)
		}
		if !errors.Is(got, c.err) {
			t.Errorf("%v: the cause is lost in %v", c.err, got)
		}
	}
	if err := classifyWrite(nil); err != nil {
		t.Errorf("nil: %v", err)
	}
}

func TestClassifyRead(t *testing.T) {
	for _, c := range []struct {
		err, want error
	}{
		{rpctypes.ErrCompacted, metadata.ErrCompacted},
		{rpctypes.ErrNoLeader, metadata.ErrNoQuorum},
		{rpctypes.ErrTimeout, metadata.ErrNoQuorum},
		{context.DeadlineExceeded, metadata.ErrNoQuorum},
		{errors.New("something"), metadata.ErrNoQuorum},
	} {
		if got := classifyRead(c.err); !errors.Is(got, c.want) || !errors.Is(got, c.err) || metadata.IsIndefinite(got) {
			t.Errorf("%v: %v, want %v with its cause", c.err, got, c.want)
		}
	}
	if err := classifyRead(nil); err != nil {
		t.Errorf("nil: %v", err)
	}
}
