package gateway

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/gateway/wire"
)

// connKey finds the connection of a request in its context.
type connKey struct{}

// connContext makes the connection known to the requests on it.
func connContext(ctx context.Context, c net.Conn) context.Context {
	if lc, ok := c.(*limitConn); ok {
		return context.WithValue(ctx, connKey{}, lc)
	}
	return ctx
}

// handles notes that a handler answers now, so that nothing of its answer is taken for net/http's own words, whatever a record may hold.
func handles(r *http.Request) {
	if c, ok := r.Context().Value(connKey{}).(*limitConn); ok {
		c.handled.Store(true)
	}
}

// connState notes that the answer of a handler has been sent.
func connState(c net.Conn, state http.ConnState) {
	if lc, ok := c.(*limitConn); ok && state == http.StateIdle {
		lc.handled.Store(false)
	}
}

// plainHead is how net/http goes on after the status line where it refuses a request without calling a handler: a head that is too long, a
// path that cannot be unescaped, a missing Host.
var plainHead = []byte("\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n")

// refusal turns such a refusal into a problem document with the same status, or gives nil for everything else.
func (s *Server) refusal(plain []byte) []byte {
	const version = "HTTP/1.1 "
	if len(plain) > 1024 || !bytes.HasPrefix(plain, []byte(version)) {
		return nil
	}
	line, _, ok := bytes.Cut(plain, plainHead)
	if !ok || bytes.IndexByte(line, '\n') >= 0 || len(line) < len(version)+3 {
		return nil
	}
	status, err := strconv.Atoi(string(line[len(version) : len(version)+3]))
	if err != nil || status < 400 {
		return nil
	}
	e := &api.Error{Code: api.CodeInvalidRequest, Detail: "the request is not valid HTTP, or its path is not validly percent-encoded"}
	if status == http.StatusRequestHeaderFieldsTooLarge {
		e = &api.Error{Code: api.CodeTooLarge, Detail: "the request's head is larger than " + strconv.Itoa(s.o.Limits.MaxHeaderBytes) + " bytes"}
	} else if _, why, ok := strings.Cut(string(line), ": "); ok {
		e.Detail = why
	}
	id := s.ids.next()
	_, doc := wire.AppendProblemWithStatus(nil, e, id, status)
	s.m.observe(unmatchedRoute, "other", status, string(e.Code), 0)

	b := append([]byte(version), strconv.Itoa(status)...)
	b = append(append(b, ' '), http.StatusText(status)...)
	b = append(append(b, "\r\nContent-Type: "+wire.ProblemType+"\r\nConnection: close\r\nX-Request-Id: "+id+"\r\nContent-Length: "...), strconv.Itoa(len(doc))...)
	return append(append(b, "\r\n\r\n"...), doc...)
}
