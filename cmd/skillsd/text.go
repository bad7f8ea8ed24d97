package main

import (
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/term"
	"golang.org/x/text/width"
)

// printable keeps foreign text from moving the cursor, forging a line or turning its direction:
// control characters become spaces, invisible ones a mark. The two joiners stay, scripts need them.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r < ' ' || (r >= 0x7f && r < 0xa0) || r == '\u2028' || r == '\u2029':
			return ' '
		case r == '\u200c' || r == '\u200d':
			return r
		case unicode.Is(unicode.Cf, r):
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// oneLine is foreign text fit for a cell: printable, with single spaces.
func oneLine(s string) string { return strings.Join(strings.Fields(printable(s)), " ") }

// cells is how many columns of a terminal a printable text takes.
func cells(s string) int {
	n := 0
	for _, r := range s {
		n += runeCells(r)
	}
	return n
}

func runeCells(r rune) int {
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// shorten cuts text so that it takes at most most columns, at a word where one ends in the second
// half.
func shorten(s string, most int) string {
	s = oneLine(s)
	if cells(s) <= most {
		return s
	}
	used, cut, word := 0, 0, 0
	for i, r := range s {
		if r == ' ' {
			word = i
		}
		if used += runeCells(r); used > most-1 {
			cut = i
			break
		}
	}
	if word > cut/2 {
		cut = word
	}
	return strings.TrimRight(s[:cut], " ") + "…"
}

// pad fills text with spaces up to a number of columns.
func pad(s string, to int) string { return s + strings.Repeat(" ", max(0, to-cells(s))) }

// knownColumns is the width of what w writes to, 0 when it has none: a file or a pipe.
func (a *app) knownColumns(w io.Writer) int {
	if value, ok := a.env("COLUMNS"); ok {
		if n, err := strconv.Atoi(value); err == nil && n > 0 {
			return n
		}
	}
	if file, ok := w.(*os.File); ok {
		if n, _, err := term.GetSize(int(file.Fd())); err == nil && n > 0 {
			return n
		}
	}
	return 0
}

// folded breaks a line of a result at the width there is; what follows stands below its text. Commands
// are not folded, so that they can be copied.
func (a *app) folded(line string) string { return a.foldedFor(a.out, line) }

// foldedFor is folded for a line of w.
func (a *app) foldedFor(w io.Writer, line string) string {
	const indent = "  "
	width := a.knownColumns(w)
	if width == 0 || cells(line) <= width {
		return line
	}
	return strings.Join(fold(line, max(width-len(indent), minFold)), "\n"+indent)
}

// minFold is the narrowest text that is folded, in columns.
const minFold = 20

// columns is how wide a line of w may be: $COLUMNS, else the terminal's width, else 80.
func (a *app) columns(w io.Writer) int {
	if n := a.knownColumns(w); n > 0 {
		return n
	}
	return 80
}
