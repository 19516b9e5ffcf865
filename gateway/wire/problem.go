package wire

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/forebaymq/forebay/api"
)

// ProblemType is the media type of errors (RFC 9457).
const ProblemType = "application/problem+json"

// AppendProblem appends the problem document of err and gives its HTTP status. requestID "" leaves the member out.
//
// Only an *api.Error with a code of the table is shown. Everything else is INTERNAL, with nothing of its text: it may hold addresses,
// keys of objects or other tenants' names. The caller logs it beside the request ID.
func AppendProblem(dst []byte, err error, requestID string) (status int, body []byte) {
	_, info := visible(err)
	return AppendProblemWithStatus(dst, err, requestID, info.Status)
}

// AppendProblemWithStatus is AppendProblem where HTTP itself has fixed the status.
func AppendProblemWithStatus(dst []byte, err error, requestID string, fixed int) (status int, body []byte) {
	e, info := visible(err)
	dst = append(dst, `{"type":"urn:forebay:error:`...)
	dst = append(dst, info.Code...)
	dst = append(dst, `","title":`...)
	dst = appendString(dst, info.Title)
	dst = append(dst, `,"status":`...)
	dst = strconv.AppendInt(dst, int64(fixed), 10)
	dst = append(dst, `,"code":"`...)
	dst = append(dst, info.Code...)
	dst = append(dst, `","detail":`...)
	dst = appendString(dst, strings.ToValidUTF8(e.Detail, "�"))
	if requestID != "" {
		dst = append(dst, `,"requestId":`...)
		dst = appendString(dst, strings.ToValidUTF8(requestID, "�"))
	}
	if len(e.Fields) > 0 {
		dst = append(dst, `,"errors":[`...)
		for i, f := range e.Fields {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, `{"pointer":`...)
			dst = appendString(dst, strings.ToValidUTF8(f.Pointer, "�"))
			dst = append(dst, `,"detail":`...)
			dst = appendString(dst, strings.ToValidUTF8(f.Detail, "�"))
			dst = append(dst, '}')
		}
		dst = append(dst, ']')
	}
	names := make([]string, 0, len(e.Extra))
	for name := range e.Extra {
		if !slices.Contains(problemMembers[:], name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		value, err := json.Marshal(e.Extra[name], json.Deterministic(true))
		if err != nil {
			continue // a value that has no JSON form says nothing to a client either
		}
		dst = append(dst, ',')
		dst = appendString(dst, name)
		dst = append(dst, ':')
		dst = append(dst, value...)
	}
	return fixed, append(dst, '}')
}

// problemMembers are set by AppendProblem alone.
var problemMembers = [...]string{"type", "title", "status", "code", "detail", "requestId", "errors"}

// visible gives what a client may see of err.
func visible(err error) (*api.Error, api.CodeInfo) {
	var e *api.Error
	if errors.As(err, &e) {
		if info, ok := api.Codes[e.Code]; ok && e.Code != api.CodeInternal {
			return e, info
		}
	}
	hidden := &api.Error{
		Code:   api.CodeInternal,
		Detail: "The server failed to handle the request. Give its request ID to the operators.",
	}
	if e != nil && e.Code == api.CodeInternal {
		for _, name := range [...]string{"firstOffset", "nextOffset"} { // where records cannot be read, and where to go on
			if v, ok := e.Extra[name]; ok {
				hidden.With(name, v)
			}
		}
	}
	return hidden, api.Codes[api.CodeInternal]
}

// RetryAfter gives the value of the Retry-After header of err: whole seconds, at least 1; "" where the header does not belong (any status
// but 429 and 503).
func RetryAfter(err error) string {
	e, info := visible(err)
	if info.Status != 429 && info.Status != 503 {
		return ""
	}
	seconds := int64(math.Ceil(e.RetryAfter.Seconds()))
	return strconv.FormatInt(min(max(seconds, 1), int64(time.Hour/time.Second)), 10)
}
