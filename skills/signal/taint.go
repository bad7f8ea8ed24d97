package signal

import (
	"bytes"
	"slices"
	"sync"
)

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

// tainted is a literal value, whose name is empty, or a variable.
type tainted struct {
	name string
	from taint
}

// variables are the named values of a program that come from elsewhere.
type variables []tainted

const maxNames = 32 // of variables, per file

// add records where a variable comes from, too. Once there are maxNames, others are left out.
func (v *variables) add(name string, from taint) {
	at := slices.IndexFunc(*v, func(t tainted) bool { return t.name == name })
	switch {
	case at >= 0:
		(*v)[at].from |= from
	case len(*v) < maxNames:
		*v = append(*v, tainted{name, from})
	}
}

// sources are texts in a value, by the facts that they show about it.
var sources = []struct {
	from  taint
	texts []string
}{
	{fetched, []string{"b64decode", "atob(", "fromhex(", "unhexlify(", "base64_decode",
		"FromBase64String", "base64 -d", "base64 -D", "base64 --decode", "xxd -r", "openssl enc",
		"decompress(", "marshal.loads", "rot13", "rot_13", "join(chr(", "join(map(chr", "bytes([",
		"bytearray([", "[::-1]", "reverse().join(", "$(printf '\\", "$(printf \"\\", "'base64')",
		"\"base64\")", "'hex')", "\"hex\")", "fromCharCode", "decode64(", "unpack1('m", "unpack('m",
		"requests.get(", "urlopen(", "http.get(", "https.get(", "axios.get(", "fetch(",
		"DownloadString", "$(curl ", "$(wget ", "`curl ", "`wget "}},
	{secret, []string{".ssh/", ".ssh\"", ".ssh'", "id_rsa", "id_ed25519", ".aws/credentials", ".aws\"",
		"~/.ssh", "~/.aws", "~/.config/gcloud", "~/.kube", "~/.docker/config.json", "~/.password-store",
		"$HOME/.ssh", "$HOME/.aws", "$HOME/.kube", ".config/google-chrome", "Google/Chrome",
		"User Data", ".mozilla/firefox", "Library/Keychains", "**os.environ", "str(os.environ",
		"key4.db", "logins.json", "Local Extension Settings", "dump-keychain", "\"env | ", "$(env |",
		"; env |", "& env |", "env | base64", "env|base64", "printenv |", "env | gzip", "env | curl",
		".git-credentials", ".netrc", ".npmrc", ".pypirc", ".gnupg", ".kube/config", "Login Data",
		"login.keychain", "find-generic-password", "wallet.dat", "/etc/shadow", "dict(os.environ)",
		"os.environ.copy()", "os.environ.items()", "JSON.stringify(process.env)", "$(printenv",
		"$(env)", ".bash_history", ".zsh_history", "cookies.sqlite"}},
	// Logins of agents, wallets, and a password that the user types.
	{secret, []string{".claude/.credentials", ".codex/auth.json", ".gemini/oauth_creds",
		".config/gh/hosts", ".electrum", "/Exodus", ".config/solana", ".bitcoin", ".ethereum/keystore",
		"Ledger Live", "hidden answer"}},
	{settings, agentFiles},
	{startup, startupFiles},
	{temporary, []string{"mktemp"}},
	{tasks, []string{".vscode/tasks", "tasks.json"}},
	{link, []string{"https.request(", "http.request(", "net.connect(", "tls.connect(",
		"HTTPSConnection(", "HTTPConnection(", "ftplib.FTP", "smtplib.SMTP", "SSHClient("}},
	{schedules, schedulers},
	{fills, writers},
	{connects, sockets},
	{hooks, []string{"hook"}},
	{tokens, []string{"auth token", "access-token", "configure get ", "op read ", "pass show "}},
	{envs, []string{".env"}},
	{opening, []string{onOpening}},
}

// agentFiles are the names of files that configure an agent.
var agentFiles = []string{"CLAUDE.md", "CLAUDE.local.md", "AGENTS.md", "GEMINI.md", "SOUL.md",
	".cursorrules", ".windsurfrules", ".clinerules", "copilot-instructions.md", ".claude/settings",
	".gemini/settings", ".claude.json", "claude_desktop_config.json", "mcp.json", "mcp_config.json",
	".codex/config.toml", ".cursor/rules", ".claude/hooks"}

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

// union returns what all values together come from.
func union(values []tainted) (from taint) {
	for _, t := range values {
		from |= t.from
	}
	return from
}

// hasTaint reports whether one of the values is of a kind.
func hasTaint(values []tainted, kind taint) bool { return union(values)&kind != 0 }

// hasKind reports whether a text has a value of a kind.
func (s *Scanner) hasKind(text []byte, kind taint) bool { return hasTaint(s.taintOf(text), kind) }

// hasSecret reports whether a text has a secret.
func (s *Scanner) hasSecret(text []byte) bool { return s.hasKind(text, secret) }

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
