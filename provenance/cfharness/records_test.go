package cfharness_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
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
	diag := provenance.List[cfharness.RegistryDiagnostic]{{Severity: "warning", Code: "c", Detail: "<d>", Path: "p"}}
	matches, size, code, text := false, int64(0), 0, ""
	run := &cfharness.RunExtension{Outcome: cfharness.OutcomeSignaled, Signal: "SIGKILL", Backend: "native", Network: "none", Workspace: "none", TreeDigest: sum}
	return []record{
		{"registry-min", cfharness.SkillRegistry{Type: cfharness.TypeSkillRegistry, Version: 1, Skills: provenance.List[cfharness.RegistrySkill]{{Frontmatter: json.RawMessage("{}")}}}},
		{"registry-max", cfharness.SkillRegistry{
			Type: cfharness.TypeSkillRegistry, Version: 1, SkillsRoot: "/r", SandboxSkillsRoot: "/workspace/skills", GeneratedAt: at,
			Skills: []cfharness.RegistrySkill{{
				Name: "n", Description: "d", SkillPath: "/r/n/SKILL.md", SkillDir: "/r/n", SandboxPath: "/workspace/skills/n/SKILL.md",
				SandboxSkillDir: "/workspace/skills/n", Digest: sum,
				Resources: []cfharness.RegistryResource{{
					Path: "scripts/x", Kind: "script", ResourcePath: "/r/n/scripts/x", SandboxResourcePath: "/workspace/skills/n/scripts/x",
					SizeBytes: 1, Digest: sum, ContentKind: "text",
					Script:  &cfharness.RegistryScript{Executable: true, Shebang: "/bin/sh", Runtime: "shebang"},
					Skillsd: &cfharness.RegistryResourceExtension{Runtime: "sh"},
				}},
				Frontmatter: json.RawMessage(`{"name":"n","tags":["a"]}`), Diagnostics: diag,
				Skillsd: &cfharness.RegistrySkillExtension{Path: "n", Tier: "org", TreeDigest: sum},
			}},
			Diagnostics: diag,
			Skillsd:     &cfharness.RegistryExtension{Roots: []cfharness.RegistryRoot{{Path: "/r", SandboxPath: "/workspace/skills", Tier: "org", Prefix: "p"}}},
		}},
		{"activation", cfharness.Activation{Name: "n", Source: cfharness.SourcePreload, Digest: sum, ActivatedAt: at, CFCPromptRole: "context", Skillsd: &cfharness.ActivationExtension{TaskID: "t"}}},
		{"read-min", cfharness.ResourceRead{Type: cfharness.TypeResourceRead, Status: cfharness.StatusError, ReadAt: at, Error: &cfharness.RecordError{Code: "unknown", Message: "m"}}},
		{"read-max", cfharness.ResourceRead{
			Type: cfharness.TypeResourceRead, OutputID: "r:t:1", RunID: "r", SkillName: "n", Path: "p", Status: cfharness.StatusRead, ReadAt: at,
			CFCPromptRole: "context", Kind: "asset", ResourcePath: "/h", ContentKind: "text", MaxBytes: &size,
			Truncated: &matches, Diagnostics: diag, Skillsd: &cfharness.ReadExtension{Via: "load_skill"}, FileFacts: cfharness.FileFacts{SandboxResourcePath: "/s", RegistryDigest: sum, ObservedDigest: sum, DigestMatchesRegistry: &matches, RegistrySizeBytes: &size, ObservedSizeBytes: &size}}},
		{"execution-min", cfharness.ScriptExecution{Type: cfharness.TypeScriptExecution, Status: cfharness.StatusError, ExecutedAt: at}},
		{"execution-max", cfharness.ScriptExecution{
			Type: cfharness.TypeScriptExecution, OutputID: "r:t:1", RunID: "r", SkillName: "n", Path: "p", Status: cfharness.StatusExecuted,
			ExecutedAt: at, ExecutionTarget: "sandbox", Runtime: "bash", Argv: []string{"bash", "<"}, Args: []string{}, CWD: "/w",
			ResourcePath: "/h", ExitCode: &code, Diagnostics: diag, Skillsd: run, FileFacts: cfharness.FileFacts{SandboxResourcePath: "/s", RegistryDigest: sum, ObservedDigest: sum, DigestMatchesRegistry: &matches, RegistrySizeBytes: &size, ObservedSizeBytes: &size}}},
		{"read-output", cfharness.ReadOutput{Type: cfharness.TypeReadOutput, Status: cfharness.StatusRead, CFCPromptRole: "context", Content: &text}},
		{"run-output", cfharness.RunOutput{Type: cfharness.TypeRunOutput, Status: cfharness.StatusExecuted, Stdout: cfharness.Observation{Text: &text}, Stderr: cfharness.Observation{Text: &text}, ExitCode: &code, StdoutTruncated: &matches, StdoutOriginalLength: &size, Skillsd: run}},
	}
}

func policyRecords() []record {
	size, count, text := int64(0), 0, ""
	handle := &cfharness.OpaqueHandle{Type: cfharness.TypeOpaqueHandle, HandleID: "o:stdout", Scope: "run", CreatedAt: at, PassThrough: true}
	return []record{
		{"policy-event", cfharness.PolicyEvent{
			Type: cfharness.TypePolicyEvent, Severity: cfharness.SeverityDenied, Mode: "observe", ToolID: "t", Detail: "d", At: at, ToolCallID: "c",
			PromptSlot:        json.RawMessage(`{"role":"context"}`),
			ToolInputSummary:  &cfharness.ToolInputSummary{Type: cfharness.TypeToolInputSummary, ToolID: "t", Skill: &text, Path: &text, MaxBytes: &size, ArgsCount: &count, CWD: &text, TimeoutMS: &size},
			ObservationDenied: &cfharness.ObservationDenied{Type: cfharness.TypeObservationDenied, Reason: "not-authorized", Detail: "d", Handle: handle, Code: "c", Skill: "s", Path: "p", Remedy: "r", RuleID: "i", EventID: "e"},
		}},
		{"policy-event-min", cfharness.PolicyEvent{Type: cfharness.TypePolicyEvent, At: at, ObservationDenied: &cfharness.ObservationDenied{Type: cfharness.TypeObservationDenied}}},
		{"decision-min", cfharness.PolicyDecision{Type: cfharness.TypePolicyDecision, At: at}},
		{"decision-max", cfharness.PolicyDecision{
			Type: cfharness.TypePolicyDecision, Sequence: 1, RunID: "r", At: at, ToolActivitySequence: 1, ToolCallID: "c", ToolID: "t", EffectClass: "read",
			Mode: "observe", Decision: provenance.DecisionWarned, ReasonCodes: []string{"cfc_observe_read"}, Detail: "d", PromptSlot: json.RawMessage("{}"),
			ToolInputSummary: &cfharness.ToolInputSummary{Type: cfharness.TypeToolInputSummary, ToolID: "t"}, PolicyEventIndexes: []int{0}, SubagentProfile: "browser",
			Skillsd: &cfharness.DecisionExtension{Code: "c", RuleID: "i"},
		}},
		{"policy-snapshot-min", cfharness.PolicySnapshot{Type: cfharness.TypePolicySnapshot, Version: 1, GeneratedAt: at, RunID: "r"}},
		{"policy-snapshot-max", cfharness.PolicySnapshot{
			Type: cfharness.TypePolicySnapshot, Version: 1, GeneratedAt: at, RunID: "r", CFC: cfharness.SnapshotCFC{Mode: "observe", ModeSource: "override", AbsenceBehavior: "observe-only", SubstrateStatus: "not-attested"},
			RunManifest:  cfharness.SnapshotManifest{Present: true, Type: cfharness.TypeRunManifest, Path: "/m", Source: "loom", WishID: "w", ParentWishID: "p", DispatchClass: "d", CapabilityProfile: "c", Mode: "observe", LabelSource: "loom-run-manifest", PromptSlotPresent: new(true)},
			PromptSlot:   cfharness.SnapshotPromptSlot{Present: true, BindingSource: "run-options", Binding: json.RawMessage("{}")},
			ParentTools:  cfharness.SnapshotTools{Allowance: "restricted", AllowedToolIDs: []string{"load_skill"}},
			SkillScripts: cfharness.SnapshotSkillScripts{AllowedScripts: []cfharness.AllowedScript{{Skill: "s", Path: "p"}}},
			Subagents: cfharness.SnapshotSubagents{AllowedProfiles: []string{"browser"}, ProfileConfigs: []cfharness.ProfileConfig{
				{Type: cfharness.TypeProfileConfig, Profile: "browser", AllowedToolIDs: &provenance.List[string]{"t"}, SkillNames: &provenance.List[string]{}, AllowedScripts: &provenance.List[cfharness.AllowedScript]{{Skill: "s", Path: "p"}}, ExecutionTarget: "host"}}},
			Substrate: &cfharness.SnapshotSubstrate{ProtectedXattrs: &cfharness.ProtectedXattrs{SandboxVisibility: "not-probed"}},
			Skillsd: &cfharness.PolicyExtension{
				Principal: "local", LoadedSkills: []cfharness.LoadedSkill{{Path: "n", Name: "n", Digest: sum, TreeDigest: sum, ActivationSource: cfharness.SourcePreload}},
				TrustDiagnostics: []cfharness.TrustDiagnostic{{Skill: "n", Severity: "warning", Code: "c", Detail: "d", Path: "p", Line: 1}},
				Allowlist:        []cfharness.AllowlistEntry{{Skill: "s", Path: "p", Pin: sum, Tree: sum, StartTree: sum, Secrets: []string{"NAME"}, Release: "none", Approve: "tier", Target: "sandbox", Workspace: "ro", TimeoutMS: 1, MemoryBytes: 1}},
				Release:          "none", AllowedTools: "enforce", PromptSlotRole: "context",
			},
		}},
		{"capabilities", cfharness.CapabilitySnapshot{
			Type: cfharness.TypeCapabilities, At: at, Commands: capabilityCommands("bash", "sh", "node", "deno", "python", "python3", "git"),
			CFC: cfharness.CapabilityCFC{
				Mode: "observe", AbsenceBehavior: "observe-only", SubstrateStatus: "missing", RunManifest: cfharness.CapabilityManifest{Present: true, Type: "t", Path: "/m"},
				Sandbox: cfharness.SandboxDescription{Kind: "none", DefaultWorkingDirectory: "/tmp", Skillsd: &cfharness.SandboxExtension{Reason: "r"}},
				Mounts:  cfharness.CapabilityMounts{Workspace: cfharness.CapabilityMount{Present: true, Mode: "ro", HostPath: "/h", SandboxPath: "/workspace"}},
			},
		}},
		{"invocation-min", cfharness.InvocationContext{Type: cfharness.TypeInvocationContext, Version: 1, CreatedAt: at}},
		{"invocation-max", cfharness.InvocationContext{
			Type: cfharness.TypeInvocationContext, Version: 1, Sequence: 1, RunID: "r", CreatedAt: at, ToolID: "t", ToolOutputID: "r:t:1", Operation: cfharness.OperationCommand,
			Mode: "observe", CWD: "/tmp", PromptSlot: json.RawMessage("{}"),
			RunManifest: cfharness.InvocationManifest{Present: true, Path: "run-manifest.json", Source: "loom", WishID: "w", DispatchClass: "d", Mode: "observe", PromptSlotPresent: new(false)},
			Inputs: cfharness.InvocationInputs{Argv: cfharness.SummarizeSequence([]string{"bash", "<"}), Args: cfharness.SummarizeSequence(nil),
				Stdin: cfharness.SummarizeText([]byte("abc")), Env: cfharness.SummarizeEnv([]string{"B=2", "A=1=2", "C"})},
			InputLabels: &cfharness.InputLabels{Version: 1, Entries: []cfharness.InputLabel{{Path: provenance.List[any]{"args", 0}, Label: cfharness.Label{Confidentiality: []json.RawMessage{json.RawMessage(`"c"`)}, Integrity: []json.RawMessage{json.RawMessage("{}")}}}}},
		}},
		{"call-records-min", cfharness.CallRecords{Type: cfharness.TypeCallRecords, Version: 1, RunID: "r"}},
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
	read := cfharness.ResourceRead{Type: cfharness.TypeResourceRead, Status: cfharness.StatusRead, ReadAt: at}
	failed := cfharness.ResourceRead{Type: cfharness.TypeResourceRead, Status: cfharness.StatusError, ReadAt: at}
	events := []*provenance.Event{
		event(0, provenance.KindSessionStarted, info, nil),
		event(1, provenance.KindSkillActivated, cfharness.Activation{Name: "<n>"}, decided("allowed", "observe")),
		event(2, provenance.KindResourceRead, read, decided("warned", "observe")),
		event(3, provenance.KindResourceRead, failed, nil),
		event(4, provenance.KindPolicyDenied, nil, decided("denied", "enforce-strict")),
		event(5, provenance.KindScriptExecuted, cfharness.ScriptExecution{Status: cfharness.StatusExecuted}, nil),
		event(6, provenance.KindSessionEnded, nil, nil),
	}
	var (
		tally provenance.Tally
		lines bytes.Buffer
	)
	for _, e := range events {
		e.Seq, e.Prev = tally.Next()
		line, err := provenance.EncodeLine(e)
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(line)
		if err := tally.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	golden(t, provenance.EventsFile, lines.Bytes())
	view := func(name string, events []*provenance.Event) ([]byte, error) {
		var out bytes.Buffer
		err := cfharness.WriteView(&out, name, func() iter.Seq2[*provenance.Event, error] {
			return func(yield func(*provenance.Event, error) bool) {
				for _, e := range events {
					if !yield(e, nil) {
						return
					}
				}
			}
		})
		return out.Bytes(), err
	}
	for _, name := range provenance.ViewNames() {
		if data, err := view(name, events[:1]); len(data) > 0 || !errors.Is(err, provenance.ErrNotFound) {
			t.Errorf("%s without rows is %q, %v", name, data, err)
		}
		data, err := view(name, events)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name, data)
	}
	if _, err := view("session.json", events); !errors.Is(err, provenance.ErrNotFound) {
		t.Errorf("a view that is none: %v, want ErrNotFound", err)
	}
	data, err := provenance.EncodePretty(tally.Session)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, provenance.SessionFile, data)
}

// capabilityCommands are commands of which the first is there.
func capabilityCommands(names ...string) cfharness.CapabilityCommands {
	var all cfharness.CapabilityCommands
	for _, name := range names {
		all = append(all, cfharness.NamedCommand{Name: name})
	}
	all[0].CapabilityCommand = cfharness.CapabilityCommand{Present: true, Path: "/bin/bash", Version: "5"}
	return all
}
