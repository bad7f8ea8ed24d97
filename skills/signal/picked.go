package signal

import (
	"bytes"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills/pattern"
)

// A value that a shell picks out of the .env of a project logs in, as long as it is in a header. In the body
// of a request, or in its address, it is passed on.

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
	return containsAny(value, ".env") && bytes.ContainsAny(value, "(\x60") && s.spend(value) &&
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
		s.found.addPlain(Phrase, s.line)
	}
}

// inBody matches a value that is picked in the body of a request.
var inBody = pattern.New(`\s(?:-d|-F|--data\S*|--form)[\s=]*["']?[^\s"']*(?:\$\(|\x60)\s*` +
	`(?:[ef]?grep|rg|awk|sed|cut|cat)\s(?:'[^']*'|"[^"]*"|[^|;&)'"])*?\s` + projectEnv)

// loop is a loop of a shell that reads lines.
type loop struct {
	names []string // its variables, or nothing
	line  int      // where it sends one of them, or 0
}

// searchLoop follows a loop over lines. The command that ends it may name the file.
func (s *Scanner) searchLoop(line []byte, does taint) {
	body := s.beginLoop(line, does)
	if len(s.loop.names) == 0 {
		return
	}
	isLine := func(text []byte) bool {
		return slices.ContainsFunc(s.loop.names, func(name string) bool { return usesVariable(text, name) })
	}
	if s.loop.line == 0 && containsAny(line, "$") && s.spend(body) && s.sendsPart(body, isLine) {
		s.loop.line = s.line
	}
	if s.loop.line > 0 && does&envs != 0 && s.spend(line) && endsLoop().Match(line) {
		if s.found[Phrase].last != s.loop.line {
			s.found.addPlain(Phrase, s.loop.line)
		}
		s.loop = loop{}
	}
}

// beginLoop records the variables of a loop over lines that a line begins, and returns the text behind its
// beginning. It returns all of another line.
func (s *Scanner) beginLoop(line []byte, does taint) (body []byte) {
	if !containsAny(line, "read", "for ") || !s.spend(line) {
		return line
	}
	isOfEnv := does&envs != 0
	m := loopOf().FindSubmatchIndex(line)
	if m == nil {
		if word := overWords().FindSubmatch(line); word != nil && isOfEnv {
			s.names.add(string(word[1]), picked)
		}
		return line
	}
	const most = 4 // variables
	s.loop = loop{names: strings.Fields(string(line[m[2]:m[3]]))}
	s.loop.names = s.loop.names[:min(len(s.loop.names), most)]
	s.names = slices.DeleteFunc(s.names, func(t tainted) bool {
		return t.from == picked && slices.Contains(s.loop.names, t.name)
	})
	if isOfEnv && pipedLoop().Match(line[:m[1]]) {
		for _, name := range s.loop.names {
			s.names.add(name, picked)
		}
	}
	return line[m[1]:]
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
		sent := withoutReader(pipeline(line, m[0]))
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

// isOwn reports whether a request goes to this machine alone. A second URL of any scheme may be a proxy.
func isOwn(command []byte) bool {
	return bytes.Count(command, []byte("://")) == 1 && staysHere(command)
}

// sendsPrivate reports whether a header of a request has the content of a private key.
func (s *Scanner) sendsPrivate(line []byte) bool {
	return s.program == shell && !s.isPrinted(line) && inHeader().Match(line)
}

// inHeader matches a command that reads a private key, in a header. What signs with the key is no such
// command.
var inHeader = pattern.New(`\b(?:curl|wget)\b.*\s(?:-H|--header|-u|--user|--oauth2-bearer)[\s=]*` +
	`["']?[^"']*(?:\$\(|\x60)\s*(?:<|(?:cat|base64|xxd|gzip|head|tail|tr|sed|od)\s)[^)\x60]*` +
	`/?\bid_(?:rsa|dsa|ecdsa|ed25519)["']?(?:[\s)|\x60]|$)`)
