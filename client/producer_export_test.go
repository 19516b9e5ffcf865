package client

import (
	"io"
	"net/http"
	"net/http/httptest"
)

// FakeProducerServer shows the fake server over HTTP to tests that use the package from outside.
//
// It is one topic of one partition, named as the caller likes.
func FakeProducerServer() (server *httptest.Server, values func() []string) {
	s := newProducerServer(1, 1, producerFaults{})
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		answer := s.apply(r, body)
		w.Header().Set("Content-Type", answer.Header.Get("Content-Type"))
		w.WriteHeader(answer.StatusCode)
		_, _ = io.Copy(w, answer.Body)
	}))
	return server, func() []string { return s.values(0) }
}
