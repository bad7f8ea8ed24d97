package telemetry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/provenance/storetest"
)

// recorded returns the events of the session in testdata, which a real server recorded.
func recorded(t testing.TB) (events []*provenance.Event) {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	scanner := provenance.NewScanner(file)
	for {
		e, err := scanner.Next()
		if err == io.EOF {
			return events
		}
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
}

// reader is a page of Prometheus with what counters measure.
type reader struct {
	t        testing.TB
	registry *prometheus.Registry
}

// newCounters returns counters and the page that shows them.
func newCounters(t testing.TB, rescans Rescans) (*Counters, *reader) {
	t.Helper()
	registry := prometheus.NewRegistry()
	exporting := []otelprometheus.Option{
		otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo(),
		otelprometheus.WithoutTargetInfo(),
	}
	if rescans != nil {
		exporting = append(exporting, otelprometheus.WithProducer(rescans))
	}
	exporter, err := otelprometheus.New(exporting...)
	if err != nil {
		t.Fatal(err)
	}
	counters := New(metric.NewMeterProvider(metric.WithReader(exporter), metric.WithCardinalityLimit(0)),
		func() int { return 7 }, func(path string) bool { return path == "served" })
	return counters, &reader{t, registry}
}

// text is the page as it is served.
func (r *reader) text() string {
	r.t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	var out bytes.Buffer
	for _, family := range families {
		if _, err := expfmt.MetricFamilyToText(&out, family); err != nil {
			r.t.Fatal(err)
		}
	}
	return out.String()
}

// sum adds the series of a counter or a gauge up, as Prometheus parses them.
func (r *reader) sum(name string) (total int) {
	r.t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(r.text()))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, m := range families[name].GetMetric() {
		total += int(m.GetCounter().GetValue() + m.GetGauge().GetValue())
	}
	return total
}

// The totals of a session are the counts of its session.json.
func TestReplayedSession(t *testing.T) {
	counters, page := newCounters(t, nil)
	for _, e := range recorded(t) {
		counters.Add(t.Context(), e)
	}
	data, err := os.ReadFile(filepath.Join("testdata", "session.json"))
	if err != nil {
		t.Fatal(err)
	}
	var session provenance.Session
	if err := json.Unmarshal(data, &session); err != nil {
		t.Fatal(err)
	}
	text := page.text()
	got := provenance.Counts{
		Activations: page.sum("skillsd_activations_total"), Reads: page.sum("skillsd_resource_reads_total"),
		Runs: page.sum("skillsd_script_runs_total"), Denials: page.sum("skillsd_denials_total"),
	}
	if got != session.Counts {
		t.Errorf("metrics are %+v, session.json has %+v", got, session.Counts)
	}
	want := []string{
		`skillsd_activation_failures_total{code="skill_not_found",skill="other"} 1`,
		`skillsd_activations_total{skill="demo",source="model-tool"} 3`,
		`skillsd_denials_total{code="script_not_allowlisted"} 1`,
		`skillsd_denials_total{code="skill_not_activated"} 1`,
		`skillsd_resource_reads_total{skill="demo"} 3`,
		`skillsd_script_failures_total{code="exit_nonzero",skill="demo"} 1`,
		`skillsd_script_failures_total{code="timeout",skill="demo"} 1`,
		`skillsd_script_failures_total{code="unsupported_runtime",skill="demo"} 1`,
		`skillsd_script_runs_total{outcome="exited",skill="demo"} 3`,
		`skillsd_script_runs_total{outcome="timeout",skill="demo"} 1`,
	}
	var series []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, "_total{") {
			series = append(series, strings.TrimSuffix(line, "\n"))
		}
	}
	if diff := cmp.Diff(want, series); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
	}
}

// The wrapped store is a store, and counts what it accepted only.
func TestStore(t *testing.T) {
	open := func(t *testing.T) provenance.Store {
		store, err := filestore.Open(t.TempDir(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return store
	}
	storetest.Run(t, func(t *testing.T) provenance.Store {
		counters, _ := newCounters(t, nil)
		return Count(open(t), counters)
	})

	counters, page := newCounters(t, nil)
	inner := open(t)
	store := Count(inner, counters)
	read := func() *provenance.Event {
		return &provenance.Event{Kind: provenance.KindResourceRead, Session: "s", Principal: "local",
			Skill: "demo", Row: []byte(`{"status":"read"}`)}
	}
	if err := store.Append(t.Context(), read()); err != nil {
		t.Fatal(err)
	}
	refused := read()
	refused.Session = "../s"
	if err := store.Append(t.Context(), refused); !errors.Is(err, provenance.ErrInvalid) {
		t.Fatalf("Append of an invalid event = %v", err)
	}
	if err := inner.Close(); err != nil {
		t.Fatal(err)
	}
	if err := store.Append(t.Context(), read()); !errors.Is(err, provenance.ErrClosed) {
		t.Fatalf("Append to a closed store = %v", err)
	}
	if n := page.sum("skillsd_resource_reads_total"); n != 1 {
		t.Errorf("%d reads are counted of 1 that was recorded", n)
	}
}

func TestSessions(t *testing.T) {
	counters, page := newCounters(t, nil)
	for i, step := range []struct {
		kind    provenance.Kind
		session string
		open    int
	}{
		{provenance.KindSessionStarted, "a", 1},
		{provenance.KindSessionStarted, "b", 2},
		{provenance.KindSessionResumed, "a", 2},
		{provenance.KindSessionEnded, "a", 1},
		{provenance.KindSessionEnded, "a", 1},
		{provenance.KindSessionResumed, "a", 2},
		{provenance.KindSessionEnded, "c", 2},
	} {
		counters.Add(t.Context(), &provenance.Event{Kind: step.kind, Session: step.session})
		if n := page.sum("skillsd_sessions"); n != step.open {
			t.Errorf("step %d: %d sessions, want %d", i, n, step.open)
		}
	}
}

func denial(skill, tool, code string) *provenance.Event {
	return &provenance.Event{Kind: provenance.KindPolicyDenied, Skill: skill,
		Row: fmt.Appendf(nil, `{"toolId":%q,"detail":"\"code\":\"x\"","observationDenied":{"code":%q}}`, tool,
			code)}
}

// What a failed call names is no label unless it is served or was shown before.
func TestFailures(t *testing.T) {
	counters, page := newCounters(t, nil)
	counters.Add(t.Context(), &provenance.Event{Kind: provenance.KindSkillActivated, Skill: "shown",
		Row: []byte(`{"source":"model-tool"}`)})
	counters.Add(t.Context(), denial("served", "load_skill", "profile_excludes"))
	counters.Add(t.Context(), denial("shown", "prompts/get", "profile_excludes"))
	counters.Add(t.Context(), denial("ssh-key", "load_skill", "profile_excludes"))
	counters.Add(t.Context(), denial("served", "run_skill_script", "profile_excludes"))
	counters.Add(t.Context(), &provenance.Event{Kind: provenance.KindSkillActivated, Skill: "ssh-key",
		Detail: provenance.LoadError("skill_not_found")})
	counters.Add(t.Context(), &provenance.Event{Kind: provenance.KindSkillActivated, Skill: "served",
		Detail: provenance.LoadError("read_failed")})
	counters.Add(t.Context(), &provenance.Event{Kind: provenance.KindScriptExecuted, Skill: "ssh-key",
		Row: []byte(`{"status":"error","error":{"code":"skill_not_found"}}`)})
	text := page.text()
	for _, want := range []string{
		`skillsd_activation_failures_total{code="profile_excludes",skill="other"} 1`,
		`skillsd_activation_failures_total{code="profile_excludes",skill="served"} 1`,
		`skillsd_activation_failures_total{code="profile_excludes",skill="shown"} 1`,
		`skillsd_activation_failures_total{code="skill_not_found",skill="other"} 1`,
		`skillsd_activation_failures_total{code="read_failed",skill="served"} 1`,
		`skillsd_script_failures_total{code="skill_not_found",skill="other"} 1`,
		`skillsd_denials_total{code="profile_excludes"} 4`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no line %s in\n%s", want, text)
		}
	}
	if strings.Contains(text, "ssh-key") {
		t.Error("a name from a failed call is a label")
	}
}

func TestLabelsAreBounded(t *testing.T) {
	counters, page := newCounters(t, nil)
	activate := func(skill, source string) {
		row, err := json.Marshal(map[string]string{"source": source})
		if err != nil {
			t.Fatal(err)
		}
		counters.Add(t.Context(), &provenance.Event{Kind: provenance.KindSkillActivated, Skill: skill,
			Row: row})
	}
	activate("caf\xe9", "model-tool")
	activate(strings.Repeat("x", MaxLabel+1), "model-tool")
	activate("", "model-tool")
	activate("quote\"back\\slash\nline", "model-tool")
	for i := range MaxSkills + 50 {
		activate(fmt.Sprintf("s%d", i), "model-tool")
	}
	for i := range MaxCodes + 50 {
		activate("s0", fmt.Sprintf("c%d", i))
	}
	text := page.text()
	total := 4 + MaxSkills + 50 + MaxCodes + 50
	if n := page.sum("skillsd_activations_total"); n != total {
		t.Errorf("%d activations are counted of %d", n, total)
	}
	if !utf8.ValidString(text) || strings.Contains(text, strings.Repeat("x", MaxLabel+1)) {
		t.Error("a label is no text or too long")
	}
	if n := strings.Count(text, `source="model-tool"}`); n != MaxSkills+1 {
		t.Errorf("%d skills have series, want %d", n, MaxSkills+1)
	}
	if n := strings.Count(text, `{skill="s0",`); n != MaxCodes+1 {
		t.Errorf("%d sources have series, want %d", n, MaxCodes+1)
	}
	for _, want := range []string{
		`{skill="other",source="model-tool"} 54`,
		`{skill="quote\"back\\slash\nline",source="model-tool"} 1`,
		`{skill="s0",source="other"} 51`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
}

func TestPage(t *testing.T) {
	counters, page := newCounters(t, func() (int, time.Duration) { return 3, 1500 * time.Microsecond })
	for _, ms := range []int{3, 5, 6, 2000, 400_000} {
		counters.Add(t.Context(), &provenance.Event{Kind: provenance.KindScriptExecuted, Skill: "demo",
			Row: fmt.Appendf(nil, `{"status":"executed","exitCode":0,"skillsd":{"outcome":"exited","durationMs":%d}}`, ms)})
	}
	text := page.text()
	for _, want := range []string{
		"# HELP skillsd_script_seconds How long scripts that started took.\n# TYPE skillsd_script_seconds " +
			"histogram\n" +
			"skillsd_script_seconds_bucket{le=\"0.005\"} 2\nskillsd_script_seconds_bucket{le=\"0.01\"} 3\n",
		"skillsd_script_seconds_bucket{le=\"1\"} 3\nskillsd_script_seconds_bucket{le=\"2.5\"} 4\n",
		"skillsd_script_seconds_bucket{le=\"300\"} 4\nskillsd_script_seconds_bucket{le=\"+Inf\"} 5\n" +
			"skillsd_script_seconds_sum 402.014\nskillsd_script_seconds_count 5\n",
		"# TYPE skillsd_snapshot_skills gauge\nskillsd_snapshot_skills 7\n",
		"# TYPE skillsd_rescan_seconds histogram\nskillsd_rescan_seconds_bucket{le=\"+Inf\"} 3\n" +
			"skillsd_rescan_seconds_sum 0.0015\nskillsd_rescan_seconds_count 3\n",
		"skillsd_script_runs_total{outcome=\"exited\",skill=\"demo\"} 5\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks\n%s\nit is\n%s", want, text)
		}
	}
	if _, empty := newCounters(t, nil); strings.Contains(empty.text(), "rescan") {
		t.Error("a metric that is not known is shown")
	}
}

// Counting and writing from many goroutines loses nothing.
func TestConcurrency(t *testing.T) {
	counters, page := newCounters(t, nil)
	events := recorded(t)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for _, e := range events {
				counters.Add(t.Context(), e)
				page.text()
			}
		})
	}
	group.Wait()
	if n := page.sum("skillsd_script_runs_total"); n != 8*4 {
		t.Errorf("%d runs are counted of %d", n, 8*4)
	}
}

// A recorded event names the session, the skill and the outcome of a script in the span of its request, but
// not the skill that a failed call names, unless it is served.
func TestSpanAttributes(t *testing.T) {
	counters, _ := newCounters(t, nil)
	for _, test := range []struct {
		event *provenance.Event
		want  map[string]string
	}{
		{&provenance.Event{Kind: provenance.KindScriptExecuted, Skill: "office/demo",
			Row: []byte(`{"status":"executed","skillsd":{"outcome":"timeout"}}`)},
			map[string]string{"skillsd.skill": "office/demo", "gen_ai.skill.name": "demo", "skillsd.outcome": "timeout"}},
		{&provenance.Event{Kind: provenance.KindScriptRequested, Skill: "ssh-key"}, map[string]string{}},
		{denial("ssh-key", "load_skill", "profile_excludes"), map[string]string{}},
		{denial("served", "load_skill", "profile_excludes"), map[string]string{"skillsd.skill": "served", "gen_ai.skill.name": "served"}},
	} {
		recorder := tracetest.NewSpanRecorder()
		provider := trace.NewTracerProvider(trace.WithSpanProcessor(recorder))
		ctx, span := provider.Tracer("").Start(t.Context(), "request")
		test.event.Session = "s"
		test.want["skillsd.session"] = "s"
		counters.Add(ctx, test.event)
		span.End()
		got := map[string]string{}
		for _, kv := range recorder.Ended()[0].Attributes() {
			got[string(kv.Key)] = kv.Value.AsString()
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s of %s (-want +got):\n%s", test.event.Kind, test.event.Skill, diff)
		}
	}
}

// BenchmarkAdd is what counting adds to an append, by kind of event.
func BenchmarkAdd(b *testing.B) {
	seen := map[provenance.Kind]bool{}
	for _, e := range recorded(b) {
		if seen[e.Kind] {
			continue
		}
		seen[e.Kind] = true
		b.Run(string(e.Kind), func(b *testing.B) {
			counters, _ := newCounters(b, nil)
			b.ReportAllocs()
			for b.Loop() {
				counters.Add(b.Context(), e)
			}
		})
	}
}
