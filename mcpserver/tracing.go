package mcpserver

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/skillsd/skillsd/mcpserver/tasks"
	"github.com/skillsd/skillsd/mcpserver/wire"
	"github.com/skillsd/skillsd/provenance/telemetry"
)

// Attributes of spans and of the durations of operations, by the semantic conventions for MCP and generative
// AI. A span has no others except those set by [telemetry.Counters]: no text of a skill, no argument, no
// output, no error message and no value that the client alone chose.
const (
	attrMethod    = attribute.Key("mcp.method.name")
	attrProtocol  = attribute.Key("mcp.protocol.version")
	attrTransport = attribute.Key("network.transport")     // pipe on stdio, tcp over HTTP
	attrOperation = attribute.Key("gen_ai.operation.name") // execute_tool, for tools/call
	attrTool      = attribute.Key("gen_ai.tool.name")
	attrPrompt    = attribute.Key("gen_ai.prompt.name")
	attrError     = attribute.Key("error.type") // code of a denial or a plain error, tool_error, or the next
	attrRPC       = attribute.Key("rpc.response.status_code")
)

// tracer makes one span for each request and records how long it took.
type tracer struct {
	spans     trace.Tracer
	durations metric.Float64Histogram
	methods   []mcp.MCPMethod // all others share one value, because a label needs few values
}

// newTracer returns nil without a provider of spans and one of metrics.
func newTracer(cfg Config) *tracer {
	if cfg.Traces == nil && cfg.Metrics == nil {
		return nil
	}
	spans := cmp.Or[trace.TracerProvider](cfg.Traces, tracenoop.NewTracerProvider())
	meters := cmp.Or[metric.MeterProvider](cfg.Metrics, metricnoop.NewMeterProvider())
	durations, err := meters.Meter(telemetry.Scope).Float64Histogram("mcp.server.operation.duration",
		metric.WithUnit("s"), metric.WithDescription("How long requests took, from receipt to answer."),
		// These bounds are from the semantic conventions.
		metric.WithExplicitBucketBoundaries(.01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 120, 300))
	if err != nil {
		// The name is a constant.
		panic("mcpserver: " + err.Error())
	}
	return &tracer{
		spans:     spans.Tracer(telemetry.Scope, trace.WithInstrumentationVersion(cfg.Version)),
		durations: durations,
		methods: []mcp.MCPMethod{
			mcp.MethodInitialize, mcp.MethodPing, mcp.MethodServerDiscover, mcp.MethodSubscriptionsListen,
			mcp.MethodSetLogLevel, mcp.MethodToolsList, mcp.MethodToolsCall, mcp.MethodPromptsList,
			mcp.MethodPromptsGet, mcp.MethodCompletionComplete, mcp.MethodResourcesList,
			mcp.MethodResourcesTemplatesList, mcp.MethodResourcesRead, mcp.MethodResourcesSubscribe,
			mcp.MethodResourcesUnsubscribe, methodListSkills, methodGetSkill, methodReadDirectory,
			tasks.MethodGet, tasks.MethodUpdate, tasks.MethodCancel,
		},
	}
}

// span is the span of a request, and its duration. It never contains texts of clients or skills. One
// goroutine uses it at a time.
type span struct {
	mu         sync.Mutex // a call that became a task outlives its span
	otel       trace.Span
	method     string
	attributes []attribute.KeyValue
	failed     bool
	code       string // of the failure, if known
}

type spanKey struct{}

// start begins the span of a request; end takes its error. A trace context in _meta takes precedence over one
// in the headers.
func (t *tracer) start(
	ctx context.Context, method string, params json.RawMessage,
) (_ context.Context, end func(*wire.Error)) {
	var p struct {
		Meta map[string]any `json:"_meta"`
	}
	if len(params) > 0 && json.Unmarshal(params, &p) == nil {
		ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{
			"traceparent": firstText(p.Meta["traceparent"]), "tracestate": firstText(p.Meta["tracestate"]),
		})
	}
	if !slices.Contains(t.methods, mcp.MCPMethod(method)) {
		method = "other"
	}
	begun, s := time.Now(), &span{method: method}
	ctx, s.otel = t.spans.Start(ctx, method, trace.WithSpanKind(trace.SpanKindServer))
	transport := "pipe"
	if _, remote := principalOf(ctx); remote {
		transport = "tcp"
	}
	s.set(attrMethod.String(method), attrTransport.String(transport))
	ctx = context.WithValue(ctx, spanKey{}, s)
	return ctx, func(failure *wire.Error) {
		// The version of an initialize request is known only at its end. A client may send any version, but a
		// label needs few values.
		version := cmp.Or(firstText(p.Meta[mcp.MetaKeyProtocolVersion]), wire.ClientOf(ctx).Version)
		if slices.Contains(ProtocolVersions(), version) {
			s.set(attrProtocol.String(version))
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if failure != nil {
			s.failed, s.code = true, cmp.Or(s.code, strconv.Itoa(failure.Code))
			s.add(attrRPC.String(strconv.Itoa(failure.Code)))
		}
		if s.failed {
			s.add(attrError.String(cmp.Or(s.code, "_OTHER")))
			s.otel.SetStatus(codes.Error, "")
		}
		t.durations.Record(ctx, time.Since(begun).Seconds(), metric.WithAttributes(s.attributes...))
		s.otel.End()
	}
}

// set adds attributes to the span and to its duration, so their values must be few.
func (s *span) set(attrs ...attribute.KeyValue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(attrs...)
}

// add is set for a caller that holds mu.
func (s *span) add(attrs ...attribute.KeyValue) {
	s.attributes = append(s.attributes, attrs...)
	s.otel.SetAttributes(attrs...)
}

// traceTool sets the tool of a request in its span. The server must have the tool.
func traceTool(ctx context.Context, tool string) {
	if s, ok := ctx.Value(spanKey{}).(*span); ok {
		s.otel.SetName(s.method + " " + tool)
		s.set(attrTool.String(tool), attrOperation.String("execute_tool"))
	}
}

// tracePrompt sets the prompt of a request in its span. The server must have the prompt. There may be many
// prompts, so the duration does not get the name.
func tracePrompt(ctx context.Context, prompt string) {
	if s, ok := ctx.Value(spanKey{}).(*span); ok {
		s.otel.SetName(s.method + " " + prompt)
		s.otel.SetAttributes(attrPrompt.String(prompt))
	}
}

// traceFailure marks the span of a request, if any, as failed, with the code of a denial or a plain error if
// known.
func traceFailure(ctx context.Context, code string) {
	if s, ok := ctx.Value(spanKey{}).(*span); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.failed, s.code = true, cmp.Or(code, s.code)
	}
}

// headerContext reads the trace context of an HTTP request from its headers.
func (t *tracer) headerContext(r *http.Request) context.Context {
	if t == nil {
		return r.Context()
	}
	return propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
}
