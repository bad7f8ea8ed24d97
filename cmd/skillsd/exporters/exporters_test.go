package exporters

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/trace"
	metricspb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	spanpb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// none produces no metrics.
type none struct{}

func (none) Produce(context.Context) ([]metricdata.ScopeMetrics, error) { return nil, nil }

// lookup is an environment. The SDK reads the environment of the process, so each variable is set there too.
func lookup(t *testing.T, env map[string]string) func(string) (string, bool) {
	t.Helper()
	for name, value := range env {
		t.Setenv(name, value)
	}
	return func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	}
}

// collector is an OTLP receiver that answers with a status.
type collector struct {
	*httptest.Server
	status int

	mu      sync.Mutex
	paths   []string
	headers []http.Header
	traces  []*tracepb.ExportTraceServiceRequest
	metrics []*metricspb.ExportMetricsServiceRequest
}

func newCollector(t *testing.T, status int) *collector {
	c := &collector{status: status}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.paths, c.headers = append(c.paths, r.URL.Path), append(c.headers, r.Header)
		switch {
		case strings.HasSuffix(r.URL.Path, "/v1/traces"):
			request := &tracepb.ExportTraceServiceRequest{}
			if err := proto.Unmarshal(data, request); err != nil {
				t.Errorf("%s: %v", r.URL.Path, err)
			}
			c.traces = append(c.traces, request)
		case strings.HasSuffix(r.URL.Path, "/v1/metrics"):
			request := &metricspb.ExportMetricsServiceRequest{}
			if err := proto.Unmarshal(data, request); err != nil {
				t.Errorf("%s: %v", r.URL.Path, err)
			}
			c.metrics = append(c.metrics, request)
		default:
			t.Errorf("something is sent to %s", r.URL.Path)
		}
		w.Header().Set("Location", "/elsewhere/v1/traces")
		w.WriteHeader(c.status)
	}))
	t.Cleanup(c.Close)
	return c
}

// TestSends checks which signals an environment asks for, and that no value of a variable is logged.
func TestSends(t *testing.T) {
	const all, traces = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	for _, test := range []struct {
		name            string
		env             map[string]string
		traces, metrics bool
		log             string
	}{
		{"nothing", nil, false, false, ""},
		{"empty", map[string]string{all: " "}, false, false, ""},
		{"all signals", map[string]string{all: "http://localhost:4318"}, true, true, ""},
		{"traces alone", map[string]string{traces: "http://localhost:4318/v1/traces"}, true, false, ""},
		{"disabled", map[string]string{all: "http://a", "OTEL_SDK_DISABLED": "TRUE"}, false, false, ""},
		{"no metrics", map[string]string{all: "http://a", "OTEL_METRICS_EXPORTER": "none"}, true, false, ""},
		{"other exporters", map[string]string{all: "http://a", "OTEL_TRACES_EXPORTER": "zipkin,console"}, false, true, ""},
		{"one of two", map[string]string{all: "http://a", "OTEL_TRACES_EXPORTER": "console,otlp"}, true, true, ""},
		{"grpc", map[string]string{all: "http://a", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, false, false, "no traces are sent"},
		{"grpc for traces", map[string]string{all: "http://a", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"}, false, true,
			"OTEL_EXPORTER_OTLP_PROTOCOL is grpc"},
		{"no URL", map[string]string{all: "hunter2:4318"}, false, false, "not an http or https URL"},
		{"other scheme", map[string]string{all: "ftp://hunter2/"}, false, false, "not an http or https URL"},
		{"no host", map[string]string{all: "http:///hunter2"}, false, false, "not an http or https URL"},
		{"headers", map[string]string{all: "http://a", "OTEL_EXPORTER_OTLP_HEADERS": "hunter2"}, true, true, "HEADERS is not name=value"},
		{"timeout", map[string]string{all: "http://a", "OTEL_EXPORTER_OTLP_TIMEOUT": "hunter2"}, true, true, "TIMEOUT is not a number"},
		{"resource", map[string]string{all: "http://a", "OTEL_RESOURCE_ATTRIBUTES": "hunter2"}, true, true,
			"OTEL_RESOURCE_ATTRIBUTES"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var log bytes.Buffer
			logger := slog.New(slog.NewTextHandler(&log, nil))
			x, err := Open(t.Context(), Options{Producer: none{}, Env: lookup(t, test.env), Logger: logger})
			if err != nil {
				t.Fatal(err)
			}
			// Nothing waits, and a collector that is not there must not be waited for.
			done, cancel := context.WithCancel(t.Context())
			cancel()
			defer x.Close(done)
			if (x.Traces != nil) != test.traces || (x.Meters != nil) != test.metrics || x.Page != nil {
				t.Errorf("traces %v, metrics %v, page %v", x.Traces, x.Meters, x.Page)
			}
			if !strings.Contains(log.String(), test.log) || test.log == "" && log.Len() > 0 || strings.Contains(log.String(), "hunter2") {
				t.Errorf("the log is %s, want %q in it and no value of a variable", log.String(), test.log)
			}
		})
	}
}

// work makes one span and one count and sends them.
func work(t *testing.T, x *Exporters) {
	t.Helper()
	parent := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, Remote: true,
	})
	ctx := trace.ContextWithSpanContext(t.Context(), parent)
	start := time.Unix(1_700_000_000, 5)
	_, span := x.Traces.Tracer("scope").Start(ctx, "name", trace.WithSpanKind(trace.SpanKindServer),
		trace.WithTimestamp(start), trace.WithAttributes(
			attribute.String("text", strings.Repeat("x", maxAttribute+1)), attribute.Int("int", -7)))
	span.SetStatus(codes.Error, "")
	span.End(trace.WithTimestamp(start.Add(time.Second)))
	counter, err := x.Meters.Meter("scope").Int64Counter("skillsd.things")
	if err != nil {
		t.Fatal(err)
	}
	counter.Add(t.Context(), 3)
	x.Close(context.Background())
}

// attributesOf are attributes as text.
func attributesOf(list []*commonpb.KeyValue) map[string]string {
	all := map[string]string{}
	for _, kv := range list {
		all[kv.Key] = kv.Value.String()
	}
	return all
}

// TestSend checks that a collector gets the span and the count, with the headers and the resource that the
// environment names.
func TestSend(t *testing.T) {
	c := newCollector(t, http.StatusOK)
	x, err := Open(t.Context(), Options{Producer: none{}, Version: "v2", Logger: slog.New(slog.DiscardHandler), Env: lookup(t, map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL + "/otel/",
		"OTEL_EXPORTER_OTLP_HEADERS":  "Authorization=Bearer%20a",
		"OTEL_RESOURCE_ATTRIBUTES":    "deployment=test",
	})})
	if err != nil {
		t.Fatal(err)
	}
	work(t, x)
	if len(c.traces) != 1 || len(c.metrics) != 1 {
		t.Fatalf("the collector got %q", c.paths)
	}
	if diff := cmp.Diff([]string{"/otel/v1/traces", "/otel/v1/metrics"}, c.paths); diff != "" {
		t.Errorf("paths (-want +got):\n%s", diff)
	}
	for _, header := range c.headers {
		if header.Get("Authorization") != "Bearer a" || header.Get("Content-Type") != "application/x-protobuf" {
			t.Errorf("headers %v", header)
		}
	}
	resource := c.traces[0].ResourceSpans[0]
	about := attributesOf(resource.Resource.Attributes)
	for name, want := range map[string]string{"service.name": "skillsd", "service.version": "v2", "deployment": "test"} {
		if !strings.Contains(about[name], `"`+want+`"`) {
			t.Errorf("%s is %s, want %s", name, about[name], want)
		}
	}
	span := resource.ScopeSpans[0].Spans[0]
	if span.Name != "name" || span.Kind != spanpb.Span_SPAN_KIND_SERVER || span.Status.Code != spanpb.Status_STATUS_CODE_ERROR ||
		span.StartTimeUnixNano != 1700000000000000005 || span.EndTimeUnixNano != 1700000001000000005 ||
		!bytes.Equal(span.TraceId, append([]byte{1}, make([]byte, 15)...)) || !bytes.Equal(span.ParentSpanId, []byte{2, 0, 0, 0, 0, 0, 0, 0}) {
		t.Errorf("span %v", span)
	}
	attributes := attributesOf(span.Attributes)
	if !strings.Contains(attributes["text"], strings.Repeat("x", maxAttribute)+`"`) || !strings.Contains(attributes["int"], "-7") {
		t.Errorf("attributes %v", attributes)
	}
	counted := c.metrics[0].ResourceMetrics[0].ScopeMetrics[0].Metrics[0]
	if counted.Name != "skillsd.things" || counted.GetSum().DataPoints[0].GetAsInt() != 3 {
		t.Errorf("metric %v", counted)
	}
}

// TestNotDelivered checks that a failed delivery is logged once, without anything secret of where it went,
// and that no redirect is followed.
func TestNotDelivered(t *testing.T) {
	for _, status := range []int{http.StatusInternalServerError, http.StatusTemporaryRedirect, 0} {
		c := newCollector(t, status)
		endpoint := strings.Replace(c.URL, "http://", "http://user:hunter2@", 1) + "/hunter2?key=hunter2"
		if status == 0 {
			c.Close()
		}
		var log bytes.Buffer
		x, err := Open(t.Context(), Options{Producer: none{}, Logger: slog.New(slog.NewTextHandler(&log, nil)), Env: lookup(t, map[string]string{
			"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_HEADERS": "X-Key=hunter2",
		})})
		if err != nil {
			t.Fatal(err)
		}
		work(t, x)
		for _, what := range []string{"traces", "metrics"} {
			if strings.Count(log.String(), what+" are not delivered") != 1 || strings.Contains(log.String(), "hunter2") {
				t.Errorf("status %d is logged as %s", status, log.String())
			}
		}
		if status != 0 && len(c.paths) != 2 {
			t.Errorf("status %d: requests to %q", status, c.paths)
		}
	}
}

// TestDeliveredAgain checks that a run of failures makes one line, and its end another.
func TestDeliveredAgain(t *testing.T) {
	var log bytes.Buffer
	d := deliveries{what: "traces", logger: slog.New(slog.NewTextHandler(&log, nil))}
	for _, err := range []error{nil, io.EOF, io.EOF, nil, nil, io.EOF} {
		d.report(t.Context(), err)
	}
	if failed, again := strings.Count(log.String(), "not delivered"), strings.Count(log.String(), "delivered again"); failed != 2 || again != 1 {
		t.Errorf("logged %s", log.String())
	}
}

// TestPage checks the page with the parser of Prometheus: what is counted, and what the process is.
func TestPage(t *testing.T) {
	x, err := Open(t.Context(), Options{Producer: none{}, Env: lookup(t, nil), Prometheus: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close(t.Context())
	if x.Traces != nil {
		t.Error("traces are made for nobody")
	}
	counter, err := x.Meters.Meter("scope").Int64Counter("skillsd.things")
	if err != nil {
		t.Fatal(err)
	}
	counter.Add(t.Context(), 3)
	w := httptest.NewRecorder()
	x.Page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	if got := families["skillsd_things_total"].GetMetric()[0].GetCounter().GetValue(); got != 3 {
		t.Errorf("skillsd_things_total = %v, want 3", got)
	}
	if families["go_goroutines"] == nil {
		t.Error("no go_goroutines")
	}
}
