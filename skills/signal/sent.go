package signal

import (
	"bytes"
	"slices"

	"github.com/skillsd/skillsd/skills/pattern"
)

// isSent reports whether a line sends something, and does not only show a command that would.
func (s *Scanner) isSent(line []byte, from taint) bool {
	rest := s.withoutKeys(line)
	if s.isJoined && s.program == shell {
		rest = logins().ReplaceAll(rest, nil)
	}
	if len(rest) < len(line) && !s.hasSecret(rest) {
		return false
	}
	line = rest
	m := sends().FindIndex(line)
	switch {
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

// logins matches the parts of a command that a service asks for: a header, and a field of a form that is a
// variable. A script that gets its key from a keychain logs in with them, and its command has a line for
// each.
var logins = pattern.New(`\s(?:-H|--header)[\s=]*(?:"[^"(\x60]*"|'[^']*')` +
	`|\s["']?[\w-]+=\$\{?\w+\}?["']?(?:[\s)]|$)`)

// hasSecret reports whether a text has a secret.
func (s *Scanner) hasSecret(text []byte) bool { return s.hasKind(text, secret) }

// hasKind reports whether a text has a value of a kind.
func (s *Scanner) hasKind(text []byte, kind taint) bool {
	return slices.ContainsFunc(s.taintOf(text), func(t tainted) bool { return t.from&kind != 0 })
}

// withoutKeys returns a line without the keys that log in and are not sent, and without public keys.
func (s *Scanner) withoutKeys(line []byte) []byte {
	has := func(text string) bool { return bytes.Contains(line, []byte(text)) }
	if !slices.ContainsFunc([]string{"-i", "dentity", "key", ".pub"}, has) || !s.spend(line) {
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
