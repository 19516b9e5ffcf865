package bench

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/forebaymq/forebay/api"
	forebayv1 "github.com/forebaymq/forebay/api/forebay/v1"
	"github.com/forebaymq/forebay/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSumPuts(t *testing.T) {
	const text = `# HELP forebay_objectstore_requests_total x
# TYPE forebay_objectstore_requests_total counter
forebay_objectstore_requests_total{op="get",outcome="ok"} 7
forebay_objectstore_requests_total{op="put",outcome="ok"} 3
forebay_objectstore_requests_total{op="put",outcome="unavailable"} 1.5e+01
forebay_objectstore_requests_total{op="put_match",outcome="ok"} 2 1700000000000
forebay_objectstore_request_seconds_count{op="put"} 99
`
	if n, err := sumPuts(strings.NewReader(text)); err != nil || n != 20 {
		t.Errorf("got %v, %v", n, err)
	}
	if _, err := sumPuts(strings.NewReader("up 1\n")); err == nil {
		t.Error("the metrics of somebody else are accepted")
	}
}

func TestPayloads(t *testing.T) {
	for _, asJSON := range []bool{false, true} {
		for _, share := range []float64{0, 0.5, 1} {
			p := &payloads{size: 4096, batch: 10, compressible: share, json: asJSON, rng: rand.New(rand.NewPCG(1, 2))}
			records := p.records()
			var z bytes.Buffer
			w := gzip.NewWriter(&z)
			for _, r := range records {
				if n := len(r.Key) + len(r.Value); n != 4096 {
					t.Fatalf("a record has %d bytes", n)
				}
				if _, err := w.Write(r.Value); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			floor := 1.0
			if asJSON {
				floor = 0.75 // six bits of randomness in a byte
			}
			if got, want := float64(z.Len())/40960, floor*(1-share); got < want-0.05 || got > want+0.08 {
				t.Errorf("json %v, share %v: compresses to %.2f, want about %.2f", asJSON, share, got, want)
			}
		}
	}
}

func connect(t *testing.T, h http.HandlerFunc) *client.Client {
	t.Helper()
	s := httptest.NewServer(h)
	c, err := client.New(s.URL, client.WithRetry(client.RetryPolicy{Attempts: 1}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); s.Close() })
	return c
}

func TestJSONRequestIsWhatTheContractTakes(t *testing.T) {
	c := connect(t, func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Records []struct{ Key, Text string }
		}
		raw, err := io.ReadAll(r.Body)
		if err != nil || json.Unmarshal(raw, &body) != nil || len(body.Records) != 3 || len(body.Records[2].Key)+len(body.Records[2].Text) != 100 {
			t.Errorf("%v: %s", err, raw)
		}
		_, _ = io.WriteString(w, `{"records":[{"partition":0,"offset":0},{"partition":0,"offset":1},{"partition":0,"offset":2}],"duplicate":false}`)
	})
	p := &payloads{size: 100, batch: 3, compressible: 0.5, json: true, rng: rand.New(rand.NewPCG(1, 2))}
	request, n, err := p.request(c)
	if err != nil || n != 300 {
		t.Fatal(n, err)
	}
	if r, err := c.PublishPrepared(t.Context(), "t", request); err != nil || len(r.Records) != 3 || r.Records[2].Offset != 2 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestOpenLoopCountsTheWait: a server that stalls once for a while delays the requests that were due meanwhile, and the figures show it,
// although it answered only one request slowly.
func TestOpenLoopCountsTheWait(t *testing.T) {
	const stall = 300 * time.Millisecond
	answer, err := proto.Marshal(&forebayv1.PublishResponse{Records: []*forebayv1.Position{{}}})
	if err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int32
	c := connect(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if calls.Add(1) == 5 {
			timer := time.NewTimer(stall)
			defer timer.Stop()
			<-timer.C
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
		_, _ = w.Write(answer)
	})
	report, err := Publish(t.Context(), PublishOptions{Client: c, Topic: "t", RecordSize: 10, Batch: 1, Clients: 1, Duration: time.Second, Rate: 100})
	if err != nil {
		t.Fatal(err)
	}
	if report.Loop != "open" || report.Records != 100 || report.Ack.Max < 299 {
		t.Errorf("%+v", report)
	}
	// About 30 of the 100 requests were due during the stall: the 90th percentile waited, too.
	if report.Ack.P90 < 50 {
		t.Errorf("p90 %.1f ms hides the stall", report.Ack.P90)
	}
}

func TestErrorsAreCountedByCode(t *testing.T) {
	c := connect(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(503)
		_, _ = io.WriteString(w, `{"code":"OVERLOADED"}`)
	})
	report, err := Publish(t.Context(), PublishOptions{Client: c, Topic: "t", RecordSize: 10, Batch: 1, Clients: 2, Duration: 100 * time.Millisecond})
	if err == nil || report == nil || report.Errors["OVERLOADED"] == 0 || report.Records != 0 {
		t.Errorf("%+v, %v", report, err)
	}
	if _, err := json.Marshal(report); err != nil {
		t.Errorf("a report without a success is not JSON: %v", err)
	}
}

func TestCodeOf(t *testing.T) {
	for want, err := range map[string]error{
		"QUOTA_EXCEEDED":        &client.Error{Status: 429, Code: api.CodeQuotaExceeded},
		"HTTP 502":              &client.Error{Status: 502},
		"transport, indefinite": &client.Error{Cause: io.EOF},
	} {
		if got := codeOf(err); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestCancelledRunIsNoResult(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := connect(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then does the server watch for a client that goes away
		cancel()
		<-r.Context().Done()
	})
	if report, err := Publish(ctx, PublishOptions{Client: c, Topic: "t", RecordSize: 10, Batch: 1, Clients: 1, Duration: time.Minute}); !errors.Is(err, context.Canceled) || report != nil {
		t.Errorf("%+v, %v", report, err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	err := PublishOptions{RecordSize: 1 << 20, Batch: 100, Compressible: 2, Rate: -1, Warmup: -1}.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, field := range []string{"batch", "clients", "duration", "warmup", "rate", "compressible"} {
		if !strings.Contains(err.Error(), field+" must be") {
			t.Errorf("%s is not named in %v", field, err)
		}
	}
}
