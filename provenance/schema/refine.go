package schema

import (
	"encoding/json"
	"reflect"
	"slices"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
)

const (
	sha256Pattern = `^sha256:[0-9a-f]{64}$`
	// sealedPattern is of a digest that is left out where output was withheld.
	sealedPattern = `^(sha256:[0-9a-f]{64})?$`
	timePattern   = `^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z$`
	hashPattern   = `^[0-9a-f]{64}$`
	idPattern     = `^[A-Za-z0-9._-]{1,128}$`
	codePattern   = `^[a-z][a-z0-9_]*$`
)

// refinement says of a type what its Go form does not: constants, closed lists of words, patterns.
type refinement struct {
	typ    reflect.Type
	open   bool // the type of a skillsd key: others may follow
	refine func(*builder, *jsonschema.Schema)
}

// scalars are the schemas of types that marshal themselves, or are any JSON.
func scalars() map[reflect.Type]*jsonschema.Schema {
	return map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[provenance.Timestamp]():          pattern(timePattern),
		reflect.TypeFor[time.Time]():                     pattern(timePattern),
		reflect.TypeFor[digest.Digest]():                 pattern(sha256Pattern),
		reflect.TypeFor[json.RawMessage]():               {},
		reflect.TypeFor[provenance.Source]():             words("cli-preload", "model-tool", "user-explicit", "subagent-inherit"),
		reflect.TypeFor[provenance.State]():              words("open", "ended", "crashed", "damaged"),
		reflect.TypeFor[provenance.Outcome]():            words("exited", "signaled", "timeout", "memory_limit", "pids_limit", "output_limit", "canceled"),
		reflect.TypeFor[provenance.Kind]():               pattern(`^[a-z]+\.[a-z_]+$`),
		reflect.TypeFor[provenance.InputLabels]():        inputLabels(),
		reflect.TypeFor[provenance.OpaqueHandle]():       opaqueHandle(),
		reflect.TypeFor[provenance.CapabilityCommands](): commands(),
	}
}

// refinements are of the types in the order they consist of each other, the smallest first.
func refinements() []refinement {
	return slices.Concat(registryRefinements(), rowRefinements(), policyRefinements(), snapshotRefinements(), outputRefinements())
}

func registryRefinements() []refinement {
	return []refinement{
		{typ: reflect.TypeFor[provenance.RegistryDiagnostic](), refine: set("severity", words("warning", "error"))},
		{typ: reflect.TypeFor[provenance.ExtendedDiagnostic](), open: true, refine: set("severity", words("info", "warning", "error"))},
		{typ: reflect.TypeFor[provenance.RegistryRoot](), open: true, refine: set("tier", words(tiers()...))},
		{typ: reflect.TypeFor[provenance.RegistryVerdict](), open: true},
		{typ: reflect.TypeFor[provenance.RegistrySkillShadow](), open: true},
		{typ: reflect.TypeFor[provenance.RegistryResourceExtension](), open: true},
		{typ: reflect.TypeFor[provenance.RegistrySkillExtension](), open: true, refine: set("tier", words(tiers()...), "frontmatter", object())},
		{typ: reflect.TypeFor[provenance.RegistryExtension](), open: true},
		{typ: reflect.TypeFor[provenance.RegistryScript](), refine: set("runtime", words("deno", "shebang", "unknown"))},
		{typ: reflect.TypeFor[provenance.RegistryResource](), refine: func(_ *builder, s *jsonschema.Schema) {
			put(s, "kind", words("reference", "asset", "template", "script", "other"))
			put(s, "contentKind", words("text", "binary"))
			s.If, s.Then, s.Else = property("kind", fixed("script")), required("script"), without("script")
		}},
		{typ: reflect.TypeFor[provenance.RegistrySkill](), refine: set("frontmatter", &jsonschema.Schema{
			Type: "object", AdditionalProperties: &jsonschema.Schema{AnyOf: []*jsonschema.Schema{
				{Type: "string"}, {Type: "boolean"}, {Type: "array", Items: &jsonschema.Schema{Type: "string"}}}}})},
		{typ: reflect.TypeFor[provenance.SkillRegistry](), refine: versioned(provenance.TypeSkillRegistry)},
	}
}

func rowRefinements() []refinement {
	rows := func(key string, row reflect.Type, typ string) func(*builder, *jsonschema.Schema) {
		return func(b *builder, s *jsonschema.Schema) {
			versioned(typ)(b, s)
			s.Properties[key].Items = b.of(row)
			least := 1
			s.Properties[key].MinItems = &least
		}
	}
	return []refinement{
		{typ: reflect.TypeFor[provenance.RecordError](), refine: set("code", pattern(codePattern))},
		{typ: reflect.TypeFor[provenance.ActivationExtension](), open: true},
		{typ: reflect.TypeFor[provenance.Activation](), refine: set("runId", pattern(idPattern), "cfcPromptRole", fixed(provenance.PromptRoleContext))},
		{typ: reflect.TypeFor[provenance.Activations](), refine: rows("activations", reflect.TypeFor[provenance.Activation](), provenance.TypeActivations)},
		{typ: reflect.TypeFor[provenance.ReadExtension](), open: true},
		{typ: reflect.TypeFor[provenance.ResourceRead](), refine: func(_ *builder, s *jsonschema.Schema) {
			set("type", fixed(provenance.TypeResourceRead), "runId", pattern(idPattern))(nil, s)
			readKeys(s)
			s.If, s.Then, s.Else = property("status", fixed("error")), required("error"), required("resourcePath")
		}},
		{typ: reflect.TypeFor[provenance.ResourceReads](), refine: rows("reads", reflect.TypeFor[provenance.ResourceRead](), provenance.TypeResourceReads)},
		{typ: reflect.TypeFor[provenance.RunLimits](), open: true},
		{typ: reflect.TypeFor[provenance.ShownText](), open: true},
		{typ: reflect.TypeFor[provenance.StreamSummary](), open: true, refine: set("digest", pattern(sealedPattern))},
		{typ: reflect.TypeFor[provenance.OutFile](), open: true},
		{typ: reflect.TypeFor[provenance.Connection](), open: true},
		{typ: reflect.TypeFor[provenance.WorkspaceWrite](), open: true},
		{typ: reflect.TypeFor[provenance.RunExtension](), open: true},
		{typ: reflect.TypeFor[provenance.ScriptExecution](), refine: func(_ *builder, s *jsonschema.Schema) {
			set("type", fixed(provenance.TypeScriptExecution), "runId", pattern(idPattern))(nil, s)
			runKeys(s)
			s.If, s.Then, s.Else = property("status", fixed("error")), required("error"), required("skillsd", "argv", "executionTarget", "resourcePath")
		}},
		{typ: reflect.TypeFor[provenance.ScriptExecutions](), refine: rows("executions", reflect.TypeFor[provenance.ScriptExecution](), provenance.TypeScriptExecutions)},
		{typ: reflect.TypeFor[provenance.Head](), refine: set("hash", pattern(`^([0-9a-f]{64})?$`))},
		{typ: reflect.TypeFor[provenance.Session](), refine: set("id", pattern(idPattern))},
	}
}

// readKeys and runKeys are what rows and output objects have in common.
func readKeys(s *jsonschema.Schema) {
	set("status", words("read", "binary", "error"), "cfcPromptRole", fixed(provenance.PromptRoleContext),
		"kind", words("reference", "asset", "template", "script", "other"), "contentKind", words("text", "binary"))(nil, s)
}

func runKeys(s *jsonschema.Schema) {
	set("status", words("executed", "error"), "executionTarget", words("sandbox", "host"), "runtime", words("deno", "shebang", "unknown"))(nil, s)
}

func policyRefinements() []refinement {
	return []refinement{
		{typ: reflect.TypeFor[provenance.ToolInputSummary](), refine: set("type", fixed(provenance.TypeToolInputSummary))},
		{typ: reflect.TypeFor[provenance.ObservationDenied](), refine: set("type", fixed(provenance.TypeObservationDenied), "code", pattern(codePattern),
			"reason", words("not-authorized", "not-observable", "needs-opaque-pass-through", "needs-sanitizing-worker"))},
		{typ: reflect.TypeFor[provenance.PolicyEvent](), refine: set("type", fixed(provenance.TypePolicyEvent), "severity", words("warning", "denied"),
			"mode", words(provenance.Modes()...), "promptSlot", promptSlot())},
		{typ: reflect.TypeFor[provenance.DecisionExtension](), open: true},
		{typ: reflect.TypeFor[provenance.PolicyDecision](), refine: func(_ *builder, s *jsonschema.Schema) {
			set("type", fixed(provenance.TypePolicyDecision), "runId", pattern(idPattern), "effectClass", words("read", "write", "side-effect"),
				"cfcEnforcementMode", words(provenance.Modes()...), "decision", words("allowed", "warned", "denied"), "promptSlot", promptSlot())(nil, s)
			least := 1
			s.Properties["reasonCodes"].MinItems = &least
			s.Properties["reasonCodes"].Items = pattern(codePattern)
			s.Properties["policyEventIndexes"].Description = "Not written: no file of a session holds the list they point into."
		}},
		{typ: reflect.TypeFor[provenance.TextSummary](), refine: set("type", fixed(provenance.TypeTextSummary))},
		{typ: reflect.TypeFor[provenance.SequenceSummary](), refine: set("type", fixed(provenance.TypeSequenceSummary))},
		{typ: reflect.TypeFor[provenance.EnvSummary](), refine: set("type", fixed(provenance.TypeEnvSummary))},
		{typ: reflect.TypeFor[provenance.InvocationManifest](), refine: set("source", fixed(provenance.RunManifestSource), "cfcEnforcementMode", words(provenance.Modes()...))},
		{typ: reflect.TypeFor[provenance.InvocationContext](), refine: func(b *builder, s *jsonschema.Schema) {
			versioned(provenance.TypeInvocationContext)(b, s)
			set("runId", pattern(idPattern), "operation", words("command", "shell"), "cfcEnforcementMode", words(provenance.Modes()...), "promptSlot", promptSlot())(b, s)
		}},
		{typ: reflect.TypeFor[provenance.PolicyTrace](), refine: func(b *builder, s *jsonschema.Schema) {
			versioned(provenance.TypePolicyTrace)(b, s)
			set("runId", pattern(idPattern), "cfcEnforcementMode", words(provenance.Modes()...))(b, s)
			s.Properties["decisions"].Items = b.of(reflect.TypeFor[provenance.PolicyDecision]())
			s.Properties["cfcInvocationContexts"].Items = b.of(reflect.TypeFor[provenance.InvocationContext]())
		}},
	}
}

func snapshotRefinements() []refinement {
	const mode, xattrs, visibility = "enforcementMode", "expectedSandboxVisible", "sandboxVisibility"
	absence := words("not-required", "observe-only", "permissive-if-absent", "fail-closed-if-absent")
	substrate := words("not-required", "manifest-present", "not-attested", "missing")
	return []refinement{
		{typ: reflect.TypeFor[provenance.SnapshotCFC](), refine: set(mode, words(provenance.Modes()...), "absenceBehavior", absence, "substrateStatus", substrate,
			"enforcementModeSource", words("override", "explicit-config", "inherited", "run-manifest", "default"))},
		{typ: reflect.TypeFor[provenance.SnapshotManifest](), refine: set("type", fixed(provenance.TypeRunManifest), "source", fixed(provenance.RunManifestSource),
			"cfcEnforcementMode", words(provenance.Modes()...), "labelSource", fixed(provenance.RunManifestLabelSource))},
		{typ: reflect.TypeFor[provenance.SnapshotPromptSlot](), refine: set("bindingSource", words("run-options", "run-state", "absent"), "binding", promptSlot())},
		{typ: reflect.TypeFor[provenance.SnapshotTools](), refine: set("allowance", words("all-builtins", "restricted"))},
		{typ: reflect.TypeFor[provenance.ProfileConfig](), refine: set("skillScriptExecutionTarget", words("sandbox", "host"))},
		{typ: reflect.TypeFor[provenance.ProtectedXattrs](), refine: set(xattrs, fixed(false), visibility, fixed("not-probed"))},
		{typ: reflect.TypeFor[provenance.SandboxExtension](), open: true},
		{typ: reflect.TypeFor[provenance.LoadedSkill](), open: true},
		{typ: reflect.TypeFor[provenance.TrustDiagnostic](), open: true, refine: set("severity", words("info", "warning", "error"))},
		{typ: reflect.TypeFor[provenance.AllowlistEntry](), open: true, refine: set("release", words("none", "observed", "opaque"), "approve", words("tier", "always", "never"), "target", words("sandbox", "host"))},
		{typ: reflect.TypeFor[provenance.PolicyExtension](), open: true, refine: set("release", words("none", "observed", "opaque"), "allowedTools", words("enforce", "advisory"))},
		{typ: reflect.TypeFor[provenance.PolicySnapshot](), refine: func(b *builder, s *jsonschema.Schema) {
			versioned(provenance.TypePolicySnapshot)(b, s)
			put(s, "runId", pattern(idPattern))
		}},
		{typ: reflect.TypeFor[provenance.CapabilityManifest](), refine: set("type", fixed(provenance.TypeRunManifest))},
		{typ: reflect.TypeFor[provenance.CapabilityMount](), refine: set("mode", words("ro", "staged", "rw"))},
		{typ: reflect.TypeFor[provenance.CapabilityCFC](), refine: set(mode, words(provenance.Modes()...), "absenceBehavior", absence, "substrateStatus", substrate)},
		{typ: reflect.TypeFor[provenance.CapabilitySnapshot](), refine: set("type", fixed(provenance.TypeCapabilities))},
	}
}

func outputRefinements() []refinement {
	return []refinement{
		{typ: reflect.TypeFor[provenance.LoadOutput](), refine: set("type", fixed(provenance.TypeLoadOutput), "status", fixed(provenance.StatusLoaded), "cfcPromptRole", fixed(provenance.PromptRoleContext))},
		{typ: reflect.TypeFor[provenance.FailedOutput](), refine: set("status", fixed("error"))},
		{typ: reflect.TypeFor[provenance.ReadOutput](), refine: func(_ *builder, s *jsonschema.Schema) {
			put(s, "type", fixed(provenance.TypeReadOutput))
			readKeys(s)
			s.If, s.Then, s.Else = property("status", fixed("error")), required("error"), required("sandboxResourcePath", "observedDigest")
		}},
		{typ: reflect.TypeFor[provenance.RunOutput](), refine: func(_ *builder, s *jsonschema.Schema) {
			put(s, "type", fixed(provenance.TypeRunOutput))
			runKeys(s)
			s.If, s.Then, s.Else = property("status", fixed("error")), required("error"), required("skillsd", "argv", "executionTarget")
		}},
		{typ: reflect.TypeFor[provenance.CallRecords](), refine: func(b *builder, s *jsonschema.Schema) {
			versioned(provenance.TypeCallRecords)(b, s)
			set("runId", pattern(idPattern), "file", words(provenance.ActivationsFile, provenance.ResourceReadsFile, provenance.ScriptExecutionsFile),
				"decision", b.of(reflect.TypeFor[provenance.PolicyDecision]()), "cfcInvocationContext", b.of(reflect.TypeFor[provenance.InvocationContext]()))(b, s)
			s.Properties["policyEvents"].Items = b.of(reflect.TypeFor[provenance.PolicyEvent]())
			s.DependentRequired = map[string][]string{"file": {"record"}, "record": {"file"}}
			for file, row := range map[string]reflect.Type{provenance.ActivationsFile: reflect.TypeFor[provenance.Activation](),
				provenance.ResourceReadsFile: reflect.TypeFor[provenance.ResourceRead](), provenance.ScriptExecutionsFile: reflect.TypeFor[provenance.ScriptExecution]()} {
				s.AllOf = append(s.AllOf, &jsonschema.Schema{If: property("file", fixed(file)), Then: &jsonschema.Schema{Properties: map[string]*jsonschema.Schema{"record": b.of(row)}}})
			}
			slices.SortFunc(s.AllOf, byConst("file"))
		}},
	}
}
