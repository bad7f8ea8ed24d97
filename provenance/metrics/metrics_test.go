package metrics

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

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

// page returns what c writes of the metrics whose events are counted.
func pageOf(t testing.TB, c *Counters) string {
	t.Helper()
	var out bytes.Buffer
	if _, err := c.WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// sum adds the series of a metric up.
func sum(t testing.TB, page, name string) (total int) {
	t.Helper()
	for line := range strings.Lines(page) {
		series, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if series != name && !strings.HasPrefix(series, name+"{") {
			continue
		}
		n, err := strconv.Atoi(value[strings.LastIndexByte(value, ' ')+1:])
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		total += n
	}
	return total
}

// The totals of a session are the counts of its session.json.
func TestReplayedSession(t *testing.T) {
	counters := New(nil)
	for _, e := range recorded(t) {
		counters.Add(e)
	}
	data, err := os.ReadFile(filepath.Join("testdata", "session.json"))
	if err != nil {
		t.Fatal(err)
	}
	var session provenance.Session
	if err := json.Unmarshal(data, &session); err != nil {
		t.Fatal(err)
	}
	page := pageOf(t, counters)
	got := provenance.Counts{
		Activations: sum(t, page, "skillsd_activations_total"), Reads: sum(t, page, "skillsd_resource_reads_total"),
		Runs: sum(t, page, "skillsd_script_runs_total"), Denials: sum(t, page, "skillsd_denials_total"),
	}
	if got != session.Counts {
		t.Errorf("metrics are %+v, session.json has %+v", got, session.Counts)
	}
	want := []string{
		`skillsd_activations_total{skill="demo",source="model-tool"} 3`,
		`skillsd_activation_failures_total{skill="other",code="skill_not_found"} 1`,
		`skillsd_resource_reads_total{skill="demo"} 3`,
		`skillsd_script_runs_total{skill="demo",outcome="exited"} 3`,
		`skillsd_script_runs_total{skill="demo",outcome="timeout"} 1`,
		`skillsd_script_failures_total{skill="demo",code="exit_nonzero"} 1`,
		`skillsd_script_failures_total{skill="demo",code="timeout"} 1`,
		`skillsd_script_failures_total{skill="demo",code="unsupported_runtime"} 1`,
		`skillsd_denials_total{code="script_not_allowlisted"} 1`,
		`skillsd_denials_total{code="skill_not_activated"} 1`,
	}
	var series []string
	for line := range strings.Lines(page) {
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
	storetest.Run(t, func(t *testing.T) provenance.Store { return Count(newRecords(t), New(nil)) })

	counters := New(nil)
	inner := newRecords(t)
	store := Count(inner, counters)
	read := func() *provenance.Event {
		return &provenance.Event{Kind: provenance.KindResourceRead, Session: "s", Principal: "local", Skill: "demo", Row: []byte(`{"status":"read"}`)}
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
	if n := sum(t, pageOf(t, counters), "skillsd_resource_reads_total"); n != 1 {
		t.Errorf("%d reads are counted of 1 that was recorded", n)
	}
}

func TestSessions(t *testing.T) {
	counters := New(nil)
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
		counters.Add(&provenance.Event{Kind: step.kind, Session: step.session})
		if n := sum(t, pageOf(t, counters), "skillsd_sessions"); n != step.open {
			t.Errorf("step %d: %d sessions, want %d", i, n, step.open)
		}
	}
}

func denial(skill, tool, code string) *provenance.Event {
	return &provenance.Event{Kind: provenance.KindPolicyDenied, Skill: skill,
		Row: fmt.Appendf(nil, `{"toolId":%q,"detail":"\"code\":\"x\"","observationDenied":{"code":%q}}`, tool, code)}
}

// What a failed call names is no label unless it is served or was shown before.
func TestFailures(t *testing.T) {
	counters := New(&Options{Serves: func(path string) bool { return path == "served" }})
	counters.Add(&provenance.Event{Kind: provenance.KindSkillActivated, Skill: "shown", Row: []byte(`{"source":"model-tool"}`)})
	counters.Add(denial("served", "load_skill", "profile_excludes"))
	counters.Add(denial("shown", "prompts/get", "profile_excludes"))
	counters.Add(denial("ssh-key", "load_skill", "profile_excludes"))
	counters.Add(denial("served", "run_skill_script", "profile_excludes"))
	counters.Add(&provenance.Event{Kind: provenance.KindSkillActivated, Skill: "ssh-key", Detail: provenance.LoadError("skill_not_found")})
	counters.Add(&provenance.Event{Kind: provenance.KindSkillActivated, Skill: "served", Detail: provenance.LoadError("read_failed")})
	counters.Add(&provenance.Event{Kind: provenance.KindScriptExecuted, Skill: "ssh-key", Row: []byte(`{"status":"error","error":{"code":"skill_not_found"}}`)})
	page := pageOf(t, counters)
	for _, want := range []string{
		`skillsd_activation_failures_total{skill="other",code="profile_excludes"} 1`,
		`skillsd_activation_failures_total{skill="served",code="profile_excludes"} 1`,
		`skillsd_activation_failures_total{skill="shown",code="profile_excludes"} 1`,
		`skillsd_activation_failures_total{skill="other",code="skill_not_found"} 1`,
		`skillsd_activation_failures_total{skill="served",code="read_failed"} 1`,
		`skillsd_script_failures_total{skill="other",code="skill_not_found"} 1`,
		`skillsd_denials_total{code="profile_excludes"} 4`,
	} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("no line %s in\n%s", want, page)
		}
	}
	if strings.Contains(page, "ssh-key") {
		t.Error("a name from a failed call is a label")
	}
}

func TestLabelsAreBounded(t *testing.T) {
	counters := New(nil)
	activate := func(skill, source string) {
		row, err := json.Marshal(map[string]string{"source": source})
		if err != nil {
			t.Fatal(err)
		}
		counters.Add(&provenance.Event{Kind: provenance.KindSkillActivated, Skill: skill, Row: row})
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
	page := pageOf(t, counters)
	total := 4 + MaxSkills + 50 + MaxCodes + 50
	if n := sum(t, page, "skillsd_activations_total"); n != total {
		t.Errorf("%d activations are counted of %d", n, total)
	}
	if !utf8.ValidString(page) || strings.Contains(page, strings.Repeat("x", MaxLabel+1)) {
		t.Error("a label is no text or too long")
	}
	if n := strings.Count(page, `source="model-tool"}`); n != MaxSkills+1 {
		t.Errorf("%d skills have series, want %d", n, MaxSkills+1)
	}
	if n := strings.Count(page, `{skill="s0",`); n != MaxCodes+1 {
		t.Errorf("%d sources have series, want %d", n, MaxCodes+1)
	}
	for _, want := range []string{
		`{skill="other",source="model-tool"} 54`,
		`{skill="quote\"back\\slash\nline",source="model-tool"} 1`,
		`{skill="s0",source="other"} 51`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s", want)
		}
	}
}

func TestPage(t *testing.T) {
	counters := New(&Options{
		Skills: func() int { return 7 },
		Scans:  func() (int, time.Duration) { return 3, 1500 * time.Microsecond },
	})
	for _, ms := range []int{3, 5, 6, 2000, 400_000} {
		counters.Add(&provenance.Event{Kind: provenance.KindScriptExecuted, Skill: "demo",
			Row: fmt.Appendf(nil, `{"status":"executed","exitCode":0,"skillsd":{"outcome":"exited","durationMs":%d}}`, ms)})
	}
	page := pageOf(t, counters)
	for _, want := range []string{
		"# HELP skillsd_script_seconds How long scripts that started took.\n# TYPE skillsd_script_seconds histogram\n" +
			"skillsd_script_seconds_bucket{le=\"0.005\"} 2\nskillsd_script_seconds_bucket{le=\"0.01\"} 3\n",
		"skillsd_script_seconds_bucket{le=\"1\"} 3\nskillsd_script_seconds_bucket{le=\"2.5\"} 4\n",
		"skillsd_script_seconds_bucket{le=\"300\"} 4\nskillsd_script_seconds_bucket{le=\"+Inf\"} 5\n" +
			"skillsd_script_seconds_sum 402.014\nskillsd_script_seconds_count 5\n",
		"# TYPE skillsd_snapshot_skills gauge\nskillsd_snapshot_skills 7\n",
		"# TYPE skillsd_rescan_seconds summary\nskillsd_rescan_seconds_sum 0.0015\nskillsd_rescan_seconds_count 3\n",
		"skillsd_script_runs_total{skill=\"demo\",outcome=\"exited\"} 5\n# HELP skillsd_script_failures_total",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks\n%s\nit is\n%s", want, page)
		}
	}
	if strings.Contains(pageOf(t, New(nil)), "rescan") {
		t.Error("a metric that is not known is written")
	}
}

// Counting and writing from many goroutines loses nothing.
func TestConcurrency(t *testing.T) {
	counters := New(nil)
	events := recorded(t)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for _, e := range events {
				counters.Add(e)
				counters.WriteTo(io.Discard)
			}
		})
	}
	group.Wait()
	if n := sum(t, pageOf(t, counters), "skillsd_script_runs_total"); n != 8*4 {
		t.Errorf("%d runs are counted of %d", n, 8*4)
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
			counters := New(nil)
			b.ReportAllocs()
			for b.Loop() {
				counters.Add(e)
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
