package gateway

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/fetch"
	"github.com/forebaymq/forebay/gateway/auth"
	"github.com/forebaymq/forebay/gateway/wire"
	"github.com/forebaymq/forebay/metadata"
)

const (
	// streamPageBytes is what the followers of one stream may hold together, roughly: each reads ahead one page.
	streamPageBytes = 4 << 20
	// denseIDs is the number of partitions up to which every event carries the whole vector. Beyond it only the last event of a page does,
	// so that a small record does not cost kilobytes; a client that breaks off within a page then sees the page's beginning again.
	denseIDs = 64
	// growthCheck is how often a stream looks whether its topic has got more partitions: one look-up in the node's own view.
	growthCheck = time.Second
)

// eventStream is one GET /v1/topics/{topic}/stream: one goroutine a partition follows it by long polls and hands pages to the handler,
// which writes them as server-sent events.
type eventStream struct {
	s      *Server
	rq     *request
	topic  *metadata.Topic
	all    bool // all partitions, those of the future included
	cursor cursor
	pages  chan page
	wg     sync.WaitGroup
	held   int64 // of the budget of followed partitions
}

// page is what a follower read, or why it ended.
type page struct {
	index int // into cursor.offsets
	res   *fetch.ReadResult
	err   error
}

// stream serves GET /v1/topics/{topic}/stream.
func (s *Server) stream(rq *request) error {
	name, err := rq.topicParam()
	if err != nil {
		return err
	}
	q, err := rq.parseQuery("partition", "offset")
	if err != nil {
		return err
	}
	if err := rq.authorize(auth.Read, auth.Topic, name); err != nil {
		return err
	}
	st := &eventStream{s: s, rq: rq, all: !q.has("partition"), pages: make(chan page)}
	partition := int32(0)
	if !st.all {
		if partition, err = wire.ParsePartition(q.get("partition")); err != nil {
			return err
		}
	}
	start := fetch.Latest
	if q.has("offset") {
		if start, err = parseOffset("offset", q.get("offset")); err != nil {
			return err
		}
		if start >= 0 && st.all {
			return invalidField("offset", "a number needs a partition: offsets of different partitions have nothing in common")
		}
	}
	var resume *cursor
	if ids := rq.Request().Header.Values("Last-Event-ID"); len(ids) > 1 {
		return invalidField("Last-Event-ID", "the header may be there once")
	} else if len(ids) == 1 && ids[0] != "" {
		if resume, err = parseCursor(ids[0]); err != nil {
			return err
		}
	}
	if err := st.open(name, partition, start, resume); err != nil {
		return err
	}
	defer func() { s.followed.force(-st.held) }()
	return st.run()
}

// open decides where the stream begins, with every refusal that needs a status code: once the first byte is written there is none left.
func (st *eventStream) open(name string, partition int32, start int64, resume *cursor) error {
	ctx, cancel := st.s.within(st.rq.ctx, st.s.o.Timeouts.Request)
	defer cancel()
	topic, err := st.s.freshTopic(ctx, st.rq.principal.Tenant, name)
	if err != nil {
		return err
	}
	if err := st.s.resident(topic); err != nil {
		return err
	}
	infos, err := st.s.o.Topics.PartitionInfos(topic.ID)
	if err != nil {
		return err
	}
	st.topic = topic
	n := 1
	if st.all {
		n = len(infos)
		if max := st.s.o.Limits.MaxStreamPartition; n > max {
			return invalidField("partition", "a stream follows at most "+strconv.Itoa(max)+" partitions and the topic has "+strconv.Itoa(n)+": name one")
		}
	} else if int(partition) >= len(infos) {
		return api.Errorf(api.CodeUnknownPartition, "topic %s has partitions 0 to %d", name, len(infos)-1)
	}
	if resume != nil && (resume.first != partition || len(resume.offsets) > n) {
		return invalidField("Last-Event-ID", "is the id of an event of another stream")
	}
	st.cursor = cursor{first: partition, offsets: make([]int64, n)}
	for i := range st.cursor.offsets {
		info := infos[int(partition)+i]
		at := start
		if resume != nil {
			at = fetch.Earliest // partitions that came after the event: nothing of them was seen
			if i < len(resume.offsets) {
				at = resume.offsets[i]
			}
		}
		switch {
		case at == fetch.Earliest:
			at = info.LogStart
		case at == fetch.Latest:
			at = info.Head
		case at < info.LogStart || at > info.Head:
			return api.Errorf(api.CodeOffsetOutOfRange, "partition %d has offsets from %d to %d, not %d", int(partition)+i, info.LogStart, info.Head, at).
				With("partition", int(partition)+i).With("logStart", info.LogStart).With("head", info.Head)
		}
		st.cursor.offsets[i] = at
	}
	if !st.s.followed.take(int64(n)) {
		return api.Errorf(api.CodeOverloaded, "the node follows %d partitions for event streams already; try again or another node", st.s.o.Limits.MaxFollowed)
	}
	st.held = int64(n)
	return nil
}

// run writes events until the client leaves, the server drains, or a partition cannot be read any more.
func (st *eventStream) run() error {
	ctx, cancel := context.WithCancel(st.rq.ctx)
	defer st.wg.Wait()
	defer cancel()

	h := st.rq.Response().Header()
	h.Set("Content-Type", typeEvents)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // a proxy that collects events would defeat them
	st.rq.Response().WriteHeader(http.StatusOK)
	b := st.s.buffers.get()
	defer st.s.buffers.put(b)

	clock := st.s.o.Clock
	tick := clock.NewTicker(min(st.s.o.Timeouts.Heartbeat, growthCheck))
	defer tick.Stop()
	// The first block has no data, so it is no event; it sets the time to wait before coming back, and where to go on from.
	*b = append(*b, "retry: "...)
	*b = strconv.AppendInt(*b, st.s.o.Timeouts.Retry.Milliseconds(), 10)
	*b = append(*b, "\nid: "...)
	*b = append(st.cursor.append(*b), "\n\n"...)
	if !st.flush(*b) {
		return nil
	}
	for i := range st.cursor.offsets {
		st.follow(ctx, i)
	}
	wrote := clock.Now()
	for {
		*b = (*b)[:0]
		select {
		case <-ctx.Done():
			return nil
		case <-st.s.drain.Done():
			st.flush(append(*b, ": the server is going away\n\n"...))
			return nil
		case p := <-st.pages:
			if p.err != nil {
				st.flush(st.appendProblem(*b, p.err))
				return nil
			}
			*b = st.appendPage(*b, p)
		case now := <-tick.Chan():
			if err := st.grow(ctx); err != nil {
				st.flush(st.appendProblem(*b, err))
				return nil
			}
			if now.Sub(wrote) < st.s.o.Timeouts.Heartbeat {
				continue
			}
			*b = append(*b, ":\n\n"...)
		}
		if len(*b) == 0 {
			continue
		}
		if !st.flush(*b) {
			return nil
		}
		wrote = clock.Now()
	}
}

// follow starts the goroutine that reads one partition. It has at most one page in hand; a slow client slows it.
func (st *eventStream) follow(ctx context.Context, index int) {
	req := fetch.ReadRequest{
		Tenant: st.topic.Tenant, TopicID: st.topic.ID, Partition: st.cursor.first + int32(index), Offset: st.cursor.offsets[index],
		MaxRecords: api.DefaultReadRecords, MaxBytes: max(16<<10, streamPageBytes/int64(len(st.cursor.offsets))),
		// open has caught up with the log; from there on the view's own movement is what a follower waits for.
		Stale: true,
	}
	st.wg.Go(func() {
		for {
			res, err := st.s.o.Reader.ReadWait(ctx, req, nil)
			if ctx.Err() != nil {
				return
			}
			select {
			case st.pages <- page{index, res, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
			req.Offset = res.NextOffset
		}
	})
}

// grow follows partitions that the topic got since, from their beginning.
func (st *eventStream) grow(ctx context.Context) error {
	if !st.all {
		return nil
	}
	t, err := st.s.o.Topics.Topic(st.topic.Tenant, st.topic.Name)
	if err != nil || t.ID != st.topic.ID {
		return nil // deleted: the followers hear of it and say so
	}
	more := t.Config.Partitions - len(st.cursor.offsets)
	if more <= 0 {
		return nil
	}
	if t.Config.Partitions > st.s.o.Limits.MaxStreamPartition || !st.s.followed.take(int64(more)) {
		return api.Errorf(api.CodeOverloaded, "topic %s has %d partitions now, more than this stream may follow", t.Name, t.Config.Partitions)
	}
	st.held += int64(more)
	for range more {
		st.cursor.offsets = append(st.cursor.offsets, 0)
		st.follow(ctx, len(st.cursor.offsets)-1)
	}
	return nil
}

// appendPage writes one event a record, and moves the cursor.
func (st *eventStream) appendPage(b []byte, p page) []byte {
	partition := st.cursor.first + int32(p.index)
	line := st.s.buffers.get()
	defer st.s.buffers.put(line)
	dense := len(st.cursor.offsets) <= denseIDs
	for i := range p.res.Records {
		r := &p.res.Records[i]
		last := i == len(p.res.Records)-1
		st.cursor.offsets[p.index] = r.Offset + 1
		if last {
			st.cursor.offsets[p.index] = p.res.NextOffset
		}
		if dense || last {
			b = append(b, "id: "...)
			b = append(st.cursor.append(b), '\n')
		}
		*line = wire.AppendRecordJSON((*line)[:0], r, partition)
		b = wire.AppendEvent(b, "", "", *line)
	}
	if len(p.res.Records) == 0 { // compaction left a hole: nothing to tell, but nothing to read again either
		st.cursor.offsets[p.index] = p.res.NextOffset
	}
	return b
}

// appendProblem writes the event that says why a stream ends: a problem document, as a request that failed so would have got.
func (st *eventStream) appendProblem(b []byte, err error) []byte {
	err = st.rq.contractError(err)
	st.rq.err = err
	_, doc := wire.AppendProblem(nil, err, st.rq.id)
	return wire.AppendEvent(b, "", "problem", doc)
}

// flush sends what is written, under a deadline of its own: a client that stops reading is dropped. It answers whether the client is there.
func (st *eventStream) flush(b []byte) bool {
	st.rq.extendWrite(len(b))
	n, err := st.rq.Response().Write(b)
	st.s.m.bytesOut.Add(float64(n))
	if err == nil {
		err = st.rq.rc.Flush()
	}
	st.rq.writeErr = err
	return err == nil
}
