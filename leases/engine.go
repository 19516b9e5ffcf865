package leases

import (
	"context"
	"fmt"
	"sync"

	"github.com/forebaymq/forebay/leases/store"
	"github.com/forebaymq/forebay/metadata"
)

// Engine serves the work queues on one node.
type Engine struct {
	o Options
	m *metrics

	ctx    context.Context // ends with the engine
	cancel context.CancelCauseFunc

	actives struct {
		sync.RWMutex
		byID map[metadata.SubscriptionID]*active
	}

	life struct {
		sync.Mutex
		started  bool
		draining bool           // no leases any more
		closed   bool           // no goroutines any more
		running  sync.WaitGroup // of every goroutine; grows only while closed is false
		ended    chan struct{}
	}

	copies *signals // queues with dead letters that wait for their copy
	admin  *admin   // see admin.go
}

// New makes an engine. Start starts its background work, Close ends it.
func New(o Options) (*Engine, error) {
	o = o.WithDefaults()
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("lease engine options: %w", err)
	}
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, err
	}
	a, err := newAdmin(&o)
	if err != nil {
		return nil, err
	}
	e := &Engine{o: o, m: m, copies: newSignals(), admin: a}
	e.actives.byID = map[metadata.SubscriptionID]*active{}
	return e, nil
}

// now is the engine's clock, Unix ms.
func (e *Engine) now() int64 { return e.o.Clock.Now().UnixMilli() }

// effects passes on what a call to the store did beside its answer.
func (e *Engine) effects(q *queue, f *store.Effects) {
}
