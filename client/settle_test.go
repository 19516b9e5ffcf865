package client

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forebaymq/forebay/api"
	forebayv1 "github.com/forebaymq/forebay/api/forebay/v1"
)

// TestAckIsRepeated: its answer is lost once, the repetition succeeds.
func TestAckIsRepeated(t *testing.T) {
	var calls atomic.Int32
	cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/v1/topics/t/subscriptions/s/ack" || r.URL.Query().Get("receipt") != "1:2:n+/=" {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		if calls.Add(1) == 1 {
			hangUp(w)
		}
		w.WriteHeader(http.StatusNoContent)
	})
	if err := cl.Ack(t.Context(), "t", "s", "1:2:n+/="); err != nil || calls.Load() != 2 {
		t.Errorf("%d calls, %v", calls.Load(), err)
	}
}

func TestAckOfALostLease(t *testing.T) {
	var calls atomic.Int32
	cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		answerProblem(w, 410, `{"code":"LEASE_LOST","detail":"it lapsed"}`)
	})
	err := cl.Ack(t.Context(), "t", "s", "1:2:n")
	if outcome, _ := Classify(err); !errors.Is(err, ErrLeaseLost) || outcome != Definite || calls.Load() != 1 {
		t.Errorf("%d calls, %v", calls.Load(), err)
	}
}

func TestSettleMany(t *testing.T) {
	expires := time.UnixMilli(1_767_000_000_123).UTC()
	cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
		answer := &forebayv1.SettleResponse{Results: []*forebayv1.SettleResult{{}, {Code: "LEASE_LOST"}}}
		switch r.URL.Path {
		case "/v1/topics/t/subscriptions/s/ack":
			var req forebayv1.AckRequest
			readProto(t, r, &req)
			if diff := cmp.Diff([]string{"a", "b"}, req.Receipts); diff != "" {
				t.Error(diff)
			}
		case "/v1/topics/t/subscriptions/s/nack":
			var req forebayv1.NackRequest
			readProto(t, r, &req)
			if req.DelayMs == nil || *req.DelayMs != 0 || req.Reason != "why" || len(req.Receipts) != 2 {
				t.Errorf("%+v", &req)
			}
		case "/v1/topics/t/subscriptions/s/extend":
			var req forebayv1.ExtendRequest
			readProto(t, r, &req)
			if req.GetVisibilityMs() != 5000 || len(req.Receipts) != 2 {
				t.Errorf("%+v", &req)
			}
			answer.Results[0].LeaseExpiresAtMs = expires.UnixMilli()
		default:
			t.Errorf("%s", r.URL)
		}
		answerProto(t, w, answer)
	})
	receipts := []string{"a", "b"}
	want := []SettleResult{{Receipt: "a"}, {Receipt: "b", Code: api.CodeLeaseLost}}
	got, err := cl.AckMany(t.Context(), "t", "s", receipts)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if got[0].Err() != nil || !errors.Is(got[1].Err(), ErrLeaseLost) {
		t.Errorf("%v, %v", got[0].Err(), got[1].Err())
	}
	now := time.Duration(0)
	got, err = cl.NackMany(t.Context(), "t", "s", receipts, NackOptions{Delay: &now, Reason: "why"})
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	want[0].LeaseExpiresAt = expires
	got, err = cl.ExtendMany(t.Context(), "t", "s", receipts, 5*time.Second)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

// TestSettleOne: the calls about one receipt give its outcome as their error.
func TestSettleOne(t *testing.T) {
	code := ""
	cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
		answerProto(t, w, &forebayv1.SettleResponse{Results: []*forebayv1.SettleResult{{Code: code, LeaseExpiresAtMs: 1000}}})
	})
	if err := cl.Nack(t.Context(), "t", "s", "a", NackOptions{}); err != nil {
		t.Error(err)
	}
	if at, err := cl.Extend(t.Context(), "t", "s", "a", 0); err != nil || at.UnixMilli() != 1000 {
		t.Errorf("%s, %v", at, err)
	}
	code = "LEASE_LOST"
	if err := cl.Nack(t.Context(), "t", "s", "a", NackOptions{}); !errors.Is(err, ErrLeaseLost) {
		t.Error(err)
	}
	if _, err := cl.Extend(t.Context(), "t", "s", "a", 0); !errors.Is(err, ErrLeaseLost) {
		t.Error(err)
	}
}

// TestSettleInSeveralRequests: more receipts than one request may hold. The second request fails: what the first one did is told.
func TestSettleInSeveralRequests(t *testing.T) {
	var sizes []int
	fail := false
	cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var req forebayv1.AckRequest
		readProto(t, r, &req)
		sizes = append(sizes, len(req.Receipts))
		if fail && len(sizes) == 2 {
			answerProblem(w, 404, `{"code":"UNKNOWN_SUBSCRIPTION"}`)
			return
		}
		answer := &forebayv1.SettleResponse{}
		for range req.Receipts {
			answer.Results = append(answer.Results, &forebayv1.SettleResult{})
		}
		answerProto(t, w, answer)
	})
	receipts := make([]string, api.MaxReceiptsPerRequest+1)
	for i := range receipts {
		receipts[i] = fmt.Sprint(i)
	}
	got, err := cl.AckMany(t.Context(), "t", "s", receipts)
	if err != nil || len(got) != len(receipts) || got[len(got)-1].Receipt != receipts[len(got)-1] {
		t.Errorf("%d results, %v", len(got), err)
	}
	sizes, fail = nil, true
	got, err = cl.AckMany(t.Context(), "t", "s", receipts)
	if !errors.Is(err, ErrUnknownSubscription) || len(got) != api.MaxReceiptsPerRequest {
		t.Errorf("%d results, %v", len(got), err)
	}
}

// TestSettleWithTheWrongNumberOfResults is an error: nobody can tell which receipt is meant.
func TestSettleWithTheWrongNumberOfResults(t *testing.T) {
	for _, n := range []int{0, 1, 3} {
		cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
			answer := &forebayv1.SettleResponse{}
			for range n {
				answer.Results = append(answer.Results, &forebayv1.SettleResult{})
			}
			answerProto(t, w, answer)
		}, WithRetry(RetryPolicy{Attempts: 1}))
		if _, err := cl.AckMany(t.Context(), "t", "s", []string{"a", "b"}); err == nil {
			t.Errorf("%d results for 2 receipts are accepted", n)
		}
	}
}

func TestAckInJSON(t *testing.T) {
	answer := `{"results":[{"receipt":"a","code":"OK"},{"receipt":"b","code":"LEASE_LOST"}]}`
	cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); string(body) != `{"receipts":["a","b"]}` || r.Header.Get("Content-Type") != contentJSON {
			t.Errorf("%s %s", r.Header, body)
		}
		answerJSON(w, 200, answer)
	}, WithRetry(RetryPolicy{Attempts: 1}))
	got, err := cl.AckManyJSON(t.Context(), "t", "s", []string{"a", "b"})
	if diff := cmp.Diff([]SettleResult{{Receipt: "a"}, {Receipt: "b", Code: api.CodeLeaseLost}}, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	for _, answer = range []string{`{"results":[]}`, `{"results":[{"receipt":"b"},{"receipt":"a"}]}`, `{`} {
		if _, err := cl.AckManyJSON(t.Context(), "t", "s", []string{"a", "b"}); err == nil {
			t.Errorf("%s is accepted", answer)
		}
	}
}
