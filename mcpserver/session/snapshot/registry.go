package snapshot

import (
	"context"
	"encoding/json"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/skills"
)

// Registry returns the skills of a snapshot in the reference's shape.
//
// Errors: the errors of ctx.
func Registry(ctx context.Context, snapshot *skills.Snapshot) (*cfharness.SkillRegistry, error) {
	out := &cfharness.SkillRegistry{
		Type: cfharness.TypeSkillRegistry, Version: 1, SandboxSkillsRoot: SandboxSkills,
		GeneratedAt: provenance.Stamp(snapshot.GeneratedAt), Skillsd: &cfharness.RegistryExtension{},
	}
	out.Skillsd.Roots = rootsOf(snapshot)
	if len(snapshot.Roots) > 0 {
		out.SkillsRoot = snapshot.Roots[0].Dir
	}
	out.Diagnostics, out.Skillsd.Diagnostics = diagnosticsOf(snapshot.Diagnostics)
	for _, sk := range snapshot.Skills {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		index, err := sk.Index(ctx)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			// The skill is being changed or cannot be read: only its SKILL.md is recorded.
			index = &skills.Index{Diagnostics: []skills.Diagnostic{{Severity: skills.Warning,
				Code: skills.CodeUnreadableDir, Path: sk.Path, Detail: "its files could not be indexed"}}}
		}
		out.Skills = append(out.Skills, registrySkill(sk, index))
	}
	for _, sk := range snapshot.Shadowed {
		out.Skillsd.Shadowed = append(out.Skillsd.Shadowed,
			cfharness.RegistrySkillShadow{Path: sk.Path, SkillDir: HostPath(sk, ""), Digest: sk.Digest})
	}
	return out, nil
}

// maxFrontmatter bounds the frontmatter of one skill in the registry, in bytes. Of a larger one the registry
// has the name, the description and the digest of SKILL.md: thousands of skills with the 64 KiB that are
// allowed would make each session's registry a gigabyte.
const maxFrontmatter = 16 << 10

// frontmatterOf returns the frontmatter as the reference has it, and whole.
func frontmatterOf(sk *skills.Skill) (plain, whole json.RawMessage) {
	if len(sk.Frontmatter.JSON) <= maxFrontmatter {
		return sk.Frontmatter.Plain(), sk.Frontmatter.JSON
	}
	return encode(struct {
		Name        string `json:"name"`
		Description string `json:"description"`
	}{sk.Frontmatter.Name, shorten(sk.Frontmatter.Description)}), nil
}

func registrySkill(sk *skills.Skill, index *skills.Index) cfharness.RegistrySkill {
	plain, whole := frontmatterOf(sk)
	out := cfharness.RegistrySkill{
		Name: sk.Name(), Description: sk.Description(), SkillPath: HostPath(sk, sk.File),
		SkillDir:    HostPath(sk, ""),
		SandboxPath: SandboxPath(sk, sk.File), SandboxSkillDir: SandboxPath(sk, ""), Digest: sk.Digest,
		Frontmatter: plain,
		Skillsd: &cfharness.RegistrySkillExtension{
			Path: sk.Path, Tier: sk.Root.Tier.String(), TreeDigest: index.TreeDigest, Frontmatter: whole,
			Verdict: &cfharness.RegistryVerdict{Strict: sk.Verdict.Strict,
				Publishable: sk.Verdict.Publishable, Repaired: sk.Verdict.Repaired},
		},
	}
	all := append(append([]skills.Diagnostic{}, sk.Diagnostics...), index.Diagnostics...)
	out.Diagnostics, out.Skillsd.Diagnostics = diagnosticsOf(all)
	for i := range index.Resources {
		out.Resources = append(out.Resources, registryResource(sk, &index.Resources[i]))
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
	_, out.Skillsd.Diagnostics = diagnosticsOf(r.Diagnostics)
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

// shorten bounds a description in the registry.
func shorten(s string) string {
	const most = 128
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
