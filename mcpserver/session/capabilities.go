package session

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/lmittmann/tint"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills/script"
)

// capabilitiesNote is whether a session's capabilities.json is recorded.
type capabilitiesNote struct {
	at   time.Time     // when the session was opened
	turn chan struct{} // holds one token: whoever has it may write
	done bool          // guarded by turn
}

func newCapabilitiesNote(at time.Time) *capabilitiesNote {
	n := &capabilitiesNote{at: at, turn: make(chan struct{}, 1)}
	n.turn <- struct{}{}
	return n
}

// recordCapabilities writes capabilities.json and the event that names it, once, as soon as it is known
// what the machine offers.
//
// Errors: those of ctx and of the store.
func (s *Session) recordCapabilities(ctx context.Context) error {
	n := s.capabilities
	select {
	case <-n.turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { n.turn <- struct{}{} }()
	if n.done {
		return nil
	}
	data, err := s.encodedCapabilities(ctx, n.at)
	if err != nil {
		return err
	}
	file, err := s.cfg.Records.Put(ctx, s.id, provenance.CapabilitiesFile, data)
	if err != nil {
		return err
	}
	err = s.write(ctx, &provenance.Event{Kind: provenance.KindRegistrySnapshot, Got: file.Digest.String(), Detail: provenance.CapabilitiesFile, Files: []provenance.File{file}})
	n.done = err == nil
	return err
}

// backgroundCapabilities is recordCapabilities beside the calls of a session.
func (s *Session) backgroundCapabilities(ctx context.Context) {
	if err := s.recordCapabilities(ctx); err != nil && ctx.Err() == nil {
		s.cfg.Logger.ErrorContext(ctx, "capabilities not recorded", slog.String("session", s.id), tint.Err(err))
	}
}

// capabilitiesPatience is how long the record of a run waits for capabilities.json: a program of the
// host that does not answer must not hold up what scripts print.
const capabilitiesPatience = 2 * time.Second

// awaitCapabilities has capabilities.json recorded before the first run is.
func (s *Session) awaitCapabilities(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, capabilitiesPatience)
	defer stop()
	// A failure is logged by the attempt beside the calls, and meets the record of the run itself.
	_ = s.recordCapabilities(ctx)
}

// encodedCapabilities returns capabilities.json, which is the same for all sessions of a server. Its
// time is that of the first of them.
//
// Errors: those of ctx, which also ends the wait for another session that is looking.
func (s *Sessions) encodedCapabilities(ctx context.Context, at time.Time) ([]byte, error) {
	c := &s.snapshots
	select {
	case c.probing <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-c.probing }()
	if c.capabilities != nil {
		return c.capabilities, nil
	}
	snapshot, err := s.capabilitySnapshot(ctx, at)
	if err != nil {
		return nil, err
	}
	c.capabilities = pretty(encode(snapshot))
	return c.capabilities, nil
}

// capabilitySnapshot waits for the detection of the sandbox where scripts can run at all.
func (s *Sessions) capabilitySnapshot(ctx context.Context, at time.Time) (*cfharness.CapabilitySnapshot, error) {
	mode, facts := s.cfg.Policy.Mode(0), s.cfg.Facts
	out := &cfharness.CapabilitySnapshot{Type: cfharness.TypeCapabilities, At: provenance.Stamp(at), CFC: cfharness.CapabilityCFC{
		Mode: mode.String(), AbsenceBehavior: absenceBehavior(mode), SubstrateStatus: s.substrateStatus(mode),
		Mounts:          cfharness.CapabilityMounts{Workspace: s.workspaceMount()},
		ProtectedXattrs: cfharness.ProtectedXattrs{SandboxVisibility: "not-probed"},
	}}
	if facts.Manifest != nil {
		out.CFC.RunManifest = cfharness.CapabilityManifest{Present: true, Type: cfharness.TypeRunManifest, Path: facts.ManifestPath}
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
	slices.SortFunc(out.CFC.Mounts.HostBinds, func(a, b cfharness.CapabilityMount) int { return strings.Compare(a.HostPath, b.HostPath) })
	return out, nil
}

// describeSandbox describes the isolation that scripts get.
//
// Errors: those of ctx.
func (s *Sessions) describeSandbox(ctx context.Context) (*cfharness.SandboxDescription, error) {
	limits := s.cfg.Limits.WithDefaults()
	d := &cfharness.SandboxDescription{Kind: "none", DefaultWorkingDirectory: sandbox.TmpDir, Skillsd: &cfharness.SandboxExtension{Limits: limitsOf(limits)}}
	if s.workspaceMount().Present {
		d.DefaultWorkingDirectory = sandbox.WorkspaceDir
	}
	if !s.cfg.Policy.Offers(toolRun) {
		d.Skillsd.Reason = "no script is offered"
		return d, nil
	}
	runner, err := s.cfg.Runner(ctx)
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
	if s.cfg.Facts.Enforces != nil {
		d.Skillsd.Memory, d.Skillsd.Processes = s.cfg.Facts.Enforces()
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
// Errors: those of ctx.
func (s *Sessions) probe(ctx context.Context, name string, needed bool, mounts *cfharness.CapabilityMounts) (cfharness.CapabilityCommand, error) {
	var absent cfharness.CapabilityCommand
	if needed {
		found, err := s.cfg.Interpreter(ctx, name)
		if ctx.Err() != nil {
			return absent, ctx.Err()
		}
		if err != nil || found == nil {
			return absent, nil
		}
		for _, dir := range found.Mounts {
			mount := cfharness.CapabilityMount{Present: true, Mode: string(sandbox.WorkspaceRO), HostPath: dir, SandboxPath: dir}
			if !slices.Contains(mounts.HostBinds, mount) {
				mounts.HostBinds = append(mounts.HostBinds, mount)
			}
		}
		return cfharness.CapabilityCommand{Present: true, Path: found.Path, Version: found.Version}, nil
	}
	if s.cfg.Facts.Command == nil {
		return absent, nil
	}
	if path := s.cfg.Facts.Command(name); path != "" {
		return cfharness.CapabilityCommand{Present: true, Path: path}, nil
	}
	return absent, nil
}

// neededRuntimes are those of the scripts that may run.
func (s *Sessions) neededRuntimes(ctx context.Context) map[string]bool {
	needed := map[string]bool{}
	if !s.cfg.Policy.Offers(toolRun) {
		return needed
	}
	snapshot := s.cfg.Registry.Snapshot()
	for _, entry := range s.cfg.Policy.Entries() {
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

// limitsOf are limits as records have them.
func limitsOf(l sandbox.Limits) cfharness.RunLimits {
	return cfharness.RunLimits{
		TimeoutMS: l.Timeout.Milliseconds(), MemoryBytes: l.Memory, PIDs: l.PIDs, FileBytes: l.File, OutputBytes: l.Output,
		CPUMS: l.CPU.Milliseconds(), Files: l.Files, ScratchBytes: l.Scratch, Inodes: l.Inodes,
	}
}
