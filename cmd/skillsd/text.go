package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

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

// visible is a line of foreign text as it is read before it is trusted: what a terminal would not show,
// or would act on, stands there as Go writes it in quotes. A tab is four blanks. The joiners stay beside
// the letters and signs that need them.
func visible(line string) string {
	var out strings.Builder
	before := ' '
	for at, r := range line {
		_, size := utf8.DecodeRuneInString(line[at:])
		after, _ := utf8.DecodeRuneInString(line[at+size:])
		switch {
		case r == '\t':
			out.WriteString("    ")
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&out, `\x%02x`, line[at])
		case (r == '\u200c' || r == '\u200d') && (isJoined(before) || isJoined(after)):
			out.WriteRune(r)
		case !strconv.IsPrint(r) || isBlankLetter(r):
			out.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		default:
			out.WriteRune(r)
		}
		before = r
	}
	return out.String()
}

// isJoined reports characters that may take another form beside a joiner.
func isJoined(r rune) bool {
	return r >= 0x250 && r != utf8.RuneError && (unicode.In(r, unicode.L, unicode.M, unicode.So, unicode.Sk)) && !isBlankLetter(r)
}

// isBlankLetter reports letters and marks that show nothing.
func isBlankLetter(r rune) bool {
	switch {
	case r == 0x34f, r == 0x115f, r == 0x1160, r == 0x17b4, r == 0x17b5, r == 0x2800, r == 0x3164, r == 0xffa0:
		return true
	}
	return 0xe0100 <= r && r <= 0xe01ef || 0x180b <= r && r <= 0x180f
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
