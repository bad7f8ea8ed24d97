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

// exact and open return the refinement of a type; refine may be nil.
func exact[T any](refine func(*builder, *jsonschema.Schema)) refinement {
	return refinement{typ: reflect.TypeFor[T](), refine: refine}
}

func open[T any](refine func(*builder, *jsonschema.Schema)) refinement {
	return refinement{typ: reflect.TypeFor[T](), open: true, refine: refine}
}

// scalars returns the schemas of types that marshal themselves, or are any JSON.
func scalars() map[reflect.Type]*jsonschema.Schema {
	return map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[provenance.Timestamp](): pattern(timePattern),
		reflect.TypeFor[time.Time]():            pattern(timePattern),
		reflect.TypeFor[digest.Digest]():        pattern(sha256Pattern),
		reflect.TypeFor[json.RawMessage]():      {},
		reflect.TypeFor[cfharness.Source](): words("cli-preload", "model-tool", "user-explicit",
			"subagent-inherit"),
		reflect.TypeFor[provenance.State](): words("open", "ended", "crashed", "damaged"),
		reflect.TypeFor[cfharness.Outcome](): words("exited", "signaled", "timeout",
			"memory_limit", "pids_limit", "output_limit", "canceled"),
		reflect.TypeFor[provenance.Kind]():              pattern(`^[a-z]+\.[a-z_]+$`),
		reflect.TypeFor[cfharness.InputLabels]():        inputLabels(),
		reflect.TypeFor[cfharness.OpaqueHandle]():       opaqueHandle(),
		reflect.TypeFor[cfharness.CapabilityCommands](): commands(),
	}
}

// refinements returns the refinements of all types. A type comes after the types it consists of.
func refinements() []refinement {
	return slices.Concat(registryRefinements(), rowRefinements(), policyRefinements(), snapshotRefinements(),
		outputRefinements())
}

func registryRefinements() []refinement {
	return []refinement{
		exact[cfharness.RegistryDiagnostic](set("severity", words("warning", "error"))),
		open[cfharness.ExtendedDiagnostic](set("severity", words("info", "warning", "error"))),
		open[cfharness.RegistryRoot](set("tier", words(tiers()...))),
		open[cfharness.RegistryVerdict](nil),
		open[cfharness.RegistrySkillShadow](nil),
		open[cfharness.RegistryResourceExtension](nil),
		open[cfharness.RegistrySkillExtension](set("tier", words(tiers()...), "frontmatter", object())),
		open[cfharness.RegistryExtension](nil),
		exact[cfharness.RegistryScript](set("runtime", words("deno", "shebang", "unknown"))),
		exact[cfharness.RegistryResource](func(_ *builder, s *jsonschema.Schema) {
			put(s, "kind", words("reference", "asset", "template", "script", "other"))
			put(s, "contentKind", words("text", "binary"))
			s.If, s.Then, s.Else = property("kind", fixed("script")), required("script"), without("script")
		}),
		exact[cfharness.RegistrySkill](set(
			"frontmatter", &jsonschema.Schema{Type: "object",
				AdditionalProperties: &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "string"},
					{Type: "boolean"}, {Type: "array", Items: &jsonschema.Schema{Type: "string"}}}}},
		)),
		exact[cfharness.SkillRegistry](versioned(cfharness.TypeSkillRegistry)),
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
		exact[cfharness.RecordError](set("code", pattern(codePattern))),
		open[cfharness.ActivationExtension](nil),
		exact[cfharness.Activation](set(
			"runId", pattern(idPattern),
			"cfcPromptRole", fixed(cfharness.PromptRoleContext),
		)),
		exact[cfharness.Activations](rows("activations", reflect.TypeFor[cfharness.Activation](),
			cfharness.TypeActivations)),
		open[cfharness.ReadExtension](nil),
		exact[cfharness.ResourceRead](func(_ *builder, s *jsonschema.Schema) {
			set("type", fixed(cfharness.TypeResourceRead), "runId", pattern(idPattern))(nil, s)
			readKeys(s)
			s.If, s.Then = property("status", fixed("error")), required("error")
			s.Else = required("resourcePath")
		}),
		exact[cfharness.ResourceReads](rows("reads", reflect.TypeFor[cfharness.ResourceRead](),
			cfharness.TypeResourceReads)),
		open[cfharness.RunLimits](nil),
		open[cfharness.ShownText](nil),
		open[cfharness.StreamSummary](set("digest", pattern(sealedPattern))),
		open[cfharness.OutFile](nil),
		open[cfharness.Connection](nil),
		open[cfharness.WorkspaceWrite](nil),
		open[cfharness.RunExtension](nil),
		exact[cfharness.ScriptExecution](func(_ *builder, s *jsonschema.Schema) {
			set("type", fixed(cfharness.TypeScriptExecution), "runId", pattern(idPattern))(nil, s)
			runKeys(s)
			s.If, s.Then = property("status", fixed("error")), required("error")
			s.Else = required("skillsd", "argv", "executionTarget", "resourcePath")
		}),
		exact[cfharness.ScriptExecutions](rows("executions", reflect.TypeFor[cfharness.ScriptExecution](),
			cfharness.TypeScriptExecutions)),
		exact[provenance.Head](set("hash", pattern(`^([0-9a-f]{64})?$`))),
		exact[provenance.Session](set("id", pattern(idPattern))),
	}
}

// readKeys and runKeys refine the keys that rows and output objects have in common.
func readKeys(s *jsonschema.Schema) {
	set(
		"status", words("read", "binary", "error"),
		"cfcPromptRole", fixed(cfharness.PromptRoleContext),
		"kind", words("reference", "asset", "template", "script", "other"),
		"contentKind", words("text", "binary"),
	)(nil, s)
}

func runKeys(s *jsonschema.Schema) {
	set(
		"status", words("executed", "error"),
		"executionTarget", words("sandbox", "host"),
		"runtime", words("deno", "shebang", "unknown"),
	)(nil, s)
}

func policyRefinements() []refinement {
	return []refinement{
		exact[cfharness.ToolInputSummary](set("type", fixed(cfharness.TypeToolInputSummary))),
		exact[cfharness.ObservationDenied](set(
			"type", fixed(cfharness.TypeObservationDenied),
			"code", pattern(codePattern),
			"reason", words("not-authorized", "not-observable", "needs-opaque-pass-through",
				"needs-sanitizing-worker"),
		)),
		exact[cfharness.PolicyEvent](set(
			"type", fixed(cfharness.TypePolicyEvent),
			"severity", words("warning", "denied"),
			"mode", words(cfharness.Modes()...),
			"promptSlot", promptSlot(),
		)),
		open[cfharness.DecisionExtension](nil),
		exact[cfharness.PolicyDecision](func(_ *builder, s *jsonschema.Schema) {
			set(
				"type", fixed(cfharness.TypePolicyDecision),
				"runId", pattern(idPattern),
				"effectClass", words("read", "write", "side-effect"),
				"cfcEnforcementMode", words(cfharness.Modes()...),
				"decision", words("allowed", "warned", "denied"),
				"promptSlot", promptSlot(),
			)(nil, s)
			least := 1
			s.Properties["reasonCodes"].MinItems = &least
			s.Properties["reasonCodes"].Items = pattern(codePattern)
			const unwritten = "Not written: no file of a session holds the list they point into."
			s.Properties["policyEventIndexes"].Description = unwritten
		}),
		exact[cfharness.TextSummary](set("type", fixed(cfharness.TypeTextSummary))),
		exact[cfharness.SequenceSummary](set("type", fixed(cfharness.TypeSequenceSummary))),
		exact[cfharness.EnvSummary](set("type", fixed(cfharness.TypeEnvSummary))),
		exact[cfharness.InvocationManifest](set(
			"source", fixed(cfharness.RunManifestSource),
			"cfcEnforcementMode", words(cfharness.Modes()...),
		)),
		exact[cfharness.InvocationContext](func(b *builder, s *jsonschema.Schema) {
			versioned(cfharness.TypeInvocationContext)(b, s)
			set(
				"runId", pattern(idPattern),
				"operation", words("command", "shell"),
				"cfcEnforcementMode", words(cfharness.Modes()...),
				"promptSlot", promptSlot(),
			)(b, s)
		}),
		exact[cfharness.PolicyTrace](func(b *builder, s *jsonschema.Schema) {
			versioned(cfharness.TypePolicyTrace)(b, s)
			set("runId", pattern(idPattern), "cfcEnforcementMode", words(cfharness.Modes()...))(b, s)
			s.Properties["decisions"].Items = of[cfharness.PolicyDecision](b)
			s.Properties["cfcInvocationContexts"].Items = of[cfharness.InvocationContext](b)
		}),
	}
}

func snapshotRefinements() []refinement {
	const mode, xattrs, visibility = "enforcementMode", "expectedSandboxVisible", "sandboxVisibility"
	absence := words("not-required", "observe-only", "permissive-if-absent", "fail-closed-if-absent")
	substrate := words("not-required", "manifest-present", "not-attested", "missing")
	return []refinement{
		exact[cfharness.SnapshotCFC](set(
			mode, words(cfharness.Modes()...),
			"absenceBehavior", absence,
			"substrateStatus", substrate,
			"enforcementModeSource", words("override", "explicit-config", "inherited", "run-manifest",
				"default"),
		)),
		exact[cfharness.SnapshotManifest](set(
			"type", fixed(cfharness.TypeRunManifest),
			"source", fixed(cfharness.RunManifestSource),
			"cfcEnforcementMode", words(cfharness.Modes()...),
			"labelSource", fixed(cfharness.RunManifestLabelSource),
		)),
		exact[cfharness.SnapshotPromptSlot](set(
			"bindingSource", words("run-options", "run-state", "absent"),
			"binding", promptSlot(),
		)),
		exact[cfharness.SnapshotTools](set("allowance", words("all-builtins", "restricted"))),
		exact[cfharness.ProfileConfig](set("skillScriptExecutionTarget", words("sandbox", "host"))),
		exact[cfharness.ProtectedXattrs](set(xattrs, fixed(false), visibility, fixed("not-probed"))),
		open[cfharness.SandboxExtension](nil),
		open[cfharness.LoadedSkill](nil),
		open[cfharness.TrustDiagnostic](set("severity", words("info", "warning", "error"))),
		open[cfharness.AllowlistEntry](set(
			"release", words("none", "observed", "opaque"),
			"approve", words("tier", "always", "never"),
			"target", words("sandbox", "host"),
		)),
		open[cfharness.PolicyExtension](set(
			"release", words("none", "observed", "opaque"),
			"allowedTools", words("enforce", "advisory"),
		)),
		exact[cfharness.PolicySnapshot](func(b *builder, s *jsonschema.Schema) {
			versioned(cfharness.TypePolicySnapshot)(b, s)
			put(s, "runId", pattern(idPattern))
		}),
		exact[cfharness.CapabilityManifest](set("type", fixed(cfharness.TypeRunManifest))),
		exact[cfharness.CapabilityMount](set("mode", words("ro", "staged", "rw"))),
		exact[cfharness.CapabilityCFC](set(
			mode, words(cfharness.Modes()...),
			"absenceBehavior", absence,
			"substrateStatus", substrate,
		)),
		exact[cfharness.CapabilitySnapshot](set("type", fixed(cfharness.TypeCapabilities))),
	}
}

func outputRefinements() []refinement {
	return []refinement{
		exact[cfharness.LoadOutput](set(
			"type", fixed(cfharness.TypeLoadOutput),
			"status", fixed(cfharness.StatusLoaded),
			"cfcPromptRole", fixed(cfharness.PromptRoleContext),
		)),
		exact[cfharness.FailedOutput](set("status", fixed("error"))),
		exact[cfharness.ReadOutput](func(_ *builder, s *jsonschema.Schema) {
			put(s, "type", fixed(cfharness.TypeReadOutput))
			readKeys(s)
			s.If, s.Then = property("status", fixed("error")), required("error")
			s.Else = required("sandboxResourcePath", "observedDigest")
		}),
		exact[cfharness.RunOutput](func(_ *builder, s *jsonschema.Schema) {
			put(s, "type", fixed(cfharness.TypeRunOutput))
			runKeys(s)
			s.If, s.Then = property("status", fixed("error")), required("error")
			s.Else = required("skillsd", "argv", "executionTarget")
		}),
		exact[cfharness.CallRecords](func(b *builder, s *jsonschema.Schema) {
			versioned(cfharness.TypeCallRecords)(b, s)
			set(
				"runId", pattern(idPattern),
				"file", words(provenance.ActivationsFile, provenance.ResourceReadsFile,
					provenance.ScriptExecutionsFile),
				"decision", of[cfharness.PolicyDecision](b),
				"cfcInvocationContext", of[cfharness.InvocationContext](b),
			)(b, s)
			s.Properties["policyEvents"].Items = of[cfharness.PolicyEvent](b)
			s.DependentRequired = map[string][]string{"file": {"record"}, "record": {"file"}}
			for file, row := range map[string]reflect.Type{
				provenance.ActivationsFile:      reflect.TypeFor[cfharness.Activation](),
				provenance.ResourceReadsFile:    reflect.TypeFor[cfharness.ResourceRead](),
				provenance.ScriptExecutionsFile: reflect.TypeFor[cfharness.ScriptExecution](),
			} {
				s.AllOf = append(s.AllOf, &jsonschema.Schema{If: property("file", fixed(file)),
					Then: &jsonschema.Schema{Properties: map[string]*jsonschema.Schema{"record": b.of(row)}}})
			}
			slices.SortFunc(s.AllOf, byConst("file"))
		}),
	}
}
