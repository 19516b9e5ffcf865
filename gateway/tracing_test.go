package gateway

import (
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/segment"
)

const (
	parent  = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	traceID = "0af7651916cd43dd8448eb211c80319c"
)

// headersOf gives the headers of the record published last.
func (n *node) headersOf(record int) map[string]string {
	reqs := n.f.requests()
	out := map[string]string{}
	for _, h := range reqs[len(reqs)-1].Topics[0].Records[record].Headers {
		out[h.Name] += h.Value
	}
	return out
}

func TestTraceContextIsKeptInRecords(t *testing.T) {
	n := start(t, nil) // without a tracer the caller's context goes on as it is
	n.f.topic("orders", nil)
	body := `{"records":[{"text":"a"},{"text":"b","headers":[["traceparent","own"]]}]}`
	n.call("POST", "/v1/topics/orders/records", body, header("traceparent", parent), header("tracestate", "v=1")).ok(200, nil)
	if h := n.headersOf(0); h["traceparent"] != parent || h["tracestate"] != "v=1" {
		t.Errorf("headers %v", h)
	}
	if h := n.headersOf(1); len(h) != 1 || h["traceparent"] != "own" {
		t.Errorf("a record's own trace is changed: %v", h)
	}
	for _, bad := range []string{"", "nonsense", "00-00000000000000000000000000000000-0000000000000000-01"} {
		n.call("POST", "/v1/topics/orders/records", body, header("traceparent", bad)).ok(200, nil)
		if h := n.headersOf(0); len(h) != 0 {
			t.Errorf("traceparent %q: headers %v", bad, h)
		}
	}
}

func TestSpans(t *testing.T) {
	for _, c := range []struct {
		mode    RecordTrace
		carried bool
		kept    bool
	}{
		{RecordTraceCarried, true, true}, {RecordTraceCarried, false, false}, {RecordTraceAlways, false, true}, {RecordTraceNever, true, false},
	} {
		rec := tracetest.NewSpanRecorder()
		n := start(t, func(o *Options) {
			o.TracerProvider, o.RecordTrace = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(rec)), c.mode
		})
		n.f.topic("orders", nil)
		send := ""
		if c.carried {
			send = parent
		}
		n.call("POST", "/v1/topics/orders/records", `{"records":[{"text":"a"}]}`, header("traceparent", send)).ok(200, nil)
		n.call("GET", "/v1/topics/missing", "").problem(404, "UNKNOWN_TOPIC")
		n.f.failWith("Sync", api.Errorf(api.CodeMetadataUnavailable, "no quorum"))
		n.call("GET", "/v1/topics", "").problem(503, "METADATA_UNAVAILABLE")
		n.inFlight.wait()
		spans := rec.Ended()
		if len(spans) != 3 {
			t.Fatalf("%d spans", len(spans))
		}
		s := spans[0]
		if s.Name() != "POST /v1/topics/:topic/records" || s.SpanKind() != trace.SpanKindServer || c.carried != (s.Parent().TraceID().String() == traceID) {
			t.Errorf("span %s, parent %s", s.Name(), s.Parent().TraceID())
		}
		if got := spans[2].Status(); got.Description != "METADATA_UNAVAILABLE" {
			t.Errorf("status of a failure: %+v", got)
		}
		tp := n.headersOf(0)["traceparent"]
		if (tp != "") != c.kept || c.kept && !strings.Contains(tp, s.SpanContext().SpanID().String()) {
			t.Errorf("%s, carried %v: traceparent %q", c.mode, c.carried, tp)
		}
	}
}

func TestAddTraceRespectsTheLimits(t *testing.T) {
	hs := []segment.Header{{Name: "traceparent", Value: parent}}
	many := make([]segment.Header, api.MaxHeaders)
	for i := range many {
		many[i] = segment.Header{Name: "n", Value: "v"}
	}
	records := []segment.Record{
		{Headers: many},
		{Headers: []segment.Header{{Name: "n", Value: strings.Repeat("v", api.MaxHeaderBytes-1)}}},
		{Value: make([]byte, api.MaxRecordBytes-10)},
		{Value: []byte("x")},
	}
	shared := []segment.Header{{Name: "a"}, {Name: "b"}}
	records = append(records, segment.Record{Headers: shared[:1]}, segment.Record{Headers: shared[1:2]})
	addTrace(records, hs)
	for i, want := range []int{api.MaxHeaders, 1, 0, 1, 2, 2} {
		if got := len(records[i].Headers); got != want {
			t.Errorf("record %d has %d headers, want %d", i, got, want)
		}
	}
	if records[5].Headers[0].Name != "b" {
		t.Error("a neighbour's headers were overwritten")
	}
}
