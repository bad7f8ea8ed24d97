// Package report formats the output of skillsd for people: escaped text, tables, JSON, and the sessions and
// skills that commands show. It makes foreign text safe for a terminal, and takes writers and widths as
// arguments, so that the operator's page can use it too.
package report

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
	"golang.org/x/text/width"
)

// Printable makes foreign text unable to move the cursor, forge a line or change the direction of text:
// control characters become spaces, and invisible ones a replacement character. It keeps the two joiners.
func Printable(s string) string { return strings.Map(printable, s) }

func printable(r rune) rune {
	switch {
	case r < ' ' || (r >= 0x7f && r < 0xa0) || r == '\u2028' || r == '\u2029':
		return ' '
	// Nearly all text is ASCII, and a search in tables is slower.
	case r < 0x7f:
		return r
	// Some writing systems need the joiners.
	case r == '\u200c' || r == '\u200d':
		return r
	case unicode.Is(unicode.Cf, r):
		return unicode.ReplacementChar
	}
	return r
}

// Visible returns a line of foreign text for a reader who decides whether to trust it: characters that a
// terminal would hide or execute are escaped as in a Go string. A tab becomes four spaces. Joiners stay next
// to the letters and signs that need them.
func Visible(line string) string {
	var out strings.Builder
	before := ' '
	for at, r := range line {
		_, size := utf8.DecodeRuneInString(line[at:])
		after, _ := utf8.DecodeRuneInString(line[at+size:])
		switch {
		case r == '\t':
			out.WriteString("    ")
		// A valid U+FFFD has three bytes and is shown as such.
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

// isJoined reports whether a joiner may change the form of a character.
func isJoined(r rune) bool {
	return r >= 0x250 && r != utf8.RuneError &&
		(unicode.In(r, unicode.L, unicode.M, unicode.So, unicode.Sk)) && !isBlankLetter(r)
}

// isBlankLetter reports whether r is an invisible letter or mark.
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

// Cells returns the number of terminal columns of a printable text.
func Cells(s string) int {
	n := 0
	for _, r := range s {
		n += runeCells(r)
	}
	return n
}

func runeCells(r rune) int {
	// Nearly all text is ASCII, and the tables of widths took an eighth of the time of a list.
	if r < 0x7f {
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// Shorten truncates text to at most most columns, at the end of a word if one ends in the second half.
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
		// Leave one column for the ellipsis.
		used += runeCells(r)
		if used > most-1 {
			cut = i
			break
		}
	}
	if word > cut/2 {
		cut = word
	}
	return strings.TrimRight(s[:cut], " ") + "…"
}

// Pad pads text with spaces to a number of columns.
func Pad(s string, to int) string { return s + strings.Repeat(" ", max(0, to-Cells(s))) }

// Fold breaks text into lines of at most width columns, unless a word is longer.
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

// Plural returns a number with its noun, in the plural unless it is 1.
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// ShellLine quotes words for a POSIX shell.
func ShellLine(words ...string) string {
	// Other characters may have a meaning in a shell.
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

// IsTerminal reports whether a stream is a terminal.
func IsTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// CopyOutput copies the output of a script byte for byte, except control characters to a terminal.
func CopyOutput(w io.Writer, r io.Reader, terminal bool) error {
	if !terminal {
		_, err := io.Copy(w, r)
		return err
	}
	in, out := bufio.NewReader(r), bufio.NewWriter(w)
	for {
		c, _, err := in.ReadRune()
		if err != nil && !errors.Is(err, io.EOF) {
			return errors.Join(out.Flush(), err)
		}
		if err != nil {
			return out.Flush()
		}
		if c != '\n' && c != '\t' {
			c = printable(c)
		}
		out.WriteRune(c)
	}
}

// Columns returns the width of w: $COLUMNS, else the width of the terminal, else 0, for example for a file or
// a pipe.
func Columns(env func(name string) (string, bool), w io.Writer) int {
	if value, ok := env("COLUMNS"); ok {
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

// Wrap breaks a line that is wider than columns, with further lines indented. With columns 0 it returns the
// line unchanged. Do not wrap commands, so that they can be copied.
func Wrap(line string, columns int) string {
	const indent, narrowest = "  ", 20
	if columns == 0 || Cells(line) <= columns {
		return line
	}
	return strings.Join(Fold(line, max(columns-len(indent), narrowest)), "\n"+indent)
}

// Paint colours words on a terminal. The zero Paint returns them unchanged.
type Paint bool

// NewPaint returns the Paint for w, which colours nothing unless w is a terminal with colours and NO_COLOR is
// unset.
func NewPaint(env func(name string) (string, bool), w io.Writer) Paint {
	refused, _ := env("NO_COLOR")
	kind, _ := env("TERM")
	return Paint(IsTerminal(w) && refused == "" && kind != "dumb")
}

// Good returns green text, for success.
func (p Paint) Good(s string) string { return p.colour("32", s) }

// Warn returns yellow text, for warnings.
func (p Paint) Warn(s string) string { return p.colour("33", s) }

// Bad returns red text, for failures.
func (p Paint) Bad(s string) string { return p.colour("31", s) }

func (p Paint) colour(code, s string) string {
	if !p {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// StatusLine is one line on a terminal that the next one replaces. It writes nothing anywhere else. It is
// safe for concurrent use.
type StatusLine struct {
	w io.Writer // nil: no output

	mu      sync.Mutex // guards the fields below
	visible bool
	counted time.Time // when Count last changed the line
}

// NewStatusLine returns a status line on w, which writes nothing unless w is a terminal.
func NewStatusLine(w io.Writer) *StatusLine {
	if !IsTerminal(w) {
		w = nil
	}
	return &StatusLine{w: w, counted: time.Now()}
}

// Set replaces the line.
func (l *StatusLine) Set(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.set(text)
}

func (l *StatusLine) set(text string) {
	if l.w != nil {
		l.visible = true
		// A line that wraps could not be replaced by a carriage return.
		fmt.Fprintf(l.w, "\r%s\x1b[K", Shorten(text, 79))
	}
}

// Count replaces the line with the progress, at most five times a second. With total 0 the line has only the
// text; with a negative, unknown total only the number done.
func (l *StatusLine) Count(text string, done, total int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if total != 0 {
		// A line that changes more often cannot be read.
		if time.Since(l.counted) < 200*time.Millisecond {
			return
		}
		text = fmt.Sprintf("%s: %d", text, done)
	}
	if total > 0 {
		text += fmt.Sprintf(" of %d", total)
	}
	l.counted = time.Now()
	l.set(text)
}

// Clear removes the line, so that the next output starts on an empty one.
func (l *StatusLine) Clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.visible {
		fmt.Fprint(l.w, "\r\x1b[K")
		l.visible = false
	}
}
