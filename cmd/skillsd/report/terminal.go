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

	"golang.org/x/term"
)

// IsTerminal reports whether a stream, of either direction, is a terminal.
func IsTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// CopyOutput copies the output of a script: byte for byte, but to a terminal without control characters.
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

// Columns returns the width of w: $COLUMNS, else the width of the terminal, else 0, as for a file or a pipe.
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

// Wrap breaks a line of a result that is wider than columns; the lines that follow are indented. With
// columns 0 the line is returned as it is. Do not wrap commands, so that they can be copied.
func Wrap(line string, columns int) string {
	const indent, narrowest = "  ", 20
	if columns == 0 || Cells(line) <= columns {
		return line
	}
	return strings.Join(Fold(line, max(columns-len(indent), narrowest)), "\n"+indent)
}

// StatusLine is one line on a terminal that is replaced by the next. Anywhere else it writes nothing. It is
// safe for concurrent use.
type StatusLine struct {
	w io.Writer // nil: nothing is written

	mu      sync.Mutex // guards the fields below
	visible bool
	counted time.Time // when Count last changed the line
}

// NewStatusLine returns a status line on w, which shows nothing unless w is a terminal.
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
		fmt.Fprintf(l.w, "\r%s\x1b[K", Shorten(text, 79))
	}
}

// Count replaces the line by how much of total is done, at most five times a second, so that it can be read.
// Without a total the line has only the text.
func (l *StatusLine) Count(text string, done, total int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if total > 0 {
		if time.Since(l.counted) < 200*time.Millisecond {
			return
		}
		text = fmt.Sprintf("%s: %d of %d", text, done, total)
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
