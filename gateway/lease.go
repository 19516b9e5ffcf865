package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/forebaymq/forebay/gateway/auth"
	"github.com/forebaymq/forebay/gateway/wire"
	"github.com/forebaymq/forebay/leases"
	"github.com/forebaymq/forebay/metadata"
)

// headerClamped tells what was clamped also where the answer has no body.
const headerClamped = "Forebay-Clamped"

// undoTime bounds how long the giving back of leases may take, for which nobody waits.
const undoTime = 5 * time.Second

// lease serves POST /v1/topics/{topic}/subscriptions/{subscription}/lease: 200 with messages, or 204 when there was none within the wait.
func (s *Server) lease(rq *request) error {
	if _, err := rq.parseQuery(); err != nil {
		return err
	}
	ct, answer, err := rq.encodings()
	if err != nil {
		return err
	}
	n, err := rq.subscription(auth.Consume)
	if err != nil {
		return err
	}
	body, release, err := rq.readBody()
	if err != nil {
		return err
	}
	l, err := wire.DecodeLease(ct, body)
	release()
	if err != nil {
		return err
	}
	l.Name = n
	return s.leaseTo(rq, l, answer)
}

// consume serves GET /v1/topics/{topic}/subscriptions/{subscription}/consume: a lease in one line, of one message unless told otherwise.
func (s *Server) consume(rq *request) error {
	q, err := rq.parseQuery("wait", "max", "visibility", "requestId", "maxBytes")
	if err != nil {
		return err
	}
	answer, err := wire.NegotiateAccept(rq.Request().Header)
	if err != nil {
		return err
	}
	n, err := rq.subscription(auth.Consume)
	if err != nil {
		return err
	}
	l := wire.NewLease(1)
	l.Name = n
	if err := leaseParams(q, l); err != nil {
		return err
	}
	// A GET that takes something: nothing between here and the client may answer it again.
	rq.Response().Header()["Cache-Control"] = []string{"no-store"}
	return s.leaseTo(rq, l, answer)
}

// leaseParams reads a lease from the query of a consume.
func leaseParams(q query, l *wire.Lease) error {
	for _, p := range [...]struct {
		name string
		set  func(string, int64) error
	}{{"max", l.SetMax}, {"maxBytes", l.SetMaxBytes}} {
		if !q.has(p.name) {
			continue
		}
		v, err := wire.ParseInt(p.name, q.get(p.name))
		if err == nil {
			err = p.set(p.name, v)
		}
		if err != nil {
			return err
		}
	}
	for _, p := range [...]struct {
		name string
		set  func(time.Duration)
	}{{"wait", l.SetWait}, {"visibility", l.SetVisibility}} {
		d, err := q.duration(p.name)
		if err != nil {
			return err
		}
		if q.has(p.name) {
			p.set(d)
		}
	}
	if q.has("requestId") {
		return l.SetRequestID("requestId", q.get("requestId"))
	}
	return nil
}

// encodings gives the encoding of a request's body and that of its answer: the same, unless the client says what it accepts.
func (rq *request) encodings() (body, answer wire.ContentType, err error) {
	h := rq.Request().Header
	if body, err = wire.ParseContentType(h); err != nil {
		return 0, 0, err
	}
	answer = body
	if len(h["Accept"]) > 0 {
		answer, err = wire.NegotiateAccept(h)
	}
	return body, answer, err
}

// leaseTo leases and hands over.
func (s *Server) leaseTo(rq *request, l *wire.Lease, answer wire.ContentType) error {
	// The wait is the client's; what comes after it (a call of the lease store, a GET) has the time of any request.
	ctx, cancel := s.within(rq.ctx, l.Wait+s.o.Timeouts.Request)
	defer cancel()
	if l.Wait > 0 {
		// A node that stops holds nobody up: whoever waits gets the answer that there is nothing.
		if s.drain.Err() != nil {
			l.Wait = 0
		} else {
			defer context.AfterFunc(s.drain, cancel)()
		}
	}
	if _, err := s.queueTopic(ctx, l.Name); err != nil {
		return err
	}
	messages, err := s.o.Queues.Lease(ctx, l.LeaseRequest)
	if err != nil && (l.Wait == 0 || s.drain.Err() == nil || ctx.Err() == nil || rq.ctx.Err() != nil) {
		return queueError(rq, err)
	}
	if l.Clamped.Any() {
		rq.Response().Header()[headerClamped] = []string{l.Clamped.String()}
	}
	if len(messages) == 0 {
		return rq.noContent()
	}
	return rq.handOver(l, messages, answer)
}

// handOver writes leases to the client. What does not reach it is given back: a record must not wait for the end of a lease that nobody
// holds. A request with an ID is the exception, where the answer may be lost: its repeat, perhaps under way to another node by now,
// gets the same leases.
func (rq *request) handOver(l *wire.Lease, messages []leases.Message, answer wire.ContentType) error {
	if err := rq.ctx.Err(); err != nil {
		if l.RequestID == "" {
			rq.undo(l.Name, messages)
		}
		return err
	}
	b := rq.s.buffers.get()
	*b = wire.AppendLease(*b, answer, messages, &l.Clamped)
	err := rq.respond(http.StatusOK, answer.String(), *b)
	rq.s.buffers.put(b)
	if err != nil { // refused before the first byte
		rq.undo(l.Name, messages)
		return err
	}
	if rq.Request().ProtoMajor > 1 {
		// A write over HTTP/2 also fails for a client that has read the whole answer and reset the stream, which says nothing about delivery.
		// A client that left before was noticed by the context above; what is lost after that lapses.
		return nil
	}
	if rq.writeErr == nil {
		// A small answer is still in a buffer. Its way to the socket is the last moment at which a client that left can be noticed. (That
		// the request's context ends after this means nothing: the client may have got all of it and closed.)
		rq.writeErr = rq.rc.Flush()
	}
	if rq.writeErr != nil && l.RequestID == "" {
		rq.undo(l.Name, messages)
	}
	return nil
}

// undo gives leases back, although the request is over.
func (rq *request) undo(n leases.Name, messages []leases.Message) {
	receipts := make([]string, len(messages))
	for i := range messages {
		receipts[i] = messages[i].Receipt
	}
	rq.s.m.undone.Add(float64(len(receipts)))
	ctx, cancel := rq.s.within(context.WithoutCancel(rq.ctx), undoTime)
	defer cancel()
	rq.s.o.Queues.Undo(ctx, n, receipts)
}

// peekLimit bounds a peek: it reads every record that it shows.
const (
	peekDefault = 10
	peekLimit   = 100
)

// peek serves GET /v1/topics/{topic}/subscriptions/{subscription}/peek.
func (s *Server) peek(rq *request) error {
	q, err := rq.parseQuery("max")
	if err != nil {
		return err
	}
	most, err := q.intIn("max", 1, peekLimit, peekDefault)
	if err != nil {
		return err
	}
	n, err := rq.subscription(auth.Consume)
	if err != nil {
		return err
	}
	ctx, cancel := s.within(rq.ctx, s.o.Timeouts.Request)
	defer cancel()
	if _, err := s.queueTopic(ctx, n); err != nil {
		return err
	}
	records, err := s.o.Queues.Peek(ctx, n, int(most))
	if err != nil {
		return queueError(rq, err)
	}
	return rq.respondJSON(http.StatusOK, func(b []byte) []byte { return wire.AppendPeek(b, records) })
}

// seek serves POST /v1/topics/{topic}/subscriptions/{subscription}/seek, and answers where the subscription stands now.
func (s *Server) seek(rq *request) error {
	if _, err := rq.parseQuery(); err != nil {
		return err
	}
	n, err := rq.subscription(auth.Consume)
	if err != nil {
		return err
	}
	body, release, err := rq.readJSON()
	if err != nil {
		return err
	}
	to, err := wire.DecodeSeek(body)
	release()
	if err != nil {
		return err
	}
	ctx, cancel := s.within(rq.ctx, s.o.Timeouts.Request)
	defer cancel()
	topic, err := s.queueTopic(ctx, n)
	if err != nil {
		return err
	}
	if err := s.partitionsThere(ctx, topic, to.Offsets); err != nil {
		return err
	}
	stats, err := s.o.Queues.Seek(ctx, n, to)
	if err != nil {
		return queueError(rq, err)
	}
	return rq.respondStats(stats)
}

// partitionsThere refuses partitions that a topic does not have.
func (s *Server) partitionsThere(ctx context.Context, t *metadata.Topic, offsets map[int32]int64) error {
	highest := int32(-1)
	for p := range offsets {
		highest = max(highest, p)
	}
	_, err := s.topicWith(ctx, t.Tenant, t.Name, highest)
	return err
}
