// Package skills is the domain: skills, their resources, and the snapshot a scan makes of them.
//
// A skill is a directory that holds a SKILL.md (or skill.md): YAML frontmatter, then instructions.
// [Scan] reads the SKILL.md of every skill below some roots into an immutable [Snapshot]; the files
// of a skill are read and hashed when [Skill.Index] is first asked for. Nothing of their content is
// kept: [Skill.Read] opens a file again and reports whether its bytes still have the known digest.
//
// Everything below a root is foreign. The package guarantees that
//
//   - nothing but regular files is opened, and nothing outside of a root, an allowed root or, for
//     the files of a skill, the skill's directory;
//   - every read, list and recursion has a limit, and passing it costs the item, not the scan;
//   - what is wrong with one skill is a [Diagnostic] of that skill and does not affect the others;
//   - a digest always belongs to the bytes that are returned with it, or the difference is reported.
//
// It does not judge what a skill says and runs nothing. It does not keep the disk from changing between
// a check and a later use: what is executed must be staged first ([Skill.Stage]).
//
//	snapshot, err := skills.Scan(ctx, []skills.Root{{Dir: "/srv/skills", Tier: skills.TierOrg}}, nil)
//	if err != nil {
//		return err
//	}
//	sk, err := snapshot.Lookup("pdf")
package skills

import (
	"context"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/frontmatter"
)

// Limits that hold where no option says otherwise, in bytes.
const (
	MaxSkillFile = 1 << 20  // of a SKILL.md
	MaxFile      = 64 << 20 // of any other file of a skill
	MaxLead      = 500      // of the instructions that a scan keeps
)

// Frontmatter is the YAML block of a SKILL.md.
type Frontmatter = frontmatter.Fields

// Skill is one skill as a scan found it. It is immutable: all methods are safe for concurrent use.
// Unless they say otherwise, they describe the snapshot the skill belongs to, not the disk.
type Skill struct {
	Path        string // its identity in the catalogue: the root's prefix and the path below the root
	Frontmatter Frontmatter
	Root        *Root
	Dir         string        // its directory, slash-separated, relative to Root.Dir
	File        string        // SKILL.md or skill.md
	Digest      digest.Digest // of the raw bytes of File
	Size        int64         // of File, in bytes
	Lead        string        // the beginning of the instructions, at most MaxLead bytes, for search
	Form        Form
	broken      bool // its file could not be loaded; it only reserves its path
	// Diagnostics are about File. Their paths are relative to the skill. The Index has those about its
	// other files.
	Diagnostics  []Diagnostic
	LastModified time.Time // of File

	name  string
	place place
	mark  mark // of File
	opts  *ScanOptions
	state *indexState
}

// Name returns the skill's label: the name in the frontmatter, or the directory's name if the
// frontmatter has none or has one that another skill has too. It may be any text and need not be
// unique.
func (s *Skill) Name() string { return s.name }

// Description returns what the skill is for: the description in the frontmatter, or the first paragraph
// of the instructions. It may be any text but is never empty.
func (s *Skill) Description() string { return s.Frontmatter.Description }

// Hidden reports whether the skill asks not to be offered to a model (disable-model-invocation).
func (s *Skill) Hidden() bool { return s.Frontmatter.DisableModelInvocation }

// Resource returns the resource of that exact path, nil if the skill has none or cannot be indexed.
func (s *Skill) Resource(ctx context.Context, path string) *Resource {
	index, err := s.Index(ctx)
	if err != nil {
		return nil
	}
	return index.Resource(path)
}

func (s *Skill) dirName() string { return s.Path[strings.LastIndexByte(s.Path, '/')+1:] }
