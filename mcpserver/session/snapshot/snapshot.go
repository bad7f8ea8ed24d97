// Package snapshot describes a server in the reference's shapes: the skills it serves, the policy under
// which its sessions start, and what its machine offers to scripts.
package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/script"
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

// sandboxSkills is the directory of skills in the sandbox as the reference names it in records.
const sandboxSkills = "/workspace/skills"

// toolRun is the tool that is offered only if the operator enables it.
const toolRun = "run_skill_script"

// Where an enforcement mode came from.
const (
	ModeOverride = "override"        // a flag, or the client that raised it
	ModeConfig   = "explicit-config" // the configuration file or the environment
	ModeManifest = "run-manifest"
	ModeDefault  = "default"
)

// Facts are the facts about a server that its records contain besides the policy. All fields are optional.
type Facts struct {
	ModeSource    string                 // of the configured mode; empty is ModeDefault
	Manifest      *cfharness.RunManifest // nil when the server was started without one
	ManifestPath  string                 // where it was read from, on this machine
	Slot          json.RawMessage        // the operator's binding for the whole process; nil for none
	WorkspacePath string                 // of the granted workspace, on this machine
	KeepsShown    int64                  // bytes of shown texts that Records keeps of a session; may be 0
	// Path returns where a file of a session is on this machine; optional. Only local clients see it.
	Path func(session, name string) string
	// Command returns the path of a command of this machine, empty if the machine does not have it.
	Command func(name string) string
	// Origin returns where the files of a skill with a digest of its tree came from, nil if that is not
	// known.
	Origin func(ctx context.Context, sk *skills.Skill, tree digest.Digest) *cfharness.SkillOrigin
	// Enforces returns, once there is a sandbox, how it enforces the limits of memory and of processes.
	Enforces func() (memory, processes string)
}

// OriginOf returns where the files of a skill came from: of its tree with that digest.
func (f *Facts) OriginOf(ctx context.Context, sk *skills.Skill, tree digest.Digest) *cfharness.SkillOrigin {
	if f.Origin == nil || tree == "" {
		return nil
	}
	return f.Origin(ctx, sk, tree)
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
	return path.Join(sandboxSkills, sk.Path, file)
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
func substrateStatus(mode policy.Mode, manifest *cfharness.RunManifest) string {
	switch {
	case mode == policy.Disabled:
		return "not-required"
	case manifest != nil:
		return "manifest-present"
	case mode == policy.EnforceStrict:
		return "missing"
	}
	return "not-attested"
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
	if !ws.Off() {
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

// Capabilities returns what the machine offers. It waits for the detection of the sandbox where scripts can
// run at all.
func (s *Source) Capabilities(ctx context.Context, at time.Time) (*cfharness.CapabilitySnapshot, error) {
	mode, facts := s.Policies.Mode(0), s.Facts
	out := &cfharness.CapabilitySnapshot{Type: cfharness.TypeCapabilities, At: provenance.Stamp(at),
		CFC: cfharness.CapabilityCFC{
			Mode: mode.String(), AbsenceBehavior: absenceBehavior(mode),
			SubstrateStatus: substrateStatus(mode, s.Facts.Manifest),
			Mounts:          cfharness.CapabilityMounts{Workspace: s.workspaceMount()},
			ProtectedXattrs: cfharness.ProtectedXattrs{SandboxVisibility: "not-probed"},
		}}
	if facts.Manifest != nil {
		out.CFC.RunManifest = cfharness.CapabilityManifest{Present: true, Type: cfharness.TypeRunManifest,
			Path: facts.ManifestPath}
	}
	description, err := s.describeSandbox(ctx)
	if err != nil {
		return nil, err
	}
	out.CFC.Sandbox = *description
	needed := map[string]bool{} // the runtimes of the scripts that may run
	snapshot := s.Registry.Snapshot()
	for _, entry := range s.Policies.Entries() {
		if sk := snapshot.Skill(entry.Skill); sk != nil && s.Policies.Offers(toolRun) {
			if file := sk.Resource(ctx, entry.Path); file != nil && file.Program() != nil {
				needed[string(file.Program().Runtime)] = true
			}
		}
	}
	// The reference's commands, in its order, then the interpreters that it does not have.
	names := []string{"bash", "sh", "node", "deno", "python", "python3", "git"}
	for _, in := range script.Interpreters() {
		if name := string(in.Runtime); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		command, err := s.probe(ctx, name, needed[name], &out.CFC.Mounts)
		if err != nil {
			return nil, err
		}
		out.Commands = append(out.Commands, cfharness.NamedCommand{Name: name, CapabilityCommand: command})
	}
	slices.SortFunc(out.CFC.Mounts.HostBinds,
		func(a, b cfharness.CapabilityMount) int { return strings.Compare(a.HostPath, b.HostPath) })
	return out, nil
}

// describeSandbox describes the isolation that scripts get.
//
// Errors: the errors of ctx.
func (s *Source) describeSandbox(ctx context.Context) (*cfharness.SandboxDescription, error) {
	limits := s.Limits.WithDefaults()
	d := &cfharness.SandboxDescription{Kind: "none", DefaultWorkingDirectory: sandbox.OutDir,
		Skillsd: &cfharness.SandboxExtension{Limits: Limits(limits)}}
	if s.workspaceMount().Present {
		d.DefaultWorkingDirectory = sandbox.WorkspaceDir
	}
	if !s.Policies.Offers(toolRun) {
		d.Skillsd.Reason = "no script is offered"
		return d, nil
	}
	runner, err := s.Runner(ctx)
	// The detection also fails if the server ends, which is no fact about the machine.
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		d.Skillsd.Reason = "no sandbox can be built"
		if off, ok := errors.AsType[*sandbox.UnavailableError](err); ok {
			d.Skillsd.Reason = off.Reason
		}
		return d, nil
	}
	d.Kind, d.Skillsd.Limits = runner.Name(), Limits(sandbox.Enforced(runner, limits))
	if s.Facts.Enforces != nil {
		d.Skillsd.Memory, d.Skillsd.Processes = s.Facts.Enforces()
	}
	return d, nil
}

// probe describes one command. Of an interpreter that an allowlisted script needs it finds out all that
// can be known, which may mean to read and to start it; of any other command only whether it is there.
// Directories that the sandbox mounts for the interpreter besides /usr are added to mounts once.
//
// Errors: the errors of ctx.
func (s *Source) probe(
	ctx context.Context, name string, needed bool, mounts *cfharness.CapabilityMounts,
) (cfharness.CapabilityCommand, error) {
	var absent cfharness.CapabilityCommand
	if needed {
		found, err := s.Interpreter(ctx, name)
		if ctx.Err() != nil {
			return absent, ctx.Err()
		}
		if err != nil || found == nil {
			return absent, nil
		}
		for _, dir := range found.Mounts {
			mount := cfharness.CapabilityMount{Present: true, Mode: string(sandbox.WorkspaceRO),
				HostPath: dir, SandboxPath: dir}
			if !slices.Contains(mounts.HostBinds, mount) {
				mounts.HostBinds = append(mounts.HostBinds, mount)
			}
		}
		return cfharness.CapabilityCommand{Present: true, Path: found.Path, Version: found.Version}, nil
	}
	if s.Facts.Command == nil {
		return absent, nil
	}
	if path := s.Facts.Command(name); path != "" {
		return cfharness.CapabilityCommand{Present: true, Path: path}, nil
	}
	return absent, nil
}

// Limits returns limits as records have them.
func Limits(l sandbox.Limits) cfharness.RunLimits {
	return cfharness.RunLimits{
		TimeoutMS: l.Timeout.Milliseconds(), MemoryBytes: l.Memory, PIDs: l.PIDs, FileBytes: l.File,
		OutputBytes: l.Output,
		CPUMS:       l.CPU.Milliseconds(), Files: l.Files, ScratchBytes: l.Scratch, Inodes: l.Inodes,
	}
}

// maxWrites is how many changes to a workspace a record lists.
const maxWrites = 500

// Writes returns the changes that a record has room for, in their order. If there are too many, refused
// changes are preferred to applied ones, as in the answer.
func Writes(writes []sandbox.Write) (list []cfharness.WorkspaceWrite) {
	room := maxWrites // for applied ones
	for _, w := range writes {
		if w.Refused != "" {
			room--
		}
	}
	for _, w := range writes {
		if w.Refused == "" {
			room--
		}
		if len(list) < maxWrites && (w.Refused != "" || room >= 0) {
			list = append(list, cfharness.WorkspaceWrite{
				Path: w.Path, Op: w.Op, Bytes: w.Size, Digest: digest.Digest(w.Digest), Refused: w.Refused})
		}
	}
	return list
}
