package cfharness

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
)

// SkillRegistry is the content of skill-registry.json: the snapshot at the start of a session. SkillsRoot and
// SandboxSkillsRoot are the paths of the first root; the extension has all roots.
type SkillRegistry struct {
	Type              string                   `json:"type"`
	Version           int                      `json:"version"`
	SkillsRoot        string                   `json:"skillsRoot"` // host path
	SandboxSkillsRoot string                   `json:"sandboxSkillsRoot"`
	GeneratedAt       Timestamp                `json:"generatedAt"`
	Skills            List[RegistrySkill]      `json:"skills"`
	Diagnostics       List[RegistryDiagnostic] `json:"diagnostics"`
	Skillsd           *RegistryExtension       `json:"skillsd,omitempty"`
}

// WriteEach writes the registry with the given skills instead of its own, in the form of
// [provenance.EncodePretty], and writes the time of generation with made. It writes one skill at a time:
// encoding 10,000 at once needs 200 MiB more memory.
//
// Errors: the errors of w, made and each.
func (r *SkillRegistry) WriteEach(
	w io.Writer, made func(at time.Time) error, each iter.Seq2[*RegistrySkill, error],
) error {
	head, middle, tail, err := r.frame()
	if err != nil {
		return err
	}
	if _, err := w.Write(head); err != nil {
		return err
	}
	if err := made(r.GeneratedAt.Time); err != nil {
		return err
	}
	if _, err := w.Write(middle); err != nil {
		return err
	}
	var compact, indented bytes.Buffer
	enc := json.NewEncoder(&compact)
	enc.SetEscapeHTML(false)
	before, end := "\n    ", ""
	for sk, err := range each {
		if err != nil {
			return err
		}
		compact.Reset()
		indented.Reset()
		indented.WriteString(before)
		if err := enc.Encode(sk); err != nil {
			return err
		}
		err = json.Indent(&indented, bytes.TrimSuffix(compact.Bytes(), []byte("\n")), "    ", "  ")
		if err != nil {
			return err
		}
		if _, err := w.Write(indented.Bytes()); err != nil {
			return err
		}
		before, end = ",\n    ", "\n  "
	}
	_, err = w.Write(append([]byte(end), tail...))
	return err
}

// frame returns the text of the registry before its time, from there to its first skill, and after its last
// one, without the skills.
func (r *SkillRegistry) frame() (head, middle, tail []byte, err error) {
	empty := *r
	empty.Skills = nil
	pretty, err := provenance.EncodePretty(empty)
	if err != nil {
		return nil, nil, nil, err
	}
	// Line breaks in strings are escaped, so these texts are unique.
	_, rest, timed := bytes.Cut(pretty, []byte("\n  \"generatedAt\": \""))
	head = pretty[:len(pretty)-len(rest)]
	quote := bytes.IndexByte(rest, '"')
	_, tail, listed := bytes.Cut(rest, []byte("\n  \"skills\": ["))
	if !timed || !listed || quote < 0 {
		return nil, nil, nil, errors.New("a registry has no time or no list of skills")
	}
	return head, rest[quote : len(rest)-len(tail)], tail, nil
}

// leaveOut removes skills and everything that names them: files of a skill that contains one, and
// diagnostics.
func (r *SkillRegistry) leaveOut(hides func(skill string) bool) {
	var hidden []string
	r.Skills = slices.DeleteFunc(r.Skills, func(sk RegistrySkill) bool {
		if sk.Skillsd == nil || !hides(sk.Skillsd.Path) {
			return false
		}
		hidden = append(hidden, sk.Skillsd.Path)
		return true
	})
	below := func(path string) bool {
		return slices.ContainsFunc(hidden, func(skill string) bool {
			return path == skill || strings.HasPrefix(path, skill+"/")
		})
	}
	clean := func(parent string, plain *List[RegistryDiagnostic], extended *[]ExtendedDiagnostic) {
		*plain = slices.DeleteFunc(*plain, func(d RegistryDiagnostic) bool { return below(parent + d.Path) })
		*extended = slices.DeleteFunc(*extended,
			func(d ExtendedDiagnostic) bool { return below(parent + d.Path) })
	}
	if x := r.Skillsd; x != nil {
		clean("", &r.Diagnostics, &x.Diagnostics)
		x.Shadowed = slices.DeleteFunc(x.Shadowed, func(s RegistrySkillShadow) bool { return below(s.Path) })
	}
	for i := range r.Skills {
		sk := &r.Skills[i]
		if sk.Skillsd == nil {
			continue
		}
		parent := sk.Skillsd.Path + "/"
		clean(parent, &sk.Diagnostics, &sk.Skillsd.Diagnostics)
		sk.Resources = slices.DeleteFunc(sk.Resources,
			func(f RegistryResource) bool { return below(parent + f.Path) })
	}
}

// RegistryExtension is the skillsd key of a SkillRegistry.
type RegistryExtension struct {
	Roots       List[RegistryRoot]    `json:"roots"`
	Diagnostics []ExtendedDiagnostic  `json:"diagnostics,omitempty"`
	Shadowed    []RegistrySkillShadow `json:"shadowed,omitempty"`
}

// RegistryRoot is one configured root.
type RegistryRoot struct {
	Path        string `json:"path"` // host path
	SandboxPath string `json:"sandboxPath"`
	Tier        string `json:"tier"`
	Prefix      string `json:"prefix,omitempty"`
}

// RegistrySkillShadow is a skill that lost its path to a skill of an earlier root.
type RegistrySkillShadow struct {
	Path     string        `json:"path"`
	SkillDir string        `json:"skillDir"` // host path
	Digest   digest.Digest `json:"digest"`
}

// RegistrySkill is one skill of a SkillRegistry.
type RegistrySkill struct {
	Name            string                   `json:"name"`
	Description     string                   `json:"description"`
	SkillPath       string                   `json:"skillPath"` // host path of SKILL.md
	SkillDir        string                   `json:"skillDir"`  // host path
	SandboxPath     string                   `json:"sandboxSkillPath"`
	SandboxSkillDir string                   `json:"sandboxSkillDir"`
	Digest          digest.Digest            `json:"digest"` // of SKILL.md
	Resources       List[RegistryResource]   `json:"resources"`
	Frontmatter     json.RawMessage          `json:"frontmatter"` // only strings, booleans, lists of strings
	Diagnostics     List[RegistryDiagnostic] `json:"diagnostics"`
	Skillsd         *RegistrySkillExtension  `json:"skillsd,omitempty"`
}

// RegistrySkillExtension is the skillsd key of a RegistrySkill.
type RegistrySkillExtension struct {
	Path        string               `json:"path"` // skill path
	Tier        string               `json:"tier"`
	TreeDigest  digest.Digest        `json:"treeDigest,omitempty"`
	Origin      *SkillOrigin         `json:"origin,omitempty"` // nil if not known
	Verdict     *RegistryVerdict     `json:"verdict,omitempty"`
	Frontmatter json.RawMessage      `json:"frontmatter,omitempty"` // complete, in original key order
	Diagnostics []ExtendedDiagnostic `json:"diagnostics,omitempty"`
}

// SkillOrigin is the source of the files of a skill. For an installed skill, it is the entry in the lock file
// for exactly these files. It contains no credentials.
type SkillOrigin struct {
	Kind   string `json:"kind"`             // git, url, index, zip, directory; archive if served as it is
	Source string `json:"source"`           // a URL, or a path on this machine
	Path   string `json:"path,omitempty"`   // of the skill in the source; empty for all of it
	Ref    string `json:"ref,omitempty"`    // git only, as requested
	Commit string `json:"commit,omitempty"` // git only
	// Plugin is the name of the plugin that the skill is a part of, with its version; License is its licence.
	Plugin  string `json:"plugin,omitempty"`
	License string `json:"license,omitempty"`
}

// String returns the origin in one line: https://example.org/skills pdf at 6ce3b31c6eb4 (main), plugin docs
// 1.0.
func (o *SkillOrigin) String() string {
	text := o.Source
	if o.Path != "" {
		text += " " + o.Path
	}
	if o.Commit != "" {
		text += " at " + o.Commit[:min(len(o.Commit), 12)]
	}
	if o.Ref != "" && o.Ref != o.Commit {
		text += " (" + o.Ref + ")"
	}
	if o.Plugin != "" {
		text += ", plugin " + o.Plugin
	}
	if o.License != "" {
		text += " (" + o.License + ")"
	}
	return text
}

// RegistryVerdict is the conformance of a skill to the specification.
type RegistryVerdict struct {
	Strict      bool `json:"strict"`
	Publishable bool `json:"publishable"`
	Repaired    bool `json:"repaired"`
}

// RegistryResource is one file of a skill other than SKILL.md. Kind is reference, asset, template, script or
// other.
type RegistryResource struct {
	Path                string                     `json:"path"`
	Kind                string                     `json:"kind"`
	ResourcePath        string                     `json:"resourcePath"` // host path
	SandboxResourcePath string                     `json:"sandboxResourcePath"`
	SizeBytes           int64                      `json:"sizeBytes"`
	Digest              digest.Digest              `json:"digest"`
	ContentKind         string                     `json:"contentKind"` // text or binary
	Script              *RegistryScript            `json:"script,omitempty"`
	Diagnostics         List[RegistryDiagnostic]   `json:"diagnostics"`
	Skillsd             *RegistryResourceExtension `json:"skillsd,omitempty"`
}

// RegistryScript describes a resource of kind script.
type RegistryScript struct {
	Executable bool   `json:"executable"`
	Shebang    string `json:"shebang,omitempty"`
	Runtime    string `json:"runtime"` // deno, shebang or unknown
}

// RegistryResourceExtension is the skillsd key of a RegistryResource.
type RegistryResourceExtension struct {
	Runtime  string `json:"runtime,omitempty"` // bash, sh, python3, node or deno
	MIMEType string `json:"mimeType,omitempty"`
}

// RegistryDiagnostic is a warning or an error about a skill or a root.
type RegistryDiagnostic struct {
	Severity string `json:"severity"` // warning or error
	Code     string `json:"code"`
	Detail   string `json:"detail"`
	Path     string `json:"path,omitempty"`
}

// ExtendedDiagnostic is a diagnostic that may have the severity info, and a line from 1, which
// RegistryDiagnostic lacks.
type ExtendedDiagnostic struct {
	Severity string `json:"severity"` // info, warning or error
	Code     string `json:"code"`
	Detail   string `json:"detail"`
	Path     string `json:"path,omitempty"`
	Line     int    `json:"line,omitempty"`
}
