package node

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// tracing sends spans to a collector, or does not.
type tracing struct{ sdk *sdktrace.TracerProvider }

func newTracing(ctx context.Context, c Config) (*tracing, error) {
	if c.OTLPEndpoint == "" {
		return &tracing{}, nil
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(c.OTLPEndpoint))
	if err != nil {
		return nil, fmt.Errorf("open span exporter: %w", err)
	}
	res := resource.NewSchemaless(
		attribute.String("service.name", "forebay"), attribute.String("service.version", c.Version), attribute.String("service.instance.id", c.NodeID))
	return &tracing{sdk: sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(res))}, nil
}

// provider is nil where spans are off, as a nil interface: the packages below test for that.
func (t *tracing) provider() trace.TracerProvider {
	if t.sdk == nil {
		return nil
	}
	return t.sdk
}

func (t *tracing) stop(ctx context.Context) error {
	if t.sdk == nil {
		return nil
	}
	return t.sdk.Shutdown(ctx)
}
