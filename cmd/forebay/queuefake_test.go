package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	forebayv1 "github.com/forebaymq/forebay/api/forebay/v1"
)

// fakeQueue serves one subscription, q of topic t, as far as the commands need it. Values are "v0", "v1", ...
type fakeQueue struct {
	*httptest.Server
	t  *testing.T
	mu struct {
		sync.Mutex
		ready    []int64
		leased   map[string]int64 // by receipt
		acked    []int64
		nacked   map[int64]string // reasons
		delays   []int64
		calls    []string // method, path and body
		problem  string   // answers every lease
		lost     bool     // every lease is lost
		taskDone int64
		serial   int
	}
	redriven func() // called by a redrive
}

func newFakeQueue(t *testing.T, n int64) *fakeQueue {
	t.Helper()
	q := &fakeQueue{t: t}
	q.mu.leased, q.mu.nacked = map[string]int64{}, map[int64]string{}
	for i := range n {
		q.mu.ready = append(q.mu.ready, i)
	}
	q.Server = httptest.NewServer(q)
	t.Cleanup(q.Close)
	return q
}

const queueJSON = `{"name":"q","topic":"t","visibilityTimeout":"30s","maxAttempts":5,"partitions":[{"partition":0,"lag":3,"inFlight":1,"deadLetters":2,"oldestUnackedAgeSeconds":61.5}]}`

func (q *fakeQueue) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		q.t.Error(err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	rest, ok := strings.CutPrefix(r.URL.Path, "/v1/topics/t/subscriptions")
	if !ok {
		answer(w, 404, `{"code":"UNKNOWN_TOPIC","detail":"no such topic"}`)
		return
	}
	if r.Header.Get("Content-Type") != "application/x-protobuf" {
		q.mu.calls = append(q.mu.calls, strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Method, rest, body)))
	}
	switch r.Method + " " + rest {
	case "GET ":
		answer(w, 200, `{"items":[`+queueJSON+`],"nextCursor":null}`)
	case "GET /q", "PUT /q", "POST /q/seek", "PUT /new":
		answer(w, 200, queueJSON)
	case "GET /new":
		answer(w, 404, `{"code":"UNKNOWN_SUBSCRIPTION","detail":"no such subscription"}`)
	case "DELETE /q":
		w.WriteHeader(204)
	case "GET /q/peek":
		answer(w, 200, `{"messages":[{"partition":0,"offset":7,"attempt":1,"dueAt":null,"value":{"a":1}}]}`)
	case "POST /q/lease":
		q.lease(w, r, body)
	case "POST /q/ack", "POST /q/nack", "POST /q/extend":
		q.settle(w, strings.TrimPrefix(rest, "/q/"), body)
	case "GET /q/dead-letters":
		answer(w, 200, `{"items":[{"partition":0,"offset":7,"attempts":5,"reason":"exit status 1:\n bad","firstFailedAt":"2026-01-02T03:04:05.000Z","deadAt":"2026-01-02T04:04:05.000Z","expired":true},`+
			`{"partition":1,"offset":8,"attempts":5,"reason":"x"}],"nextCursor":null}`)
	case "POST /q/dead-letters/redrive":
		answer(w, 202, `{"id":"k1","total":2,"done":0,"state":"running"}`)
		if q.redriven != nil {
			q.redriven()
		}
	case "POST /q/dead-letters/discard":
		answer(w, 200, `{"discarded":2}`)
	case "GET /q/tasks/k1":
		q.mu.taskDone++
		answer(w, 200, fmt.Sprintf(`{"id":"k1","total":2,"done":%d,"state":"%s"}`, q.mu.taskDone, []string{"running", "done"}[q.mu.taskDone/2]))
	case "DELETE /q/tasks/k1":
		answer(w, 200, `{"id":"k1","total":2,"done":1,"state":"cancelled"}`)
	default:
		answer(w, 404, `{"code":"NOT_FOUND"}`)
	}
}

func answer(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

// lease answers in the form of the request, at once: nothing is waited for.
func (q *fakeQueue) lease(w http.ResponseWriter, r *http.Request, body []byte) {
	if q.mu.problem != "" {
		answer(w, 409, q.mu.problem)
		return
	}
	var req forebayv1.LeaseRequest
	binary := r.Header.Get("Content-Type") == "application/x-protobuf"
	if binary {
		if err := proto.Unmarshal(body, &req); err != nil {
			q.t.Error(err)
		}
	} else {
		var in struct{ Max int32 }
		if err := json.Unmarshal(body, &in); err != nil {
			q.t.Error(err)
		}
		req.Max = &in.Max
	}
	n := min(int(req.GetMax()), len(q.mu.ready))
	if n == 0 {
		w.WriteHeader(204)
		return
	}
	some := slices.Clone(q.mu.ready[:n])
	q.mu.ready = q.mu.ready[n:]
	out := &forebayv1.LeaseResponse{}
	var raw []string
	for _, offset := range some {
		q.mu.serial++
		receipt := fmt.Sprintf("0:%d:n%d", offset, q.mu.serial)
		q.mu.leased[receipt] = offset
		out.Messages = append(out.Messages, &forebayv1.Lease{Receipt: receipt, Attempt: 1, LeaseExpiresAtMs: time.Now().Add(time.Minute).UnixMilli(), Record: &forebayv1.Record{
			Offset: offset, Partition: proto.Int32(0), Key: []byte("k"), Value: fmt.Appendf(nil, "v%d", offset), Kind: forebayv1.ContentKind_CONTENT_KIND_TEXT,
		}})
		raw = append(raw, fmt.Sprintf(`{"receipt":"%s","partition":0,"offset":%d,"attempt":1,"text":"v%d"}`, receipt, offset, offset))
	}
	if !binary {
		answer(w, 200, `{"messages":[`+strings.Join(raw, ",")+`]}`)
		return
	}
	q.proto(w, out)
}

func (q *fakeQueue) proto(w http.ResponseWriter, m proto.Message) {
	raw, err := proto.Marshal(m)
	if err != nil {
		q.t.Error(err)
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(raw)
}

func (q *fakeQueue) settle(w http.ResponseWriter, op string, body []byte) {
	var req forebayv1.NackRequest // has the fields of the others, too
	if err := proto.Unmarshal(body, &req); err != nil {
		q.t.Error(err)
	}
	out := &forebayv1.SettleResponse{}
	for _, receipt := range req.Receipts {
		result := &forebayv1.SettleResult{}
		out.Results = append(out.Results, result)
		offset, ok := q.mu.leased[receipt]
		switch {
		case !ok || q.mu.lost:
			result.Code = "LEASE_LOST"
		case op == "ack":
			delete(q.mu.leased, receipt)
			q.mu.acked = append(q.mu.acked, offset)
		case op == "nack":
			delete(q.mu.leased, receipt)
			q.mu.nacked[offset] = req.Reason
			if req.DelayMs != nil {
				q.mu.delays = append(q.mu.delays, *req.DelayMs)
			}
		default:
			result.LeaseExpiresAtMs = time.Now().Add(time.Minute).UnixMilli()
		}
	}
	q.proto(w, out)
}

func (q *fakeQueue) run(t *testing.T, args ...string) result {
	t.Helper()
	return forebay(t, []string{"PATH=/usr/bin:/bin", "FOREBAY_SERVER=" + q.URL, "FOREBAY_TOKEN=x", "FOREBAY_TOPIC=t", "FOREBAY_RETRY_FOR=0s"}, "", args...)
}
