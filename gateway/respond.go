package gateway

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/forebaymq/forebay/api"
)

// Content types of answers.
const (
	typeJSON   = "application/json"
	typeEvents = "text/event-stream"
)

// smallAnswer is the largest answer that is not counted: connections are bounded, and refusals must always find room.
const smallAnswer = 64 << 10

// maxPooledBuffer is the largest buffer that is kept for reuse: a full page of records fits, a rare giant is left to the collector.
const maxPooledBuffer = 6 << 20

// buffers holds answers while they are built.
type buffers struct{ pool sync.Pool }

func (b *buffers) get() *[]byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		*p = (*p)[:0]
		return p
	}
	p := make([]byte, 0, 4096)
	return &p
}

func (b *buffers) put(p *[]byte) {
	if cap(*p) <= maxPooledBuffer {
		b.pool.Put(p)
	}
}

// respond writes the whole answer with one Write. body may be nil (204).
func (rq *request) respond(status int, contentType string, body []byte) error {
	// A client that does not read holds its answer in memory until the write deadline.
	if held := int64(len(body)); held > smallAnswer {
		if !rq.s.answers.take(held) {
			e := api.Errorf(api.CodeOverloaded, "the node is sending as many answers as it may hold; try again, or with a smaller maxBytes")
			e.RetryAfter = time.Second
			return e
		}
		defer rq.s.answers.force(-held)
	}
	h := rq.Response().Header()
	if body != nil {
		h["Content-Type"] = []string{contentType}
		h["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	rq.extendWrite(len(body))
	rq.Response().WriteHeader(status)
	if body == nil {
		return nil
	}
	n, err := rq.Response().Write(body)
	rq.s.m.bytesOut.Add(float64(n))
	if err != nil {
		rq.writeErr = err // the client is gone or too slow: there is nobody to tell
	}
	return nil
}

// extendWrite gives a reader of n bytes the grace time and what the minimum rate allows for them.
func (rq *request) extendWrite(n int) {
	t := &rq.s.o.Timeouts
	grace := t.Grace
	if rq.body != nil && !rq.body.ended {
		grace += t.Grace // net/http reads some of what is left of the body before it writes, under the deadline of the body
	}
	_ = rq.rc.SetWriteDeadline(rq.s.o.Clock.Now().Add(grace + time.Duration(float64(n)/float64(t.MinRate)*float64(time.Second))))
}

// respondJSON builds an answer in a pooled buffer with fill and writes it.
func (rq *request) respondJSON(status int, fill func(dst []byte) []byte) error {
	p := rq.s.buffers.get()
	*p = fill(*p)
	err := rq.respond(status, typeJSON, *p)
	rq.s.buffers.put(p)
	return err
}

func (rq *request) noContent() error { return rq.respond(http.StatusNoContent, "", nil) }

// appendQuoted appends a JSON string. s must be valid UTF-8.
func appendQuoted(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s)
	return b
}
