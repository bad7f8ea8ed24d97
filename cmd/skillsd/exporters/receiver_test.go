package exporters

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
)

// request is a request that a server got.
type request struct {
	path   string
	header http.Header
	body   []byte
}

// keep starts a server that keeps its requests and answers with answers in order, the last one again.
func keep(t *testing.T, answers ...http.HandlerFunc) (url string, requests func() []request) {
	t.Helper()
	var mu sync.Mutex
	var got []request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		got = append(got, request{r.URL.Path, r.Header, body})
		n := len(got)
		mu.Unlock()
		if len(answers) > 0 {
			answers[min(n, len(answers))-1](w, r)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL, func() []request {
		mu.Lock()
		defer mu.Unlock()
		return got
	}
}

// options are Options with an environment and a log.
func options(t *testing.T, env map[string]string) (*Options, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	return &Options{Producer: none{}, Env: lookup(t, env), Logger: slog.New(slog.NewTextHandler(&log, nil))}, &log
}

// about is a resource with all types of attributes that become more than text.
var about = resource.NewWithAttributes("https://schema", attribute.String("service.name", "skillsd"),
	attribute.Bool("yes", true), attribute.Int("number", -3), attribute.Float64("part", 0.5))

// spans are spans with all that the server records, and more.
func spans() []sdktrace.ReadOnlySpan {
	start := time.Unix(1_700_000_000, 5)
	ids := func(n byte) trace.SpanContext {
		return trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID{0xfb, n}, SpanID: trace.SpanID{0xff, n}, TraceFlags: trace.FlagsSampled})
	}
	return tracetest.SpanStubs{{
		Name: `"traceId": "AAAA"`, SpanContext: ids(1), Parent: ids(2), SpanKind: trace.SpanKindServer,
		StartTime: start, EndTime: start.Add(time.Second),
		Attributes: []attribute.KeyValue{attribute.String("traceId", "text"), attribute.StringSlice("list", []string{"a"})},
		Events:     []sdktrace.Event{{Name: "event", Time: start}},
		Links:      []sdktrace.Link{{SpanContext: ids(3)}},
		Status:     sdktrace.Status{Code: codes.Error, Description: "failed"},
		Resource:   about, InstrumentationScope: instrumentation.Scope{Name: "scope"},
	}}.Snapshots()
}

// metrics are metrics of all kinds that instruments make.
func metrics() *metricdata.ResourceMetrics {
	set := attribute.NewSet(attribute.String("a", "b"), attribute.Int("n", 7))
	start, now := time.Unix(1_700_000_000, 0), time.Unix(1_700_000_060, 9)
	exemplars := []metricdata.Exemplar[float64]{{Value: 0.25, Time: now, SpanID: []byte{1}, TraceID: []byte{2},
		FilteredAttributes: []attribute.KeyValue{attribute.String("left", "out")}}}
	whole := []metricdata.Exemplar[int64]{{Value: 3, Time: now}}
	bucket := metricdata.ExponentialBucket{Offset: -1, Counts: []uint64{1, 2}}
	return &metricdata.ResourceMetrics{Resource: about, ScopeMetrics: []metricdata.ScopeMetrics{{
		Scope: instrumentation.Scope{Name: "scope", Version: "v1", SchemaURL: "https://scope",
			Attributes: attribute.NewSet(attribute.Bool("of", true))},
		Metrics: []metricdata.Metrics{
			{Name: "gauge", Unit: "{thing}", Description: "Things.", Data: metricdata.Gauge[int64]{
				DataPoints: []metricdata.DataPoint[int64]{{Attributes: set, Time: now, Value: -4}}}},
			{Name: "part", Data: metricdata.Gauge[float64]{
				DataPoints: []metricdata.DataPoint[float64]{{Time: now, Value: 0.5, Exemplars: exemplars}}}},
			{Name: "sum", Data: metricdata.Sum[int64]{Temporality: metricdata.CumulativeTemporality, IsMonotonic: true,
				DataPoints: []metricdata.DataPoint[int64]{{Attributes: set, StartTime: start, Time: now, Value: 9, Exemplars: whole}}}},
			{Name: "seconds", Data: metricdata.Sum[float64]{Temporality: metricdata.DeltaTemporality,
				DataPoints: []metricdata.DataPoint[float64]{{StartTime: start, Time: now, Value: 1.5}}}},
			{Name: "histogram", Data: metricdata.Histogram[float64]{Temporality: metricdata.CumulativeTemporality,
				DataPoints: []metricdata.HistogramDataPoint[float64]{{
					Attributes: set, StartTime: start, Time: now, Count: 3, Sum: 4.5, Bounds: []float64{1, 2},
					BucketCounts: []uint64{1, 1, 1}, Min: metricdata.NewExtrema(0.5), Exemplars: exemplars}}}},
			{Name: "exponential", Data: metricdata.ExponentialHistogram[int64]{Temporality: metricdata.DeltaTemporality,
				DataPoints: []metricdata.ExponentialHistogramDataPoint[int64]{{
					Attributes: set, StartTime: start, Time: now, Count: 3, Sum: 4, Scale: 2, ZeroCount: 1,
					ZeroThreshold: 0.1, PositiveBucket: bucket, NegativeBucket: bucket, Max: metricdata.NewExtrema[int64](3)}}}},
		},
	}}}
}

// TestMessages compares the messages with the messages of the exporters of OpenTelemetry.
func TestMessages(t *testing.T) {
	url, requests := keep(t)
	o, log := options(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": url})
	theirTraces, err := otlptracehttp.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	theirMetrics, err := otlpmetrichttp.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ours, err := o.spanSender(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sender, err := o.metricSender(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []sdktrace.SpanExporter{theirTraces, ours} {
		if err := x.ExportSpans(t.Context(), spans()); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []sdkmetric.Exporter{theirMetrics, sender} {
		if err := x.Export(t.Context(), metrics()); err != nil {
			t.Fatal(err)
		}
	}
	got := requests()
	if len(got) != 4 || log.Len() > 0 {
		t.Fatalf("%d requests, log %s", len(got), log)
	}
	var want, have tracepb.TracesData
	var wantMetrics, haveMetrics metricspb.MetricsData
	for i, message := range []proto.Message{&want, &have, &wantMetrics, &haveMetrics} {
		if err := proto.Unmarshal(got[i].body, message); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(&want, &have, protocmp.Transform()); diff != "" || len(want.ResourceSpans) == 0 {
		t.Errorf("spans (-theirs +ours):\n%s", diff)
	}
	if diff := cmp.Diff(&wantMetrics, &haveMetrics, protocmp.Transform()); diff != "" || len(wantMetrics.ResourceMetrics) == 0 {
		t.Errorf("metrics (-theirs +ours):\n%s", diff)
	}
}

// TestJSON compares OTLP's JSON with the JSON of the exporter of OpenTelemetry, which has it for spans alone.
func TestJSON(t *testing.T) {
	url, requests := keep(t)
	o, _ := options(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"})
	theirs, err := otlptracehttp.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ours, err := o.spanSender(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var texts [2]any
	for i, x := range []sdktrace.SpanExporter{theirs, ours} {
		if err := x.ExportSpans(t.Context(), spans()); err != nil {
			t.Fatal(err)
		}
		got := requests()[i]
		// Base 16 is written in any case.
		if err := json.Unmarshal(bytes.ToLower(got.body), &texts[i]); err != nil || got.header.Get("Content-Type") != "application/json" {
			t.Fatalf("%s as %s: %v", got.body, got.header.Get("Content-Type"), err)
		}
	}
	if diff := cmp.Diff(texts[0], texts[1]); diff != "" {
		t.Errorf("spans (-theirs +ours):\n%s", diff)
	}
}

// export sends one message of a signal, traces or metrics.
func export(t *testing.T, o *Options, signal string) {
	t.Helper()
	if signal == "traces" {
		x, err := o.spanSender(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := x.ExportSpans(t.Context(), spans()); err != nil {
			t.Fatal(err)
		}
		return
	}
	x, err := o.metricSender(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Export(t.Context(), metrics()); err != nil {
		t.Fatal(err)
	}
}

// TestJSONOfMetrics checks OTLP's JSON of metrics, which no official exporter here has: read back, with its
// identifiers in base 64 again, it is the message.
func TestJSONOfMetrics(t *testing.T) {
	url, requests := keep(t)
	env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": url}
	o, _ := options(t, env)
	export(t, o, "metrics")
	env["OTEL_EXPORTER_OTLP_PROTOCOL"], env["OTEL_EXPORTER_OTLP_COMPRESSION"] = "http/json", "gzip"
	o, _ = options(t, env)
	export(t, o, "metrics")
	var want, got metricspb.MetricsData
	if err := proto.Unmarshal(requests()[0].body, &want); err != nil {
		t.Fatal(err)
	}
	r, err := gzip.NewReader(bytes.NewReader(requests()[1].body))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	// The identifiers of the exemplar are the bytes 1 and 2.
	for in16, in64 := range map[string]string{`"01"`: `"AQ=="`, `"02"`: `"Ag=="`} {
		if !bytes.Contains(text, []byte(in16)) {
			t.Errorf("no identifier %s in %s", in16, text)
		}
		text = bytes.ReplaceAll(text, []byte(in16), []byte(in64))
	}
	if err := protojson.Unmarshal(text, &got); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if diff := cmp.Diff(&want, &got, protocmp.Transform()); diff != "" {
		t.Errorf("metrics (-protobuf +JSON):\n%s", diff)
	}
}

// TestReceiver checks where requests go and what they carry for the variables of the specification.
func TestReceiver(t *testing.T) {
	const prefix = "OTEL_EXPORTER_OTLP_"
	for _, test := range []struct {
		name   string
		env    map[string]string // without the prefix
		path   string
		header map[string]string
		gzip   bool
		log    string
	}{
		{"base", map[string]string{"ENDPOINT": "URL"}, "/v1/",
			map[string]string{"User-Agent": "skillsd/unknown", "Content-Type": "application/x-protobuf"}, false, ""},
		{"base with a path", map[string]string{"ENDPOINT": "URL/otel/"}, "/otel/v1/", nil, false, ""},
		{"own", map[string]string{"ENDPOINT": "http://unused", "SIGNAL_ENDPOINT": "URL/mine"}, "/mine", nil, false, ""},
		{"own without a path", map[string]string{"SIGNAL_ENDPOINT": "URL"}, "/", nil, false, ""},
		{"headers", map[string]string{"ENDPOINT": "URL", "HEADERS": "a=1, b = x%20y ,"}, "/v1/",
			map[string]string{"A": "1", "B": "x y"}, false, ""},
		{"own headers", map[string]string{"ENDPOINT": "URL", "HEADERS": "a=1", "SIGNAL_HEADERS": "b=2"}, "/v1/",
			map[string]string{"A": "", "B": "2"}, false, ""},
		{"headers in part", map[string]string{"ENDPOINT": "URL", "HEADERS": "a=1,b b=2,c=%zz,d=%0a"}, "/v1/",
			map[string]string{"A": "1", "C": "", "D": ""}, false, "HEADERS is not"},
		{"gzip", map[string]string{"ENDPOINT": "URL", "COMPRESSION": "gzip"}, "/v1/",
			map[string]string{"Content-Encoding": "gzip"}, true, ""},
		{"not compressed", map[string]string{"ENDPOINT": "URL", "COMPRESSION": "gzip", "SIGNAL_COMPRESSION": "none"},
			"/v1/", map[string]string{"Content-Encoding": ""}, false, ""},
		{"no certificate", map[string]string{"ENDPOINT": "URL", "CERTIFICATE": "/nowhere"}, "/v1/", nil, false,
			"CERTIFICATE is not a readable file"},
		{"no key", map[string]string{"ENDPOINT": "URL", "CLIENT_CERTIFICATE": "/nowhere", "CLIENT_KEY": "/nowhere"},
			"/v1/", nil, false, "CLIENT_CERTIFICATE and CLIENT_KEY"},
	} {
		for _, signal := range []string{"traces", "metrics"} {
			t.Run(test.name+" "+signal, func(t *testing.T) {
				url, requests := keep(t)
				env := map[string]string{}
				for name, value := range test.env {
					name = strings.Replace(name, "SIGNAL", strings.ToUpper(signal), 1)
					env[prefix+name] = strings.ReplaceAll(value, "URL", url)
				}
				o, log := options(t, env)
				export(t, o, signal)
				got := requests()[0]
				path := test.path
				if strings.HasSuffix(path, "/v1/") {
					path += signal
				}
				if got.path != path || !strings.Contains(log.String(), test.log) || test.log == "" && log.Len() > 0 {
					t.Errorf("path %s, log %s", got.path, log)
				}
				for name, want := range test.header {
					if got.header.Get(name) != want {
						t.Errorf("header %s is %q, want %q", name, got.header.Get(name), want)
					}
				}
				if test.gzip {
					r, err := gzip.NewReader(bytes.NewReader(got.body))
					if err != nil {
						t.Fatal(err)
					}
					if got.body, err = io.ReadAll(r); err != nil {
						t.Fatal(err)
					}
				}
				var data tracepb.TracesData
				var metrics metricspb.MetricsData
				var err error
				if signal == "traces" {
					err = proto.Unmarshal(got.body, &data)
				} else {
					err = proto.Unmarshal(got.body, &metrics)
				}
				if err != nil || len(data.ResourceSpans)+len(metrics.ResourceMetrics) != 1 {
					t.Errorf("the body of %d bytes does not have one resource: %v", len(got.body), err)
				}
			})
		}
	}
}

// TestCertificates checks the certificates of the environment against a server with TLS.
func TestCertificates(t *testing.T) {
	got := make(chan int, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got <- len(r.TLS.PeerCertificates)
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	server.StartTLS()
	defer server.Close()
	pair := server.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})
	write := func(name string, text []byte) string {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	env := map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT":           server.URL,
		"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": write("client.pem", certificate),
		"OTEL_EXPORTER_OTLP_CLIENT_KEY":         write("key.pem", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})),
	}
	export := func() error {
		o, log := options(t, env)
		x, err := o.spanSender(t.Context())
		if err != nil || log.Len() > 0 {
			t.Fatalf("%v, log %s", err, log)
		}
		return x.ExportSpans(t.Context(), spans())
	}
	if err := export(); err == nil {
		t.Error("a server with an unknown certificate is trusted")
	}
	env["OTEL_EXPORTER_OTLP_CERTIFICATE"] = write("roots.pem", certificate)
	if err := export(); err != nil || <-got != 1 {
		t.Errorf("a server with a certificate of the environment: %v", err)
	}
	// The pair of the signal is used, and half a pair is not.
	const own = "OTEL_EXPORTER_OTLP_TRACES_CLIENT_"
	env[own+"CERTIFICATE"] = "/nowhere"
	if err := export(); err != nil || <-got != 1 {
		t.Errorf("a certificate without a key: %v", err)
	}
	env[own+"CERTIFICATE"] = env["OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"]
	env[own+"KEY"] = env["OTEL_EXPORTER_OTLP_CLIENT_KEY"]
	env["OTEL_EXPORTER_OTLP_CLIENT_KEY"] = "/nowhere"
	if err := export(); err != nil || <-got != 1 {
		t.Errorf("a pair of the signal: %v", err)
	}
	env["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://localhost"
	o, _ := options(t, env)
	if _, err := o.spanSender(t.Context()); err == nil {
		t.Error("certificates for an endpoint without TLS are accepted")
	}
}

// TestRejection checks that a collector that accepts a part is reported.
func TestRejection(t *testing.T) {
	for _, test := range []struct {
		answer *collectorpb.ExportTracePartialSuccess
		want   string
	}{
		{nil, ""},
		{&collectorpb.ExportTracePartialSuccess{}, ""},
		{&collectorpb.ExportTracePartialSuccess{RejectedSpans: 300}, "the collector rejects 300 spans: "},
		{&collectorpb.ExportTracePartialSuccess{ErrorMessage: "too old"}, "the collector rejects 0 spans: too old"},
	} {
		body, err := proto.Marshal(&collectorpb.ExportTraceServiceResponse{PartialSuccess: test.answer})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := (answer{protobufType, body}).rejection("traces"); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%v is reported as %q, want %q", test.answer, got, test.want)
		}
	}
	for _, body := range []string{"\xff", "\x0a\x7f", "\x0a\x02\x08\xff", "<html>", "{}", `{"partialSuccess":7}`} {
		for _, contentType := range []string{protobufType, jsonType} {
			if err := (answer{contentType, []byte(body)}).rejection("traces"); err != nil {
				t.Errorf("the invalid answer %q is reported as %v", body, err)
			}
		}
	}
	for body, want := range map[string]string{
		`{"partialSuccess":{"rejectedSpans":"3","errorMessage":"too old"}}`: "the collector rejects 3 data points: too old",
		`{"partialSuccess":{"rejectedDataPoints":3}}`:                       "the collector rejects 3 data points: ",
	} {
		if err := (answer{jsonType, []byte(body)}).rejection("metrics"); err == nil || err.Error() != want {
			t.Errorf("%s is reported as %v, want %s", body, err, want)
		}
	}
}

// TestRetries checks which answers are followed by another request, and when.
func TestRetries(t *testing.T) {
	status := func(code int, after string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if after != "" {
				w.Header().Set("Retry-After", after)
			}
			w.WriteHeader(code)
		}
	}
	for _, test := range []struct {
		name    string
		answers []http.HandlerFunc
		want    time.Duration // to the next request; -1 without one
	}{
		{"accepted", []http.HandlerFunc{status(http.StatusOK, "")}, -1},
		{"wrong", []http.HandlerFunc{status(http.StatusBadRequest, "1")}, -1},
		{"overloaded", []http.HandlerFunc{status(http.StatusServiceUnavailable, "")}, 0},
		{"overloaded for a second", []http.HandlerFunc{status(http.StatusTooManyRequests, "1")}, time.Second},
		{"overloaded for long", []http.HandlerFunc{status(http.StatusTooManyRequests, "99999999999")}, retryFor + time.Second},
		{"overloaded for a day", []http.HandlerFunc{status(http.StatusTooManyRequests, "86400")}, retryFor + time.Second},
		{"overloaded until then", []http.HandlerFunc{status(http.StatusTooManyRequests, "Mon, 02 Jan 2006 15:04:05 GMT")}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			url, _ := keep(t, test.answers...)
			o, _ := options(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": url})
			to, err := o.receiver(t.Context(), "TRACES")
			if err != nil {
				t.Fatal(err)
			}
			_, err = to.post(t.Context(), nil)
			got := time.Duration(-1)
			if again, ok := errors.AsType[*againError](err); ok {
				got = again.after
			}
			if got != test.want {
				t.Errorf("retried after %v, want %v (%v)", got, test.want, err)
			}
		})
	}
}

// TestRetryAfterDate checks that the date until which a collector is overloaded is observed.
func TestRetryAfterDate(t *testing.T) {
	got := retryAfter(time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
	if got < 59*time.Minute || got > time.Hour {
		t.Errorf("retried after %v, want an hour", got)
	}
}

// transport is a collector without a network.
type transport func(r *http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// TestRetried checks that a message is sent again, not sooner than without a Retry-After, and that the error of an
// export that ended before still says how the collector answers.
func TestRetried(t *testing.T) {
	for _, test := range []struct {
		name     string
		after    string
		timeout  time.Duration // of the export
		accepts  int           // the number of the request that is accepted
		want     string
		requests int
	}{
		{"accepted", "1", time.Minute, 2, "", 2},
		{"for a minute", "", 2 * time.Minute, 99, "the collector answers 503 Busy: no room", 0},
		{"for longer", "3600", time.Minute, 99, "the collector answers 503 Busy: no room", 1},
		{"canceled", "", time.Second, 99, "context deadline exceeded: the collector answers 503 Busy: no room", 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin, requests := time.Now(), 0
				to := &receiver{signal: "traces", url: "http://collector", header: http.Header{}}
				to.client = &http.Client{Transport: transport(func(*http.Request) (*http.Response, error) {
					requests++
					if requests == test.accepts {
						return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
					}
					return &http.Response{StatusCode: http.StatusServiceUnavailable, Status: "503 Busy",
						Header: http.Header{"Retry-After": {test.after}},
						Body:   io.NopCloser(strings.NewReader("no room\n"))}, nil
				})}
				ctx, cancel := context.WithTimeout(t.Context(), test.timeout)
				defer cancel()
				got := ""
				if err := to.send(ctx, &tracepb.TracesData{}); err != nil {
					got = err.Error()
				}
				took := time.Since(begin)
				if got != test.want || test.requests > 0 && requests != test.requests || took > retryFor {
					t.Errorf("%d requests in %v: %q, want %q", requests, took, got, test.want)
				}
				if least := 2 * time.Second; requests == 2 && took < least {
					t.Errorf("sent again after %v, want %v at least", took, least)
				}
			})
		})
	}
}

// TestEcho checks that a collector that repeats a request does not bring the values of headers into the log.
func TestEcho(t *testing.T) {
	url, _ := keep(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		_, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		_, _ = io.WriteString(w, "the token "+token+" and the key "+r.Header.Get("X-Key")+" are unknown")
	})
	o, _ := options(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": url,
		"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20hunter2hunter2,x-key=hunter3,x-empty="})
	x, err := o.spanSender(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = x.ExportSpans(t.Context(), spans())
	if err == nil || strings.Contains(err.Error(), "hunter") || !strings.Contains(err.Error(), "are unknown") {
		t.Errorf("ExportSpans = %v", err)
	}
}

// TestPreferences checks the variables that change how metrics are aggregated.
func TestPreferences(t *testing.T) {
	for _, test := range []struct {
		temporality, aggregation string
		delta, exponential       bool
		log                      string
	}{
		{"", "", false, false, ""},
		{"delta", "explicit_bucket_histogram", true, false, ""},
		{"Cumulative", "base2_exponential_bucket_histogram", false, true, ""},
		{"lowmemory", "", true, false, ""},
		{"hunter2", "", false, false, "METRICS_TEMPORALITY_PREFERENCE is not"},
		{"", "hunter2", false, false, "METRICS_DEFAULT_HISTOGRAM_AGGREGATION is not"},
	} {
		o, log := options(t, map[string]string{
			"OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE":        test.temporality,
			"OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION": test.aggregation,
		})
		delta := o.temporality(t.Context())(sdkmetric.InstrumentKindCounter) == metricdata.DeltaTemporality
		_, exponential := o.aggregation(t.Context())(sdkmetric.InstrumentKindHistogram).(sdkmetric.AggregationBase2ExponentialHistogram)
		if delta != test.delta || exponential != test.exponential || !strings.Contains(log.String(), test.log) ||
			test.log == "" && log.Len() > 0 || strings.Contains(log.String(), "hunter2") {
			t.Errorf("%q, %q: delta %v, exponential %v, log %s", test.temporality, test.aggregation, delta, exponential, log)
		}
	}
}
