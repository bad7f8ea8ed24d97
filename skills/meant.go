package skills

import (
	"path"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// Within returns the paths within the skill that a path can stand for as models and people write it: in
// quotes, with backslashes, absolute, or behind the URI, the name or a directory of the skill. An empty one
// is the skill itself. All are canonical; with ".." or another scheme it stands for nothing.
func (s *Skill) Within(written string) (within []string) {
	p := strings.ReplaceAll(strings.Trim(written, " \t\r\n`'\""), `\`, "/")
	if p == "" {
		return nil
	}
	if named, err := ParseURI(p); err == nil {
		p = named
	}
	if hasScheme(p) || slices.Contains(strings.Split(p, "/"), "..") {
		return nil
	}
	add := func(p string) {
		clean := ""
		p = strings.Trim(p, "/")
		if p != "" && p != "." {
			var err error
			clean, err = CleanPath(p)
			if err != nil {
				return
			}
		}
		if !slices.Contains(within, clean) {
			within = append(within, clean)
		}
	}
	add(p)
	if rest, ok := strings.CutPrefix(p+"/", "/skill/"); ok { // where scripts see it
		add(rest)
	}
	whole := "/" + p + "/"
	for _, own := range []string{s.Path, s.Name(), path.Base(s.Path)} {
		if i := strings.LastIndex(whole, "/"+own+"/"); own != "" && i >= 0 {
			add(whole[i+len(own)+2:])
		}
	}
	return within
}

// Meant returns which of some files of the skill a written path means, "" unless that can be one alone. The
// path may differ in case and in what joins words, lack the extension, or lack the directory; a file that
// differs less is meant before another one.
func (s *Skill) Meant(written string, files []string) string {
	within := s.Within(written)
	for i := range within {
		within[i] = folded(within[i])
	}
	meant, least, alone := "", len(likeness), false
	for _, file := range files {
		at := folded(file)
		for level, like := range likeness[:min(least+1, len(likeness))] {
			if !slices.ContainsFunc(within, func(p string) bool { return p != "" && like(at, p) }) {
				continue
			}
			meant, least, alone = file, level, level < least
			break
		}
	}
	if !alone {
		return ""
	}
	return meant
}

// likeness is how a file can be like a path, closest first. Both are folded.
var likeness = []func(file, p string) bool{
	func(file, p string) bool { return file == p },
	func(file, p string) bool { return withoutExtension(file, p) == p },
	func(file, p string) bool { return strings.HasSuffix(file, "/"+p) },
	func(file, p string) bool { return strings.HasSuffix(withoutExtension(file, p), "/"+p) },
}

// withoutExtension returns a file's path without its extension if p has none.
func withoutExtension(file, p string) string {
	if path.Ext(p) != "" {
		return file
	}
	return strings.TrimSuffix(file, path.Ext(file))
}

// joiners are characters between words that people mistake for each other.
var joiners = strings.NewReplacer("_", "-", " ", "-")

// folded returns a path in the form in which two are compared.
func folded(p string) string { return joiners.Replace(strings.ToLower(norm.NFC.String(p))) }
