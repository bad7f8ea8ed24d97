// Package otlp sends spans to an OpenTelemetry collector: OTLP over HTTP in its JSON encoding.
//
// It guarantees that spans never hold up or fail what they describe. They wait in a queue of bounded
// size, in batches that a goroutine of the SDK posts; a span that finds the queue full and a batch that
// cannot be delivered are dropped, the latter with one line of log until a batch is delivered again.
// Nothing is retried and no redirect is followed, so headers go to the configured endpoint only.
//
// The exporter of the OpenTelemetry project would do more, protobuf and gRPC among it, and links 22
// modules and 10 MB for it, whose initialization each start of the binary pays. The sandbox starts the
// binary again for each script. The JSON encoding is part of the same specification, and collectors
// take it on the same port and path.
//
//	cfg, err := otlp.FromEnv(os.LookupEnv)
//	if err == nil && cfg != nil {
//		traces, err := otlp.Open(ctx, *cfg)
//		…
//		defer traces.Close(ctx)
//	}
package otlp

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Limits of what is kept and sent.
const (
	maxQueue   = 2048 // spans
	maxBatch   = 512  // spans
	maxValue   = 256  // bytes of an attribute
	maxReply   = 64 << 10
	closeAfter = 2 * time.Second
)

// Config says where spans go.
type Config struct {
	Endpoint string        // URL that spans are posted to
	Headers  http.Header   // sent with each batch; secrets, as a rule
	Timeout  time.Duration // of one batch
	Service  string        // service.name, unless the environment has another
	Version  string        // service.version
	Logger   *slog.Logger  // nil discards
}

// Traces makes spans and sends them. It is safe for concurrent use; make one with Open.
type Traces struct {
	provider *sdk.TracerProvider
	client   *http.Client
}

// Open returns Traces that send to cfg.Endpoint. Nothing is sent before the first span has ended.
// The SDK reads OTEL_RESOURCE_ATTRIBUTES, OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER and OTEL_BSP_* from
// the environment.
//
// Errors: resource attributes in the environment that cannot be read.
func Open(ctx context.Context, cfg Config) (*Traces, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	about, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", cfg.Service), attribute.String("service.version", cfg.Version)),
		resource.WithFromEnv(), resource.WithTelemetrySDK(),
	)
	if err != nil {
		return nil, fmt.Errorf("resource attributes of traces: %w", err)
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: cfg.Timeout, MaxIdleConns: 1, IdleConnTimeout: time.Minute}
	client := &http.Client{Transport: transport, Timeout: cfg.Timeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	limits := sdk.NewSpanLimits()
	limits.AttributeValueLengthLimit = maxValue
	provider := sdk.NewTracerProvider(
		sdk.WithResource(about),
		sdk.WithRawSpanLimits(limits),
		sdk.WithoutPanicRecording(),
		sdk.WithBatcher(&exporter{cfg: cfg, client: client}, sdk.WithMaxQueueSize(maxQueue), sdk.WithMaxExportBatchSize(maxBatch), sdk.WithExportTimeout(cfg.Timeout)),
	)
	return &Traces{provider, client}, nil
}

// Provider is where spans come from.
func (t *Traces) Provider() trace.TracerProvider { return t.provider }

// Close sends what waits, for two seconds at most. Spans that end later are dropped.
func (t *Traces) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, closeAfter)
	defer cancel()
	// All that can go wrong is that spans are lost, which the exporter has logged.
	_ = t.provider.Shutdown(ctx)
	t.client.CloseIdleConnections()
}
