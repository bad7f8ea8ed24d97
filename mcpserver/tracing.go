package mcpserver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/mark3labs/mcp-go/tracing"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/skillsd/skillsd/mcpserver/wire"
	"github.com/skillsd/skillsd/provenance/telemetry"
)

// Attributes of spans and of the durations of operations, by the semantic conventions for MCP and generative
// AI. A span has no others but those that [telemetry.Counters] sets: no text of a skill, no argument, no
// output, no message of an error and nothing that only the client chose.
const (
	attrMethod    = attribute.Key("mcp.method.name")
	attrProtocol  = attribute.Key("mcp.protocol.version")
	attrTransport = attribute.Key("network.transport")     // pipe on stdio, tcp over HTTP
	attrOperation = attribute.Key("gen_ai.operation.name") // execute_tool, for tools/call
	attrTool      = attribute.Key("gen_ai.tool.name")
	attrError     = attribute.Key("error.type") // code of a denial or a plain error, or the next
	attrRPC       = attribute.Key("rpc.response.status_code")
)

// otherMethod is the name of all methods that the server does not answer.
const otherMethod = "other"

// isOwn reports whether the server answers a method itself, under its own name or under the alias that an
// override has in the library.
func isOwn(method string) bool {
	switch method {
	case methodListSkills, methodGetSkill, methodReadDirectory:
		return true
	}
	return strings.HasPrefix(method, wire.Alias(""))
}

// tracer makes one span for each request and records how long it took: for methods of the library through
// the library's tracing interface, for the server's own through traced.
type tracer struct {
	spans     trace.Tracer
	durations metric.Float64Histogram
	names     map[string]bool // methods of the library that are known
}

var _ tracing.Tracer = (*tracer)(nil)

// newTracer returns nil if there is neither a provider of spans nor one of metrics.
func newTracer(cfg Config) *tracer {
	if cfg.Traces == nil && cfg.Metrics == nil {
		return nil
	}
	spans := cmp.Or[trace.TracerProvider](cfg.Traces, tracenoop.NewTracerProvider())
	meters := cmp.Or[metric.MeterProvider](cfg.Metrics, metricnoop.NewMeterProvider())
	durations, err := meters.Meter(telemetry.Scope).Float64Histogram("mcp.server.operation.duration",
		metric.WithUnit("s"), metric.WithDescription("How long requests took, from receipt to answer."),
		// The semantic conventions give these bounds.
		metric.WithExplicitBucketBoundaries(.01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 120, 300))
	if err != nil {
		panic("mcpserver: " + err.Error()) // the name is a constant
	}
	t := &tracer{
		spans:     spans.Tracer(telemetry.Scope, trace.WithInstrumentationVersion(cfg.Version)),
		durations: durations,
		names:     map[string]bool{},
	}
	for _, method := range []mcp.MCPMethod{
		mcp.MethodInitialize, mcp.MethodPing, mcp.MethodServerDiscover, mcp.MethodSubscriptionsListen,
		mcp.MethodSetLogLevel, mcp.MethodToolsList, mcp.MethodToolsCall, mcp.MethodPromptsList,
		mcp.MethodPromptsGet, mcp.MethodCompletionComplete, mcp.MethodResourcesList,
		mcp.MethodResourcesTemplatesList, mcp.MethodResourcesRead, mcp.MethodResourcesSubscribe,
		mcp.MethodResourcesUnsubscribe,
	} {
		t.names[string(method)] = true
	}
	return t
}

// options installs t in the library.
func (t *tracer) options() []server.ServerOption {
	if t == nil {
		return nil
	}
	return []server.ServerOption{server.WithTracer(t), server.WithMetaPropagator(metaContext{})}
}

// Start implements tracing.Tracer. The library also asks for a span around the handler of a tool, which
// is the span of its request, and for one before it finds out that it does not have a method.
func (t *tracer) Start(
	ctx context.Context, name string, kind tracing.SpanKind, _ ...tracing.Attribute,
) (context.Context, tracing.Span) {
	method := strings.TrimPrefix(name, "mcp.")
	switch {
	case kind != tracing.SpanKindServer:
		return ctx, innerSpan{tracing.SpanFromContext(ctx)}
	case isOwn(method):
		return tracing.NoopTracer().Start(ctx, name, kind)
	case !t.names[method]:
		method = otherMethod
	}
	return t.start(ctx, method)
}

func (t *tracer) start(ctx context.Context, method string) (context.Context, *span) {
	s := &span{ctx: ctx, method: method, begun: time.Now(), durations: t.durations}
	ctx, s.otel = t.spans.Start(ctx, method, trace.WithSpanKind(trace.SpanKindServer))
	s.set(attrMethod.String(method))
	if _, remote := principalOf(ctx); remote {
		s.set(attrTransport.String("tcp"))
	} else {
		s.set(attrTransport.String("pipe"))
	}
	return tracing.ContextWithSpan(ctx, s), s
}

// traced puts a span around each of the methods.
func (t *tracer) traced(methods wire.Methods) wire.Methods {
	if t == nil {
		return methods
	}
	all := make(wire.Methods, len(methods))
	for name, method := range methods {
		all[name] = func(ctx context.Context, r *wire.Request) (any, error) {
			ctx, span := t.start(paramsContext(ctx, r.Params), name)
			defer span.End()
			result, err := method(ctx, r)
			if err != nil {
				code := mcp.INTERNAL_ERROR
				if public, ok := errors.AsType[*wire.Error](err); ok {
					code = public.Code
				}
				span.rpc = strconv.Itoa(code)
				span.SetStatus(tracing.StatusError, "")
			}
			return result, err
		}
	}
	return all
}

// span is the span of a request, and its duration. It passes on no text: what the library would put into it
// may be what a client sent or a skill says. One goroutine uses it at a time.
type span struct {
	ctx        context.Context // of the request, for the end
	otel       trace.Span
	durations  metric.Float64Histogram
	begun      time.Time
	method     string
	attributes []attribute.KeyValue
	failed     bool
	code, rpc  string // of the failure, as far as they are known
}

// SetAttributes implements tracing.Span.
func (s *span) SetAttributes(attrs ...tracing.Attribute) {
	for _, a := range attrs {
		if a.Key == "mcp.tool.name" {
			// The library has looked the tool up by then.
			s.otel.SetName(s.method + " " + a.Value)
			s.set(attrTool.String(a.Value), attrOperation.String("execute_tool"))
		}
	}
}

// RecordError implements tracing.Span.
func (s *span) RecordError(error) {}

// SetStatus implements tracing.Span.
func (s *span) SetStatus(code tracing.StatusCode, _ string) {
	s.failed = s.failed || code == tracing.StatusError
}

// End implements tracing.Span.
func (s *span) End() {
	// A client may name any version, and a label needs few values.
	if version := wire.ClientOf(s.ctx).Version; slices.Contains(ProtocolVersions(), version) {
		s.set(attrProtocol.String(version))
	}
	if s.rpc != "" {
		s.set(attrRPC.String(s.rpc))
	}
	if s.failed {
		// The code of an error that the library answers with itself does not reach the span.
		s.set(attrError.String(cmp.Or(s.code, s.rpc, "_OTHER")))
		s.otel.SetStatus(codes.Error, "")
	}
	s.durations.Record(s.ctx, time.Since(s.begun).Seconds(), metric.WithAttributes(s.attributes...))
	s.otel.End()
}

// set adds attributes to the span and to its duration, so all of them have few values.
func (s *span) set(attrs ...attribute.KeyValue) {
	s.attributes = append(s.attributes, attrs...)
	s.otel.SetAttributes(attrs...)
}

// innerSpan is a span that ends with another one.
type innerSpan struct{ tracing.Span }

// End implements tracing.Span.
func (innerSpan) End() {}

// traceFailure marks the span of a request, if it has one, with the code of a denial or a plain error.
func traceFailure(ctx context.Context, code string) {
	if s, ok := tracing.SpanFromContext(ctx).(*span); ok {
		s.code, s.failed = code, true
	}
}

// metaContext reads the trace context of a request from its _meta.
type metaContext struct{}

// InjectMeta implements tracing.MetaPropagator; the server calls nobody.
func (metaContext) InjectMeta(_ context.Context, meta *mcp.Meta) *mcp.Meta { return meta }

// ExtractMeta implements tracing.MetaPropagator.
func (metaContext) ExtractMeta(ctx context.Context, meta *mcp.Meta) context.Context {
	if meta == nil {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, carrier(meta.AdditionalFields))
}

// paramsContext is ExtractMeta for a request that only the server's own methods read.
func paramsContext(ctx context.Context, params json.RawMessage) context.Context {
	var p struct {
		Meta carrier `json:"_meta"`
	}
	if len(params) == 0 || json.Unmarshal(params, &p) != nil {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, p.Meta)
}

// headerContext reads the trace context of an HTTP request from its headers. A trace context in _meta comes
// before it.
func (t *tracer) headerContext(r *http.Request) context.Context {
	if t == nil {
		return r.Context()
	}
	return propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
}

// carrier is a _meta object.
type carrier map[string]any

// Get implements propagation.TextMapCarrier.
func (c carrier) Get(key string) string {
	value, _ := c[key].(string)
	return value
}

// Set implements propagation.TextMapCarrier; nothing is written to a request.
func (carrier) Set(string, string) {}

// Keys implements propagation.TextMapCarrier.
func (carrier) Keys() []string { return []string{"traceparent", "tracestate"} }
