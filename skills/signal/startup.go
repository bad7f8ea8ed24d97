package signal

import (
	"bytes"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills/pattern"
)

// startupFiles are parts of the names of files that other programs run, or obey, by themselves.
var startupFiles = []string{"authorized_keys", ".bashrc", ".bash_profile", ".bash_login", ".bash_aliases",
	".zshrc",
	".zprofile", ".zshenv", ".zlogin", "/.profile", "config.fish", "LaunchAgents", "LaunchDaemons",
	"systemd/user",
	"systemd/system", "config/autostart", "Programs\\Startup", "CurrentVersion\\Run", "/etc/cron",
	"/etc/rc.local",
	"/etc/ld.so.preload", "/etc/profile", "/etc/sudoers", "/var/spool/cron", ".git/hooks", "hooks/pre-commit",
	"hooks/post-", "hooks/pre-push"}

// scheduled matches commands that make other programs run one later.
var scheduled = pattern.New(`(?i)\|\s*(?:sudo\s+)?crontab\b(?:\s+-u\s+\S+)?(?:\s+-)?\s*(?:$|["';&|)])` +
	`|(?:^|[;&|]\s*)(?:sudo\s+)?crontab\s+(?:-u\s+\S+\s+)?(?:-|["'/$~\w.]\S*)\s*$` +
	`|["']crontab["']\s*,\s*(?:["'][^-]|["']-["']|[A-Za-z_])` +
	`|\blaunchctl["',\s]+(?:load|bootstrap)\b|\bsystemctl\b.*--user\b.*\benable\b` +
	`|\bmake (?:new )?login item\b|\bgit\b[^;|&]*\b(?:core\.(?:hooksPath|fsmonitor|sshCommand)` +
	`|init\.templateDir)["',\s=]+[^\s"',;|&)]` +
	`|\bschtasks(?:\.exe)?["',\s]+/create\b|\bRegister-ScheduledTask\b` +
	`|\b(?:New|Set)-ItemProperty\b.*CurrentVersion\\\\?Run\b` +
	`|\breg(?:\.exe)?["',\s]+add\b.*CurrentVersion\\\\?Run\b`)

// schedulers are texts. Each match of scheduled has one.
var schedulers = []string{"crontab", "hooksPath", "hookspath", "fsmonitor", "sshCommand", "templateDir",
	"launchctl", "login item", "--user", "schtasks", "ScheduledTask", "CurrentVersion"}

// searchStartup searches a line of a program for a change of what other programs run by themselves.
func (s *Scanner) searchStartup(line []byte, here []tainted, does taint) {
	isStartup := slices.ContainsFunc(here, func(t tainted) bool { return t.from&startup != 0 })
	has := func(text string) bool { return bytes.Contains(line, []byte(text)) }
	isScheduler := does&schedules != 0
	if s.program == shell && does&hooks != 0 && s.isOrdinaryHook(line) {
		return
	}
	if !isStartup && !isScheduler || !s.spend(line) || s.isPrinted(line) {
		return
	}
	if isStartup && s.program == shell {
		if m := settingsText().FindSubmatch(line); m != nil {
			s.beginHook(line, true, m[1], m[2])
			return
		}
	}
	if !has("/.ssh/") {
		line = s.afterSettings(line)
	}
	if isScheduler && s.isScheduled(line) || isStartup && (s.isRedirected(line, startup) || s.places(line,
		startup)) {
		s.countPlain(Unasked, s.line)
	}
}

// onOpening is the value of a task that an editor runs when a folder is opened.
const onOpening = "folderOpen"

// searchTasks searches a line of a program for such a task, and for a file with the tasks of an editor that
// it writes.
func (s *Scanner) searchTasks(line []byte, here []tainted, does taint) {
	if does&opening != 0 {
		s.openingLine = s.line
	}
	if !s.writesTasks && hasTaint(here, tasks) && s.spend(line) {
		s.writesTasks = s.isRedirected(line, tasks) || s.places(line, tasks)
	}
}

// isScheduled reports whether a line has a command of scheduled that is not only shown to a user.
func (s *Scanner) isScheduled(line []byte) bool {
	m := scheduled().FindIndex(line)
	return m != nil && !s.isShown(line, m[0], m[1])
}

// placing matches a command that writes the file that it names last.
var placing = pattern.New(`(?:^|[\s;&|])(?:cp|mv|install|ln|rsync)\s[^;&|]*?([^\s;&|]+)["']?\s*(?:$|[;&|])` +
	`|\btee\s+(?:-a\s+)?([^\s;&|]+)` +
	`|\bsed\s+-i[^;&|]*[^;&|d]["']\s+([^\s;&|]+)["']?\s*(?:$|[;&|])`)

// places reports whether a line writes a file of a kind.
func (s *Scanner) places(line []byte, kind taint) bool {
	isOfKind := func(name []byte) bool {
		return slices.ContainsFunc(s.taintOf(name), func(t tainted) bool { return t.from&kind != 0 })
	}
	if s.program == code {
		return slices.ContainsFunc(targets(line), isOfKind)
	}
	for _, m := range placing().FindAllSubmatch(line, -1) {
		if isOfKind(bytes.Join(m[1:], nil)) {
			return true
		}
	}
	return addsContent().Match(line)
}

// Expressions that match calls of a language with strings that write the file of their first argument, of the
// last, or before the dot.
var (
	writesFirst = pattern.New(`(?i)\b(?:open|File\.(?:bin)?write|createWriteStream|(?:append` +
		`|write)File(?:Sync)?|` +
		`file_put_contents|Bun\.write|writeTextFile)\(`)
	writesLast = pattern.New(`(?i)\b(?:shutil\.\w+|(?:copy|rename|symlink)(?:File)?(?:Sync)?|os\.replace)\(`)
	writesSelf = pattern.New(`\.(?:write_(?:text|bytes)\(|open\(\s*["'](?:[wax]|r\+))`)
	writeMode  = pattern.New(`^\s*,\s*(?:mode\s*=\s*)?["'](?:[wax]|r\+)`)
)

// targets returns the expressions of the files that a line writes.
func targets(line []byte) (names [][]byte) {
	const most = 4 // calls in a line
	for _, m := range writesFirst().FindAllIndex(line, most) {
		name := argument(line[m[1]:])
		// A call of open without a mode reads.
		isOpening := bytes.EqualFold(line[max(m[0], m[1]-len("open(")):m[1]], []byte("open("))
		if !isOpening || writeMode().Match(line[m[1]+len(name):]) {
			names = append(names, name)
		}
	}
	for _, m := range writesLast().FindAllIndex(line, most) {
		names = append(names, line[m[1]+len(argument(line[m[1]:])):])
	}
	for _, m := range writesSelf().FindAllIndex(line, most) {
		names = append(names, line[:m[0]])
	}
	return names
}

// argument returns the first argument in a list.
func argument(list []byte) []byte {
	depth := 0
	for i, c := range list {
		switch c {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		}
		if depth < 0 || depth == 0 && c == ',' {
			return list[:i]
		}
	}
	return list
}

// addsContent matches what writes a file in PowerShell.
var addsContent = pattern.New(`(?i)\b(?:Add|Set)-Content\b|\bOut-File\b`)

// settingsText matches the beginning of a text that a shell adds to a file.
var settingsText = pattern.New(guard + `\s*cat\s*` +
	`(?:>>\s*(?:"[^"]*"|[^\s<]+)\s*<<-?\s*["']?(\w+)["']?` +
	`|<<-?\s*["']?(\w+)["']?\s*>>\s*(?:"[^"]*"|\S+))\s*$`)

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
	has := func(text string) bool { return strings.Contains(value, text) }
	isFetcher := func(word string) bool {
		return slices.Contains(loadsText, word[strings.LastIndexByte(word, '/')+1:])
	}
	isElsewhere := func(t tainted) bool { return t.from&(fetched|piped|dropped|arrived) != 0 }
	return !slices.ContainsFunc([]string{"$(", "`", "/tmp", "/dev/shm", "://", "/dev/tcp"}, has) &&
		!slices.ContainsFunc(split(reloads().ReplaceAllString(value, "")), isFetcher) &&
		!runsText().MatchString(value) && !runsHidden(name, text) &&
		!slices.ContainsFunc(s.taintOf([]byte(value)), isElsewhere) &&
		!(len(s.saved) > 0 && has(string(s.saved)))
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
	for i, command := range strings.FieldsFunc(strings.ReplaceAll(value, ";", "|;"), func(r rune) bool {
		return r == '|' || r == '&'
	}) {
		isNext := strings.HasPrefix(command, ";")
		words := strings.Fields(leading().ReplaceAllString(strings.TrimLeft(command, "; "), ""))
		for len(words) > 0 && slices.Contains(passes, words[0]) {
			if words[0] == "nohup" || words[0] == "setsid" {
				return true
			}
			words = words[1:]
		}
		if len(words) == 0 {
			continue
		}
		if i == 0 {
			first = words[0]
		}
		isCommand := words[0] == first || slices.Contains(tools, words[0]) ||
			slices.Contains(shown, words[0]) || words[0] == name
		if isNext && i > 0 && !isCommand || inCache().MatchString(words[0]) ||
			i > 0 && inHidden().MatchString(words[0]) {
			return true
		}
		isRun := func(word string) bool {
			isOwn := strings.Contains(word, "/skills/")
			return inCache().MatchString(word) || inHidden().MatchString(word) && !isOwn
		}
		if interpreters().MatchString(words[0]) && slices.ContainsFunc(words[1:], isRun) {
			return true
		}
	}
	return false
}

// Expressions that match a file in a cache or a temporary directory, one in a hidden directory of the user,
// and a program that runs a file.
var (
	inCache = pattern.New(`/\.cache/|/Library/Caches/|\$\{?(?:TMPDIR|TEMP|TMP|XDG_CACHE_HOME)\b` +
		`|^/(?:var/)?tmp/`)
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
	return strings.Trim(next, `\n"' `) == "" && !strings.Contains(value, "/tmp") &&
		!strings.Contains(value, "/dev/shm")
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

// searchConnection searches a line of a program for a connection in the place of the input and output of a
// shell.
func (s *Scanner) searchConnection(line []byte, does taint) {
	has := func(text string) bool { return bytes.Contains(line, []byte(text)) }
	s.connects = s.connects || has(".connect(")
	s.sockets = s.sockets || does&connects != 0
	switch {
	case s.connects && has("dup2(") && has("fileno()"), s.connects && has("pty.spawn("),
		has(".pipe(sh.stdin"):
	case s.sockets && (has("sh") || has("cmd")) && interactive().Match(line) && s.spend(line):
	default:
		return
	}
	s.countPlain(Pipe, s.line)
}

// sockets are texts of connections between any two programs.
var sockets = []string{"socket(", "TCPSocket", "fsockopen", "TCPClient", "net.Socket", "net.connect(",
	"createConnection(", "Deno.connect("}

// interactive matches the start of a shell that waits for commands.
var interactive = pattern.New(`(?:/bin/)?\b(?:ba|z|da|k)?sh\b["']?\s*,?\s*\[?\s*["']?-i\b|` +
	`\b(?:exec|spawn|Popen|proc_open|call|run|system)\w*\s*\(?\s*\[?\s*["'](?:/bin/(?:ba|z|da)?sh` +
	`|cmd(?:\.exe)?)["']\s*[,\])]`)
