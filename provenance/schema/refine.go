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
	// sealedPattern matches a digest, which is empty where output was withheld.
	sealedPattern = `^(sha256:[0-9a-f]{64})?$`
	timePattern   = `^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z$`
	hashPattern   = `^[0-9a-f]{64}$`
	idPattern     = `^[A-Za-z0-9._-]{1,128}$`
	codePattern   = `^[a-z][a-z0-9_]*$`
)

// refinement says about a type what its Go form does not: constants, enumerations, patterns.
type refinement struct {
	typ    reflect.Type
	open   bool // the type of a skillsd key, which may have more keys
	refine func(*builder, *jsonschema.Schema)
}

// scalars returns the schemas of types that marshal themselves, or are any JSON.
func scalars() map[reflect.Type]*jsonschema.Schema {
	return map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[provenance.Timestamp]():         pattern(timePattern),
		reflect.TypeFor[time.Time]():                    pattern(timePattern),
		reflect.TypeFor[digest.Digest]():                pattern(sha256Pattern),
		reflect.TypeFor[json.RawMessage]():              {},
		reflect.TypeFor[cfharness.Source]():             words("cli-preload", "model-tool", "user-explicit", "subagent-inherit"),
		reflect.TypeFor[provenance.State]():             words("open", "ended", "crashed", "damaged"),
		reflect.TypeFor[cfharness.Outcome]():            words("exited", "signaled", "timeout", "memory_limit", "pids_limit", "output_limit", "canceled"),
		reflect.TypeFor[provenance.Kind]():              pattern(`^[a-z]+\.[a-z_]+$`),
		reflect.TypeFor[cfharness.InputLabels]():        inputLabels(),
		reflect.TypeFor[cfharness.OpaqueHandle]():       opaqueHandle(),
		reflect.TypeFor[cfharness.CapabilityCommands](): commands(),
	}
}

// refinements returns the refinements of all types. A type comes after the types it consists of.
func refinements() []refinement {
	return slices.Concat(registryRefinements(), rowRefinements(), policyRefinements(), snapshotRefinements(), outputRefinements())
}

func registryRefinements() []refinement {
	return []refinement{
		{typ: reflect.TypeFor[cfharness.RegistryDiagnostic](), refine: set("severity", words("warning", "error"))},
		{typ: reflect.TypeFor[cfharness.ExtendedDiagnostic](), open: true, refine: set("severity", words("info", "warning", "error"))},
		{typ: reflect.TypeFor[cfharness.RegistryRoot](), open: true, refine: set("tier", words(tiers()...))},
		{typ: reflect.TypeFor[cfharness.RegistryVerdict](), open: true},
		{typ: reflect.TypeFor[cfharness.RegistrySkillShadow](), open: true},
		{typ: reflect.TypeFor[cfharness.RegistryResourceExtension](), open: true},
		{typ: reflect.TypeFor[cfharness.RegistrySkillExtension](), open: true, refine: set("tier", words(tiers()...), "frontmatter", object())},
		{typ: reflect.TypeFor[cfharness.RegistryExtension](), open: true},
		{typ: reflect.TypeFor[cfharness.RegistryScript](), refine: set("runtime", words("deno", "shebang", "unknown"))},
		{typ: reflect.TypeFor[cfharness.RegistryResource](), refine: func(_ *builder, s *jsonschema.Schema) {
			put(s, "kind", words("reference", "asset", "template", "script", "other"))
			put(s, "contentKind", words("text", "binary"))
			s.If, s.Then, s.Else = property("kind", fixed("script")), required("script"), without("script")
		}},
		{typ: reflect.TypeFor[cfharness.RegistrySkill](), refine: set("frontmatter", &jsonschema.Schema{
			Type: "object", AdditionalProperties: &jsonschema.Schema{AnyOf: []*jsonschema.Schema{
				{Type: "string"}, {Type: "boolean"}, {Type: "array", Items: &jsonschema.Schema{Type: "string"}}}}})},
		{typ: reflect.TypeFor[cfharness.SkillRegistry](), refine: versioned(cfharness.TypeSkillRegistry)},
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
		{typ: reflect.TypeFor[cfharness.RecordError](), refine: set("code", pattern(codePattern))},
		{typ: reflect.TypeFor[cfharness.ActivationExtension](), open: true},
		{typ: reflect.TypeFor[cfharness.Activation](), refine: set("runId", pattern(idPattern), "cfcPromptRole", fixed(cfharness.PromptRoleContext))},
		{typ: reflect.TypeFor[cfharness.Activations](), refine: rows("activations", reflect.TypeFor[cfharness.Activation](), cfharness.TypeActivations)},
		{typ: reflect.TypeFor[cfharness.ReadExtension](), open: true},
		{typ: reflect.TypeFor[cfharness.ResourceRead](), refine: func(_ *builder, s *jsonschema.Schema) {
			set("type", fixed(cfharness.TypeResourceRead), "runId", pattern(idPattern))(nil, s)
			readKeys(s)
			s.If, s.Then, s.Else = property("status", fixed("error")), required("error"), required("resourcePath")
		}},
		{typ: reflect.TypeFor[cfharness.ResourceReads](), refine: rows("reads", reflect.TypeFor[cfharness.ResourceRead](), cfharness.TypeResourceReads)},
		{typ: reflect.TypeFor[cfharness.RunLimits](), open: true},
		{typ: reflect.TypeFor[cfharness.ShownText](), open: true},
		{typ: reflect.TypeFor[cfharness.StreamSummary](), open: true, refine: set("digest", pattern(sealedPattern))},
		{typ: reflect.TypeFor[cfharness.OutFile](), open: true},
		{typ: reflect.TypeFor[cfharness.Connection](), open: true},
		{typ: reflect.TypeFor[cfharness.WorkspaceWrite](), open: true},
		{typ: reflect.TypeFor[cfharness.RunExtension](), open: true},
		{typ: reflect.TypeFor[cfharness.ScriptExecution](), refine: func(_ *builder, s *jsonschema.Schema) {
			set("type", fixed(cfharness.TypeScriptExecution), "runId", pattern(idPattern))(nil, s)
			runKeys(s)
			s.If, s.Then, s.Else = property("status", fixed("error")), required("error"), required("skillsd", "argv", "executionTarget", "resourcePath")
		}},
		{typ: reflect.TypeFor[cfharness.ScriptExecutions](), refine: rows("executions", reflect.TypeFor[cfharness.ScriptExecution](), cfharness.TypeScriptExecutions)},
		{typ: reflect.TypeFor[provenance.Head](), refine: set("hash", pattern(`^([0-9a-f]{64})?$`))},
		{typ: reflect.TypeFor[provenance.Session](), refine: set("id", pattern(idPattern))},
	}
}

// readKeys and runKeys refine the keys that rows and output objects have in common.
func readKeys(s *jsonschema.Schema) {
	set("status", words("read", "binary", "error"), "cfcPromptRole", fixed(cfharness.PromptRoleContext),
		"kind", words("reference", "asset", "template", "script", "other"), "contentKind", words("text", "binary"))(nil, s)
}

func runKeys(s *jsonschema.Schema) {
	set("status", words("executed", "error"), "executionTarget", words("sandbox", "host"), "runtime", words("deno", "shebang", "unknown"))(nil, s)
}

func policyRefinements() []refinement {
	return []refinement{
		{typ: reflect.TypeFor[cfharness.ToolInputSummary](), refine: set("type", fixed(cfharness.TypeToolInputSummary))},
		{typ: reflect.TypeFor[cfharness.ObservationDenied](), refine: set("type", fixed(cfharness.TypeObservationDenied), "code", pattern(codePattern),
			"reason", words("not-authorized", "not-observable", "needs-opaque-pass-through", "needs-sanitizing-worker"))},
		{typ: reflect.TypeFor[cfharness.PolicyEvent](), refine: set("type", fixed(cfharness.TypePolicyEvent), "severity", words("warning", "denied"),
			"mode", words(cfharness.Modes()...), "promptSlot", promptSlot())},
		{typ: reflect.TypeFor[cfharness.DecisionExtension](), open: true},
		{typ: reflect.TypeFor[cfharness.PolicyDecision](), refine: func(_ *builder, s *jsonschema.Schema) {
			set("type", fixed(cfharness.TypePolicyDecision), "runId", pattern(idPattern), "effectClass", words("read", "write", "side-effect"),
				"cfcEnforcementMode", words(cfharness.Modes()...), "decision", words("allowed", "warned", "denied"), "promptSlot", promptSlot())(nil, s)
			least := 1
			s.Properties["reasonCodes"].MinItems = &least
			s.Properties["reasonCodes"].Items = pattern(codePattern)
			s.Properties["policyEventIndexes"].Description = "Not written: no file of a session holds the list they point into."
		}},
		{typ: reflect.TypeFor[cfharness.TextSummary](), refine: set("type", fixed(cfharness.TypeTextSummary))},
		{typ: reflect.TypeFor[cfharness.SequenceSummary](), refine: set("type", fixed(cfharness.TypeSequenceSummary))},
		{typ: reflect.TypeFor[cfharness.EnvSummary](), refine: set("type", fixed(cfharness.TypeEnvSummary))},
		{typ: reflect.TypeFor[cfharness.InvocationManifest](), refine: set("source", fixed(cfharness.RunManifestSource), "cfcEnforcementMode", words(cfharness.Modes()...))},
		{typ: reflect.TypeFor[cfharness.InvocationContext](), refine: func(b *builder, s *jsonschema.Schema) {
			versioned(cfharness.TypeInvocationContext)(b, s)
			set("runId", pattern(idPattern), "operation", words("command", "shell"), "cfcEnforcementMode", words(cfharness.Modes()...), "promptSlot", promptSlot())(b, s)
		}},
		{typ: reflect.TypeFor[cfharness.PolicyTrace](), refine: func(b *builder, s *jsonschema.Schema) {
			versioned(cfharness.TypePolicyTrace)(b, s)
			set("runId", pattern(idPattern), "cfcEnforcementMode", words(cfharness.Modes()...))(b, s)
			s.Properties["decisions"].Items = b.of(reflect.TypeFor[cfharness.PolicyDecision]())
			s.Properties["cfcInvocationContexts"].Items = b.of(reflect.TypeFor[cfharness.InvocationContext]())
		}},
	}
}

func snapshotRefinements() []refinement {
	const mode, xattrs, visibility = "enforcementMode", "expectedSandboxVisible", "sandboxVisibility"
	absence := words("not-required", "observe-only", "permissive-if-absent", "fail-closed-if-absent")
	substrate := words("not-required", "manifest-present", "not-attested", "missing")
	return []refinement{
		{typ: reflect.TypeFor[cfharness.SnapshotCFC](), refine: set(mode, words(cfharness.Modes()...), "absenceBehavior", absence, "substrateStatus", substrate,
			"enforcementModeSource", words("override", "explicit-config", "inherited", "run-manifest", "default"))},
		{typ: reflect.TypeFor[cfharness.SnapshotManifest](), refine: set("type", fixed(cfharness.TypeRunManifest), "source", fixed(cfharness.RunManifestSource),
			"cfcEnforcementMode", words(cfharness.Modes()...), "labelSource", fixed(cfharness.RunManifestLabelSource))},
		{typ: reflect.TypeFor[cfharness.SnapshotPromptSlot](), refine: set("bindingSource", words("run-options", "run-state", "absent"), "binding", promptSlot())},
		{typ: reflect.TypeFor[cfharness.SnapshotTools](), refine: set("allowance", words("all-builtins", "restricted"))},
		{typ: reflect.TypeFor[cfharness.ProfileConfig](), refine: set("skillScriptExecutionTarget", words("sandbox", "host"))},
		{typ: reflect.TypeFor[cfharness.ProtectedXattrs](), refine: set(xattrs, fixed(false), visibility, fixed("not-probed"))},
		{typ: reflect.TypeFor[cfharness.SandboxExtension](), open: true},
		{typ: reflect.TypeFor[cfharness.LoadedSkill](), open: true},
		{typ: reflect.TypeFor[cfharness.TrustDiagnostic](), open: true, refine: set("severity", words("info", "warning", "error"))},
		{typ: reflect.TypeFor[cfharness.AllowlistEntry](), open: true, refine: set("release", words("none", "observed", "opaque"), "approve", words("tier", "always", "never"), "target", words("sandbox", "host"))},
		{typ: reflect.TypeFor[cfharness.PolicyExtension](), open: true, refine: set("release", words("none", "observed", "opaque"), "allowedTools", words("enforce", "advisory"))},
		{typ: reflect.TypeFor[cfharness.PolicySnapshot](), refine: func(b *builder, s *jsonschema.Schema) {
			versioned(cfharness.TypePolicySnapshot)(b, s)
			put(s, "runId", pattern(idPattern))
		}},
		{typ: reflect.TypeFor[cfharness.CapabilityManifest](), refine: set("type", fixed(cfharness.TypeRunManifest))},
		{typ: reflect.TypeFor[cfharness.CapabilityMount](), refine: set("mode", words("ro", "staged", "rw"))},
		{typ: reflect.TypeFor[cfharness.CapabilityCFC](), refine: set(mode, words(cfharness.Modes()...), "absenceBehavior", absence, "substrateStatus", substrate)},
		{typ: reflect.TypeFor[cfharness.CapabilitySnapshot](), refine: set("type", fixed(cfharness.TypeCapabilities))},
	}
}

func outputRefinements() []refinement {
	return []refinement{
		{typ: reflect.TypeFor[cfharness.LoadOutput](), refine: set("type", fixed(cfharness.TypeLoadOutput), "status", fixed(cfharness.StatusLoaded), "cfcPromptRole", fixed(cfharness.PromptRoleContext))},
		{typ: reflect.TypeFor[cfharness.FailedOutput](), refine: set("status", fixed("error"))},
		{typ: reflect.TypeFor[cfharness.ReadOutput](), refine: func(_ *builder, s *jsonschema.Schema) {
			put(s, "type", fixed(cfharness.TypeReadOutput))
			readKeys(s)
			s.If, s.Then, s.Else = property("status", fixed("error")), required("error"), required("sandboxResourcePath", "observedDigest")
		}},
		{typ: reflect.TypeFor[cfharness.RunOutput](), refine: func(_ *builder, s *jsonschema.Schema) {
			put(s, "type", fixed(cfharness.TypeRunOutput))
			runKeys(s)
			s.If, s.Then, s.Else = property("status", fixed("error")), required("error"), required("skillsd", "argv", "executionTarget")
		}},
		{typ: reflect.TypeFor[cfharness.CallRecords](), refine: func(b *builder, s *jsonschema.Schema) {
			versioned(cfharness.TypeCallRecords)(b, s)
			set("runId", pattern(idPattern), "file", words(provenance.ActivationsFile, provenance.ResourceReadsFile, provenance.ScriptExecutionsFile),
				"decision", b.of(reflect.TypeFor[cfharness.PolicyDecision]()), "cfcInvocationContext", b.of(reflect.TypeFor[cfharness.InvocationContext]()))(b, s)
			s.Properties["policyEvents"].Items = b.of(reflect.TypeFor[cfharness.PolicyEvent]())
			s.DependentRequired = map[string][]string{"file": {"record"}, "record": {"file"}}
			for file, row := range map[string]reflect.Type{provenance.ActivationsFile: reflect.TypeFor[cfharness.Activation](),
				provenance.ResourceReadsFile: reflect.TypeFor[cfharness.ResourceRead](), provenance.ScriptExecutionsFile: reflect.TypeFor[cfharness.ScriptExecution]()} {
				s.AllOf = append(s.AllOf, &jsonschema.Schema{If: property("file", fixed(file)), Then: &jsonschema.Schema{Properties: map[string]*jsonschema.Schema{"record": b.of(row)}}})
			}
			slices.SortFunc(s.AllOf, byConst("file"))
		}},
	}
}
