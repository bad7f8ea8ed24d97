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

	mu      sync.Mutex
	visible bool // guarded by mu
}

// NewStatusLine returns a status line on w, which shows nothing unless w is a terminal.
func NewStatusLine(w io.Writer) *StatusLine {
	if !IsTerminal(w) {
		w = nil
	}
	return &StatusLine{w: w}
}

// Set replaces the line.
func (l *StatusLine) Set(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.w != nil {
		l.visible = true
		fmt.Fprintf(l.w, "\r%s\x1b[K", Shorten(text, 79))
	}
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

// progress is a status line that counts. It is safe for concurrent use.
type progress struct {
	*StatusLine
	what  string
	total int

	count sync.Mutex
	done  int       // guarded by count, as is shown
	shown time.Time // when the line was last written
}

// NewProgress returns a count of what is done, shown on w if it is a terminal.
func NewProgress(w io.Writer, what string, total int) *progress {
	return &progress{StatusLine: NewStatusLine(w), what: what, total: total, shown: time.Now()}
}

// Step counts one more. The line changes at most five times a second, so that it can be read.
func (p *progress) Step() {
	p.count.Lock()
	defer p.count.Unlock()
	p.done++
	if time.Since(p.shown) >= 200*time.Millisecond {
		p.shown = time.Now()
		p.Set(fmt.Sprintf("%s: %d of %d", p.what, p.done, p.total))
	}
}
