package gateway

import (
	"context"
	"time"
)

// within bounds the server's side of a request by the server's clock. The context ends as cancelled, with context.DeadlineExceeded as its
// cause: a context with a deadline of its own would follow the system's clock, not the injected one.
func (s *Server) within(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	timer := s.o.Clock.AfterFunc(d, func() { cancel(context.DeadlineExceeded) })
	return ctx, func() {
		timer.Stop()
		cancel(nil)
	}
}
