package signal

import (
	"bytes"
	"slices"

	"github.com/skillsd/skillsd/skills/pattern"
)

// A value that a shell picks out of the .env of a project logs in, as long as it is in a header. In the body
// of a request, or in its address, it is passed on.

// projectEnv matches the file .env of a project, as an argument of a command.
const projectEnv = `["']?(?:\./|\$\{?PWD\}?/)?\.env["']?(?:$|[\s"')|;&\x60,])`

// Expressions that match a command which prints a part of the file, what only counts or compares that, and a
// value that is no password by its name, unless the line has a word for one.
var (
	pickEnv = pattern.New(`\b(?:[ef]?grep|rg|awk|sed|cut|cat|head|tail)\s` +
		`(?:(?:'[^']*'|"[^"]*"|[^|;&)'"])*?[\s<])?` + projectEnv)
	counts = pattern.New(`\bgrep\s+(?:-\S+\s+)*(?:-[a-zA-Z]*[cqlL]|--(?:count|quiet))` +
		`|\|\s*(?:wc|\w+sum)\b`)
	isPlace = pattern.New(`(?i)(?:ur[li]|host|port|endpoint|domain|base|region|model|project|user|name|mail` +
		`|env|version|path|dir|id|ref|org|team|channel|chat)$`)
	isPassword = pattern.New(`(?i)secret|key|token|passw|pwd|cred|auth|private|database|db|mongo|redis|dsn`)
)

// picksEnv reports whether a shell sets a variable to a value of the file.
func (s *Scanner) picksEnv(name, value []byte) bool {
	return bytes.Contains(value, []byte(".env")) && bytes.ContainsAny(value, "(\x60") && s.spend(value) &&
		pickEnv().Match(value) && picks().Match(value) && !counts().Match(value) &&
		!requests().Match(value) &&
		(!isPlace().Match(name) || isPassword().Match(value))
}

// hasPicked reports whether a text of a shell has a variable with a picked value, or with the whole file.
func (s *Scanner) hasPicked(text []byte) bool {
	return slices.ContainsFunc(s.names, func(t tainted) bool {
		return t.from&(picked|environ) != 0 && usesVariable(text, t.name)
	})
}

// usesVariable reports whether a text of a shell has the value of a variable.
func usesVariable(text []byte, name string) bool {
	for at, end := range places(text, []byte(name)) {
		isWhole := end == len(text) || !isWord(text[end])
		if isWhole && at > 0 && (text[at-1] == '$' || at > 1 && text[at-1] == '{' && text[at-2] == '$') {
			return true
		}
	}
	return false
}

// searchPicked searches a line of a shell for picked values that are sent, and for a loop that sends one line
// of the file after the other.
func (s *Scanner) searchPicked(line []byte, does taint) {
	s.searchLoop(line, does)
	isPicking := does&envs != 0 && bytes.ContainsAny(line, "(\x60")
	if !isPicking && !s.hasPicked(line) || !s.spend(line) || s.found[Phrase].last == s.line {
		return
	}
	isPart := func(text []byte) bool {
		return s.hasPicked(text) || isPicking && inBody().Match(text) && !counts().Match(text)
	}
	if s.sendsPart(line, isPart) {
		s.countPlain(Phrase, s.line)
	}
}

// inBody matches a value that is picked in the body of a request.
var inBody = pattern.New(`\s(?:-d|-F|--data\S*|--form)[\s=]*["']?[^\s"']*(?:\$\(|\x60)\s*` +
	`(?:[ef]?grep|rg|awk|sed|cut|cat)\s(?:'[^']*'|"[^"]*"|[^|;&)'"])*?\s` + projectEnv)

// searchLoop follows a loop over lines. The command that ends it may name the file.
func (s *Scanner) searchLoop(line []byte, does taint) {
	has := func(text string) bool { return bytes.Contains(line, []byte(text)) }
	body := line
	if (has("read") || has("for ")) && s.spend(line) {
		if m := loopOf().FindSubmatchIndex(line); m != nil {
			s.loopNames, s.loopLine = nil, 0
			const most = 4 // variables
			for name := range bytes.FieldsSeq(line[m[2]:m[3]]) {
				if len(s.loopNames) < most {
					s.loopNames = append(s.loopNames, string(name))
				}
			}
			s.names = slices.DeleteFunc(s.names, func(t tainted) bool {
				return t.from == picked && slices.Contains(s.loopNames, t.name)
			})
			body = line[m[1]:]
			if does&envs != 0 && pipedLoop().Match(line[:m[1]]) {
				for _, name := range s.loopNames {
					s.name(name, picked)
				}
			}
		} else if m := overWords().FindSubmatch(line); m != nil && does&envs != 0 {
			s.name(string(m[1]), picked)
		}
	}
	if len(s.loopNames) == 0 {
		return
	}
	isLine := func(text []byte) bool {
		return slices.ContainsFunc(s.loopNames, func(name string) bool { return usesVariable(text, name) })
	}
	if s.loopLine == 0 && has("$") && s.spend(body) && s.sendsPart(body, isLine) {
		s.loopLine = s.line
	}
	if s.loopLine > 0 && does&envs != 0 && s.spend(line) && endsLoop().Match(line) {
		if s.found[Phrase].last != s.loopLine {
			s.countPlain(Phrase, s.loopLine)
		}
		s.loopNames, s.loopLine = nil, 0
	}
}

// Expressions that match a loop over lines with its variables, the file that it gets from a pipe, the words
// of the file, and the end of the loop.
var (
	loopOf = pattern.New(`\bwhile\s+(?:IFS=(?:'[^']*'|"[^"]*"|[^\s;]*)\s+)?read` +
		`(?:\s+-\w+)*((?:\s+[A-Za-z_]\w{0,60})+)`)
	pipedLoop = pattern.New(`\b(?:cat|[ef]?grep|sed|awk|tail|head)\s(?:[^;&]*\s)?` + projectEnv +
		`.*\|\s*while\s`)
	overWords = pattern.New(`\bfor\s+([A-Za-z_]\w{0,60})\s+in\s+["']?(?:\$\(|\x60)\s*` +
		`(?:<|(?:cat|[ef]?grep|sed|awk)\s(?:[^;&]*\s)?)` + projectEnv)
	endsLoop = pattern.New(`\bdone\s*<\s*(?:<\([^)]*\s)?` + projectEnv)
)

// sendsPart reports whether a line of a shell sends a text outside of what logs in.
func (s *Scanner) sendsPart(line []byte, isPart func(text []byte) bool) bool {
	const most = 4 // requests in a line
	for _, m := range requests().FindAllIndex(line, most) {
		sent := pipeline(line, m[0])
		sent = withoutReader(sent)
		if !s.isPrinted(sent) && !s.isPrinted(line) && !isOwn(sent) &&
			isPart(headerOptions().ReplaceAll(sent, []byte(" "))) {
			return true
		}
	}
	return false
}

// headerOptions matches the options of a command that put a value into a header.
var headerOptions = pattern.New(`\s(?:-H|--header|-u|--user|--password|--oauth2-bearer|-Headers)[\s=]*` +
	`(?:"(?:\\.|\$\([^)]*\)|[^"\\])*"|'[^']*'|@\{[^}]*\}|[^\s"']+)`)

// withoutReader returns the commands of a pipeline without those that read the answer of the request.
func withoutReader(sent []byte) []byte {
	m := requests().FindIndex(sent)
	if m == nil {
		return sent
	}
	depth := 0
	for i, c := range unquoted(sent[m[0]:], true) {
		switch {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == '|' && depth <= 0:
			return sent[:m[0]+i]
		}
	}
	return sent
}

// isOwn reports whether a request goes to this machine alone.
func isOwn(command []byte) bool {
	return bytes.Count(command, []byte("://")) == 1 && local().Match(command)
}

var local = pattern.New(`\bhttps?://(?:localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1\])(?:[:/\s"']|$)`)

// sendsPrivate reports whether a header of a request has the content of a private key.
func (s *Scanner) sendsPrivate(line []byte) bool {
	return s.program == shell && !s.isPrinted(line) && inHeader().Match(line)
}

// inHeader matches a command that reads a private key, in a header. What signs with the key is no such
// command.
var inHeader = pattern.New(`\b(?:curl|wget)\b.*\s(?:-H|--header|-u|--user|--oauth2-bearer)[\s=]*` +
	`["']?[^"']*(?:\$\(|\x60)\s*(?:<|(?:cat|base64|xxd|gzip|head|tail|tr|sed|od)\s)[^)\x60]*` +
	`/?\bid_(?:rsa|dsa|ecdsa|ed25519)["']?(?:[\s)|\x60]|$)`)
