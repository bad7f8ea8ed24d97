package policy

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/pattern"
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

// MaxTimeout is the longest timeout that an entry may have.
const MaxTimeout = 10 * time.Minute

// ExecutionStdin is the execution of scripts that their interpreter reads from standard input.
const ExecutionStdin = "stdin"

// minMemory is the least memory in which an interpreter starts, in bytes.
const minMemory = 16 << 20

// Limits of the lists in one entry.
const (
	maxHosts = 64
	maxNames = 64
)

// Change is the part of a skill that differs from an entry.
type Change string

// The changes.
const (
	Unchanged     Change = ""
	ScriptChanged Change = "the script"
	TreeChanged   Change = "other files of its skill"
)

// Changed compares the digests of a script and of its skill's tree with the entry. Without a Pin it returns
// Unchanged: only a running server knows which content the entry allows.
func (e *Entry) Changed(file, tree digest.Digest) Change {
	switch {
	case e.Pin != "" && e.Pin != file:
		return ScriptChanged
	case e.Tree != "" && e.Tree != tree:
		return TreeChanged
	}
	return Unchanged
}

// Spec returns the entry in the form that [ParseEntry] parses, without options.
func (e Entry) Spec() string {
	spec := e.Skill + ":" + e.Path
	if e.Pin != "" {
		spec += "@" + string(e.Pin)
	}
	return spec
}

// check rejects an entry that ParseEntry could not have returned, and invalid options.
func (e *Entry) check() error {
	// A round trip through ParseEntry rejects names that only look like the parts of an entry.
	plain, err := ParseEntry(e.Spec())
	if err != nil {
		return err
	}
	if plain.Skill != e.Skill || plain.Path != e.Path || plain.Pin != e.Pin {
		return fmt.Errorf("an entry is written %s", plain.Spec())
	}
	for _, check := range []func() error{e.checkPins, e.checkNetwork, e.checkNames, e.checkWords,
		e.checkSearchPath, e.checkEnvironment, e.checkLimits} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// checkPins rejects digests that are malformed or exclude one another.
func (e *Entry) checkPins() error {
	switch {
	case e.Tree != "" && (!strings.HasPrefix(string(e.Tree), pinMark[1:]) || e.Tree.Validate() != nil):
		return fmt.Errorf("tree %q is not sha256: and 64 lower-case hexadecimal digits", Clip(string(e.Tree)))
	case e.Tree != "" && e.PinScript:
		return errors.New("pin script leaves the other files of the skill open, so that it excludes tree")
	case e.Tree != "" && e.Pin == "":
		return errors.New("tree goes with the digest of the script: SKILL:scripts/PATH@sha256:HEX")
	// Without a question, the pin is all that binds the operator's decision to the bytes.
	case e.Ask == AskNever && e.Pin == "":
		return errors.New("an entry that never asks needs the digest of the script: " +
			"`skillsd allow --ask never SKILL:SCRIPT` writes both")
	}
	return nil
}

// checkNetwork rejects hosts that cannot be granted.
func (e *Entry) checkNetwork() error {
	if len(e.Network) > maxHosts {
		return fmt.Errorf("network names more than %d hosts", maxHosts)
	}
	for _, host := range e.Network {
		if err := checkHost(host); err != nil {
			return err
		}
	}
	return nil
}

// checkWords rejects options with an unknown value.
func (e *Entry) checkWords() error {
	for _, word := range []struct {
		name, value string
		known       []string
	}{
		{"workspace", e.Workspace, []string{"none", "ro", "staged", "rw"}},
		{"execution", e.Execution, []string{ExecutionStdin}},
		{"ask", string(e.Ask), []string{string(AskAlways), string(AskSession), string(AskNever),
			string(AskTier)}},
		{"target", string(e.Target), []string{string(TargetSandbox), string(TargetHost)}},
		{"release", string(e.Release), []string{string(ReleaseNone), string(ReleaseObserved),
			string(ReleaseOpaque)}},
	} {
		if word.value != "" && !slices.Contains(word.known, word.value) {
			return fmt.Errorf("%s %q is none of %s", word.name, Clip(word.value),
				strings.Join(word.known, ", "))
		}
	}
	return nil
}

// checkEnvironment rejects a name that no environment can have, and an environment on the host.
func (e *Entry) checkEnvironment() error {
	if e.Environment != "" && (!segment().MatchString(e.Environment) || e.Target == TargetHost) {
		return fmt.Errorf("environment %q: name one of environments, with target sandbox",
			Clip(e.Environment))
	}
	return nil
}

// checkLimits rejects limits that cannot be enforced or with which nothing starts.
func (e *Entry) checkLimits() error {
	switch {
	case e.Timeout < 0 || e.Timeout > MaxTimeout:
		return fmt.Errorf("timeout %s is not between 0 and %s", e.Timeout, MaxTimeout)
	case e.Memory != 0 && e.Memory < minMemory:
		return fmt.Errorf("memory of %d bytes is less than %d, in which nothing starts", e.Memory, minMemory)
	}
	return nil
}

// checkNames rejects variables that the server sets itself, or that could make an interpreter run something
// else.
func (e *Entry) checkNames() error {
	seen := map[string]bool{}
	for _, list := range []struct {
		what  string
		names []string
	}{{"env", e.Env}, {"secrets", e.Secrets}} {
		if len(list.names) > maxNames {
			return fmt.Errorf("%s has more than %d names", list.what, maxNames)
		}
		for _, name := range list.names {
			// Secrets are passed as variables too, so the same names are dangerous.
			if err := CheckVariable(name); err != nil {
				if list.what == "env" && name == "PATH" && e.Target == TargetHost {
					err = errors.New("PATH is not taken from the environment, which the user that starts " +
						"the server controls; list directories in path")
				}
				return fmt.Errorf("%s: %w", list.what, err)
			}
			if seen[name] {
				return fmt.Errorf("%s: %s is named twice", list.what, name)
			}
			seen[name] = true
		}
	}
	return nil
}

// checkSearchPath rejects directories that are not absolute or would split the list in another way.
func (e *Entry) checkSearchPath() error {
	if len(e.SearchPath) > 0 && e.Target != TargetHost {
		return errors.New("path goes with target host: a sandbox has no other directories than its own")
	}
	if len(e.SearchPath) > maxNames {
		return fmt.Errorf("path has more than %d directories", maxNames)
	}
	for _, dir := range e.SearchPath {
		// A relative directory would depend on where the server starts, and a separator would add an
		// unchecked directory.
		if !filepath.IsAbs(dir) || strings.ContainsRune(dir, filepath.ListSeparator) ||
			strings.ContainsFunc(dir, unicode.IsControl) {
			return fmt.Errorf("path %q: name an absolute directory without %q and control characters",
				Clip(dir), string(filepath.ListSeparator))
		}
	}
	return nil
}

// checkHost rejects anything but an exact host: NAME or NAME:PORT, where NAME is a lower-case DNS name or an
// IP address, and IPv6 addresses are in brackets if a port follows. There are no patterns.
func checkHost(spec string) error {
	refuse := func(reason string) error { return fmt.Errorf("network %q: %s", Clip(spec), reason) }
	host := spec
	if name, port, err := net.SplitHostPort(spec); err == nil {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 ||
			// The proxy of the sandbox refuses other spellings of a port, such as "0443".
			strconv.FormatUint(n, 10) != port {
			return refuse("the port is not a number from 1 to 65535")
		}
		host = name
	}
	// An IP address needs no further check: it has no labels.
	if net.ParseIP(host) != nil {
		return nil
	}
	// Digits and dots that are not an IP address would be parsed as one by some resolvers.
	if host == "" || len(host) > 253 || strings.Trim(host, "0123456789.") == "" {
		return refuse("name a host or HOST:PORT")
	}
	for label := range strings.SplitSeq(host, ".") {
		if len(label) > 63 || !hostLabel().MatchString(label) {
			return refuse("a host is an exact name in lower case, without patterns, scheme or path")
		}
	}
	return nil
}

var hostLabel = pattern.New(`^[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?$`)
