package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/forebaymq/forebay/api"
)

// Error is every failure of this package: an answer of the server that is not a success, or no answer at all.
type Error struct {
	Op         string // "publish to orders"
	Status     int    // HTTP status; 0 = there was no answer
	Code       api.Code
	Title      string
	Detail     string
	RequestID  string // of the server; quote it when asking the operator
	Fields     []api.FieldError
	LogStart   int64         // with OFFSET_OUT_OF_RANGE
	Head       int64         // with OFFSET_OUT_OF_RANGE
	Gaps       []Gap         // with RETENTION_GAP
	RetryAfter time.Duration // what the server asked for, unbounded; 0 = nothing usable
	Attempts   int           // how often the request was sent
	Unsure     bool          // of a publish: an earlier attempt may have been stored, so that this refusal says nothing of the whole
	Cause      error         // transport or decoding failure, or nil
}

// Sentinels for errors.Is. Any *Error with the same Code matches.
var (
	ErrLeaseLost           = &Error{Code: "LEASE_LOST"}           // the lease has lapsed or was superseded; nothing changed
	ErrRetentionGap        = &Error{Code: "RETENTION_GAP"}        // retention deleted what was not settled, or not read by a group; Gaps says what, a seek decides
	ErrUnknownTopic        = &Error{Code: "UNKNOWN_TOPIC"}        // nothing of this name, or not any more
	ErrUnknownSubscription = &Error{Code: "UNKNOWN_SUBSCRIPTION"} // nor of this one
	ErrUnknownGroup        = &Error{Code: "UNKNOWN_GROUP"}        // nor of this one
	ErrStaleGeneration     = &Error{Code: "STALE_GENERATION"}     // the group has a newer generation, or the membership has ended; nothing changed
	ErrNotOwner            = &Error{Code: "NOT_OWNER"}            // the partition is not the member's; nothing changed
	ErrLeasesUnavailable   = &Error{Code: "LEASES_UNAVAILABLE"}   // the lease store is away; publish and replay go on
	ErrOffsetOutOfRange    = &Error{Code: "OFFSET_OUT_OF_RANGE"}  // of a read: LogStart and Head say what there is
)

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	b.WriteString(": ")
	switch {
	case e.Code != "":
		b.WriteString(string(e.Code))
	case e.Status != 0:
		fmt.Fprintf(&b, "HTTP %d", e.Status)
	default:
		b.WriteString("no answer")
	}
	text := e.text()
	if text != "" {
		b.WriteString(": ")
		b.WriteString(text)
	}
	for _, f := range e.Fields {
		if f.Detail == text { // of a single fault the server makes the detail of the whole
			fmt.Fprintf(&b, " (%s)", f.Pointer)
			continue
		}
		fmt.Fprintf(&b, "; %s: %s", f.Pointer, f.Detail)
	}
	if e.Cause != nil {
		fmt.Fprintf(&b, ": %v", e.Cause)
	}
	if e.Unsure {
		b.WriteString("; an earlier attempt may have been stored")
	}
	if e.Attempts > 1 {
		fmt.Fprintf(&b, " (after %d attempts)", e.Attempts)
	}
	if e.RequestID != "" {
		fmt.Fprintf(&b, " [request %s]", e.RequestID)
	}
	return b.String()
}

func (e *Error) text() string {
	if e.Detail != "" {
		return e.Detail
	}
	return e.Title
}

// Unwrap gives the transport or decoding failure.
func (e *Error) Unwrap() error { return e.Cause }

// Is makes errors.Is(err, &Error{Code: c}) true for every error of code c.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code != "" && e.Code == t.Code
}

// Retriable says whether the same request is known to have had no effect and may succeed later.
func (e *Error) Retriable() bool {
	outcome, _ := Classify(e)
	return outcome == Retriable
}

// codeOf gives the code of err, or "".
func codeOf(err error) api.Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// problem is the problem document of the contract, as far as the client reads it.
type problem struct {
	Title     string           `json:"title"`
	Code      api.Code         `json:"code"`
	Detail    string           `json:"detail"`
	RequestID string           `json:"requestId"`
	Errors    []api.FieldError `json:"errors"`
	LogStart  int64            `json:"logStart"`
	Head      int64            `json:"head"`
	Gaps      []Gap            `json:"gaps"`
}

// responseError reads an answer that is not a success. body may be anything: a proxy in between answers in its own words.
func responseError(op string, resp *http.Response, body []byte, now time.Time) *Error {
	e := &Error{Op: op, Status: resp.StatusCode, Title: http.StatusText(resp.StatusCode)}
	e.RequestID = resp.Header.Get("X-Request-Id")
	e.RetryAfter = parseRetryAfter(resp.Header.Get("Retry-After"), now)
	var p problem
	if strings.Contains(resp.Header.Get("Content-Type"), "json") && json.Unmarshal(body, &p) == nil && p.Code != "" {
		e.Code, e.Detail, e.Fields, e.LogStart, e.Head, e.Gaps = p.Code, p.Detail, p.Errors, p.LogStart, p.Head, p.Gaps
		if p.Title != "" {
			e.Title = p.Title
		}
		if p.RequestID != "" {
			e.RequestID = p.RequestID
		}
	}
	return e
}

// parseRetryAfter reads delay seconds or an HTTP date. What is negative, past or unreadable is 0; what is huge stays huge here and is
// bounded where it is used.
func parseRetryAfter(s string, now time.Time) time.Duration {
	s = strings.TrimSpace(s)
	if s == "" {
		return 0
	}
	if seconds, err := strconv.ParseInt(s, 10, 64); err == nil {
		switch {
		case seconds <= 0:
			return 0
		case seconds > int64(maxDuration/time.Second):
			return maxDuration
		}
		return time.Duration(seconds) * time.Second
	}
	if digitsOnly(s) { // more than int64 holds
		return maxDuration
	}
	if t, err := http.ParseTime(s); err == nil {
		return max(0, t.Sub(now))
	}
	return 0
}

const maxDuration = time.Duration(1<<63 - 1)

func digitsOnly(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
