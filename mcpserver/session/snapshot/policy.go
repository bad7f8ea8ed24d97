package snapshot

import (
	"cmp"
	"context"
	"encoding/json"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// maxTrust bounds the diagnostics in a policy snapshot.
const maxTrust = 500

// Policy returns what the policy snapshots of all sessions have in common.
func (s *Source) Policy(ctx context.Context) *cfharness.PolicySnapshot {
	cfg, facts := s.Policies.Config(), s.Facts
	p := &cfharness.PolicySnapshot{}
	p.Type, p.Version = cfharness.TypePolicySnapshot, 1
	p.RunManifest = manifestFacts(facts)
	p.PromptSlot.BindingSource = "absent"
	if facts.Slot != nil {
		p.PromptSlot = cfharness.SnapshotPromptSlot{Present: true, BindingSource: "run-options",
			Binding: stringify(facts.Slot)}
	}
	p.Subagents = subagents(s.Policies.Profiles())
	for _, entry := range cfg.Allowlist.Entries() {
		script := cfharness.AllowedScript{Skill: entry.Skill, Path: entry.Path}
		if !slices.Contains(p.SkillScripts.AllowedScripts, script) {
			p.SkillScripts.AllowedScripts = append(p.SkillScripts.AllowedScripts, script)
		}
	}
	p.Substrate = &cfharness.SnapshotSubstrate{
		ProtectedXattrs: &cfharness.ProtectedXattrs{SandboxVisibility: "not-probed"},
	}
	p.Skillsd = s.policyExtension(ctx, cfg)
	return p
}

// Start is what a session starts with.
type Start struct {
	ID        string
	At        time.Time
	Mode      policy.Mode
	Principal policy.Principal
	Profile   string // what the session was narrowed to
}

// PolicyOf returns the policy under which a session starts, from what all have in common.
func (s *Source) PolicyOf(common *cfharness.PolicySnapshot, of Start) *cfharness.PolicySnapshot {
	p := *common
	p.RunID, p.GeneratedAt = of.ID, provenance.Stamp(of.At)
	p.CFC = cfharness.SnapshotCFC{
		Mode: of.Mode.String(), ModeSource: cmp.Or(s.Facts.ModeSource, ModeDefault),
		AbsenceBehavior: absenceBehavior(of.Mode), SubstrateStatus: s.substrateStatus(of.Mode),
	}
	if of.Mode != s.Policies.Mode(0) {
		p.CFC.ModeSource = ModeOverride
	}
	p.ParentTools = s.parentTools(of)
	x := *p.Skillsd
	x.Principal, x.PrincipalProfile, x.SessionProfile = of.Principal.Name, of.Principal.Profile, of.Profile
	p.Skillsd = &x
	return &p
}

// parentTools returns the tools and methods that a session may use.
func (s *Source) parentTools(of Start) cfharness.SnapshotTools {
	tools := cfharness.SnapshotTools{Allowance: "restricted"}
	for _, tool := range s.Policies.Config().Tools {
		if s.Policies.OffersTo(tool, of.Principal, []string{of.Profile}) {
			tools.AllowedToolIDs = append(tools.AllowedToolIDs, tool)
		}
	}
	if all := s.Policies.Config().Tools; len(all) == len(tools.AllowedToolIDs) &&
		slices.Contains(all, ToolRun) {
		tools.Allowance = "all-builtins"
	}
	return tools
}

// subagents returns the profiles that sessions may narrow themselves to.
func subagents(profiles []policy.Profile) (out cfharness.SnapshotSubagents) {
	for _, p := range profiles {
		out.AllowedProfiles = append(out.AllowedProfiles, p.Name)
		config := cfharness.ProfileConfig{Profile: p.Name, AllowedToolIDs: listOf(p.Tools),
			AllowedSkills: listOf(p.Skills), ExecutionTarget: string(p.Target)}
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

// listOf returns a list for a record; nil for a nil list.
func listOf(list []string) *provenance.List[string] {
	if list == nil {
		return nil
	}
	return new(provenance.List[string](list))
}

// policyExtension returns what the reference's snapshot has no place for.
func (s *Source) policyExtension(ctx context.Context, cfg policy.Config) *cfharness.PolicyExtension {
	x := &cfharness.PolicyExtension{
		OperatorProfile: cfg.Profile, Release: string(cfg.Release), AllowedTools: "enforce",
		HostTarget: cfg.HostTarget, PromptSlotRole: string(cfg.Role),
	}
	if cfg.AllowedToolsAdvisory {
		x.AllowedTools = "advisory"
	}
	for _, tier := range cfg.ClosedTiers {
		x.ClosedTiers = append(x.ClosedTiers, tier.String())
	}
	snapshot := s.Registry.Snapshot()
	x.SkillsRoots = rootsOf(snapshot)
	about := slices.Clone(s.Preload)
	for _, sk := range s.Preload {
		loaded := cfharness.LoadedSkill{Path: sk.Path, Name: sk.Name(), Digest: sk.Digest,
			ActivationSource: cfharness.SourcePreload}
		if index, err := sk.Index(ctx); err == nil {
			loaded.TreeDigest = index.TreeDigest
		}
		x.LoadedSkills = append(x.LoadedSkills, loaded)
	}
	for _, entry := range cfg.Allowlist.Entries() {
		x.Allowlist = append(x.Allowlist, allowlistEntry(entry, cfg, s.Pins[entry.Skill]))
		if sk := snapshot.Skill(entry.Skill); sk != nil && !slices.Contains(about, sk) {
			about = append(about, sk)
		}
	}
	x.TrustDiagnostics = trustDiagnostics(ctx, snapshot, about)
	return x
}

func allowlistEntry(e policy.Entry, cfg policy.Config, tree digest.Digest) cfharness.AllowlistEntry {
	return cfharness.AllowlistEntry{
		Skill: e.Skill, Path: e.Path, Pin: e.Pin, Tree: e.Tree, StartTree: tree, Network: e.Network,
		Env: e.Env, Secrets: e.Secrets,
		Release: string(cmp.Or(e.Release, cfg.Release)),
		Approve: string(cmp.Or(e.Approve, policy.ApproveTier)),
		Target:  string(cmp.Or(e.Target, policy.TargetSandbox)), Execution: string(e.Execution),
		Workspace: e.Workspace, TimeoutMS: e.Timeout.Milliseconds(), MemoryBytes: e.Memory,
	}
}

// rootsOf returns the configured roots.
func rootsOf(snapshot *skills.Snapshot) (roots provenance.List[cfharness.RegistryRoot]) {
	for _, root := range snapshot.Roots {
		roots = append(roots, cfharness.RegistryRoot{
			Path: root.Dir, SandboxPath: path.Join(SandboxSkills, root.Prefix), Tier: root.Tier.String(),
			Prefix: root.Prefix})
	}
	return roots
}

// trustDiagnostics returns the diagnostics of a scan that matter for trust: of the roots, such as a shadowed
// skill, and of the skills that are preloaded or may run.
func trustDiagnostics(
	ctx context.Context, snapshot *skills.Snapshot, about []*skills.Skill,
) (out provenance.List[cfharness.TrustDiagnostic]) {
	add := func(skill string, diagnostics []skills.Diagnostic) {
		for _, d := range diagnostics {
			if len(out) < maxTrust {
				out = append(out, cfharness.TrustDiagnostic{Skill: skill, Severity: d.Severity.String(),
					Code: string(d.Code), Detail: d.Detail, Path: d.Path, Line: d.Line})
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

// stringify returns valid foreign JSON in the form that its digest is computed from.
func stringify(raw json.RawMessage) json.RawMessage {
	out, err := cfharness.Stringify(raw)
	if err != nil {
		return raw
	}
	return out
}
