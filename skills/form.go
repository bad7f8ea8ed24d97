package skills

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/skillsd/skillsd/skills/frontmatter"
)

// Form describes how well-formed a SKILL.md is. Every skill of a snapshot can be loaded, whatever its form.
type Form struct {
	// Strict is true if the reference validator (skills-ref) accepts the skill, see [frontmatter.Validate].
	Strict bool `json:"strict"`
	// Publishable is true if the skills extension may list the SKILL.md. The limits on a skill's files are
	// checked separately, see [Index].
	Publishable bool `json:"publishable"`
	// Repaired is true if the frontmatter could be parsed only after repairs, or lacked the description.
	Repaired bool `json:"repaired"`
}

// setForm sets the form of a skill and adds the diagnostics that explain it. It is called before the skill is
// shared between goroutines.
func (s *Skill) setForm(doc *frontmatter.Document) {
	dir, name := s.dirName(), s.Frontmatter.Name
	s.Form.Repaired = doc.Repaired()
	s.Form.Strict = doc.StrictName != "" && s.File != "" && norm.NFKC.String(dir) == doc.StrictName
	note := func(severity Severity, code Code, detail string) {
		s.Diagnostics = append(s.Diagnostics, diagnose(severity, code, s.File, "%s", detail))
	}
	var rules []string
	if strings.EqualFold(s.File, upperFile) && s.File != upperFile && s.File != lowerFile {
		note(Warning, CodeMisspeltFile, "the name is not SKILL.md but the same in another case; "+
			"clients on other systems do not find it")
		rules = append(rules, "the file is not named SKILL.md")
		s.Form.Strict = false
	}
	if doc.Repaired() {
		rules = append(rules, "the frontmatter was repaired")
	}
	switch {
	case name == "":
		note(Warning, CodeMissingName, "there is no name; the directory's name is used")
		rules = append(rules, "there is no name")
	case !frontmatter.Publishable(name):
		note(Warning, CodeInvalidName, "the name is not 1 to 64 lower-case letters and digits with "+
			"single hyphens between them")
		rules = append(rules, "the name is invalid")
	}
	// The catalogue of the extension identifies a skill by the last segment of its URI, which must equal the
	// name.
	if name != "" && name != dir {
		note(Warning, CodeNameMismatch, "the name is not the name of the directory")
		rules = append(rules, "the name is not the last segment of the path")
	}
	if utf8.RuneCountInString(s.Frontmatter.Description) > frontmatter.MaxDescription {
		rules = append(rules, "the description has more than 1024 characters")
	}
	s.Form.Publishable = len(rules) == 0
	if len(rules) > 0 {
		note(Info, CodeNotPublishable, strings.Join(rules, "; "))
	}
}

// errKept is the error for a skill beyond the frontmatter limit of its root.
var errKept = errors.New("there is too much frontmatter")

// parseCodes maps kinds of parse errors to codes; other kinds are CodeInvalidFrontmatter.
var parseCodes = map[frontmatter.Kind]Code{
	frontmatter.Encoding:      CodeInvalidEncoding,
	frontmatter.NoDescription: CodeMissingDescription,
}

// unloadable returns the diagnostic for a skill that was skipped. The caller sets its path.
func unloadable(err error) Diagnostic {
	var invalid *frontmatter.Error
	switch {
	case errors.As(err, &invalid):
		d := diagnose(Error, cmp.Or(parseCodes[invalid.Kind], CodeInvalidFrontmatter), "", "%s",
			invalid.Reason)
		d.Line = invalid.Line
		return d
	case errors.Is(err, errKept):
		return diagnose(Error, CodeScanLimit, "",
			"the skills of its root before it have more than %d bytes of frontmatter", maxKept)
	case errors.Is(err, ErrTooLarge):
		return diagnose(Error, CodeScanLimit, "", "the file has more than %d bytes", MaxSkillFile)
	case errors.Is(err, ErrOutsideRoot):
		return diagnose(Error, CodeOutsideRoot, "",
			"the file is a link out of its root, or not to another SKILL.md")
	case errors.Is(err, ErrNotFound):
		return diagnose(Error, CodeUnreadableSkill, "", "the file is a link to nothing")
	}
	return diagnose(Error, CodeUnreadableSkill, "", "the file cannot be read: %v", err)
}

// violated returns a list with one violation of a strict rule.
func violated(rule, fix, format string, args ...any) []frontmatter.Violation {
	return []frontmatter.Violation{{Rule: rule, Message: fmt.Sprintf(format, args...), Fix: fix}}
}

// ValidateDir applies the strict rules to a directory, whose name is the last element of its absolute path.
// It reads a regular file of at most MaxSkillFile bytes, or one behind a link: within the directory, or a
// SKILL.md of another directory, as a root that contains both would serve it. Any other file violates V3, and
// so does a canceled ctx.
func ValidateDir(ctx context.Context, dir string) []frontmatter.Violation {
	shown := frontmatter.Shown(dir)
	absolute, err := filepath.Abs(dir)
	var info fs.FileInfo
	if err == nil {
		info, err = os.Stat(absolute)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return violated("V1", "name an existing directory", "Path does not exist: %s", shown)
	case err != nil:
		return violated("V1", "allow this user to read it", "Path cannot be read: %s", shown)
	case !info.IsDir():
		return violated("V2", "name the directory of a skill", "Not a directory: %s", shown)
	}
	// The reference validator follows a link to another SKILL.md, so the file is read from the directory that
	// holds it; the rules about names apply to the given directory.
	holder := absolute
	if target, err := filepath.EvalSymlinks(filepath.Join(absolute, upperFile)); err == nil &&
		filepath.Base(target) == upperFile {
		holder = filepath.Dir(target)
	}
	root, err := os.OpenRoot(holder)
	if err != nil {
		return violated("V3", "allow this user to read it", "The directory cannot be read")
	}
	t := osTree{root}
	defer t.close()
	return validateTree(ctx, t, filepath.Base(absolute))
}

// Violations applies the strict rules to the current file of the skill.
func (s *Skill) Violations(ctx context.Context) []frontmatter.Violation {
	t, err := s.location.open()
	if err != nil {
		return violated("V3", "allow this user to read it", "The directory cannot be read: %v", err)
	}
	defer t.close()
	return validateTree(ctx, t, s.dirName())
}

// validateTree applies the strict rules to the skill file of a directory.
func validateTree(ctx context.Context, t tree, dirName string) []frontmatter.Violation {
	for _, name := range []string{upperFile, lowerFile} {
		if err := ctx.Err(); err != nil {
			return violated("V3", "try again", "%s was not read: %v", name, err)
		}
		data, _, err := readTree(t, name, MaxSkillFile, nil)
		switch {
		case err == nil:
			return frontmatter.Validate(dirName, name, data)
		case errors.Is(err, ErrTooLarge):
			return violated("V3", "move parts of it into files it refers to",
				"%s has more than %d bytes", name, MaxSkillFile)
		case !errors.Is(err, ErrNotFound):
			return violated("V3", "make it a regular file of this directory", "%s cannot be read: %v", name,
				err)
		}
	}
	return frontmatter.MissingFile()
}
