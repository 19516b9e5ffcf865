package leases

import (
	"sync"
	"sync/atomic"

	"github.com/forebaymq/forebay/metadata"
)

// active is what this node keeps of a subscription that is in use.
type active struct {
	id        metadata.SubscriptionID
	described atomic.Pointer[queue] // the newest description that was used
	used      atomic.Int64          // when a request last came, Unix ms by the engine's clock
	audited   atomic.Int64          // when the last audit began

	line        *line  // lease requests that wait
	shards      shards // where the partitions stand
	acks        acks   // acks that wait to be sent together
	requests    requests
	recordBytes atomic.Int64 // about how large a record is, 0 = not known

	opening struct {
		sync.Mutex
		now *opening // nil: none under way
	}
}

// active gives the active of a subscription, and makes it.
func (e *Engine) active(id metadata.SubscriptionID) *active {
	e.actives.RLock()
	a := e.actives.byID[id]
	e.actives.RUnlock()
	if a != nil {
		return a
	}
	e.actives.Lock()
	defer e.actives.Unlock()
	if a = e.actives.byID[id]; a == nil {
		a = &active{id: id, line: newLine()}
		a.line.mu.draining = e.actives.draining
		a.used.Store(e.now())
		e.actives.byID[id] = a
	}
	return a
}

// existing gives the active of a subscription if there is one.
func (e *Engine) existing(id metadata.SubscriptionID) *active {
	e.actives.RLock()
	defer e.actives.RUnlock()
	return e.actives.byID[id]
}

// all gives the actives of the moment.
func (e *Engine) all() []*active {
	e.actives.RLock()
	defer e.actives.RUnlock()
	out := make([]*active, 0, len(e.actives.byID))
	for _, a := range e.actives.byID {
		out = append(out, a)
	}
	return out
}

// retire forgets the actives that nobody has used since before (Unix ms).
func (e *Engine) retire(before int64) {
	e.actives.Lock()
	defer e.actives.Unlock()
	for id, a := range e.actives.byID {
		if a.used.Load() < before && a.line.waiting.Load() == 0 {
			delete(e.actives.byID, id)
		}
	}
}

// forget drops what this node believes about where the shards stand: they may have been moved back.
func (a *active) forget() { a.shards.forget() }
