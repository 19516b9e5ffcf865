package s3bucket

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"

	"github.com/forebaymq/forebay/objectstore"
)

// Call is one operation as it was seen on the wire. Transport fills it.
type Call struct {
	op objectstore.Op
	mu struct {
		sync.Mutex // the transport's goroutines may still write when the caller has given up
		observed
		stop context.CancelFunc
	}
}

// observed is what Transport saw of the requests of a call that count (see counts).
type observed struct {
	sent    bool // the headers of a request were written: the store may have got it. Before that it has got no request
	status  int  // of the last answer; 0 = none
	answers int  // how many answers there were
	date    time.Time
	more    bool  // the last answer was a list that is not the last page
	fault   fault // of the last answer, if it was an error
	err     error // of the last request, if it had no answer
}

// fault is the error document of an answer.
type fault struct {
	Code, Message string
}

type callKey struct{}

// begin puts a new Call into the context.
func begin(ctx context.Context, op objectstore.Op) (context.Context, *Call) {
	c := &Call{op: op}
	return context.WithValue(ctx, callKey{}, c), c
}

func callOf(ctx context.Context) *Call {
	c, _ := ctx.Value(callKey{}).(*Call)
	return c
}

func (c *Call) seen() observed {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.observed
}

func (c *Call) note(f func(o *observed)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.mu.observed)
}

// More says whether the last answer of a list was a truncated page, and how many answers there were. For a Client whose library pages by
// itself and hides it.
func More(ctx context.Context) (more bool, answers int) {
	c := callOf(ctx)
	if c == nil {
		return false, 0
	}
	o := c.seen()
	return o.more, o.answers
}

// counts says whether a request is the one that the call is about. Libraries make others in the same context: for credentials, for a
// session with a directory bucket.
func (c *Call) counts(r *http.Request) bool {
	q := r.URL.Query()
	switch c.op {
	case opRules:
		return q.Has("lifecycle")
	case objectstore.OpPut, objectstore.OpPutMatch:
		return r.Method == http.MethodPut
	case objectstore.OpDelete:
		return r.Method == http.MethodPost && q.Has("delete")
	case objectstore.OpList:
		return r.Method == http.MethodGet && q.Has("list-type")
	default:
		return (r.Method == http.MethodGet || r.Method == http.MethodHead) && !q.Has("session") && !q.Has("location")
	}
}

// trace notes when a request begins to be sent.
func (c *Call) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{WroteHeaders: func() {
		c.note(func(o *observed) { o.sent = true })
	}}
}

// Answered gives the status of the last answer, 0 if there was none, for a Client whose library does not tell an error of the whole request
// from one of a part.
func Answered(ctx context.Context) int {
	c := callOf(ctx)
	if c == nil {
		return 0
	}
	return c.seen().status
}

// StopAtFailure gives a context that ends as soon as a request of the call has failed, for a library that would otherwise wait before it
// gives up. Store needs no more of the library's error than that there is one.
func StopAtFailure(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if c := callOf(ctx); c != nil {
		c.mu.Lock()
		c.mu.stop = cancel
		c.mu.Unlock()
	}
	return ctx, cancel
}

// failed ends what StopAtFailure gave.
func (c *Call) failed() {
	c.mu.Lock()
	stop := c.mu.stop
	c.mu.Unlock()
	if stop != nil {
		stop()
	}
}
