package fetch

import (
	"container/list"
	"sync"
)

// lru keeps what was used most recently, up to a weight. It holds what a tailing reader needs. A cache that admits by frequency would
// refuse new blocks, which nobody has read yet, in favour of old ones that were read often, and new blocks are what is read next.
//
// A value may have several keys. It is weighed once, and goes as a whole.
type lru[K comparable, V any] struct {
	max    int64
	weight func(V) int64

	mu struct {
		sync.Mutex
		entries map[K]*list.Element // of *lruEntry[K, V]
		order   *list.List          // most recently used first
		bytes   int64
	}
}

type lruEntry[K comparable, V any] struct {
	keys  []K
	value V
}

func newLRU[K comparable, V any](limit int64, weight func(V) int64) *lru[K, V] {
	c := &lru[K, V]{max: limit, weight: weight}
	c.mu.entries = map[K]*list.Element{}
	c.mu.order = list.New()
	return c
}

func (c *lru[K, V]) get(k K) (v V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.mu.entries[k]
	if !ok {
		return v, false
	}
	c.mu.order.MoveToFront(e)
	return e.Value.(*lruEntry[K, V]).value, true
}

// put stores v under keys, in place of what had one of them, unless it is heavier than the whole cache.
func (c *lru[K, V]) put(v V, keys ...K) {
	w := c.weight(v)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range keys {
		c.removeLocked(c.mu.entries[k])
	}
	if w > c.max {
		return
	}
	e := c.mu.order.PushFront(&lruEntry[K, V]{keys, v})
	for _, k := range keys {
		c.mu.entries[k] = e
	}
	c.mu.bytes += w
	for c.mu.bytes > c.max {
		c.removeLocked(c.mu.order.Back())
	}
}

// take removes and returns the value of k.
func (c *lru[K, V]) take(k K) (v V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.mu.entries[k]
	if !ok {
		return v, false
	}
	v = e.Value.(*lruEntry[K, V]).value
	c.removeLocked(e)
	return v, true
}

func (c *lru[K, V]) removeLocked(e *list.Element) {
	if e == nil {
		return
	}
	entry := e.Value.(*lruEntry[K, V])
	c.mu.bytes -= c.weight(entry.value)
	c.mu.order.Remove(e)
	for _, k := range entry.keys {
		delete(c.mu.entries, k)
	}
}

func (c *lru[K, V]) size() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.bytes
}
