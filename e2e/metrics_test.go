package e2e

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	metricspb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	spanpb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/skillsd/skillsd/provenance"
)

var metricsAddr = regexp.MustCompile(`"msg":"metrics","addr":"([^"]+)"`)

// scrape gets a path of the metrics under a Host header.
func scrape(t testing.TB, verb, addr, path, host string, headers ...string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), verb, "http://"+addr+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(data)
}

// series adds up the values of a metric's series.
func series(t testing.TB, page, name string) (total int) {
	t.Helper()
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, name+" ") && !strings.HasPrefix(line, name+"{") {
			continue
		}
		var n int
		if _, err := fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &n); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		total += n
	}
	return total
}

// counts are what a page of metrics says of all sessions together.
func counts(t *testing.T, page string) provenance.Counts {
	t.Helper()
	return provenance.Counts{
		Activations: series(t, page, "skillsd_activations_total"), Reads: series(t, page, "skillsd_resource_reads_total"),
		Runs: series(t, page, "skillsd_script_runs_total"), Denials: series(t, page, "skillsd_denials_total"),
	}
}

// recordedCounts adds up the counts of the sessions of a state directory.
func recordedCounts(t *testing.T, state string) (total provenance.Counts, sessions int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(state, "sessions", "*", "session.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var s provenance.Session
		if err := json.Unmarshal(data, &s); err != nil {
			t.Fatal(err)
		}
		total.Activations += s.Counts.Activations
		total.Reads += s.Counts.Reads
		total.Runs += s.Counts.Runs
		total.Denials += s.Counts.Denials
	}
	return total, len(files)
}

// workOn makes calls of every kind that is counted, through any transport.
func workOn(call func(tool string, args map[string]any) toolResult) {
	run := func(script string) {
		call("run_skill_script", map[string]any{"skill": "demo", "path": "scripts/" + script, "args": []string{"hunter2"}})
	}
	run("ok.sh") // before it is loaded
	call("load_skill", map[string]any{"name": "demo"})
	call("load_skill", map[string]any{"name": "demo", "force": true})
	call("load_skill", map[string]any{"name": "no-such-skill"})
	call("read_skill_resource", map[string]any{"skill": "demo", "path": "references/notes.md"})
	call("read_skill_resource", map[string]any{"skill": "demo", "path": "assets/blob.bin"})
	call("read_skill_resource", map[string]any{"skill": "demo", "path": "references/none.md"})
	run("ok.sh")
	run("fail.sh")
	run("other.sh") // not allowed
}

// metered starts a server with metrics and calls its tools. It returns the address and the page of the metrics.
func metered(t *testing.T, state string) (p *process, addr, page string) {
	t.Helper()
	p = serve(t, append(demo(t, "ok.sh", "fail.sh"), "--state", state, "--metrics", "127.0.0.1:0")...)
	addr = p.logged(metricsAddr)
	p.initialize()
	workOn(func(tool string, args map[string]any) toolResult { return p.tool(tool, args) })
	status, page := scrape(t, "GET", addr, "/metrics", addr)
	if status != http.StatusOK {
		t.Fatalf("GET /metrics = %d %s", status, page)
	}
	return p, addr, page
}

// What is scraped during a session is what its record counts, and names nothing of what was said.
func TestMetricsStdio(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	p, addr, page := metered(t, state)
	for _, want := range []string{"skillsd_sessions 1\n", "skillsd_snapshot_skills 1\n", `skillsd_activations_total{skill="demo",source="model-tool"} 2` + "\n", "skillsd_rescan_seconds_count ", "skillsd_activation_failures_total{code=\"skill_not_found\",skill=\"other\"} 1\n",
		`mcp_server_operation_duration_seconds_count{gen_ai_operation_name="execute_tool",gen_ai_tool_name="run_skill_script",mcp_method_name="tools/call",`,
		`error_type="script_not_allowlisted"`, "go_goroutines ", "process_resident_memory_bytes "} {
		if !strings.Contains(page, want) {
			t.Errorf("the metrics lack %s\n%s", want, page)
		}
	}
	if strings.Contains(page, "hunter2") || strings.Contains(page, "no-such-skill") || strings.Contains(page, "ran-ok") {
		t.Errorf("the metrics hold what was said:\n%s", page)
	}
	p.end()
	recorded, sessions := recordedCounts(t, state)
	if got := counts(t, page); got != recorded || got.Activations != 2 || got.Reads != 2 || got.Denials != 2 || sessions != 1 {
		t.Errorf("metrics are %+v, the record of %d sessions has %+v", got, sessions, recorded)
	}
	if _, err := net.Dial("tcp", addr); err == nil {
		t.Error("the metrics outlive the server")
	}
}

// Over HTTP the metrics are those of all sessions, at an address of their own.
func TestMetricsHTTP(t *testing.T) {
	t.Parallel()
	s := serveHTTP(t, append(demo(t, "ok.sh", "fail.sh"), "--metrics", "127.0.0.1:0")...)
	addr := s.logged(metricsAddr)
	for range 3 {
		workOn(s.open("").tool)
	}
	if status, _ := scrape(t, "GET", strings.TrimPrefix(strings.TrimSuffix(s.url, "/mcp"), "http://"), "/metrics", "localhost"); status == http.StatusOK {
		t.Error("the address of the server serves metrics")
	}
	_, page := scrape(t, "GET", addr, "/metrics", addr)
	if n := series(t, page, "skillsd_sessions"); n != 3 {
		t.Errorf("%d sessions are open, want 3", n)
	}
	s.interrupt()
	if recorded, sessions := recordedCounts(t, s.state); counts(t, page) != recorded || sessions != 3 {
		t.Errorf("metrics are %+v, the records of %d sessions have %+v", counts(t, page), sessions, recorded)
	}
}

// A page in a browser gets nothing, whatever name it has the browser resolve to this address.
func TestMetricsGuard(t *testing.T) {
	p := serve(t, "--skills-root", tree(t, demoSkill()), "--metrics", "localhost:0")
	addr := p.logged(metricsAddr)
	for _, test := range []struct {
		name, verb, path, host string
		headers                []string
		want                   int
	}{
		{"address", "GET", "/metrics", addr, nil, 200},
		{"localhost", "GET", "/metrics", "LocalHost:1", nil, 200},
		{"no port", "GET", "/metrics", "[::1]", nil, 200},
		{"other name", "GET", "/metrics", "evil.example", nil, 403},
		{"name that starts like an address", "GET", "/metrics", "127.0.0.1.evil.example", nil, 403},
		{"web page", "GET", "/metrics", addr, []string{"Origin", "http://localhost:3000"}, 403},
		{"other path", "GET", "/", addr, nil, 404},
		{"debug", "GET", "/debug/pprof/", addr, nil, 404},
		{"write", "POST", "/metrics", addr, nil, 405},
	} {
		t.Run(test.name, func(t *testing.T) {
			status, body := scrape(t, test.verb, addr, test.path, test.host, test.headers...)
			if status != test.want || status != 200 && strings.Contains(body, "skillsd_") {
				t.Errorf("%d %s, want %d", status, body, test.want)
			}
		})
	}
}

// What cannot be listened on ends the server before it says anything on its transport.
func TestMetricsRefusals(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	root := tree(t, demoSkill())
	for _, test := range []struct {
		name string
		args []string
		code int
		text string
	}{
		{"in use", []string{"--http", "127.0.0.1:0", "--metrics", busy.Addr().String()}, 1, "--metrics: listen tcp"},
		{"all addresses", []string{"--metrics", ":0"}, 2, "--metrics-insecure"},
		{"no port", []string{"--metrics", "localhost"}, 2, "use HOST:PORT"},
		{"alone", []string{"--metrics-insecure"}, 2, "add --metrics"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd := exec.Command(binary, append([]string{"serve", "--state", t.TempDir(), "--skills-root", root}, test.args...)...)
			cmd.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n")
			var out, problems strings.Builder
			cmd.Stdout, cmd.Stderr = &out, &problems
			if err := cmd.Run(); cmd.ProcessState.ExitCode() != test.code {
				t.Errorf("%v, want exit code %d", err, test.code)
			}
			if out.Len() > 0 || !strings.Contains(problems.String(), test.text) {
				t.Errorf("stdout %q, stderr %q, want nothing and %q", out.String(), problems.String(), test.text)
			}
		})
	}
	p := serve(t, "--skills-root", root, "--metrics", ":0", "--metrics-insecure")
	if _, port, err := net.SplitHostPort(p.logged(metricsAddr)); err != nil || port == "0" {
		t.Errorf("--metrics-insecure does not listen: %v", err)
	}
}

// Spans and metrics go where the environment says, spans below the span of the caller, and the server leaves
// none behind.
func TestTraces(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var spans []*spanpb.Span
	var metrics []string
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		if err != nil || r.Header.Get("X-Key") != "hunter2" {
			t.Errorf("%s %v: %v", r.URL.Path, r.Header, err)
		}
		switch r.URL.Path {
		case "/v1/traces":
			var request tracepb.ExportTraceServiceRequest
			if err := proto.Unmarshal(body, &request); err != nil {
				t.Error(err)
			}
			for _, resource := range request.ResourceSpans {
				for _, scope := range resource.ScopeSpans {
					spans = append(spans, scope.Spans...)
				}
			}
		case "/v1/metrics":
			var request metricspb.ExportMetricsServiceRequest
			if err := proto.Unmarshal(body, &request); err != nil {
				t.Error(err)
			}
			for _, resource := range request.ResourceMetrics {
				for _, scope := range resource.ScopeMetrics {
					for _, m := range scope.Metrics {
						metrics = append(metrics, m.Name)
					}
				}
			}
		default:
			t.Errorf("something is sent to %s", r.URL.Path)
		}
	}))
	defer collector.Close()
	begin := func(env ...string) *process {
		p := serveWith(t, env, "--skills-root", tree(t, demoSkill()))
		p.initialize()
		p.toolWith("load_skill", map[string]any{"name": "demo"}, `{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}`)
		p.end()
		return p
	}
	begin("OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL, "OTEL_EXPORTER_OTLP_HEADERS=x-key=hunter2")
	var names []string
	for _, span := range spans {
		names = append(names, span.Name)
		if span.Name != "tools/call load_skill" {
			continue
		}
		if hex.EncodeToString(span.TraceId) != "4bf92f3577b34da6a3ce929d0e0e4736" || hex.EncodeToString(span.ParentSpanId) != "00f067aa0ba902b7" {
			t.Errorf("span %v is not below that of the caller", span)
		}
		if !slices.ContainsFunc(span.Attributes, func(kv *commonpb.KeyValue) bool {
			return kv.Key == "skillsd.skill" && kv.Value.GetStringValue() == "demo"
		}) {
			t.Errorf("span %v does not name its skill", span)
		}
	}
	for _, want := range []string{"initialize", "tools/call load_skill"} {
		if !slices.Contains(names, want) {
			t.Errorf("the collector got no span %s in %q", want, names)
		}
	}
	for _, want := range []string{"skillsd.activations", "skillsd.rescan", "mcp.server.operation.duration", "mcp.server.session.duration"} {
		if !slices.Contains(metrics, want) {
			t.Errorf("the collector got no metric %s in %q", want, metrics)
		}
	}
	if p := begin("OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"); !strings.Contains(p.stderr.String(), "no traces are sent") {
		t.Errorf("a protocol that is not spoken is not logged: %s", p.stderr)
	}
	sent := len(spans)
	begin()
	if len(spans) != sent {
		t.Errorf("spans were sent that nobody asked for: %v", spans[sent:])
	}
}

// A collector that never answers holds up neither a call nor the end of the server.
func TestTracesSilentCollector(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	p := serveWith(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + silent.Addr().String()}, "--skills-root", tree(t, demoSkill()))
	p.initialize()
	for range 1100 { // more than two batches
		p.tool("load_skill", map[string]any{"name": "demo"})
	}
	p.end()
}
