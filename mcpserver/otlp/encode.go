package otlp

import (
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// The types below are ExportTraceServiceRequest of the OTLP specification in its JSON encoding: ids are
// hexadecimal, 64-bit numbers are strings, enumerations are numbers. What skillsd's spans do not have,
// events and links, is not sent.
type (
	requestJSON struct {
		ResourceSpans []resourceSpansJSON `json:"resourceSpans"`
	}
	resourceSpansJSON struct {
		Resource   resourceJSON     `json:"resource"`
		ScopeSpans []scopeSpansJSON `json:"scopeSpans"`
	}
	resourceJSON struct {
		Attributes []attributeJSON `json:"attributes"`
	}
	scopeSpansJSON struct {
		Scope scopeJSON  `json:"scope"`
		Spans []spanJSON `json:"spans"`
	}
	scopeJSON struct {
		Name    string `json:"name"`
		Version string `json:"version,omitempty"`
	}
	spanJSON struct {
		TraceID    string          `json:"traceId"`
		SpanID     string          `json:"spanId"`
		TraceState string          `json:"traceState,omitempty"`
		Parent     string          `json:"parentSpanId,omitempty"`
		Flags      uint32          `json:"flags"`
		Name       string          `json:"name"`
		Kind       int             `json:"kind"`
		Start      string          `json:"startTimeUnixNano"`
		End        string          `json:"endTimeUnixNano"`
		Attributes []attributeJSON `json:"attributes,omitempty"`
		Status     statusJSON      `json:"status"`
	}
	statusJSON struct {
		Code int `json:"code,omitempty"`
	}
	attributeJSON struct {
		Key   string    `json:"key"`
		Value valueJSON `json:"value"`
	}
	valueJSON struct {
		String *string  `json:"stringValue,omitempty"`
		Bool   *bool    `json:"boolValue,omitempty"`
		Int    *string  `json:"intValue,omitempty"`
		Double *float64 `json:"doubleValue,omitempty"`
	}
)

// Bits of a span's flags beside those of the W3C, and its status.
const (
	flagParentKnown  = 0x100 // whether the parent is remote is known
	flagParentRemote = 0x200
	statusOK         = 1
	statusError      = 2
)

// encode puts spans of one provider under its resource and their scopes. There is at least one.
func encode(spans []sdk.ReadOnlySpan) requestJSON {
	out := resourceSpansJSON{Resource: resourceJSON{attributesOf(spans[0].Resource().Attributes())}}
	at := map[scopeJSON]int{}
	for _, span := range spans {
		scope := scopeJSON{span.InstrumentationScope().Name, span.InstrumentationScope().Version}
		i, ok := at[scope]
		if !ok {
			i = len(out.ScopeSpans)
			at[scope] = i
			out.ScopeSpans = append(out.ScopeSpans, scopeSpansJSON{Scope: scope})
		}
		out.ScopeSpans[i].Spans = append(out.ScopeSpans[i].Spans, encodeSpan(span))
	}
	return requestJSON{[]resourceSpansJSON{out}}
}

func encodeSpan(span sdk.ReadOnlySpan) spanJSON {
	self, parent := span.SpanContext(), span.Parent()
	out := spanJSON{
		TraceID: self.TraceID().String(), SpanID: self.SpanID().String(), TraceState: self.TraceState().String(),
		Flags: uint32(self.TraceFlags()) | flagParentKnown, Name: span.Name(), Kind: int(span.SpanKind()),
		Start: nanoseconds(span.StartTime()), End: nanoseconds(span.EndTime()), Attributes: attributesOf(span.Attributes()),
	}
	if parent.SpanID().IsValid() {
		out.Parent = parent.SpanID().String()
	}
	if parent.IsRemote() {
		out.Flags |= flagParentRemote
	}
	switch span.Status().Code {
	case codes.Ok:
		out.Status.Code = statusOK
	case codes.Error:
		out.Status.Code = statusError
	}
	return out
}

func nanoseconds(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

func attributesOf(list []attribute.KeyValue) []attributeJSON {
	out := make([]attributeJSON, 0, len(list))
	for _, kv := range list {
		out = append(out, attributeJSON{string(kv.Key), valueOf(kv.Value)})
	}
	return out
}

// valueOf encodes lists, which skillsd sets none of, as the text the SDK makes of them.
func valueOf(v attribute.Value) valueJSON {
	switch v.Type() {
	case attribute.BOOL:
		return valueJSON{Bool: new(v.AsBool())}
	case attribute.INT64:
		return valueJSON{Int: new(strconv.FormatInt(v.AsInt64(), 10))}
	case attribute.FLOAT64:
		return valueJSON{Double: new(v.AsFloat64())}
	}
	return valueJSON{String: new(v.String())}
}
