package snapshot

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills/script"
)

// Capabilities returns what the machine offers. It waits for the detection of the sandbox where scripts can
// run at all.
func (s *Source) Capabilities(ctx context.Context, at time.Time) (*cfharness.CapabilitySnapshot, error) {
	mode, facts := s.Policies.Mode(0), s.Facts
	out := &cfharness.CapabilitySnapshot{Type: cfharness.TypeCapabilities, At: provenance.Stamp(at),
		CFC: cfharness.CapabilityCFC{
			Mode: mode.String(), AbsenceBehavior: absenceBehavior(mode),
			SubstrateStatus: s.substrateStatus(mode),
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
	needed := s.neededRuntimes(ctx)
	for _, name := range commandNames() {
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
	d := &cfharness.SandboxDescription{Kind: "none", DefaultWorkingDirectory: sandbox.TmpDir,
		Skillsd: &cfharness.SandboxExtension{Limits: Limits(limits)}}
	if s.workspaceMount().Present {
		d.DefaultWorkingDirectory = sandbox.WorkspaceDir
	}
	if !s.Policies.Offers(ToolRun) {
		d.Skillsd.Reason = "no script is offered"
		return d, nil
	}
	runner, err := s.Runner(ctx)
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
	d.Kind = runner.Name()
	if s.Facts.Enforces != nil {
		d.Skillsd.Memory, d.Skillsd.Processes = s.Facts.Enforces()
	}
	return d, nil
}

// commandNames returns the commands of capabilities.json: the reference's, in its order, then the
// interpreters that it does not know.
func commandNames() []string {
	names := []string{"bash", "sh", "node", "deno", "python", "python3", "git"}
	for _, in := range script.Interpreters() {
		if name := string(in.Runtime); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
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

// neededRuntimes returns the runtimes of the scripts that may run.
func (s *Source) neededRuntimes(ctx context.Context) map[string]bool {
	needed := map[string]bool{}
	if !s.Policies.Offers(ToolRun) {
		return needed
	}
	snapshot := s.Registry.Snapshot()
	for _, entry := range s.Policies.Entries() {
		sk := snapshot.Skill(entry.Skill)
		if sk == nil {
			continue
		}
		if file := sk.Resource(ctx, entry.Path); file != nil && file.Script != nil {
			needed[string(file.Script.Runtime)] = true
		}
	}
	return needed
}

// Limits returns limits as records have them.
func Limits(l sandbox.Limits) cfharness.RunLimits {
	return cfharness.RunLimits{
		TimeoutMS: l.Timeout.Milliseconds(), MemoryBytes: l.Memory, PIDs: l.PIDs, FileBytes: l.File,
		OutputBytes: l.Output,
		CPUMS:       l.CPU.Milliseconds(), Files: l.Files, ScratchBytes: l.Scratch, Inodes: l.Inodes,
	}
}
