package otlp

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

func lookup(env map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	}
}

func TestFromEnv(t *testing.T) {
	const endpoint, traces = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	of := func(url string) *Config {
		return &Config{Endpoint: url, Headers: http.Header{}, Timeout: 10 * time.Second, Service: "skillsd"}
	}
	full := of("https://collector.example/in?key=1")
	full.Headers, full.Timeout = http.Header{"Authorization": {"Bearer a,b"}, "X-Tenant": {"t"}}, 250*time.Millisecond
	for _, test := range []struct {
		name string
		env  map[string]string
		want *Config
		err  string
	}{
		{"nothing", nil, nil, ""},
		{"empty", map[string]string{endpoint: " "}, nil, ""},
		{"for all signals", map[string]string{endpoint: "http://localhost:4318"}, of("http://localhost:4318/v1/traces"), ""},
		{"with a path", map[string]string{endpoint: "http://localhost:4318/otel/"}, of("http://localhost:4318/otel/v1/traces"), ""},
		{"traces come first", map[string]string{endpoint: "http://a", traces: "http://b/", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, of("http://b/"), ""},
		{"all", map[string]string{traces: "https://collector.example/in?key=1", "OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer%20a%2Cb, x-tenant = t,",
			"OTEL_EXPORTER_OTLP_TIMEOUT": "250", "OTEL_TRACES_EXPORTER": "console,otlp"}, full, ""},
		{"off", map[string]string{endpoint: "http://a", "OTEL_SDK_DISABLED": "TRUE"}, nil, ""},
		{"other exporter", map[string]string{endpoint: "http://a", "OTEL_TRACES_EXPORTER": "none"}, nil, ""},
		{"grpc", map[string]string{endpoint: "http://a", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"}, nil, "OTEL_EXPORTER_OTLP_PROTOCOL"},
		{"no URL", map[string]string{endpoint: "secret-host:4318"}, nil, endpoint},
		{"other scheme", map[string]string{endpoint: "ftp://secret"}, nil, endpoint},
		{"no host", map[string]string{traces: "http:///secret"}, nil, traces},
		{"broken", map[string]string{traces: "http://secret\x7f"}, nil, traces},
		{"headers", map[string]string{endpoint: "http://a", "OTEL_EXPORTER_OTLP_HEADERS": "secret"}, nil, "OTEL_EXPORTER_OTLP_HEADERS"},
		{"header name", map[string]string{endpoint: "http://a", "OTEL_EXPORTER_OTLP_HEADERS": "se cret=1"}, nil, "OTEL_EXPORTER_OTLP_HEADERS"},
		{"second header", map[string]string{endpoint: "http://a", "OTEL_EXPORTER_OTLP_HEADERS": "a=secret%0d%0aB: c"}, nil, "OTEL_EXPORTER_OTLP_HEADERS"},
		{"escape", map[string]string{endpoint: "http://a", "OTEL_EXPORTER_OTLP_HEADERS": "a=%zzsecret"}, nil, "OTEL_EXPORTER_OTLP_HEADERS"},
		{"timeout", map[string]string{endpoint: "http://a", "OTEL_EXPORTER_OTLP_TIMEOUT": "10s"}, nil, "OTEL_EXPORTER_OTLP_TIMEOUT"},
		{"no time", map[string]string{endpoint: "http://a", "OTEL_EXPORTER_OTLP_TIMEOUT": "0"}, nil, "OTEL_EXPORTER_OTLP_TIMEOUT"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := FromEnv(lookup(test.env))
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) || strings.Contains(err.Error(), "secret") {
					t.Errorf("error %v, want one that names %s and no value", err, test.err)
				}
				return
			}
			if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// FuzzHeaders checks that whatever is taken can be sent.
func FuzzHeaders(f *testing.F) {
	for _, seed := range []string{"a=b", "a=b,c=d", "a=%0a", "=", ",", "a b=c", "\xff=\xff", "a==b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		headers, err := parseHeaders(text)
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := headers.Write(&out); err != nil {
			t.Fatal(err)
		}
		if lines := strings.Count(out.String(), "\n"); lines != len(headers) {
			t.Errorf("%q makes %d lines of %d headers", text, lines, len(headers))
		}
	})
}

// inbox is a collector that keeps what it is sent and answers with a status.
type inbox struct {
	mu      sync.Mutex
	bodies  [][]byte
	headers []http.Header
	status  int
}

func (in *inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, _ := io.ReadAll(r.Body)
	in.mu.Lock()
	defer in.mu.Unlock()
	in.bodies, in.headers = append(in.bodies, data), append(in.headers, r.Header)
	w.Header().Set("Location", "/elsewhere")
	w.WriteHeader(in.status)
}

func send(t *testing.T, cfg Config) {
	t.Helper()
	traces, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	parent := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, Remote: true})
	start := time.Unix(1_700_000_000, 5)
	_, span := traces.Provider().Tracer("scope", trace.WithInstrumentationVersion("v1")).Start(trace.ContextWithSpanContext(t.Context(), parent), "name",
		trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(start), trace.WithAttributes(
			attribute.String("text", strings.Repeat("x", maxValue+1)), attribute.Int("int", -7), attribute.Bool("bool", false), attribute.Float64("double", 0.5)))
	span.SetStatus(codes.Error, "not sent")
	span.RecordError(io.EOF)
	span.End(trace.WithTimestamp(start.Add(time.Second)))
	traces.Close(context.Background())
}

// The body is the one of the specification, and holds what was set.
func TestSend(t *testing.T) {
	in := &inbox{status: http.StatusOK}
	server := httptest.NewServer(in)
	defer server.Close()
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment=test")
	send(t, Config{Endpoint: server.URL + "/v1/traces", Headers: http.Header{"Authorization": {"Bearer x"}}, Timeout: time.Minute, Service: "skillsd", Version: "v2"})
	if len(in.bodies) != 1 || in.headers[0].Get("Authorization") != "Bearer x" || in.headers[0].Get("Content-Type") != "application/json" {
		t.Fatalf("the collector got %d requests, headers %v", len(in.bodies), in.headers)
	}
	var got map[string]any
	if err := json.Unmarshal(in.bodies[0], &got); err != nil {
		t.Fatal(err)
	}
	resource := got["resourceSpans"].([]any)[0].(map[string]any)
	attributes, _ := json.Marshal(resource["resource"])
	for _, want := range []string{`{"key":"service.name","value":{"stringValue":"skillsd"}}`, `{"key":"service.version","value":{"stringValue":"v2"}}`, `{"key":"deployment","value":{"stringValue":"test"}}`} {
		if !bytes.Contains(attributes, []byte(want)) {
			t.Errorf("the resource lacks %s: %s", want, attributes)
		}
	}
	scope := resource["scopeSpans"].([]any)[0].(map[string]any)
	span := scope["spans"].([]any)[0].(map[string]any)
	if id, _ := span["spanId"].(string); len(id) != 16 || id == "0000000000000000" {
		t.Errorf("span id %q", id)
	}
	delete(span, "spanId")
	var want map[string]any
	if err := json.Unmarshal([]byte(`{"scope":{"name":"scope","version":"v1"},"spans":[{
		"traceId":"01000000000000000000000000000000","parentSpanId":"0200000000000000","flags":769,"name":"name","kind":2,
		"startTimeUnixNano":"1700000000000000005","endTimeUnixNano":"1700000001000000005","status":{"code":2},"attributes":[
		{"key":"text","value":{"stringValue":"`+strings.Repeat("x", maxValue)+`"}},{"key":"int","value":{"intValue":"-7"}},
		{"key":"bool","value":{"boolValue":false}},{"key":"double","value":{"doubleValue":0.5}}]}]}`), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, scope); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
}

// A batch that is not taken is logged without what is secret of where it goes, and nothing follows a
// redirect.
func TestNotDelivered(t *testing.T) {
	for _, status := range []int{http.StatusInternalServerError, http.StatusTemporaryRedirect, 0} {
		in := &inbox{status: status}
		server := httptest.NewServer(in)
		endpoint := strings.Replace(server.URL, "http://", "http://user:hunter2@", 1) + "/v1/traces?key=hunter2"
		if status == 0 {
			server.Close()
		}
		var log bytes.Buffer
		send(t, Config{Endpoint: endpoint, Headers: http.Header{"X-Key": {"hunter2"}}, Timeout: time.Minute, Service: "skillsd", Logger: slog.New(slog.NewTextHandler(&log, nil))})
		server.Close()
		if strings.Count(log.String(), "traces are not delivered") != 1 || strings.Contains(log.String(), "hunter2") {
			t.Errorf("status %d is logged as %s", status, log.String())
		}
		if status != 0 && len(in.bodies) != 1 {
			t.Errorf("status %d: %d requests", status, len(in.bodies))
		}
	}
}

func TestBrokenResource(t *testing.T) {
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "no pair")
	if _, err := Open(t.Context(), Config{Endpoint: "http://127.0.0.1:1", Timeout: time.Second}); err == nil {
		t.Error("resource attributes that cannot be read are taken")
	}
}
