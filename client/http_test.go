package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/proto"

	"github.com/forebaymq/forebay/api"
	forebayv1 "github.com/forebaymq/forebay/api/forebay/v1"
)

// serve runs a fake server and a client whose retries take no time to speak of.
func serve(t *testing.T, h http.HandlerFunc, opts ...Option) *Client {
	t.Helper()
	s := httptest.NewServer(h)
	opts = append([]Option{WithToken("secret"), WithRetry(RetryPolicy{Attempts: 4, Initial: time.Millisecond, MaxRetryAfter: time.Millisecond})}, opts...)
	c, err := New(s.URL, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); s.Close() })
	return c
}

func hangUp(w http.ResponseWriter) {
	panic(http.ErrAbortHandler)
}

func positions(w http.ResponseWriter, duplicate bool) {
	raw, _ := proto.Marshal(&forebayv1.PublishResponse{Records: []*forebayv1.Position{{Partition: 1, Offset: 7}}, Duplicate: duplicate})
	w.Header().Set("Content-Type", contentProtobuf)
	_, _ = w.Write(raw)
}

// TestLostAnswer: with a sequence the request is sent again, and without one it never is (case K1).
func TestLostAnswer(t *testing.T) {
	for _, c := range []struct {
		name     string
		producer *ProducerSequence
		calls    int32
		outcome  Outcome
	}{
		{"without a sequence", nil, 1, Indefinite},
		{"with a sequence", &ProducerSequence{ID: "p", Epoch: 1, Sequence: 1}, 2, Succeeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			var calls atomic.Int32
			cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if calls.Add(1) == 1 {
					hangUp(w)
				}
				positions(w, true)
			})
			_, err := cl.Publish(t.Context(), "t", []Record{{Value: []byte("x")}}, c.producer)
			if outcome, reason := Classify(err); outcome != c.outcome || calls.Load() != c.calls {
				t.Errorf("%d calls, %s (%s): %v", calls.Load(), outcome, reason, err)
			}
		})
	}
}

func TestRefusedIsSentAgain(t *testing.T) {
	var calls atomic.Int32
	cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) < 3 {
			w.Header().Set("Content-Type", "application/problem+json")
			w.Header().Set("Retry-After", "99999999")
			w.WriteHeader(503)
			_, _ = io.WriteString(w, `{"title":"The node is at its limit","status":503,"code":"OVERLOADED","detail":"later","requestId":"r"}`)
			return
		}
		positions(w, false)
	})
	got, err := cl.Publish(t.Context(), "t", []Record{{Value: []byte("x")}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&PublishResult{Records: []Position{{1, 7}}}, got); diff != "" || calls.Load() != 3 {
		t.Errorf("%d calls\n%s", calls.Load(), diff)
	}
}

func TestErrorSaysWhatTheServerSaid(t *testing.T) {
	cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("authorization %q", r.Header.Get("Authorization"))
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(416)
		_, _ = io.WriteString(w, `{"code":"OFFSET_OUT_OF_RANGE","detail":"too low","requestId":"r-1","logStart":5,"head":9,"errors":[{"pointer":"offset","detail":"bad"}]}`)
	})
	_, err := cl.Read(t.Context(), "t", 0, ReadOptions{Offset: 1})
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v", err)
	}
	want := &Error{Op: "read t partition 0", Status: 416, Code: api.CodeOffsetOutOfRange, Title: "Requested Range Not Satisfiable", Detail: "too low", RequestID: "r-1",
		Fields: []api.FieldError{{Pointer: "offset", Detail: "bad"}}, LogStart: 5, Head: 9, Attempts: 1}
	if diff := cmp.Diff(want, e); diff != "" {
		t.Error(diff)
	}
	if !errors.Is(err, &Error{Code: api.CodeOffsetOutOfRange}) || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	var calls atomic.Int32
	cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	})
	_, err := cl.Publish(t.Context(), "t", nil, nil)
	if outcome, _ := Classify(err); outcome != Definite || calls.Load() != 1 {
		t.Errorf("%d calls, %v", calls.Load(), err)
	}
}

func TestTruncatedAnswerIsIndefinite(t *testing.T) {
	cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "half")
	})
	_, err := cl.Publish(t.Context(), "t", []Record{{}}, nil)
	if outcome, _ := Classify(err); outcome != Indefinite {
		t.Errorf("%s: %v", outcome, err)
	}
}

func TestEncodings(t *testing.T) {
	for _, enc := range []Encoding{Identity, Gzip, Zstd} {
		t.Run(string(enc), func(t *testing.T) {
			cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
				var body io.Reader = r.Body
				switch got := r.Header.Get("Content-Encoding"); {
				case got != string(enc):
					t.Errorf("encoding %q", got)
				case enc == Gzip:
					body, _ = gzip.NewReader(r.Body)
				case enc == Zstd:
					d, _ := zstd.NewReader(r.Body)
					defer d.Close()
					body = d
				}
				raw, err := io.ReadAll(body)
				var req forebayv1.PublishRequest
				if err != nil || proto.Unmarshal(raw, &req) != nil || len(req.Records) != 1 || len(req.Records[0].Value) != 1000 {
					t.Errorf("got %d bytes, %v", len(raw), err)
				}
				positions(w, false)
			}, WithEncoding(enc))
			if _, err := cl.Publish(t.Context(), "t", []Record{{Value: make([]byte, 1000)}}, nil); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestDeleteTopicWhoseAnswerWasLost(t *testing.T) {
	var calls atomic.Int32
	cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 1 {
			hangUp(w)
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(404)
		_, _ = io.WriteString(w, `{"code":"UNKNOWN_TOPIC"}`)
	})
	if err := cl.DeleteTopic(t.Context(), "t"); err != nil || calls.Load() != 2 {
		t.Errorf("%d calls, %v", calls.Load(), err)
	}
	if err := cl.DeleteTopic(t.Context(), "t"); !errors.Is(err, &Error{Code: api.CodeUnknownTopic}) {
		t.Errorf("a topic that was never there: %v", err)
	}
}

func TestNewRefuses(t *testing.T) {
	for _, address := range []string{"", "127.0.0.1:8080", "ftp://x", "http://", "http://u:p@h", "http://h?x=1", "http://h#f", "http://[::1"} {
		if _, err := New(address); err == nil {
			t.Errorf("%q is accepted", address)
		} else if strings.Contains(err.Error(), "u:p") {
			t.Errorf("%v shows a password", err)
		}
	}
	if _, err := New("http://h", WithEncoding("br")); err == nil {
		t.Error("an unknown encoding is accepted")
	}
}

func event(id string, partition, offset int) string {
	return fmt.Sprintf("id: %s\ndata: {\"partition\":%d,\"offset\":%d,\"text\":\"x\"}\n\n", id, partition, offset)
}

// TestStreamResumes: a connection breaks within a page, the next one begins the page anew, and every record comes once.
func TestStreamResumes(t *testing.T) {
	var ids []string
	cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
		ids = append(ids, r.Header.Get("Last-Event-ID"))
		w.Header().Set("Content-Type", "text/event-stream")
		switch len(ids) {
		case 1:
			_, _ = io.WriteString(w, "retry: 2000\nid: 0:0\n\n"+event("a", 0, 0)+": still here\n\n"+event("a", 0, 1)+"data: {\"partition\":1,")
		case 2:
			w.WriteHeader(http.StatusBadGateway)
		case 3:
			_, _ = io.WriteString(w, event("a", 0, 1)+event("b", 1, 0))
		default:
			_, _ = io.WriteString(w, "event: problem\ndata: {\"status\":404,\"code\":\"UNKNOWN_TOPIC\",\ndata: \"detail\":\"it was deleted\"}\n\n")
		}
	})
	var got []string
	err := cl.Stream(t.Context(), "t", StreamOptions{Offset: Earliest}, func(e Event) error {
		got = append(got, fmt.Sprintf("%s %d:%d", e.ID, e.Partition, e.Offset))
		return nil
	})
	var e *Error
	if !errors.As(err, &e) || e.Code != api.CodeUnknownTopic || e.Detail != "it was deleted" {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff([]string{"a 0:0", "a 0:1", "b 1:0"}, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"", "a", "a", "b"}, ids); diff != "" {
		t.Error(diff)
	}
}

func TestStreamEnds(t *testing.T) {
	endless := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, event("a", 0, 0))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
	t.Run("with the callback", func(t *testing.T) {
		stop := errors.New("enough")
		if err := serve(t, endless).Stream(t.Context(), "t", StreamOptions{}, func(Event) error { return stop }); !errors.Is(err, stop) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("with the context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		if err := serve(t, endless).Stream(ctx, "t", StreamOptions{}, func(Event) error { cancel(); return nil }); err != nil {
			t.Errorf("got %v", err)
		}
	})
	t.Run("with the retries", func(t *testing.T) {
		var calls atomic.Int32
		cl := serve(t, func(w http.ResponseWriter, r *http.Request) { calls.Add(1); w.WriteHeader(http.StatusBadGateway) })
		if err := cl.Stream(t.Context(), "t", StreamOptions{}, func(Event) error { return nil }); err == nil || calls.Load() != 4 {
			t.Errorf("%d calls, %v", calls.Load(), err)
		}
	})
}

// TestSilentStreamIsMadeAnew: a peer that vanished without a word does not hold the stream for ever.
func TestSilentStreamIsMadeAnew(t *testing.T) {
	var calls atomic.Int32
	stop := errors.New("enough")
	cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) > 1 {
			_, _ = io.WriteString(w, event("a", 0, 0))
			return
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	if err := cl.Stream(t.Context(), "t", StreamOptions{Silence: 20 * time.Millisecond}, func(Event) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
}

// TestAnswersAreReadToTheirEnd: a stream of HTTP/2 that is closed before its end is reset. A server that leases would take that for an
// answer that was lost.
func TestAnswersAreReadToTheirEnd(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100000")
		_, _ = w.Write(make([]byte, 100_000))
		_ = http.NewResponseController(w).Flush()
		timer := time.NewTimer(50 * time.Millisecond)
		defer timer.Stop()
		select {
		case <-r.Context().Done():
			t.Error("the client left before the end")
		case <-timer.C:
		}
	}))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	defer s.Close()
	c, err := New(s.URL, WithH2C(), WithRetry(RetryPolicy{Attempts: 1}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	err = c.call(t.Context(), &request{op: "x", method: http.MethodGet, path: "/"}, func(_ int, body []byte) error {
		if len(body) != 100_000 {
			t.Errorf("%d bytes", len(body))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestErrorSaysThingsOnce: of a request with one fault the server makes that fault's text the text of the whole.
func TestErrorSaysThingsOnce(t *testing.T) {
	for _, c := range []struct {
		fields []api.FieldError
		want   string
	}{
		{nil, "put topic t: CONFLICT: no"},
		{[]api.FieldError{{Pointer: "/a", Detail: "no"}}, "put topic t: CONFLICT: no (/a)"},
		{[]api.FieldError{{Pointer: "/a", Detail: "x"}, {Pointer: "/b", Detail: "y"}}, "put topic t: CONFLICT: no; /a: x; /b: y"},
	} {
		e := &Error{Op: "put topic t", Status: 409, Code: api.CodeConflict, Title: "Conflict", Detail: "no", Fields: c.fields}
		if got := e.Error(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
