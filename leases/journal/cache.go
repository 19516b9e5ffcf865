package journal

import (
	"container/list"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebaymq/forebay/metadata"
)

// What things take in memory beside their bytes: a map entry with its strings and slices, a subscription with its map and its place in the list,
// and the note that a subscription is not cached.
const (
	recordOverhead       = 112
	subscriptionOverhead = 320
	absentOverhead       = 48
)

// cached is what the cache has of one subscription. Guarded by its partition's turn (see partition), but for bytes and element: cache.mu.
type cached struct {
	p       *partition
	id      metadata.SubscriptionID
	records map[string]stored
	bytes   int64
	element *list.Element
}

type stored struct {
	offset int64
	value  []byte
}

// cache bounds the memory of all partitions together: subscriptions that were not asked for longest leave first.
type cache struct {
	limit   int64
	bytesG  prometheus.Gauge
	evicted prometheus.Counter
	mu      struct {
		sync.Mutex
		bytes int64
		order list.List // of *cached, the last used in front
		gone  map[*partition]map[metadata.SubscriptionID]struct{}
	}
}

func newCache(limit int64, m *metrics) *cache {
	c := &cache{limit: limit, bytesG: m.cached, evicted: m.evicted}
	c.mu.gone = map[*partition]map[metadata.SubscriptionID]struct{}{}
	return c
}

// grow counts memory of a subscription, and puts it in front when it was asked for.
func (c *cache) grow(s *cached, bytes int64, asked bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.bytes += bytes
	c.mu.bytes += bytes
	switch {
	case s.element == nil && asked:
		s.element = c.mu.order.PushFront(s)
	case s.element == nil:
		s.element = c.mu.order.PushBack(s)
	case asked:
		c.mu.order.MoveToFront(s.element)
	}
	c.bytesG.Set(float64(c.mu.bytes))
}

// note counts memory that belongs to no subscription.
func (c *cache) note(bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.bytes += bytes
	c.bytesG.Set(float64(c.mu.bytes))
}

// full says whether there is no room for what nobody has asked for.
func (c *cache) full() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.bytes >= c.limit
}

// drop forgets a subscription. Call it with the turn of its partition.
func (c *cache) drop(s *cached) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropLocked(s)
}

func (c *cache) dropLocked(s *cached) {
	if s.element == nil {
		return
	}
	c.mu.order.Remove(s.element)
	s.element = nil
	c.mu.bytes -= s.bytes
	s.bytes = 0
	c.bytesG.Set(float64(c.mu.bytes))
}

// shrink makes room. What leaves may be of partitions whose turn others have: they find out by takeGone at their next turn.
func (c *cache) shrink() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.mu.bytes > c.limit {
		last := c.mu.order.Back()
		if last == nil {
			return
		}
		s := last.Value.(*cached)
		c.dropLocked(s)
		c.evicted.Inc()
		if c.mu.gone[s.p] == nil {
			c.mu.gone[s.p] = map[metadata.SubscriptionID]struct{}{}
		}
		c.mu.gone[s.p][s.id] = struct{}{}
	}
}

// takeGone gives the subscriptions of a partition that have left since the last call.
func (c *cache) takeGone(p *partition) map[metadata.SubscriptionID]struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	gone := c.mu.gone[p]
	delete(c.mu.gone, p)
	return gone
}
