package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/pattern"
	sh "github.com/skillsd/skillsd/skills/script"
)

// Entry allows one script. The zero values of its options are the defaults.
type Entry struct {
	Skill string        // the skill's path; its frontmatter name is chosen by the skill, so it is not used
	Path  string        // of the script
	Pin   digest.Digest // of the script; empty: the skill's tree at server start is pinned
	// of all files of the skill, with a Pin; empty: the other files may change
	Tree digest.Digest
	// PinScript pins only the script, by Pin or by its digest at server start: a run uses the other files of
	// the skill as they are on disk. It excludes a Tree.
	PinScript bool

	Network []string // exact hosts that a run may reach; none by default
	Env     []string // names of variables passed through
	Secrets []string // names of secrets in the environment
	Release Release  // empty: the policy's default
	Ask     Ask      // empty: AskTier
	Target  Target   // empty: TargetSandbox

	Workspace string        // none, ro, staged or rw; empty: the grant for all scripts
	Timeout   time.Duration // maximum, and default for calls; 0: the server's
	Memory    int64         // bytes; 0: the server's
	Execution string        // "stdin": its interpreter reads the script there; empty: from the stored tree

	// name of the environment of packages for the script; empty: none
	Environment string

	// SearchPath lists absolute directories in which a script on the host finds programs, before the default
	// ones. PATH of the server is not used, since the user that starts the server controls it.
	SearchPath []string
}

// Ask is how often the user is asked about runs of an entry.
type Ask string

// The values of Ask. With AskNever, the operator approves these exact bytes: it needs a Pin.
const (
	AskTier    Ask = "tier"    // as the skill's tier requires
	AskAlways  Ask = "always"  // before every run
	AskSession Ask = "session" // until they allow the script for the rest of the session
	AskNever   Ask = "never"
)

// EntryError reports an invalid allowlist entry.
type EntryError struct{ Spec, Reason string }

func (e *EntryError) Error() string { return fmt.Sprintf("%s: %q", e.Reason, Clip(e.Spec)) }

const (
	pinMark   = "@sha256:"
	pinScript = "script" // the value of the option pin
)

var segment = pattern.New(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// isSkillPath reports whether a text may be the path of a skill in the configuration: canonical, with
// directory names that users can read and type. An operator who allows a script must see the whole path of
// its skill, so no path may look like another one or like a pattern.
func isSkillPath(path string) bool {
	odd := func(r rune) bool { return r != ' ' && !unicode.IsGraphic(r) || r > ' ' && unicode.IsSpace(r) }
	clean, err := skills.CleanPath(path)
	// A leading hyphen would be read as a flag by `skillsd allow`, and a colon ends the path in an entry.
	return err == nil && clean == path && path[0] != '-' && !strings.ContainsAny(path, ":*?[") &&
		!strings.ContainsFunc(path, odd) && !slices.ContainsFunc(strings.Split(path, "/"),
		func(name string) bool { return strings.TrimSpace(name) != name })
}

// InPlugin returns PLUGIN/SKILL:PATH for PLUGIN:SKILL:PATH, as clients write the skills of plugins. Neither a
// skill nor a script has a colon in its path, so no entry has this form.
func InPlugin(spec string) (string, bool) {
	parts := strings.SplitN(spec, ":", 3)
	if len(parts) < 3 || strings.Contains(parts[1], "/") {
		return "", false
	}
	skill := parts[0] + "/" + parts[1]
	file, _, _ := strings.Cut(parts[2], ":")
	file, _, _ = strings.Cut(file, pinMark)
	if _, err := skills.CleanScriptPath(file); err != nil || !isSkillPath(skill) {
		return "", false
	}
	return skill + ":" + parts[2], true
}

// ParseEntry parses SKILL:PATH[@sha256:HEX], with the path of a script (see [skills.CleanScriptPath]),
// optionally followed by ":execution=stdin" and ":pin=script". It splits at the first ":" and the last
// "@sha256:", and cuts options off the end. A script path contains no ":", so it cannot look like an option.
// Names are exact: there are no patterns.
//
// Errors: *EntryError.
func ParseEntry(spec string) (Entry, error) {
	refuse := func(reason string) (Entry, error) { return Entry{}, &EntryError{Spec: spec, Reason: reason} }
	skill, rest, ok := strings.Cut(spec, ":")
	skill = strings.Trim(skill, " ")
	if !ok || skill == "" || strings.TrimSpace(rest) == "" {
		return refuse("an entry must have the form SKILL:scripts/PATH")
	}
	if !isSkillPath(skill) {
		return refuse("a skill's path has directories with / between them, as `skillsd list` prints " +
			"it, without " +
			`\, :, *, ?, [, a leading - and characters that cannot be seen`)
	}
	entry := Entry{Skill: skill}
	for {
		// From the end, since only options may follow the last colon: paths contain none.
		at := strings.LastIndexByte(rest, ':')
		name, value, ok := strings.Cut(rest[at+1:], "=")
		if at < 0 || !ok {
			break
		}
		switch {
		case name == "execution" && value == ExecutionStdin && entry.Execution == "":
			entry.Execution = value
		case name == "pin" && value == pinScript && !entry.PinScript:
			entry.PinScript = true
		default:
			return refuse("after the script there may be :execution=stdin and :pin=script, once each")
		}
		rest = rest[:at]
	}
	if at := strings.LastIndex(rest, pinMark); at >= 0 {
		entry.Pin = digest.Digest(strings.Trim(rest[at+1:], " "))
		// A pin that no digest can equal would look like a decision and allow nothing.
		if entry.Pin.Validate() != nil {
			return refuse("a pin is @sha256: and 64 lower-case hexadecimal digits")
		}
		rest = rest[:at]
	}
	path, err := skills.CleanScriptPath(rest)
	if full, ok := InPlugin(spec); err != nil && ok {
		return refuse("a skill of a plugin is written as " + full)
	}
	if err != nil {
		return refuse(err.Error())
	}
	entry.Path = path
	return entry, nil
}

// Allowlist holds exact entries. The zero value allows nothing.
type Allowlist struct {
	entries []Entry
	index   map[scriptKey][]Entry
}

type scriptKey struct{ skill, path string }

// ParseAllowlist parses entries; equal ones collapse, and the order is kept. Two entries of one script with
// different pins allow either content. Next to a pinned entry, an entry without a pin allows nothing: an
// added line never loosens a pin.
//
// Errors: *EntryError for the first invalid entry.
func ParseAllowlist(specs []string) (Allowlist, error) {
	entries := make([]Entry, 0, len(specs))
	for _, spec := range specs {
		entry, err := ParseEntry(spec)
		if err != nil {
			return Allowlist{}, err
		}
		entries = append(entries, entry)
	}
	return NewAllowlist(entries)
}

// Len returns the number of entries.
func (a Allowlist) Len() int { return len(a.entries) }

// Entries returns the entries in the order given.
func (a Allowlist) Entries() []Entry { return slices.Clone(a.entries) }

// Find returns the entries for exactly this script. The caller must not change them.
func (a Allowlist) Find(skill, path string) []Entry {
	return a.index[scriptKey{skill, path}]
}

// The tools in a skill's allowed-tools that affect its scripts: the tool that runs them, and the agent's
// shell.
const (
	runTool   = "run_skill_script"
	shellTool = "Bash"
)

// otherTools are tools of agents that authors write in lower case like programs.
var otherTools = []string{"read", "write", "edit", "multiedit", "glob", "grep", "ls", "list", "view",
	"search", "fetch", "webfetch", "websearch", "web", "browser", "task", "todo", "todowrite",
	"todoread", "agent", "notebookedit", "notebookread", "skill", "think", "memory", "none"}

var programWord = pattern.New(`^[a-z0-9][a-z0-9.+-]*$`)

// covers reports whether a skill's allowed-tools cover one of its scripts, which runs in a runtime:
//
//   - run_skill_script, alone or with this path;
//   - the agent's shell with any pattern, since the pattern limits that shell and not the skill's scripts;
//   - the script's own interpreter, such as python;
//   - for shell scripts, another program, such as terraform: they start the programs of the skill.
func covers(tools []string, path string, runtime sh.Runtime) bool {
	in := runtime.Interpreter()
	return slices.ContainsFunc(tools, func(word string) bool {
		tool, pattern, narrowed := cutPattern(word)
		switch {
		case tool == runTool:
			// The path in parentheses is exact: allowed-tools have patterns for shells, but an entry has
			// none.
			return !narrowed || pattern == path
		case tool == shellTool:
			return true
		case in == nil:
			return false
		case in.IsCalled(tool):
			return true
		}
		// Names of tools are in lower case in many skills. Taken for programs, they would cover every shell
		// script of the skill.
		return in.Shell && programWord().MatchString(tool) && !slices.Contains(otherTools, tool) &&
			!sh.IsInterpreter(tool)
	})
}

// cutPattern splits a word of allowed-tools: "Bash(git add:*)" is the tool Bash with the pattern "git add:*".
func cutPattern(word string) (tool, pattern string, narrowed bool) {
	if call, ok := strings.CutSuffix(word, ")"); ok {
		if tool, pattern, ok := strings.Cut(call, "("); ok {
			return tool, pattern, true
		}
	}
	return word, "", false
}

var program = pattern.New(`^[A-Za-z0-9_][A-Za-z0-9._+-]*$`)

// Programs returns the programs that a skill's allowed-tools let the agent's shell start: git for "Bash(git
// add:*)". Patterns without a plain name are left out.
func Programs(tools []string) (names []string) {
	for _, word := range tools {
		tool, pattern, _ := cutPattern(word)
		name, _, _ := strings.Cut(pattern, ":")
		name, _, _ = strings.Cut(name, " ")
		if tool == shellTool && program().MatchString(name) {
			names = append(names, name)
		}
	}
	return names
}
