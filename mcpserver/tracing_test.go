package mcpserver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"

	"github.com/skillsd/skillsd/mcpserver/otlp"
	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/store"
)

// collector is an OpenTelemetry collector as far as a sender sees one.
type collector struct {
	*httptest.Server
	mu   sync.Mutex
	body bytes.Buffer // all that was posted
	got  []sentSpan
}

type sentSpan struct {
	TraceID, SpanID, ParentSpanID, Name string
	Kind                                int
	Status                              struct{ Code int }
	Attributes                          []struct {
		Key   string
		Value struct{ StringValue, IntValue string }
	}
}

func (s sentSpan) attributes() map[string]string {
	all := map[string]string{}
	for _, a := range s.Attributes {
		all[a.Key] = a.Value.StringValue + a.Value.IntValue
	}
	return all
}

func newCollector(t *testing.T) *collector {
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var request struct {
			ResourceSpans []struct {
				ScopeSpans []struct{ Spans []sentSpan }
			}
		}
		data, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(data, &request)
		}
		if err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("collector got %s %q: %v", r.URL.Path, data, err)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.body.Write(data)
		for _, resource := range request.ResourceSpans {
			for _, scope := range resource.ScopeSpans {
				c.got = append(c.got, scope.Spans...)
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// span returns the one span with the parent of that id.
func (c *collector) span(t *testing.T, parent string) sentSpan {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []sentSpan
	for _, s := range c.got {
		if s.ParentSpanID == parent {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d spans have the parent %s", len(found), parent)
	}
	return found[0]
}

// tracedServer serves a skill and sends spans to endpoint; close sends what waits.
func tracedServer(t testing.TB, endpoint string) (s *Server, end func()) {
	t.Helper()
	root, state := t.TempDir(), t.TempDir()
	for name, content := range map[string]string{
		"demo/SKILL.md": "---\nname: demo\ndescription: A skill for tests.\n---\nSECRET-BODY\n",
		"demo/notes.md": "SECRET-FILE\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		filepath.WalkDir(state, func(path string, entry os.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				return os.Chmod(path, 0o700)
			}
			return nil
		})
	})
	trees, err := store.Open(state)
	if err != nil {
		t.Fatal(err)
	}
	registry := skills.NewRegistry([]skills.Root{{Dir: root}}, nil)
	pol, logger := policy.New(policy.Config{Tools: ReadMethods()}), slog.New(slog.DiscardHandler)
	var records provenance.Store = newRecords(t)
	var provider trace.TracerProvider
	end = func() {}
	if endpoint != "" {
		traces, err := otlp.Open(t.Context(), otlp.Config{Endpoint: endpoint, Timeout: 10 * time.Second, Service: "skillsd"})
		if err != nil {
			t.Fatal(err)
		}
		end = func() { traces.Close(context.Background()) }
		provider = traces.Provider()
		records = TraceRecords(records, func(path string) bool { return registry.Snapshot().Skill(path) != nil })
	}
	sessions := session.New(session.Config{Registry: registry, Policy: pol, Trees: trees, Records: records, NamesInErrors: true, Version: "test", Logger: logger})
	t.Cleanup(func() { sessions.End(context.Background()) })
	s = New(Config{Version: "test", Registry: registry, Sessions: sessions, Policy: pol, Traces: provider, Logger: logger})
	if err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s, end
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
	c := newCollector(t)
	s, end := tracedServer(t, c.URL+"/v1/traces")
	exchange, leave := exchanger(t, s)
	exchange(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"SECRET-CLIENT","version":"1"}}}`)
	tests := []struct {
		name, method, params string
		span                 string
		status               int
		want                 map[string]string
	}{
		{"load", "tools/call", `"name":"load_skill","arguments":{"name":"demo"}`, "tools/call load_skill", 0,
			map[string]string{"mcp.method.name": "tools/call", "gen_ai.tool.name": "load_skill", "skillsd.skill": "demo"}},
		{"read", "tools/call", `"name":"read_skill_resource","arguments":{"skill":"demo","path":"notes.md"}`, "tools/call read_skill_resource", 0,
			map[string]string{"mcp.method.name": "tools/call", "gen_ai.tool.name": "read_skill_resource", "skillsd.skill": "demo"}},
		{"plain error", "tools/call", `"name":"load_skill","arguments":{"name":"SECRET-NAME"}`, "tools/call load_skill", 2,
			map[string]string{"mcp.method.name": "tools/call", "gen_ai.tool.name": "load_skill", "error.type": "skill_not_found"}},
		{"arguments", "tools/call", `"name":"load_skill","arguments":{"SECRET-ARGUMENT":1}`, "tools/call load_skill", 2,
			map[string]string{"mcp.method.name": "tools/call", "gen_ai.tool.name": "load_skill", "error.type": "invalid_arguments"}},
		{"unknown tool", "tools/call", `"name":"SECRET-TOOL","arguments":{}`, "tools/call", 2, map[string]string{"mcp.method.name": "tools/call"}},
		{"own method", "skills/list", ``, "skills/list", 0, map[string]string{"mcp.method.name": "skills/list"}},
		{"override", "resources/read", `"uri":"skill://demo/notes.md"`, "resources/read", 0,
			map[string]string{"mcp.method.name": "resources/read", "skillsd.skill": "demo"}},
		{"override fails", "resources/read", `"uri":"skill://SECRET-NAME/notes.md"`, "resources/read", 2,
			map[string]string{"mcp.method.name": "resources/read", "error.type": "resource_not_found", "rpc.jsonrpc.error_code": "-32002"}},
		{"library", "ping", ``, "ping", 0, map[string]string{"mcp.method.name": "ping"}},
		{"unknown method", "SECRET/METHOD", ``, "other", 2, map[string]string{"mcp.method.name": "other"}},
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
	end()
	for i, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := c.span(t, fmt.Sprintf("%016x", i+10))
			attributes := got.attributes()
			if strings.HasPrefix(attributes["skillsd.session"], "ses_") {
				delete(attributes, "skillsd.session")
			}
			if diff := cmp.Diff(test.want, attributes); diff != "" {
				t.Errorf("attributes (-want +got):\n%s", diff)
			}
			if got.Name != test.span || got.TraceID != testTrace || got.Kind != 2 || got.Status.Code != test.status {
				t.Errorf("span %+v, want the name %q and the status %d", got, test.span, test.status)
			}
		})
	}
	if bytes.Contains(c.body.Bytes(), []byte("SECRET")) {
		t.Errorf("a span holds what was said: %s", c.body.Bytes())
	}
}

// Over HTTP the trace context may stand in the headers; that of _meta comes first.
func TestSpansHTTP(t *testing.T) {
	c := newCollector(t)
	s, end := tracedServer(t, c.URL+"/v1/traces")
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
	end()
	for _, parent := range []int{1, 2, 7} {
		if got := c.span(t, fmt.Sprintf("%016x", parent)); got.TraceID != testTrace || got.attributes()["skillsd.skill"] != "demo" {
			t.Errorf("span %+v", got)
		}
	}
}

// A collector that is not there, that answers with errors or not at all changes no answer.
func TestCollectorDown(t *testing.T) {
	block := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-block }))
	defer slow.Close()
	defer close(block)
	failing := httptest.NewServer(http.NotFoundHandler())
	defer failing.Close()
	ask := func(endpoint string) (answers []string) {
		s, end := tracedServer(t, endpoint)
		t.Cleanup(end) // once the slow one answers
		exchange, leave := exchanger(t, s)
		defer leave()
		exchange(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
		for range 1100 { // more than two batches
			_, content, _ := strings.Cut(exchange(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"read_skill_resource","arguments":{"skill":"demo","path":"notes.md"}}}`), `"content"`)
			answers = append(answers, content)
		}
		return answers
	}
	want := ask("")
	for _, endpoint := range []string{"http://127.0.0.1:1/v1/traces", failing.URL, slow.URL} {
		if diff := cmp.Diff(want, ask(endpoint)); diff != "" {
			t.Errorf("answers with %s (-without +with):\n%s", endpoint, diff)
		}
	}
}

// BenchmarkTraces is a call without and with spans, the latter to a collector that is not there.
func BenchmarkTraces(b *testing.B) {
	for name, endpoint := range map[string]string{"off": "", "on": "http://127.0.0.1:1/v1/traces"} {
		b.Run(name, func(b *testing.B) {
			s, end := tracedServer(b, endpoint)
			defer end()
			exchange, leave := exchanger(b, s)
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
