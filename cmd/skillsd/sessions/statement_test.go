package sessions

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/provenance/story"
)

func TestNewStatement(t *testing.T) {
	at := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	row := cfharness.ScriptExecution{
		Type: cfharness.TypeScriptExecution, OutputID: "s:run_skill_script:3", RunID: "s", SkillName: "a/pdf", Path: "scripts/x.sh",
		Status: cfharness.StatusExecuted, ExecutedAt: provenance.Stamp(at), ExecutionTarget: "sandbox", Runtime: "shebang",
		Argv: []string{"/bin/sh", "/skill/scripts/x.sh", "<arg>"}, Args: []string{"<arg>"}, ExitCode: new(3),
		Skillsd: &cfharness.RunExtension{
			Outcome: cfharness.OutcomeExited, DurationMS: 12, Backend: "native", Network: "none", Workspace: "ro", TreeDigest: digest.FromString("tree"),
			Limits: cfharness.RunLimits{TimeoutMS: 1, MemoryBytes: 2, PIDs: 3, FileBytes: 4, OutputBytes: 5},
			Stdout: cfharness.StreamSummary{Bytes: 3, Digest: digest.FromString("out")}, Stderr: cfharness.StreamSummary{Digest: digest.FromString("")},
			Out: []cfharness.OutFile{{Name: "a.csv", Digest: digest.FromString("csv")}, {Name: "withheld.csv"}},
		}, FileFacts: cfharness.FileFacts{ObservedDigest: digest.FromString("script")}}
	raw, err := provenance.Encode(row)
	if err != nil {
		t.Fatal(err)
	}
	e := &provenance.Event{
		Seq: 7, Time: at, Kind: provenance.KindScriptExecuted, Session: "s", Principal: "local", Client: "c 1", Skill: "a/pdf", Path: "scripts/x.sh",
		Row: raw, Decision: json.RawMessage(`{"decision":"allowed"}`), Prev: provenance.FirstPrev, Hash: "beef",
		Files: []provenance.File{{Name: "outputs/o.stdout", Size: 3, Digest: digest.FromString("out")}},
	}
	st, err := newStatement(story.StepOf(e))
	if err != nil {
		t.Fatal(err)
	}
	got, err := provenance.EncodePretty(st)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join("testdata", "statement.json"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("statement (-want +got):\n%s", diff)
	}

	for name, change := range map[string]func(*provenance.Event){
		"another kind":     func(e *provenance.Event) { e.Kind = provenance.KindScriptRequested },
		"did not start":    func(e *provenance.Event) { e.Row = json.RawMessage(`{"status":"error"}`) },
		"nothing to tell":  func(e *provenance.Event) { e.Row = json.RawMessage(`{"status":"executed"}`) },
		"without decision": func(e *provenance.Event) { e.Decision = nil },
	} {
		other := *e
		change(&other)
		st, err := newStatement(story.StepOf(&other))
		if want := name == "without decision"; err != nil || (st != nil) != want {
			t.Errorf("%s: newStatement = %v, %v", name, st, err)
		} else if want && string(st.Predicate.Policy) != "null" {
			t.Errorf("%s: policy is %s, want null", name, st.Predicate.Policy)
		}
	}
	e.Row = json.RawMessage(`{"status":1}`)
	if _, err := newStatement(story.StepOf(e)); !errors.Is(err, provenance.ErrInvalid) {
		t.Errorf("newStatement of a row that is none = %v, want ErrInvalid", err)
	}
}

// A statement names the answer that let the script run: that of its own call, or the one remembered.
func TestApprovalsOfRuns(t *testing.T) {
	encode := func(v any) json.RawMessage {
		raw, err := provenance.Encode(v)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	tree := digest.FromString("tree")
	answered := func(seq uint64, id, path, detail string) *provenance.Event {
		return &provenance.Event{Kind: provenance.KindApprovalAnswered, Seq: seq, Skill: "demo", Path: path, Want: tree.String(), Detail: detail, Row: encode(cfharness.ScriptRequest{OutputID: id})}
	}
	ran := func(id, path, evidence string, tree digest.Digest) *provenance.Event {
		return &provenance.Event{Kind: provenance.KindScriptExecuted, Skill: "demo", Path: path,
			Row:      encode(cfharness.ScriptExecution{OutputID: id, Skillsd: &cfharness.RunExtension{TreeDigest: tree}}),
			Decision: encode(cfharness.PolicyDecision{Skillsd: &cfharness.DecisionExtension{Evidence: evidence}})}
	}
	var all approvals
	for _, e := range []*provenance.Event{
		answered(3, "s:t:1", "a.sh", cfharness.ApprovalAccepted), answered(5, "s:t:2", "a.sh", "decline"), answered(6, "s:t:3", "a.sh", "not accepted: it came too late"),
		answered(7, "s:t:4", "b.sh", cfharness.ApprovalRemembered),
		answered(8, "s:t:9", "c.sh", cfharness.ApprovalBy+"alice at a terminal"),
	} {
		all.add(story.StepOf(e))
	}
	for _, tc := range []struct {
		e    *provenance.Event
		want *approval
	}{
		{ran("s:t:1", "a.sh", "approval", tree), &approval{Seq: 3}},
		{ran("s:t:2", "a.sh", "approval", tree), nil},
		{ran("s:t:9", "c.sh", "approval", tree), &approval{Seq: 8}},
		{ran("s:t:3", "a.sh", "approval", tree), nil},
		{ran("s:t:4", "b.sh", "approval", tree), &approval{Seq: 7, Remembered: true}},
		{ran("s:t:5", "b.sh", "approval", tree), &approval{Seq: 7, Remembered: true}},
		{ran("s:t:5", "b.sh", "approval", digest.FromString("other")), nil},
		{ran("s:t:5", "b.sh", "operator", tree), nil},
		{ran("s:t:5", "a.sh", "approval", tree), nil},
	} {
		if got := all.of(story.StepOf(tc.e)); (got == nil) != (tc.want == nil) || got != nil && *got != *tc.want {
			t.Errorf("%s of %s: %+v, want %+v", tc.e.Row, tc.e.Path, got, tc.want)
		}
	}
}
