package skills

import (
	"path/filepath"
	"slices"
	"strings"
)

// survey is what a scan keeps beside the skills it found, so that a part of it can be repeated.
type survey struct {
	walks []walk // the skills they found follow one another in the snapshot's scanned
	notes []note
	// seen are the paths of the links that are no part of a skill, named what they name, on disk.
	seen, named []string
}

// walk is a tree that was walked.
type walk struct {
	area  *area
	found int  // skills
	dirs  int  // directories visited
	cut   bool // a limit left something out
}

// note is a diagnostic and the visit it came from.
type note struct {
	Diagnostic
	area *area  // nil: it is about a root, a limit or a link
	rel  string // the directory visited
}

// onDisk returns the real directory of an area; empty for one of an fs.FS.
func (a *area) onDisk() string {
	if a.place.fsys != nil {
		return ""
	}
	return filepath.Join(a.place.base, filepath.FromSlash(a.place.rel))
}

// Dirs returns the directories whose trees were scanned, absolute and free of links: those of the
// roots and those outside of them that links lead to. Roots with FS have none, nor has a snapshot that no
// scan made, or that is a part of one.
func (s *Snapshot) Dirs() []string {
	if s.survey == nil {
		return nil
	}
	var dirs []string
	for i := range s.survey.walks {
		if dir := s.survey.walks[i].area.onDisk(); dir != "" {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// SkillFiles returns the paths of the skill files that were scanned, those included that could not be
// loaded; absolute, and their directories free of links. Roots with FS have none.
func (s *Snapshot) SkillFiles() []string {
	files := make([]string, 0, len(s.scanned))
	for _, sk := range s.scanned {
		if sk.place.fsys == nil {
			files = append(files, filepath.Join(sk.place.base, filepath.FromSlash(sk.place.rel), sk.File))
		}
	}
	return files
}

// Ignored reports whether scans and indexes leave out what has that name: version control, caches,
// and what editors write beside a file.
func Ignored(name string) bool { return skipped(name) }

// diagnostics returns those of the notes.
func (s *survey) diagnostics() []Diagnostic {
	out := make([]Diagnostic, 0, len(s.notes))
	for i := range s.notes {
		out = append(out, s.notes[i].Diagnostic)
	}
	return out
}

// known are skills of an earlier scan. What has not changed is taken from them.
type known struct {
	skills map[identity]*Skill
	// stale reports that other files of a skill may have changed, so that its index is of no use.
	stale func(sk *Skill) bool
}

// identity is what two readings of one skill have in common.
type identity struct {
	root                  *Root
	path, base, rel, file string
}

func (s *Skill) identity() identity {
	return identity{s.Root, s.Path, s.place.base, s.place.rel, s.File}
}

// knownOf returns the given skills, every one of them stale.
func knownOf(found []*Skill) *known {
	k := &known{skills: make(map[identity]*Skill, len(found)), stale: func(*Skill) bool { return true }}
	for _, sk := range found {
		if !sk.broken {
			k.skills[sk.identity()] = sk
		}
	}
	return k
}

// recall returns the skill that sk, of which only the place is known, was in the earlier scan when
// its file has not been touched since; else nil. A stale skill is returned anew, with its former
// index as a hint.
func (k *known) recall(f folder, sk *Skill) *Skill {
	if k == nil {
		return nil
	}
	old := k.skills[sk.identity()]
	if old == nil {
		return nil
	}
	if now, err := f.mark(sk.File); err != nil || !old.mark.vouches(now) {
		sk.hint = old.lastIndex()
		return nil
	}
	if !k.stale(old) {
		return old
	}
	sk.Frontmatter, sk.Digest, sk.Size, sk.Verdict = old.Frontmatter, old.Digest, old.Size, old.Verdict
	sk.Diagnostics, sk.LastModified, sk.mark, sk.hint = old.Diagnostics, old.LastModified, old.mark, old.lastIndex()
	return sk
}

// within reports whether a path free of links is dir or lies below it. Neither ends in a separator,
// but for a root directory.
func within(dir, path string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, string(filepath.Separator))+string(filepath.Separator))
}
