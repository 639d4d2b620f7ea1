package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.26.0"
)

// startTracing exports traces if OpenTelemetry's environment variables name an endpoint
// (OpenTelemetry Environment Variable Specification). stop sends the remaining ones.
func startTracing(ctx context.Context) (stop func(), err error) {
	otel.SetTextMapPropagator(propagation.TraceContext{})
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		return func() {}, nil
	}
	exporter, err := otlptracegrpc.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("export traces: %w", err)
	}
	identity := resource.NewWithAttributes(semconv.SchemaURL, semconv.ServiceName("sluice"), semconv.ServiceVersion(version))
	provider := trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(identity))
	otel.SetTracerProvider(provider)
	return func() {
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = provider.Shutdown(patience)
	}, nil
}
