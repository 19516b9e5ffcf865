package fetch

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/maypok86/otter/v2"
	"github.com/oklog/ulid/v2"

	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/segment"
)

const (
	// entryOverhead is what a cached block weighs beyond its bytes.
	entryOverhead = 160
	// maxGetBytes: a longer run of missing blocks is read by several GETs in parallel.
	maxGetBytes = 8 << 20
	// wholeObject is the block index of an own flush, which is cached as one piece: blocks cut from one allocation without a copy would
	// each keep all of it in memory, while a piece weighs what it holds.
	wholeObject = -1
)

var errClosed = errors.New("fetcher is closed")

// blockKey names one block. A segment's ULID names its content for ever, whatever class its key is under.
type blockKey struct {
	id    ulid.ULID
	index int64
}

// flight is one block on its way from the store. The fields are set before done is closed.
type flight struct {
	done  chan struct{}
	data  []byte // the block
	run   []byte // all bytes of the GET that brought the block
	start int64  // position of run in the object
	err   error
}

// blocks is the block cache and the only caller of the store. Recent data is kept by recency and old data by frequency, so that a
// backfill cannot push out what tailing readers need.
type blocks struct {
	o       Options
	m       *metrics
	recent  *lru[blockKey, []byte]
	old     *otter.Cache[blockKey, []byte]
	slots   chan struct{} // held by GETs of recent data
	oldSlot chan struct{} // held by GETs of old data

	ctx    context.Context // ends at close; GETs belong to nobody's request
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu struct {
		sync.Mutex
		flights map[blockKey]*flight
		closed  bool
	}
}

func newBlocks(o Options) (*blocks, error) {
	old, err := otter.New(&otter.Options[blockKey, []byte]{
		MaximumWeight: uint64(o.CacheBytes / 4),
		Weigher:       func(_ blockKey, b []byte) uint32 { return uint32(len(b) + entryOverhead) },
		// Maintenance on the calling goroutine: no goroutine outlives Close. No handler is set that could meet the cache's locks.
		Executor: func(task func()) { task() },
	})
	if err != nil {
		return nil, fmt.Errorf("make block cache: %w", err)
	}
	b := &blocks{
		o:       o,
		recent:  newLRU[blockKey](o.CacheBytes/2, func(b []byte) int64 { return int64(len(b)) + entryOverhead }),
		old:     old,
		slots:   make(chan struct{}, o.Reads),
		oldSlot: make(chan struct{}, o.OldReads),
	}
	b.ctx, b.cancel = context.WithCancel(context.Background()) // the lifetime of the Fetcher; ends in close
	b.mu.flights = map[blockKey]*flight{}
	return b, nil
}

// close ends the GETs in flight and waits for them.
func (c *blocks) close() {
	c.mu.Lock()
	c.mu.closed = true
	c.mu.Unlock()
	c.cancel()
	c.wg.Wait()
}

func (c *blocks) bytes() int64 { return c.recent.size() + int64(c.old.WeightedSize()) }

// put caches a whole object.
func (c *blocks) put(id ulid.ULID, body []byte) {
	if cap(body)-len(body) > len(body)/4 { // a small object in a large buffer would keep the buffer in memory
		body = append(make([]byte, 0, len(body)), body...)
	}
	c.recent.put(blockKey{id, wholeObject}, body)
}

// whole gives a cached whole object.
func (c *blocks) whole(id ulid.ULID) ([]byte, bool) { return c.recent.get(blockKey{id, wholeObject}) }

// peek gives a cached block.
func (c *blocks) peek(k blockKey) ([]byte, bool) {
	if b, ok := c.recent.get(k); ok {
		return b, true
	}
	return c.old.GetIfPresent(k)
}

// drop forgets the blocks of a batch and its object, so that they are read from the store again.
func (c *blocks) drop(e *metadata.IndexEntry) {
	c.recent.take(blockKey{e.Segment.ID, wholeObject})
	first, last := c.span(e)
	for i := first; i <= last; i++ {
		k := blockKey{e.Segment.ID, i}
		c.recent.take(k)
		c.old.Invalidate(k)
	}
}

// span gives the first and the last block of a batch.
func (c *blocks) span(e *metadata.IndexEntry) (first, last int64) {
	return int64(e.Ref.Pos) / c.o.BlockBytes, (int64(e.Ref.Pos) + int64(e.Ref.Len) - 1) / c.o.BlockBytes
}

// piece is one block of a batch: its bytes, or the flight that brings them.
type piece struct {
	data []byte
	fl   *flight
}

// load is a batch that is being read.
type load struct {
	entry  metadata.IndexEntry
	batch  *segment.DecodedBatch // decompressed already, else nil
	old    bool                  // misses go through the pool of old data
	bytes  []byte                // the stored batch, where a whole object is cached; else pieces
	first  int64                 // block index of pieces[0]
	pieces []piece
}

// lookup collects what is cached of the batches and counts the bytes of the blocks of old batches that are not. A batch is old when its
// append time is before cutoff (Unix ms). A batch that decoded knows needs no blocks.
func (c *blocks) lookup(entries []metadata.IndexEntry, cutoff int64, decoded *lru[batchKey, *segment.DecodedBatch]) (loads []load, missing int64) {
	loads = make([]load, len(entries))
	counted := blockKey{index: wholeObject}
	for i := range entries {
		l := &loads[i]
		l.entry = entries[i]
		e := &l.entry
		l.old = e.AppendTime < cutoff
		if b, ok := decoded.get(batchKey{e.Segment.ID, e.Ref.Pos}); ok {
			l.batch = b
			continue
		}
		if size := uint64(max(0, e.Segment.Size)); e.Ref.Len == 0 || e.Ref.Pos > size || uint64(e.Ref.Len) > size-e.Ref.Pos {
			continue // no batch can be there: wait reports it
		}
		if body, ok := c.whole(e.Segment.ID); ok && e.Ref.Pos+uint64(e.Ref.Len) <= uint64(len(body)) {
			l.bytes = body[e.Ref.Pos : e.Ref.Pos+uint64(e.Ref.Len)]
			continue
		}
		first, last := c.span(e)
		l.first = first
		l.pieces = make([]piece, last-first+1)
		for j := range l.pieces {
			k := blockKey{e.Segment.ID, first + int64(j)}
			data, ok := c.peek(k)
			if ok {
				l.pieces[j].data = data
			} else if l.old && k != counted { // neighbours share a block
				missing += c.length(&e.Segment, k.index)
				counted = k
			}
		}
	}
	return loads, missing
}

// length is how many bytes block index of an object has: all but the last are full.
func (c *blocks) length(s *metadata.SegmentRef, index int64) int64 {
	return min(c.o.BlockBytes, s.Size-index*c.o.BlockBytes)
}

// run is a stretch of adjacent blocks that one GET brings.
type run struct {
	seg     metadata.SegmentRef
	first   int64
	flights []*flight
	old     bool
}

// start makes sure that every block of the loads is there or on its way. Adjacent missing blocks share one GET, and a block that
// another reader is getting is shared.
func (c *blocks) start(loads []load) (started int) {
	var runs []run
	var hits, shared int
	c.mu.Lock()
	for i := range loads {
		l := &loads[i]
		if l.bytes != nil {
			hits++
		}
		for j := range l.pieces {
			p := &l.pieces[j]
			if p.data != nil {
				hits++
				continue
			}
			k := blockKey{l.entry.Segment.ID, l.first + int64(j)}
			if fl, ok := c.mu.flights[k]; ok {
				p.fl = fl
				shared++
				continue
			}
			// A flight leaves its block in the cache before it leaves the table: what is in neither has to be read.
			if data, ok := c.peek(k); ok {
				p.data = data
				hits++
				continue
			}
			p.fl = &flight{done: make(chan struct{})}
			if c.mu.closed {
				p.fl.err = errClosed
				close(p.fl.done)
				continue
			}
			c.mu.flights[k] = p.fl
			started++
			if n := len(runs) - 1; n >= 0 && runs[n].old == l.old && runs[n].seg.ID == k.id && runs[n].first+int64(len(runs[n].flights)) == k.index &&
				int64(len(runs[n].flights)+1)*c.o.BlockBytes <= maxGetBytes {
				runs[n].flights = append(runs[n].flights, p.fl)
			} else {
				runs = append(runs, run{seg: l.entry.Segment, first: k.index, flights: []*flight{p.fl}, old: l.old})
			}
		}
	}
	c.wg.Add(len(runs))
	c.mu.Unlock()
	for _, r := range runs {
		go func() {
			defer c.wg.Done()
			c.fetch(r)
		}()
	}
	c.m.lookups.WithLabelValues("cache").Add(float64(hits))
	c.m.lookups.WithLabelValues("flight").Add(float64(shared))
	c.m.lookups.WithLabelValues("store").Add(float64(started))
	return started
}

// fetch reads one run and lands its flights.
func (c *blocks) fetch(r run) {
	at := r.first * c.o.BlockBytes
	data, err := c.get(r, at)
	for i, fl := range r.flights {
		k := blockKey{r.seg.ID, r.first + int64(i)}
		fl.run, fl.start, fl.err = data, at, err
		if err == nil {
			lo := int64(i) * c.o.BlockBytes
			fl.data = data[lo:min(lo+c.o.BlockBytes, int64(len(data)))]
			cached := fl.data
			if cap(data)-len(cached) > len(cached)/4 { // a block would keep the whole run in memory
				cached = append(make([]byte, 0, len(cached)), cached...)
			}
			if r.old {
				c.old.Set(k, cached)
			} else {
				c.recent.put(k, cached)
			}
		}
	}
	c.mu.Lock()
	for i := range r.flights {
		delete(c.mu.flights, blockKey{r.seg.ID, r.first + int64(i)})
	}
	c.mu.Unlock()
	for _, fl := range r.flights {
		close(fl.done)
	}
}

// get waits for a slot of the pool and reads the run's bytes, all of them.
func (c *blocks) get(r run, at int64) ([]byte, error) {
	age, slots := ageRecent, c.slots
	if r.old {
		age, slots = ageOld, c.oldSlot
	}
	var want int64
	for i := range r.flights {
		want += c.length(&r.seg, r.first+int64(i))
	}
	key := segment.Name{ID: r.seg.ID, Level: r.seg.Level, Class: r.seg.Class}.Key()
	select {
	case slots <- struct{}{}:
	case <-c.ctx.Done():
		return nil, errClosed
	}
	defer func() { <-slots }()
	// Not clockwork.WithTimeout: Err of its fake contexts blocks until they end.
	ctx, cancel := context.WithCancelCause(c.ctx)
	defer cancel(nil)
	timer := c.o.Clock.AfterFunc(c.o.GetTimeout, func() { cancel(context.DeadlineExceeded) })
	defer timer.Stop()
	begin := c.o.Clock.Now()
	data, err := c.o.Store.GetRange(ctx, key, at, want)
	c.m.gets.WithLabelValues(age).Inc()
	c.m.getSeconds.WithLabelValues(age).Observe(c.o.Clock.Since(begin).Seconds())
	switch {
	case err == nil && int64(len(data)) == want:
		c.m.getBytes.WithLabelValues(age).Add(float64(len(data)))
		return data, nil
	case err == nil || errors.Is(err, objectstore.ErrInvalidRange):
		// The range was made from the object's size in the metadata: the object is shorter than what was written.
		err = &segment.CorruptError{Object: key, Offset: at, Structure: "object", Reason: fmt.Sprintf("%d bytes where %d were written", len(data), want)}
	case c.ctx.Err() != nil:
		err = errClosed
	case ctx.Err() != nil:
		err = fmt.Errorf("get %d bytes at %d of %s: %w", want, at, key, context.Cause(ctx))
	default:
		err = fmt.Errorf("get %d bytes at %d of %s: %w", want, at, key, err)
	}
	c.m.getErrors.WithLabelValues(age).Inc()
	return nil, err
}

// wait gives the stored bytes of a batch. It shares memory with the cache where the batch lies in one block or came by one GET.
func (c *blocks) wait(ctx context.Context, l *load) ([]byte, error) {
	if l.bytes != nil {
		return l.bytes, nil
	}
	if len(l.pieces) == 0 {
		return nil, &segment.CorruptError{Offset: int64(l.entry.Ref.Pos), Structure: "object", Reason: "the index has a batch of no bytes or beyond the object's end"}
	}
	for i := range l.pieces {
		fl := l.pieces[i].fl
		if fl == nil {
			continue
		}
		select {
		case <-fl.done:
		default:
			select {
			case <-fl.done:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		if fl.err != nil {
			return nil, fl.err
		}
		l.pieces[i].data = fl.data
	}
	from, size := int64(l.entry.Ref.Pos), int64(l.entry.Ref.Len)
	if fl := l.pieces[0].fl; fl != nil && from+size <= fl.start+int64(len(fl.run)) {
		return fl.run[from-fl.start : from-fl.start+size], nil
	}
	skip := from - l.first*c.o.BlockBytes
	if data := l.pieces[0].data; skip+size <= int64(len(data)) {
		return data[skip : skip+size], nil
	}
	out := make([]byte, 0, size)
	for i := range l.pieces {
		data := l.pieces[i].data
		out = append(out, data[skip:min(int64(len(data)), skip+size-int64(len(out)))]...)
		skip = 0
	}
	return out, nil
}
