package compactor

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

const (
	chunkBytes = 4 << 20   // of one GET
	chunkGap   = 128 << 10 // bytes that are read though nobody wants them, rather than a second GET
	readers    = 4         // GETs at a time of one job
)

// UnreadableError says that a live batch cannot be read: its object is gone or its bytes are corrupt. The compactor leaves it where it is.
type UnreadableError struct {
	Segment ulid.ULID
	Object  string
	Missing bool
	Cause   error
}

func (e *UnreadableError) Error() string {
	what := "is corrupt"
	if e.Missing {
		what = "is missing"
	}
	return fmt.Sprintf("object %s %s: %v", e.Object, what, e.Cause)
}

// Unwrap gives the cause.
func (e *UnreadableError) Unwrap() error { return e.Cause }

func objectKey(s *metadata.SegmentRef) string {
	return segment.Name{ID: s.ID, Level: s.Level, Class: s.Class}.Key()
}

// identify makes sure that a chunk is of the segment that it should be of, and not of one that was copied to its place. Of sparse batches
// the offsets say so; of an object with dense ones the header is read, once, where it is not in the chunk.
func (s *sources) identify(c *chunk, data []byte) error {
	if !c.dense || s.known.has(c.id) {
		return nil
	}
	if c.off > 0 {
		var err error
		if data, err = s.store.GetRange(s.ctx, c.key, 0, segment.HeaderSize); err != nil {
			return err
		}
		s.read(len(data))
	}
	// A header that cannot be read says nothing about the batches, which have checksums of their own.
	if h, err := segment.ParseHeader(data); err == nil && ulid.ULID(h.ID) != c.id {
		return copied(c.key, h.ID)
	}
	s.known.add(c.id)
	return nil
}

// copied says that an object was put in the place of another.
func copied(key string, id [16]byte) error {
	return &segment.CorruptError{Object: key, Structure: "object", Reason: fmt.Sprintf("it is a copy of segment %s", ulid.ULID(id))}
}

// chunk is a stretch of one object that one GET brings, and that is let go when the last batch in it was used.
type chunk struct {
	key   string
	id    ulid.ULID
	dense bool
	off   int64
	size  int64
	uses  int // entries that still need it; only the consumer touches it

	started bool          // only the consumer touches it
	done    chan struct{} // closed when data and err are set
	data    []byte
	err     error
}

// sources reads the batches of a job. The consumer asks for entries in the order in which they were given; what comes next is loaded ahead,
// as far as the budget permits. It belongs to one goroutine.
type sources struct {
	ctx    context.Context
	store  objectstore.Store
	budget int64 // bytes of chunks held or on their way; the one that is needed now comes whatever it says
	read   func(n int)
	known  *segmentSet // level-0 objects whose header was read
	wg     sync.WaitGroup
	slots  chan struct{}

	objects map[ulid.ULID][]*chunk // ascending by off
	order   []*chunk               // by first use
	next    int                    // in order: not started yet
	held    int64
}

// newSources plans the reads of entries, which is in order of use. read is called with the size of each GET, from any goroutine.
func newSources(ctx context.Context, store objectstore.Store, entries []*metadata.IndexEntry, budget int64, known *segmentSet, read func(n int)) *sources {
	s := &sources{ctx: ctx, store: store, budget: budget, known: known, read: read, slots: make(chan struct{}, readers), objects: map[ulid.ULID][]*chunk{}}
	type stretch struct{ off, end int64 }
	wanted := map[ulid.ULID][]stretch{}
	refs := map[ulid.ULID]*metadata.SegmentRef{}
	for _, e := range entries {
		wanted[e.Segment.ID] = append(wanted[e.Segment.ID], stretch{int64(e.Ref.Pos), int64(e.Ref.Pos) + int64(e.Ref.Len)})
		refs[e.Segment.ID] = &e.Segment
	}
	for id, list := range wanted {
		slices.SortFunc(list, func(a, b stretch) int { return int(a.off - b.off) })
		key := objectKey(refs[id])
		var chunks []*chunk
		for i := 0; i < len(list); {
			from, to := list[i].off, list[i].end
			if refs[id].Level == 0 && from <= chunkGap {
				from = 0 // with the header
			}
			for i++; i < len(list) && list[i].off <= to+chunkGap; i++ {
				to = max(to, list[i].end)
			}
			for ; from < to; from += chunkBytes {
				chunks = append(chunks, &chunk{key: key, id: id, dense: refs[id].Level == 0, off: from, size: min(chunkBytes, to-from), done: make(chan struct{})})
			}
		}
		s.objects[id] = chunks
	}
	for _, e := range entries {
		for _, c := range s.chunks(e) {
			if c.uses++; c.uses == 1 {
				s.order = append(s.order, c)
			}
		}
	}
	return s
}

// chunks gives those that hold an entry.
func (s *sources) chunks(e *metadata.IndexEntry) []*chunk {
	all := s.objects[e.Segment.ID]
	from, to := int64(e.Ref.Pos), int64(e.Ref.Pos)+int64(e.Ref.Len)
	i, _ := slices.BinarySearchFunc(all, from, func(c *chunk, pos int64) int {
		if c.off+c.size <= pos {
			return -1
		}
		return 1
	})
	j := i
	for j < len(all) && all[j].off < to {
		j++
	}
	return all[i:j]
}

// start loads a chunk in the background, once.
func (s *sources) start(c *chunk) {
	if c.started {
		return
	}
	c.started = true
	s.held += c.size
	s.wg.Go(func() {
		defer close(c.done)
		select {
		case s.slots <- struct{}{}:
			defer func() { <-s.slots }()
		case <-s.ctx.Done():
			c.err = s.ctx.Err()
			return
		}
		data, err := s.store.GetRange(s.ctx, c.key, c.off, c.size)
		if err == nil {
			err = s.identify(c, data)
		}
		if err == nil && int64(len(data)) != c.size {
			err = &segment.CorruptError{Object: c.key, Offset: c.off, Structure: "object", Reason: fmt.Sprintf("%d bytes where %d were written", len(data), c.size)}
		} else if errors.Is(err, objectstore.ErrInvalidRange) {
			err = &segment.CorruptError{Object: c.key, Offset: c.off, Structure: "object", Reason: "it is shorter than what was written"}
		}
		c.data, c.err = data, err
		s.read(len(data))
	})
}

// ahead starts what comes next, as far as the budget permits.
func (s *sources) ahead() {
	for ; s.next < len(s.order); s.next++ {
		c := s.order[s.next]
		if c.uses > 0 && s.held+c.size > s.budget {
			return
		}
		if c.uses > 0 {
			s.start(c)
		}
	}
}

// get waits for a chunk.
func (s *sources) get(c *chunk) ([]byte, error) {
	s.start(c)
	s.ahead()
	<-c.done
	return c.data, c.err
}

// drop gives up one use of a chunk.
func (s *sources) drop(c *chunk) {
	if c.uses--; c.uses > 0 || !c.started {
		return
	}
	<-c.done
	s.held -= c.size
	c.data = nil
}

// close waits for the GETs under way. Cancel ctx before, where they are not wanted.
func (s *sources) close() { s.wg.Wait() }

// cursor goes through the stored batches of one entry.
type cursor struct {
	s      *sources
	entry  *metadata.IndexEntry
	chunks []*chunk // not given up yet
	pos    int64
	end    int64
	join   []byte // memory for a batch that lies in two chunks
}

func (s *sources) open(e *metadata.IndexEntry) cursor {
	return cursor{s: s, entry: e, chunks: s.chunks(e), pos: int64(e.Ref.Pos), end: int64(e.Ref.Pos) + int64(e.Ref.Len)}
}

// next gives the next batch as it is stored, from its first byte to its last, or nil at the end. It is valid until the next call.
func (c *cursor) next() ([]byte, error) {
	for len(c.chunks) > 0 && c.chunks[0].off+c.chunks[0].size <= c.pos {
		c.s.drop(c.chunks[0])
		c.chunks = c.chunks[1:]
	}
	if c.pos >= c.end {
		c.close()
		return nil, nil
	}
	head, err := c.bytes(segment.BatchHeaderSize)
	if err != nil {
		return nil, c.fail(err)
	}
	n, err := segment.StoredLength(head)
	if err != nil {
		return nil, c.fail(err)
	}
	stored, err := c.bytes(int64(n))
	if err != nil {
		return nil, c.fail(err)
	}
	c.pos += int64(n)
	return stored, nil
}

// bytes gives the n bytes at pos.
func (c *cursor) bytes(n int64) ([]byte, error) {
	if n > c.end-c.pos {
		return nil, &segment.CorruptError{Offset: c.pos, Structure: "batch", Reason: "it reaches beyond what the index says"}
	}
	first, err := c.s.get(c.chunks[0])
	if err != nil {
		return nil, err
	}
	at := c.pos - c.chunks[0].off
	if at+n <= int64(len(first)) {
		return first[at : at+n : at+n], nil
	}
	c.join = append(c.join[:0], first[at:]...)
	for i := 1; int64(len(c.join)) < n; i++ {
		more, err := c.s.get(c.chunks[i])
		if err != nil {
			return nil, err
		}
		c.join = append(c.join, more[:min(int64(len(more)), n-int64(len(c.join)))]...)
	}
	return c.join[:n:n], nil
}

// close gives up what is left.
func (c *cursor) close() {
	for _, x := range c.chunks {
		c.s.drop(x)
	}
	c.chunks = nil
}

// fail says which object cannot be read for good; other errors pass.
func (c *cursor) fail(err error) error { return unreadable(&c.entry.Segment, err) }

func unreadable(s *metadata.SegmentRef, err error) error {
	missing := errors.Is(err, objectstore.ErrNotFound)
	if missing || errors.Is(err, segment.ErrCorrupt) || errors.Is(err, segment.ErrUnsupportedVersion) {
		return &UnreadableError{Segment: s.ID, Object: objectKey(s), Missing: missing, Cause: err}
	}
	return fmt.Errorf("read %s: %w", objectKey(s), err)
}
