package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/mark3labs/mcp-go/tracing"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/mcpserver/wire"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

// Attributes of spans. There are no others: a span holds no text of a skill, no argument, no output and
// no message of an error.
const (
	attrMethod  = attribute.Key("mcp.method.name")
	attrTool    = attribute.Key("gen_ai.tool.name")
	attrError   = attribute.Key("error.type") // code of a denial or a plain error
	attrRPC     = attribute.Key("rpc.jsonrpc.error_code")
	attrSession = attribute.Key("skillsd.session")
	attrSkill   = attribute.Key("skillsd.skill")
	attrOutcome = attribute.Key("skillsd.outcome") // of a script that started
)

// otherMethod stands for names that nothing here answers to.
const otherMethod = "other"

// answers reports whether the server answers a method itself, under its own name or the alias that an
// override has in the library.
func (s *Server) answers(method string) bool {
	return s.methods()[method] != nil || strings.HasPrefix(method, wire.Alias(""))
}

// tracer makes one span for each request: for methods of the library through its tracing interface,
// for the server's own through traced.
type tracer struct {
	spans trace.Tracer
	names map[string]bool // methods of the library that are known
	own   func(method string) bool
}

var _ tracing.Tracer = (*tracer)(nil)

func newTracer(provider trace.TracerProvider, version string, own func(method string) bool) *tracer {
	names := map[string]bool{}
	for _, method := range []mcp.MCPMethod{
		mcp.MethodInitialize, mcp.MethodPing, mcp.MethodServerDiscover, mcp.MethodSubscriptionsListen, mcp.MethodSetLogLevel,
		mcp.MethodToolsList, mcp.MethodToolsCall, mcp.MethodPromptsList, mcp.MethodPromptsGet, mcp.MethodCompletionComplete,
		mcp.MethodResourcesList, mcp.MethodResourcesTemplatesList, mcp.MethodResourcesRead, mcp.MethodResourcesSubscribe, mcp.MethodResourcesUnsubscribe,
	} {
		names[string(method)] = true
	}
	return &tracer{spans: provider.Tracer("github.com/skillsd/skillsd/mcpserver", trace.WithInstrumentationVersion(version)), names: names, own: own}
}

// options installs t in the library.
func (t *tracer) options() []server.ServerOption {
	if t == nil {
		return nil
	}
	return []server.ServerOption{server.WithTracer(t), server.WithMetaPropagator(metaContext{})}
}

// Start implements tracing.Tracer. The library also asks for a span around the handler of a tool, which
// is that of its request, and for one before it finds out that it does not have a method.
func (t *tracer) Start(ctx context.Context, name string, kind tracing.SpanKind, _ ...tracing.Attribute) (context.Context, tracing.Span) {
	method := strings.TrimPrefix(name, "mcp.")
	switch {
	case kind != tracing.SpanKindServer:
		return ctx, part{tracing.SpanFromContext(ctx)}
	case t.own(method):
		return tracing.NoopTracer().Start(ctx, name, kind)
	case !t.names[method]:
		method = otherMethod
	}
	return t.start(ctx, method)
}

func (t *tracer) start(ctx context.Context, method string) (context.Context, *span) {
	ctx, made := t.spans.Start(ctx, method, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attrMethod.String(method)))
	s := &span{made, method}
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
				span.set(attrRPC.Int(code))
				span.SetStatus(tracing.StatusError, "")
			}
			return result, err
		}
	}
	return all
}

// span is the span of a request. It passes on no text: what the library would put into it may be what
// a client sent or a skill says.
type span struct {
	otel   trace.Span
	method string
}

// SetAttributes implements tracing.Span.
func (s *span) SetAttributes(attrs ...tracing.Attribute) {
	for _, a := range attrs {
		if a.Key == "mcp.tool.name" {
			// The library has looked the tool up by then.
			s.otel.SetName(s.method + " " + a.Value)
			s.set(attrTool.String(a.Value))
		}
	}
}

// RecordError implements tracing.Span.
func (s *span) RecordError(error) {}

// SetStatus implements tracing.Span.
func (s *span) SetStatus(code tracing.StatusCode, _ string) {
	if code == tracing.StatusError {
		s.otel.SetStatus(codes.Error, "")
	}
}

// End implements tracing.Span.
func (s *span) End() { s.otel.End() }

func (s *span) set(attrs ...attribute.KeyValue) { s.otel.SetAttributes(attrs...) }

// part is a span that ends with another one.
type part struct{ tracing.Span }

// End implements tracing.Span.
func (part) End() {}

// traceCode marks the span of a request, if it has one, with the code of the error it is answered with.
func traceCode(ctx context.Context, code session.Code) {
	if s, ok := tracing.SpanFromContext(ctx).(*span); ok {
		s.set(attrError.String(string(code)))
		s.SetStatus(tracing.StatusError, "")
	}
}

// TraceRecords returns a store that appends to records and tells the span of the request, if it has
// one, what was recorded: session, skill, code of a denial, outcome of a script. A call that failed may
// have named anything, so its skill is told only when serves reports that it is served.
func TraceRecords(records provenance.Store, serves func(path string) bool) provenance.Store {
	return &tracedRecords{records, serves}
}

type tracedRecords struct {
	provenance.Store
	serves func(path string) bool
}

// Append implements provenance.Store.
func (t *tracedRecords) Append(ctx context.Context, e *provenance.Event) error {
	err := t.Store.Append(ctx, e)
	if s, ok := tracing.SpanFromContext(ctx).(*span); ok && err == nil && s.otel.IsRecording() {
		t.tell(s, e)
	}
	return err
}

func (t *tracedRecords) tell(s *span, e *provenance.Event) {
	s.set(attrSession.String(e.Session))
	denied := e.Kind == provenance.KindPolicyDenied
	if e.Skill != "" && (!denied && e.ErrorCode() == "" || t.serves(e.Skill)) {
		s.set(attrSkill.String(e.Skill))
	}
	var row struct {
		Denied  cfharness.ObservationDenied `json:"observationDenied"`
		Error   cfharness.RecordError       `json:"error"`
		Skillsd cfharness.RunExtension      `json:"skillsd"`
	}
	switch e.Kind {
	case provenance.KindPolicyDenied, provenance.KindScriptExecuted:
		if json.Unmarshal(e.Row, &row) != nil {
			return
		}
	}
	if denied {
		s.set(attrError.String(row.Denied.Code))
		s.SetStatus(tracing.StatusError, "")
	}
	if row.Skillsd.Outcome != "" {
		s.set(attrOutcome.String(string(row.Skillsd.Outcome)))
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

// headerContext reads the trace context of an HTTP request from its headers. That of _meta comes
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
