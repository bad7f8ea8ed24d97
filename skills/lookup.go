package skills

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/skillsd/skillsd/skills/frontmatter"
)

// NotFoundError reports a name or path without a skill, or a path without a file in a skill.
type NotFoundError struct {
	Name       string
	Suggestion string   // the closest skill or file; empty if none is close
	Nearest    []string // at most 20 skills or files, closest first, without hidden skills
	Total      int      // number of skills or files, without hidden skills
}

func (e *NotFoundError) Error() string {
	text := fmt.Sprintf("no skill %q", frontmatter.Clip(e.Name, 64))
	if e.Suggestion != "" {
		text += fmt.Sprintf(", did you mean %q", e.Suggestion)
	}
	return text
}

// AmbiguousError reports a name that several skills of one tier have.
type AmbiguousError struct {
	Name  string
	Paths []string // sorted
}

func (e *AmbiguousError) Error() string {
	name := frontmatter.Clip(e.Name, 64)
	return fmt.Sprintf("%q names more than one skill: %s", name, strings.Join(e.Paths, ", "))
}

// Skill returns the skill with exactly this path, or nil.
func (s *Snapshot) Skill(path string) *Skill { return s.byPath[path] }

// HiddenBy returns the skills that hide a file of sk from models, outermost first: sk if it is hidden, and
// hidden or disabled skills nested in sk whose directory contains path. This includes hidden skills that are
// unavailable. path must be canonical; "" means the skill alone.
func (s *Snapshot) HiddenBy(sk *Skill, path string) (by []*Skill) {
	if sk.Hidden() {
		by = append(by, sk)
	}
	for i := range len(path) + 1 {
		if path == "" || i < len(path) && path[i] != '/' {
			continue
		}
		nested := s.at(sk.Path + "/" + path[:i])
		if nested != nil && (nested.Hidden() || s.Status(nested).State == StateDisabled) {
			by = append(by, nested)
		}
	}
	return by
}

// Nested returns the innermost skill nested in sk whose directory contains a file of sk, also if it is
// withheld, or nil. The path must be canonical.
func (s *Snapshot) Nested(sk *Skill, file string) *Skill {
	for dir := path.Dir(file); dir != "."; dir = path.Dir(dir) {
		if nested := s.at(sk.Path + "/" + dir); nested != nil {
			return nested
		}
	}
	return nil
}

// at returns the skill with a path, also if it is withheld, or nil.
func (s *Snapshot) at(at string) *Skill {
	n, found := slices.BinarySearchFunc(s.Withheld, at, func(sk *Skill, path string) int {
		return strings.Compare(sk.Path, path)
	})
	if found {
		return s.Withheld[n]
	}
	return s.Skill(at)
}

// KnowsNested reports whether the snapshot has every skill of the index that is nested in sk and contains the
// file. If not, the nested skill is newer than the scan, and HiddenBy does not report it.
func (s *Snapshot) KnowsNested(sk *Skill, index *Index, file string) bool {
	for dir := path.Dir(file); dir != "."; dir = path.Dir(dir) {
		nested := slices.ContainsFunc(index.Resources, func(r Resource) bool {
			in, name := path.Split(r.Path)
			return in == dir+"/" && slices.Contains(nestedFiles, name)
		})
		isMaterial := slices.ContainsFunc(strings.Split(dir, "/"), IsMaterial)
		// A scan does not look for skills in directories of material, so none is missing there.
		if nested && !isMaterial && s.Skill(sk.Path+"/"+dir) == nil {
			return false
		}
	}
	return true
}

// Lookup finds a skill by path or name. A name resolves to the only skill with that name in the most trusted
// tier that has one. So a less trusted skill can neither claim the name nor make it ambiguous, not even by an
// equal path. Otherwise a path takes precedence over a name; skill://PATH is always a path.
//
// Errors: *NotFoundError, *AmbiguousError.
func (s *Snapshot) Lookup(nameOrPath string) (*Skill, error) {
	if strings.HasPrefix(nameOrPath, uriScheme) {
		path, err := ParseURI(nameOrPath)
		if sk := s.Skill(path); err == nil && sk != nil {
			return sk, nil
		}
		return nil, s.NotFound(nameOrPath)
	}
	named, exact := s.byName[nameOrPath], s.Skill(nameOrPath)
	// Clients write the skill of a plugin as plugin:skill; its path here is plugin/skill.
	if group, own, ok := strings.Cut(nameOrPath, ":"); ok && len(named) == 0 && exact == nil {
		exact = s.Skill(group + "/" + own)
	}
	if len(named) == 0 && exact == nil {
		return nil, s.NotFound(nameOrPath)
	}
	// A less trusted path must not take the name of a more trusted skill.
	tier := leastTier(named)
	if exact != nil && (len(named) == 0 || exact.Root.Tier <= tier) {
		return exact, nil
	}
	var paths []string
	var only *Skill
	for _, sk := range named {
		if sk.Root.Tier == tier {
			paths, only = append(paths, sk.Path), sk
		}
	}
	if len(paths) > 1 {
		return nil, &AmbiguousError{Name: nameOrPath, Paths: paths}
	}
	return only, nil
}

// leastTier returns the most trusted tier of some skills, or the least trusted tier without any skill.
func leastTier(all []*Skill) Tier {
	tier := LeastTrusted()
	for _, sk := range all {
		tier = min(tier, sk.Root.Tier)
	}
	return tier
}

// Resolve returns the skill and the file that a URI names. A file of a nested skill belongs to the nested
// one. file is "" if the URI names the directory of the skill. Resolve does not check whether the file
// exists.
//
// Errors: *PathError, *NotFoundError.
func (s *Snapshot) Resolve(uri string) (sk *Skill, file string, err error) {
	path, err := ParseURI(uri)
	if err != nil {
		return nil, "", err
	}
	for at := path; ; {
		if sk := s.Skill(at); sk != nil {
			return sk, strings.TrimPrefix(path[len(at):], "/"), nil
		}
		cut := strings.LastIndexByte(at, '/')
		if cut < 0 {
			// URIs come from listings rather than typing, so no similar name is suggested.
			return nil, "", &NotFoundError{Name: path}
		}
		at = at[:cut]
	}
}

const (
	maxNearest = 20
	maxCompare = 128 // characters of a name to compare
)

// NotFound returns the error for a name without a skill, or for a skill that must appear absent.
func (s *Snapshot) NotFound(name string) *NotFoundError {
	missing := strings.ToLower(frontmatter.Clip(name, maxCompare))
	all := make([]meant, 0, len(s.Skills))
	for _, sk := range s.Skills {
		if sk.Hidden() {
			continue
		}
		// Paths are suggested, since they are never ambiguous, but the name may have been misspelt.
		byPath := nameDistance(missing, strings.ToLower(frontmatter.Clip(sk.Path, maxCompare)))
		byName := nameDistance(missing, strings.ToLower(frontmatter.Clip(sk.name, maxCompare)))
		all = append(all, meant{sk.Path, min(byPath, byName)})
	}
	return nearest(name, missing, all)
}

// NoFile returns the error for a path that is not among the files of a skill.
func NoFile(file string, files []Resource) *NotFoundError {
	base := func(file string) string { return file[strings.LastIndexByte(file, '/')+1:] }
	missing := strings.ToLower(frontmatter.Clip(file, maxCompare))
	all := make([]meant, len(files))
	for i := range files {
		file := strings.ToLower(frontmatter.Clip(files[i].Path, maxCompare))
		// The base name may be right, or nearly, with a wrong directory.
		byName := 1 + nameDistance(base(missing), base(file))
		all[i] = meant{files[i].Path, min(nameDistance(missing, file), byName)}
	}
	return nearest(file, missing, all)
}

// meant is a possible meaning of a name.
type meant struct {
	label    string
	distance int
}

// nearest returns the error for a name, with candidates sorted by distance. missing is the name in folded
// form.
func nearest(name, missing string, all []meant) *NotFoundError {
	slices.SortFunc(all, func(a, b meant) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), strings.Compare(a.label, b.label))
	})
	e := &NotFoundError{Name: name, Total: len(all)}
	for _, c := range all[:min(len(all), maxNearest)] {
		e.Nearest = append(e.Nearest, c.label)
	}
	// A larger distance is more likely another word than a misspelling.
	if len(all) > 0 && all[0].distance <= max(1, utf8.RuneCountInString(missing)/3) {
		e.Suggestion = all[0].label
	}
	return e
}

// nameDistance returns the edit distance of two names. It returns 1 if b begins or ends with a, or if a
// contains b between slashes or after a colon, as with a scheme or a file name.
func nameDistance(a, b string) int {
	// One or two letters begin or end too many names to mean one.
	part := len(a) > 2 && (strings.HasPrefix(b, a) || strings.HasSuffix(b, a))
	whole := len(b) > 2 && (strings.Contains("/"+a+"/", "/"+b+"/") || strings.HasSuffix(a, ":"+b))
	if a != b && (part || whole) {
		return 1
	}
	return EditDistance([]rune(a), []rune(b), maxCompare)
}

// EditDistance returns the number of characters to insert, delete, replace or swap with the next to get from
// a to b, or some number above limit if it is larger. Both must have at most 128 characters.
func EditDistance(a, b []rune, limit int) int {
	var rows [3][maxCompare + 1]int
	older, previous, current := &rows[0], &rows[1], &rows[2]
	for j := range len(b) + 1 {
		previous[j] = j
	}
	for i := range a {
		current[0] = i + 1
		least := i + 1
		for j := range b {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			n := min(previous[j]+cost, previous[j+1]+1, current[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				n = min(n, older[j-1]+1)
			}
			current[j+1] = n
			least = min(least, n)
		}
		if least > limit {
			return least // the minimum of later rows is not smaller
		}
		older, previous, current = previous, current, older
	}
	return previous[len(b)]
}
