package client

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/forebaymq/forebay/api"
)

// TestDeadLetters walks over two pages and a failure.
func TestDeadLetters(t *testing.T) {
	cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if r.URL.Path != "/v1/topics/t/subscriptions/s/dead-letters" || q.Get("records") != "true" || q.Get("limit") != "2" {
			t.Errorf("%s", r.URL)
		}
		switch q.Get("cursor") {
		case "":
			answerJSON(w, 200, `{"items":[{"partition":0,"offset":1,"attempts":5,"reason":"bad","firstFailedAt":"2026-01-02T03:04:05.000Z","deadAt":"2026-01-02T03:05:05.000Z",
				"expired":false,"record":{"partition":0,"offset":1,"key":"k","value":1}},{"partition":0,"offset":2,"attempts":5,"expired":true}],"nextCursor":"x"}`)
		case "x":
			answerJSON(w, 200, `{"items":[{"partition":1,"offset":0}],"nextCursor":"y"}`)
		default:
			answerProblem(w, 404, `{"code":"UNKNOWN_SUBSCRIPTION"}`)
		}
	})
	var got []*DeadLetter
	var last error
	for d, err := range cl.DeadLetters(t.Context(), "t", "s", DeadLetterOptions{Records: true, Page: 2}) {
		if err != nil {
			last = err
			continue
		}
		got = append(got, d)
	}
	if !errors.Is(last, ErrUnknownSubscription) || len(got) != 3 || got[0].Reason != "bad" || got[0].Attempts != 5 || string(got[0].Record.Value) != "1" ||
		!got[1].Expired || got[1].Record != nil || got[2].Partition != 1 {
		t.Errorf("%v, %+v", last, got)
	}
	for range cl.DeadLetters(t.Context(), "t", "s", DeadLetterOptions{Records: true, Page: 2}) {
		break // a loop that ends early asks for no second page
	}
}

// TestRedriveAndDiscard: a refusal is tried again, a lost answer is not.
func TestRedriveAndDiscard(t *testing.T) {
	var calls atomic.Int32
	cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch calls.Add(1) {
		case 1:
			answerProblem(w, 503, `{"code":"LEASES_UNAVAILABLE"}`)
		case 2:
			if r.URL.Path != "/v1/topics/t/subscriptions/s/dead-letters/redrive" || string(body) != `{"all":true,"ratePerSecond":50}` {
				t.Errorf("%s %s", r.URL, body)
			}
			answerJSON(w, 202, `{"id":"x/1","total":7,"done":0,"state":"running"}`)
		case 3:
			hangUp(w)
		case 4:
			if r.URL.Path != "/v1/topics/t/subscriptions/s/dead-letters/discard" || string(body) != `{"offsets":[{"partition":1,"offset":2}]}` {
				t.Errorf("%s %s", r.URL, body)
			}
			answerJSON(w, 200, `{"discarded":1}`)
		}
	})
	task, err := cl.Redrive(t.Context(), "t", "s", DeadLetterSelection{All: true}, 50)
	if err != nil || task.ID != "x/1" || task.Total != 7 || task.State != TaskRunning {
		t.Errorf("%+v, %v", task, err)
	}
	if _, err := cl.Redrive(t.Context(), "t", "s", DeadLetterSelection{All: true}, 0); err == nil || calls.Load() != 3 {
		t.Errorf("%d calls, %v", calls.Load(), err)
	}
	if n, err := cl.Discard(t.Context(), "t", "s", DeadLetterSelection{Offsets: []Position{{1, 2}}}); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	for _, sel := range []DeadLetterSelection{{}, {All: true, Offsets: []Position{{}}}} {
		if _, err := cl.Redrive(t.Context(), "t", "s", sel, 0); err == nil {
			t.Errorf("%+v is accepted", sel)
		}
		if _, err := cl.Discard(t.Context(), "t", "s", sel); err == nil || calls.Load() != 4 {
			t.Errorf("%+v is accepted", sel)
		}
	}
}

func TestTask(t *testing.T) {
	cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.EscapedPath() != "/v1/topics/t/subscriptions/s/tasks/x%2F1" {
			t.Errorf("%s", r.URL)
		}
		if r.Method == http.MethodDelete {
			answerJSON(w, 200, `{"id":"x/1","total":7,"done":3,"state":"cancelled"}`)
			return
		}
		answerProblem(w, 404, `{"code":"NOT_FOUND"}`)
	})
	if task, err := cl.CancelTask(t.Context(), "t", "s", "x/1"); err != nil || task.State != TaskCancelled || task.Done != 3 {
		t.Errorf("%+v, %v", task, err)
	}
	if _, err := cl.Task(t.Context(), "t", "s", "x/1"); !errors.Is(err, &Error{Code: api.CodeNotFound}) {
		t.Error(err)
	}
}
