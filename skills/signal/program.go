package signal

import (
	"bytes"
	"slices"
	"strings"
	"sync"

	"github.com/skillsd/skillsd/skills/pattern"
)

// language is the kind of a program, as far as the rules differ.
type language uint8

const (
	none  language = iota // not a program
	shell                 // its lines are commands
	code                  // its strings may be commands
)

var languages = map[string]language{
	"sh": shell, "bash": shell, "zsh": shell, "ksh": shell, "fish": shell, "command": shell, "ps1": shell,
	"psm1": shell, "bat": shell, "cmd": shell,
	"py": code, "pyw": code, "js": code, "mjs": code, "cjs": code, "ts": code, "mts": code, "cts": code,
	"rb": code,
	"pl": code, "php": code, "lua": code, "applescript": code, "scpt": code,
}

// languageOf returns the language of a file by its name, in lower case.
func languageOf(base string) language {
	if base == "makefile" || base == "justfile" {
		return shell
	}
	return languages[base[strings.LastIndexByte(base, '.')+1:]]
}

// interpreterOf returns the language of a file by its first line, which begins with "#!".
func interpreterOf(line []byte) language {
	for _, name := range []string{"python", "node", "deno", "bun", "ruby", "perl", "php", "osascript",
		"lua"} {
		if bytes.Contains(line, []byte(name)) {
			return code
		}
	}
	return shell
}

// taint is where the value of a variable comes from.
type taint uint32

const (
	fetched   taint = 1 << iota // it was downloaded or decoded
	secret                      // a secret of the user
	settings                    // the name of a file that configures an agent
	piped                       // a command that runs what it downloads
	open                        // an address that shows nothing about who answers
	written                     // the name of a file that the program writes
	dropped                     // the name of a file with what an open address answered
	startup                     // the name of a file that other programs run by themselves
	link                        // a connection to another machine
	arrived                     // the name of a file that the program fetched, from whatever address
	environ                     // the text of the project's .env
	temporary                   // the name of a temporary file or directory
	tasks                       // the name of a file with tasks of an editor
	picked                      // a value out of the project's .env

	// Facts about a line, which no variable inherits.
	schedules // it may make other programs run one later
	fills     // it may write a file
	connects  // it opens a connection between any two programs
	hooks     // it may write a git hook
	tokens    // it may print what the user is logged in with
	envs      // it names a file .env
	opening   // it may be a task that runs when a folder is opened

	values = schedules - 1
)

// tainted is a variable.
type tainted struct {
	name string
	from taint
}

const maxNames = 32 // of variables, per file

// sources are texts in a value, by the facts that they show about it.
var sources = []struct {
	from  taint
	texts []string
}{
	{fetched, []string{"b64decode", "atob(", "fromhex(", "unhexlify(", "base64_decode",
		"FromBase64String", "base64 -d",
		"base64 -D", "base64 --decode", "xxd -r", "openssl enc", "decompress(", "marshal.loads",
		"rot13", "rot_13", "join(chr(", "join(map(chr", "bytes([", "bytearray([", "[::-1]",
		"reverse().join(", "$(printf '\\", "$(printf \"\\",
		"'base64')", "\"base64\")", "'hex')", "\"hex\")", "fromCharCode", "decode64(", "unpack1('m",
		"unpack('m", "requests.get(", "urlopen(",
		"http.get(",
		"https.get(", "axios.get(", "fetch(", "DownloadString", "$(curl ", "$(wget ", "`curl ", "`wget "}},
	{secret, []string{".ssh/", ".ssh\"", ".ssh'", "id_rsa", "id_ed25519", ".aws/credentials", ".aws\"",
		"~/.ssh", "~/.aws", "~/.config/gcloud", "~/.kube", "~/.docker/config.json", "~/.password-store",
		"$HOME/.ssh", "$HOME/.aws", "$HOME/.kube", ".config/google-chrome", "Google/Chrome",
		"User Data", ".mozilla/firefox", "Library/Keychains", "**os.environ", "str(os.environ",
		"key4.db", "logins.json",
		"Local Extension Settings", "dump-keychain", "\"env | ", "$(env |", "; env |", "& env |",
		"env | base64",
		"env|base64", "printenv |", "env | gzip", "env | curl",
		".git-credentials",
		".netrc", ".npmrc", ".pypirc", ".gnupg", ".kube/config", "Login Data", "login.keychain",
		"find-generic-password",
		"wallet.dat", "/etc/shadow", "dict(os.environ)", "os.environ.copy()", "os.environ.items()",
		"JSON.stringify(process.env)", "$(printenv", "$(env)", ".bash_history", ".zsh_history",
		"cookies.sqlite",
		// what agents log in with, wallets, and a password that the user types
		".claude/.credentials", ".codex/auth.json", ".gemini/oauth_creds", ".config/gh/hosts",
		".electrum", "/Exodus", ".config/solana", ".bitcoin", ".ethereum/keystore", "Ledger Live",
		"hidden answer"}},
	{settings, agentFiles},
	{startup, startupFiles},
	{temporary, []string{"mktemp"}},
	{tasks, []string{".vscode/tasks", "tasks.json"}},
	{link, []string{"https.request(", "http.request(", "net.connect(", "tls.connect(", "HTTPSConnection(",
		"HTTPConnection(", "ftplib.FTP", "smtplib.SMTP", "SSHClient("}},
	{schedules, schedulers},
	{fills, writers},
	{connects, sockets},
	{hooks, []string{"hook"}},
	{tokens, []string{"auth token", "access-token", "configure get ", "op read ", "pass show "}},
	{envs, []string{".env"}},
	{opening, []string{onOpening}},
}

// agentFiles are the names of files that configure an agent.
var agentFiles = []string{"CLAUDE.md", "CLAUDE.local.md", "AGENTS.md", "GEMINI.md", "SOUL.md", ".cursorrules",
	".windsurfrules", ".clinerules", "copilot-instructions.md", ".claude/settings", ".gemini/settings",
	".claude.json",
	"claude_desktop_config.json", "mcp.json", "mcp_config.json", ".codex/config.toml", ".cursor/rules",
	".claude/hooks"}

// escapeOf returns the character that escapes others in a shell, and the end of a line. The name of the
// script is in lower case.
func escapeOf(base string) byte {
	switch base[strings.LastIndexByte(base, '.')+1:] {
	case "ps1", "psm1":
		return '`'
	case "bat", "cmd":
		return '^'
	default:
		return '\\'
	}
}

// searchStatement searches a line of a program together with the lines before it that it continues.
func (s *Scanner) searchStatement(line []byte) {
	isWithin := len(s.statement) > 0
	text := bytes.TrimLeft(line, " \t")
	isGap := len(bytes.TrimSpace(text)) == 0 || isComment(text)
	// After an escaped end of a line, what looks like a comment is an option, or ends the command.
	if isWithin && isGap && (s.program == code || bytes.HasSuffix(s.statement, []byte("|"))) {
		return
	}
	part, goesOn := s.continues(line)
	switch {
	case !isWithin && !goesOn:
		s.searchProgram(line)
		return
	case !isWithin:
		s.statementBegin = s.line
	case len(text) < len(line):
		s.statement, part = append(bytes.TrimRight(s.statement, " \t"), ' '), bytes.TrimLeft(part, " \t")
	}
	s.statement = append(s.statement, part...)
	if !goesOn || len(s.statement) > maxLine {
		s.endStatement()
	}
}

// endStatement searches the collected lines.
func (s *Scanner) endStatement() {
	line := s.line
	s.line, s.isJoined = s.statementBegin, true
	s.searchProgram(s.statement)
	s.line, s.isJoined, s.statement = line, false, s.statement[:0]
}

// continues reports whether the next line continues the statement of a line, and returns the line without an
// escaped end.
func (s *Scanner) continues(line []byte) (part []byte, goesOn bool) {
	line = bytes.TrimSuffix(line, []byte("\r"))
	text := bytes.TrimRight(line, " \t")
	isWithin := len(s.statement) > 0
	switch {
	case len(text) == 0 || !isWithin && isComment(text):
		return line, false
	case s.program == code:
		return text, !s.docs && !togglesDocs(text) && leavesOpen(text, isWithin)
	case (len(line)-len(bytes.TrimRight(line, string(s.escape))))%2 == 1:
		return line[:len(line)-1], !hasComment(line)
	case text[len(text)-1] == '|':
		// A line of a table begins with a bar too.
		return text, bytes.TrimLeft(text, " \t")[0] != '|'
	default:
		return line, false
	}
}

// leavesOpen reports whether a line of a program ends within the arguments of a call. isWithin is set if it
// begins there too.
func leavesOpen(text []byte, isWithin bool) bool {
	before, last := bytes.TrimRight(text[:len(text)-1], " \t"), text[len(text)-1]
	switch {
	case last == '(':
		return true
	case last == '{' && len(before) > 0 && bytes.IndexByte([]byte("([,=:"), before[len(before)-1]) < 0:
		// It begins the body of a function, behind an arrow or a list of parameters.
		return false
	case last == ',', last == '[', last == '{':
		return isWithin || opensCall(text)
	default:
		return false
	}
}

// opensCall reports whether a line has more opening parentheses than closing ones, outside of its literals.
func opensCall(line []byte) bool {
	depth := 0
	for _, c := range unquoted(line, false) {
		switch c {
		case '(':
			depth++
		case ')':
			depth--
		}
	}
	return depth > 0
}

// hasComment reports whether a line of a shell ends in a comment.
func hasComment(line []byte) bool {
	for i, c := range unquoted(line, true) {
		if c == '#' && (i == 0 || bytes.IndexByte([]byte(" \t;&|("), line[i-1]) >= 0) {
			return true
		}
	}
	return false
}

// searchProgram searches a line of a program for values that come from elsewhere and are run, and for files
// of the user that are sent or written. It follows variables, so that the steps may be lines apart.
func (s *Scanner) searchProgram(line []byte) {
	if s.docs && bytes.Contains(line, []byte(onOpening)) {
		s.openingLine = s.line
	}
	if s.program == code && togglesDocs(line) {
		s.searchText(line)
		s.docs = !s.docs
		return
	}
	if len(s.hookEnd) > 0 {
		s.searchHook(line)
	}
	if s.docs || isComment(line) {
		return
	}
	s.searchSplit(line)
	if s.program == code {
		line = s.joined(line)
	}
	does := literals(line)
	if does&fetched != 0 && s.program == shell {
		s.searchInline(line)
	}
	if does&fetched != 0 && s.program == code {
		s.answers, s.fetches = true, s.fetches || loads(line)
	}
	if s.answers && bytes.Contains(line, []byte(".on(")) && s.spend(line) {
		for _, m := range collects().FindAllSubmatch(line, -1) {
			s.name(string(m[1]), fetched)
		}
	}
	here := s.tainted(line, does)
	if does&fills != 0 && s.program == code {
		s.writesFile(line, here)
		here = s.tainted(line, does)
	}
	s.loads = s.loads || s.program == code && isOpen(here) && loads(line)
	if len(here) > 0 {
		s.searchSinks(line, here)
	}
	if does&tokens != 0 && s.program == shell && s.spend(line) && sendsToken().Match(line) &&
		!s.isPrinted(line) {
		s.countPlain(Phrase, s.line)
	}
	s.searchConnection(line, does)
	s.searchStartup(line, here, does)
	s.searchTasks(line, here, does)
	if s.program == shell {
		s.searchPicked(line, does)
	}
	s.assign(line, len(here) > 0)
	if s.program == code {
		s.packs(line, here)
		s.gathers(line, here)
	}
	if s.program == shell {
		s.copies(line, here)
	}
}

// togglesDocs reports whether a docstring begins or ends in a line, but not both.
func togglesDocs(line []byte) bool {
	return (bytes.Count(line, []byte(`"""`))+bytes.Count(line, []byte(`'''`)))%2 == 1
}

// isComment reports whether a line is nothing but a comment.
func isComment(line []byte) bool {
	text := bytes.TrimLeft(line, " \t")
	for _, mark := range []string{"#", "//", "/*", "* ", "*/", "--", "::", "REM ", "rem "} {
		if bytes.HasPrefix(text, []byte(mark)) {
			return true
		}
	}
	return false
}

// sourceText is a text of sources, and the facts that it shows.
type sourceText struct {
	text string
	from taint
}

// sourceTexts has the texts of sources by their first two bytes. The first list is empty.
var sourceTexts = sync.OnceValues(func() (*[1 << 16]uint8, [][]sourceText) {
	index, lists := new([1 << 16]uint8), make([][]sourceText, 1)
	for _, source := range sources {
		for _, text := range source.texts {
			pair := int(text[0])<<8 | int(text[1])
			if index[pair] == 0 {
				index[pair] = uint8(len(lists))
				lists = append(lists, nil)
			}
			lists[index[pair]] = append(lists[index[pair]], sourceText{text, source.from})
		}
	}
	return index, lists
})

// literals returns the facts that the texts in a line show about it.
func literals(line []byte) (from taint) {
	index, lists := sourceTexts()
	for i := 1; i < len(line); i++ {
		// One pass finds all texts: most places in a line begin none of them, and two bytes show that.
		n := index[int(line[i-1])<<8|int(line[i])]
		if n == 0 {
			continue
		}
		for _, s := range lists[n] {
			if from&s.from == 0 && len(line)-i+1 >= len(s.text) &&
				string(line[i-1:i-1+len(s.text)]) == s.text {
				from |= s.from
			}
		}
	}
	return from
}

// taintOf returns the tainted values in a line: literal ones, whose name is empty, and variables.
func (s *Scanner) taintOf(line []byte) []tainted { return s.tainted(line, literals(line)) }

// tainted is taintOf for a line whose literals are known.
func (s *Scanner) tainted(line []byte, from taint) (here []tainted) {
	for rest := from & values; rest != 0; rest &= rest - 1 {
		here = append(here, tainted{from: rest & -rest})
	}
	if openText(line) {
		here = append(here, tainted{from: open})
	}
	if from&envs != 0 && from&secret == 0 && hasOwnEnv(line) {
		here = append(here, tainted{from: secret})
	}
	if from&envs != 0 && s.readsEnv(line) {
		here = append(here, tainted{from: environ})
	}
	for _, known := range s.names {
		// The name of a file follows a directory, so a directory never ends a word.
		isDir := known.name[len(known.name)-1] == '/'
		if bytes.Contains(line, []byte(known.name)) && (isDir || hasWord(line, []byte(known.name))) {
			here = append(here, known)
		}
	}
	return here
}

// assign records the variable that a line assigns a tainted value to. isTainted is set if the line has one.
func (s *Scanner) assign(line []byte, isTainted bool) {
	name, value := assignment(line)
	if len(name) == 0 || len(s.names) == maxNames {
		return
	}
	// A program does not return the environment that it gets.
	if call, _, ok := bytes.Cut(value, []byte("env=")); ok && bytes.Contains(call, []byte("subprocess.")) {
		value = call
	}
	from := taint(0)
	if isTainted {
		for _, t := range s.taintOf(s.withoutKeys(value)) {
			if t.name != string(name) {
				from |= t.from
			}
		}
		// The output of a command is not the name of the file that it reads.
		if s.program == shell && bytes.ContainsAny(value, "(\x60") {
			from &^= arrived
		}
		if from&environ != 0 && !(s.hasEnv(value) && s.keepsWhole(line, value)) {
			from &^= environ
		}
		if from&picked != 0 && !s.hasPicked(value) {
			from &^= picked
		}
		// An answer to who logs in with a value is not that value.
		if from&(picked|environ) != 0 && s.program == shell && requests().Match(value) {
			from &^= picked | environ
		}
	}
	if s.program == shell && s.picksEnv(name, value) {
		from |= picked
	}
	if bytes.Contains(value, []byte("curl ")) || bytes.Contains(value, []byte("wget ")) {
		if i := bytes.IndexAny(value, "\"'"); i >= 0 && s.spend(value) && pipeToShell().Match(value) &&
			len(bytes.Fields(value[i+1:])) > 0 && isFetcher(bytes.Fields(value[i+1:])[0]) {
			from |= piped
		}
	}
	if from == 0 {
		return
	}
	s.name(string(name), from)
}

// copies records the temporary files that a command makes of a secret.
func (s *Scanner) copies(line []byte, here []tainted) {
	from := taint(0)
	for _, t := range here {
		from |= t.from & (secret | environ)
	}
	if from == 0 || !s.spend(line) {
		return
	}
	if m := copied().FindSubmatch(line); m != nil {
		s.name(string(m[1]), from)
	}
	for word := range bytes.FieldsSeq(line) {
		word = bytes.Trim(word, "\"';&|)>")
		if bytes.HasPrefix(word, []byte("/tmp/")) {
			s.name(string(word), from)
		}
	}
}

// hasOwnEnv reports whether a line names the file .env in a hidden directory of the user, where a program
// keeps its keys: ~/.NAME/.env. The .env of a project is in its root, and scripts of the project load it.
func hasOwnEnv(line []byte) bool {
	for at, end := range places(line, []byte("/.env")) {
		dir := at
		for dir > 0 && (isWord(line[dir-1]) || line[dir-1] == '-') {
			dir--
		}
		isHidden := dir < at && dir > 1 && line[dir-1] == '.' &&
			bytes.IndexByte([]byte("/\"'"), line[dir-2]) >= 0
		isWhole := end == len(line) || !isWord(line[end]) && line[end] != '.'
		if isHidden && isWhole && endsInHome(line[:dir-1]) {
			return true
		}
	}
	return false
}

// endsInHome reports whether a text ends in the directory of the user, as a language or a shell has it before
// the rest of a path. A line may have hundreds of paths, so this is no expression.
func endsInHome(before []byte) bool {
	before = bytes.TrimRight(before, "\"' \t,/+()}")
	start := len(before)
	for start > 0 && isWord(before[start-1]) {
		start--
	}
	const home = "home"
	name := before[start:]
	return bytes.HasSuffix(before, []byte("~")) || len(name) >= len(home) && equalFold(name[:len(home)], home)
}

// sendsToken matches a command that prints what the user is logged in with into the body of a request. In a
// header it goes to the service that issued it.
var sendsToken = pattern.New(`\b` + printsToken + `\b[^|;&]*\|(?:[^|;&]*\|)*\s*` +
	`(?:curl\b.*(?:@-|\s-T\s*-)|wget\b.*=(?:-|/dev/stdin)|nc(?:at)?\s)` +
	`|\bcurl\b.*\s(?:-d|-F|--data\S*|--form)[\s=]*["']?[^\s"']*(?:\$\(|\x60)\s*` + printsToken)

const printsToken = `(?:gh auth token|gcloud auth (?:application-default )?print-(?:access|identity)-token|` +
	`az account get-access-token|aws configure get|op read|pass show)`

// packs records an archive that gets a secret, and what it is written into.
func (s *Scanner) packs(line []byte, here []tainted) {
	opens := bytes.Contains(line, []byte("ZipFile(")) || bytes.Contains(line, []byte("tarfile.open("))
	if opens && s.spend(line) {
		if m := archive().FindSubmatch(line); m != nil {
			s.archive = append(s.archive[:0], bytes.Join([][]byte{m[1], m[3]}, nil)...)
			s.packed = append(s.packed[:0], m[2]...)
		}
	}
	isSecret := func(t tainted) bool { return t.from&secret != 0 }
	if len(s.archive) == 0 || !slices.ContainsFunc(here, isSecret) || !s.spend(line) {
		return
	}
	for _, m := range packing().FindAllSubmatch(line, -1) {
		if bytes.Equal(m[1], s.archive) {
			s.name(string(s.archive), secret)
			s.name(string(s.packed), secret)
			return
		}
	}
}

// archive matches an archive that a program opens, and the file or the buffer that it is written into.
var archive = pattern.New(`(?:([A-Za-z_]\w*)\s*=\s*)?\b(?:[\w.]*ZipFile|tarfile\.open)\(\s*` +
	`(?:file(?:obj)?\s*=\s*)?["']?([\w./~-]+)["']?[^)]*\)(?:\s+as\s+([A-Za-z_]\w*))?`)

// packing matches a call that adds to an archive.
var packing = pattern.New(`\b([A-Za-z_]\w*)\.(?:write|writestr|add|addfile)\(`)

// copied matches a command that copies to the directory of a variable.
var copied = pattern.New(`(?:^|[\s;&|])(?:cp|rsync|install|mv)\s[^;&|]*\s["']?\$\{?(\w{1,60})\}?[^\s;&` +
	`|]*\s*(?:$|[;&|])`)

func isFetcher(word []byte) bool {
	return bytes.Equal(word, []byte("curl")) || bytes.Equal(word, []byte("wget")) || bytes.Equal(word,
		[]byte("sudo"))
}

// loop matches the variable of a loop, and what it goes through.
var loop = pattern.New(`^\s*for\s*\(?(?:const |let |var )?\s*([A-Za-z_]\w{0,60})\s+(?:in|of)\s+(.*)`)

// assignment splits a line "name = value", in any of the languages, or "with value as name:".
func assignment(line []byte) (name, value []byte) {
	if from, to, ok := bytes.Cut(line, []byte(" as ")); ok && bytes.Contains(from, []byte("with ")) {
		return bytes.TrimRight(bytes.TrimSpace(to), ":"), from
	}
	if bytes.HasPrefix(bytes.TrimLeft(line, " \t"), []byte("for")) {
		if m := loop().FindSubmatch(line); m != nil {
			return m[1], m[2]
		}
	}
	at := bytes.IndexByte(line, '=')
	const longest = 80 // bytes before the sign
	if at <= 0 || at > longest || at+1 == len(line) || line[at+1] == '=' ||
		bytes.IndexByte([]byte("!<>="), line[at-1]) >= 0 {
		return nil, nil
	}
	left := bytes.TrimRight(line[:at], " \t+:")
	if typed, _, ok := bytes.Cut(left, []byte(":")); ok {
		left = typed // x: string = …
	}
	fields := bytes.Fields(left)
	if len(fields) == 0 {
		return nil, nil
	}
	name = bytes.TrimLeft(fields[len(fields)-1], "$@({[")
	if len(name) == 0 || len(name) > 60 || !isLetter(name[0]) && name[0] != '_' ||
		slices.ContainsFunc(name, func(c byte) bool { return !isWord(c) }) {
		return nil, nil
	}
	return name, line[at+1:]
}

// searchSinks decides about a line with tainted values.
func (s *Scanner) searchSinks(line []byte, here []tainted) {
	from := taint(0)
	for _, t := range here {
		from |= t.from
	}
	if !s.spend(line) {
		return
	}
	switch {
	case from&(fetched|piped) != 0 && s.isRunOf(line, here):
		// joined may have counted the line already.
		if s.found[Pipe].last != s.line {
			s.countPlain(Pipe, s.line)
		}
	case from&dropped != 0 && s.isStarted(line, here, dropped),
		from&written != 0 && s.loads && s.isStarted(line, here, written),
		from&arrived != 0 && s.isStarted(line, here, arrived):
		s.countPlain(Pipe, s.line)
	case from&secret != 0 && (s.isSent(line, from) || s.sendsPrivate(line)),
		from&environ != 0 && s.sendsEnv(line, from):
		s.countPlain(Phrase, s.line)
	case from&settings != 0 && s.writesSettings(line) && !s.isPrinted(line):
		s.countPlain(Config, s.line)
	}
}

// writesSettings reports whether a line writes a file that configures an agent.
func (s *Scanner) writesSettings(line []byte) bool {
	if s.program == shell {
		return s.isRedirected(line, settings) || s.places(line, settings)
	}
	return writes().Match(line)
}

// isPrinted reports whether a line prints its text.
func (s *Scanner) isPrinted(line []byte) bool {
	text := bytes.TrimLeft(line, " \t")
	// A text that is printed into a pipe or a file has other readers than the user.
	return prints().Match(text) && !bytes.ContainsAny(text, "|>")
}

// Expressions that match what runs a text as a program; the text follows, or precedes a pipe.
var (
	shellRuns = pattern.New("(?:^|[\\s;&|(])(?:eval|source|\\.)\\s+|\\b(?:ba|z|da|k)?sh\\s+-c\\b|" +
		"(?i:\\b(?:iex|Invoke-Expression)\\b)|" +
		"\\|\\s*(?:sudo\\s+)?(?:ba|z|da|k)?sh\\b|\\b(?:ba|z|da|k)?sh\\s+<<<\\s*")
	codeRuns = pattern.New("(?i)\\(0,\\s*eval\\)\\(\\s*|" +
		"(?:^|[^.\\w])(?:eval|exec|Function|compile|execfile|loadstring|" +
		"instance_eval|class_eval)\\s*\\(\\s*|" +
		"\\bvm\\.run\\w*\\(|\\b(?:os\\.)?(?:system|popen|execSync|shell_exec|passthru|" +
		"proc_open)\\s*\\(\\s*|\\bchild_process\\b.*\\bexec\\w*\\(|" +
		"\\bpickle\\.loads?\\(\\s*|" +
		"\\b(?:ba|z|da|k)?sh\\b[\"']?,?\\s*[\"']?-c\\b|\\|\\s*(?:ba|z)?sh\\b|" +
		"\\bsubprocess\\.\\w+\\(\\s*|(?:^|[^.\\w]|cp\\.|child_process\\.)(?:exec|spawn)(?:Sync)?\\(\\s*")
)

// isRunOf reports whether a line runs one of the tainted values in it: the value follows what runs it, or a
// pipe leads there.
func (s *Scanner) isRunOf(line []byte, here []tainted) bool {
	runs := shellRuns
	if s.program == code {
		runs = codeRuns
	}
	for _, m := range runs().FindAllIndex(line, -1) {
		rest, call := line[m[1]:], bytes.ToLower(line[m[0]:m[1]])
		isPipe := bytes.IndexByte(call, '|') >= 0
		if isPipe {
			rest = line[:m[0]]
		}
		// A list of arguments is a program with arguments, not a text that is run.
		isCall := bytes.Contains(call, []byte("subprocess")) || bytes.Contains(call, []byte("spawn")) ||
			bytes.Contains(line[m[0]:m[1]], []byte("execFile"))
		if s.program == code && !isPipe && isFetch(rest, bytes.Contains(call, []byte("sync"))) {
			continue
		}
		for _, t := range here {
			if t.from&(fetched|piped) == 0 {
				continue
			}
			if t.name == "" {
				if s.program == shell && !bytes.Contains(call, []byte("eval")) &&
					!bytes.Contains(call, []byte("-c")) && !bytes.Contains(call, []byte("iex")) {
					continue
				}
				// searchPipe decides about a command with all parts.
				if isPipe || isCall {
					continue
				}
				// The match may begin with the end of an arrow.
				before := line[:m[1]-len(bytes.TrimLeft(call, ">{ "))]
				if len(s.taintOf(rest)) > 0 || isAnswer(before, rest) {
					return true
				}
				continue
			}
			if isCall && !bytes.Contains(line, []byte("shell=True")) && !takesText().Match(line) {
				continue
			}
			if hasWord(rest, []byte(t.name)) {
				if !isPipe && s.program == shell {
					// "eval x=$name" and "source dir/$name" do not run the value itself.
					first, _, _ := bytes.Cut(bytes.TrimLeft(rest, " \t\"'"), []byte(" "))
					if !bytes.HasPrefix(first, []byte("$")) {
						continue
					}
				}
				return true
			}
		}
	}
	return false
}

// isFetch reports whether the arguments of a call begin with a literal that only fetches: its address may
// come from elsewhere too. isTemplate is set where such a literal may be in back quotes, which mean a command
// to other languages.
func isFetch(arguments []byte, isTemplate bool) bool {
	quotes := `"'`
	if isTemplate {
		quotes += "`"
	}
	if len(arguments) == 0 || strings.IndexByte(quotes, arguments[0]) < 0 {
		return false
	}
	command, _, _ := bytes.Cut(arguments[1:], arguments[:1])
	return fetch().Match(command)
}

// fetch matches a command that fetches and does nothing else.
var fetch = pattern.New("^(?:curl|wget)\\s(?:[^|;&$`]|&[^&]|\\$[^(])*$")

// takesText matches the option of a shell for a text that it runs.
var takesText = pattern.New(`(?:^|[\s"'])-c(?:$|[\s"'])`)

// isAnswer reports whether what runs rest is the body of a function whose parameter begins it, as in
// "fetch(x).then(text => eval(text))".
func isAnswer(before, rest []byte) bool {
	m := parameter().FindSubmatch(lastOf(before))
	return m != nil && bytes.HasPrefix(bytes.TrimLeft(rest, " \t"), bytes.Join(m[1:], nil))
}

var parameter = pattern.New(`(?:([A-Za-z_$]\w*)\)?\s*=>|\bfunction\s*\(\s*([A-Za-z_$]\w*)\s*\))\s*\{?\s*$`)

// collects matches a function that collects the parts of an answer, and the variable for them.
var collects = pattern.New(`\.on\(\s*["']data["']\s*,\s*(?:function\s*\(\w+\)|\(?\w+\)?\s*=>)\s*\{?\s*` +
	`([A-Za-z_$]\w*)\s*(?:\+=|\.push\(|=\s*[A-Za-z_$]\w*\s*\+)`)

// inline matches a command with the text of a program of another language.
var inline = pattern.New(`\b(?:python[0-9.]*|node|bun|deno|perl|ruby|php)\s+(?:-\w+\s+)*` +
	`-{1,2}(?:c|e|r|eval)\s+["']`)

// searchInline searches the text of a program that a line of a shell contains.
func (s *Scanner) searchInline(line []byte) {
	if !s.spend(line) {
		return
	}
	m := inline().FindIndex(line)
	if m == nil || s.isShown(line, m[0], m[1]) || s.isPrinted(line) {
		return
	}
	text := line[m[1]:]
	s.program = code
	if here := s.taintOf(text); s.isRunOf(text, here) {
		s.countPlain(Pipe, s.line)
	}
	s.program = shell
}

// writes matches what writes a file.
var writes = pattern.New(`(?i)\|\s*(?:sudo\s+)?tee\b|\.write(?:_text|_bytes|lines)?\(|\b(?:write|` +
	`append)File(?:Sync)?\(|` +
	`\bopen\([^)]*,\s*(?:mode\s*=\s*)?["'](?:[wax]|r\+)|\bdump\(|\b(?:Set|Add)-Content\b|\bOut-File\b|` +
	`\bsed\s+-i|` +
	`(?:^|[;&|"'\x60])\s*(?:sudo\s+)?(?:cp|mv|install|ln)\s|` +
	`\bshutil\.\w+\(|\b(?:copy|rename)(?:File)?(?:Sync)?\(|` +
	`\bfile_put_contents\(|` +
	`\bBun\.write\(|\bwriteTextFile|\.open\(\s*["'](?:[wax]|r\+)`)

// redirection matches the name of a file into which a shell writes.
var redirection = pattern.New(`(?:^|[^=<>&2-9-])>>?\s*("[^"]*"|'[^']*'|[^\s;&|)]+)`)

// isRedirected reports whether a shell writes into a file of a kind.
func (s *Scanner) isRedirected(line []byte, kind taint) bool {
	if s.program != shell {
		return false
	}
	isShown := prints().Match(bytes.TrimLeft(line, " \t"))
	for _, m := range redirection().FindAllSubmatchIndex(line, -1) {
		if isShown && quoteAt(line, m[2]) != 0 {
			continue
		}
		if slices.ContainsFunc(s.taintOf(line[m[2]:m[3]]), func(t tainted) bool { return t.from&kind != 0 }) {
			return true
		}
	}
	return false
}

// prints matches a statement that prints a text.
var prints = pattern.New(`(?i)^(?:[\w.]+\s*(?:&&|\|\|)\s*)*(?:echo|printf|print|puts|say|log\w*|warn\w*|` +
	`err\w*|fail|die|info|fatal|` +
	`hint|usage|abort|ok|note|cat\s*<<|write-(?:host|output|error|warning)|console\.\w+|logg?er?\.\w+|` +
	`sys\.std\w+\.write|` +
	`process\.std\w+\.write|throw|raise|(?:\w+\.)?(?:append|add|push|extend|printf?|fail|error|warn\w*|` +
	`log\w*))\b`)

// isShown reports whether the text of a program between from and to is only shown to a user: a comment, a
// string that is printed, or, in a language with strings, one that is a sentence or is not run.
func (s *Scanner) isShown(text []byte, from, to int) bool {
	if s.program == none {
		return true
	}
	if isComment(text) || s.docs {
		return true
	}
	mark := bytes.IndexByte(text[:from], '#')
	if s.program == shell && mark > 0 && text[mark-1] == ' ' && quoteAt(text, mark) == 0 {
		return true
	}
	quote := quoteAt(text, from)
	isInside := quote != 0 && bytes.IndexByte(text[from:to], quote) < 0
	if s.program == shell {
		start := bytes.TrimLeft(text[:from], " \t")
		if at := bytes.LastIndexAny(text[:from], ";|&{("); at >= 0 && quoteAt(text, at) == 0 {
			start = bytes.TrimLeft(text[at+1:from], " \t")
		}
		_, value := assignment(text[:from])
		// bash -c and ssh run the string that follows.
		isSentence := speaks().Match(start) && !bytes.Contains(start, []byte(" -c")) &&
			!bytes.HasPrefix(start, []byte("ssh "))
		return isInside && (isSentence || prints().Match(start) || len(bytes.Fields(bytes.Trim(value,
			" \t\"'"))) > 0)
	}
	isCalled := calls().Match(text[:from])
	if isCalled || !isInside && quote != 0 && !separate().Match(text[from:to]) {
		return false
	}
	// The arguments of a call may be in the next lines.
	isOpenCall := func(line []byte) bool {
		line = bytes.TrimRight(line, " \t\r")
		return len(line) > 0 && bytes.IndexByte([]byte("([{,"), line[len(line)-1]) >= 0 && calls().Match(line)
	}
	return !s.recent.last(2, isOpenCall)
}

// separate matches the end of a literal and the beginning of the next one in a list.
var separate = pattern.New(`["']\s*,\s*[rb]?["']`)

// speaks matches the beginning of a string that advises a reader.
var speaks = pattern.New(`(?i)["'][^"'$;|&]*\b(?:install|run|try|hint|usage|use|with|via|see)\b[^"';|&]*$`)

// calls matches a call that starts a program.
var calls = pattern.New(`(?i)\b(?:system|popen|exec\w*|spawn\w*|shell_exec|passthru|check_output|` +
	`check_call|getoutput|` +
	`subprocess\.\w+|child_process\.\w+|run_command|sh)\s*\(|\bdo shell script\b|\$` + "`")
