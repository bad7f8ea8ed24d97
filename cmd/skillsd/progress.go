package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
)

// statusLine is one line on a terminal that is replaced by the next. Anywhere else it writes nothing. It is
// safe for concurrent use.
type statusLine struct {
	w io.Writer // nil: nothing is written

	mu      sync.Mutex
	visible bool // guarded by mu
}

func newStatusLine(w io.Writer) *statusLine {
	if !report.IsTerminal(w) {
		w = nil
	}
	return &statusLine{w: w}
}

// set replaces the line.
func (l *statusLine) set(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.w != nil {
		l.visible = true
		fmt.Fprintf(l.w, "\r%s\x1b[K", report.Shorten(text, 79))
	}
}

// clear removes the line, so that the next output starts on an empty one.
func (l *statusLine) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.visible {
		fmt.Fprint(l.w, "\r\x1b[K")
		l.visible = false
	}
}

// progress is a status line that counts. It is safe for concurrent use.
type progress struct {
	*statusLine
	what  string
	total int

	count sync.Mutex
	done  int       // guarded by count, as is shown
	shown time.Time // when the line was last written
}

func newProgress(w io.Writer, what string, total int) *progress {
	return &progress{statusLine: newStatusLine(w), what: what, total: total, shown: time.Now()}
}

// step counts one more. The line changes at most five times a second, so that it can be read.
func (p *progress) step() {
	p.count.Lock()
	defer p.count.Unlock()
	p.done++
	if time.Since(p.shown) >= 200*time.Millisecond {
		p.shown = time.Now()
		p.set(fmt.Sprintf("%s: %d of %d", p.what, p.done, p.total))
	}
}
