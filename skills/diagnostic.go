package skills

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/skillsd/skillsd/skills/frontmatter"
)

// Severity is the severity of a diagnostic.
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

// UnmarshalText parses the name of a severity.
func (s *Severity) UnmarshalText(text []byte) error {
	at := slices.Index(severityNames, string(text))
	if at < 0 {
		return fmt.Errorf("unknown severity %q", text)
	}
	*s = Severity(at)
	return nil
}

// Code identifies the kind of a diagnostic. The list is closed.
type Code string

// Codes of roots and of the scan.
const (
	// CodeUnreadableRoot: a root is missing, not a directory, or cannot be read.
	CodeUnreadableRoot Code = "unreadable-root"
	// CodeUnreadableDir: a directory or a link to one cannot be read.
	CodeUnreadableDir Code = "unreadable-directory"
	// CodeOutsideRoot: a link leads out of the root and of every allowed root.
	CodeOutsideRoot Code = "skill-scan-outside-root"
	// CodeScanLimit: a limit was exceeded, by the number of directories or the size of a SKILL.md.
	CodeScanLimit Code = "scan-limit-exceeded"
	// CodeMaxDepth: directories below the depth limit were not scanned.
	CodeMaxDepth Code = "max-depth-exceeded"
	// CodeInvalidPath: a name cannot be part of a path or URI; the file or directory is left out.
	CodeInvalidPath Code = "invalid-path"
	// CodeCacheWrong: the scan cache disagreed with a file and was discarded.
	CodeCacheWrong Code = "cache-wrong"
	// CodeShadowed: another root serves a skill with the same path, or a path above or below it.
	CodeShadowed Code = "shadowed"
	// CodeDuplicateName: skills at different paths have one name; all are served.
	CodeDuplicateName Code = "duplicate-skill-name"
	// CodeRequiresMissing: the host lacks a requirement of the skill; it is not served.
	CodeRequiresMissing Code = "requires-missing"
	// CodeNotStrict: only strictly valid skills are served, and this skill is not valid.
	CodeNotStrict Code = "not-strict"
	// CodeUnknownSkill: the operator disabled, pinned or shortened a skill that does not exist.
	CodeUnknownSkill Code = "unknown-skill"
)

// Codes of a SKILL.md.
const (
	// CodeMisspeltFile: the name is SKILL.md in another case, which is the same file on some systems only.
	CodeMisspeltFile Code = "misspelt-skill-file"
	// CodeUnreadableSkill: SKILL.md is not a regular file, or cannot be read.
	CodeUnreadableSkill Code = "unreadable-skill"
	// CodeInvalidEncoding: SKILL.md is not UTF-8, or contains a NUL.
	CodeInvalidEncoding Code = "invalid-encoding"
	// CodeInvalidFrontmatter: the block cannot be parsed, even with repairs.
	CodeInvalidFrontmatter Code = "invalid-frontmatter"
	// CodeFrontmatterRepaired: the skill was loaded only after a repair.
	CodeFrontmatterRepaired Code = "frontmatter-repaired"
	// CodeMissingName: the frontmatter has no name; the name of the directory is used.
	CodeMissingName Code = "missing-name"
	// CodeMissingDescription: there is no description and no paragraph to use instead; the skill is skipped.
	CodeMissingDescription Code = "missing-description"
	// CodeInvalidName: the name is not of lower-case letters and digits with single hyphens, or too long.
	CodeInvalidName Code = "invalid-name"
	// CodeNameMismatch: the name differs from the name of the directory.
	CodeNameMismatch Code = "name-directory-mismatch"
	// CodeNotPublishable: the skills extension does not list the skill; the detail names the rule.
	CodeNotPublishable Code = "not-publishable"
)

// Codes of the other files of a skill.
const (
	// CodeUnreadableResource: not a regular file, or cannot be read; it is left out.
	CodeUnreadableResource Code = "unreadable-skill-resource"
	// CodeResourceOutside: a link leads out of the skill; it is left out.
	CodeResourceOutside Code = "skill-resource-outside-root"
	// CodeResourceSize: larger than the limit; it is left out.
	CodeResourceSize Code = "resource-size-limit-exceeded"
	// CodeResourceCount: the skill has more files than the limit; the rest is left out.
	CodeResourceCount Code = "resource-file-limit-exceeded"
)

// Codes of names.
const (
	// CodeNameCollision: paths differ only by case or by the Unicode form of a letter; all are served.
	CodeNameCollision Code = "name-collision"
	// CodeUnportableName: Windows does not allow this file name.
	CodeUnportableName Code = "unportable-name"
)

// Codes of suspicious content. Each is reported once per file, with the line of the first occurrence. With
// severity Info it is a fact about the skill, with Warning a reason to look at it. The rules are simple: they
// miss content that hides from them, and may be wrong. See package signal.
const (
	// CodeInvisibleText: tag characters, bidirectional controls, control characters, carriage returns within
	// a line, or zero-width characters where no script or emoji needs them.
	CodeInvisibleText Code = "invisible-text"
	// CodeHTMLComment: a comment of more than three words in Markdown, outside of code. A model reads it, a
	// reader of the rendered page does not see it. A warning if it gives orders.
	CodeHTMLComment Code = "html-comment"
	// CodePipeToShell: a download or decoded text is passed to a shell. A warning in a script, from an open
	// address (http, a numeric or unknown host), or decoded; an installer in prose is a fact.
	CodePipeToShell Code = "pipe-to-shell"
	// CodeDynamicCommand: !`command`, which other clients run while they load a skill; here it remains text.
	CodeDynamicCommand Code = "dynamic-command"
	// CodeHooksIgnored: the frontmatter declares hooks; they never run.
	CodeHooksIgnored Code = "hooks-ignored"
	// CodeInjectionPhrase: a phrase known from prompt injections, or secrets of the user that are sent.
	// Quoted, refused or in a lesson about attacks it is a fact.
	CodeInjectionPhrase Code = "injection-phrase"
	// CodeAgentConfig: an instruction to change a file that configures an agent: CLAUDE.md, AGENTS.md,
	// settings with hooks and permissions, MCP servers. A warning if a script writes it, or it is to happen
	// without the user.
	CodeAgentConfig Code = "agent-configuration"
	// CodeRunsUnasked: a file that programs run on their own where they find it: conftest.py,
	// sitecustomize.py, .pth, .envrc, install scripts in a package.json.
	CodeRunsUnasked Code = "runs-unasked"
	// CodeSecretFile: a file that looks, by its name or first line, like a private key, or like one with
	// passwords or tokens. It keeps no skill from being served.
	CodeSecretFile Code = "secret-file"
)

// fixes is the remedy for each code, for the author of a skill or the operator.
var fixes = map[Code]string{
	CodeUnreadableRoot:  "make it a readable directory or a sound zip archive, or leave it out",
	CodeUnreadableDir:   "make the directory readable, or remove the link",
	CodeOutsideRoot:     "copy the target here; a directory can be allowed with --allow-root instead",
	CodeScanLimit:       "split what is too large, or raise --scan-limit; a SKILL.md has 1 MiB at most",
	CodeMaxDepth:        "move the skills up, or raise the limit with --scan-limit depth=N",
	CodeInvalidPath:     "rename it without control characters, backslashes and invalid UTF-8",
	CodeCacheWrong:      "nothing, unless it comes again: then the disk or its clock is not to be trusted",
	CodeShadowed:        "rename one of the two directories, give one directory a prefix, or remove one",
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

	CodeNameCollision: "rename all but one: on systems that ignore case or the form of letters, " +
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
	CodeSecretFile:      "remove it, since it goes wherever the skill goes",
}

// Fix returns a phrase with the remedy for a diagnostic with this code, or "" for an unknown code.
func (c Code) Fix() string { return fixes[c] }

// Fix returns a phrase with the remedy for the diagnostic.
func (d *Diagnostic) Fix() string {
	switch {
	case d.Code == CodeFrontmatterRepaired:
		return frontmatter.Fix(d.Detail)
	case d.Code == CodeOutsideRoot && d.Severity == Error: // the link is a skill file
		return "put the file here in place of the link"
	}
	return d.Code.Fix()
}

// Diagnostic is a problem of a skill, a file or a root, for its author or the operator. Diagnostics of skills
// and files contain no path of this machine; the diagnostics of a snapshot may, since they are about roots.
type Diagnostic struct {
	Severity Severity `json:"severity"`
	Code     Code     `json:"code"`
	Detail   string   `json:"detail"` // one line, without text from a skill
	// Path is a file of the skill, or, in a snapshot, a root or a path below a root.
	Path string `json:"path,omitempty"`
	Line int    `json:"line,omitempty"` // in the file, from 1
}

// quoted returns any name in quotes, on one line.
func quoted(name string) string {
	return strconv.QuoteToASCII(frontmatter.Clip(strings.ToValidUTF8(name, "\ufffd"), frontmatter.MaxName))
}

func diagnose(severity Severity, code Code, path, format string, args ...any) Diagnostic {
	return Diagnostic{Severity: severity, Code: code, Path: path, Detail: fmt.Sprintf(format, args...)}
}
