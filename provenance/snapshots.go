package provenance

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/opencontainers/go-digest"
)

// PolicySnapshot is the content of policy-snapshot.json, the policy a session started under.
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
	Skillsd      json.RawMessage      `json:"skillsd,omitempty"`
}

// SnapshotCFC is the enforcement mode and where it came from.
type SnapshotCFC struct {
	Mode            string `json:"enforcementMode"`
	ModeSource      string `json:"enforcementModeSource"` // override, explicit-config, inherited, run-manifest or default
	AbsenceBehavior string `json:"absenceBehavior,omitempty"`
	SubstrateStatus string `json:"substrateStatus,omitempty"`
}

// SnapshotManifest says what the run manifest contributed.
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

// SnapshotTools is the tools offered.
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

// SnapshotSubagents is the profiles a session may be narrowed to.
type SnapshotSubagents struct {
	AllowedProfiles List[string]          `json:"allowedProfiles"`
	ProfileConfigs  List[json.RawMessage] `json:"profileConfigs"`
}

// SnapshotSubstrate is what is known of the sandbox.
type SnapshotSubstrate struct {
	Sandbox         json.RawMessage  `json:"sandbox,omitempty"`
	ProtectedXattrs *ProtectedXattrs `json:"protectedXattrs,omitempty"`
}

// ProtectedXattrs says whether protected extended attributes are visible in the sandbox.
type ProtectedXattrs struct {
	ExpectedSandboxVisible bool   `json:"expectedSandboxVisible"` // false
	SandboxVisibility      string `json:"sandboxVisibility"`      // not-probed
}

// CapabilitySnapshot is the content of capabilities.json: what the machine offers. Unlike other
// records it has no version.
type CapabilitySnapshot struct {
	Type     string             `json:"type"`
	At       Timestamp          `json:"at"`
	Commands CapabilityCommands `json:"commands"`
	Model    *CapabilityModel   `json:"model,omitempty"`
	CFC      CapabilityCFC      `json:"cfc"`
	Skillsd  json.RawMessage    `json:"skillsd,omitempty"`
}

// CapabilityCommands are the interpreters and tools looked for.
type CapabilityCommands struct {
	Bash    CapabilityCommand `json:"bash"`
	Sh      CapabilityCommand `json:"sh"`
	Node    CapabilityCommand `json:"node"`
	Deno    CapabilityCommand `json:"deno"`
	Python  CapabilityCommand `json:"python"`
	Python3 CapabilityCommand `json:"python3"`
	Git     CapabilityCommand `json:"git"`
}

// CapabilityCommand is one command.
type CapabilityCommand struct {
	Present bool   `json:"present"`
	Path    string `json:"path,omitempty"`
	Version string `json:"version,omitempty"`
}

// CapabilityModel names the model's provider.
type CapabilityModel struct {
	ProviderID string `json:"providerId"`
	AuthSource string `json:"authSource"`
}

// CapabilityCFC is the enforcement that the machine can give.
type CapabilityCFC struct {
	Mode            string             `json:"enforcementMode"`
	AbsenceBehavior string             `json:"absenceBehavior"` // not-required, observe-only, permissive-if-absent or fail-closed-if-absent
	SubstrateStatus string             `json:"substrateStatus"` // not-required, manifest-present, not-attested or missing
	RunManifest     CapabilityManifest `json:"runManifest"`
	Sandbox         json.RawMessage    `json:"sandbox"`
	Mounts          CapabilityMounts   `json:"mounts"`
	ProtectedXattrs ProtectedXattrs    `json:"protectedXattrs"`
}

// CapabilityManifest says whether a run manifest was given.
type CapabilityManifest struct {
	Present bool   `json:"present"`
	Type    string `json:"type,omitempty"`
	Path    string `json:"path,omitempty"`
}

// CapabilityMounts are the mounts of the sandbox, objects of the backend's shape.
type CapabilityMounts struct {
	Workspace json.RawMessage       `json:"workspace"`
	Fabric    json.RawMessage       `json:"fabric"`
	HostBinds List[json.RawMessage] `json:"hostBinds"`
}

// CompactDigest returns the digest of the compact form of a JSON text, which is how a policy
// snapshot is named in policy-trace.json; white space does not change it, the order of keys does.
//
// Errors: ErrInvalid when data is not JSON.
func CompactDigest(data []byte) (digest.Digest, error) {
	var buf bytes.Buffer
	if err := json.Compact(&buf, data); err != nil {
		return "", fmt.Errorf("compact: %w: %v", ErrInvalid, err)
	}
	return digest.FromBytes(buf.Bytes()), nil
}
