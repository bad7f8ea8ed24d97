package skills

import (
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/skillsd/skillsd/skills/frontmatter"
)

// Verdict is what a SKILL.md is good for. Every skill of a snapshot can be loaded.
type Verdict struct {
	// Strict is that of the reference validator (skills-ref): [Validate] finds nothing.
	Strict bool
	// Publishable: SKILL.md may be shown by the skills extension. The limits on a skill's files are
	// not part of it, see [Index].
	Publishable bool
	// Repaired: the frontmatter did not parse, or lacked the description, as it is.
	Repaired bool
}

// judge sets the verdict of a skill and adds the diagnostics that explain it. It is called before
// the skill is published.
func (s *Skill) judge(doc *frontmatter.Document) {
	dir, name := s.dirName(), s.Frontmatter.Name
	s.Verdict.Repaired = doc.Repaired()
	s.Verdict.Strict = doc.StrictName != "" && s.File != "" && norm.NFKC.String(dir) == doc.StrictName
	note := func(severity Severity, code Code, detail string) {
		s.Diagnostics = append(s.Diagnostics, Diagnostic{Severity: severity, Code: code, Path: s.File, Detail: detail})
	}
	var rules []string
	if doc.Repaired() {
		rules = append(rules, "the frontmatter was repaired")
	}
	switch {
	case name == "":
		note(Warning, CodeMissingName, "there is no name; the directory's name is used")
		rules = append(rules, "there is no name")
	case !frontmatter.Publishable(name):
		note(Warning, CodeInvalidName, "the name is not 1 to 64 lower-case letters and digits with single hyphens between them")
		rules = append(rules, "the name is invalid")
	}
	if name != "" && name != dir {
		note(Warning, CodeNameMismatch, "the name is not that of the directory")
		rules = append(rules, "the name is not the last segment of the path")
	}
	if utf8.RuneCountInString(s.Frontmatter.Description) > frontmatter.MaxDescription {
		rules = append(rules, "the description has more than 1024 characters")
	}
	s.Verdict.Publishable = len(rules) == 0
	if len(rules) > 0 {
		note(Info, CodeNotPublishable, strings.Join(rules, "; "))
	}
}
