package client

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/forebaymq/forebay/api"
	forebayv1 "github.com/forebaymq/forebay/api/forebay/v1"
)

func answerProto(t *testing.T, w http.ResponseWriter, m proto.Message) {
	t.Helper()
	raw, err := proto.Marshal(m)
	if err != nil {
		t.Error(err)
	}
	w.Header().Set("Content-Type", contentProtobuf)
	_, _ = w.Write(raw)
}

func readProto(t *testing.T, r *http.Request, m proto.Message) {
	t.Helper()
	raw, err := io.ReadAll(r.Body)
	if err == nil {
		err = proto.Unmarshal(raw, m)
	}
	if err != nil || r.Header.Get("Content-Type") != contentProtobuf {
		t.Errorf("%s: %v", r.Header.Get("Content-Type"), err)
	}
}

func answerProblem(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

// TestLeaseWhoseAnswerWasLost: the lease is sent again with the same request ID, so that the server can give the same leases.
func TestLeaseWhoseAnswerWasLost(t *testing.T) {
	expires := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	var ids []string
	cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var req forebayv1.LeaseRequest
		readProto(t, r, &req)
		ids = append(ids, req.RequestId)
		if r.URL.Path != "/v1/topics/t/subscriptions/s/lease" || req.GetMax() != 7 || req.GetWaitMs() != 2000 || req.GetVisibilityMs() != 60_000 || req.GetMaxBytes() != 1<<20 {
			t.Errorf("%s: %+v", r.URL, &req)
		}
		if len(ids) == 1 {
			hangUp(w)
		}
		answerProto(t, w, &forebayv1.LeaseResponse{Messages: []*forebayv1.Lease{{
			Receipt: "3:9:nonce", Attempt: 2, LeaseExpiresAtMs: expires.UnixMilli(),
			Record: &forebayv1.Record{
				Key: []byte{}, Value: []byte(`{"a":1}`), Kind: forebayv1.ContentKind_CONTENT_KIND_JSON, Partition: proto.Int32(3), Offset: 9,
				TimeMs: expires.UnixMilli(), Headers: []*forebayv1.Header{{Name: "h", Value: "v"}}, Id: "e",
			},
		}}})
	})
	got, err := cl.Lease(t.Context(), "t", "s", LeaseOptions{Max: 7, Wait: 2 * time.Second, Visibility: time.Minute, MaxBytes: 1 << 20})
	want := []Message{{Receipt: "3:9:nonce", Attempt: 2, LeaseExpiresAt: expires, Record: Record{
		Key: []byte{}, Value: []byte(`{"a":1}`), Kind: KindJSON, Partition: 3, Offset: 9, Time: expires, Headers: []Header{{"h", "v"}}, ID: "e",
	}}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if len(ids) != 2 || ids[0] == "" || ids[0] != ids[1] || len(ids[0]) > api.MaxRequestIDBytes {
		t.Errorf("request IDs %q", ids)
	}
}

// TestLeaseThatIsSentOnce carries no request ID, which the server would have to remember, and is not repeated.
func TestLeaseThatIsSentOnce(t *testing.T) {
	var calls atomic.Int32
	cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		var req forebayv1.LeaseRequest
		readProto(t, r, &req)
		if req.RequestId != "" || req.Max != nil || req.WaitMs != nil || req.VisibilityMs != nil || req.MaxBytes != nil {
			t.Errorf("%+v", &req)
		}
		hangUp(w)
	}, WithRetry(RetryPolicy{Attempts: 1}))
	_, err := cl.Lease(t.Context(), "t", "s", LeaseOptions{})
	if outcome, _ := Classify(err); outcome != Indefinite || calls.Load() != 1 {
		t.Errorf("%d calls, %v", calls.Load(), err)
	}
}

const messageJSON = `{"messages":[{"receipt":"0:1:n","partition":0,"offset":1,"attempt":1,"leaseExpiresAt":"2026-01-02T03:04:05.000Z",` +
	`"time":"2026-01-02T03:04:04.000Z","key":"k","value":{"n":12345678901234567890},"headers":[["a","1"],["a","2"]],"id":"i","other":true},` +
	`{"receipt":"0:2:n","partition":0,"offset":2,"attempt":3,"leaseExpiresAt":"2026-01-02T03:04:05.000Z","time":"2026-01-02T03:04:04.000Z","keyBase64":"/w==","data":"AAE="},` +
	`{"receipt":"0:3:n","partition":0,"offset":3,"attempt":1,"leaseExpiresAt":"2026-01-02T03:04:05.000Z","time":"2026-01-02T03:04:04.000Z","key":"","text":""},` +
	`{"receipt":"0:4:n","partition":0,"offset":4,"attempt":1,"leaseExpiresAt":"2026-01-02T03:04:05.000Z","time":"2026-01-02T03:04:04.000Z","value":null}],"clamped":{"max":1000}}`

// TestLeaseInJSON: what is absent, empty and null stay different (case L6), numbers keep their text (case H4).
func TestLeaseInJSON(t *testing.T) {
	cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var req map[string]any
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil || req["max"] != 5.0 || req["wait"] != "1500ms" || req["requestId"] == "" {
			t.Errorf("%v, %v", req, err)
		}
		w.Header().Set("Content-Type", contentJSON)
		_, _ = io.WriteString(w, messageJSON)
	})
	o := LeaseOptions{Max: 5, Wait: 1500 * time.Millisecond}
	got, err := cl.LeaseJSON(t.Context(), "t", "s", o)
	if err != nil {
		t.Fatal(err)
	}
	expires := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := expires.Add(-time.Second)
	want := []Message{
		{"0:1:n", 1, expires, Record{Offset: 1, Time: at, Key: []byte("k"), Value: []byte(`{"n":12345678901234567890}`), Kind: KindJSON, Headers: []Header{{"a", "1"}, {"a", "2"}}, ID: "i"}},
		{"0:2:n", 3, expires, Record{Offset: 2, Time: at, Key: []byte{255}, KeyBinary: true, Value: []byte{0, 1}, Kind: KindData}},
		{"0:3:n", 1, expires, Record{Offset: 3, Time: at, Key: []byte{}, Value: []byte{}, Kind: KindText}},
		{"0:4:n", 1, expires, Record{Offset: 4, Time: at, Value: []byte("null"), Kind: KindJSON}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	raw, err := cl.LeaseRaw(t.Context(), "t", "s", o)
	if err != nil || len(raw) != 4 || raw[0].Receipt != "0:1:n" || raw[1].Attempt != 3 || raw[3].Offset != 4 || !strings.Contains(string(raw[0].JSON), `"other":true`) {
		t.Errorf("%v, %v", raw, err)
	}
}

func TestLeaseOfNothing(t *testing.T) {
	cl := serve(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNoContent) })
	if got, err := cl.Lease(t.Context(), "t", "s", LeaseOptions{}); len(got) != 0 || err != nil {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := cl.LeaseRaw(t.Context(), "t", "s", LeaseOptions{}); len(got) != 0 || err != nil {
		t.Errorf("%v, %v", got, err)
	}
}

func TestRetentionGapIsNamed(t *testing.T) {
	var calls atomic.Int32
	cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		answerProblem(w, 409, `{"code":"RETENTION_GAP","detail":"lost","gaps":[{"partition":2,"from":5,"to":9}]}`)
	})
	_, err := cl.Lease(t.Context(), "t", "s", LeaseOptions{})
	var e *Error
	if !errors.Is(err, ErrRetentionGap) || errors.Is(err, ErrLeaseLost) || !errors.As(err, &e) || calls.Load() != 1 {
		t.Fatalf("%d calls, %v", calls.Load(), err)
	}
	if diff := cmp.Diff([]Gap{{Partition: 2, From: 5, To: 9}}, e.Gaps); diff != "" {
		t.Error(diff)
	}
}

// TestLeasesUnavailable: a lease store that is away is waited for, by acks as well.
func TestLeasesUnavailable(t *testing.T) {
	var calls atomic.Int32
	cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1)%2 == 1 {
			w.Header().Set("Retry-After", "-3")
			answerProblem(w, 503, `{"code":"LEASES_UNAVAILABLE","detail":"away"}`)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	if _, err := cl.Lease(t.Context(), "t", "s", LeaseOptions{}); err != nil {
		t.Error(err)
	}
	if err := cl.Ack(t.Context(), "t", "s", "0:0:n"); err != nil || calls.Load() != 4 {
		t.Errorf("%d calls, %v", calls.Load(), err)
	}
}

// strange says whether a message, or one within it, has fields that its definition does not.
func strange(m protoreflect.Message) (found bool) {
	if len(m.GetUnknown()) > 0 {
		return true
	}
	m.Range(func(d protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case d.Message() == nil:
		case d.IsList():
			for i := range v.List().Len() {
				found = found || strange(v.List().Get(i).Message())
			}
		default:
			found = found || strange(v.Message())
		}
		return !found
	})
	return found
}

func FuzzDecodeLease(f *testing.F) {
	whole, err := proto.Marshal(&forebayv1.LeaseResponse{
		Messages: []*forebayv1.Lease{{Receipt: "1:2:n", Attempt: 1, LeaseExpiresAtMs: 5, Record: &forebayv1.Record{Value: []byte("x"), Offset: 2}}},
		Clamped:  &forebayv1.Clamped{Max: proto.Int32(1000)},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	for i := range whole {
		f.Add(whole[:i])
		flipped := append([]byte(nil), whole...)
		flipped[i] ^= 1 << (i % 8)
		f.Add(flipped)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var want forebayv1.LeaseResponse
		got, err := decodeLease(raw)
		if proto.Unmarshal(raw, &want) != nil || err != nil {
			return // the generated decoder checks UTF-8, too
		}
		if strange(want.ProtoReflect()) {
			return // a known number with another wire type: no server of any version sends that, and the decoder does not look at types
		}
		if len(got) != len(want.Messages) {
			t.Fatalf("%d messages, want %d", len(got), len(want.Messages))
		}
		for i, m := range want.Messages {
			if got[i].Receipt != m.Receipt || got[i].Attempt != m.Attempt || string(got[i].Value) != string(m.GetRecord().GetValue()) {
				t.Errorf("message %d: %+v, want %v", i, got[i], m)
			}
		}
	})
}
