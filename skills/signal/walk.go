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
