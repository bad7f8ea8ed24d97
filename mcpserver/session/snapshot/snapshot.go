// Package snapshot describes a server in the reference's shapes: the skills it serves, the policy under
// which its sessions start, and what its machine offers to scripts.
package snapshot

import (
	"context"
	"encoding/json"
	"path"
	"path/filepath"

	"github.com/opencontainers/go-digest"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// Source is the configuration that describes a server.
type Source struct {
	Registry        *skills.Registry
	Policies        *policy.Policy
	Facts           Facts
	Limits          sandbox.Limits
	Workspace       sandbox.Workspace
	ClientWorkspace bool // clients may name the workspace
	Runner          func(ctx context.Context) (sandbox.Runner, error)
	Interpreter     func(ctx context.Context, name string) (*sandbox.Interpreter, error)

	Preload []*skills.Skill
	Pins    map[string]digest.Digest // tree digest at start, by path of an allowlisted skill
}

// SandboxSkills is the directory of skills in the sandbox as the reference names it in records.
const SandboxSkills = "/workspace/skills"

// ToolRun is the tool that is offered only when the operator says so.
const ToolRun = "run_skill_script"

// Where an enforcement mode came from.
const (
	ModeOverride = "override"        // a flag, or the client that raised it
	ModeConfig   = "explicit-config" // the configuration file or the environment
	ModeManifest = "run-manifest"
	ModeDefault  = "default"
)

// Facts are what the records say about a server besides its policy. All fields are optional.
type Facts struct {
	ModeSource    string                 // of the configured mode; empty is ModeDefault
	Manifest      *cfharness.RunManifest // nil when the server was started without one
	ManifestPath  string                 // where it was read from, on this machine
	Slot          json.RawMessage        // the operator's binding for the whole process; nil for none
	WorkspacePath string                 // of the granted workspace, on this machine
	KeepsShown    int64                  // bytes of shown texts that Records keeps of a session; may be 0
	// Command returns the path of a command of this machine, empty if the machine does not have it.
	Command func(name string) string
	// Enforces returns, once there is a sandbox, how it enforces the limits of memory and of processes.
	Enforces func() (memory, processes string)
}

// HostPath returns where a file of a skill is on this machine; only records on disk hold it.
func HostPath(sk *skills.Skill, file string) string {
	if sk.Root.FS != nil {
		return sk.URI(file)
	}
	return filepath.Join(sk.Root.Dir, filepath.FromSlash(path.Join(sk.Dir, file)))
}

// SandboxPath returns the name a file of a skill has in records and results.
func SandboxPath(sk *skills.Skill, file string) string {
	return path.Join(SandboxSkills, sk.Path, file)
}

// absenceBehavior returns what a mode does if the sandbox does not label output.
func absenceBehavior(mode policy.Mode) string {
	switch mode {
	case policy.Disabled:
		return "not-required"
	case policy.Observe:
		return "observe-only"
	case policy.EnforceStrict:
		return "fail-closed-if-absent"
	}
	return "permissive-if-absent"
}

// substrateStatus returns what is known about a sandbox that labels output.
func (s *Source) substrateStatus(mode policy.Mode) string {
	switch {
	case mode == policy.Disabled:
		return "not-required"
	case s.Facts.Manifest != nil:
		return "manifest-present"
	case mode == policy.EnforceStrict:
		return "missing"
	}
	return "not-attested"
}

func manifestFacts(facts Facts) cfharness.SnapshotManifest {
	m := facts.Manifest
	if m == nil {
		return cfharness.SnapshotManifest{}
	}
	return cfharness.SnapshotManifest{
		Present: true, Type: cfharness.TypeRunManifest, Path: facts.ManifestPath,
		Source: cfharness.RunManifestSource,
		WishID: m.WishID, ParentWishID: m.ParentWishID, DispatchClass: m.DispatchClass,
		CapabilityProfile: m.CapabilityProfile,
		Mode:              m.Mode, LabelSource: m.LabelSource, PromptSlotPresent: new(m.PromptSlot != nil),
	}
}

// PublicSlot returns the operator's binding for rows, which remote clients may see: without anything that
// can name a path of this machine.
func PublicSlot(facts Facts) json.RawMessage {
	if facts.Slot == nil {
		return nil
	}
	var slot map[string]json.RawMessage
	if json.Unmarshal(facts.Slot, &slot) != nil {
		return nil
	}
	manifest := ""
	if facts.Manifest != nil {
		manifest = provenance.RunManifestFile
	}
	return encode(struct {
		Type           string               `json:"type"`
		Source         cfharness.SlotSource `json:"source"`
		Role           json.RawMessage      `json:"role"`
		KernelName     json.RawMessage      `json:"kernelName"`
		Surface        json.RawMessage      `json:"surface"`
		EventID        json.RawMessage      `json:"eventId,omitempty"`
		ValueDigest    json.RawMessage      `json:"valueDigest,omitempty"`
		SlotDigest     json.RawMessage      `json:"slotDigest,omitempty"`
		SnapshotDigest json.RawMessage      `json:"snapshotDigest,omitempty"`
	}{cfharness.TypePromptSlot, cfharness.OperatorSource(manifest), slot["role"], slot["kernelName"],
		slot["surface"],
		slot["eventId"], slot["valueDigest"], slot["slotDigest"], slot["snapshotDigest"]})
}

// workspaceMount describes what the operator grants to scripts.
func (s *Source) workspaceMount() cfharness.CapabilityMount {
	ws := s.Workspace
	if ws.Mode != "" && ws.Mode != sandbox.WorkspaceNone {
		return cfharness.CapabilityMount{Present: true, Mode: string(ws.Mode),
			HostPath: s.Facts.WorkspacePath, SandboxPath: sandbox.WorkspaceDir}
	}
	if s.ClientWorkspace {
		return cfharness.CapabilityMount{Present: true, Mode: string(sandbox.WorkspaceRO),
			SandboxPath: sandbox.WorkspaceDir}
	}
	return cfharness.CapabilityMount{}
}

// encode marshals a part of a snapshot, whose types always marshal.
func encode(v any) json.RawMessage {
	raw, err := provenance.Encode(v)
	if err != nil {
		panic("snapshot: part does not marshal: " + err.Error())
	}
	return raw
}
