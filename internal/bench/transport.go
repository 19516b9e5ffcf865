package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"sync"
	"time"
)

// Transport is an http.RoundTripper for plain HTTP/1.1 that costs a measurement little of the machine which it shares with the server: one
// write and one read a request, in the caller's goroutine, where net/http's own hands each request to two others. It takes what Forebay
// answers: one response a request, of known length or chunked. It does not retry: a request on a connection that the server has closed fails.
type Transport struct {
	Dial    func(ctx context.Context, network, address string) (net.Conn, error) // default: net.Dialer
	MaxIdle int                                                                  // connections that are kept while nobody needs them; 0 = all

	mu struct {
		sync.Mutex
		idle   []*wire // most recently used last
		closed bool
	}
}

var _ http.RoundTripper = (*Transport)(nil)

// maxHead bounds the head of an answer, and wireBuffer what is read at once.
const (
	maxHead    = 64 << 10
	wireBuffer = 64 << 10
)

// wire is one connection.
type wire struct {
	address string
	conn    net.Conn
	in      *bufio.Reader
	out     []byte
	t       *Transport
	used    time.Time
}

// staleAfter is when a connection is not trusted any more: servers close what is idle.
const staleAfter = 30 * time.Second

// RoundTrip sends a request and reads the head of the answer.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "http" {
		return nil, fmt.Errorf("scheme %q: this transport speaks plain HTTP/1.1 only", req.URL.Scheme)
	}
	if req.Body != nil {
		defer req.Body.Close()
		if req.ContentLength < 0 {
			return nil, errors.New("a request needs a body of known length")
		}
	}
	ctx := req.Context()
	w, err := t.connection(ctx, req.URL.Host)
	if err != nil {
		return nil, err
	}
	// A deadline in the past wakes whoever reads or writes.
	stop := context.AfterFunc(ctx, func() { _ = w.conn.SetDeadline(time.Unix(1, 0)) })
	resp, err := w.exchange(req, stop)
	if err != nil {
		stop()
		_ = w.conn.Close()
		if cause := ctx.Err(); cause != nil {
			return nil, cause
		}
		return nil, err
	}
	return resp, nil
}

// connection gives an idle connection, or a new one.
func (t *Transport) connection(ctx context.Context, address string) (*wire, error) {
	now := time.Now()
	t.mu.Lock()
	for i := len(t.mu.idle) - 1; i >= 0; i-- {
		w := t.mu.idle[i]
		if w.address != address {
			continue
		}
		t.mu.idle = append(t.mu.idle[:i], t.mu.idle[i+1:]...)
		if now.Sub(w.used) < staleAfter {
			t.mu.Unlock()
			return w, nil
		}
		_ = w.conn.Close()
	}
	t.mu.Unlock()
	dial := t.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: 10 * time.Second}).DialContext
	}
	conn, err := dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &wire{address: address, conn: conn, in: bufio.NewReaderSize(conn, wireBuffer), t: t}, nil
}

// exchange writes the request and reads the head of its answer. stop takes back the watch over the request's context.
func (w *wire) exchange(req *http.Request, stop func() bool) (*http.Response, error) {
	b := w.out[:0]
	b = append(append(b, req.Method...), ' ')
	b = append(append(b, req.URL.RequestURI()...), " HTTP/1.1\r\nHost: "...)
	b = append(append(b, req.URL.Host...), '\r', '\n')
	for name, values := range req.Header {
		for _, v := range values {
			b = append(append(b, name...), ": "...)
			b = append(append(b, v...), '\r', '\n')
		}
	}
	if req.ContentLength > 0 || req.Method == http.MethodPost || req.Method == http.MethodPut {
		b = append(b, "Content-Length: "...)
		b = append(strconv.AppendInt(b, req.ContentLength, 10), '\r', '\n')
	}
	b = append(b, '\r', '\n')
	if req.Body != nil && req.ContentLength > 0 {
		at := len(b)
		b = append(b, make([]byte, req.ContentLength)...)
		if _, err := io.ReadFull(req.Body, b[at:]); err != nil {
			return nil, fmt.Errorf("read request body: %w", err)
		}
	}
	w.out = b
	if _, err := w.conn.Write(b); err != nil {
		return nil, err
	}
	return w.answer(req, stop)
}

// answer reads the head of an answer.
func (w *wire) answer(req *http.Request, stop func() bool) (*http.Response, error) {
	status := 0
	for status < 200 { // the provisional ones are passed over
		line, err := w.line()
		if err != nil {
			return nil, err
		}
		if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.")) {
			return nil, fmt.Errorf("status line %q", line)
		}
		if status, err = strconv.Atoi(string(line[9:12])); err != nil || status < 100 {
			return nil, fmt.Errorf("status line %q", line)
		}
		resp := &http.Response{StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: make(http.Header, 4), ContentLength: -1, Request: req}
		body, err := w.head(resp)
		if err != nil {
			return nil, err
		}
		if status >= 200 {
			body.stop = stop
			resp.Body = body
			if body.left == 0 && body.chunks == nil {
				body.release()
				resp.Body = http.NoBody
			}
			return resp, nil
		}
	}
	return nil, errors.New("no answer")
}

func (w *wire) line() ([]byte, error) {
	line, err := w.in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return nil, fmt.Errorf("a line of the answer's head is longer than %d bytes", wireBuffer)
	}
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return bytes.TrimRight(line, "\r\n"), nil
}

// head reads the fields of a head, and says how the body comes.
func (w *wire) head(resp *http.Response) (*wireBody, error) {
	body := &wireBody{w: w, keep: true, left: -1}
	for size := 0; size < maxHead; {
		line, err := w.line()
		if err != nil {
			return nil, err
		}
		size += len(line)
		if len(line) == 0 {
			if resp.StatusCode < 200 || resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified || resp.Request.Method == http.MethodHead {
				body.left, body.chunks = 0, nil
			}
			if body.left < 0 && body.chunks == nil {
				return nil, errors.New("the answer does not say how long it is")
			}
			resp.ContentLength = body.left
			return body, nil
		}
		name, value, ok := bytes.Cut(line, []byte{':'})
		if !ok {
			return nil, fmt.Errorf("line %q of the answer's head", line)
		}
		key, text := fieldName(name), string(bytes.TrimSpace(value))
		resp.Header[key] = append(resp.Header[key], text)
		switch {
		case key == "Content-Length":
			if body.left, err = strconv.ParseInt(text, 10, 64); err != nil || body.left < 0 {
				return nil, fmt.Errorf("Content-Length: %q", text)
			}
		case key == "Transfer-Encoding" && text == "chunked":
			body.chunks = httputil.NewChunkedReader(w.in)
		case key == "Connection" && text == "close":
			body.keep = false
		}
	}
	return nil, fmt.Errorf("the head of the answer is longer than %d bytes", maxHead)
}

// fieldName gives the canonical name, without an allocation for those that every answer has.
func fieldName(name []byte) string {
	switch string(name) {
	case "Content-Length":
		return "Content-Length"
	case "Content-Type":
		return "Content-Type"
	case "Date":
		return "Date"
	case "X-Request-Id":
		return "X-Request-Id"
	}
	return http.CanonicalHeaderKey(string(name))
}

// wireBody is the body of an answer. At its end the connection is idle again.
type wireBody struct {
	w      *wire
	left   int64 // -1: chunked
	chunks io.Reader
	keep   bool
	done   bool
	stop   func() bool
}

func (b *wireBody) Read(p []byte) (n int, err error) {
	switch {
	case b.done:
		return 0, io.EOF
	case b.chunks != nil:
		n, err = b.chunks.Read(p)
		if errors.Is(err, io.EOF) {
			// What follows the last chunk: trailers, of which there are none, and an empty line.
			var line []byte
			var failed error
			if line, failed = b.w.line(); failed == nil && len(line) > 0 {
				failed = errors.New("trailers are not supported")
			}
			if failed != nil {
				return n, failed
			}
			b.release()
		}
		return n, err
	}
	n, err = b.w.in.Read(p[:min(int64(len(p)), b.left)])
	if b.left -= int64(n); b.left == 0 {
		b.release()
		return n, nil
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// release gives the connection back once the answer has been read whole.
func (b *wireBody) release() {
	b.done = true
	w := b.w
	if !b.stop() || !b.keep || w.in.Buffered() > 0 {
		_ = w.conn.Close() // its deadline may be set at any moment, or the server closes it, or nobody knows what else it said
		return
	}
	w.used = time.Now()
	w.t.mu.Lock()
	defer w.t.mu.Unlock()
	if w.t.mu.closed || w.t.MaxIdle > 0 && len(w.t.mu.idle) >= w.t.MaxIdle {
		_ = w.conn.Close()
		return
	}
	w.t.mu.idle = append(w.t.mu.idle, w)
}

// Close ends the body. What has not been read is not worth reading: the connection goes with it.
func (b *wireBody) Close() error {
	if b.done {
		return nil
	}
	b.done = true
	b.stop()
	return b.w.conn.Close()
}

// CloseIdleConnections is called by http.Client's method of that name. No connection is kept after it.
func (t *Transport) CloseIdleConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.closed = true
	for _, w := range t.mu.idle {
		_ = w.conn.Close()
	}
	t.mu.idle = nil
}
