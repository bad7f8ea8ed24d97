package schema

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

var (
	at   = provenance.Stamp(time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC))
	sum  = digest.FromString("abc")
	slot = json.RawMessage(`{"type":"https://commonfabric.org/cfc/atom/PromptSlotBound","source":"s","role":"context","kernelName":"k","surface":"s"}`)
)

func encode(t *testing.T, v any) json.RawMessage {
	t.Helper()
	raw, err := provenance.Encode(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// validator returns what validates JSON against a schema that was written out and read again, as
// those who use it have it.
func validator(t *testing.T, name string) func([]byte) error {
	t.Helper()
	made, err := Named(name)
	if err != nil {
		t.Fatal(err)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(encode(t, made), &s); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return func(data []byte) error {
		var instance any
		if err := json.Unmarshal(data, &instance); err != nil {
			return err
		}
		return resolved.Validate(instance)
	}
}

// line returns an event as it is written.
func line(t *testing.T, e *provenance.Event) json.RawMessage {
	t.Helper()
	raw, err := provenance.EncodeLine(e)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestUnknownName(t *testing.T) {
	for _, name := range []string{"", "Event", "event.json", "../event"} {
		if _, err := Named(name); !errors.Is(err, ErrUnknown) {
			t.Errorf("Named(%q) = %v", name, err)
		}
	}
}

// Each call makes a schema of its own.
func TestOwnSchemas(t *testing.T) {
	first, _ := Named("policy-trace")
	first.Properties["decisions"].Items.Properties["type"] = nil
	if again, _ := Named("policy-trace"); again.Properties["decisions"].Items.Properties["type"] == nil {
		t.Error("a schema that was changed is given out again")
	}
}

// sample returns a valid instance of each schema.
func samples(t *testing.T) map[string]any {
	var commands cfharness.CapabilityCommands
	for _, name := range []string{"bash", "sh", "node", "deno", "python", "python3", "git"} {
		commands = append(commands, cfharness.NamedCommand{Name: name})
	}
	matches, size, code, text, count := true, int64(1), 0, "", 1
	read := cfharness.ResourceRead{Type: cfharness.TypeResourceRead, OutputID: "r:t:1", RunID: "r", SkillName: "n", Path: "p", Status: cfharness.StatusRead, ReadAt: at,
		CFCPromptRole: "context", Kind: "asset", ResourcePath: "/h", ContentKind: "text", MaxBytes: &size, Truncated: &matches,
		Diagnostics: []cfharness.RegistryDiagnostic{{Severity: "warning", Code: "c", Detail: "d"}}, Skillsd: &cfharness.ReadExtension{Via: "load_skill"}, FileFacts: cfharness.FileFacts{SandboxResourcePath: "/s", RegistryDigest: sum, ObservedDigest: sum, DigestMatchesRegistry: &matches, RegistrySizeBytes: &size, ObservedSizeBytes: &size}}
	ran := &cfharness.RunExtension{Outcome: cfharness.OutcomeExited, Backend: "native", Network: "none", Workspace: "none", TreeDigest: sum, CacheDigest: sum,
		Interpreter: &cfharness.Interpreter{Path: "/p", Version: "1", Digest: sum},
		Stdout:      cfharness.StreamSummary{Digest: sum}, Stderr: cfharness.StreamSummary{Digest: sum}}
	execution := cfharness.ScriptExecution{Type: cfharness.TypeScriptExecution, OutputID: "r:t:1", RunID: "r", SkillName: "n", Path: "p", Status: cfharness.StatusExecuted,
		ExecutedAt: at, ExecutionTarget: "sandbox", Runtime: "deno", Argv: []string{"a"}, Args: []string{}, CWD: "/w", ResourcePath: "/h", ExitCode: &code, Skillsd: ran, FileFacts: cfharness.FileFacts{SandboxResourcePath: "/s", RegistryDigest: sum, ObservedDigest: sum, DigestMatchesRegistry: &matches, RegistrySizeBytes: &size, ObservedSizeBytes: &size}}
	activation := cfharness.Activation{Name: "n", Source: cfharness.SourceModel, RunID: "r", Digest: sum, ActivatedAt: at, CFCPromptRole: "context",
		Skillsd: &cfharness.ActivationExtension{TreeDigest: sum}}
	summary := &cfharness.ToolInputSummary{Type: cfharness.TypeToolInputSummary, ToolID: "t", Skill: &text, ArgsCount: &count}
	denied := cfharness.ObservationDenied{Type: cfharness.TypeObservationDenied, Reason: "not-authorized", Detail: "d", Code: "tier_denied", Remedy: "r", RuleID: "x",
		Handle: &cfharness.OpaqueHandle{Type: cfharness.TypeOpaqueHandle, HandleID: "o:stdout", Scope: "run", CreatedAt: at, PassThrough: true}}
	decision := cfharness.PolicyDecision{Type: cfharness.TypePolicyDecision, Sequence: 1, RunID: "r", At: at, ToolActivitySequence: 1, ToolCallID: "1", ToolID: "t",
		EffectClass: "read", Mode: "observe", Decision: "allowed", ReasonCodes: []string{"cfc_observe_read"}, PromptSlot: slot, ToolInputSummary: summary,
		Skillsd: &cfharness.DecisionExtension{Code: "c"}}
	invocation := cfharness.InvocationContext{Type: cfharness.TypeInvocationContext, Version: 1, Sequence: 1, RunID: "r", CreatedAt: at, ToolID: "t", ToolOutputID: "o",
		Operation: "command", Mode: "observe", CWD: "/tmp", PromptSlot: slot,
		Inputs: cfharness.InvocationInputs{Argv: cfharness.SummarizeSequence([]string{"a"}), Stdin: cfharness.SummarizeText(nil), Env: cfharness.SummarizeEnv([]string{"A=1"})},
		InputLabels: &cfharness.InputLabels{Version: 1, Entries: []cfharness.InputLabel{{Path: provenance.List[any]{"args", 0, "x"},
			Label: cfharness.Label{Confidentiality: []json.RawMessage{json.RawMessage(`"c"`)}}}}}}
	return map[string]any{
		"skill-registry": cfharness.SkillRegistry{Type: cfharness.TypeSkillRegistry, Version: 1, GeneratedAt: at, Skills: []cfharness.RegistrySkill{{
			Name: "n", Digest: sum, Frontmatter: json.RawMessage(`{"name":"n","tags":["a"],"b":true}`), Skillsd: &cfharness.RegistrySkillExtension{Path: "n", Tier: "user", TreeDigest: sum},
			Resources: []cfharness.RegistryResource{{Path: "scripts/x", Kind: "script", Digest: sum, ContentKind: "text", Script: &cfharness.RegistryScript{Runtime: "shebang"}}}}},
			Skillsd: &cfharness.RegistryExtension{Roots: []cfharness.RegistryRoot{{Path: "/r", SandboxPath: "/s", Tier: "org"}}}},
		"skill-activations":       cfharness.Activations{Type: cfharness.TypeActivations, Version: 1, GeneratedAt: at, Activations: []json.RawMessage{encode(t, activation)}},
		"skill-resource-reads":    cfharness.ResourceReads{Type: cfharness.TypeResourceReads, Version: 1, GeneratedAt: at, Reads: []json.RawMessage{encode(t, read)}},
		"skill-script-executions": cfharness.ScriptExecutions{Type: cfharness.TypeScriptExecutions, Version: 1, GeneratedAt: at, Executions: []json.RawMessage{encode(t, execution)}},
		"policy-trace": cfharness.PolicyTrace{Type: cfharness.TypePolicyTrace, Version: 1, GeneratedAt: at, RunID: "r", Mode: "observe", PolicySnapshotPath: "p",
			PolicySnapshotDigest: sum, Decisions: []json.RawMessage{encode(t, decision)}, InvocationContexts: []json.RawMessage{encode(t, invocation)}},
		"policy-snapshot": cfharness.PolicySnapshot{Type: cfharness.TypePolicySnapshot, Version: 1, GeneratedAt: at, RunID: "r",
			CFC:        cfharness.SnapshotCFC{Mode: "observe", ModeSource: "override", AbsenceBehavior: "observe-only", SubstrateStatus: "missing"},
			PromptSlot: cfharness.SnapshotPromptSlot{Present: true, BindingSource: "run-options", Binding: slot}, ParentTools: cfharness.SnapshotTools{Allowance: "restricted"},
			Subagents: cfharness.SnapshotSubagents{ProfileConfigs: []cfharness.ProfileConfig{{Profile: "p", ExecutionTarget: "host"}}},
			Substrate: &cfharness.SnapshotSubstrate{ProtectedXattrs: &cfharness.ProtectedXattrs{SandboxVisibility: "not-probed"}},
			Skillsd:   &cfharness.PolicyExtension{Release: "none", AllowedTools: "enforce"}},
		"capabilities": cfharness.CapabilitySnapshot{Type: cfharness.TypeCapabilities, At: at, Commands: commands, CFC: cfharness.CapabilityCFC{Mode: "observe", AbsenceBehavior: "observe-only",
			SubstrateStatus: "missing", ProtectedXattrs: cfharness.ProtectedXattrs{SandboxVisibility: "not-probed"}}},
		"run-manifest": json.RawMessage(`{"type":"cf-harness.loom-run-manifest","version":1,"source":"loom","cfc":{"enforcementMode":"observe"},"own":1}`),
		"session":      provenance.Session{ID: "r", CreatedAt: at, State: provenance.StateOpen, Head: provenance.Head{Seq: 1, Hash: strings.Repeat("a", 64)}},
		"event": line(t, &provenance.Event{Seq: 1, Time: at.Time, Kind: provenance.KindScriptExecuted, Session: "r", Principal: "p", Detail: "d", Row: encode(t, execution),
			Decision: encode(t, decision), Invocation: encode(t, invocation), Files: []provenance.File{{Name: "n", Digest: sum}}, Prev: provenance.FirstPrev}),
		"observation-denied":         denied,
		"load-skill-output":          cfharness.LoadOutput{Type: cfharness.TypeLoadOutput, Status: "loaded", CFCPromptRole: "context", Digest: sum, TreeDigest: sum, ExpiresAt: at},
		"read-skill-resource-output": cfharness.ReadOutput{Type: cfharness.TypeReadOutput, Status: cfharness.StatusRead, CFCPromptRole: "context", Content: &text, FileFacts: cfharness.FileFacts{SandboxResourcePath: "/s", ObservedDigest: sum}},
		"run-skill-script-output":    cfharness.RunOutput{Type: cfharness.TypeRunOutput, Status: cfharness.StatusExecuted, Argv: []string{"a"}, ExecutionTarget: "sandbox", Stdout: cfharness.Observation{Text: &text}, Skillsd: ran},
		"failed-output":              cfharness.FailedOutput{Status: cfharness.StatusError, Error: cfharness.RecordError{Code: "internal", Message: "m"}},
		"records": cfharness.CallRecords{Type: cfharness.TypeCallRecords, Version: 1, RunID: "r", File: provenance.ResourceReadsFile, Record: encode(t, read), Decision: encode(t, decision),
			PolicyEvents: []json.RawMessage{encode(t, cfharness.PolicyEvent{Type: cfharness.TypePolicyEvent, Severity: "denied", Mode: "observe", ToolID: "t", At: at, ObservationDenied: &denied})},
			Invocation:   encode(t, invocation), EventIDs: []string{"r:1"}},
	}
}

// Every schema accepts what it is of, and refuses it with any key renamed, with any required key left
// out and with any value of another type, at any depth outside of the skillsd keys.
func TestMutations(t *testing.T) {
	all := samples(t)
	if len(all) != len(Names()) {
		t.Fatalf("%d samples of %d schemas", len(all), len(Names()))
	}
	for name, sample := range all {
		t.Run(name, func(t *testing.T) {
			valid := validator(t, name)
			raw := encode(t, sample)
			if err := valid(raw); err != nil {
				t.Fatalf("%s\n%v", raw, err)
			}
			for _, m := range mutations(t, raw, name == "run-manifest") {
				if valid(m.data) == nil {
					t.Errorf("accepted: %s\n%s", m.what, m.data)
				}
			}
		})
	}
}

type mutation struct {
	what string
	data []byte
}

// free are objects whose content is not ours: what callers and skills say.
func free(path string) bool {
	for _, open := range []string{"/skillsd", "/frontmatter", "/promptSlot", "/binding", "/confidentiality"} {
		if strings.Contains(path, open) {
			return true
		}
	}
	return false
}

// mutations renames each key, in an object that allows others only those it needs, and gives each value
// another type.
func mutations(t *testing.T, raw []byte, open bool) (out []mutation) {
	t.Helper()
	var root any
	if err := json.Unmarshal(raw, &root); err != nil {
		t.Fatal(err)
	}
	add := func(what string) { out = append(out, mutation{what, encode(t, root)}) }
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch node := v.(type) {
		case map[string]any:
			for key, value := range node {
				at := path + "/" + key
				if !free(path) && path != "" || path == "" && key != "own" {
					delete(node, key)
					node[key+"X"] = value
					if !strings.HasSuffix(at, "/skillsd") && !(open && strings.HasPrefix(at, "/cfc")) {
						add("renamed " + at)
					}
					delete(node, key+"X")
					node[key] = []any{map[string]any{"x": 1}, 0.5}
					if key != "confidentiality" {
						add("another type at " + at)
					}
					node[key] = nil
					add("null at " + at)
					node[key] = value
				}
				walk(at, value)
			}
		case []any:
			for i, value := range node {
				walk(path, value)
				if !free(path) {
					node[i] = map[string]any{"x": 1}
					add("another type in " + path)
				}
				node[i] = value
			}
		}
	}
	walk("", root)
	return out
}
