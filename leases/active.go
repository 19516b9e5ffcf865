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
		a = &active{id: id}
		a.used.Store(e.now())
		e.actives.byID[id] = a
	}
	return a
}

// forget drops what this node knows about where the shards stand: they were opened again.
func (a *active) forget() {}
