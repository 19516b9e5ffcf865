package fetch

import (
	"fmt"
	"sync"

	"github.com/maypok86/otter/v2"
	"github.com/oklog/ulid/v2"
)

// blockKey names one block. A segment's ULID names its content for ever, whatever class its key is under.
type blockKey struct {
	id    ulid.ULID
	index int64 // position in the object, in units of Options.OldBlockBytes or Options.BlockBytes
	old   bool  // says which
}

// extent is a stretch of adjacent blocks of an object in one piece of memory: what one GET brought, or an own flush. It is cached and
// evicted as a whole. Blocks cut from it would each keep all of it in memory, and copies of them would cost as much as the GET.
type extent struct {
	keys []blockKey // of its blocks, ascending
	at   int64      // position in the object
	data []byte
}

// extentOverhead is what an extent weighs beyond its bytes, and keyOverhead what each of its blocks adds.
const (
	extentOverhead = 200
	keyOverhead    = 100
)

func newExtent(id ulid.ULID, old bool, first, blockBytes int64, data []byte) *extent {
	if cap(data)-len(data) > len(data)/4 { // little data in a large buffer would keep the buffer in memory
		data = append(make([]byte, 0, len(data)), data...)
	}
	x := &extent{at: first * blockBytes, data: data, keys: make([]blockKey, (int64(len(data))+blockBytes-1)/blockBytes)}
	for i := range x.keys {
		x.keys[i] = blockKey{id, first + int64(i), old}
	}
	return x
}

func (x *extent) weight() int64 {
	return int64(len(x.data)) + extentOverhead + keyOverhead*int64(len(x.keys))
}

// end is the position in the object after the last byte.
func (x *extent) end() int64 { return x.at + int64(len(x.data)) }

// oldCache keeps extents of old data by frequency and recency, so that one scan does not push out what is read again and again. It is
// keyed by the extent's first block; the others find it through an index.
type oldCache struct {
	cache *otter.Cache[blockKey, *extent]
	mu    struct {
		sync.RWMutex
		index map[blockKey]*extent
	}
}

func newOldCache(limit int64) (*oldCache, error) {
	o := &oldCache{}
	o.mu.index = map[blockKey]*extent{}
	var err error
	o.cache, err = otter.New(&otter.Options[blockKey, *extent]{
		MaximumWeight: uint64(limit),
		Weigher:       func(_ blockKey, x *extent) uint32 { return uint32(x.weight()) },
		// The handler runs under a lock of the cache, so it must not call the cache, and nobody may hold mu while calling the cache.
		OnAtomicDeletion: func(e otter.DeletionEvent[blockKey, *extent]) { o.forget(e.Value) },
		// Maintenance on the calling goroutine: no goroutine outlives Close.
		Executor: func(task func()) { task() },
	})
	if err != nil {
		return nil, fmt.Errorf("make block cache: %w", err)
	}
	return o, nil
}

func (o *oldCache) find(k blockKey) *extent {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.mu.index[k]
}

func (o *oldCache) get(k blockKey) (*extent, bool) {
	x := o.find(k)
	if x == nil {
		return nil, false
	}
	o.cache.GetIfPresent(x.keys[0]) // counts as a use
	return x, true
}

// put caches x. The cache may refuse it, and then has forgotten it again.
func (o *oldCache) put(x *extent) {
	o.mu.Lock()
	for _, k := range x.keys {
		o.mu.index[k] = x
	}
	o.mu.Unlock()
	o.cache.Set(x.keys[0], x)
}

func (o *oldCache) drop(k blockKey) {
	if x := o.find(k); x != nil {
		o.cache.Invalidate(x.keys[0])
		o.forget(x)
	}
}

func (o *oldCache) forget(x *extent) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, k := range x.keys {
		if o.mu.index[k] == x {
			delete(o.mu.index, k)
		}
	}
}

func (o *oldCache) size() int64 { return int64(o.cache.WeightedSize()) }
