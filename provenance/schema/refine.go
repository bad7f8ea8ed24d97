package schema

import (
	"encoding/json"
	"reflect"
	"slices"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

const (
	sha256Pattern = `^sha256:[0-9a-f]{64}$`
	// sealedPattern matches a digest, which is empty if the output was withheld.
	sealedPattern = `^(sha256:[0-9a-f]{64})?$`
	timePattern   = `^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z$`
	hashPattern   = `^[0-9a-f]{64}$`
	idPattern     = `^[A-Za-z0-9._-]{1,128}$`
	codePattern   = `^[a-z][a-z0-9_]*$`
)

// refinement adds to the schema of a type what its Go form lacks: constants, enumerations, patterns.
type refinement struct {
	typ    reflect.Type
	refine func(*builder, *jsonschema.Schema)
}

// exact returns the refinement of T.
func exact[T any](refine func(*builder, *jsonschema.Schema)) refinement {
	return refinement{reflect.TypeFor[T](), refine}
}

// scalars returns the schemas of types with their own marshaler, or with any JSON.
func scalars() map[reflect.Type]*jsonschema.Schema {
	return map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[provenance.Timestamp](): pattern(timePattern),
		reflect.TypeFor[time.Time]():            pattern(timePattern),
		reflect.TypeFor[digest.Digest]():        pattern(sha256Pattern),
		reflect.TypeFor[json.RawMessage]():      {},
		reflect.TypeFor[cfharness.Source](): words("cli-preload", "model-tool", "user-explicit",
			"subagent-inherit"),
		reflect.TypeFor[provenance.State](): words("open", "ended", "crashed", "damaged", "missing"),
		reflect.TypeFor[cfharness.Outcome](): words("exited", "signaled", "timeout",
			"memory_limit", "pids_limit", "output_limit", "canceled", "failed"),
		reflect.TypeFor[provenance.Kind]():              pattern(`^[a-z]+\.[a-z_]+$`),
		reflect.TypeFor[cfharness.InputLabels]():        inputLabels(),
		reflect.TypeFor[cfharness.OpaqueHandle]():       opaqueHandle(),
		reflect.TypeFor[cfharness.CapabilityCommands](): commands(),
	}
}

// refinements returns the refinements of all types. A type comes after the types of its fields.
func refinements() []refinement {
	return slices.Concat(registryRefinements(), rowRefinements(), policyRefinements(), snapshotRefinements(),
		outputRefinements())
}

func registryRefinements() []refinement {
	return []refinement{
		exact[cfharness.RegistryDiagnostic](set("severity", words("warning", "error"))),
		exact[cfharness.ExtendedDiagnostic](set("severity", words("info", "warning", "error"))),
		exact[cfharness.RegistryRoot](set("tier", words(tiers()...))),
		exact[cfharness.RegistrySkillExtension](set("tier", words(tiers()...), "frontmatter", object())),
		exact[cfharness.RegistryScript](set("runtime", words("deno", "shebang", "unknown"))),
		exact[cfharness.RegistryResource](func(_ *builder, s *jsonschema.Schema) {
			put(s, "kind", words(resourceKinds...))
			put(s, "contentKind", words("text", "binary"))
			s.If, s.Then = property("kind", fixed("script")), required("script")
			s.Else = &jsonschema.Schema{Not: required("script")}
		}),
		exact[cfharness.RegistrySkill](set("frontmatter", &jsonschema.Schema{Type: "object",
			AdditionalProperties: &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "string"},
				{Type: "boolean"}, {Type: "array", Items: &jsonschema.Schema{Type: "string"}}}}})),
		exact[cfharness.SkillRegistry](versioned(cfharness.TypeSkillRegistry)),
	}
}

func rowRefinements() []refinement {
	rows := func(key string, row reflect.Type, typ string) func(*builder, *jsonschema.Schema) {
		return func(b *builder, s *jsonschema.Schema) {
			versioned(typ)(b, s)
			s.Properties[key].Items, s.Properties[key].MinItems = b.of(row), new(1)
		}
	}
	return []refinement{
		exact[cfharness.RecordError](set("code", pattern(codePattern))),
		exact[cfharness.Activation](set("runId", pattern(idPattern),
			"cfcPromptRole", fixed(cfharness.PromptRoleContext))),
		exact[cfharness.Activations](rows("activations", reflect.TypeFor[cfharness.Activation](),
			cfharness.TypeActivations)),
		exact[cfharness.ResourceRead](read(cfharness.TypeResourceRead, "resourcePath")),
		exact[cfharness.ResourceReads](rows("reads", reflect.TypeFor[cfharness.ResourceRead](),
			cfharness.TypeResourceReads)),
		exact[cfharness.StreamSummary](set("digest", pattern(sealedPattern),
			"withheld", words("opaque", "denied"))),
		exact[cfharness.ScriptExecution](run(cfharness.TypeScriptExecution, "resourcePath")),
		exact[cfharness.ScriptExecutions](rows("executions", reflect.TypeFor[cfharness.ScriptExecution](),
			cfharness.TypeScriptExecutions)),
		exact[provenance.Head](set("hash", pattern(`^([0-9a-f]{64})?$`))),
		exact[provenance.Session](set("id", pattern(idPattern))),
	}
}

var resourceKinds = []string{"reference", "asset", "template", "script", "other"}

// read refines the row or the output object of a read, with keys that it needs unless it has an error.
func read(typ string, needs ...string) func(*builder, *jsonschema.Schema) {
	return attempt(needs, "type", fixed(typ), "status", words("read", "binary", "error"),
		"cfcPromptRole", fixed(cfharness.PromptRoleContext), "kind", words(resourceKinds...),
		"contentKind", words("text", "binary"))
}

// run refines the row or the output object of a run, with keys that it needs unless it has an error.
func run(typ string, needs ...string) func(*builder, *jsonschema.Schema) {
	needs = append([]string{"skillsd", "argv", "executionTarget"}, needs...)
	return attempt(needs, "type", fixed(typ), "status", words("executed", "error"),
		"executionTarget", words("sandbox", "host"), "runtime", words("deno", "shebang", "unknown"))
}

// attempt refines the row or the output object of a read or a run.
func attempt(needs []string, pairs ...any) func(*builder, *jsonschema.Schema) {
	return func(b *builder, s *jsonschema.Schema) {
		set(pairs...)(b, s)
		if s.Properties["runId"] != nil {
			put(s, "runId", pattern(idPattern))
		}
		s.If, s.Then = property("status", fixed("error")), required("error")
		s.Else = required(needs...)
	}
}

func policyRefinements() []refinement {
	modes := words(cfharness.Modes()...)
	return []refinement{
		exact[cfharness.Undone](set("type", fixed(cfharness.TypeUndone), "run", pattern(idPattern))),
		exact[cfharness.ToolInputSummary](set("type", fixed(cfharness.TypeToolInputSummary))),
		exact[cfharness.ObservationDenied](set(
			"type", fixed(cfharness.TypeObservationDenied), "code", pattern(codePattern),
			"approvalCode", pattern("^[A-Z2-7]{4}-[A-Z2-7]{4}$"),
			"reason", words("not-authorized", "not-observable", "needs-opaque-pass-through",
				"needs-sanitizing-worker"))),
		exact[cfharness.PolicyEvent](set("type", fixed(cfharness.TypePolicyEvent),
			"severity", words("warning", "denied"), "mode", modes, "promptSlot", promptSlot())),
		exact[cfharness.PolicyDecision](func(_ *builder, s *jsonschema.Schema) {
			set("type", fixed(cfharness.TypePolicyDecision), "runId", pattern(idPattern),
				"effectClass", words("read", "write", "side-effect"), "cfcEnforcementMode", modes,
				"decision", words("allowed", "warned", "denied"), "promptSlot", promptSlot())(nil, s)
			codes := s.Properties["reasonCodes"]
			codes.MinItems, codes.Items = new(1), pattern(codePattern)
			const unwritten = "Not written: no file of a session holds the list they point into."
			s.Properties["policyEventIndexes"].Description = unwritten
		}),
		exact[cfharness.TextSummary](set("type", fixed(cfharness.TypeTextSummary))),
		exact[cfharness.SequenceSummary](set("type", fixed(cfharness.TypeSequenceSummary))),
		exact[cfharness.EnvSummary](set("type", fixed(cfharness.TypeEnvSummary))),
		exact[cfharness.InvocationManifest](set("source", fixed(cfharness.RunManifestSource),
			"cfcEnforcementMode", modes)),
		exact[cfharness.InvocationContext](versioned(cfharness.TypeInvocationContext,
			"runId", pattern(idPattern), "operation", words("command", "shell"),
			"cfcEnforcementMode", modes, "promptSlot", promptSlot())),
		exact[cfharness.PolicyTrace](func(b *builder, s *jsonschema.Schema) {
			versioned(cfharness.TypePolicyTrace, "runId", pattern(idPattern),
				"cfcEnforcementMode", modes)(b, s)
			s.Properties["decisions"].Items = of[cfharness.PolicyDecision](b)
			s.Properties["cfcInvocationContexts"].Items = of[cfharness.InvocationContext](b)
		}),
	}
}

func snapshotRefinements() []refinement {
	modes := words(cfharness.Modes()...)
	absence := words("not-required", "observe-only", "permissive-if-absent", "fail-closed-if-absent")
	substrate := words("not-required", "manifest-present", "not-attested", "missing")
	releases := words("none", "observed", "opaque")
	return []refinement{
		exact[cfharness.SnapshotCFC](set(
			"enforcementMode", modes, "absenceBehavior", absence, "substrateStatus", substrate,
			"enforcementModeSource", words("override", "explicit-config", "inherited", "run-manifest",
				"default"))),
		exact[cfharness.SnapshotManifest](set(
			"type", fixed(cfharness.TypeRunManifest), "source", fixed(cfharness.RunManifestSource),
			"cfcEnforcementMode", modes, "labelSource", fixed(cfharness.RunManifestLabelSource))),
		exact[cfharness.SnapshotPromptSlot](set(
			"bindingSource", words("run-options", "run-state", "absent"), "binding", promptSlot())),
		exact[cfharness.SnapshotTools](set("allowance", words("all-builtins", "restricted"))),
		exact[cfharness.ProfileConfig](set("skillScriptExecutionTarget", words("sandbox", "host"))),
		exact[cfharness.ProtectedXattrs](set("expectedSandboxVisible", fixed(false),
			"sandboxVisibility", fixed("not-probed"))),
		exact[cfharness.TrustDiagnostic](set("severity", words("info", "warning", "error"))),
		exact[cfharness.AllowlistEntry](set("release", releases,
			"approve", words("tier", "always", "session", "never"), "target", words("sandbox", "host"))),
		exact[cfharness.PolicyExtension](set("release", releases,
			"allowedTools", words("enforce", "advisory"))),
		exact[cfharness.PolicySnapshot](versioned(cfharness.TypePolicySnapshot, "runId", pattern(idPattern))),
		exact[cfharness.CapabilityManifest](set("type", fixed(cfharness.TypeRunManifest))),
		exact[cfharness.CapabilityMount](set("mode", words("ro", "staged", "rw"))),
		exact[cfharness.CapabilityCFC](set(
			"enforcementMode", modes, "absenceBehavior", absence, "substrateStatus", substrate)),
		exact[cfharness.CapabilitySnapshot](set("type", fixed(cfharness.TypeCapabilities))),
	}
}

func outputRefinements() []refinement {
	return []refinement{
		exact[cfharness.LoadOutput](set("type", fixed(cfharness.TypeLoadOutput),
			"status", fixed(cfharness.StatusLoaded), "cfcPromptRole", fixed(cfharness.PromptRoleContext))),
		exact[cfharness.FailedOutput](set("status", fixed("error"))),
		exact[cfharness.ReadOutput](read(cfharness.TypeReadOutput, "sandboxResourcePath", "observedDigest")),
		exact[cfharness.StreamObservation](set("policy", words("observed", "opaque", "denied"))),
		exact[cfharness.ExitCodeObservation](set("policy", words("observed", "opaque", "denied"))),
		exact[cfharness.SandboxResult](set("version", fixed(1))),
		exact[cfharness.Observation](func(b *builder, s *jsonschema.Schema) {
			*s = jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "string"},
				of[cfharness.ObservationDenied](b)}}
		}),
		exact[cfharness.RunOutput](run(cfharness.TypeRunOutput)),
		exact[cfharness.CallRecords](func(b *builder, s *jsonschema.Schema) {
			versioned(cfharness.TypeCallRecords, "runId", pattern(idPattern),
				"file", words(provenance.ActivationsFile, provenance.ResourceReadsFile,
					provenance.ScriptExecutionsFile),
				"decision", of[cfharness.PolicyDecision](b),
				"cfcInvocationContext", of[cfharness.InvocationContext](b))(b, s)
			s.Properties["policyEvents"].Items = of[cfharness.PolicyEvent](b)
			s.DependentRequired = map[string][]string{"file": {"record"}, "record": {"file"}}
			for _, row := range cfharness.EventRows() {
				if file := row.Kind.Facts().View; file != "" {
					record := map[string]*jsonschema.Schema{"record": b.of(row.Type)}
					s.AllOf = append(s.AllOf, &jsonschema.Schema{If: property("file", fixed(file)),
						Then: &jsonschema.Schema{Properties: record}})
				}
			}
		}),
	}
}
