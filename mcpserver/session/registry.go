package session

import (
	"context"
	"encoding/json"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/lmittmann/tint"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/skills"
)

// recordRegistry writes skill-registry.json, which waits for the digest of every file, and the
// event that names it. It holds what the session may see: its client can read it.
func (s *Session) recordRegistry(ctx context.Context) {
	data, err := s.registry.encoded(ctx, s.Visible(s.principal, s.profile))
	if err != nil {
		s.cfg.Logger.WarnContext(ctx, "registry not recorded", slog.String("session", s.id), tint.Err(err))
		return
	}
	file, err := s.cfg.Records.Put(ctx, s.id, provenance.RegistryFile, data)
	if err == nil {
		err = s.write(ctx, &provenance.Event{Kind: provenance.KindRegistrySnapshot, Got: file.Digest.String(), Detail: provenance.RegistryFile, Files: []provenance.File{file}})
	}
	if err != nil {
		s.cfg.Logger.ErrorContext(ctx, "registry not recorded", slog.String("session", s.id), tint.Err(err))
	}
}

const (
	// largeRegistry is the size in bytes up to which an encoded registry is kept for later sessions.
	largeRegistry = 4 << 20

	// keepLarge is how long a larger one is kept, for sessions that begin in a row.
	keepLarge = 10 * time.Second
)

// registryCache is the registry of one snapshot, encoded. It is safe for concurrent use.
type registryCache struct {
	mu   sync.Mutex
	of   *skills.Snapshot // nil when there is none
	data []byte
}

// encoded returns the registry of a snapshot. Sessions that begin together wait for one encoding.
func (c *registryCache) encoded(ctx context.Context, snapshot *skills.Snapshot) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == snapshot {
		return c.data, nil
	}
	registry, err := registryOf(ctx, snapshot)
	if err != nil {
		return nil, err
	}
	data, err := provenance.EncodePretty(registry)
	if err != nil {
		return nil, err
	}
	c.of, c.data = snapshot, data
	if len(data) > largeRegistry {
		time.AfterFunc(keepLarge, func() { c.drop(snapshot) })
	}
	return data, nil
}

// drop forgets a large registry. 10,000 skills leave 150 MiB of garbage that the server, idle, would
// hold on to for minutes.
func (c *registryCache) drop(of *skills.Snapshot) {
	c.mu.Lock()
	dropped := c.of == of
	if dropped {
		c.of, c.data = nil, nil
	}
	c.mu.Unlock()
	if dropped {
		debug.FreeOSMemory()
	}
}

// registryOf is the snapshot in the reference's shape.
func registryOf(ctx context.Context, snapshot *skills.Snapshot) (*cfharness.SkillRegistry, error) {
	out := &cfharness.SkillRegistry{
		Type: cfharness.TypeSkillRegistry, Version: 1, SandboxSkillsRoot: sandboxSkills,
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
			// It is being changed, or cannot be read: its SKILL.md is recorded without the other files.
			index = &skills.Index{Diagnostics: []skills.Diagnostic{{Severity: skills.Warning, Code: skills.CodeUnreadableDir, Path: sk.Path, Detail: "its files could not be indexed"}}}
		}
		out.Skills = append(out.Skills, registrySkill(sk, index))
	}
	for _, sk := range snapshot.Shadowed {
		out.Skillsd.Shadowed = append(out.Skillsd.Shadowed, cfharness.RegistrySkillShadow{Path: sk.Path, SkillDir: hostPath(sk, ""), Digest: sk.Digest})
	}
	return out, nil
}

// maxFrontmatter bounds, in bytes, what the registry holds of one skill's frontmatter. Of a larger one
// it has the name and the description, and the digest of SKILL.md stands for the rest: thousands of
// skills with the 64 KiB that are allowed would make each session's registry a gigabyte.
const maxFrontmatter = 16 << 10

// frontmatterOf returns the frontmatter as the reference has it, and whole.
func frontmatterOf(sk *skills.Skill) (plain, whole json.RawMessage) {
	if len(sk.Frontmatter.JSON) <= maxFrontmatter {
		return sk.Frontmatter.Plain(), sk.Frontmatter.JSON
	}
	return encode(struct {
		Name        string `json:"name"`
		Description string `json:"description"`
	}{sk.Frontmatter.Name, clip(sk.Frontmatter.Description)}), nil
}

func registrySkill(sk *skills.Skill, index *skills.Index) cfharness.RegistrySkill {
	plain, whole := frontmatterOf(sk)
	out := cfharness.RegistrySkill{
		Name: sk.Name(), Description: sk.Description(), SkillPath: hostPath(sk, sk.File), SkillDir: hostPath(sk, ""),
		SandboxPath: sandboxPath(sk, sk.File), SandboxSkillDir: sandboxPath(sk, ""), Digest: sk.Digest,
		Frontmatter: plain,
		Skillsd: &cfharness.RegistrySkillExtension{
			Path: sk.Path, Tier: sk.Root.Tier.String(), TreeDigest: index.TreeDigest, Frontmatter: whole,
			Verdict: &cfharness.RegistryVerdict{Strict: sk.Verdict.Strict, Publishable: sk.Verdict.Publishable, Repaired: sk.Verdict.Repaired},
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
		Path: r.Path, Kind: string(r.Kind), ResourcePath: hostPath(sk, r.Path), SandboxResourcePath: sandboxPath(sk, r.Path),
		SizeBytes: r.Size, Digest: r.Digest, ContentKind: "binary", Skillsd: &cfharness.RegistryResourceExtension{MIMEType: r.MIMEType},
	}
	if r.Text {
		out.ContentKind = "text"
	}
	if r.Script != nil {
		out.Script = &cfharness.RegistryScript{Executable: r.Script.Executable, Runtime: r.Script.ReferenceRuntime()}
		if r.Script.Shebang != "" {
			out.Script.Shebang = "#!" + r.Script.Shebang
		}
		out.Skillsd.Runtime = string(r.Script.Runtime)
	}
	_, out.Skillsd.Diagnostics = diagnosticsOf(r.Diagnostics)
	return out
}

// diagnosticsOf divides diagnostics into those of the reference's shape and those it has no place
// for: infos, and lines.
func diagnosticsOf(all []skills.Diagnostic) (plain provenance.List[cfharness.RegistryDiagnostic], extended []cfharness.ExtendedDiagnostic) {
	for _, d := range all {
		severity := d.Severity.String()
		if severity != "info" {
			plain = append(plain, cfharness.RegistryDiagnostic{Severity: severity, Code: string(d.Code), Detail: d.Detail, Path: d.Path})
		}
		if severity == "info" || d.Line > 0 {
			extended = append(extended, cfharness.ExtendedDiagnostic{Severity: severity, Code: string(d.Code), Detail: d.Detail, Path: d.Path, Line: d.Line})
		}
	}
	return plain, extended
}
