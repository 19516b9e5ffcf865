package bench

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	forebayv1 "github.com/forebaymq/forebay/api/forebay/v1"
)

// TestProducerCountsWhatWasAcknowledged: no more than the server took within the time, all of it whole chunks, and refusals are shown.
func TestProducerCountsWhatWasAcknowledged(t *testing.T) {
	var taken atomic.Int64
	refuse := false
	c := connect(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		switch {
		case err != nil:
			t.Error(err)
		case r.Method == http.MethodGet:
			_, _ = io.WriteString(w, `{"name":"t","partitions":4}`)
		case strings.HasPrefix(r.URL.Path, "/v1/producers/"):
			_, _ = io.WriteString(w, `{"epoch":1}`)
		case refuse:
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(403)
			_, _ = io.WriteString(w, `{"code":"FORBIDDEN"}`)
		default:
			var req forebayv1.PublishRequest
			if err := proto.Unmarshal(body, &req); err != nil {
				t.Error(err)
			}
			taken.Add(int64(len(req.Records)))
			answer := &forebayv1.PublishResponse{}
			for range req.Records {
				answer.Records = append(answer.Records, &forebayv1.Position{})
			}
			raw, err := proto.Marshal(answer)
			if err != nil {
				t.Error(err)
			}
			_, _ = w.Write(raw)
		}
	})
	o := ProducerOptions{Client: c, Topic: "t", RecordSize: 100, Senders: 2, InFlight: 2, BatchBytes: 10_000, Duration: 200 * time.Millisecond, Warmup: 20 * time.Millisecond}
	report, err := Producer(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if report.Records == 0 || report.Records > taken.Load() || report.Records%producerChunk != 0 || report.Bytes != 100*report.Records || report.Delivery.Count == 0 {
		t.Errorf("%d records taken, %+v", taken.Load(), report)
	}
	refuse = true
	report, err = Producer(t.Context(), o)
	var text bytes.Buffer
	report.Print(&text)
	if err == nil || report.Records != 0 || report.Errors["FORBIDDEN"] == 0 || !strings.Contains(text.String(), "FORBIDDEN") {
		t.Errorf("%v: %s", err, &text)
	}
	if err := (ProducerOptions{}).Validate(); err == nil || !strings.Contains(err.Error(), "record-size") || !strings.Contains(err.Error(), "senders") {
		t.Errorf("faults: %v", err)
	}
}
