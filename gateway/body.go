package gateway

import (
	"io"
	"net/http"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/gateway/wire"
)

// unknownBody is what a body of unknown size is expected to need until it is there.
const unknownBody = 1 << 20

// pacedBody is a request body whose sender must keep up a minimum rate: at any moment it may have used the grace time and one second
// for each MinRate bytes sent so far. A sender of one byte now and then so is gone after the grace time, while one of 16 MiB over a thin
// line has the time it needs. It also counts what was sent.
//
// The deadline is the connection's (HTTP/1) or the stream's (HTTP/2) own, so no goroutine watches.
type pacedBody struct {
	rc    *http.ResponseController
	r     io.ReadCloser
	s     *Server
	start time.Time
	n     int64 // bytes so far
	moved int64 // n when the deadline was moved last
	ended bool  // all of it is there
}

// beginBody sets the deadline under which the rest of the request must arrive, whoever reads it: a handler, or net/http, which discards
// a small unread body before it answers. It must be called before an answer to any request with a body.
func (rq *request) beginBody() {
	r := rq.Request()
	if r.ContentLength == 0 || r.Body == nil || r.Body == http.NoBody {
		return
	}
	b := &pacedBody{rc: rq.rc, r: r.Body, s: rq.s, start: rq.start}
	rq.body = b
	b.move()
	if len(r.Header["Expect"]) > 0 {
		// "100 Continue" is written at the first read, and the connection may still carry the write deadline of its last answer.
		rq.extendWrite(0)
	}
}

func (b *pacedBody) move() {
	b.moved = b.n
	t := &b.s.o.Timeouts
	_ = b.rc.SetReadDeadline(b.start.Add(t.Grace + time.Duration(float64(b.n)/float64(t.MinRate)*float64(time.Second))))
}

func (b *pacedBody) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	b.n += int64(n)
	if err == nil {
		if b.n-b.moved >= b.s.o.Timeouts.MinRate { // at most once for each second granted
			b.move()
		}
		return n, nil
	}
	return n, err
}

func (b *pacedBody) Close() error { return b.r.Close() }

// end lifts the deadline once the body is there, so that what follows may wait. After a failure the deadline stays: it bounds what
// net/http does with the rest of the body.
func (b *pacedBody) end(err error) {
	b.s.m.bytesIn.Add(float64(b.n))
	if err == nil {
		b.ended = true
		_ = b.rc.SetReadDeadline(time.Time{})
	}
}

// expectedBody is what the body of a request may need in memory, judged by its head.
func expectedBody(r *http.Request, max int64) int64 {
	n := r.ContentLength
	switch {
	case n < 0:
		return min(unknownBody, max)
	case r.Header.Get("Content-Encoding") != "":
		return min(8*n+4096, max) // text compresses about so much; corrected when it is known
	}
	return min(n, max)
}

// readBody reads and decodes the body of a request into pooled memory, within the budget of the node. release gives both back.
func (rq *request) readBody() (body []byte, release func(), err error) {
	r, s := rq.Request(), rq.s
	if rq.body == nil {
		return nil, func() {}, nil
	}
	if max := s.o.Limits.MaxRequestBytes; r.ContentLength > max {
		// Said before the budget is asked: this request will never fit.
		return nil, func() {}, api.Errorf(api.CodeTooLarge, "the body has %d bytes and may have %d", r.ContentLength, max)
	}
	held := expectedBody(r, s.o.Limits.MaxRequestBytes)
	if !s.bodies.take(held) {
		e := api.Errorf(api.CodeOverloaded, "the node holds as many request bodies as it may; try again")
		e.RetryAfter = time.Second
		return nil, func() {}, e
	}
	plain := r.Body
	// net/http looks at the type of Body when it answers, so the wrapper is there for the reading only.
	r.Body = rq.body
	body, done, err := s.reader.Read(r, s.o.Limits.MaxRequestBytes)
	r.Body = plain
	rq.body.end(err)
	if err != nil {
		s.bodies.force(-held)
		return nil, func() {}, err
	}
	s.bodies.force(int64(len(body)) - held)
	held = int64(len(body))
	return body, func() { done(); s.bodies.force(-held) }, nil
}

// readJSON is readBody for routes that take JSON alone.
func (rq *request) readJSON() (body []byte, release func(), err error) {
	ct, err := wire.ParseContentType(rq.Request().Header)
	if err == nil && ct != wire.JSON {
		err = api.Errorf(api.CodeUnsupportedMediaType, "this path takes application/json")
	}
	if err != nil {
		return nil, func() {}, err
	}
	return rq.readBody()
}
