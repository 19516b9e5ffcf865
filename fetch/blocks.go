package fetch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/oklog/ulid/v2"

	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/segment"
)

// maxGetBytes: a longer run of missing blocks is read by several GETs in parallel.
const maxGetBytes = 4 << 20

var (
	errClosed = errors.New("fetcher is closed")
	// errAbandoned is what a flight that nobody waits for ends with. No read sees it.
	errAbandoned = errors.New("nobody waits for this block any more")
)

// flight is one block on its way from the store. ext and err are set before done is closed.
type flight struct {
	done   chan struct{}
	ext    *extent // holds the block
	err    error
	wanted int // reads that started or joined it and have not ended; guarded by blocks.mu
}

// blocks is the block cache and the only caller of the store. Recent data is kept by recency and old data by frequency, so that a
// backfill cannot push out what tailing readers need.
type blocks struct {
	o       Options
	m       *metrics
	recent  *lru[blockKey, *extent]
	old     *oldCache
	window  *window       // of old data
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
	old, err := newOldCache(o.CacheBytes / 8)
	if err != nil {
		return nil, err
	}
	b := &blocks{
		o:       o,
		recent:  newLRU[blockKey](o.CacheBytes/2, (*extent).weight),
		old:     old,
		window:  newWindow(o.CacheBytes * 3 / 16),
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

func (c *blocks) bytes() int64 { return c.recent.size() + c.old.size() + c.window.bytes() }

// put caches a whole object.
func (c *blocks) put(id ulid.ULID, body []byte) {
	if len(body) > 0 {
		x := newExtent(id, false, 0, c.o.BlockBytes, body)
		c.recent.put(x, x.keys...)
	}
}

// unit is the size of a block of recent or of old data.
func (c *blocks) unit(old bool) int64 {
	if old {
		return c.o.OldBlockBytes
	}
	return c.o.BlockBytes
}

// peek finds a cached block. What was cached while it was recent serves it when it has become old.
func (c *blocks) peek(k blockKey) (*extent, bool) {
	if !k.old {
		return c.recent.get(k)
	}
	if x, ok := c.recent.get(blockKey{id: k.id, index: k.index * c.o.OldBlockBytes / c.o.BlockBytes}); ok {
		return x, true
	}
	if x, ok := c.window.get(k); ok {
		return x, true
	}
	return c.old.get(k)
}

// drop forgets the blocks of a batch, so that they are read from the store again.
func (c *blocks) drop(e *metadata.IndexEntry) {
	first, last := c.span(e, false)
	for i := first; i <= last; i++ {
		c.recent.take(blockKey{id: e.Segment.ID, index: i})
	}
	first, last = c.span(e, true)
	for i := first; i <= last; i++ {
		k := blockKey{id: e.Segment.ID, index: i, old: true}
		c.window.drop(k)
		c.old.drop(k)
	}
}

// span gives the first and the last block of a batch.
func (c *blocks) span(e *metadata.IndexEntry, old bool) (first, last int64) {
	unit := c.unit(old)
	return int64(e.Ref.Pos) / unit, (int64(e.Ref.Pos) + int64(e.Ref.Len) - 1) / unit
}

// piece is one block of a batch: what holds it, or the flight that brings it.
type piece struct {
	ext *extent
	fl  *flight
}

// load is a batch that is being read.
type load struct {
	entry  metadata.IndexEntry
	batch  *segment.DecodedBatch // decompressed already, else nil
	old    bool                  // misses go through the pool of old data
	first  int64                 // block index of pieces[0]
	pieces []piece
	stored []byte // the batch as it is stored, once it was decoded
}

// lookup collects what is cached of the batches and counts the bytes of the blocks of old batches that are not. A batch is old when its
// append time is before cutoff (Unix ms). A batch that decoded knows needs no blocks.
func (c *blocks) lookup(entries []metadata.IndexEntry, cutoff int64, decoded *lru[batchKey, *segment.DecodedBatch]) (loads []load, missing int64) {
	loads = make([]load, len(entries))
	counted := blockKey{index: -1}
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
		first, last := c.span(e, l.old)
		l.first = first
		l.pieces = make([]piece, last-first+1)
		for j := range l.pieces {
			k := blockKey{e.Segment.ID, first + int64(j), l.old}
			if x, ok := c.peek(k); ok {
				l.pieces[j].ext = x
			} else if l.old && k != counted { // neighbours share a block
				missing += c.length(&e.Segment, k)
				counted = k
			}
		}
	}
	return loads, missing
}

// absent gives the bytes of the blocks of loads that are neither cached nor on their way, and of all of them. next says whether the first is
// absent.
func (c *blocks) absent(loads []load) (absent, all int64, next bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	counted := blockKey{index: -1}
	for i := range loads {
		l := &loads[i]
		for j := range l.pieces {
			k := blockKey{l.entry.Segment.ID, l.first + int64(j), l.old}
			if k == counted { // neighbours share a block
				continue
			}
			n := c.length(&l.entry.Segment, k)
			if l.pieces[j].ext == nil && c.mu.flights[k] == nil {
				absent += n
				next = next || all == 0
			}
			all += n
			counted = k
		}
	}
	return absent, all, next
}

// startAhead starts to load what a scan will want, of old data only where there is room for it.
func (c *blocks) startAhead(loads []load, absent int64) (started int) {
	if slices.ContainsFunc(loads, func(l load) bool { return l.old }) {
		ok, used := c.window.room(c.weight(absent), c.o.Clock.Now())
		c.demote(used)
		if !ok {
			return 0
		}
	}
	return c.begin(loads, true)
}

// weight is what n bytes of old data will weigh in the window, about.
func (c *blocks) weight(n int64) int64 {
	return n + extentOverhead + keyOverhead*(n/c.o.OldBlockBytes+1)
}

// demote offers what has left the window to the cache of old data.
func (c *blocks) demote(list []*extent) {
	for _, x := range list {
		c.old.put(x)
	}
}

// length is how many bytes a block of an object has: all but the last are full.
func (c *blocks) length(s *metadata.SegmentRef, k blockKey) int64 {
	unit := c.unit(k.old)
	return min(unit, s.Size-k.index*unit)
}

// run is a stretch of adjacent blocks that one GET brings.
type run struct {
	seg     metadata.SegmentRef
	first   int64
	flights []*flight
	old     bool
	ahead   bool // nobody has asked for it yet
}

// runBytes is the size of a run.
func (c *blocks) runBytes(r *run) (n int64) {
	for i := range r.flights {
		n += c.length(&r.seg, r.key(i))
	}
	return n
}

// key names the run's ith block.
func (r *run) key(i int) blockKey { return blockKey{r.seg.ID, r.first + int64(i), r.old} }

// start makes sure that every block of the loads is there or on its way. Adjacent missing blocks share one GET, and a block that
// another reader is getting is shared.
func (c *blocks) start(loads []load) (started int) { return c.begin(loads, false) }

func (c *blocks) begin(loads []load, ahead bool) (started int) {
	var runs []run
	var hits, shared int
	c.mu.Lock()
	for i := range loads {
		l := &loads[i]
		for j := range l.pieces {
			p := &l.pieces[j]
			if p.ext != nil {
				hits++
				continue
			}
			k := blockKey{l.entry.Segment.ID, l.first + int64(j), l.old}
			if fl, ok := c.mu.flights[k]; ok {
				p.fl = fl
				fl.wanted++
				shared++
				continue
			}
			// A flight leaves its block in the cache before it leaves the table: what is in neither has to be read.
			if x, ok := c.peek(k); ok {
				p.ext = x
				hits++
				continue
			}
			p.fl = &flight{done: make(chan struct{}), wanted: 1}
			if c.mu.closed {
				p.fl.err = errClosed
				close(p.fl.done)
				continue
			}
			c.mu.flights[k] = p.fl
			started++
			if n := len(runs) - 1; n >= 0 && runs[n].old == l.old && runs[n].seg.ID == k.id && runs[n].first+int64(len(runs[n].flights)) == k.index &&
				int64(len(runs[n].flights)+1)*c.unit(l.old) <= maxGetBytes {
				runs[n].flights = append(runs[n].flights, p.fl)
			} else {
				runs = append(runs, run{seg: l.entry.Segment, first: k.index, flights: []*flight{p.fl}, old: l.old, ahead: ahead})
			}
		}
	}
	c.wg.Add(len(runs))
	c.mu.Unlock()
	for _, r := range runs {
		if r.old && r.ahead {
			c.window.fly(c.weight(c.runBytes(&r)))
		}
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

// release says that a read does not wait for these loads any more. A run that nobody wants and that still waits for the pool is given up:
// readers that come and go must not leave a queue behind. A GET that runs goes on, for the cache.
func (c *blocks) release(loads []load) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range loads {
		for j := range loads[i].pieces {
			if fl := loads[i].pieces[j].fl; fl != nil {
				fl.wanted--
			}
		}
	}
}

// giveUp takes the flights of a run off the table if nobody wants them.
func (c *blocks) giveUp(r run) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, fl := range r.flights {
		if fl.wanted > 0 {
			return false
		}
	}
	for i := range r.flights { // whoever comes now starts anew
		delete(c.mu.flights, r.key(i))
	}
	return true
}

// fetch reads one run and lands its flights.
func (c *blocks) fetch(r run) {
	data, err := c.get(r)
	var x *extent
	if err == nil {
		x = newExtent(r.seg.ID, r.old, r.first, c.unit(r.old), data)
		if !r.old {
			c.recent.put(x, x.keys...)
		}
	}
	switch now := c.o.Clock.Now(); {
	case r.old && r.ahead:
		c.demote(c.window.landed(c.weight(c.runBytes(&r)), x, now))
	case r.old && x != nil:
		c.demote(c.window.put(x, false, now))
	}
	c.mu.Lock()
	for i, fl := range r.flights {
		fl.ext, fl.err = x, err
		if k := r.key(i); c.mu.flights[k] == fl {
			delete(c.mu.flights, k)
		}
	}
	c.mu.Unlock()
	for _, fl := range r.flights {
		close(fl.done)
	}
}

// get waits for a slot of the pool and reads the run's bytes, all of them.
func (c *blocks) get(r run) ([]byte, error) {
	at := r.first * c.unit(r.old)
	age, slots := ageRecent, c.slots
	if r.old {
		age, slots = ageOld, c.oldSlot
	}
	want := c.runBytes(&r)
	key := segment.Name{ID: r.seg.ID, Level: r.seg.Level, Class: r.seg.Class}.Key()
	select {
	case slots <- struct{}{}:
	case <-c.ctx.Done():
		return nil, errClosed
	}
	defer func() { <-slots }()
	if c.giveUp(r) {
		c.m.abandoned.Inc()
		return nil, errAbandoned
	}
	// Not clockwork.WithTimeout: Err of its fake contexts blocks until they end.
	ctx, cancel := context.WithCancelCause(c.ctx)
	defer cancel(nil)
	timer := c.o.Clock.AfterFunc(c.o.GetTimeout, func() { cancel(context.DeadlineExceeded) })
	defer timer.Stop()
	begin := c.o.Clock.Now()
	data, err := c.o.Store.GetRange(ctx, key, at, want)
	c.m.levels.get(r.seg.Level, r.old, len(data))
	c.m.getSeconds.WithLabelValues(age).Observe(c.o.Clock.Since(begin).Seconds())
	switch {
	case err == nil && int64(len(data)) == want:
		if at == 0 {
			return data, checkHeader(&r.seg, key, data)
		}
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

// checkHeader refuses the bytes of an object that was put in the place of another. A header that cannot be read says nothing about the
// batches, which have checksums of their own.
func checkHeader(s *metadata.SegmentRef, key string, data []byte) error {
	if h, err := segment.ParseHeader(data); err == nil && ulid.ULID(h.ID) != s.ID {
		return &segment.CorruptError{Object: key, Structure: "object", Reason: fmt.Sprintf("it is a copy of segment %s", ulid.ULID(h.ID))}
	}
	return nil
}

// wait gives the stored bytes of a batch. They share memory with the cache where the batch lies in one extent.
func (c *blocks) wait(ctx context.Context, l *load) ([]byte, error) {
	if len(l.pieces) == 0 {
		return nil, &segment.CorruptError{Offset: int64(l.entry.Ref.Pos), Structure: "object", Reason: "the index has a batch of no bytes or beyond the object's end"}
	}
	for i := range l.pieces {
		p := &l.pieces[i]
		if p.ext != nil {
			continue
		}
		select {
		case <-p.fl.done:
		default:
			select {
			case <-p.fl.done:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		if p.fl.err != nil {
			return nil, p.fl.err
		}
		p.ext = p.fl.ext
	}
	if l.old {
		c.window.use(blockKey{l.entry.Segment.ID, l.first, true}, len(l.pieces))
	}
	from := int64(l.entry.Ref.Pos)
	to := from + int64(l.entry.Ref.Len)
	if x := l.pieces[0].ext; to <= x.end() {
		return x.data[from-x.at : to-x.at : to-x.at], nil
	}
	out := make([]byte, 0, to-from)
	for i := range l.pieces {
		x := l.pieces[i].ext
		if next := from + int64(len(out)); x.at <= next && next < x.end() && next < to { // else the extent of an earlier piece had this one too
			out = append(out, x.data[next-x.at:min(x.end(), to)-x.at]...)
		}
	}
	if int64(len(out)) != to-from {
		return nil, &segment.CorruptError{Offset: from, Structure: "object", Reason: "a cached copy of the object is shorter than what was written"}
	}
	return out, nil
}
