package signal

import (
	"bytes"
	"iter"
)

// unquoted yields the bytes of a text of a shell, or of another program, that are neither in quotes nor
// behind a backslash, with their places.
func unquoted(text []byte, isShell bool) iter.Seq2[int, byte] {
	return func(yield func(int, byte) bool) {
		quote := byte(0)
		for i := 0; i < len(text); i++ {
			switch c := text[i]; {
			case c == '\\' && (quote != '\'' || !isShell):
				i++
			case quote == 0 && (c == '"' || c == '\'' || c == '`' && !isShell):
				quote = c
			case c == quote:
				quote = 0
			case quote == 0 && !yield(i, c):
				return
			}
		}
	}
}

// containsAny reports whether a text contains one of the parts.
func containsAny(text []byte, parts ...string) bool {
	for _, part := range parts {
		if bytes.Contains(text, []byte(part)) {
			return true
		}
	}
	return false
}

// places yields where a name begins and ends in a text.
func places(text, name []byte) iter.Seq2[int, int] {
	return func(yield func(int, int) bool) {
		for from := 0; ; {
			i := bytes.Index(text[from:], name)
			if i < 0 || !yield(from+i, from+i+len(name)) {
				return
			}
			from += i + len(name)
		}
	}
}

// quoteAt returns the quotation mark that is open at text[at], or 0.
func quoteAt(text []byte, at int) byte {
	open := byte(0)
	for i := 0; i < at; i++ {
		switch c := text[i]; {
		case c == '\\':
			i++
		case open == 0 && (c == '"' || c == '\'' || c == '`'):
			// An apostrophe within a word does not quote.
			if c != '\'' || i == 0 || !isLetter(text[i-1]) {
				open = c
			}
		case c == open:
			open = 0
		}
	}
	return open
}

// isQuote reports whether a byte begins or ends a literal.
func isQuote(c byte) bool { return c == '"' || c == '\'' }

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

func isWord(c byte) bool { return isLetter(c) || c == '_' || '0' <= c && c <= '9' }

// hasWord reports whether a text contains a name that is not a part of a longer one, nor the letter before a
// literal, as in f"…".
func hasWord(text, name []byte) bool {
	for at, end := range places(text, name) {
		isPrefix := len(name) == 1 && end < len(text) && (text[end] == '"' || text[end] == '\'') &&
			(at == 0 || bytes.IndexByte([]byte(" \t([{,=+:"), text[at-1]) >= 0)
		if !isPrefix && (at == 0 || !isWord(text[at-1])) && (end == len(text) || !isWord(text[end])) {
			return true
		}
	}
	return false
}
