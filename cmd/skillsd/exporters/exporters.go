// Package exporters sets up the export of OpenTelemetry metrics and spans: a page in the Prometheus format,
// and OTLP over HTTP to the collector in the OTEL_* variables.
//
// Guarantees:
//   - telemetry never delays or fails the calls it describes: spans and metrics wait in bounded queues, and
//     data that cannot be delivered is dropped, with one line of log until a delivery succeeds again;
//   - headers go to the configured endpoint only, because redirects are not followed, and by the scheme of
//     the endpoint only: as in the specification, OTEL_EXPORTER_OTLP_INSECURE is for gRPC;
//   - values of variables are not logged, since they may be secrets.
//
// The exporters of OpenTelemetry for OTLP over HTTP link gRPC and its gateway, whose initialization took a
// tenth of each start of the server and a fifth of its binary (open-telemetry/opentelemetry-go#2579). So
// requests are sent, and metrics converted, here. The messages, their encoding and the conversion of spans
// are the official ones, and a test compares both with the official exporters.
//
// Traces are sent if OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set, unless
// OTEL_SDK_DISABLED is true or OTEL_TRACES_EXPORTER does not name otlp; the same goes for METRICS. The other
// variables of the exporter are read here; the SDK reads its own. The protocol grpc is not offered.
package exporters

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/lmittmann/tint"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

const maxAttribute = 256 // bytes of an attribute of a span

// Options configure Open.
type Options struct {
	// Env looks up a variable of the environment.
	Env        func(name string) (value string, ok bool)
	Version    string             // the service.version of the resource
	Prometheus bool               // serve the page
	Producer   sdkmetric.Producer // adds metrics without an instrument
	Logger     *slog.Logger
}

// Exporters send metrics and spans. They are safe for concurrent use; make them with Open.
type Exporters struct {
	Meters metric.MeterProvider // nil without a reader of metrics
	Traces trace.TracerProvider // nil if no traces are sent
	Page   http.Handler         // of Prometheus; nil without Options.Prometheus

	shutdown []func(context.Context) error
}

// Open starts the exports requested by opts and the environment. An invalid value in the environment disables
// telemetry and not the server: it is logged.
//
// Errors: the errors of the registry of Prometheus.
func Open(ctx context.Context, opts Options) (*Exporters, error) {
	x := &Exporters{}
	sendTraces, sendMetrics := opts.sends(ctx, "TRACES"), opts.sends(ctx, "METRICS")
	if !sendTraces && !sendMetrics && !opts.Prometheus {
		return x, nil
	}
	// Otherwise the SDK writes to stderr, past the log.
	otel.SetLogger(logr.FromSlogHandler(problems{opts.Logger}))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		// The rest of the text may quote a variable.
		problem, _, _ := strings.Cut(err.Error(), ":")
		opts.Logger.WarnContext(ctx, "telemetry is not complete", slog.String("problem", problem))
	}))
	about, err := resource.New(ctx,
		resource.WithAttributes(
			attribute.String("service.name", "skillsd"), attribute.String("service.version", opts.Version)),
		resource.WithFromEnv(), resource.WithTelemetrySDK(),
	)
	if err != nil {
		opts.Logger.WarnContext(ctx, "some attributes of OTEL_RESOURCE_ATTRIBUTES are not sent",
			slog.String("hint", "write name=value,name=value"))
	}
	if sendTraces {
		if provider := opts.tracer(ctx, about); provider != nil {
			x.Traces, x.shutdown = provider, append(x.shutdown, provider.Shutdown)
		}
	}
	var readers []sdkmetric.Option
	if sendMetrics {
		if reader := opts.metricReader(ctx); reader != nil {
			readers = append(readers, sdkmetric.WithReader(reader))
		}
	}
	if opts.Prometheus {
		page, reader, err := prometheusPage(opts)
		if err != nil {
			// The exporter of traces has started already, and its goroutines would stay.
			x.Close(ctx)
			return nil, fmt.Errorf("open the page of metrics: %w", err)
		}
		x.Page, readers = page, append(readers, sdkmetric.WithReader(reader))
	}
	if len(readers) > 0 {
		// Labels are limited where they are created, so that the most used ones keep their own series.
		all := append(readers, sdkmetric.WithResource(about), sdkmetric.WithCardinalityLimit(0))
		provider := sdkmetric.NewMeterProvider(all...)
		x.Meters, x.shutdown = provider, append(x.shutdown, provider.Shutdown)
	}
	return x, nil
}

// tracer returns a provider that sends spans; nil, with a warning, if the environment describes none.
func (o *Options) tracer(ctx context.Context, about *resource.Resource) *sdktrace.TracerProvider {
	exporter, err := o.spanSender(ctx)
	if err != nil {
		o.Logger.WarnContext(ctx, "no traces are sent", tint.Err(err))
		return nil
	}
	// By default the SDK does not limit the length of a value.
	limits := sdktrace.NewSpanLimits()
	limits.AttributeValueLengthLimit = maxAttribute
	return sdktrace.NewTracerProvider(
		sdktrace.WithResource(about), sdktrace.WithRawSpanLimits(limits),
		sdktrace.WithoutPanicRecording(),
		sdktrace.WithBatcher(&spanExporter{exporter, deliveries{what: "traces", logger: o.Logger}}),
	)
}

// metricReader returns a reader that sends metrics; nil, with a warning, if the environment describes none.
func (o *Options) metricReader(ctx context.Context) sdkmetric.Reader {
	exporter, err := o.metricSender(ctx)
	if err != nil {
		o.Logger.WarnContext(ctx, "no metrics are sent", tint.Err(err))
		return nil
	}
	reporting := &metricExporter{exporter, deliveries{what: "metrics", logger: o.Logger}}
	return sdkmetric.NewPeriodicReader(reporting, sdkmetric.WithProducer(o.Producer))
}

// prometheusPage returns a page with the metrics of the reader, of the Go runtime and of the process.
func prometheusPage(opts Options) (http.Handler, sdkmetric.Reader, error) {
	// The default registry is not used: linked packages may have registered anything in it.
	registry := prometheus.NewRegistry()
	reader, err := otelprometheus.New(
		otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo(),
		otelprometheus.WithoutTargetInfo(), otelprometheus.WithProducer(opts.Producer),
	)
	if err != nil {
		return nil, nil, err
	}
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	page := promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(opts.Logger.Handler(), slog.LevelDebug),
		// One collector that fails must not hide the metrics of the others.
		ErrorHandling: promhttp.ContinueOnError,
	})
	return page, reader, nil
}

// Close flushes waiting spans and metrics for at most two seconds. Later ones are dropped.
func (x *Exporters) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	for _, shutdown := range x.shutdown {
		// Errors mean lost telemetry, which is logged where it happens.
		_ = shutdown(ctx)
	}
}

// spanExporter logs failed deliveries itself.
type spanExporter struct {
	sdktrace.SpanExporter
	deliveries deliveries
}

func (x *spanExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	// The SDK would log each error that is returned, once per batch.
	x.deliveries.report(ctx, x.SpanExporter.ExportSpans(ctx, spans))
	return nil
}

// metricExporter logs failed deliveries itself.
type metricExporter struct {
	sdkmetric.Exporter
	deliveries deliveries
}

func (x *metricExporter) Export(ctx context.Context, metrics *metricdata.ResourceMetrics) error {
	// The SDK would log each error that is returned, once per interval.
	x.deliveries.report(ctx, x.Exporter.Export(ctx, metrics))
	return nil
}

// deliveries logs the first of several failures in a row, and the success after them.
type deliveries struct {
	what    string
	logger  *slog.Logger
	failing atomic.Bool
}

func (d *deliveries) report(ctx context.Context, err error) {
	failed := err != nil
	switch before := d.failing.Swap(failed); {
	case failed && !before:
		d.logger.WarnContext(ctx, d.what+" are not delivered", tint.Err(withoutURLs(err)))
	case !failed && before:
		d.logger.InfoContext(ctx, d.what+" are delivered again")
	}
}

// withoutURLs removes URLs, which may contain a secret, from an error and truncates it to a line, because it
// may quote the collector's answer.
func withoutURLs(err error) error {
	words := strings.Fields(err.Error())
	for i, word := range words {
		if strings.Contains(word, "://") {
			words[i] = "URL"
		}
	}
	return fmt.Errorf("%.300s", strings.Join(words, " "))
}

// problems is a handler for the SDK's own log. It drops the attributes of errors, which quote variables.
type problems struct{ logger *slog.Logger }

func (problems) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelError }
func (p problems) WithAttrs([]slog.Attr) slog.Handler             { return p }
func (p problems) WithGroup(string) slog.Handler                  { return p }

func (p problems) Handle(ctx context.Context, r slog.Record) error {
	p.logger.WarnContext(ctx, "an OTEL_* variable is not used", slog.String("problem", r.Message))
	return nil
}
