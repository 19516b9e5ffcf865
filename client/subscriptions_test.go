package client

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func answerJSON(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", contentJSON)
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

func ptr[T any](v T) *T { return &v }

func TestPutSubscription(t *testing.T) {
	const answer = `{"name":"s","topic":"t","created":"2026-01-02T03:04:05.000Z","visibilityTimeout":"30s","maxAttempts":5,
		"backoff":{"initial":"2s","max":"5m","multiplier":2,"jitter":true},"maxInFlight":1024,"maxAckedAhead":1024,"deadLetter":{"topic":"d"},
		"gapPolicy":"fail","ordering":"none","fairShare":{"by":"header","header":"h"},
		"partitions":[{"partition":1,"frontier":4,"head":9,"logStart":2,"inFlight":1,"ackedAhead":2,"lag":3,"oldestUnackedAgeSeconds":1.5,"deadLetters":1,"retentionHeadroomSeconds":null}]}`
	cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		want := `{"visibilityTimeout":"1m","start":"earliest","deadLetter":{"topic":null},"fairShare":{"by":"header","header":"h"}}`
		if r.Method != http.MethodPut || r.URL.Path != "/v1/topics/t/subscriptions/s" || string(body) != want {
			t.Errorf("%s %s %s", r.Method, r.URL, body)
		}
		answerJSON(w, 201, answer)
	})
	s, created, err := cl.PutSubscription(t.Context(), "t", "s", SubscriptionSettings{
		VisibilityTimeout: ptr("1m"), Start: ptr("earliest"), DeadLetter: &DeadLetterSettings{Topic: Null[string]()}, FairShare: Value(FairShare{By: "header", Header: "h"}),
	})
	if err != nil || !created || s.MaxAttempts != 5 || *s.DeadLetter.Topic != "d" || s.FairShare.Header != "h" || string(s.JSON) != answer {
		t.Fatalf("%+v, %v, %v", s, created, err)
	}
	want := []SubscriptionPartition{{Partition: 1, Frontier: 4, Head: 9, LogStart: 2, InFlight: 1, AckedAhead: 2, Lag: 3, OldestUnackedAgeSeconds: 1.5, DeadLetters: 1}}
	if diff := cmp.Diff(want, s.Partitions); diff != "" {
		t.Error(diff)
	}
}

func TestListSubscriptions(t *testing.T) {
	cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/topics/t/subscriptions" || r.URL.RawQuery != "cursor=c&limit=2" {
			t.Errorf("%s", r.URL)
		}
		answerJSON(w, 200, `{"items":[{"name":"a"},{"name":"b"}],"nextCursor":"d"}`)
	})
	page, err := cl.ListSubscriptions(t.Context(), "t", 2, "c")
	if err != nil || len(page.Items) != 2 || page.Items[1].Name != "b" || page.Next != "d" {
		t.Errorf("%+v, %v", page, err)
	}
}

func TestDeleteSubscriptionWhoseAnswerWasLost(t *testing.T) {
	var calls atomic.Int32
	cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 1 {
			hangUp(w)
		}
		answerProblem(w, 404, `{"code":"UNKNOWN_SUBSCRIPTION"}`)
	})
	if err := cl.DeleteSubscription(t.Context(), "t", "s"); err != nil || calls.Load() != 2 {
		t.Errorf("%d calls, %v", calls.Load(), err)
	}
	if err := cl.DeleteSubscription(t.Context(), "t", "s"); !errors.Is(err, ErrUnknownSubscription) {
		t.Errorf("a subscription that was never there: %v", err)
	}
}

// TestSeek: where its answer is lost it is sent again, but for a seek to the latest record, which would pass what came meanwhile.
func TestSeek(t *testing.T) {
	for _, c := range []struct {
		to    SeekTarget
		body  string
		calls int32
	}{
		{SeekTarget{Earliest: true}, `{"to":"earliest"}`, 2},
		{SeekTarget{Latest: true}, `{"to":"latest"}`, 1},
		{SeekTarget{Time: time.UnixMilli(1)}, `{"timestamp":"1970-01-01T00:00:00.001Z"}`, 2},
		{SeekTarget{Offsets: map[int32]int64{3: 42}}, `{"offsets":{"3":42}}`, 2},
	} {
		t.Run(c.body, func(t *testing.T) {
			var calls atomic.Int32
			cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if body, _ := io.ReadAll(r.Body); string(body) != c.body || r.URL.Path != "/v1/topics/t/subscriptions/s/seek" {
					t.Errorf("%s %s", r.URL, body)
				}
				if calls.Add(1) == 1 {
					hangUp(w)
				}
				answerJSON(w, 200, `{"name":"s"}`)
			})
			_, err := cl.Seek(t.Context(), "t", "s", c.to)
			if (err == nil) != (c.calls == 2) || calls.Load() != c.calls {
				t.Errorf("%d calls, %v", calls.Load(), err)
			}
		})
	}
	cl := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("sent") })
	for _, to := range []SeekTarget{{}, {Earliest: true, Latest: true}} {
		if _, err := cl.Seek(t.Context(), "t", "s", to); err == nil {
			t.Errorf("%+v is accepted", to)
		} else if outcome, _ := Classify(err); outcome != Definite {
			t.Errorf("%s: %v", outcome, err)
		}
	}
}

func TestPeek(t *testing.T) {
	cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/topics/t/subscriptions/s/peek" || r.URL.RawQuery != "max=3" {
			t.Errorf("%s", r.URL)
		}
		answerJSON(w, 200, `{"messages":[{"partition":1,"offset":5,"attempt":2,"dueAt":"2026-01-02T03:04:05.000Z","time":"2026-01-02T03:04:04.000Z","text":"x"},
			{"partition":1,"offset":6,"attempt":1,"dueAt":null,"time":"2026-01-02T03:04:04.000Z"}]}`)
	})
	got, err := cl.Peek(t.Context(), "t", "s", 3)
	if err != nil || len(got) != 2 || got[0].Offset != 5 || got[0].Attempt != 2 || got[0].DueAt.IsZero() || string(got[0].Value) != "x" || !got[1].DueAt.IsZero() || got[1].Value != nil {
		t.Errorf("%+v, %v", got, err)
	}
}
