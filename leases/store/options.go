package store

import (
	"io"
	"log/slog"

	"github.com/jonboulle/clockwork"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
)

// Options configure a Store.
type Options struct {
	URL        string                // see the package comment; not looked at when Client is set
	Client     redis.UniversalClient // instead of URL; the Store does not close it
	Fabric     string                // part of every key: several fabrics may share a Redis
	Instance   string                // of this process, unique
	Clock      clockwork.Clock
	Rand       io.Reader
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}
