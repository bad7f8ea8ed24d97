package report

import (
	"fmt"
	"io"
	"sync"
	"time"
)

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
