package cfharness

import (
	"encoding/json"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
)

// PolicySnapshot is the content of policy-snapshot.json: the policy at the start of a session.
type PolicySnapshot struct {
	Type         string               `json:"type"`
	Version      int                  `json:"version"`
	GeneratedAt  Timestamp            `json:"generatedAt"`
	RunID        string               `json:"runId"`
	CFC          SnapshotCFC          `json:"cfc"`
	RunManifest  SnapshotManifest     `json:"runManifest"`
	PromptSlot   SnapshotPromptSlot   `json:"promptSlot"`
	ParentTools  SnapshotTools        `json:"parentTools"`
	SkillScripts SnapshotSkillScripts `json:"skillScripts"`
	Subagents    SnapshotSubagents    `json:"subagents"`
	Substrate    *SnapshotSubstrate   `json:"substrate,omitempty"`
	Skillsd      *PolicyExtension     `json:"skillsd,omitempty"`
}

// PolicyExtension is the skillsd key of a PolicySnapshot.
type PolicyExtension struct {
	Principal        string                `json:"principal"`
	SessionProfile   string                `json:"sessionProfile,omitempty"` // profile chosen by the session
	OperatorProfile  string                `json:"operatorProfile,omitempty"`
	PrincipalProfile string                `json:"principalProfile,omitempty"`
	SkillsRoots      List[RegistryRoot]    `json:"skillsRoots"`
	LoadedSkills     List[LoadedSkill]     `json:"loadedSkills"` // before the first call
	TrustDiagnostics List[TrustDiagnostic] `json:"trustDiagnostics"`
	Allowlist        List[AllowlistEntry]  `json:"allowlist"`
	ClosedTiers      List[string]          `json:"closedTiers"`
	Release          string                `json:"release"`      // default of entries
	AllowedTools     string                `json:"allowedTools"` // enforce or advisory
	HostTarget       bool                  `json:"hostTarget"`   // entries with target host may run there
	PromptSlotRole   string                `json:"promptSlotRole,omitempty"`
}

// LoadedSkill is a skill that is active at the start of a session.
type LoadedSkill struct {
	Path             string        `json:"path"` // skill path
	Name             string        `json:"name"`
	Digest           digest.Digest `json:"digest"` // of SKILL.md
	TreeDigest       digest.Digest `json:"treeDigest,omitempty"`
	ActivationSource Source        `json:"activationSource"`
	// InjectedAsContext is set if the instructions are in the model's context without being requested.
	InjectedAsContext bool `json:"injectedAsContext"`
}

// TrustDiagnostic is a diagnostic that affects the trust in a skill or a root.
type TrustDiagnostic struct {
	Skill    string `json:"skill,omitempty"` // skill path
	Severity string `json:"severity"`        // info, warning or error
	Code     string `json:"code"`
	Detail   string `json:"detail"`
	Path     string `json:"path,omitempty"`
	Line     int    `json:"line,omitempty"`
}

// AllowlistEntry is one entry of the script allowlist with all its options. It has the names of secrets,
// never their values. StartTree is the digest of the skill's files when the server started, absent if the
// skill did not exist then.
type AllowlistEntry struct {
	Skill       string        `json:"skill"`
	Path        string        `json:"path"`
	Pin         digest.Digest `json:"pin,omitempty"`       // of the script
	Tree        digest.Digest `json:"tree,omitempty"`      // of all files of the skill, pinned
	PinScript   bool          `json:"pinScript,omitempty"` // the script alone is pinned
	StartTree   digest.Digest `json:"startTree,omitempty"` // of all files at the start
	Network     List[string]  `json:"network"`
	Env         List[string]  `json:"env"`
	Secrets     List[string]  `json:"secrets"`
	Release     string        `json:"release"`
	Approve     string        `json:"approve"`
	Target      string        `json:"target"`
	Execution   string        `json:"execution,omitempty"`  // stdin: the script is read from stdin
	SearchPath  []string      `json:"searchPath,omitempty"` // for programs on the host, searched first
	Workspace   string        `json:"workspace,omitempty"`
	TimeoutMS   int64         `json:"timeoutMs,omitempty"`
	MemoryBytes int64         `json:"memoryBytes,omitempty"`
	Environment string        `json:"environment,omitempty"` // name of the environment of packages
}

// SnapshotCFC is the enforcement mode and its source: override, explicit-config, inherited, run-manifest or
// default.
type SnapshotCFC struct {
	Mode            string `json:"enforcementMode"`
	ModeSource      string `json:"enforcementModeSource"`
	AbsenceBehavior string `json:"absenceBehavior,omitempty"`
	SubstrateStatus string `json:"substrateStatus,omitempty"`
}

// SnapshotManifest is the part of the run manifest that affects the policy.
type SnapshotManifest struct {
	Present           bool   `json:"present"`
	Type              string `json:"type,omitempty"`
	Path              string `json:"path,omitempty"`
	Source            string `json:"source,omitempty"`
	WishID            string `json:"wishId,omitempty"`
	ParentWishID      string `json:"parentWishId,omitempty"`
	DispatchClass     string `json:"dispatchClass,omitempty"`
	CapabilityProfile string `json:"capabilityProfile,omitempty"`
	Mode              string `json:"cfcEnforcementMode,omitempty"`
	LabelSource       string `json:"labelSource,omitempty"`
	PromptSlotPresent *bool  `json:"promptSlotPresent,omitempty"`
}

// SnapshotPromptSlot is the prompt-slot evidence of the session.
type SnapshotPromptSlot struct {
	Present       bool            `json:"present"`
	BindingSource string          `json:"bindingSource"` // run-options, run-state or absent
	Binding       json.RawMessage `json:"binding,omitempty"`
}

// SlotSource is the source of a binding that the operator set for the whole process.
type SlotSource struct {
	Type    string `json:"type"`
	Surface string `json:"surface,omitempty"`
	Path    string `json:"path,omitempty"` // path of the run manifest
}

// SurfaceCLI is the surface of the command line.
const SurfaceCLI = "cli"

// OperatorSource returns the source of the operator's binding: the run manifest at path, or the command line
// if path is empty.
func OperatorSource(path string) SlotSource {
	if path != "" {
		return SlotSource{Type: "cf-harness.loom-run-manifest-ref", Path: path}
	}
	return SlotSource{Type: "cf-harness.cli-input", Surface: SurfaceCLI}
}

// SnapshotTools are the offered tools.
type SnapshotTools struct {
	Allowance      string       `json:"allowance"` // all-builtins or restricted
	AllowedToolIDs List[string] `json:"allowedToolIds"`
}

// SnapshotSkillScripts is the script allowlist.
type SnapshotSkillScripts struct {
	AllowedScripts List[AllowedScript] `json:"allowedScripts"`
}

// AllowedScript is one entry of the script allowlist.
type AllowedScript struct {
	Skill string `json:"skill"`
	Path  string `json:"path"`
}

// SnapshotSubagents are the profiles that a session may select.
type SnapshotSubagents struct {
	AllowedProfiles List[string]        `json:"allowedProfiles"`
	ProfileConfigs  List[ProfileConfig] `json:"profileConfigs"`
}

// ProfileConfig is the configuration of a profile. A nil pointer restricts nothing, an empty list allows
// nothing.
type ProfileConfig struct {
	Type            string               `json:"type,omitempty"` // TypeProfileConfig
	Profile         string               `json:"profile"`
	AllowedToolIDs  *List[string]        `json:"allowedToolIds,omitempty"`
	SkillNames      *List[string]        `json:"skillNames,omitempty"`    // paths of skills
	AllowedSkills   *List[string]        `json:"allowedSkills,omitempty"` // SkillNames, in earlier records
	AllowedScripts  *List[AllowedScript] `json:"allowedSkillScripts,omitempty"`
	ExecutionTarget string               `json:"skillScriptExecutionTarget,omitempty"`
}

// SnapshotSubstrate describes the sandbox as far as known.
type SnapshotSubstrate struct {
	Sandbox         *SandboxDescription `json:"sandbox,omitempty"`
	ProtectedXattrs *ProtectedXattrs    `json:"protectedXattrs,omitempty"`
}

// ProtectedXattrs reports whether protected extended attributes are visible in the sandbox.
type ProtectedXattrs struct {
	ExpectedSandboxVisible bool   `json:"expectedSandboxVisible"` // false
	SandboxVisibility      string `json:"sandboxVisibility"`      // not-probed
}

// CapabilitySnapshot is the content of capabilities.json: the capabilities of the machine. Unlike other
// records it has no version.
type CapabilitySnapshot struct {
	Type     string             `json:"type"`
	At       Timestamp          `json:"at"`
	Commands CapabilityCommands `json:"commands"`
	Model    *CapabilityModel   `json:"model,omitempty"`
	CFC      CapabilityCFC      `json:"cfc"`
}

// CapabilityCommands are the interpreters and tools that were searched for, by name. In JSON they are an
// object with its keys in this order.
type CapabilityCommands []NamedCommand

// NamedCommand is a command with its name.
type NamedCommand struct {
	Name string
	CapabilityCommand
}

// MarshalJSON writes an object with a key for each command.
func (c CapabilityCommands) MarshalJSON() ([]byte, error) {
	var names []string
	values := make(map[string]json.RawMessage)
	for _, command := range c {
		names = append(names, command.Name)
		// Texts always marshal.
		values[command.Name], _ = provenance.Encode(command.CapabilityCommand)
	}
	return object(names, values), nil
}

// CapabilityCommand is one command.
type CapabilityCommand struct {
	Present bool   `json:"present"`
	Path    string `json:"path,omitempty"`
	Version string `json:"version,omitempty"`
}

// CapabilityModel identifies the provider of the model.
type CapabilityModel struct {
	ProviderID string `json:"providerId"`
	AuthSource string `json:"authSource"`
}

// CapabilityCFC is the enforcement that the machine supports. AbsenceBehavior is not-required, observe-only,
// permissive-if-absent or fail-closed-if-absent; SubstrateStatus is not-required, manifest-present,
// not-attested or missing.
type CapabilityCFC struct {
	Mode            string             `json:"enforcementMode"`
	AbsenceBehavior string             `json:"absenceBehavior"`
	SubstrateStatus string             `json:"substrateStatus"`
	RunManifest     CapabilityManifest `json:"runManifest"`
	Sandbox         SandboxDescription `json:"sandbox"`
	Mounts          CapabilityMounts   `json:"mounts"`
	ProtectedXattrs ProtectedXattrs    `json:"protectedXattrs"`
}

// CapabilityManifest reports whether a run manifest was given.
type CapabilityManifest struct {
	Present bool   `json:"present"`
	Type    string `json:"type,omitempty"`
	Path    string `json:"path,omitempty"`
}

// SandboxDescription describes the isolation of scripts.
type SandboxDescription struct {
	Kind                    string            `json:"kind"` // the backend, or none
	DefaultWorkingDirectory string            `json:"defaultWorkingDirectory"`
	Skillsd                 *SandboxExtension `json:"skillsd,omitempty"`
}

// SandboxExtension is the skillsd key of a SandboxDescription. Memory and Processes name the mechanism of
// these limits: cgroup v2, cgroup v1 or sampled, and for processes also a resource limit or the limit of
// memory.
type SandboxExtension struct {
	Reason    string    `json:"reason,omitempty"` // why there is no isolation
	Memory    string    `json:"memory,omitempty"`
	Processes string    `json:"processes,omitempty"`
	Limits    RunLimits `json:"limits"`
}

// CapabilityMounts are the mounts of the sandbox. This server has no fabric mount.
type CapabilityMounts struct {
	Workspace CapabilityMount       `json:"workspace"`
	Fabric    CapabilityMount       `json:"fabric"`
	HostBinds List[CapabilityMount] `json:"hostBinds"`
}

// CapabilityMount is one mount.
type CapabilityMount struct {
	Present     bool   `json:"present"`
	Mode        string `json:"mode,omitempty"`     // ro, staged or rw
	HostPath    string `json:"hostPath,omitempty"` // absent for directories named by clients
	SandboxPath string `json:"sandboxPath,omitempty"`
}
