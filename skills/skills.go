// Package skills defines skills, their resources, and the snapshot that a scan makes of them.
//
// A skill is a directory with a SKILL.md (or skill.md): YAML frontmatter, then instructions. [Scan] reads the
// SKILL.md of every skill below some roots into an immutable [Snapshot]. The files of a skill are read and
// hashed when [Skill.Index] is first called. Their content is not kept: [Skill.Read] opens a file again and
// reports whether its digest is the same.
//
// Everything below a root is untrusted. The package guarantees that
//
//   - only regular files are opened, and only within a root, an allowed root or, for the files of a skill,
//     the skill's directory;
//   - every read, list and recursion has a limit, and exceeding it loses the item, not the scan;
//   - a problem of one skill is a [Diagnostic] of that skill and does not affect the others;
//   - a digest always belongs to the bytes that are returned with it, or the difference is reported.
//
// It does not judge the text of a skill and runs nothing. Files can change on disk between a check and a
// later use, so files to execute must be staged first ([Skill.Stage]).
//
//	snapshot, err := skills.Scan(ctx, []skills.Root{{Dir: "/srv/skills", Tier: skills.TierOrg}}, nil)
//	if err != nil {
//		return err
//	}
//	sk, err := snapshot.Lookup("pdf")
package skills

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/frontmatter"
	"github.com/skillsd/skillsd/skills/store"
)

// Default limits, in bytes.
const (
	MaxSkillFile = 1 << 20  // of a SKILL.md
	MaxFile      = 64 << 20 // of any other file of a skill
	MaxLead      = 3_000    // of the beginning of the instructions, as kept by a scan
)

// Frontmatter is the YAML block of a SKILL.md.
type Frontmatter = frontmatter.Fields

// Skill is a skill as found by a scan. It is immutable: all methods are safe for concurrent use. Unless
// stated otherwise, they describe the snapshot of the skill, not the disk.
type Skill struct {
	Path        string // identity in the catalogue: the root's prefix and the path below the root
	Frontmatter Frontmatter
	Root        *Root
	Dir         string        // directory, slash-separated, relative to Root.Dir
	File        string        // SKILL.md or skill.md
	Digest      digest.Digest // of the raw bytes of File
	Size        int64         // of File, in bytes
	Lead        Lead          // for searches
	Form        Form
	broken      bool // the file could not be loaded; the skill only reserves its path
	// Diagnostics are about File. Their paths are relative to the skill. The Index holds diagnostics about
	// other files.
	Diagnostics  []Diagnostic
	LastModified time.Time // of File

	name     string
	location location
	mark     mark // of File
	opts     *ScanOptions
	state    *indexState
}

// Name returns the label of the skill: the name in the frontmatter, or the name of the directory if that is
// missing or not unique. It may be any text and need not be unique.
func (s *Skill) Name() string { return s.name }

// Description returns the description in the frontmatter, or the first paragraph of the instructions. It may
// be any text but is never empty.
func (s *Skill) Description() string { return s.Frontmatter.Description }

// Hidden reports whether the skill must not be offered to models (disable-model-invocation).
func (s *Skill) Hidden() bool { return s.Frontmatter.DisableModelInvocation }

// Resource returns the resource with exactly this path, or nil if it does not exist or the skill cannot be
// indexed.
func (s *Skill) Resource(ctx context.Context, path string) *Resource {
	index, err := s.Index(ctx)
	if err != nil {
		return nil
	}
	return index.Resource(path)
}

func (s *Skill) dirName() string { return s.Path[strings.LastIndexByte(s.Path, '/')+1:] }

// PluginDir is the directory of an installed skill with the files of its plugin that it names. They have the
// paths that they have in the plugin.
const PluginDir = ".plugin-root"

// PluginManifests are the files that make a directory a plugin, in order of precedence.
var PluginManifests = []string{".claude-plugin/plugin.json", "plugin.json", ".plugin/plugin.json",
	".codex-plugin/plugin.json", ".cursor-plugin/plugin.json", ".github/plugin/plugin.json",
	"gemini-extension.json"}

// PluginRoot returns the directory that takes the place of the plugin's in a skill with these files:
// PluginDir, or "." for a skill that is a whole plugin. It returns "" for a skill that does not use its
// plugin.
func PluginRoot(files []store.File) string {
	root := ""
	for _, f := range files {
		if strings.HasPrefix(f.Path, PluginDir+"/") {
			return PluginDir
		}
		if slices.Contains(PluginManifests, f.Path) {
			root = "."
		}
	}
	return root
}
