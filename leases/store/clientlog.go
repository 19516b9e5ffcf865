package store

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"
)

// LogClient sends what the Redis client reports by the one logger that it has in a process to l, at level debug: each failed connection is a
// line, and who has to know learns it from the errors of calls. A program calls it once, before it makes a Store.
func LogClient(l *slog.Logger) { redis.SetLogger(clientLog{l}) }

type clientLog struct{ l *slog.Logger }

func (c clientLog) Printf(ctx context.Context, format string, v ...any) {
	if c.l.Enabled(ctx, slog.LevelDebug) {
		c.l.DebugContext(ctx, "redis client: "+fmt.Sprintf(format, v...))
	}
}
