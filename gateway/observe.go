package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"
	"unicode/utf8"

	"github.com/labstack/echo/v4"
	"go.opentelemetry.io/otel/trace"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/gateway/auth"
)

// request is the echo.Context of this package: it adds what observe knows of a request.
type request struct {
	echo.Context
	s         *Server
	rc        *http.ResponseController
	ctx       context.Context // of the request: with its span, ended with the client's connection
	id        string          // X-Request-Id
	route     string          // template
	start     time.Time
	traced    bool            // the request carried a trace context
	principal *auth.Principal // nil before authentication
	body      *pacedBody      // nil = the request has no body
	err       error           // what the answer's problem document was made of
	writeErr  error           // the answer did not reach the client
}

// observe wraps every request: it gives it an identifier, a span and its place in the metrics, turns errors and panics into problem
// documents, and writes the access line. It is the only middleware.
func (s *Server) observe(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		rq := &request{Context: c, s: s, start: s.o.Clock.Now(), route: unmatchedRoute}
		r := c.Request()
		handles(r)
		rq.rc = http.NewResponseController(c.Response().Writer)
		if p := c.Path(); p != "" {
			rq.route = p
		}
		if v := r.Header[headerRequestID]; len(v) > 0 && saneRequestID(v[0]) {
			rq.id = v[0]
		} else {
			rq.id = s.ids.next()
		}
		c.Response().Header()[headerRequestID] = []string{rq.id}
		var span trace.Span
		rq.ctx, span, rq.traced = s.startSpan(r, rq.route)

		admitted := s.inFlight.enter()
		if admitted {
			defer s.inFlight.leave()
		}
		s.m.inFlight.Inc()
		defer rq.finish(span)

		rq.beginBody()
		if !admitted {
			rq.fail(api.Errorf(api.CodeOverloaded, "the node serves %d requests already; try again", s.o.Limits.MaxRequests))
			return nil
		}
		if err := rq.run(next); err != nil {
			rq.fail(err)
		}
		return nil
	}
}

// run calls the handler and turns a panic into an error with its stack.
func (rq *request) run(next echo.HandlerFunc) (err error) {
	defer func() {
		switch p := recover(); {
		case p == nil:
		case p == http.ErrAbortHandler: //nolint:errorlint // net/http compares it in the same way
			panic(p)
		default:
			rq.s.m.panics.Inc()
			err = &panicError{value: p, stack: debug.Stack()}
		}
	}()
	if !utf8.ValidString(rq.Request().URL.Path) {
		return api.Errorf(api.CodeInvalidRequest, "the path is not valid UTF-8")
	}
	return next(rq)
}

type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// finish records the end of a request, also when the handler aborts it.
func (rq *request) finish(span trace.Span) {
	s, status, code := rq.s, rq.Response().Status, ""
	switch {
	case status == clientGone:
		code = "CLIENT_GONE"
	case rq.err != nil:
		code = string(codeOf(rq.err))
	}
	took := s.o.Clock.Since(rq.start)
	s.m.inFlight.Dec()
	s.m.observe(rq.route, rq.Request().Method, status, code, took)
	if span != nil {
		endSpan(span, status, code, rq.id)
	}
	rq.log(status, code, took)
}

// log writes one line for the request: what went well at debug level, what the client did wrong at info, what the node could not do at
// warn, bugs at error. There is never a token, a query or a payload in it.
func (rq *request) log(status int, code string, took time.Duration) {
	level := slog.LevelDebug
	switch {
	case status == http.StatusInternalServerError:
		level = slog.LevelError
	case status >= 500:
		level = slog.LevelWarn
	case status >= 400:
		level = slog.LevelInfo
	}
	log := rq.s.o.Logger
	if !log.Enabled(rq.ctx, level) {
		return
	}
	r := rq.Request()
	attrs := []slog.Attr{
		slog.String("requestId", rq.id), slog.String("method", r.Method), slog.String("route", rq.route), slog.Int("status", status),
		slog.Duration("took", took), slog.String("remote", r.RemoteAddr), slog.Int64("bytesOut", rq.Response().Size),
	}
	if rq.body != nil {
		attrs = append(attrs, slog.Int64("bytesIn", rq.body.n))
	}
	if p := rq.principal; p != nil {
		attrs = append(attrs, slog.String("tenant", p.Tenant), slog.String("subject", p.Subject))
	}
	if code != "" {
		attrs = append(attrs, slog.String("code", code))
	}
	if rq.writeErr != nil {
		attrs = append(attrs, slog.String("writeError", rq.writeErr.Error()))
	}
	if rq.err != nil && status >= 500 { // a detail of a 4xx may quote the client's own text
		attrs = append(attrs, slog.String("error", causeOf(rq.err)))
		var p *panicError
		if errors.As(rq.err, &p) {
			attrs = append(attrs, slog.String("stack", string(p.stack)))
		}
	}
	log.LogAttrs(rq.ctx, level, "request", attrs...)
}
