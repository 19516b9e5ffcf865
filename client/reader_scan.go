package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/forebaymq/forebay/api"
)

// readerPage is what one read has found, or why there will be no more.
type readerPage struct {
	partition int32
	records   []Record
	next      int64
	err       error
}

// readerPart is one partition during a scan. Guarded by readerScan.mu, but for next and at, which belong to the read that is under way.
type readerPart struct {
	id     int32
	next   int64     // to read from; or Earliest
	at     time.Time // if not zero, where to begin instead of next
	end    int64     // not read any more
	busy   bool      // a read is under way
	atHead bool
	done   bool
}

// readerScan is one loop of a Reader: a dispatcher that begins reads, one at a time for a partition, as long as there are slots, and the reads, which send
// what they find to the loop. A slot is held from the beginning of a read until its page is consumed.
type readerScan struct {
	r          *Reader
	topicID    string
	cancel     context.CancelFunc
	pages      chan readerPage
	slots      chan struct{}
	changed    chan struct{}
	dispatcher sync.WaitGroup
	watcher    sync.WaitGroup
	reads      sync.WaitGroup
	mu         struct {
		sync.Mutex
		parts  []*readerPart
		byID   map[int32]*readerPart
		turn   int
		active int // not done
	}
}

// scan begins a loop.
func (r *Reader) scan(ctx context.Context) (*readerScan, error) {
	t, err := readerInsist(ctx, r, false, func() (*Topic, error) { return r.c.GetTopic(ctx, r.topic) })
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &readerScan{
		r: r, topicID: t.TopicID, cancel: cancel,
		pages: make(chan readerPage, r.o.pages+1), // one for the watcher, which has no slot
		slots: make(chan struct{}, r.o.pages), changed: make(chan struct{}, 1),
	}
	s.mu.byID = map[int32]*readerPart{}
	if err := s.begin(t); err != nil {
		cancel()
		return nil, err
	}
	watching, endWatching := context.WithCancel(ctx)
	if r.o.follow {
		s.watcher.Go(func() { s.watch(watching) })
	}
	s.dispatcher.Go(func() {
		s.dispatch(ctx)
		// Reads and the watcher send pages; so they end before there can be no more.
		s.reads.Wait()
		endWatching()
		s.watcher.Wait()
		close(s.pages)
	})
	return s, nil
}

func (s *readerScan) close() {
	s.cancel()
	s.dispatcher.Wait()
}

// release gives back the slot of a page.
func (s *readerScan) release() { <-s.slots }

// begin takes the partitions as they are.
func (s *readerScan) begin(t *Topic) error {
	want := map[int32]bool{}
	for _, id := range s.r.o.partitions {
		want[id] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, info := range t.PartitionInfo {
		if id := int32(info.Partition); want[id] || s.r.o.partitions == nil {
			if err := s.addLocked(info, s.r.o.resumed); err != nil {
				return err
			}
			delete(want, id)
		}
	}
	for id := range want {
		return fmt.Errorf("read %s: there is no partition %d, only %d partitions: %w", s.r.topic, id, t.Partitions,
			&Error{Op: "get topic " + s.r.topic, Status: http.StatusNotFound, Code: api.CodeUnknownPartition})
	}
	return nil
}

// addLocked adds a partition. late says that the topic may have got it since the reader began.
func (s *readerScan) addLocked(info PartitionInfo, late bool) error {
	o := &s.r.o
	p := &readerPart{id: int32(info.Partition), next: o.offset, at: o.at, end: math.MaxInt64}
	if !o.follow {
		p.end = info.Head
	}
	if o.until >= 0 {
		p.end = min(p.end, o.until)
	}
	s.r.mu.Lock()
	at, known := s.r.mu.next[p.id]
	s.r.mu.Unlock()
	switch {
	case known:
		p.next, p.at = at, time.Time{}
	case !p.at.IsZero():
		p.next = Earliest // means nothing beside at
	case p.next == Latest && late:
		p.next = Earliest
	case p.next == Latest:
		p.next = info.Head
	}
	if p.at.IsZero() && p.next == Earliest && info.LogStart == info.Head {
		p.next = info.Head // there is nothing in it
	}
	if p.next > info.Head { // there is nothing to read, but not because it was read
		return &OutOfRangeError{Topic: s.r.topic, Partition: p.id, Offset: p.next, LogStart: info.LogStart, Head: info.Head, Cause: &Error{
			Op: fmt.Sprintf("read %s partition %d", s.r.topic, p.id), Status: http.StatusRequestedRangeNotSatisfiable, Code: api.CodeOffsetOutOfRange,
			LogStart: info.LogStart, Head: info.Head,
		}}
	}
	if p.next >= 0 {
		s.r.advance(p.id, p.next) // known from the first moment on
	}
	p.done = p.end <= max(p.next, 0)
	if !p.done {
		s.mu.active++
	}
	s.mu.parts = append(s.mu.parts, p)
	s.mu.byID[p.id] = p
	return nil
}

// dispatch begins reads until all partitions are done or ctx ends.
func (s *readerScan) dispatch(ctx context.Context) {
	for {
		select {
		case s.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		p, wait := s.pick(ctx)
		if p == nil {
			return
		}
		s.reads.Go(func() { s.read(ctx, p, wait) })
	}
}

// pick waits for a partition to read from. It gives nil when there will be none.
func (s *readerScan) pick(ctx context.Context) (p *readerPart, wait time.Duration) {
	for {
		s.mu.Lock()
		if s.mu.active == 0 {
			s.mu.Unlock()
			return nil, 0
		}
		// With a slot for each partition they can all wait at their heads. With fewer, the watcher says which of them have something.
		park := s.r.o.follow && s.mu.active <= s.r.o.pages
		for range s.mu.parts {
			s.mu.turn = (s.mu.turn + 1) % len(s.mu.parts)
			p := s.mu.parts[s.mu.turn]
			if p.busy || p.done || p.atHead && !park {
				continue
			}
			p.busy = true
			s.mu.Unlock()
			if park {
				wait = s.r.o.wait
			}
			return p, wait
		}
		s.mu.Unlock()
		select {
		case <-s.changed:
		case <-ctx.Done():
			return nil, 0
		}
	}
}

func (s *readerScan) signal() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// read reads one page and passes it on.
func (s *readerScan) read(ctx context.Context, p *readerPart, wait time.Duration) {
	r := s.r
	o := ReadOptions{Offset: p.next, Timestamp: ceilMilli(p.at), Limit: r.o.records, MaxBytes: r.o.bytes, Wait: wait}
	result, err := readerInsist(ctx, r, true, func() (*ReadResult, error) { return s.readOnce(ctx, p, &o) })
	if err != nil {
		s.settle(p, true, false)
		if ctx.Err() == nil {
			s.pages <- readerPage{err: err}
		}
		return
	}
	page := readerPage{partition: p.id, records: result.Records, next: result.NextOffset}
	done := false
	for i := range page.records {
		if page.records[i].Offset >= p.end || !r.o.untilTime.IsZero() && !page.records[i].Time.Before(r.o.untilTime) {
			page.next = page.records[i].Offset
			page.records, done = page.records[:i], true
			break
		}
	}
	if p.at.IsZero() {
		page.next = min(page.next, max(p.end, o.Offset))
	}
	moved := !p.at.IsZero() || o.Offset == Earliest || page.next > o.Offset
	atHead := page.next >= result.Head || !moved && wait == 0
	p.next, p.at = page.next, time.Time{}
	if moved || done {
		s.pages <- page // there is room: the page has a slot
	} else {
		s.release()
	}
	s.settle(p, done || page.next >= p.end || atHead && !r.o.follow, atHead)
}

// settle ends a read.
func (s *readerScan) settle(p *readerPart, done, atHead bool) {
	s.mu.Lock()
	p.busy, p.atHead = false, atHead
	if done && !p.done {
		p.done = true
		s.mu.active--
	}
	s.mu.Unlock()
	s.signal()
}

// readOnce reads, and decides about a position that is out of range.
func (s *readerScan) readOnce(ctx context.Context, p *readerPart, o *ReadOptions) (*ReadResult, error) {
	for {
		result, err := s.r.c.Read(ctx, s.r.topic, int(p.id), *o)
		var e *Error
		if err == nil || !errors.Is(err, ErrOffsetOutOfRange) || !errors.As(err, &e) {
			return result, err
		}
		out := &OutOfRangeError{Topic: s.r.topic, Partition: p.id, Offset: o.Offset, LogStart: e.LogStart, Head: e.Head, Cause: err}
		gap := out.Lost()
		if gap.From >= gap.To || s.r.o.onGap(ctx, gap) != GapSkip {
			return nil, out
		}
		o.Offset = gap.To
	}
}

// watch looks after what no read can see: partitions at their heads that have no slot to wait with, new partitions, and whether the topic is still the same.
func (s *readerScan) watch(ctx context.Context) {
	for {
		s.mu.Lock()
		every := s.r.o.refresh
		if s.mu.active <= s.r.o.pages {
			every *= 20 // the reads wait themselves; new partitions are rare
		}
		s.mu.Unlock()
		if !pass(ctx, every) {
			return
		}
		t, err := readerInsist(ctx, s.r, true, func() (*Topic, error) { return s.r.c.GetTopic(ctx, s.r.topic) })
		if err == nil && t.TopicID != s.topicID {
			err = fmt.Errorf("read %s: the topic was deleted and another one was created: %w", s.r.topic, &Error{Op: "get topic " + s.r.topic, Status: http.StatusNotFound, Code: api.CodeUnknownTopic})
		}
		if err == nil {
			err = s.refresh(t)
		}
		if err != nil {
			if ctx.Err() == nil {
				s.pages <- readerPage{err: err} // there is room: it is the only one without a slot
			}
			return
		}
	}
}

func (s *readerScan) refresh(t *Topic) error {
	defer s.signal()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, info := range t.PartitionInfo {
		switch p := s.mu.byID[int32(info.Partition)]; {
		case p == nil && s.r.o.partitions == nil:
			if err := s.addLocked(info, true); err != nil {
				return err
			}
		case p != nil && !p.busy && info.Head > p.next:
			p.atHead = false
		}
	}
	return nil
}

// readerInsist calls fn until it succeeds, is refused, or the outage is longer than the reader is to bear. reached says that the server has answered before.
func readerInsist[T any](ctx context.Context, r *Reader, reached bool, fn func() (T, error)) (T, error) {
	pacer := newOutage(*r.o.outage, longestPause, r.c.policy.MaxRetryAfter)
	pacer.reached = reached
	for {
		v, err := fn()
		if err == nil || ctx.Err() != nil {
			return v, err
		}
		pause, again := pacer.next(err)
		if !again {
			return v, err
		}
		r.o.notify(err)
		if !pass(ctx, pause) {
			return v, err
		}
	}
}

// ceilMilli gives the first millisecond at or after t: the server counts milliseconds.
func ceilMilli(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(time.Millisecond - 1).Truncate(time.Millisecond)
}
