package gateway

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/segment"
)

// Names of the W3C trace context, in HTTP and in record headers.
const (
	headerTraceParent = "traceparent"
	headerTraceState  = "tracestate"
)

// startSpan takes up the caller's trace and, where there is a tracer, begins the span of the request. Without either it costs one map
// lookup. carried says whether the request came with a valid trace context.
func (s *Server) startSpan(r *http.Request, route string) (ctx context.Context, span trace.Span, carried bool) {
	ctx = r.Context()
	if len(r.Header["Traceparent"]) > 0 {
		ctx = propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(r.Header))
		carried = trace.SpanContextFromContext(ctx).IsValid()
	}
	if s.tracer == nil {
		return ctx, nil, carried
	}
	ctx, span = s.tracer.Start(ctx, r.Method+" "+route, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		attribute.String("http.request.method", r.Method),
		attribute.String("http.route", route),
	))
	return ctx, span, carried
}

func endSpan(span trace.Span, status int, code, requestID string) {
	span.SetAttributes(attribute.Int("http.response.status_code", status), attribute.String("forebay.request_id", requestID))
	if code != "" {
		span.SetAttributes(attribute.String("error.type", code))
	}
	if status >= 500 {
		span.SetStatus(codes.Error, code)
	}
	span.End()
}

// traceHeaders gives the record headers that carry the trace of the request on to whoever reads the record, or nil.
func (rq *request) traceHeaders() []segment.Header {
	switch rq.s.o.RecordTrace {
	case RecordTraceNever:
		return nil
	case RecordTraceCarried:
		if !rq.traced {
			return nil
		}
	}
	if !trace.SpanContextFromContext(rq.ctx).IsValid() {
		return nil
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(rq.ctx, carrier)
	hs := []segment.Header{{Name: headerTraceParent, Value: carrier[headerTraceParent]}}
	if st := carrier[headerTraceState]; st != "" {
		hs = append(hs, segment.Header{Name: headerTraceState, Value: st})
	}
	return hs
}

// addTrace puts the trace headers into each record that has no traceparent of its own. A record at the limit of headers goes without:
// the trace is a courtesy, the record is not. It runs after the size check of the topic, which is about what the client sent.
func addTrace(records []segment.Record, hs []segment.Header) {
	if len(hs) == 0 {
		return
	}
	extra := 0
	for _, h := range hs {
		extra += len(h.Name) + len(h.Value)
	}
	for i := range records {
		r := &records[i]
		size := len(r.Key) + len(r.Value)
		headers, has := 0, false
		for _, h := range r.Headers {
			has = has || h.Name == headerTraceParent
			headers += len(h.Name) + len(h.Value)
		}
		if has || len(r.Headers)+len(hs) > api.MaxHeaders || headers+extra > api.MaxHeaderBytes || size+headers+extra > api.MaxRecordBytes {
			continue
		}
		// Cut to length: the decoder may have let neighbouring records share one backing array.
		r.Headers = append(r.Headers[:len(r.Headers):len(r.Headers)], hs...)
	}
}
