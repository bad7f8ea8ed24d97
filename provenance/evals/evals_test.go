package evals_test

import (
	"encoding/json"
	"errors"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/provenance/evals"
	"github.com/skillsd/skillsd/provenance/filestore"
)

// hostile are names of files that a script chose.
var hostile = []string{"../../../../escape.txt", "/etc/x", "a b\n.csv", "a\u202eb", strings.Repeat("n", 300) + ".pdf", "..",
	"con", ""}

// record returns a store with the session s: what each kind of event says, and a run that made files.
func record(t *testing.T) (*filestore.Store, string) {
	t.Helper()
	place := t.TempDir()
	st, err := filestore.Open(place, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	at := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	add := func(e *provenance.Event) {
		t.Helper()
		at = at.Add(time.Second)
		e.Session, e.Principal, e.Client, e.Time = "s", "local", "c 1", at
		if err := st.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	put := func(name, content string) provenance.File {
		t.Helper()
		f, err := st.Put(t.Context(), "s", name, []byte(content))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	encode := func(v any) json.RawMessage {
		raw, err := provenance.Encode(v)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	decision := func(tool string, reasons ...string) json.RawMessage {
		return encode(cfharness.PolicyDecision{ToolID: tool, Decision: provenance.DecisionAllowed, ReasonCodes: reasons,
			PromptSlot: json.RawMessage(`{"role":"context"}`)})
	}
	add(&provenance.Event{Kind: provenance.KindSessionStarted, Row: json.RawMessage(`{"server":{}}`)})
	registry := put(provenance.RegistryFile, `{"skills":[{"name":"z"},{"name":"<a>\u001b[2J"}]}`)
	add(&provenance.Event{Kind: provenance.KindRegistrySnapshot, Detail: provenance.RegistryFile, Files: []provenance.File{registry}})
	activation := func(source cfharness.Source) json.RawMessage {
		return encode(cfharness.Activation{Source: source, Skillsd: &cfharness.ActivationExtension{}})
	}
	add(&provenance.Event{Kind: provenance.KindSkillActivated, Skill: "z", Detail: "cli-preload", Decision: decision("load_skill"),
		Row: activation(cfharness.SourcePreload)})
	add(&provenance.Event{Kind: provenance.KindSkillActivated, Skill: "z", Detail: "model-tool", Decision: decision("load_skill"),
		Row: activation(cfharness.SourceModel)})
	add(&provenance.Event{Kind: provenance.KindSkillActivated, Skill: "z", Detail: "model-tool", Row: activation(cfharness.SourceModel),
		Decision: decision("load_skill", cfharness.RuleResumeReload)})
	add(&provenance.Event{Kind: provenance.KindSkillActivated, Skill: "none", Detail: provenance.LoadError("skill_not_found")})
	add(&provenance.Event{Kind: provenance.KindResourceRead, Skill: "z", Path: "a.md", Decision: decision("resources/read"),
		Row: encode(cfharness.ResourceRead{Status: cfharness.StatusRead})})
	add(&provenance.Event{Kind: provenance.KindResourceRead, Skill: "z", Path: "b.md", Decision: decision("read_skill_resource"),
		Row: encode(cfharness.ResourceRead{Status: cfharness.StatusError, Error: &cfharness.RecordError{Code: "resource_not_indexed"}})})
	add(&provenance.Event{Kind: provenance.KindPolicyWarned, Skill: "z", Row: json.RawMessage(`{}`)})
	add(&provenance.Event{Kind: provenance.KindPolicyDenied, Skill: "z", Path: "x.sh", Decision: decision("run_skill_script"),
		Row: encode(cfharness.PolicyEvent{ObservationDenied: &cfharness.ObservationDenied{Code: "script_not_allowlisted"}})})
	run := cfharness.ScriptExecution{OutputID: "s:run_skill_script:3", Status: cfharness.StatusExecuted, ExitCode: new(3),
		Skillsd: &cfharness.RunExtension{Outcome: cfharness.OutcomeExited, DurationMS: 12}}
	var files []provenance.File
	for i, name := range hostile {
		content := strings.Repeat("x", i)
		files = append(files, put(provenance.OutputName(run.OutputID, "out-"+string(rune('0'+i))), content))
		run.Skillsd.Out = append(run.Skillsd.Out, cfharness.OutFile{Name: name, Digest: digest.FromString(content)})
	}
	run.Skillsd.Out = append(run.Skillsd.Out, cfharness.OutFile{Name: "withheld.csv", Withheld: "secret"})
	add(&provenance.Event{Kind: provenance.KindScriptExecuted, Skill: "z", Path: "x.sh", Row: encode(run), Files: files,
		Decision: decision("run_skill_script")})
	add(&provenance.Event{Kind: provenance.KindSessionEnded})
	return st, place
}

// shown yields a text of n bytes with each event of these numbers.
func shown(bytes int, seqs ...uint64) iter.Seq2[evals.Text, error] {
	return func(yield func(evals.Text, error) bool) {
		for _, seq := range seqs {
			text := evals.Text{Seq: seq, Bytes: bytes, Write: func(w io.Writer) error {
				_, err := io.WriteString(w, "#4 instructions\n| Do it.\n\n")
				return err
			}}
			if !yield(text, nil) {
				return
			}
		}
	}
}

func write(t *testing.T, st *filestore.Store, texts iter.Seq2[evals.Text, error]) (string, error) {
	t.Helper()
	return writeEval(t, st, evals.Eval{ID: 3, Name: "one", Prompt: "Do <it>."}, texts)
}

func writeEval(t *testing.T, st *filestore.Store, eval evals.Eval, texts iter.Seq2[evals.Text, error]) (string, error) {
	t.Helper()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	return dir, evals.Write(t.Context(), root, st, "s", eval, texts)
}

func decode[T any](t *testing.T, dir, name string) (v T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return v
}

func TestWrite(t *testing.T) {
	st, _ := record(t)
	dir, err := write(t, st, shown(9, 4, 7, 11, 11))
	if err != nil {
		t.Fatal(err)
	}
	run := decode[evals.Run](t, dir, "skillsd.json")
	var steps []string
	for _, s := range run.Steps {
		steps = append(steps, strings.TrimRight(strings.Join([]string{s.What, s.Tool, s.Code}, " "), " "))
	}
	if diff := cmp.Diff([]string{"loaded", "loaded load_skill", "loaded", "failed load_skill skill_not_found", "read resources/read",
		"failed read_skill_resource resource_not_indexed", "denied run_skill_script script_not_allowlisted",
		"ran run_skill_script"}, steps); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	last := run.Steps[len(run.Steps)-1]
	if last.ExitCode == nil || *last.ExitCode != 3 || last.DurationMS != 12 || string(last.PromptSlot) != `{"role":"context"}` ||
		last.ShownBytes != 18 || last.ShownTokens != 5 || len(last.Files) != len(hostile) {
		t.Errorf("the run is %+v", last)
	}
	if diff := cmp.Diff(evals.Summary{Client: "c 1", Skills: []string{"<a>\x1b[2J", "z"}, Totals: evals.Totals{
		Loaded: 3, Read: 1, Ran: 1, Denied: 1, Failed: 2, ShownBytes: 36, ShownTokens: 11}}, run.Summary); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
	transcript, err := os.ReadFile(filepath.Join(dir, "transcript.md"))
	if err != nil || !strings.HasPrefix(string(transcript), "## Eval Prompt\n\nDo <it>.\n\n##") || strings.Count(string(transcript), "| Do it.\n") != 4 {
		t.Errorf("transcript %q, %v", transcript, err)
	}
	metrics := decode[map[string]any](t, dir, "outputs/metrics.json")
	created, _ := metrics["files_created"].([]any)
	delete(metrics, "files_created")
	if diff := cmp.Diff(map[string]any{"tool_calls": map[string]any{"load_skill": 2., "resources/read": 1., "read_skill_resource": 1.,
		"run_skill_script": 2.}, "total_tool_calls": 6., "total_steps": 6., "errors_encountered": 4., "output_chars": 28.,
		"transcript_chars": float64(len(transcript))}, metrics); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	// Whatever a script calls a file, it lies in outputs under a name that says what it is.
	entries, err := os.ReadDir(filepath.Join(dir, "outputs"))
	if err != nil || len(entries) != len(hostile)+1 || len(created) != len(hostile) {
		t.Fatalf("outputs %v, created %q, %v", entries, created, err)
	}
	for i, name := range created {
		name := name.(string)
		info, err := os.Lstat(filepath.Join(dir, "outputs", name))
		if err != nil || info.Size() != int64(i) || strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789._-") != "" ||
			filepath.Ext(hostile[i]) == ".pdf" && filepath.Ext(name) != ".pdf" {
			t.Errorf("%q is %q: %v", hostile[i], name, err)
		}
	}
	if diff := cmp.Diff(evals.Eval{ID: 3, Name: "one", Prompt: "Do <it>.", Assertions: provenance.List[json.RawMessage]{}},
		decode[evals.Eval](t, dir, "eval_metadata.json")); diff != "" {
		t.Errorf("eval (-want +got):\n%s", diff)
	}
	if timing := decode[evals.Timing](t, dir, "timing.json"); timing.TotalTokens != 11 || timing.DurationMS != 11_000 || timing.Seconds != 11 {
		t.Errorf("timing %+v", timing)
	}
}

// Where a model reads them, files of a run whose output was withheld from it are left out.
func TestWriteReleased(t *testing.T) {
	st, _ := record(t)
	run := cfharness.ScriptExecution{OutputID: "s:run_skill_script:4", Status: cfharness.StatusExecuted,
		Skillsd: &cfharness.RunExtension{Stdout: cfharness.StreamSummary{Withheld: cfharness.PolicyOpaque},
			Out: []cfharness.OutFile{{Name: "kept.csv", Digest: digest.FromString("secret")}}}}
	file, err := st.Put(t.Context(), "s", provenance.OutputName(run.OutputID, "out-0"), []byte("secret"))
	if err != nil {
		t.Fatal(err)
	}
	row, err := provenance.Encode(run)
	if err == nil {
		err = st.Append(t.Context(), &provenance.Event{Session: "s", Principal: "local", Kind: provenance.KindScriptExecuted,
			Skill: "z", Path: "x.sh", Row: row, Files: []provenance.File{file}})
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, released := range []bool{false, true} {
		dir, err := writeEval(t, st, evals.Eval{Released: released}, shown(0))
		made, globErr := filepath.Glob(filepath.Join(dir, "outputs", "*kept.csv"))
		if err := errors.Join(err, globErr); err != nil || (len(made) == 0) != released {
			t.Errorf("released %v: %q, %v", released, made, err)
		}
	}
}

// A file that somebody changed is not exported as what the script made.
func TestWriteChanged(t *testing.T) {
	st, place := record(t)
	name := filepath.Join(place, "s", provenance.OutputName("s:run_skill_script:3", "out-2"))
	if err := os.WriteFile(name, []byte("forged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := write(t, st, shown(1)); !errors.Is(err, provenance.ErrCorrupt) {
		t.Errorf("Write with another output = %v, want ErrCorrupt", err)
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	dir, err := write(t, st, shown(1))
	if err != nil {
		t.Fatal(err)
	}
	if run := decode[evals.Run](t, dir, "skillsd.json"); len(run.Steps[7].Files) != len(hostile)-1 {
		t.Errorf("files %q without one that is gone", run.Steps[7].Files)
	}
	failure := errors.New("lost")
	if _, err := write(t, st, func(yield func(evals.Text, error) bool) { yield(evals.Text{}, failure) }); !errors.Is(err, failure) {
		t.Errorf("Write without the texts = %v, want %v", err, failure)
	}
}
