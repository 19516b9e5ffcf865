package client

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/forebaymq/forebay/api"
)

// TestRefusalAfterALostAnswer: a refusal speaks for its own attempt. Where the one before may have been stored, the outcome of the publish is
// not definite; of a read it is, because it leaves nothing behind.
func TestRefusalAfterALostAnswer(t *testing.T) {
	var calls atomic.Int32
	cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if calls.Add(1)%2 == 1 {
			hangUp(w)
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(403)
		_, _ = io.WriteString(w, `{"code":"FORBIDDEN","detail":"no longer"}`)
	})
	producer := &ProducerSequence{ID: "p", Epoch: 1, Sequence: 1}
	_, one := cl.Publish(t.Context(), "t", []Record{{Value: []byte("x")}}, producer)
	_, several := cl.PublishTopics(t.Context(), []TopicRecords{{"t", []Record{{Value: []byte("x")}}}}, producer)
	for _, err := range []error{one, several} {
		outcome, _ := Classify(err)
		if outcome != Indefinite || !errors.Is(err, &Error{Code: api.CodeForbidden}) || !strings.Contains(err.Error(), "may have been stored") {
			t.Errorf("%s: %v", outcome, err)
		}
	}
	_, err := cl.Read(t.Context(), "t", 0, ReadOptions{})
	if outcome, _ := Classify(err); outcome != Definite {
		t.Errorf("%s: %v", outcome, err)
	}
	if calls.Load() != 6 {
		t.Errorf("%d calls", calls.Load())
	}
}
