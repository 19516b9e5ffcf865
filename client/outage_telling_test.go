package client

import (
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebaymq/forebay/api"
)

// TestShortOutagesAreTold: one that the retries of the single calls get over is one all the same to who watches a Worker or a Reader, and to who
// watches the Client.
func TestShortOutagesAreTold(t *testing.T) {
	const failures = 3
	for name, run := range map[string]func(c *Client, notify func(error)) error{
		"worker": func(c *Client, notify func(error)) error {
			w, err := NewWorker(c, "t", "q", succeed, WithWorkerVisibility(time.Minute), WithWorkerUntilEmpty(), WithWorkerNotify(func(m *Message, err error) {
				if m == nil {
					notify(err)
				}
			}))
			if err != nil {
				return err
			}
			_, err = w.Run(t.Context())
			return err
		},
		"reader": func(c *Client, notify func(error)) error {
			r, err := NewReader(c, "t", WithReaderNotify(notify))
			if err != nil {
				return err
			}
			for _, err := range r.Records(t.Context()) {
				return err
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			var calls, told, own atomic.Int32
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				switch {
				case calls.Add(1) <= failures:
					w.Header().Set("Content-Type", "application/problem+json")
					w.WriteHeader(http.StatusServiceUnavailable)
					_, _ = w.Write([]byte(`{"code":"LEASES_UNAVAILABLE"}`))
				case r.Method == http.MethodPost:
					w.WriteHeader(http.StatusNoContent) // nothing to lease
				default:
					w.Header().Set("Content-Type", "application/json")
					_, _ = w.Write([]byte(`{"name":"t","topicID":"1","partitions":1,"partitionInfo":[{"partition":0,"logStart":0,"head":0}]}`))
				}
			}, WithRetry(RetryPolicy{Initial: time.Millisecond, Notify: func(*Error, time.Duration) { own.Add(1) }}))
			err := run(c, func(err error) {
				if errors.Is(err, &Error{Code: api.CodeLeasesUnavailable}) {
					told.Add(1)
				}
			})
			if err != nil || told.Load() != failures || own.Load() != failures {
				t.Errorf("%v; told of %d and %d failures, want %d", err, told.Load(), own.Load(), failures)
			}
		})
	}
}
