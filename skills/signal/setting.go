package signal

import (
	"bytes"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills/pattern"
)

// settingsText matches the beginning of a text that a shell adds to a file.
var settingsText = pattern.New(guard + `\s*cat\s*` +
	`(?:>>\s*(?:"[^"]*"|[^\s<]+)\s*<<-?\s*["']?(\w+)["']?` +
	`|<<-?\s*["']?(\w+)["']?\s*>>\s*(?:"[^"]*"|\S+))\s*$`)

// beginsSettings reports whether a line begins a text for the settings of a shell. The lines of the text
// decide later.
func (s *Scanner) beginsSettings(line []byte) bool {
	m := settingsText().FindSubmatch(line)
	if m == nil {
		return false
	}
	s.beginWritten(line, true, m[1], m[2])
	return true
}

// Expressions that match a line with nothing but the setting of a variable, an alias, or the setup of an
// installed program.
var (
	setsVariable = pattern.New(`^(?:export|set -gx)\s+(\w+)[= ](` + shellWords + `)$`)
	setsAlias    = pattern.New(`^alias\s+(?:-g\s+)?([\w.-]+)=("[^"\\` + "`" + `]*"|'[^']*'` +
		`|[^\s"'\\` + "`" + `;|&<>()]+)\s*(?:#.*)?$`)
	setsProgram = pattern.New(`^(?:eval\s+"?\$\(|(?:source|\.)\s+<\()([\w.-]+)` + setupOf + `\)"?$`)
)

// shellWords matches words of a shell, each text in quotes as a whole.
const shellWords = `(?:"[^"\\` + "`" + `]*"|'[^']*'|[^"'\\` + "`" + `;|&<>()])*`

// setsOnly reports whether a line of the start of a shell is nothing but a setting.
func (s *Scanner) setsOnly(line []byte) bool {
	if len(line) == 0 || line[0] == '#' {
		return true
	}
	if m := setsAlias().FindSubmatch(line); m != nil {
		return s.isPlainAlias(string(m[1]), string(m[2]))
	}
	if m := setsProgram().FindSubmatch(line); m != nil {
		return !runsAnyText(string(m[1]))
	}
	m := setsVariable().FindSubmatch(line)
	return m != nil && isHarmless(string(m[1]), string(m[2]))
}

// isPlainAlias reports whether an alias runs nothing that is fetched or temporary, and takes no place of a
// program that a user gives a password.
func (s *Scanner) isPlainAlias(name, value string) bool {
	text := strings.TrimSpace(strings.ReplaceAll(value, `\"`, `"`))
	if len(text) > 1 && (text[0] == '"' || text[0] == '\'') && text[len(text)-1] == text[0] {
		text = text[1 : len(text)-1]
	}
	value = strings.Trim(value, `\"'`)
	split := func(text string) []string {
		return strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \t;|&()<>\"'", r) })
	}
	words := split(value)
	if len(words) == 0 {
		return true
	}
	if slices.Contains(trusted, name) && words[0] != name {
		return false
	}
	loadsIt := func(word string) bool {
		return slices.Contains(loadsText, word[strings.LastIndexByte(word, '/')+1:])
	}
	downloaded := string(s.download.name)
	switch {
	case containsAny([]byte(value), "$(", "`", "://", "/dev/tcp"), containsAny([]byte(value), sharedDirs...),
		slices.ContainsFunc(split(reloads().ReplaceAllString(value, "")), loadsIt),
		runsText().MatchString(value),
		runsHidden(name, text),
		s.hasKind([]byte(value), fetched|piped|dropped|arrived),
		downloaded != "" && strings.Contains(value, downloaded):
		return false
	default:
		return true
	}
}

// Expressions that match the parts of an alias that start the shell anew, and that run a text.
var (
	reloads = pattern.New(`(?:^|[;&]\s*)(?:(?:source|\.)\s+["']?(?:~|\$HOME)/\.\w*(?:rc|profile)["']?` +
		`|exec\s+(?:\$SHELL|\w*sh)(?:\s+-l)?)(?:\s*$|\s*[;&])`)
	runsText = pattern.New(`\|\s*(?:sudo\s+)?(?:ba|z|da|k|fi)?sh\b|\b(?:ba|z|da|k|fi)?sh\s+-\w*c\b`)
)

// runsHidden reports whether an alias runs a file of a hidden directory, or a command that its user does not
// see.
func runsHidden(name, value string) bool {
	value = string(toNull().ReplaceAll(quoted().ReplaceAllFunc([]byte(value), func(q []byte) []byte {
		return bytes.Trim(parts().ReplaceAll(q, nil), `"'`)
	}), nil))
	value = reloads().ReplaceAllString(value, ";")
	if strings.ContainsAny(value, "()") || strings.Contains(strings.ReplaceAll(value, "&&", ""), "&") {
		return true
	}
	first := ""
	isCommand := func(word string) bool {
		return word == first || word == name || slices.Contains(tools, word) || slices.Contains(shown, word)
	}
	isEnd := func(r rune) bool { return r == '|' || r == '&' }
	// A semicolon stays with the command behind it.
	for i, command := range strings.FieldsFunc(strings.ReplaceAll(value, ";", "|;"), isEnd) {
		words, isDetached := withoutPasses(strings.Fields(
			leading().ReplaceAllString(strings.TrimLeft(command, "; "), "")))
		switch {
		case isDetached:
			return true
		case len(words) == 0:
			continue
		case i == 0:
			first = words[0]
		case command[0] == ';' && !isCommand(words[0]), inHidden().MatchString(words[0]):
			return true
		}
		if runsHiddenFile(words) {
			return true
		}
	}
	return false
}

// withoutPasses returns the words of a command behind programs that only run it. isDetached is set if it goes
// on when its shell ends.
func withoutPasses(words []string) (rest []string, isDetached bool) {
	for len(words) > 0 && slices.Contains(passes, words[0]) {
		if words[0] == "nohup" || words[0] == "setsid" {
			return nil, true
		}
		words = words[1:]
	}
	return words, false
}

// runsHiddenFile reports whether a command runs a file of a cache, or an interpreter with a file of a cache
// or of a hidden directory.
func runsHiddenFile(words []string) bool {
	isHidden := func(word string) bool {
		isOwn := strings.Contains(word, "/skills/")
		return inCache().MatchString(word) || inHidden().MatchString(word) && !isOwn
	}
	return inCache().MatchString(words[0]) ||
		interpreters().MatchString(words[0]) && slices.ContainsFunc(words[1:], isHidden)
}

// Expressions that match a file in a cache or a temporary directory, one in a hidden directory of the user,
// and a program that runs a file.
var (
	inCache = pattern.New(`/\.cache/|/Library/Caches/|\$\{?(?:TMPDIR|TEMP|TMP|XDG_CACHE_HOME)\b` +
		`|^` + inShared)
	inHidden = pattern.New(`^(?:~|\$\{?HOME\}?|/home/[^/]+|/root|/Users/[^/]+)/(?:[^/]+/)*\.[^/]+/`)

	interpreters = pattern.New(`^(?:\S*/)?(?:python[0-9.]*|pypy\d?|node|bun|deno|perl|ruby|php|lua` +
		`|osascript|tclsh|uv|(?:ba|z|da|k|fi)?sh)$`)
)

// passes are programs that run the command behind them.
var passes = []string{"sudo", "env", "command", "builtin", "time", "nice", "exec", "nohup", "setsid"}

// shown are programs, besides tools, that an alias calls after another one.
var shown = []string{"ls", "ll", "la", "clear", "pwd", "git", "date", "mkdir", "tree", "eza", "exa", "bat",
	"less", "docker", "docker-compose", "kubectl", "brew", "apt", "apt-get", "dnf", "pacman",
	"claude", "codex", "gemini", "code", "vim", "nvim", "tmux", "open", "history", "which", "type",
	"sed", "awk", "tput", "reset"}

// trusted are programs that a user gives a password or a key.
var trusted = []string{"sudo", "su", "doas", "ssh", "scp", "sftp", "passwd", "gpg", "login", "pass", "op"}

// loadsText are programs that load a text from elsewhere, or run one.
var loadsText = []string{"curl", "wget", "nc", "ncat", "netcat", "base64", "xxd", "openssl", "eval", "source",
	".", "exec"}

// afterSettings returns the rest of a line after commands that add nothing but a variable, as installers do
// for the search path, or an alias: they run nothing, and name no place where everyone may write. The setup
// of an installed program is a setting too.
func (s *Scanner) afterSettings(line []byte) []byte {
	installed := setup().FindSubmatch(line)
	if installed != nil && !runsAnyText(string(installed[1])) {
		return nil
	}
	for {
		m := setting().FindSubmatch(line)
		switch {
		case m == nil:
			return line
		case len(m[1]) > 0 && !isHarmless(string(m[1]), string(m[2])):
			return line
		case len(m[1]) == 0 && !s.isPlainAlias(string(m[3])+string(m[5]), string(m[4])+string(m[6])):
			return line
		}
		line = line[len(m[0]):]
	}
}

// isHarmless reports whether the setting of a variable runs nothing, neither when it is read nor later.
func isHarmless(variable, value string) bool {
	isPath := strings.Contains(value, "/")
	if slices.Contains(runVariables, variable) || isPath && slices.Contains(loadVariables, variable) {
		return false
	}
	// An installed program may compute the value.
	for _, program := range computes().FindAllStringSubmatch(value, -1) {
		if program[1] == "" || runsAnyText(program[1]) {
			return false
		}
	}
	_, next, _ := strings.Cut(value, `\n`)
	return strings.Trim(next, `\n"' `) == "" && !containsAny([]byte(value), sharedDirs...)
}

// guard matches a test whether a line is in a file already, before the command that adds it.
const guard = `^[\s;&|]*(?:(?:if\s+)?(?:!\s*)?` +
	`(?:grep\s` + quiet + `|\[` + quiet + `\]|command -v\s` + quiet + `)` +
	`\s*(?:\|\||&&|;\s*then)\s*)?`

// quiet matches the arguments of a command that writes nothing.
const quiet = "(?:[^;&|>$`]|>\\s*/dev/null\\b|>&[12]|\\$(?:[\\w{]|\\(\\w+(?: [\\w-]+)*\\)))*"

// setting matches a command that adds the setting of a variable, or an alias, to a file.
var setting = pattern.New(guard + `(?:echo|printf)\s+(?:["']?(?:\\n)?(?:export |set -gx )(\w+)[= ]` +
	`((?:\\"|[^;|&` + "`" + `])*?)` +
	`|"(?:\\n)?alias ([\w.-]+)=('[^'"\\]*'|\\"[^'"\\]*\\"|[^\s'"\\;|&]+)(?:\\n)?"\s*` +
	`|'(?:\\n)?alias ([\w.-]+)=("[^'"\\]*"|[^\s'"\\;|&]+)(?:\\n)?'\s*)` +
	`>>\s*(?:"[^"]*"|[^\s"';&|]+)`)

// computes matches the beginning of a command in a value, and the name of its program if that is plain.
var computes = pattern.New(`\$\(\s*(?:([\w.-]+)(?:[\s)]|$))?`)

// runVariables are variables whose values other programs run, or load.
var runVariables = []string{"PROMPT_COMMAND", "BASH_ENV", "LD_PRELOAD", "LD_AUDIT", "DYLD_INSERT_LIBRARIES",
	"PYTHONSTARTUP", "GIT_SSH_COMMAND", "GIT_EXTERNAL_DIFF", "LESSOPEN"}

// loadVariables are variables that make other programs load a file if their values have its path. Other
// values are ordinary: NODE_OPTIONS=--max-old-space-size=4096.
var loadVariables = []string{"ENV", "NODE_OPTIONS", "PERL5OPT", "RUBYOPT", "JAVA_TOOL_OPTIONS"}

// setup matches a line that adds the setup of an installed program to the start of shells, as its manual
// asks: eval "$(direnv hook bash)". The name has no directory, and the other words are plain, so that the
// shell runs that program and nothing else.
var setup = pattern.New(guard + `(?:echo|printf)\s+["'](?:\\n)?(?:eval\s+\\?["']?\\?\$\(` +
	`|(?:source|\.)\s+<\()([\w.-]+)` + setupOf +
	`\)\\?["']?(?:\\n)?["']\s*>>\s*\S+\s*(?:;\s*fi\s*)?$`)

// setupOf matches the arguments of a program that prints its setup.
const setupOf = `(?:\s+[\w=.-]+)*\s+(?:init|hook|completions?|activate|shellenv|env|shell|--alias)` +
	`(?:\s+(?:-\s*)?[\w=.-]*)*`

// anyText are programs, besides shells, that print or run any text, so the line runs whatever a file or an
// address has.
var anyText = []string{"cat", "head", "tail", "sed", "awk", "echo", "printf", "tr", "rev", "curl",
	"wget", "nc", "ncat", "base64", "xxd", "openssl", "gunzip", "zcat", "dash", "env", "exec", "eval",
	"source", "sudo", "xargs", "python", "python3", "perl",
	"ruby", "node", "php", "bun", "deno", "npx", "bunx", "uvx", "ssh", "git", "docker", "."}

// runsAnyText reports whether a program runs or prints any text.
func runsAnyText(program string) bool {
	return languages[program] == shell || slices.Contains(anyText, program)
}
