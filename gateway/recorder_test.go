package gateway

import (
	"bytes"
	"net/http"
	"time"
)

// recorder is a ResponseWriter for tests without a network. Unlike httptest's it takes deadlines.
type recorder struct {
	h      http.Header
	status int
	body   bytes.Buffer
	writes int
}

func newRecorder() *recorder { return &recorder{h: http.Header{}} }

func (r *recorder) Header() http.Header                { return r.h }
func (r *recorder) WriteHeader(status int)             { r.status = status }
func (r *recorder) Write(p []byte) (int, error)        { r.writes++; return r.body.Write(p) }
func (r *recorder) Flush()                             {}
func (r *recorder) SetReadDeadline(t time.Time) error  { return nil }
func (r *recorder) SetWriteDeadline(t time.Time) error { return nil }
