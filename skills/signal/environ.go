package signal

import (
	"bytes"
	"slices"

	"github.com/skillsd/skillsd/skills/pattern"
)

// The file .env of a project has its passwords. Programs of the project read it, to take a value from it, and
// log in with that. No service asks for its whole text.

// projectEnv matches the file .env of a project, as an argument of a command.
const projectEnv = `["']?(?:\./|\$\{?PWD\}?/)?\.env["']?(?:$|[\s"')|;&\x60,])`

// Expressions that match what takes the whole text of the file: a command, and a call in other languages.
var (
	envCommand = pattern.New(`(?:@|<\s*|--(?:post|body)-file[=\s]+|\s-T\s*|--upload-file[=\s]+` +
		`|\b(?:cat|tac|base64|xxd|od|hexdump|gzip|openssl|head|tail|strings|tr|tar\s+-?\w*c\w*)` +
		`\s[^|;&)\x60]*|-name\s)` + projectEnv + `|(?:\s|/)\.env["']?\s*\|.*\b(?:curl|wget|nc|ncat)\s`)
	envCall = pattern.New(`\b(?:open|readFile(?:Sync)?|createReadStream|file_get_contents|Bun\.file` +
		`|readTextFile(?:Sync)?|(?:File|IO)\.(?:bin)?read|startsWith|startswith|glob\w*)` +
		`\((?:[^()]|\(|\([^()]*\))*?["'\x60/]\.env\*?["'\x60]` +
		`|["'\x60/]\.env["'\x60]\s*\)+\.(?:read_text|read_bytes|open)\(`)
)

// readsEnv reports whether a line takes the whole text of the file.
func (s *Scanner) readsEnv(line []byte) bool {
	if !s.spend(line) {
		return false
	}
	if envCommand().Match(line) {
		return true
	}
	m := envCall().FindIndex(line)
	return m != nil && s.program == code && !writeMode().Match(line[m[1]:])
}

// keepsWhole reports whether the value that a line assigns is all of a text, and not a part of it.
func (s *Scanner) keepsWhole(line, value []byte) bool {
	if s.program != code {
		return !picks().Match(value)
	}
	isLoop := bytes.HasPrefix(bytes.TrimLeft(line, " \t"), []byte("for"))
	if isLoop || containsAny(value, " for ") || index().Match(value) {
		return false
	}
	for _, m := range called().FindAllSubmatch(value, -1) {
		if !slices.Contains(wholeCalls, string(m[1])) {
			return false
		}
	}
	return true
}

// Expressions that match the commands which take a part of a text, an element of a list or a table, and the
// name of a function that is called.
var (
	picks  = pattern.New(`\b(?:grep|cut|awk|sed|jq|wc|sha\w*sum|md5sum)\b`)
	index  = pattern.New(`[\w)\]]\[`)
	called = pattern.New(`([A-Za-z_]\w*)\(`)
)

// wholeCalls are functions that return all of a text, in some form, and what a path consists of.
var wholeCalls = []string{"open", "readFile", "readFileSync", "createReadStream", "file_get_contents", "file",
	"readTextFile", "readTextFileSync", "read", "binread", "read_text", "read_bytes", "readlines", "Path",
	"join", "resolve", "cwd", "getcwd", "dirname", "abspath", "expanduser", "home", "b64encode", "dumps",
	"stringify", "from", "btoa", "encode", "decode", "toString", "trim", "strip", "quote",
	"encodeURIComponent", "urlencode", "str", "bytes", "compress", "hexlify", "hex", "Request", "Blob",
	"readdirSync", "readdir", "listdir", "filter", "startsWith", "startswith", "map", "glob", "rglob",
	"iglob", "list"}

// isWholeEnv reports whether the value that a line assigns is the whole text of the file.
func (s *Scanner) isWholeEnv(line, value []byte) bool {
	return s.hasEnv(value) && s.keepsWhole(line, value)
}

// sendsEnv reports whether a line sends the whole text of the file.
func (s *Scanner) sendsEnv(line []byte, from taint) bool {
	line = exports().ReplaceAll(line, nil)
	const most = 4 // calls in a line
	for _, m := range requests().FindAllIndex(line, most) {
		var sent []byte
		if s.program == code && quoteAt(line, m[0]) == 0 {
			sent = headers().ReplaceAll(arguments(line[m[0]:]), nil)
		} else {
			sent = logins().ReplaceAll(pipeline(line, m[0]), nil)
		}
		if s.hasEnv(sent) && !s.isPrinted(sent) && (s.program == code || !s.isPrinted(line)) {
			return true
		}
	}
	return from&link != 0 && s.program == code && s.hasEnv(line) && !s.isPrinted(line)
}

// hasEnv reports whether a text has the whole text of the file, and not only the name of its variable: a
// program has keys and fields of the same name.
func (s *Scanner) hasEnv(text []byte) bool {
	return slices.ContainsFunc(s.taintOf(text), func(t tainted) bool {
		return t.from&environ != 0 && (t.name == "" || s.program != code || usesName(text, []byte(t.name)))
	})
}

// usesName reports whether a program uses the value of a variable.
func usesName(text, name []byte) bool {
	for at, end := range places(text, name) {
		var before, after byte
		if at > 0 {
			before = text[at-1]
		}
		if end < len(text) {
			after = text[end]
		}
		isPart := isWord(before) || before == '.' || isWord(after)
		isQuoted := isQuote(after) && (before == after || len(name) == 1)
		if !isPart && !isQuoted && !isAssigned(text[end:]) {
			return true
		}
	}
	return false
}

// isAssigned reports whether the text after a name makes a key or a variable of it that gets a value.
func isAssigned(after []byte) bool {
	after = bytes.TrimLeft(after, " ")
	return len(after) > 0 && (after[0] == ':' || after[0] == '=' && !bytes.HasPrefix(after, []byte("==")))
}

// Expressions that match a call or a command that sends something, a command that loads variables, and the
// headers of a request.
var (
	requests = pattern.New(`(?i)\b(?:requests|httpx|session|client|axios|got|http)\.(?:post|put|patch|get` +
		`|request)\(|\baxios\(|\burlopen\(|\bfetch\(|\.send(?:all|Beacon)?\(|\b(?:curl|wget)\s` +
		`|\b(?:Invoke-(?:RestMethod|WebRequest)|irm|iwr)\s|\bnc(?:at)?\s|/dev/tcp/`)
	exports = pattern.New(`(?:^|[\s;&|])(?:export|env|eval|source|\.)\s+["']?` +
		`(?:\$\(|<\(|\x60)[^)\x60]*[)\x60]`)
	headers = pattern.New(`\bheaders\b["']?\s*[=:]\s*\{[^}]*\}`)
)

// arguments returns the arguments of the first call in a text.
func arguments(text []byte) []byte {
	begin := bytes.IndexByte(text, '(')
	if begin < 0 {
		return nil
	}
	depth := 0
	for i, c := range text[begin:] {
		switch c {
		case '(':
			depth++
		case ')':
			depth--
		}
		if depth == 0 {
			return text[begin : begin+i]
		}
	}
	return text[begin:]
}

// pipeline returns the commands around a place in a line of a shell that pipes connect.
func pipeline(line []byte, at int) []byte {
	begin := 0
	for i, c := range unquoted(line, true) {
		isEnd := c == ';' || c == '&' || c == '|' && i+1 < len(line) && line[i+1] == '|'
		if !isEnd || c == '&' && i > 0 && line[i-1] == '>' {
			continue
		}
		if i >= at {
			return line[begin:i]
		}
		begin = i + 1
	}
	return line[begin:]
}
