package skills

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/skillsd/skillsd/skills/frontmatter"
)

// Severity says how much a diagnostic matters.
type Severity int

// The severities.
const (
	Info    Severity = iota // worth knowing
	Warning                 // something was repaired or left out
	Error                   // a skill or a root is not served
)

func (s Severity) String() string {
	switch s {
	case Info:
		return "info"
	case Warning:
		return "warning"
	}
	return "error"
}

// MarshalText returns the severity's name.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (s *Severity) UnmarshalText(text []byte) error {
	for _, known := range []Severity{Info, Warning, Error} {
		if known.String() == string(text) {
			*s = known
			return nil
		}
	}
	return fmt.Errorf("unknown severity %q", text)
}

// Code names what a diagnostic is about. The list is closed.
type Code string

// Codes of roots and of the scan.
const (
	CodeUnreadableRoot  Code = "unreadable-root"         // a root is missing, not a directory, or cannot be read
	CodeUnreadableDir   Code = "unreadable-directory"    // a directory or a link to one cannot be read
	CodeOutsideRoot     Code = "skill-scan-outside-root" // a link leads out of the root and of every allowed root
	CodeScanLimit       Code = "scan-limit-exceeded"     // more directories, or a larger SKILL.md, than the limit
	CodeMaxDepth        Code = "max-depth-exceeded"      // directories below the depth limit were not scanned
	CodeInvalidPath     Code = "invalid-path"            // a name that no path or URI can hold; what has it is left out
	CodeShadowed        Code = "shadowed"                // lost to a skill of another root with the same path, or one above or below it
	CodeDuplicateName   Code = "duplicate-skill-name"    // skills of one name at different paths; all are served
	CodeRequiresMissing Code = "requires-missing"        // the host lacks what the skill requires; it is not served
	CodeNotStrict       Code = "not-strict"              // only strictly valid skills are served, and this one is not
	CodeUnknownSkill    Code = "unknown-skill"           // the operator disabled, pinned or shortened a skill that is not there
)

// Codes of a SKILL.md.
const (
	CodeMisspeltFile        Code = "misspelt-skill-file"     // SKILL.md in another case, which not every system tells apart; no skill
	CodeUnreadableSkill     Code = "unreadable-skill"        // not a regular file, or it cannot be read
	CodeInvalidEncoding     Code = "invalid-encoding"        // not UTF-8, or it holds NUL
	CodeInvalidFrontmatter  Code = "invalid-frontmatter"     // the block cannot be understood, not even repaired
	CodeFrontmatterRepaired Code = "frontmatter-repaired"    // the skill was loaded only after a repair
	CodeMissingName         Code = "missing-name"            // the directory's name is used
	CodeMissingDescription  Code = "missing-description"     // nor a paragraph that could stand in; the skill is skipped
	CodeInvalidName         Code = "invalid-name"            // not lower-case letters and digits with single hyphens, or too long
	CodeNameMismatch        Code = "name-directory-mismatch" // the name is not the directory's
	CodeNotPublishable      Code = "not-publishable"         // not shown by the skills extension, with the rule
)

// Codes of the other files of a skill.
const (
	CodeUnreadableResource Code = "unreadable-skill-resource"    // not a regular file, or it cannot be read; left out
	CodeResourceOutside    Code = "skill-resource-outside-root"  // a link leads out of the skill; left out
	CodeResourceSize       Code = "resource-size-limit-exceeded" // larger than the limit; left out
	CodeResourceCount      Code = "resource-file-limit-exceeded" // more files than the limit; the rest is left out
)

// Codes of names.
const (
	CodeNameCollision  Code = "name-collision"  // paths that differ only by case or by the Unicode form of a letter; all are served
	CodeUnportableName Code = "unportable-name" // a file name that Windows cannot hold
)

// Codes of what a file says, counted once a file, with the line of the first. They are found by
// simple rules: they block nothing, miss what hides from them, and may be wrong.
const (
	CodeInvisibleText   Code = "invisible-text"   // tag characters, bidirectional controls, control characters, carriage returns within a line, zero-width characters where no script or emoji needs them
	CodeHTMLComment     Code = "html-comment"     // in Markdown outside of code, of more than three words: read by a model, not shown to a person
	CodePipeToShell     Code = "pipe-to-shell"    // a download or decoded text that is handed to a shell
	CodeDynamicCommand  Code = "dynamic-command"  // !`command`, which other clients run while they load a skill; here it is text
	CodeHooksIgnored    Code = "hooks-ignored"    // the frontmatter declares hooks; they never run
	CodeInjectionPhrase Code = "injection-phrase" // words that are known from attempts to take over a model
)

// Diagnostic is a fact about a skill, a file or a root that its author or the operator should know.
// Diagnostics of skills and files name no place of this machine; those of a snapshot may, since
// they are about roots.
type Diagnostic struct {
	Severity Severity `json:"severity"`
	Code     Code     `json:"code"`
	Detail   string   `json:"detail"` // one line, without text of a skill
	// Path is what it is about: a file of the skill, or, in a snapshot, a root or a path below one.
	Path string `json:"path,omitempty"`
	Line int    `json:"line,omitempty"` // in the file, from 1
}

// quoted shows a name that may hold anything, on one line.
func quoted(name string) string {
	return strconv.QuoteToASCII(frontmatter.Clip(strings.ToValidUTF8(name, "\ufffd"), frontmatter.MaxName))
}

func diagnose(severity Severity, code Code, path, format string, args ...any) Diagnostic {
	return Diagnostic{Severity: severity, Code: code, Path: path, Detail: fmt.Sprintf(format, args...)}
}
