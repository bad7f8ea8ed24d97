package mcpserver

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/skillsd/skillsd/e2e/testtree"
	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/provenance/telemetry"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/store"
)

// observed is what a server sends of itself: spans, and durations of operations.
type observed struct {
	spans   *tracetest.SpanRecorder
	reader  *metric.ManualReader
	traces  *sdktrace.TracerProvider
	metrics *metric.MeterProvider
}

func observe() *observed {
	o := &observed{spans: tracetest.NewSpanRecorder(), reader: metric.NewManualReader()}
	o.traces = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(o.spans))
	o.metrics = metric.NewMeterProvider(metric.WithReader(o.reader))
	return o
}

// span returns the one span with the parent of that id.
func (o *observed) span(t *testing.T, parent string) sdktrace.ReadOnlySpan {
	t.Helper()
	var found []sdktrace.ReadOnlySpan
	for _, s := range o.spans.Ended() {
		if s.Parent().SpanID().String() == parent {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d spans have the parent %s", len(found), parent)
	}
	return found[0]
}

func attributesOf(list []attribute.KeyValue) map[string]string {
	all := map[string]string{}
	for _, kv := range list {
		all[string(kv.Key)] = kv.Value.String()
	}
	return all
}

// durations are the attributes of the durations of operations, sorted as text, and how many there are.
func (o *observed) durations(t *testing.T) map[string]uint64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := o.reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	found := map[string]uint64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != "mcp.server.operation.duration" || m.Unit != "s" {
				continue
			}
			for _, point := range m.Data.(metricdata.Histogram[float64]).DataPoints {
				found[point.Attributes.Encoded(attribute.DefaultEncoder())] = point.Count
			}
		}
	}
	return found
}

// tracedServer serves a skill and observes it, unless o is nil.
func tracedServer(t testing.TB, o *observed) *Server {
	t.Helper()
	root, state := t.TempDir(), t.TempDir()
	testtree.Write(t, root, map[string]string{
		"demo/SKILL.md": "---\nname: demo\ndescription: A skill for tests.\n---\nSECRET-BODY\n",
		"demo/notes.md": "SECRET-FILE\n",
	})
	trees, err := store.Open(state)
	if err != nil {
		t.Fatal(err)
	}
	registry := skills.NewRegistry([]skills.Root{{Dir: root}}, nil)
	pol, logger := policy.New(policy.Config{Tools: ReadMethods()}), slog.New(slog.DiscardHandler)
	cfg := Config{Version: "test", Registry: registry, Logger: logger}
	var records provenance.Store = newRecords(t)
	if o != nil {
		cfg.Traces, cfg.Metrics = o.traces, o.metrics
		serves := func(path string) bool { return registry.Snapshot().Skill(path) != nil }
		records = telemetry.Count(records, telemetry.New(o.metrics, func() int { return 0 }, serves))
	}
	cfg.Sessions = session.New(session.Config{
		Registry: registry, Policy: pol, Trees: trees, Records: records, NamesInErrors: true, Version: "test", Logger: logger,
	})
	t.Cleanup(func() { cfg.Sessions.End(context.Background()) })
	s := New(cfg)
	if err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// exchanger serves s over pipes and returns what sends a line and returns the answer.
func exchanger(t testing.TB, s *Server) (exchange func(line string) string, end func()) {
	t.Helper()
	clientIn, serverOut := io.Pipe()
	serverIn, clientOut := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- s.ServeStdio(t.Context(), serverIn, serverOut) }()
	answers := bufio.NewReaderSize(clientIn, 1<<20)
	exchange = func(line string) string {
		if _, err := io.WriteString(clientOut, line+"\n"); err != nil {
			t.Fatal(err)
		}
		answer, err := answers.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	return exchange, func() {
		clientOut.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
}

const testTrace = "4bf92f3577b34da6a3ce929d0e0e4736"

// traceparent is the trace context of a caller whose span has the id n.
func traceparent(n int) string { return fmt.Sprintf("00-%s-%016x-01", testTrace, n) }

func TestSpans(t *testing.T) {
	o := observe()
	s := tracedServer(t, o)
	exchange, leave := exchanger(t, s)
	exchange(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"SECRET-CLIENT","version":"1"}}}`)
	tool := func(name string) map[string]string {
		return map[string]string{"mcp.method.name": "tools/call", "gen_ai.tool.name": name, "gen_ai.operation.name": "execute_tool"}
	}
	with := func(want map[string]string, more ...string) map[string]string {
		for i := 0; i < len(more); i += 2 {
			want[more[i]] = more[i+1]
		}
		return want
	}
	method := func(name string) map[string]string { return map[string]string{"mcp.method.name": name} }
	tests := []struct {
		name, method, params string
		span                 string
		status               codes.Code
		want                 map[string]string
	}{
		{"load", "tools/call", `"name":"load_skill","arguments":{"name":"demo"}`, "tools/call load_skill", codes.Unset,
			with(tool("load_skill"), "skillsd.skill", "demo", "gen_ai.skill.name", "demo")},
		{"read", "tools/call", `"name":"read_skill_resource","arguments":{"skill":"demo","path":"notes.md"}`,
			"tools/call read_skill_resource", codes.Unset, with(tool("read_skill_resource"), "skillsd.skill", "demo", "gen_ai.skill.name", "demo")},
		{"plain error", "tools/call", `"name":"load_skill","arguments":{"name":"SECRET-NAME"}`, "tools/call load_skill",
			codes.Error, with(tool("load_skill"), "error.type", "skill_not_found")},
		{"arguments", "tools/call", `"name":"load_skill","arguments":{"SECRET-ARGUMENT":1}`, "tools/call load_skill",
			codes.Error, with(tool("load_skill"), "error.type", "invalid_arguments")},
		{"unknown tool", "tools/call", `"name":"SECRET-TOOL","arguments":{}`, "tools/call", codes.Error,
			with(method("tools/call"), "error.type", "-32602", "rpc.response.status_code", "-32602")},
		{"prompt", "prompts/get", `"name":"demo"`, "prompts/get demo", codes.Unset,
			with(method("prompts/get"), "gen_ai.prompt.name", "demo", "skillsd.skill", "demo", "gen_ai.skill.name", "demo")},
		{"unknown prompt", "prompts/get", `"name":"SECRET-PROMPT"`, "prompts/get", codes.Error,
			with(method("prompts/get"), "error.type", "skill_not_found", "rpc.response.status_code", "-32602")},
		{"own method", "skills/list", ``, "skills/list", codes.Unset, method("skills/list")},
		{"own method fails", "skills/get", `"uri":5`, "skills/get", codes.Error,
			with(method("skills/get"), "error.type", "-32602", "rpc.response.status_code", "-32602")},
		{"override", "resources/read", `"uri":"skill://demo/notes.md"`, "resources/read", codes.Unset,
			with(method("resources/read"), "skillsd.skill", "demo", "gen_ai.skill.name", "demo")},
		{"override fails", "resources/read", `"uri":"skill://SECRET-NAME/notes.md"`, "resources/read", codes.Error,
			with(method("resources/read"), "error.type", "resource_not_found", "rpc.response.status_code", "-32002")},
		{"library", "ping", ``, "ping", codes.Unset, method("ping")},
		{"unknown method", "SECRET/METHOD", ``, "other", codes.Error,
			with(method("other"), "error.type", "-32601", "rpc.response.status_code", "-32601")},
	}
	for i, test := range tests {
		separator := ","
		if test.params == "" {
			separator = ""
		}
		exchange(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{%s%s"_meta":{"traceparent":%q}}}`, i+10, test.method, test.params, separator, traceparent(i+10)))
	}
	// What is no trace context starts a trace of its own.
	for _, meta := range []string{`{"traceparent":5}`, `{"traceparent":"00-` + strings.Repeat("0", 32) + `-SECRET"}`, `[]`, `null`} {
		exchange(fmt.Sprintf(`{"jsonrpc":"2.0","id":99,"method":"skills/list","params":{"_meta":%s}}`, meta))
	}
	leave()
	for i, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := o.span(t, fmt.Sprintf("%016x", i+10))
			attributes := attributesOf(got.Attributes())
			if strings.HasPrefix(attributes["skillsd.session"], "ses_") {
				delete(attributes, "skillsd.session")
			}
			want := with(test.want, "network.transport", "pipe", "mcp.protocol.version", "2025-11-25")
			if diff := cmp.Diff(want, attributes); diff != "" {
				t.Errorf("attributes (-want +got):\n%s", diff)
			}
			context := got.SpanContext()
			if got.Name() != test.span || context.TraceID().String() != testTrace || got.SpanKind() != trace.SpanKindServer ||
				got.Status().Code != test.status {
				t.Errorf("span %+v, want the name %q and the status %d", got, test.span, test.status)
			}
		})
	}
	durations := o.durations(t)
	const demo = "gen_ai.operation.name=execute_tool,gen_ai.tool.name=load_skill,mcp.method.name=tools/call," +
		"mcp.protocol.version=2025-11-25,network.transport=pipe"
	if n := durations[demo]; n != 1 {
		t.Errorf("%d durations of %s in %v, want 1", n, demo, durations)
	}
	if n := durations["error.type=skill_not_found,"+demo]; n != 1 {
		t.Errorf("%d durations of a load that failed in %v, want 1", n, durations)
	}
	// The metrics of the session, whose labels are names of skills, are not looked at here.
	if said := fmt.Sprint(tracetest.SpanStubsFromReadOnlySpans(o.spans.Ended()), durations); strings.Contains(said, "SECRET") {
		t.Errorf("a span or a duration holds what was said: %s", said)
	}
}

// Over HTTP the trace context may stand in the headers; that of _meta comes first.
func TestSpansHTTP(t *testing.T) {
	o := observe()
	s := tracedServer(t, o)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.ServeHTTP(ctx, listener, HTTPOptions{}) }()
	post := func(n int, method, name, params, meta string) {
		t.Helper()
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{%s,`+strings.TrimSuffix(modern, "}")+`%s}}}`, method, params, meta)
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+listener.Addr().String()+"/mcp", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for key, value := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
			"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Mcp-Name": name, "Traceparent": traceparent(n)} {
			r.Header.Set(key, value)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if answer, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusOK {
			t.Errorf("%s = %s %s %v", method, response.Status, answer, err)
		}
	}
	post(1, "tools/call", "load_skill", `"name":"load_skill","arguments":{"name":"demo"}`, "")
	post(2, "resources/read", "skill://demo/notes.md", `"uri":"skill://demo/notes.md"`, "")
	post(3, "tools/call", "load_skill", `"name":"load_skill","arguments":{"name":"demo"}`, `,"traceparent":"`+traceparent(7)+`"`)
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	for _, parent := range []int{1, 2, 7} {
		got := o.span(t, fmt.Sprintf("%016x", parent))
		attributes := attributesOf(got.Attributes())
		if got.SpanContext().TraceID().String() != testTrace || attributes["skillsd.skill"] != "demo" ||
			attributes["network.transport"] != "tcp" || attributes["mcp.protocol.version"] != "2026-07-28" {
			t.Errorf("span %+v", got)
		}
	}
}

// BenchmarkTraces is a call without and with spans and durations.
func BenchmarkTraces(b *testing.B) {
	for name, o := range map[string]*observed{"off": nil, "on": observe()} {
		b.Run(name, func(b *testing.B) {
			exchange, leave := exchanger(b, tracedServer(b, o))
			defer leave()
			exchange(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
			b.ReportAllocs()
			for b.Loop() {
				exchange(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"read_skill_resource","arguments":{"skill":"demo","path":"notes.md"}}}`)
			}
		})
	}
}

// newRecords returns a store of sessions in a directory of the test.
func newRecords(t testing.TB) *filestore.Store {
	t.Helper()
	records, err := filestore.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { records.Close() })
	return records
}
