package skills

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/skillsd/skillsd/skills/frontmatter"
)

// Severity is how much a diagnostic matters.
type Severity int

// The severities.
const (
	Info    Severity = iota // worth knowing
	Warning                 // something was repaired or left out
	Error                   // a skill or a root is not served
)

var severityNames = []string{"info", "warning", "error"}

func (s Severity) String() string { return severityNames[s] }

// MarshalText returns the severity's name.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (s *Severity) UnmarshalText(text []byte) error {
	at := slices.Index(severityNames, string(text))
	if at < 0 {
		return fmt.Errorf("unknown severity %q", text)
	}
	*s = Severity(at)
	return nil
}

// Code names what a diagnostic is about. The list is closed.
type Code string

// Codes of roots and of the scan.
const (
	// CodeUnreadableRoot: a root is missing, not a directory, or cannot be read.
	CodeUnreadableRoot Code = "unreadable-root"
	// CodeUnreadableDir: a directory or a link to one cannot be read.
	CodeUnreadableDir Code = "unreadable-directory"
	// CodeOutsideRoot: a link leads out of the root and of every allowed root.
	CodeOutsideRoot Code = "skill-scan-outside-root"
	// CodeScanLimit: there are more directories, or a larger SKILL.md, than the limit.
	CodeScanLimit Code = "scan-limit-exceeded"
	// CodeMaxDepth: directories below the depth limit were not scanned.
	CodeMaxDepth Code = "max-depth-exceeded"
	// CodeInvalidPath: no path or URI can have the name; what has it is left out.
	CodeInvalidPath Code = "invalid-path"
	// CodeCacheWrong: what was kept of earlier scans was not what the files say, and was discarded.
	CodeCacheWrong Code = "cache-wrong"
	// CodeShadowed: a skill of another root with the same path, or one above or below it, is served.
	CodeShadowed Code = "shadowed"
	// CodeDuplicateName: skills at different paths have one name; all are served.
	CodeDuplicateName Code = "duplicate-skill-name"
	// CodeRequiresMissing: the host lacks what the skill requires; it is not served.
	CodeRequiresMissing Code = "requires-missing"
	// CodeNotStrict: only strictly valid skills are served, and this one is not.
	CodeNotStrict Code = "not-strict"
	// CodeUnknownSkill: the operator disabled, pinned or shortened a skill that does not exist.
	CodeUnknownSkill Code = "unknown-skill"
)

// Codes of a SKILL.md.
const (
	// CodeMisspeltFile: the name is SKILL.md in another case, which some systems take for the same; the
	// directory is not a skill.
	CodeMisspeltFile Code = "misspelt-skill-file"
	// CodeUnreadableSkill: not a regular file, or it cannot be read.
	CodeUnreadableSkill Code = "unreadable-skill"
	// CodeInvalidEncoding: not UTF-8, or it has a NUL.
	CodeInvalidEncoding Code = "invalid-encoding"
	// CodeInvalidFrontmatter: the block cannot be understood, not even repaired.
	CodeInvalidFrontmatter Code = "invalid-frontmatter"
	// CodeFrontmatterRepaired: the skill was loaded only after a repair.
	CodeFrontmatterRepaired Code = "frontmatter-repaired"
	// CodeMissingName: the directory's name is used.
	CodeMissingName Code = "missing-name"
	// CodeMissingDescription: there is not even a paragraph to use; the skill is skipped.
	CodeMissingDescription Code = "missing-description"
	// CodeInvalidName: not lower-case letters and digits with single hyphens, or too long.
	CodeInvalidName Code = "invalid-name"
	// CodeNameMismatch: the name is not the directory's.
	CodeNameMismatch Code = "name-directory-mismatch"
	// CodeNotPublishable: the skills extension does not show it; the detail names the rule.
	CodeNotPublishable Code = "not-publishable"
)

// Codes of the other files of a skill.
const (
	// CodeUnreadableResource: not a regular file, or it cannot be read; it is left out.
	CodeUnreadableResource Code = "unreadable-skill-resource"
	// CodeResourceOutside: a link leads out of the skill; it is left out.
	CodeResourceOutside Code = "skill-resource-outside-root"
	// CodeResourceSize: larger than the limit; it is left out.
	CodeResourceSize Code = "resource-size-limit-exceeded"
	// CodeResourceCount: more files than the limit; the others are left out.
	CodeResourceCount Code = "resource-file-limit-exceeded"
)

// Codes of names.
const (
	// CodeNameCollision: paths differ only by case or by the Unicode form of a letter; all are served.
	CodeNameCollision Code = "name-collision"
	// CodeUnportableName: Windows has no file of this name.
	CodeUnportableName Code = "unportable-name"
)

// Codes of what a file says, counted once a file, with the line of the first. They are found by
// simple rules: they block nothing, miss what hides from them, and may be wrong. See package signal.
const (
	// CodeInvisibleText: tag characters, bidirectional controls, control characters, carriage returns
	// within a line, zero-width characters where no script or emoji needs them.
	CodeInvisibleText Code = "invisible-text"
	// CodeHTMLComment: in Markdown outside of code, of more than three words. A model reads it, a person
	// does not see it.
	CodeHTMLComment Code = "html-comment"
	// CodePipeToShell: a download or decoded text is passed to a shell.
	CodePipeToShell Code = "pipe-to-shell"
	// CodeDynamicCommand: !`command`, which other clients run while they load a skill; here it is text.
	CodeDynamicCommand Code = "dynamic-command"
	// CodeHooksIgnored: the frontmatter declares hooks; they never run.
	CodeHooksIgnored Code = "hooks-ignored"
	// CodeInjectionPhrase: words known from attempts to take over a model.
	CodeInjectionPhrase Code = "injection-phrase"
	// CodeAgentConfig: an order to change a file that configures an agent: CLAUDE.md, AGENTS.md, settings
	// with hooks and permissions, MCP servers.
	CodeAgentConfig Code = "agent-configuration"
	// CodeRunsUnasked: programs run it by themselves where they find it: conftest.py, sitecustomize.py, .pth,
	// .envrc, install scripts of a package.json.
	CodeRunsUnasked Code = "runs-unasked"
)

// fixes is what the author of a skill, or the operator, does about each code.
var fixes = map[Code]string{
	CodeUnreadableRoot:  "make it a readable directory or a sound zip archive, or leave the root out",
	CodeUnreadableDir:   "make the directory readable, or remove the link",
	CodeOutsideRoot:     "copy the target here; a directory can be allowed with --allow-root instead",
	CodeScanLimit:       "split what is too large, or raise --scan-limit; a SKILL.md has 1 MiB at most",
	CodeMaxDepth:        "move the skills up, or raise the limit with --scan-limit depth=N",
	CodeInvalidPath:     "rename it without control characters, backslashes and invalid UTF-8",
	CodeCacheWrong:      "nothing, unless it comes again: then the disk or its clock is not to be trusted",
	CodeShadowed:        "rename one of the two directories, give one root a prefix, or remove one",
	CodeDuplicateName:   "rename all but one, or use their paths",
	CodeRequiresMissing: "install what is missing or set the variable, then start again",
	CodeNotStrict:       "correct what `skillsd validate` lists, or use --validation lenient",
	CodeUnknownSkill:    "use a path or a name that `skillsd list` prints",

	CodeMisspeltFile:    "rename the file to SKILL.md",
	CodeUnreadableSkill: "make SKILL.md a regular file that can be read",
	CodeInvalidEncoding: "save SKILL.md as UTF-8 text without NUL bytes",
	CodeInvalidFrontmatter: "make it plain YAML between two lines ---: keys and values, without anchors " +
		"and tags, in 64 KiB",
	CodeFrontmatterRepaired: "write what was meant, so that every client reads it alike",
	CodeMissingName:         "add name: with the name of the directory",
	CodeMissingDescription:  "add description: and say what the skill does and when to use it",
	CodeInvalidName:         "use 1 to 64 lower-case letters, digits and single hyphens between them",
	CodeNameMismatch:        "give the directory the skill's name, or the skill the directory's",
	CodeNotPublishable:      "follow the rule named here; until then only the tools serve the skill",

	CodeUnreadableResource: "make it a regular file that can be read, or remove it",
	CodeResourceOutside:    "copy the target into the skill in place of the link",
	CodeResourceSize:       "make the file smaller, or keep it out of the skill",
	CodeResourceCount:      "remove files from the skill, or split it",

	CodeNameCollision: "rename all but one: where case or the form of letters does not count " +
		"they are one file",
	CodeUnportableName: "rename it without the characters and names that Windows reserves",

	CodeInvisibleText: "read what the invisible characters hide before trusting the skill, and remove them",
	CodeHTMLComment:   "read the comment, a model sees it; remove what is not meant for one",
	CodePipeToShell: "check what is downloaded by its digest before it runs, or ship it as a script " +
		"of the skill",
	CodeDynamicCommand:  "write what the command would print, or make it a script: it is never expanded",
	CodeHooksIgnored:    "remove the hooks, they are never run",
	CodeInjectionPhrase: "read the sentence before trusting the skill, and reword it if it is harmless",
	CodeAgentConfig:     "read what would be written: an agent obeys it in every later session",
	CodeRunsUnasked:     "read it before a test, an installation or a shell in its directory runs it",
}

// Fix returns in one phrase what to do about a diagnostic of this code. It is empty only for a code
// outside of the list.
func (c Code) Fix() string { return fixes[c] }

// Fix returns in one phrase what to do about the diagnostic.
func (d *Diagnostic) Fix() string {
	switch {
	case d.Code == CodeFrontmatterRepaired:
		return frontmatter.Fix(d.Detail)
	case d.Code == CodeOutsideRoot && d.Severity == Error: // of a skill file
		return "put the file here in place of the link"
	}
	return d.Code.Fix()
}

// Diagnostic is a fact about a skill, a file or a root that its author or the operator should know.
// Diagnostics of skills and files name no place of this machine; the diagnostics of a snapshot may,
// since they are about roots.
type Diagnostic struct {
	Severity Severity `json:"severity"`
	Code     Code     `json:"code"`
	Detail   string   `json:"detail"` // one line, without text of a skill
	// Path is what it is about: a file of the skill, or, in a snapshot, a root or a path below one.
	Path string `json:"path,omitempty"`
	Line int    `json:"line,omitempty"` // in the file, from 1
}

// quoted returns a name that may hold anything, on one line.
func quoted(name string) string {
	return strconv.QuoteToASCII(frontmatter.Clip(strings.ToValidUTF8(name, "\ufffd"), frontmatter.MaxName))
}

func diagnose(severity Severity, code Code, path, format string, args ...any) Diagnostic {
	return Diagnostic{Severity: severity, Code: code, Path: path, Detail: fmt.Sprintf(format, args...)}
}
