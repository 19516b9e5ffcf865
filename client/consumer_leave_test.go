package client

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// slowJoins is a way to the server on which a join takes long, and arrives whether its caller waits or not.
type slowJoins struct {
	f    *fakeGroups
	sent chan struct{} // closed by the first one
}

func (s *slowJoins) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(r.URL.Path, "/join") {
		w := httptest.NewRecorder()
		s.f.ServeHTTP(w, r)
		return w.Result(), nil
	}
	answer := make(chan *http.Response, 1)
	s.f.late.Go(func() {
		pass(context.Background(), time.Second)
		w := httptest.NewRecorder()
		s.f.ServeHTTP(w, r.WithContext(context.WithoutCancel(r.Context())))
		answer <- w.Result()
	})
	close(s.sent)
	select {
	case resp := <-answer:
		return resp, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// TestConsumerEndsWhileItJoins: the server takes up the join only then. Nobody is a member afterwards, so others need not wait for a session to lapse.
func TestConsumerEndsWhileItJoins(t *testing.T) {
	consumerBubble(t, func(t *testing.T) {
		f := newFakeGroups(t, map[string]int{"a": 2})
		slow := &slowJoins{f: f, sent: make(chan struct{})}
		c, err := New("http://forebay.test", WithHTTPClient(&http.Client{Transport: slow}))
		if err != nil {
			t.Fatal(err)
		}
		k, err := NewConsumer(c, "g", []string{"a"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-slow.sent
			cancel()
		}()
		if err := k.Run(ctx, func(context.Context, *GroupRecord) error { return nil }); err != nil {
			t.Error(err)
		}
		f.late.Wait()
		if n := f.memberCount(); n != 0 {
			t.Errorf("%d members are left", n)
		}
	})
}
