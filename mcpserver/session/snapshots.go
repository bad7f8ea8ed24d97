package session

import (
	"cmp"
	"context"
	"encoding/json"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// Where an enforcement mode came from.
const (
	ModeOverride = "override"        // a flag, or the client that raised it
	ModeConfig   = "explicit-config" // the configuration file or the environment
	ModeManifest = "run-manifest"
	ModeDefault  = "default"
)

// Facts are what the records say of a server beside its policy. The zero value says nothing.
type Facts struct {
	ModeSource    string                 // of the configured mode; empty is ModeDefault
	Manifest      *cfharness.RunManifest // nil when the server was started without one
	ManifestPath  string                 // where it was read from, on this machine
	Slot          json.RawMessage        // the operator's binding for the whole process; nil for none
	WorkspacePath string                 // of the granted workspace, on this machine
	KeepsShown    int64                  // bytes of what models are shown that Records keeps of a session; 0 for none, or unknown
	// Command returns the path of a command of this machine, empty when there is none. Optional.
	Command func(name string) string
	// Enforces says, once there is a sandbox, how it enforces the limits of memory and of processes. Optional.
	Enforces func() (memory, processes string)
}

// maxTrust bounds the diagnostics in a policy snapshot.
const maxTrust = 500

// snapshotCache is what the snapshots of all sessions of a server have in common.
type snapshotCache struct {
	once     sync.Once
	policy   cfharness.PolicySnapshot
	binding  json.RawMessage // the operator's binding as rows have it; nil for none
	manifest []byte          // as it is kept; nil for none

	probing      chan struct{} // holds a token while a session looks
	capabilities []byte        // nil until they are known; guarded by probing
}

// snapshotOf returns what policy snapshots have in common; it is made once.
func (s *Sessions) snapshotOf(ctx context.Context) *snapshotCache {
	c := &s.snapshots
	c.once.Do(func() {
		cfg, facts := s.cfg.Policy.Config(), s.cfg.Facts
		p := &c.policy
		p.Type, p.Version = cfharness.TypePolicySnapshot, 1
		p.RunManifest = manifestFacts(facts)
		if facts.Manifest != nil {
			c.manifest = pretty(facts.Manifest.Raw)
		}
		p.PromptSlot.BindingSource = "absent"
		if facts.Slot != nil {
			p.PromptSlot = cfharness.SnapshotPromptSlot{Present: true, BindingSource: "run-options", Binding: stringify(facts.Slot)}
		}
		p.Subagents = subagents(s.cfg.Policy.Profiles())
		for _, entry := range cfg.Allowlist.Entries() {
			script := cfharness.AllowedScript{Skill: entry.Skill, Path: entry.Path}
			if !slices.Contains(p.SkillScripts.AllowedScripts, script) {
				p.SkillScripts.AllowedScripts = append(p.SkillScripts.AllowedScripts, script)
			}
		}
		p.Substrate = &cfharness.SnapshotSubstrate{ProtectedXattrs: &cfharness.ProtectedXattrs{SandboxVisibility: "not-probed"}}
		p.Skillsd = s.policyExtension(ctx, cfg)
	})
	return c
}

// policySnapshot is the policy under which a session starts.
func (s *Session) policySnapshot(ctx context.Context, mode policy.Mode) *cfharness.PolicySnapshot {
	snapshot := s.snapshotOf(ctx).policy
	snapshot.RunID, snapshot.GeneratedAt = s.id, provenance.Stamp(s.cfg.Now())
	snapshot.CFC = cfharness.SnapshotCFC{Mode: mode.String(), ModeSource: cmp.Or(s.cfg.Facts.ModeSource, ModeDefault),
		AbsenceBehavior: absenceBehavior(mode), SubstrateStatus: s.substrateStatus(mode)}
	if mode != s.cfg.Policy.Mode(0) {
		snapshot.CFC.ModeSource = ModeOverride
	}
	snapshot.ParentTools = s.parentTools()
	x := *snapshot.Skillsd
	x.Principal, x.PrincipalProfile, x.SessionProfile = s.principal.Name, s.principal.Profile, s.profile
	snapshot.Skillsd = &x
	return &snapshot
}

// putSnapshots writes the policy snapshot, and the run manifest when there is one, before the event
// that names them. It completes what that event says of the session.
func (s *Session) putSnapshots(ctx context.Context, mode policy.Mode, info *provenance.SessionInfo) (files []provenance.File, err error) {
	compact := encode(s.policySnapshot(ctx, mode))
	info.PolicySnapshotPath = provenance.PolicySnapshotFile
	if info.PolicySnapshotDigest, err = cfharness.CompactDigest(compact); err != nil {
		return nil, err
	}
	file, err := s.cfg.Records.Put(ctx, s.id, provenance.PolicySnapshotFile, pretty(compact))
	if err != nil {
		return nil, err
	}
	files = append(files, file)
	if manifest := s.snapshots.manifest; manifest != nil {
		if file, err = s.cfg.Records.Put(ctx, s.id, provenance.RunManifestFile, manifest); err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

// absenceBehavior is what a mode does when the sandbox does not label output.
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

// substrateStatus says what is known of a sandbox that labels output.
func (s *Sessions) substrateStatus(mode policy.Mode) string {
	switch {
	case mode == policy.Disabled:
		return "not-required"
	case s.cfg.Facts.Manifest != nil:
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
		Present: true, Type: cfharness.TypeRunManifest, Path: facts.ManifestPath, Source: cfharness.RunManifestSource,
		WishID: m.WishID, ParentWishID: m.ParentWishID, DispatchClass: m.DispatchClass, CapabilityProfile: m.CapabilityProfile,
		Mode: m.Mode, LabelSource: m.LabelSource, PromptSlotPresent: new(m.PromptSlot != nil),
	}
}

// publicSlot is the operator's binding as it stands in rows, which clients elsewhere may see: without
// what can name a place on this machine.
func publicSlot(facts Facts) json.RawMessage {
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
	}{cfharness.TypePromptSlot, cfharness.OperatorSource(manifest), slot["role"], slot["kernelName"], slot["surface"],
		slot["eventId"], slot["valueDigest"], slot["slotDigest"], slot["snapshotDigest"]})
}

// parentTools are the tools and methods that the session may use.
func (s *Session) parentTools() cfharness.SnapshotTools {
	tools := cfharness.SnapshotTools{Allowance: "restricted"}
	for _, tool := range s.cfg.Policy.Config().Tools {
		if s.cfg.Policy.OffersTo(tool, s.principal, []string{s.profile}) {
			tools.AllowedToolIDs = append(tools.AllowedToolIDs, tool)
		}
	}
	if all := s.cfg.Policy.Config().Tools; len(all) == len(tools.AllowedToolIDs) && slices.Contains(all, toolRun) {
		tools.Allowance = "all-builtins"
	}
	return tools
}

// toolRun is the tool that is offered only when the operator says so.
const toolRun = "run_skill_script"

// subagents are the profiles that sessions may narrow themselves to.
func subagents(profiles []policy.Profile) (out cfharness.SnapshotSubagents) {
	for _, p := range profiles {
		out.AllowedProfiles = append(out.AllowedProfiles, p.Name)
		config := cfharness.ProfileConfig{Profile: p.Name, AllowedToolIDs: listOf(p.Tools), AllowedSkills: listOf(p.Skills), ExecutionTarget: string(p.Target)}
		if p.Scripts != nil {
			scripts := provenance.List[cfharness.AllowedScript]{}
			for _, spec := range p.Scripts {
				skill, file, _ := strings.Cut(spec, ":")
				scripts = append(scripts, cfharness.AllowedScript{Skill: skill, Path: file})
			}
			config.AllowedScripts = &scripts
		}
		out.ProfileConfigs = append(out.ProfileConfigs, config)
	}
	return out
}

// listOf is nil for a nil list.
func listOf(list []string) *provenance.List[string] {
	if list == nil {
		return nil
	}
	return new(provenance.List[string](list))
}

// policyExtension is what the reference's snapshot has no place for.
func (s *Sessions) policyExtension(ctx context.Context, cfg policy.Config) *cfharness.PolicyExtension {
	x := &cfharness.PolicyExtension{
		OperatorProfile: cfg.Profile, Release: string(cfg.Release), AllowedTools: "enforce", HostTarget: cfg.HostTarget, PromptSlotRole: string(cfg.Role),
	}
	if cfg.AllowedToolsAdvisory {
		x.AllowedTools = "advisory"
	}
	for _, tier := range cfg.ClosedTiers {
		x.ClosedTiers = append(x.ClosedTiers, tier.String())
	}
	snapshot := s.cfg.Registry.Snapshot()
	x.SkillsRoots = rootsOf(snapshot)
	about := slices.Clone(s.preload)
	for _, sk := range s.preload {
		loaded := cfharness.LoadedSkill{Path: sk.Path, Name: sk.Name(), Digest: sk.Digest, ActivationSource: cfharness.SourcePreload}
		if index, err := sk.Index(ctx); err == nil {
			loaded.TreeDigest = index.TreeDigest
		}
		x.LoadedSkills = append(x.LoadedSkills, loaded)
	}
	for _, entry := range cfg.Allowlist.Entries() {
		x.Allowlist = append(x.Allowlist, allowlistEntry(entry, cfg, s.pins[entry.Skill]))
		if sk := snapshot.Skill(entry.Skill); sk != nil && !slices.Contains(about, sk) {
			about = append(about, sk)
		}
	}
	x.TrustDiagnostics = trustDiagnostics(ctx, snapshot, about)
	return x
}

func allowlistEntry(e policy.Entry, cfg policy.Config, tree digest.Digest) cfharness.AllowlistEntry {
	return cfharness.AllowlistEntry{
		Skill: e.Skill, Path: e.Path, Pin: e.Pin, Tree: e.Tree, StartTree: tree, Network: e.Network, Env: e.Env, Secrets: e.Secrets,
		Release: string(cmp.Or(e.Release, cfg.Release)), Approve: string(cmp.Or(e.Approve, policy.ApproveTier)),
		Target: string(cmp.Or(e.Target, policy.TargetSandbox)), Execution: string(e.Execution), Workspace: e.Workspace, TimeoutMS: e.Timeout.Milliseconds(), MemoryBytes: e.Memory,
	}
}

// rootsOf are the configured roots.
func rootsOf(snapshot *skills.Snapshot) (roots provenance.List[cfharness.RegistryRoot]) {
	for _, root := range snapshot.Roots {
		roots = append(roots, cfharness.RegistryRoot{
			Path: root.Dir, SandboxPath: path.Join(sandboxSkills, root.Prefix), Tier: root.Tier.String(), Prefix: root.Prefix})
	}
	return roots
}

// trustDiagnostics are what a scan found that bears on trust: of the roots, such as a skill that lost
// its place to another, and of the skills that are preloaded or may run.
func trustDiagnostics(ctx context.Context, snapshot *skills.Snapshot, about []*skills.Skill) (out provenance.List[cfharness.TrustDiagnostic]) {
	add := func(skill string, diagnostics []skills.Diagnostic) {
		for _, d := range diagnostics {
			if len(out) < maxTrust {
				out = append(out, cfharness.TrustDiagnostic{Skill: skill, Severity: d.Severity.String(), Code: string(d.Code), Detail: d.Detail, Path: d.Path, Line: d.Line})
			}
		}
	}
	add("", snapshot.Diagnostics)
	for _, sk := range about {
		add(sk.Path, sk.Diagnostics)
		if index, err := sk.Index(ctx); err == nil {
			add(sk.Path, index.Diagnostics)
		}
	}
	return out
}

// stringify brings foreign JSON, known to be valid, into the form its digest is taken of.
func stringify(raw json.RawMessage) json.RawMessage {
	out, err := cfharness.Stringify(raw)
	if err != nil {
		return raw
	}
	return out
}

// pretty lays out JSON as files of a session have it.
func pretty(raw json.RawMessage) []byte {
	data, err := provenance.EncodePretty(raw)
	if err != nil {
		panic("session: record does not marshal: " + err.Error())
	}
	return data
}

// workspaceMount describes what the operator grants to scripts.
func (s *Sessions) workspaceMount() cfharness.CapabilityMount {
	ws := s.cfg.Workspace
	if ws.Mode != "" && ws.Mode != sandbox.WorkspaceNone {
		return cfharness.CapabilityMount{Present: true, Mode: string(ws.Mode), HostPath: s.cfg.Facts.WorkspacePath, SandboxPath: sandbox.WorkspaceDir}
	}
	if s.cfg.ClientWorkspace != nil {
		return cfharness.CapabilityMount{Present: true, Mode: string(sandbox.WorkspaceRO), SandboxPath: sandbox.WorkspaceDir}
	}
	return cfharness.CapabilityMount{}
}
