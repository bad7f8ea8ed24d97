// Package report prints what skillsd knows for a reader: escaped text, tables, JSON, and the sessions and
// skills that commands show. It makes foreign text safe for a terminal, and takes writers and widths as
// arguments, so that a page can use it as well as a command.
package report

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// Printable returns foreign text that cannot move the cursor, forge a line or change the direction of text:
// control characters become spaces, and invisible ones a replacement character. It keeps the two joiners,
// which some writing systems need.
func Printable(s string) string { return strings.Map(printable, s) }

func printable(r rune) rune {
	switch {
	case r < ' ' || (r >= 0x7f && r < 0xa0) || r == '\u2028' || r == '\u2029':
		return ' '
	case r == '\u200c' || r == '\u200d':
		return r
	case unicode.Is(unicode.Cf, r):
		return unicode.ReplacementChar
	}
	return r
}

// Visible returns a line of foreign text for a reader who decides whether to trust it: characters that a
// terminal would not show, or would act on, are escaped as in a Go string. A tab is four spaces. Joiners stay
// next to the letters and signs that need them.
func Visible(line string) string {
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

// isJoined reports whether a character may have another form next to a joiner.
func isJoined(r rune) bool {
	return r >= 0x250 && r != utf8.RuneError &&
		(unicode.In(r, unicode.L, unicode.M, unicode.So, unicode.Sk)) && !isBlankLetter(r)
}

// isBlankLetter reports whether r is a letter or a mark that shows nothing.
func isBlankLetter(r rune) bool {
	switch {
	case r == 0x34f, r == 0x115f, r == 0x1160, r == 0x17b4, r == 0x17b5, r == 0x2800, r == 0x3164,
		r == 0xffa0:
		return true
	}
	return 0xe0100 <= r && r <= 0xe01ef || 0x180b <= r && r <= 0x180f
}

// OneLine returns foreign text for a cell of a table: printable, with single spaces.
func OneLine(s string) string { return strings.Join(strings.Fields(Printable(s)), " ") }

// Cells returns how many columns of a terminal a printable text takes.
func Cells(s string) int {
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

// Shorten cuts text to at most most columns, at the end of a word if one ends in the second half.
func Shorten(s string, most int) string {
	s = OneLine(s)
	if Cells(s) <= most {
		return s
	}
	used, cut, word := 0, 0, 0
	for i, r := range s {
		if r == ' ' {
			word = i
		}
		// One column is left for the ellipsis.
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

// Pad fills text with spaces up to a number of columns.
func Pad(s string, to int) string { return s + strings.Repeat(" ", max(0, to-Cells(s))) }

// Fold breaks a text into lines of at most width columns, unless a word is longer.
func Fold(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && Cells(line)+1+Cells(word) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

// Plural returns a count with its noun, in the plural unless it is 1.
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// ShellLine returns a command line for a POSIX shell.
func ShellLine(words ...string) string {
	// A shell could take any other character for more than a part of a word.
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-./:=@_,%"
	line := make([]string, len(words))
	for i, word := range words {
		line[i] = word
		if word == "" || strings.Trim(word, plain) != "" {
			line[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return strings.Join(line, " ")
}
