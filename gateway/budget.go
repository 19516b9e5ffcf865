package gateway

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// budget counts what many requests hold together. It refuses at once and never queues.
type budget struct {
	max   int64
	used  atomic.Int64
	gauge prometheus.Gauge
}

func newBudget(max int64, gauge prometheus.Gauge) *budget {
	return &budget{max: max, gauge: gauge}
}

// take takes n if that much is left.
func (b *budget) take(n int64) bool {
	if b.used.Add(n) > b.max {
		b.used.Add(-n)
		return false
	}
	b.gauge.Add(float64(n))
	return true
}

// force takes n in any case: for what is in memory already. n may be negative.
func (b *budget) force(n int64) {
	b.used.Add(n)
	b.gauge.Add(float64(n))
}
