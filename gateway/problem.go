package gateway

import (
	"context"
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/gateway/auth"
	"github.com/forebaymq/forebay/gateway/wire"
)

// clientGone is the status in logs and metrics of a request whose client left before the answer. Nobody sees it on the wire.
const clientGone = 499

// codeOf is the code under which an error is shown.
func codeOf(err error) api.Code {
	if _, known := api.Codes[api.CodeOf(err)]; known {
		return api.CodeOf(err)
	}
	return api.CodeInternal
}

// causeOf is the text of an error for the log, with the cause that clients do not see.
func causeOf(err error) string {
	var e *api.Error
	if errors.As(err, &e) && e.Cause != nil {
		return err.Error() + ": " + e.Cause.Error()
	}
	return err.Error()
}

// fail answers with the problem document of err. Where the answer has begun already, it can only be broken off.
func (rq *request) fail(err error) {
	err = rq.contractError(err)
	rq.err = err
	if rq.Response().Committed {
		panic(http.ErrAbortHandler)
	}
	if rq.Request().Context().Err() != nil && !errors.As(err, new(*panicError)) && codeOf(err) != api.CodeRequestTimeout {
		// The client went away (or Stop ran out of time): what its own context did to the work is no fault of the node's.
		rq.Response().Status = clientGone
		panic(http.ErrAbortHandler)
	}
	p := rq.s.buffers.get()
	status, doc := wire.AppendProblem(*p, err, rq.id)
	*p = doc
	h := rq.Response().Header()
	if after := wire.RetryAfter(err); after != "" {
		h.Set("Retry-After", after)
	}
	switch status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", auth.Challenge)
	case http.StatusRequestTimeout:
		if rq.Request().ProtoMajor == 1 {
			h.Set("Connection", "close") // the rest of the body may still come; it must not be taken for a request
		}
	}
	_ = rq.respond(status, wire.ProblemType, *p)
	rq.s.buffers.put(p)
}

// contractError turns the errors of the router and of contexts into errors of the contract.
func (rq *request) contractError(err error) error {
	var he *echo.HTTPError
	switch {
	case errors.As(err, &he):
		switch he.Code {
		case http.StatusNotFound:
			return api.Errorf(api.CodeNotFound, "there is no such path; /openapi.json lists them")
		case http.StatusMethodNotAllowed:
			return api.Errorf(api.CodeMethodNotAllowed, "the path does not take %s; the Allow header lists what it takes", boundedMethod(rq.Request().Method))
		}
	case api.CodeOf(err) != "":
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled) && rq.ctx.Err() == nil:
		// The time of the request is over (see within) and the client still waits.
		return &api.Error{Code: api.CodeMetadataUnavailable, Detail: "the answer was not there in time; try again", Cause: err}
	}
	return err
}
