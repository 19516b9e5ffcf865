package gateway

import (
	"context"
	"time"

	"github.com/jonboulle/clockwork"
)

// within bounds the server's side of a request by the server's clock.
func (s *Server) within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return clockwork.WithTimeout(ctx, s.o.Clock, d)
}
