package store

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"

	"github.com/jonboulle/clockwork"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
)

// Options configure a Store.
type Options struct {
	// URL says where Redis is; see the package comment. Not looked at when Client is set.
	URL string
	// Client is used instead of URL and not closed. It must not retry commands by itself (MaxRetries -1), and a change of its server is noticed
	// by NOSCRIPT and READONLY alone.
	Client redis.UniversalClient
	// Fabric is part of every key: several fabrics may share a Redis. Letters, digits, '_' and '-'.
	Fabric string
	// Instance names this process and no other, ever: a node's ID and a ULID.
	Instance string
	// Clock is for timers and the time in nonces; leases end by Redis's own. Default: the real one.
	Clock clockwork.Clock
	// Rand makes nonces and jitter. Default: crypto/rand.
	Rand       io.Reader
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: no metrics
}

// WithDefaults fills what is not set.
func (o Options) WithDefaults() Options {
	if o.Clock == nil {
		o.Clock = clockwork.NewRealClock()
	}
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Validate reports every fault.
func (o Options) Validate() error {
	var errs []error
	fault := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %w", field, fmt.Errorf(format, args...)))
	}
	if o.Client == nil {
		if _, err := parseURL(o.URL); err != nil {
			fault("URL", "%w", err)
		}
	}
	if !regexp.MustCompile(`^[A-Za-z0-9_-]{1,100}$`).MatchString(o.Fabric) {
		fault("Fabric", "%q is not 1 to 100 letters, digits, '_' or '-'", o.Fabric)
	}
	if o.Instance == "" {
		fault("Instance", "is empty")
	}
	if len(errs) > 0 {
		return fmt.Errorf("lease store options: %w", errors.Join(errs...))
	}
	return nil
}
