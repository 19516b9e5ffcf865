package node

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/prometheus/client_golang/prometheus"
)

const (
	redisProbeEvery   = time.Second
	redisProbeTimeout = 2 * time.Second
)

// redisHealth knows whether Redis answers, by asking it every second: readiness probes come often and must not each cost a call.
type redisHealth struct {
	ping   func(context.Context) error
	clock  clockwork.Clock
	logger *slog.Logger
	gauge  prometheus.Gauge
	stop   context.CancelFunc
	wg     sync.WaitGroup
	mu     struct {
		sync.Mutex
		down bool
	}
}

// watchRedis asks once before it returns, and then goes on until close.
func watchRedis(ctx context.Context, ping func(context.Context) error, c Config) (*redisHealth, error) {
	h := &redisHealth{ping: ping, clock: c.Clock, logger: c.Logger, gauge: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "forebay_node_redis_up", Help: "1 while the Redis of the work queues answers.",
	})}
	if err := c.Registry.Register(h.gauge); err != nil {
		var already prometheus.AlreadyRegisteredError
		if !errors.As(err, &already) {
			return nil, err
		}
		h.gauge = already.ExistingCollector.(prometheus.Gauge)
	}
	h.gauge.Set(1)
	h.ask(ctx)
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	h.stop = stop
	h.wg.Go(func() { h.watch(watching) })
	return h, nil
}

func (h *redisHealth) watch(ctx context.Context) {
	ticker := h.clock.NewTicker(redisProbeEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.Chan():
			h.ask(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// ask notes, and logs once, whether Redis has gone or has come back.
func (h *redisHealth) ask(ctx context.Context) {
	asking, cancel := context.WithCancelCause(ctx)
	timer := h.clock.AfterFunc(redisProbeTimeout, func() { cancel(context.DeadlineExceeded) })
	err := h.ping(asking)
	timer.Stop()
	cancel(nil)
	if ctx.Err() != nil {
		return // it is this node that goes
	}
	h.mu.Lock()
	changed := h.mu.down != (err != nil)
	h.mu.down = err != nil
	h.mu.Unlock()
	if !changed {
		return
	}
	if err != nil {
		h.gauge.Set(0)
		h.logger.Warn("Redis does not answer: work queues are away, publishes and reads go on", "error", err)
	} else {
		h.gauge.Set(1)
		h.logger.Info("Redis answers again")
	}
}

// degraded is what /readyz says about it.
func (h *redisHealth) degraded() map[string]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.mu.down {
		return nil
	}
	return map[string]string{"leases": "Redis does not answer; leases get 503 LEASES_UNAVAILABLE until it does"}
}

func (h *redisHealth) close() {
	h.stop()
	h.wg.Wait()
}
