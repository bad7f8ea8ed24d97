package signal

import (
	"bytes"

	"github.com/skillsd/skillsd/skills/pattern"
)

// isSent reports whether a line sends something, and does not only show a command that would.
func (s *Scanner) isSent(line []byte, from taint) bool {
	rest := s.withoutKeys(line)
	if s.statement.isJoined && s.program == shell {
		rest = logins().ReplaceAll(rest, nil)
	}
	if len(rest) < len(line) && !s.hasSecret(rest) {
		return false
	}
	line = rest
	m := sends().FindIndex(line)
	switch {
	case m == nil && s.copiesByLogin(line) && !s.isPrinted(line):
		return true
	case m == nil:
		return from&link != 0 && !s.isPrinted(line)
	case s.program == code:
		return !s.isPrinted(line) || quoteAt(line, m[0]) == 0
	}
	if end := bytes.LastIndexAny(line[:m[0]], ";&"); end >= 0 && quoteAt(line, end) == 0 {
		line = line[end+1:]
	}
	return !s.isPrinted(line)
}

// copiesByLogin reports whether a line passes a secret to a shell on another machine. What that shell reads
// or writes there is on its machine.
func (s *Scanner) copiesByLogin(line []byte) bool {
	if m := pipesToLogin().FindIndex(line); m != nil {
		passed := pipeline(line, m[0])
		if at := pipesToLogin().FindIndex(passed); at != nil && s.hasSecret(passed[:at[0]]) {
			return true
		}
	}
	m := readByLogin().FindSubmatch(line)
	return m != nil && s.hasSecret(m[1])
}

// Expressions that match a shell on another machine which gets the output of a command, or a file.
var (
	pipesToLogin = pattern.New(`\|\s*(?:sudo\s+)?ssh\s`)
	readByLogin  = pattern.New(`\bssh\s[^|;<]*<\s*(` + oneWord + `)`)
)

// gathers records the list or the table that a line puts a secret into, and the parameter of a function that
// gets one after the other.
func (s *Scanner) gathers(line []byte, here []tainted) {
	if len(s.names) == maxNames || !hasTaint(here, secret|environ) || !s.spend(line) {
		return
	}
	if m := eachOf().FindSubmatch(line); m != nil && s.hasSecret(m[1]) {
		s.names.add(string(m[2]), secret)
	}
	const most = 4 // of a line
	for _, m := range element().FindAllSubmatchIndex(line, most) {
		name, rest := line[m[2]:m[3]], line[m[1]:]
		if headerName().Match(name) {
			continue
		}
		if from := s.gathered(rest); from != 0 {
			s.names.add(string(name), from)
		}
	}
}

// gathered returns what of a secret an element of a list or a table has, which begins a text.
func (s *Scanner) gathered(text []byte) (from taint) {
	isRead := readsText().Match(text)
	for _, t := range s.taintOf(text) {
		// A list of names alone has no secret.
		if isRead || t.name != "" && bytes.HasPrefix(bytes.TrimLeft(text, " "), []byte(t.name)) {
			from |= t.from & (secret | environ)
		}
	}
	if from&environ != 0 && !s.isWholeEnv(nil, text) {
		from &^= environ
	}
	return from
}

// Expressions that match what puts a value into a list or a table, a call of a function for each of several
// values, the name of the headers of a request, and a call that reads a text.
var (
	element = pattern.New(`(?:^|[{;:]|=>)\s*([A-Za-z_]\w{0,60})(?:\[[^\]=]+\]\s*\+?=\s*` +
		`|\.(?:append|extend|push|unshift|add|set|update|insert)\(\s*)`)
	eachOf = pattern.New(`^\s*(.*)\.(?:forEach|map)\(\s*(?:async\s*)?\(?\s*` +
		`([A-Za-z_]\w{0,60})\s*\)?\s*=>`)
	headerName = pattern.New(`(?i)header|environ|^env$|auth`)
	readsText  = pattern.New(`\b(?:read\w*|open|b64encode)\(`)
)

// logins matches the parts of a command that a service asks for: a header, and a field of a form that is a
// variable. A script that gets its key from a keychain logs in with them, and its command has a line for
// each.
var logins = pattern.New(`\s(?:-H|--header)[\s=]*(?:"[^"(\x60]*"|'[^']*')` +
	`|\s["']?[\w-]+=\$\{?\w+\}?["']?(?:[\s)]|$)`)

// withoutKeys returns a line without the keys that log in and are not sent, and without public keys.
func (s *Scanner) withoutKeys(line []byte) []byte {
	if !containsAny(line, "-i", "dentity", "key", ".pub") || !s.spend(line) {
		return line
	}
	return keys().ReplaceAll(line, []byte("$1"))
}

// keys matches the key of a login: the option of a program that logs in, and the argument of a library. Other
// programs read the file behind -i, as base64 does.
var keys = pattern.New(`(\b(?:ssh|scp|sftp|sshfs|ssh-copy-id|mosh)\b[^|;&]*?\s)-i["',\s]*` + oneWord +
	`|\bIdentityFile[=\s]+` + oneWord +
	`|^\s*["']?(?:-\w+\s+)*-i\s*` + oneWord +
	`|\b(?:key_filename|pkey|client_keys)\s*=\s*[^,)]*` +
	`|[^\s"'=@]*\.pub\b`)

// oneWord matches a word of a shell, or a literal.
const oneWord = `(?:"[^"]*"|'[^']*'|[^\s"']+)`

// sends matches what sends data to another machine.
var sends = pattern.New(`(?i)\bcurl\b.*\s(?:-d|-F|-T|--data\S*|--form|--upload-file|-X\s*POST)\b|` +
	`\bwget\b.*--post|` +
	`\brequests\.(?:post|put)\(|\burlopen\(|\bfetch\(|\baxios\b|\bhttps?\.request\(|\bhttpx\.(?:post|` +
	`put)\(|` +
	`\bInvoke-(?:RestMethod|WebRequest)\b|\birm\b|\biwr\b|\bnc(?:at)?\s+\S|/dev/tcp/|\.send(?:all)?\(|` +
	`\bscp\s|\brsync\s|` +
	`\bxargs\b.*\b(?:curl|wget)\b|\bgh\s+gist\s+create\b|\bsendmail\b|\bapi\.telegram\.org\b` +
	`|\bdiscord(?:app)?\.com/api/webhooks\b` +
	`|\bnslookup\b|\bdig\s`)
