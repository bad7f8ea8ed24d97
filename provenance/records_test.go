package provenance_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
)

var update = flag.Bool("update", false, "write the golden files")

var (
	at  = provenance.Stamp(time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC))
	sum = digest.FromString("abc")
)

// golden compares data with a file of testdata.
func golden(t *testing.T, name string, data []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(data)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

type record struct {
	name  string
	value any
}

// Each record is written with every key and with only those that are always there.
func TestRecordShapes(t *testing.T) {
	var lines bytes.Buffer
	for _, r := range append(rowRecords(), policyRecords()...) {
		raw, err := provenance.Encode(r.value)
		if err != nil {
			t.Fatalf("%s: %v", r.name, err)
		}
		fmt.Fprintf(&lines, "%s %s\n", r.name, raw)
	}
	golden(t, "records.txt", lines.Bytes())
}

func rowRecords() []record {
	diag := provenance.List[provenance.RegistryDiagnostic]{{Severity: "warning", Code: "c", Detail: "<d>", Path: "p"}}
	matches, size, code, text := false, int64(0), 0, ""
	run := &provenance.RunExtension{Outcome: provenance.OutcomeSignaled, Signal: "SIGKILL", Backend: "native", Network: "none", Workspace: "none", TreeDigest: sum}
	return []record{
		{"registry-min", provenance.SkillRegistry{Type: provenance.TypeSkillRegistry, Version: 1, Skills: provenance.List[provenance.RegistrySkill]{{Frontmatter: json.RawMessage("{}")}}}},
		{"registry-max", provenance.SkillRegistry{
			Type: provenance.TypeSkillRegistry, Version: 1, SkillsRoot: "/r", SandboxSkillsRoot: "/workspace/skills", GeneratedAt: at,
			Skills: []provenance.RegistrySkill{{
				Name: "n", Description: "d", SkillPath: "/r/n/SKILL.md", SkillDir: "/r/n", SandboxPath: "/workspace/skills/n/SKILL.md",
				SandboxSkillDir: "/workspace/skills/n", Digest: sum,
				Resources: []provenance.RegistryResource{{
					Path: "scripts/x", Kind: "script", ResourcePath: "/r/n/scripts/x", SandboxResourcePath: "/workspace/skills/n/scripts/x",
					SizeBytes: 1, Digest: sum, ContentKind: "text",
					Script:  &provenance.RegistryScript{Executable: true, Shebang: "/bin/sh", Runtime: "shebang"},
					Skillsd: &provenance.RegistryResourceExtension{Runtime: "sh"},
				}},
				Frontmatter: json.RawMessage(`{"name":"n","tags":["a"]}`), Diagnostics: diag,
				Skillsd: &provenance.RegistrySkillExtension{Path: "n", Tier: "org", TreeDigest: sum},
			}},
			Diagnostics: diag,
			Skillsd:     &provenance.RegistryExtension{Roots: []provenance.RegistryRoot{{Path: "/r", SandboxPath: "/workspace/skills", Tier: "org", Prefix: "p"}}},
		}},
		{"activation", provenance.Activation{Name: "n", Source: provenance.SourcePreload, Digest: sum, ActivatedAt: at, CFCPromptRole: "context", Skillsd: &provenance.ActivationExtension{TaskID: "t"}}},
		{"read-min", provenance.ResourceRead{Type: provenance.TypeResourceRead, Status: provenance.StatusError, ReadAt: at, Error: &provenance.RecordError{Code: "unknown", Message: "m"}}},
		{"read-max", provenance.ResourceRead{
			Type: provenance.TypeResourceRead, OutputID: "r:t:1", RunID: "r", SkillName: "n", Path: "p", Status: provenance.StatusRead, ReadAt: at,
			CFCPromptRole: "context", Kind: "asset", ResourcePath: "/h", SandboxResourcePath: "/s", RegistryDigest: sum, ObservedDigest: sum,
			DigestMatchesRegistry: &matches, RegistrySizeBytes: &size, ObservedSizeBytes: &size, ContentKind: "text", MaxBytes: &size,
			Truncated: &matches, Diagnostics: diag, Skillsd: &provenance.ReadExtension{Via: "load_skill"},
		}},
		{"execution-min", provenance.ScriptExecution{Type: provenance.TypeScriptExecution, Status: provenance.StatusError, ExecutedAt: at}},
		{"execution-max", provenance.ScriptExecution{
			Type: provenance.TypeScriptExecution, OutputID: "r:t:1", RunID: "r", SkillName: "n", Path: "p", Status: provenance.StatusExecuted,
			ExecutedAt: at, ExecutionTarget: "sandbox", Runtime: "bash", Argv: []string{"bash", "<"}, Args: []string{}, CWD: "/w",
			ResourcePath: "/h", SandboxResourcePath: "/s", RegistryDigest: sum, ObservedDigest: sum, DigestMatchesRegistry: &matches,
			RegistrySizeBytes: &size, ObservedSizeBytes: &size, ExitCode: &code, Diagnostics: diag, Skillsd: run,
		}},
		{"read-output", provenance.ReadOutput{Type: provenance.TypeReadOutput, Status: provenance.StatusRead, CFCPromptRole: "context", Content: &text}},
		{"run-output", provenance.RunOutput{Type: provenance.TypeRunOutput, Status: provenance.StatusExecuted, Stdout: &text, Stderr: &text, ExitCode: &code, StdoutTruncated: &matches, StdoutOriginalLength: &size, Skillsd: run}},
	}
}

func policyRecords() []record {
	size, count, text := int64(0), 0, ""
	handle := &provenance.OpaqueHandle{Type: provenance.TypeOpaqueHandle, HandleID: "o:stdout", Scope: "run", CreatedAt: at, PassThrough: true}
	return []record{
		{"policy-event", provenance.PolicyEvent{
			Type: provenance.TypePolicyEvent, Severity: provenance.SeverityDenied, Mode: "observe", ToolID: "t", Detail: "d", At: at, ToolCallID: "c",
			PromptSlot:        json.RawMessage(`{"role":"context"}`),
			ToolInputSummary:  &provenance.ToolInputSummary{Type: provenance.TypeToolInputSummary, ToolID: "t", Skill: &text, Path: &text, MaxBytes: &size, ArgsCount: &count, CWD: &text, TimeoutMS: &size},
			ObservationDenied: &provenance.ObservationDenied{Type: provenance.TypeObservationDenied, Reason: "not-authorized", Detail: "d", Handle: handle, Code: "c", Skill: "s", Path: "p", Remedy: "r", RuleID: "i", EventID: "e"},
		}},
		{"policy-event-min", provenance.PolicyEvent{Type: provenance.TypePolicyEvent, At: at, ObservationDenied: &provenance.ObservationDenied{Type: provenance.TypeObservationDenied}}},
		{"decision-min", provenance.PolicyDecision{Type: provenance.TypePolicyDecision, At: at}},
		{"decision-max", provenance.PolicyDecision{
			Type: provenance.TypePolicyDecision, Sequence: 1, RunID: "r", At: at, ToolActivitySequence: 1, ToolCallID: "c", ToolID: "t", EffectClass: "read",
			Mode: "observe", Decision: provenance.DecisionWarned, ReasonCodes: []string{"cfc_observe_read"}, Detail: "d", PromptSlot: json.RawMessage("{}"),
			ToolInputSummary: &provenance.ToolInputSummary{Type: provenance.TypeToolInputSummary, ToolID: "t"}, PolicyEventIndexes: []int{0}, SubagentProfile: "browser",
			Skillsd: &provenance.DecisionExtension{Code: "c", RuleID: "i"},
		}},
		{"policy-snapshot-min", provenance.PolicySnapshot{Type: provenance.TypePolicySnapshot, Version: 1, GeneratedAt: at, RunID: "r"}},
		{"policy-snapshot-max", provenance.PolicySnapshot{
			Type: provenance.TypePolicySnapshot, Version: 1, GeneratedAt: at, RunID: "r", CFC: provenance.SnapshotCFC{Mode: "observe", ModeSource: "override", AbsenceBehavior: "observe-only", SubstrateStatus: "not-attested"},
			RunManifest:  provenance.SnapshotManifest{Present: true, Type: provenance.TypeRunManifest, Path: "/m", Source: "loom", WishID: "w", ParentWishID: "p", DispatchClass: "d", CapabilityProfile: "c", Mode: "observe", LabelSource: "loom-run-manifest", PromptSlotPresent: new(true)},
			PromptSlot:   provenance.SnapshotPromptSlot{Present: true, BindingSource: "run-options", Binding: json.RawMessage("{}")},
			ParentTools:  provenance.SnapshotTools{Allowance: "restricted", AllowedToolIDs: []string{"load_skill"}},
			SkillScripts: provenance.SnapshotSkillScripts{AllowedScripts: []provenance.AllowedScript{{Skill: "s", Path: "p"}}},
			Subagents: provenance.SnapshotSubagents{AllowedProfiles: []string{"browser"}, ProfileConfigs: []provenance.ProfileConfig{
				{Profile: "browser", AllowedToolIDs: &provenance.List[string]{"t"}, AllowedSkills: &provenance.List[string]{}, AllowedScripts: &provenance.List[provenance.AllowedScript]{{Skill: "s", Path: "p"}}, ExecutionTarget: "host"}}},
			Substrate: &provenance.SnapshotSubstrate{ProtectedXattrs: &provenance.ProtectedXattrs{SandboxVisibility: "not-probed"}},
			Skillsd: &provenance.PolicyExtension{
				Principal: "local", LoadedSkills: []provenance.LoadedSkill{{Path: "n", Name: "n", Digest: sum, TreeDigest: sum, ActivationSource: provenance.SourcePreload}},
				TrustDiagnostics: []provenance.TrustDiagnostic{{Skill: "n", Severity: "warning", Code: "c", Detail: "d", Path: "p", Line: 1}},
				Allowlist:        []provenance.AllowlistEntry{{Skill: "s", Path: "p", Pin: sum, Tree: sum, StartTree: sum, Secrets: []string{"NAME"}, Release: "none", Approve: "tier", Target: "sandbox", Workspace: "ro", TimeoutMS: 1, MemoryBytes: 1}},
				Release:          "none", AllowedTools: "enforce", PromptSlotRole: "context",
			},
		}},
		{"capabilities", provenance.CapabilitySnapshot{
			Type: provenance.TypeCapabilities, At: at, Commands: capabilityCommands("bash", "sh", "node", "deno", "python", "python3", "git"),
			CFC: provenance.CapabilityCFC{
				Mode: "observe", AbsenceBehavior: "observe-only", SubstrateStatus: "missing", RunManifest: provenance.CapabilityManifest{Present: true, Type: "t", Path: "/m"},
				Sandbox: provenance.SandboxDescription{Kind: "none", DefaultWorkingDirectory: "/tmp", Skillsd: &provenance.SandboxExtension{Reason: "r"}},
				Mounts:  provenance.CapabilityMounts{Workspace: provenance.CapabilityMount{Present: true, Mode: "ro", HostPath: "/h", SandboxPath: "/workspace"}},
			},
		}},
		{"invocation-min", provenance.InvocationContext{Type: provenance.TypeInvocationContext, Version: 1, CreatedAt: at}},
		{"invocation-max", provenance.InvocationContext{
			Type: provenance.TypeInvocationContext, Version: 1, Sequence: 1, RunID: "r", CreatedAt: at, ToolID: "t", ToolOutputID: "r:t:1", Operation: provenance.OperationCommand,
			Mode: "observe", CWD: "/tmp", PromptSlot: json.RawMessage("{}"),
			RunManifest: provenance.InvocationManifest{Present: true, Path: "run-manifest.json", Source: "loom", WishID: "w", DispatchClass: "d", Mode: "observe", PromptSlotPresent: new(false)},
			Inputs: provenance.InvocationInputs{Argv: provenance.SummarizeSequence([]string{"bash", "<"}), Args: provenance.SummarizeSequence(nil),
				Stdin: provenance.SummarizeText([]byte("abc")), Env: provenance.SummarizeEnv([]string{"B=2", "A=1=2", "C"})},
			InputLabels: &provenance.InputLabels{Version: 1, Entries: []provenance.InputLabel{{Path: provenance.List[any]{"args", 0}, Label: provenance.Label{Confidentiality: []json.RawMessage{json.RawMessage(`"c"`)}, Integrity: []json.RawMessage{json.RawMessage("{}")}}}}},
		}},
		{"call-records-min", provenance.CallRecords{Type: provenance.TypeCallRecords, Version: 1, RunID: "r"}},
	}
}

func raw(t *testing.T, v any) json.RawMessage {
	t.Helper()
	r, err := provenance.Encode(v)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestViews(t *testing.T) {
	event := func(sec int, k provenance.Kind, row, decision any) *provenance.Event {
		e := &provenance.Event{
			Time: at.Add(time.Duration(sec) * time.Second), Kind: k, Session: "run-1", Parent: "run-0",
			Principal: "local", Client: "test 1", Detail: "d",
		}
		if row != nil {
			e.Row = raw(t, row)
		}
		if decision != nil {
			e.Decision = raw(t, decision)
		}
		return e
	}
	decided := func(outcome, mode string) any {
		return map[string]string{"decision": outcome, "cfcEnforcementMode": mode}
	}
	info := provenance.SessionInfo{Server: provenance.Server{Version: "v1", Protocol: "2025-11-25"}, Mode: "observe", PolicySnapshotPath: "policy-snapshot.json", PolicySnapshotDigest: sum}
	read := provenance.ResourceRead{Type: provenance.TypeResourceRead, Status: provenance.StatusRead, ReadAt: at}
	failed := provenance.ResourceRead{Type: provenance.TypeResourceRead, Status: provenance.StatusError, ReadAt: at}
	events := []*provenance.Event{
		event(0, provenance.KindSessionStarted, info, nil),
		event(1, provenance.KindSkillActivated, provenance.Activation{Name: "<n>"}, decided("allowed", "observe")),
		event(2, provenance.KindResourceRead, read, decided("warned", "observe")),
		event(3, provenance.KindResourceRead, failed, nil),
		event(4, provenance.KindPolicyDenied, nil, decided("denied", "enforce-strict")),
		event(5, provenance.KindScriptExecuted, provenance.ScriptExecution{Status: provenance.StatusExecuted}, nil),
		event(6, provenance.KindSessionEnded, nil, nil),
	}
	golden(t, provenance.EventsFile, chain(t, events...))
	var (
		views provenance.Views
		tally provenance.Tally
	)
	for _, e := range events {
		if err := views.Add(e); err != nil {
			t.Fatal(err)
		}
		if err := tally.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range provenance.ViewNames() {
		if data, err := views.Render(name, 0); data != nil || err != nil {
			t.Errorf("Render(%s, 0) = %q, %v, want nil", name, data, err)
		}
		data, err := views.Render(name, views.Len(name))
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name, data)
	}
	data, err := provenance.EncodePretty(tally.Session)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, provenance.SessionFile, data)
}

func TestTallyRefusesWhatCannotBeViewed(t *testing.T) {
	for _, e := range []provenance.Event{
		{Kind: provenance.KindResourceRead, Row: json.RawMessage(`{"status":1}`)},
		{Kind: provenance.KindSessionStarted, Row: json.RawMessage(`{"server":1}`)},
		{Kind: provenance.KindResourceRead, Decision: json.RawMessage(`{"decision":"x"}`)},
	} {
		var tally provenance.Tally
		e.Seq, e.Prev = tally.Next()
		if err := tally.Add(&e); err == nil || tally.Session.Head.Seq != 0 {
			t.Errorf("Add(%s %s%s) = %v, head %+v", e.Kind, e.Row, e.Decision, err, tally.Session.Head)
		}
	}
}

func TestSummary(t *testing.T) {
	for _, tc := range []struct {
		kind          provenance.Kind
		detail        string
		row, decision string
		want          string
	}{
		{kind: provenance.KindScriptExecuted, row: `{"status":"executed","exitCode":3}`, want: "exited 3"},
		{kind: provenance.KindScriptExecuted, row: `{"status":"executed","skillsd":{"outcome":"signaled","signal":"SIGKILL"}}`, want: "signaled SIGKILL"},
		{kind: provenance.KindScriptExecuted, row: `{"status":"executed","exitCode":1,"skillsd":{"outcome":"timeout"}}`, want: "timeout"},
		{kind: provenance.KindScriptExecuted, row: `{"status":"error","error":{"code":"script_not_found"}}`, want: "error script_not_found"},
		{kind: provenance.KindResourceRead, row: `{"status":"read","digestMatchesRegistry":false,"truncated":true}`, want: "read changed truncated"},
		{kind: provenance.KindResourceRead, row: `{"status":"error","error":{"code":"unknown"}}`, want: "error unknown"},
		{kind: provenance.KindResourceRead, detail: "asked", want: "asked"},
		{kind: provenance.KindSkillActivated, row: `{"source":"cli-preload"}`, want: "active, cli-preload"},
		{kind: provenance.KindSkillActivated, detail: "model-tool", row: `{"source":"model-tool"}`, want: "shown, model-tool"},
		{kind: provenance.KindPolicyDenied, decision: `{"reasonCodes":["tool_not_allowed"],"skillsd":{"code":"tier_denied"}}`, want: "tier_denied"},
		{kind: provenance.KindPolicyDenied, decision: `{"reasonCodes":["tool_not_allowed"]}`, want: "tool_not_allowed"},
		{kind: provenance.KindSessionStarted, detail: "started", row: `{"cfcEnforcementMode":"observe"}`, want: "started (observe)"},
		{kind: provenance.KindSkillDiscovered, detail: "a\n\x1b[31mb", want: "a  [31mb"},
		{kind: provenance.KindSkillDiscovered, detail: strings.Repeat("é", 500), want: strings.Repeat("é", 200) + "…"},
	} {
		e := &provenance.Event{Kind: tc.kind, Detail: tc.detail, Row: json.RawMessage(tc.row), Decision: json.RawMessage(tc.decision)}
		if got := provenance.Summary(e); got != tc.want {
			t.Errorf("Summary(%s %s%s) = %q, want %q", tc.kind, tc.row, tc.decision, got, tc.want)
		}
	}
}

func TestNames(t *testing.T) {
	id, err := provenance.NewSessionID()
	if err != nil || !strings.HasPrefix(id, "ses_") || !provenance.ValidSessionID(id) || id[18] != '7' {
		t.Errorf("NewSessionID() = %q, %v", id, err)
	}
	for id, want := range map[string]bool{
		"run-1": true, "A.b_C-9": true, "...": true, "": false, ".": false, "..": false, "a/b": false, `a\b`: false,
		"a b": false, "a:b": false, "é": false, "a\n": false, strings.Repeat("a", 128): true, strings.Repeat("a", 129): false,
	} {
		if got := provenance.ValidSessionID(id); got != want {
			t.Errorf("ValidSessionID(%q) = %v, want %v", id, got, want)
		}
	}
	for k, want := range map[provenance.Kind]bool{"skill.activated": true, "install.added": true, "install.": false, "install.A": false, "x": false, "": false} {
		if got := k.Valid(); got != want {
			t.Errorf("Kind(%q).Valid() = %v, want %v", k, got, want)
		}
	}
	a, errA := provenance.CompactDigest([]byte("{\n  \"a\": 1\n}\n"))
	b, errB := provenance.CompactDigest([]byte(`{"a":1}`))
	if a != b || a != digest.FromString(`{"a":1}`) || errA != nil || errB != nil {
		t.Errorf("CompactDigest = %v and %v (%v, %v)", a, b, errA, errB)
	}
	if got := provenance.OutputName("run:t:1", "stdout"); got != "outputs/run_t_1.stdout" || provenance.CheckFileName(got) != nil {
		t.Errorf("OutputName = %q", got)
	}
	if !bytes.Equal([]byte(provenance.FirstPrev), bytes.Repeat([]byte("0"), 64)) {
		t.Errorf("FirstPrev = %q", provenance.FirstPrev)
	}
}

// capabilityCommands are commands of which the first is there.
func capabilityCommands(names ...string) provenance.CapabilityCommands {
	var all provenance.CapabilityCommands
	for _, name := range names {
		all = append(all, provenance.NamedCommand{Name: name})
	}
	all[0].CapabilityCommand = provenance.CapabilityCommand{Present: true, Path: "/bin/bash", Version: "5"}
	return all
}
