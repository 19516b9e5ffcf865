package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/forebaymq/forebay/api"
)

// OutOfRangeError says that a Reader's position is outside its partition: behind what retention has deleted, or beyond the head, which means that the
// position is one of another topic. errors.Is finds ErrOffsetOutOfRange in it.
type OutOfRangeError struct {
	Topic          string
	Partition      int32
	Offset         int64 // that was to be read next
	LogStart, Head int64 // readable is LogStart up to, and not including, Head
	Cause          error // the server's answer, an *Error
}

// Lost gives what retention has deleted before it was read, from and up to, not including, to. It is empty where the position is beyond the head.
func (e *OutOfRangeError) Lost() Gap {
	return Gap{Topic: e.Topic, Partition: e.Partition, From: e.Offset, To: max(e.Offset, e.LogStart)}
}

func (e *OutOfRangeError) Error() string {
	at := fmt.Sprintf("read %s partition %d: OFFSET_OUT_OF_RANGE: ", e.Topic, e.Partition)
	if e.Offset > e.Head {
		return at + fmt.Sprintf("offset %d is beyond the head, %d: is it of another topic?", e.Offset, e.Head)
	}
	return at + fmt.Sprintf("retention has deleted the offsets %d to %d before they were read; the first that is left is %d", e.Offset, e.LogStart-1, e.LogStart)
}

// Unwrap gives the server's answer.
func (e *OutOfRangeError) Unwrap() error { return e.Cause }

// Reader reads the records of a topic, or of some of its partitions, in order within each partition: from a place of the caller's choice, to the end that
// the topic has when it begins, or on and on. It belongs to no group: nothing is committed, and readers do not know of each other.
//
//	for record, err := range reader.Records(ctx) {
//		if err != nil {
//			return err
//		}
//		...
//	}
//
// Pages are read ahead while the loop is busy, within a bound. Leaving the loop ends what is under way; ranging again goes on behind the last record.
// Positions says where that is, for a later process as well.
//
// Records of different partitions come as they arrive. A Reader is for one loop at a time; Positions may be called at any time.
type Reader struct {
	c     *Client
	topic string
	o     readerOptions
	mu    struct {
		sync.Mutex
		reading bool
		next    map[int32]int64 // by partition: behind the last record given out
	}
}

type readerOptions struct {
	partitions []int32
	offset     int64
	at         time.Time
	positions  map[int32]int64
	resumed    bool
	follow     bool
	untilTime  time.Time
	until      int64
	pages      int
	records    int
	bytes      int64
	wait       time.Duration
	refresh    time.Duration
	outage     *time.Duration
	onGap      func(ctx context.Context, g Gap) GapAction
	notify     func(err error)
}

// ReaderOption changes one setting of a Reader.
type ReaderOption func(*readerOptions)

// WithReaderPartitions reads these partitions, overriding the default of all, those that the topic gets meanwhile included.
func WithReaderPartitions(partitions ...int32) ReaderOption {
	return func(o *readerOptions) { o.partitions = append([]int32{}, partitions...) }
}

// WithReaderStart begins at an offset of each partition, at Earliest or at Latest, overriding the default of Earliest. Latest is the head at the time
// of the first loop.
func WithReaderStart(offset int64) ReaderOption {
	return func(o *readerOptions) { o.offset, o.at = offset, time.Time{} }
}

// WithReaderStartTime begins at the first record of each partition that was appended at or after t, overriding the default of Earliest.
func WithReaderStartTime(t time.Time) ReaderOption { return func(o *readerOptions) { o.at = t } }

// WithReaderPositions goes on where another reader was, see Reader.Positions, overriding the start. Partitions that are not named have not been read
// yet and begin where the start says; or at their first record where that is Latest, because the topic got them since.
func WithReaderPositions(positions []Position) ReaderOption {
	return func(o *readerOptions) {
		o.resumed, o.positions = true, map[int32]int64{}
		for _, p := range positions {
			o.positions[p.Partition] = p.Offset
		}
	}
}

// WithReaderFollow waits for more records at the end, overriding the default of ending at the heads that the partitions have when a loop begins. A topic that
// is deleted and made anew meanwhile ends the loop with ErrUnknownTopic, up to 10 s later.
func WithReaderFollow() ReaderOption { return func(o *readerOptions) { o.follow = true } }

// WithReaderUntil ends before this offset in each partition, overriding the default of no such bound.
func WithReaderUntil(offset int64) ReaderOption { return func(o *readerOptions) { o.until = offset } }

// WithReaderUntilTime ends, in each partition, before the first record appended at or after t, overriding the default of no such bound. With
// WithReaderFollow the loop ends when each partition has such a record.
func WithReaderUntilTime(t time.Time) ReaderOption { return func(o *readerOptions) { o.untilTime = t } }

// WithReaderAhead bounds the pages that are being read or wait to be consumed, over all partitions, overriding the default of 8. 1 reads nothing
// ahead. A page has up to 4 MiB, or what WithReaderPage says.
func WithReaderAhead(pages int) ReaderOption { return func(o *readerOptions) { o.pages = pages } }

// WithReaderPage bounds a page, overriding the default of 10,000 records and 4 MiB. A page has at least one record.
func WithReaderPage(records int, bytes int64) ReaderOption {
	return func(o *readerOptions) { o.records, o.bytes = records, bytes }
}

// WithReaderOutage ends the loop with the error when the server has been away for longer than limit. It overrides the defaults: a reader that follows
// goes on for ever, another one ends when the client's own retries have been in vain, which is also what 0 means.
func WithReaderOutage(limit time.Duration) ReaderOption {
	return func(o *readerOptions) { limit = max(limit, 0); o.outage = &limit }
}

// WithReaderGap decides about records that retention has deleted before they were read, overriding the default of GapStop, which ends the loop with an
// *OutOfRangeError. g names what is lost. It is called by several goroutines, ahead of the loop.
func WithReaderGap(decide func(ctx context.Context, g Gap) GapAction) ReaderOption {
	return func(o *readerOptions) { o.onGap = decide }
}

// WithReaderNotify hears of failures that the reader deals with by itself, of each attempt that is made again, overriding the default of nobody. It is
// called by several goroutines.
func WithReaderNotify(notify func(err error)) ReaderOption {
	return func(o *readerOptions) { o.notify = notify }
}

// withReaderTiming is for tests: how long reads wait at the head, and how often a topic of many partitions is looked at.
func withReaderTiming(wait, refresh time.Duration) ReaderOption {
	return func(o *readerOptions) { o.wait, o.refresh = wait, refresh }
}

// NewReader makes a reader. It asks the server nothing before its first loop. The token has to permit reading the topic and describing it.
func NewReader(c *Client, topic string, opts ...ReaderOption) (*Reader, error) {
	o := readerOptions{
		offset: Earliest, until: -1, pages: 8, records: api.MaxReadRecords, bytes: api.DefaultReadBytes, wait: 20 * time.Second, refresh: 500 * time.Millisecond,
		onGap: func(context.Context, Gap) GapAction { return GapStop }, notify: func(error) {},
	}
	for _, opt := range opts {
		opt(&o)
	}
	var faults []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	refuse(o.partitions != nil && len(o.partitions) == 0, "no partitions: want one or more, or no such option")
	for _, p := range o.partitions {
		refuse(p < 0 || p >= api.MaxPartitions, "partition %d: want 0 to %d", p, api.MaxPartitions-1)
	}
	refuse(o.offset < Earliest, "start %d: want an offset, Earliest or Latest", o.offset)
	for p, at := range o.positions {
		refuse(p < 0 || at < 0, "position %d of partition %d: want 0 or more", at, p)
	}
	refuse(o.until < -1, "until %d: want 0 or more", o.until)
	refuse(o.pages < 1 || o.pages > 1000, "%d pages ahead: want 1 to 1,000", o.pages)
	refuse(o.records < 1 || o.records > api.MaxReadRecords, "pages of %d records: want 1 to %d", o.records, api.MaxReadRecords)
	refuse(o.bytes < 1 || o.bytes > api.MaxReadBytes, "pages of %d bytes: want 1 to %d", o.bytes, api.MaxReadBytes)
	refuse(o.onGap == nil || o.notify == nil, "a function is missing")
	if len(faults) > 0 {
		return nil, fmt.Errorf("reader: %w", errors.Join(faults...))
	}
	if o.outage == nil {
		limit := time.Duration(0)
		if o.follow {
			limit = forever
		}
		o.outage = &limit
	}
	slices.Sort(o.partitions)
	o.partitions = slices.Compact(o.partitions)
	r := &Reader{c: c.telling(o.notify), topic: topic, o: o}
	r.mu.next = map[int32]int64{}
	for p, at := range o.positions {
		r.mu.next[p] = at
	}
	return r, nil
}

// Positions gives, by partition, the offset behind the last record that a loop was given: what to pass to WithReaderPositions to go on from there. Save it
// when that record has been dealt with. Partitions of which nothing is known yet are left out.
func (r *Reader) Positions() []Position {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]Position, 0, len(r.mu.next))
	for p, at := range r.mu.next {
		out = append(out, Position{Partition: p, Offset: at})
	}
	slices.SortFunc(out, func(a, b Position) int { return int(a.Partition) - int(b.Partition) })
	return out
}

// advance moves the position of a partition.
func (r *Reader) advance(partition int32, next int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.next[partition] = next
}

// Records gives the records, one after the other, until the end of what is to be read. An error is the last thing that it gives, with a nil record: the
// end of ctx is one as well, so that what broke off is not taken for complete. A record may be kept; it shares its memory with those of its page.
func (r *Reader) Records(ctx context.Context) iter.Seq2[*Record, error] {
	return func(yield func(*Record, error) bool) {
		r.mu.Lock()
		busy := r.mu.reading
		r.mu.reading = true
		r.mu.Unlock()
		if busy {
			yield(nil, errors.New("reader: it is being read by another loop"))
			return
		}
		defer func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.mu.reading = false
		}()
		s, err := r.scan(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		defer s.close()
		r.consume(ctx, s, yield)
	}
}

// consume gives out the pages of s.
func (r *Reader) consume(ctx context.Context, s *readerScan, yield func(*Record, error) bool) {
	for {
		var page readerPage
		var ok bool
		select {
		case page, ok = <-s.pages:
		case <-ctx.Done():
		}
		switch {
		case ctx.Err() != nil:
			yield(nil, fmt.Errorf("read %s: %w", r.topic, context.Cause(ctx)))
			return
		case !ok:
			return
		case page.err != nil:
			yield(nil, page.err)
			return
		}
		for i := range page.records {
			r.advance(page.partition, page.records[i].Offset+1)
			if !yield(&page.records[i], nil) {
				return
			}
			if ctx.Err() != nil {
				break
			}
		}
		if ctx.Err() == nil {
			r.advance(page.partition, page.next) // over what compaction has removed
			s.release()
		}
	}
}
