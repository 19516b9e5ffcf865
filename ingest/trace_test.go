package ingest

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/forebaymq/forebay/objectstore"
)

// A flush is a span of its own, with one child a phase, linked to the sampled requests that it carries.
func TestSpansOfAFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec := tracetest.NewSpanRecorder()
		tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(rec))
		f := start(t, func(o *Options) { o.TracerProvider = tp })
		ctx, request := tp.Tracer("test").Start(t.Context(), "request")
		if _, err := f.Append(ctx, publish(topic(1, 1), []string{"v"}, 0)); err != nil {
			t.Fatal(err)
		}
		f.store.put = func(context.Context, int, string) error { return objectstore.ErrUnavailable }
		if _, err := f.Append(ctx, publish(topic(1, 1), []string{"v"}, 0)); err == nil {
			t.Fatal("stored")
		}
		request.End()
		synctest.Wait()
		var names []string
		for _, s := range rec.Ended() {
			names = append(names, s.Name()+"/"+s.Status().Code.String())
			if s.Name() == "ingest.flush" && (len(s.Links()) != 1 || s.Links()[0].SpanContext.SpanID() != request.SpanContext().SpanID()) {
				t.Errorf("links %+v", s.Links())
			}
		}
		slices.Sort(names)
		want := []string{"ingest.commit/Unset", "ingest.encode/Unset", "ingest.encode/Unset", "ingest.flush/Error", "ingest.flush/Unset",
			"ingest.upload/Error", "ingest.upload/Unset", "request/Unset"}
		if !slices.Equal(names, want) {
			t.Errorf("spans %v, want %v", names, want)
		}
	})
}
