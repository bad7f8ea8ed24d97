package skills

import (
	"io/fs"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/frontmatter"
)

// Outline holds the parts of a skill that catalogues show and searches use.
type Outline struct {
	Path        string        `json:"path"`
	Root        int           `json:"root"` // index into the roots of the snapshot
	File        string        `json:"file"`
	Digest      digest.Digest `json:"digest"`
	Name        string        `json:"name,omitempty"`
	Description string        `json:"description"`
	WhenToUse   string        `json:"whenToUse,omitempty"`
	Tags        []string      `json:"tags,omitempty"`
	Lead        string        `json:"lead,omitempty"`
}

// maxOutlined is the maximum length of a Lead in an outline, in bytes.
const maxOutlined = 500

// Outline returns the outlines of all skills that models may see.
func (s *Snapshot) Outline() []Outline {
	all := make([]Outline, 0, len(s.Skills))
	room := make([]byte, MaxLead) // a text for each of thousands of skills would be garbage
	for _, sk := range s.Skills {
		of := func(root Root) bool { return root.Dir == sk.Root.Dir && root.Prefix == sk.Root.Prefix }
		if sk.Hidden() {
			continue
		}
		f := &sk.Frontmatter
		all = append(all, Outline{sk.Path, slices.IndexFunc(s.Roots, of), sk.File, sk.Digest, f.Name,
			f.Description, f.WhenToUse, f.Tags,
			strings.ToValidUTF8(sk.Lead.first(maxOutlined, room), "")})
	}
	return all
}

// Outlined returns a snapshot made from outlines of an earlier snapshot with the same roots and options. Its
// skills have names and descriptions but no files, so they cannot be read, staged or run.
func Outlined(roots []Root, all []Outline, opts *ScanOptions) *Snapshot {
	o := opts.withDefaults()
	// Requirements, disabled skills and precedence were settled when the outline was made, and must not be
	// checked again without the frontmatter.
	shown := (&ScanOptions{Pinned: o.Pinned, NameOnly: o.NameOnly, AllowShadow: true}).withDefaults()
	found := make([]*Skill, 0, len(all))
	for _, of := range all {
		if of.Root < 0 || of.Root >= len(roots) {
			continue
		}
		found = append(found, &Skill{
			Path: of.Path, Root: &roots[of.Root], Dir: of.Path, File: of.File, Digest: of.Digest,
			Lead: NewLead([]byte(of.Lead)),
			Frontmatter: frontmatter.Fields{Name: of.Name, Description: of.Description,
				WhenToUse: of.WhenToUse, Tags: of.Tags, UserInvocable: true},
			location: location{fsys: noFiles{}, rel: of.Path}, opts: shown, state: newIndexState(nil),
		})
	}
	return assemble(roots, found, nil, shown)
}

// noFiles is an empty file system.
type noFiles struct{}

func (noFiles) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}
