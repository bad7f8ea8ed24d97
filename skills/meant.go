package skills

import (
	"path"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// plainly returns a path without quotes, and with slashes for backslashes.
func plainly(written string) string {
	return strings.ReplaceAll(strings.Trim(written, " \t\r\n`'\""), `\`, "/")
}

// Within returns the paths in the skill that a path, as written by a model or user, may mean: in quotes,
// with backslashes, absolute, or after the URI, the name or a directory of the skill, or after a placeholder
// for one ({baseDir}, ${CLAUDE_PLUGIN_ROOT}). "" is the skill itself. All are canonical; a path with ".." or
// another scheme means nothing.
func (s *Skill) Within(written string) (within []string) {
	p := plainly(written)
	if p == "" {
		return nil
	}
	if named, err := ParseURI(p); err == nil {
		p = named
	}
	// A path that leads up could mean a file outside of the skill, so it is refused and not guessed.
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
	holder, rest, _ := strings.Cut(p, "/")
	// Skills are written for clients with their own words for the directory: {baseDir},
	// ${CLAUDE_PLUGIN_ROOT}, <path-to-skill>, %SKILL_DIR%.
	if rest != "" && holder != "" && strings.Contains("{$<%", holder[:1]) {
		if own, isOwn := strings.CutPrefix(rest, "skills/"+path.Base(s.Path)+"/"); isOwn {
			add(own)
			return within
		}
		if strings.Contains(holder, "PLUGIN_ROOT") {
			add(PluginDir + "/" + rest)
		}
		add(rest)
	}
	add(p)
	if rest, ok := strings.CutPrefix(p+"/", "/skill/"); ok { // the path of the skill in a sandbox
		add(rest)
	}
	whole := "/" + p + "/"
	for _, own := range []string{s.Path, s.Name(), path.Base(s.Path)} {
		// The last occurrence is the directory of the skill: its name may occur above it too, as in
		// /srv/pdf/skills/pdf.
		if i := strings.LastIndex(whole, "/"+own+"/"); own != "" && i >= 0 {
			add(whole[i+len(own)+2:])
		}
	}
	return within
}

// Meant returns the file that a written path means, or "" if no single file is the closest. The path may
// differ in case and in separators of words, or lack the extension or the directory; a file that differs less
// takes precedence.
func (s *Skill) Meant(written string, files []string) string {
	if strings.HasPrefix(plainly(written), "../") {
		return inPlugin(plainly(written), files)
	}
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
			// A second file of the same level leaves the meaning open.
			meant, least, alone = file, level, level < least
			break
		}
	}
	if !alone {
		return ""
	}
	return meant
}

// inPlugin returns the file of the skill's plugin that a path means that leads up from the skill, if there
// is one such file.
func inPlugin(written string, files []string) (meant string) {
	for strings.HasPrefix(written, "../") {
		written = written[3:]
	}
	clean, err := CleanPath(written)
	if err != nil || clean != written {
		return ""
	}
	for _, file := range files {
		if !strings.HasPrefix(file, PluginDir+"/") || !strings.HasSuffix(file, "/"+clean) {
			continue
		}
		if meant != "" {
			return ""
		}
		meant = file
	}
	return meant
}

// likeness lists how a file can match a path, closest first. Both are folded.
var likeness = []func(file, p string) bool{
	func(file, p string) bool { return file == p },
	func(file, p string) bool { return withoutExtension(file, p) == p },
	func(file, p string) bool { return strings.HasSuffix(file, "/"+p) },
	func(file, p string) bool { return strings.HasSuffix(withoutExtension(file, p), "/"+p) },
}

// withoutExtension returns a file's path, without its extension if p has none.
func withoutExtension(file, p string) string {
	if path.Ext(p) != "" {
		return file
	}
	return strings.TrimSuffix(file, path.Ext(file))
}

// joiners maps characters between words that are often confused to one of them.
var joiners = strings.NewReplacer("_", "-", " ", "-")

// folded returns a path in the form used for comparison.
func folded(p string) string { return joiners.Replace(strings.ToLower(norm.NFC.String(p))) }
