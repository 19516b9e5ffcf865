package fetch

import (
	"slices"
	"sync"
	"time"
)

// window holds extents of old data that have just come, until a scan has passed them. A cache by frequency refuses just these: nobody has read
// them more than once yet, or, where they were loaded ahead, at all. What was used makes room first, and is offered to the cache of old data;
// what was loaded ahead of a scan that does not go on makes room after a while; before that, nothing more is loaded ahead.
type window struct {
	limit int64
	mu    struct {
		sync.Mutex
		index  map[blockKey]*windowExtent
		order  []*windowExtent // as they came
		size   int64           // of those in order
		flying int64           // the weight of what is on its way that was asked for ahead
	}
}

type windowExtent struct {
	*extent
	came  time.Time
	ahead bool // nobody has asked for it yet
	used  bool // a read has taken its last block
}

// stale says whether the scan that an extent was loaded ahead for does not seem to go on, or there was none.
func (e *windowExtent) stale(now time.Time) bool {
	return e.used || !e.ahead || now.Sub(e.came) >= windowPatience
}

// windowPatience is how long a scan may take to come to what was loaded ahead of it.
const windowPatience = 2 * time.Second

func newWindow(limit int64) *window {
	w := &window{limit: limit}
	w.mu.index = map[blockKey]*windowExtent{}
	return w
}

func (w *window) get(k blockKey) (*extent, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.mu.index[k]; e != nil {
		return e.extent, true
	}
	return nil, false
}

// use says that a read has taken n blocks from first on.
func (w *window) use(first blockKey, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ; n > 0; n-- {
		if e := w.mu.index[first]; e != nil && e.keys[len(e.keys)-1] == first {
			e.used = true
		}
		first.index++
	}
}

// room says whether what weighs n may be loaded ahead, and makes room for them. What was used and had to go is in out.
func (w *window) room(n int64, now time.Time) (ok bool, out []*extent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	full := func() bool { return w.mu.size+w.mu.flying+n > w.limit }
	out = w.evictLocked(full, func(e *windowExtent) bool { return e.stale(now) })
	return !full(), out
}

// fly says that what weighs n is on their way that were asked for ahead.
func (w *window) fly(n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.flying += n
}

// landed says that what weighs n is not on its way any more. x is what came, or nil.
func (w *window) landed(n int64, x *extent, now time.Time) (out []*extent) {
	w.mu.Lock()
	w.mu.flying -= n
	w.mu.Unlock()
	if x == nil {
		return nil
	}
	return w.put(x, true, now)
}

// put adds x. What had to go for it is in out: what was used, what was not asked for ahead, in the end anything.
func (w *window) put(x *extent, ahead bool, now time.Time) (out []*extent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := &windowExtent{extent: x, came: now, ahead: ahead}
	w.mu.order = append(w.mu.order, e)
	w.mu.size += e.weight()
	for _, k := range e.keys {
		w.mu.index[k] = e
	}
	full := func() bool { return w.mu.size > w.limit }
	out = w.evictLocked(full, func(e *windowExtent) bool { return e.used })
	out = append(out, w.evictLocked(full, func(e *windowExtent) bool { return e.stale(now) })...)
	return append(out, w.evictLocked(full, func(*windowExtent) bool { return true })...)
}

// evictLocked removes what may go, the oldest first, while full.
func (w *window) evictLocked(full func() bool, may func(*windowExtent) bool) (out []*extent) {
	for i := 0; i < len(w.mu.order) && full(); {
		e := w.mu.order[i]
		if !may(e) {
			i++
			continue
		}
		w.removeLocked(i)
		out = append(out, e.extent)
	}
	return out
}

func (w *window) removeLocked(i int) {
	e := w.mu.order[i]
	w.mu.order = slices.Delete(w.mu.order, i, i+1)
	w.mu.size -= e.weight()
	for _, k := range e.keys {
		if w.mu.index[k] == e {
			delete(w.mu.index, k)
		}
	}
}

// drop forgets the extent of a block.
func (w *window) drop(k blockKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.mu.index[k]; e != nil {
		w.removeLocked(slices.Index(w.mu.order, e))
	}
}

func (w *window) bytes() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.size
}
