package snapshot

import (
	"cmp"
	"context"
	"iter"
	"path"
	"slices"
	"strings"
	"time"

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
	p.PromptSlot.BindingSource = "absent"
	if facts.Slot != nil {
		p.PromptSlot = cfharness.SnapshotPromptSlot{Present: true, BindingSource: "run-options",
			Binding: facts.Slot}
		// The form that its digest is computed from.
		if binding, err := cfharness.Stringify(facts.Slot); err == nil {
			p.PromptSlot.Binding = binding
		}
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
	Profile   string                 // what the session was narrowed to
	Manifest  *cfharness.RunManifest // the server's or the caller's; nil for none
	Loaded    provenance.List[cfharness.LoadedSkill]
}

// Loaded describes a skill that is active when a session starts.
func Loaded(ctx context.Context, sk *skills.Skill, source cfharness.Source) cfharness.LoadedSkill {
	loaded := cfharness.LoadedSkill{Path: sk.Path, Name: sk.Name(), Digest: sk.Digest,
		ActivationSource: source}
	if index, err := sk.Index(ctx); err == nil {
		loaded.TreeDigest = index.TreeDigest
	}
	return loaded
}

// PolicyOf returns the policy under which a session starts, from what all have in common. Of a narrowed
// session it names the skills and scripts that the session is left, and no others.
func (s *Source) PolicyOf(common *cfharness.PolicySnapshot, of Start) *cfharness.PolicySnapshot {
	p := *common
	p.RunID, p.GeneratedAt = of.ID, provenance.Stamp(of.At)
	p.CFC = cfharness.SnapshotCFC{
		Mode: of.Mode.String(), ModeSource: cmp.Or(s.Facts.ModeSource, ModeDefault),
		AbsenceBehavior: absenceBehavior(of.Mode), SubstrateStatus: substrateStatus(of.Mode, of.Manifest),
	}
	if m := of.Manifest; m != nil {
		p.RunManifest = cfharness.SnapshotManifest{
			Present: true, Type: cfharness.TypeRunManifest, Path: provenance.RunManifestFile,
			Source: cfharness.RunManifestSource, WishID: m.WishID, ParentWishID: m.ParentWishID,
			DispatchClass: m.DispatchClass, CapabilityProfile: m.CapabilityProfile,
			Mode: m.Mode, LabelSource: m.LabelSource, PromptSlotPresent: new(m.PromptSlot != nil),
		}
		if m == s.Facts.Manifest {
			p.RunManifest.Path = s.Facts.ManifestPath
		}
	}
	if of.Mode != s.Policies.Mode(0) {
		p.CFC.ModeSource = ModeOverride
		if of.Manifest != nil && of.Manifest.Mode == of.Mode.String() {
			p.CFC.ModeSource = ModeManifest
		}
	}
	p.ParentTools.Allowance = "restricted"
	tools := s.Policies.Config().Tools
	for _, tool := range tools {
		if s.Policies.OffersTo(tool, of.Principal, []string{of.Profile}) {
			p.ParentTools.AllowedToolIDs = append(p.ParentTools.AllowedToolIDs, tool)
		}
	}
	if len(tools) == len(p.ParentTools.AllowedToolIDs) && slices.Contains(tools, toolRun) {
		p.ParentTools.Allowance = "all-builtins"
	}
	x := *p.Skillsd
	x.Principal, x.PrincipalProfile, x.SessionProfile = of.Principal.Name, of.Principal.Profile, of.Profile
	x.LoadedSkills = of.Loaded
	p.Skillsd = &x
	if x.OperatorProfile != "" || x.PrincipalProfile != "" || x.SessionProfile != "" {
		s.narrow(&p, of)
	}
	return &p
}

// narrow leaves of a policy what a narrowed session sees, in lists of its own. A profile that names anything
// else is left out, and so are diagnostics of no skill, whose paths can name any.
func (s *Source) narrow(p *cfharness.PolicySnapshot, of Start) {
	includes := func(skill, path string) bool {
		return s.Policies.Includes(skill, path, of.Principal, []string{of.Profile})
	}
	p.SkillScripts.AllowedScripts = slices.DeleteFunc(slices.Clone(p.SkillScripts.AllowedScripts),
		func(a cfharness.AllowedScript) bool { return !includes(a.Skill, a.Path) })
	p.Skillsd.Allowlist = slices.DeleteFunc(slices.Clone(p.Skillsd.Allowlist),
		func(a cfharness.AllowlistEntry) bool { return !includes(a.Skill, a.Path) })
	p.Skillsd.TrustDiagnostics = slices.DeleteFunc(slices.Clone(p.Skillsd.TrustDiagnostics),
		func(d cfharness.TrustDiagnostic) bool { return d.Skill == "" || !includes(d.Skill, "") })
	p.Subagents = subagents(slices.DeleteFunc(s.Policies.Profiles(), func(profile policy.Profile) bool {
		names := func(script string) bool {
			skill, path, _ := strings.Cut(script, ":")
			return !includes(skill, path)
		}
		return profile.Name == of.Profile || slices.ContainsFunc(profile.Scripts, names) ||
			slices.ContainsFunc(slices.Concat(profile.Skills, profile.Activate), names)
	}))
}

// subagents returns the profiles that sessions may narrow themselves to.
func subagents(profiles []policy.Profile) (out cfharness.SnapshotSubagents) {
	for _, p := range profiles {
		out.AllowedProfiles = append(out.AllowedProfiles, p.Name)
		config := cfharness.ProfileConfig{Type: cfharness.TypeProfileConfig, Profile: p.Name,
			AllowedToolIDs: listOf(p.Tools), SkillNames: listOf(p.Skills), ExecutionTarget: string(p.Target)}
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
	for _, entry := range cfg.Allowlist.Entries() {
		x.Allowlist = append(x.Allowlist, cfharness.AllowlistEntry{
			Skill: entry.Skill, Path: entry.Path, Pin: entry.Pin, Tree: entry.Tree,
			PinScript: entry.PinScript, StartTree: s.Pins[entry.Skill],
			Network: entry.Network, Env: entry.Env, Secrets: entry.Secrets,
			Release:   string(cmp.Or(entry.Release, cfg.Release)),
			Approve:   string(cmp.Or(entry.Ask, policy.AskTier)),
			Target:    string(cmp.Or(entry.Target, policy.TargetSandbox)),
			Execution: entry.Execution, SearchPath: entry.SearchPath, Workspace: entry.Workspace,
			TimeoutMS: entry.Timeout.Milliseconds(), MemoryBytes: entry.Memory,
			Environment: entry.Environment,
		})
		if sk := snapshot.Skill(entry.Skill); sk != nil && !slices.Contains(about, sk) {
			about = append(about, sk)
		}
	}
	x.TrustDiagnostics = trustDiagnostics(ctx, snapshot, about)
	return x
}

// rootsOf returns the configured roots, without those that are waited for.
func rootsOf(snapshot *skills.Snapshot) (roots provenance.List[cfharness.RegistryRoot]) {
	for i := range snapshot.Roots {
		root := &snapshot.Roots[i]
		if !snapshot.Has(root) {
			continue
		}
		roots = append(roots, cfharness.RegistryRoot{
			Path: root.Dir, SandboxPath: path.Join(sandboxSkills, root.Prefix), Tier: root.Tier.String(),
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

// registryOf returns a snapshot in the reference's shape, but for its skills.
func registryOf(snapshot *skills.Snapshot) *cfharness.SkillRegistry {
	out := &cfharness.SkillRegistry{
		Type: cfharness.TypeSkillRegistry, Version: 1, SandboxSkillsRoot: sandboxSkills,
		GeneratedAt: provenance.Stamp(snapshot.GeneratedAt), Skillsd: &cfharness.RegistryExtension{},
	}
	out.Skillsd.Roots = rootsOf(snapshot)
	if len(out.Skillsd.Roots) > 0 {
		out.SkillsRoot = out.Skillsd.Roots[0].Path
	}
	out.Diagnostics, out.Skillsd.Diagnostics = diagnosticsOf(snapshot.Diagnostics)
	for _, sk := range snapshot.Shadowed {
		out.Skillsd.Shadowed = append(out.Skillsd.Shadowed,
			cfharness.RegistrySkillShadow{Path: sk.Path, SkillDir: HostPath(sk, ""), Digest: sk.Digest})
	}
	return out
}

// registrySkills yields the skills of a snapshot with their files, if whole is set. One whose files cannot be
// indexed has its SKILL.md only.
//
// Errors: the errors of ctx.
func registrySkills(
	ctx context.Context, snapshot *skills.Snapshot, facts *Facts, whole bool,
) iter.Seq2[*cfharness.RegistrySkill, error] {
	return func(yield func(*cfharness.RegistrySkill, error) bool) {
		for _, sk := range snapshot.Skills {
			var index *skills.Index
			lacking := "its files were not recorded: the server ended first"
			if whole {
				found, err := sk.Index(ctx)
				if err != nil && ctx.Err() != nil {
					yield(nil, ctx.Err())
					return
				}
				index = found
				if err != nil {
					index, lacking = nil, "its files could not be indexed"
				}
			}
			if index == nil {
				index = &skills.Index{Diagnostics: []skills.Diagnostic{{Severity: skills.Warning,
					Code: skills.CodeUnreadableDir, Path: sk.Path, Detail: lacking}}}
			}
			entry := registrySkill(sk, index)
			entry.Skillsd.Origin = facts.OriginOf(ctx, sk, index.TreeDigest)
			if !yield(&entry, nil) {
				return
			}
		}
	}
}

// maxFrontmatter bounds the frontmatter of one skill in the registry, in bytes. Of a larger one the registry
// has the name, the description and the digest of SKILL.md: thousands of skills with the 64 KiB that are
// allowed would make each session's registry a gigabyte.
const (
	maxFrontmatter = 16 << 10
	maxDescription = 128 // in characters, then
)

func registrySkill(sk *skills.Skill, index *skills.Index) cfharness.RegistrySkill {
	plain, whole := sk.Frontmatter.Plain(), sk.Frontmatter.JSON
	if len(whole) > maxFrontmatter {
		description := []rune(sk.Frontmatter.Description)
		if len(description) > maxDescription {
			description = append(description[:maxDescription], '…')
		}
		plain, whole = encode(struct {
			Name        string `json:"name"`
			Description string `json:"description"`
		}{sk.Frontmatter.Name, string(description)}), nil
	}
	out := cfharness.RegistrySkill{
		Name: sk.Name(), Description: sk.Description(), SkillPath: HostPath(sk, sk.File),
		SkillDir:    HostPath(sk, ""),
		SandboxPath: SandboxPath(sk, sk.File), SandboxSkillDir: SandboxPath(sk, ""), Digest: sk.Digest,
		Frontmatter: plain,
		Skillsd: &cfharness.RegistrySkillExtension{
			Path: sk.Path, Tier: sk.Root.Tier.String(), TreeDigest: index.TreeDigest, Frontmatter: whole,
			Verdict: &cfharness.RegistryVerdict{Strict: sk.Form.Strict,
				Publishable: sk.Form.Publishable, Repaired: sk.Form.Repaired},
		},
	}
	all := append(append([]skills.Diagnostic{}, sk.Diagnostics...), index.Diagnostics...)
	out.Diagnostics, out.Skillsd.Diagnostics = diagnosticsOf(all)
	for i := range index.Resources {
		out.Resources = append(out.Resources, registryResource(sk, &index.Resources[i]))
	}
	return out
}

// Resources returns the files of a skill besides SKILL.md in the reference's shape, with sandbox paths
// instead of host paths; not nil.
func Resources(sk *skills.Skill, index *skills.Index) provenance.List[cfharness.RegistryResource] {
	out := provenance.List[cfharness.RegistryResource]{}
	for i := range index.Resources {
		r := registryResource(sk, &index.Resources[i])
		r.ResourcePath = r.SandboxResourcePath
		out = append(out, r)
	}
	return out
}

func registryResource(sk *skills.Skill, r *skills.Resource) cfharness.RegistryResource {
	out := cfharness.RegistryResource{
		Path: r.Path, Kind: string(r.Kind), ResourcePath: HostPath(sk, r.Path),
		SandboxResourcePath: SandboxPath(sk, r.Path),
		SizeBytes:           r.Size, Digest: r.Digest, ContentKind: "binary",
		Skillsd: &cfharness.RegistryResourceExtension{MIMEType: r.MIMEType},
	}
	if r.Text {
		out.ContentKind = "text"
	}
	if r.Script != nil {
		out.Script = &cfharness.RegistryScript{Executable: r.Script.Executable,
			Runtime: r.Script.ReferenceRuntime()}
		if r.Script.Shebang != "" {
			out.Script.Shebang = "#!" + r.Script.Shebang
		}
		out.Skillsd.Runtime = string(r.Script.Runtime)
	}
	return out
}

// diagnosticsOf returns diagnostics in two shapes: plain has the warnings and errors in the reference's
// shape, extended the infos and every diagnostic with a line.
func diagnosticsOf(
	all []skills.Diagnostic,
) (plain provenance.List[cfharness.RegistryDiagnostic], extended []cfharness.ExtendedDiagnostic) {
	for _, d := range all {
		severity := d.Severity.String()
		if severity != "info" {
			plain = append(plain, cfharness.RegistryDiagnostic{Severity: severity, Code: string(d.Code),
				Detail: d.Detail, Path: d.Path})
		}
		if severity == "info" || d.Line > 0 {
			extended = append(extended, cfharness.ExtendedDiagnostic{Severity: severity, Code: string(d.Code),
				Detail: d.Detail, Path: d.Path, Line: d.Line})
		}
	}
	return plain, extended
}
