package skills

import (
	"cmp"
	"context"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Above these limits a scan of everything is cheaper, because each path is compared with all skills.
const (
	maxChanged = 256 // paths
	maxParts   = 64  // parts visited one by one
)

// part is a directory of an earlier walk, to be visited again with everything below it: what was found
// there then, and what is found now.
type part struct {
	at   int // of the walk
	walk walk
	rel  string // below the walk's area

	was, fresh   []*Skill
	noted, notes []note
}

// contains reports whether a directory of the area is in the part.
func (p *part) contains(rel string) bool {
	return p.rel == "." || strings.HasPrefix(rel, p.rel) && (len(rel) == len(p.rel) || rel[len(p.rel)] == '/')
}

func (p *part) onDisk() string { return filepath.Join(p.walk.area.onDisk(), filepath.FromSlash(p.rel)) }

// parts returns the parts of a snapshot that changed paths concern, in the order of walks. No part is
// within another.
//
// Errors: errUnsure.
func (s *Snapshot) parts(changed []string) ([]part, error) {
	var parts []part
	if len(changed) > maxChanged {
		return nil, errUnsure
	}
	for _, path := range changed {
		found, err := s.partsAt(filepath.Clean(path))
		if err != nil {
			return nil, err
		}
		parts = append(parts, found...)
	}
	slices.SortFunc(parts, func(a, b part) int {
		// Shorter paths come first, so that a part is dropped if one before it contains it.
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(len(a.rel), len(b.rel)),
			strings.Compare(a.rel, b.rel))
	})
	distinct := parts[:0]
	for _, p := range parts {
		inside := func(outer part) bool { return outer.at == p.at && outer.contains(p.rel) }
		if !slices.ContainsFunc(distinct, inside) {
			distinct = append(distinct, p)
		}
	}
	if len(distinct) > maxParts {
		return nil, errUnsure
	}
	for i := range distinct {
		s.recount(&distinct[i])
	}
	return distinct, nil
}

// recount sets what was found in a part.
func (s *Snapshot) recount(p *part) {
	for _, sk := range s.ofWalk(p.at) {
		if p.contains(p.walk.area.relOf(sk)) {
			p.was = append(p.was, sk)
		}
	}
	for _, n := range s.scanState.notes {
		if n.area == p.walk.area && p.contains(n.rel) {
			p.noted = append(p.noted, n)
		}
	}
}

// ofWalk returns the skills a walk found.
func (s *Snapshot) ofWalk(at int) []*Skill {
	from := 0
	for i := range s.scanState.walks[:at] {
		from += s.scanState.walks[i].found
	}
	return s.scanned[from : from+s.scanState.walks[at].found]
}

// relOf returns the directory of a skill relative to the area it was found in.
func (a *area) relOf(sk *Skill) string {
	switch a.place.rel {
	case ".":
		return sk.place.rel
	case sk.place.rel:
		return "."
	}
	return strings.TrimPrefix(sk.place.rel, a.place.rel+"/")
}

// partsAt returns the part of each walk that a changed path concerns.
func (s *Snapshot) partsAt(changed string) (parts []part, err error) {
	// A link may have been replaced, or what it names may exist now: only a scan finds where it leads.
	state := s.scanState
	if anyWithin(changed, state.seen) || anyWithin(changed, state.named) || s.concernsUnreadable(changed) {
		return nil, errUnsure
	}
	seen := false
	for i := range s.scanState.walks {
		w := &s.scanState.walks[i]
		dir := w.area.onDisk()
		if dir == "" {
			continue
		}
		if changed != dir && within(changed, dir) {
			return nil, errUnsure
		}
		if !within(dir, changed) {
			continue
		}
		seen = true
		rel, err := filepath.Rel(dir, changed)
		if err != nil || w.cut {
			return nil, errUnsure
		}
		rel = filepath.ToSlash(rel)
		if slices.ContainsFunc(strings.Split(rel, "/"), skipped) {
			continue
		}
		rel, err = s.partOf(i, rel, changed)
		if err != nil {
			return nil, err
		}
		if rel == "" {
			continue
		}
		p := part{at: i, walk: *w, rel: rel}
		if anyWithin(p.onDisk(), s.scanState.seen) {
			return nil, errUnsure
		}
		parts = append(parts, p)
	}
	if !seen {
		return nil, errUnsure
	}
	return parts, nil
}

func anyWithin(dir string, paths []string) bool {
	return slices.ContainsFunc(paths, func(path string) bool { return within(dir, path) })
}

// concernsUnreadable reports whether a path may concern a root that could not be read.
func (s *Snapshot) concernsUnreadable(path string) bool {
	for i := range s.Roots {
		root := &s.Roots[i]
		walked := func(w walk) bool { return w.area.root == root && !w.area.linked }
		if root.FS != nil || slices.ContainsFunc(s.scanState.walks, walked) {
			continue
		}
		if dir, err := filepath.Abs(root.Dir); err != nil || within(dir, path) || within(path, dir) {
			return true
		}
	}
	return false
}

// partOf returns the directory to visit after a change at rel: the outermost skill it is in, or
// else a directory that may have become a skill or may have some; empty for none.
func (s *Snapshot) partOf(at int, rel, changed string) (string, error) {
	a := s.scanState.walks[at].area
	// A visit of a skill also finds the skills nested in it.
	outer := ""
	for _, sk := range s.ofWalk(at) {
		p := part{rel: a.relOf(sk)}
		if p.contains(rel) && (outer == "" || len(p.rel) < len(outer)) {
			outer = p.rel
		}
	}
	if outer != "" {
		return outer, nil
	}
	if name := path.Base(rel); name == upperFile || name == lowerFile {
		return path.Dir(rel), nil
	}
	info, err := os.Lstat(changed)
	switch {
	// Where a link leads may be anywhere in the roots.
	case rel == ".", err == nil && info.Mode()&fs.ModeSymlink != 0:
		return "", errUnsure
	case err != nil && !isNotDir(err):
		return "", errUnsure
	case err == nil && !info.IsDir():
		return "", nil
	}
	if where := join(a.path, rel); !isCanonical(where) {
		return "", errUnsure
	}
	return rel, nil
}

// revisit visits a part.
//
// Errors: errUnsure; the error of ctx.
func (s *scanner) revisit(ctx context.Context, p *part) error {
	base, err := openBase(p.walk.area.place.base)
	if err != nil {
		return errUnsure
	}
	defer base.close()
	top, err := descend(base, p.walk.area.place.rel)
	if err != nil {
		return errUnsure
	}
	defer top.close()
	here, err := descend(top, p.rel)
	if err != nil {
		// It may be a link, or exist again already; else nothing is found there.
		info, missing := os.Lstat(p.onDisk())
		if !isNotDir(err) || missing == nil && info.Mode()&(fs.ModeSymlink|fs.ModeDir) != 0 {
			return errUnsure
		}
		return nil
	}
	here.close()
	w := p.walk
	if err := s.visit(ctx, &w, top, p.rel); err != nil {
		return err
	}
	// A limit or a link can change what is found outside of the part.
	if w.cut || len(s.links) > 0 {
		return errUnsure
	}
	p.walk.dirs, p.fresh, p.notes = w.dirs, s.found, s.notes
	return nil
}

// splice returns the snapshot with what was found in the parts.
func (s *Snapshot) splice(parts []part, now time.Time) *Snapshot {
	next := &scanState{
		walks: slices.Clone(s.scanState.walks),
		seen:  s.scanState.seen,
		named: s.scanState.named,
	}
	for _, n := range s.scanState.notes {
		again := func(p part) bool { return p.walk.area == n.area && p.contains(n.rel) }
		if !slices.ContainsFunc(parts, again) {
			next.notes = append(next.notes, n)
		}
	}
	found := make([]*Skill, 0, len(s.scanned)+len(parts))
	for i := range next.walks {
		w := &next.walks[i]
		n := 0
		for n < len(parts) && parts[n].at == i {
			next.notes = append(next.notes, parts[n].notes...)
			w.dirs += parts[n].walk.dirs - s.scanState.walks[i].dirs
			n++
		}
		before := len(found)
		found = appendSpliced(found, w.area, s.ofWalk(i), parts[:n])
		w.found = len(found) - before
		parts = parts[n:]
	}
	return s.reassemble(found, next, now)
}

// appendSpliced appends the skills of a walk; what its parts found replaces their earlier skills.
func appendSpliced(found []*Skill, a *area, was []*Skill, parts []part) []*Skill {
	done := make([]bool, len(parts))
	for _, sk := range was {
		rel := a.relOf(sk)
		i := slices.IndexFunc(parts, func(p part) bool { return p.contains(rel) })
		if i < 0 {
			found = append(found, sk)
		} else if !done[i] {
			found, done[i] = append(found, parts[i].fresh...), true
		}
	}
	for i := range parts {
		if !done[i] {
			found = append(found, parts[i].fresh...)
		}
	}
	return found
}

// scanState is what a scan keeps besides the skills it found, so that a part of it can be repeated.
type scanState struct {
	walks []walk // the skills they found follow one another in the snapshot's scanned
	notes []note
	// seen are the paths on disk of the links that are not part of a skill, named the paths that these
	// links name.
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
	rel  string // the directory that was visited
}

// onDisk returns the real directory of an area; empty for one of an fs.FS.
func (a *area) onDisk() string {
	if a.place.fsys != nil {
		return ""
	}
	return filepath.Join(a.place.base, filepath.FromSlash(a.place.rel))
}

// Dirs returns the directories whose trees were scanned, absolute and free of links: the directories of
// the roots, and directories outside of them to which links lead. Roots with FS have none, nor has a
// snapshot that is not the result of a scan.
func (s *Snapshot) Dirs() []string {
	if s.scanState == nil {
		return nil
	}
	var dirs []string
	for i := range s.scanState.walks {
		if dir := s.scanState.walks[i].area.onDisk(); dir != "" {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// SkillFiles returns the paths of the skill files that were scanned, including those that could not be
// loaded. They are absolute, and their directories are free of links. Roots with FS have none.
func (s *Snapshot) SkillFiles() []string {
	files := make([]string, 0, len(s.scanned))
	for _, sk := range s.scanned {
		if sk.place.fsys == nil {
			dir := filepath.Join(sk.place.base, filepath.FromSlash(sk.place.rel))
			files = append(files, filepath.Join(dir, sk.File))
		}
	}
	return files
}

// Ignored reports whether scans and indexes leave out files and directories of that name: version
// control, caches, and what editors write next to a file.
func Ignored(name string) bool { return skipped(name) }

// diagnostics returns the diagnostics of the notes.
func (s *scanState) diagnostics() []Diagnostic {
	out := make([]Diagnostic, 0, len(s.notes))
	for i := range s.notes {
		out = append(out, s.notes[i].Diagnostic)
	}
	return out
}

// known are the skills of an earlier scan, which are used again where nothing has changed.
type known struct {
	skills map[identity]*Skill
	// stale reports whether other files of a skill may have changed, so that its index is of no use.
	stale func(sk *Skill) bool
}

// identity is what all readings of one skill have in common.
type identity struct {
	root                  *Root
	path, base, rel, file string
}

func (s *Skill) identity() identity {
	return identity{s.Root, s.Path, s.place.base, s.place.rel, s.File}
}

// knownOf returns some skills as known ones, all of them stale.
func knownOf(found []*Skill) *known {
	k := &known{skills: make(map[identity]*Skill, len(found)), stale: func(*Skill) bool { return true }}
	for _, sk := range found {
		if !sk.broken {
			k.skills[sk.identity()] = sk
		}
	}
	return k
}

// reuse returns the skill that was at the place of sk in the earlier scan, if its file has not been
// touched since; else nil. Of a stale skill it returns a copy, with the former index as a hint.
func (k *known) reuse(f folder, sk *Skill) *Skill {
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
	sk.Diagnostics, sk.LastModified, sk.mark = old.Diagnostics, old.LastModified, old.mark
	sk.hint = old.lastIndex()
	return sk
}

// within reports whether a path free of links is dir or is below it. Neither ends in a separator,
// but for a root directory.
func within(dir, path string) bool {
	const separator = string(filepath.Separator)
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, separator)+separator)
}
