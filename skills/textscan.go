package skills

import (
	"bytes"
	"unicode/utf8"
)

// textScan tells whether bytes that come in pieces are UTF-8 without NUL.
type textScan struct {
	text bool
	rest []byte // the start of a character that the last piece cut
}

func (t *textScan) add(piece []byte) {
	if !t.text {
		return
	}
	for len(t.rest) > 0 && len(piece) > 0 && !utf8.FullRune(t.rest) {
		t.rest, piece = append(t.rest, piece[0]), piece[1:]
	}
	if len(t.rest) > 0 && utf8.FullRune(t.rest) {
		t.text = utf8.Valid(t.rest)
		t.rest = t.rest[:0]
	}
	cut := len(piece)
	for back := 1; back <= min(utf8.UTFMax-1, len(piece)); back++ {
		if utf8.RuneStart(piece[len(piece)-back]) {
			if !utf8.FullRune(piece[len(piece)-back:]) {
				cut = len(piece) - back
			}
			break
		}
	}
	t.rest = append(t.rest, piece[cut:]...)
	t.text = t.text && utf8.Valid(piece[:cut]) && bytes.IndexByte(piece, 0) < 0
}

func (t *textScan) end() bool { return t.text && len(t.rest) == 0 }
