package retry

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebaymq/forebay/objectstore"
)

// newRetries makes and registers the counter of further attempts. Stores that share a registerer share it.
func newRetries(reg prometheus.Registerer) (*prometheus.CounterVec, error) {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "forebay_objectstore_retries_total",
		Help: "Attempts after the first of a request to the object store, by operation and the outcome that led to it.",
	}, []string{"op", "outcome"})
	if reg == nil {
		return c, nil
	}
	err := reg.Register(c)
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		if old, ok := already.ExistingCollector.(*prometheus.CounterVec); ok {
			return old, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("register object store retry metrics: %w", err)
	}
	return c, nil
}

func (s *Store) count(op objectstore.Op, err error) {
	s.retries.WithLabelValues(string(op), string(objectstore.OutcomeOf(err))).Inc()
}
