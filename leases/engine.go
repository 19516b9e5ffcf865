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
		byID     map[metadata.SubscriptionID]*active
		draining bool // no leases any more
	}

	life    life
	flusher *flusher // changes that are not journalled yet
	wakes   *wakes   // what other nodes are to be told

	copies *signals // queues with dead letters that wait for their copy
	admin  *admin   // see admin.go
}

// New makes an engine. Start starts its background work, Close ends it.
func New(o Options) (*Engine, error) {
	o = o.WithDefaults()
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("lease engine options: %w", err)
	}
	a, err := newAdmin(&o)
	if err != nil {
		return nil, err
	}
	e := &Engine{o: o, flusher: newFlusher(o.Clock), wakes: newWakes(), copies: newSignals(), admin: a}
	e.ctx, e.cancel = context.WithCancelCause(context.Background()) // the engine's own life, which no request's is
	e.life.loops, e.life.endLoops = context.WithCancelCause(e.ctx)
	e.life.ended = make(chan struct{})
	e.actives.byID = map[metadata.SubscriptionID]*active{}
	if e.m, err = newMetrics(o.Registerer, e); err != nil {
		return nil, err
	}
	return e, nil
}

// now is the engine's clock, Unix ms.
func (e *Engine) now() int64 { return e.o.Clock.Now().UnixMilli() }

// effects passes on what a call to the store did beside its answer: changes to the journal, freed records to those who wait, here and elsewhere.
func (e *Engine) effects(q *queue, f *store.Effects) {
	if len(f.Dirty) > 0 {
		e.flusher.mark(q)
	}
	if f.Lapsed > 0 {
		e.m.lapsed.Add(float64(f.Lapsed))
	}
	if f.Died > 0 {
		e.m.died.Add(float64(f.Died))
	}
	if f.Copies {
		e.copies.add(q)
	}
	if f.NextDue > 0 {
		q.line.dueAt(e.o.Clock.Now().Add(f.NextDue))
	}
	if f.Freed > 0 {
		q.line.stir()
		e.wakes.add(store.Wake{Subscription: q.id, Freed: f.Freed})
	}
}
