package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
)

// progress is one counter line on a terminal, and nothing anywhere else. It is safe for concurrent
// use.
type progress struct {
	w     io.Writer // nil: nothing is shown
	what  string
	total int

	mu      sync.Mutex
	done    int       // guarded by mu, as are those below
	shown   time.Time // when the line was written last
	visible bool
}

func newProgress(w io.Writer, what string, total int) *progress {
	if !report.IsTerminal(w) {
		w = nil
	}
	return &progress{w: w, what: what, total: total, shown: time.Now()}
}

// step counts one more, and shows it when the last count has been read.
func (p *progress) step() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	if p.w == nil || time.Since(p.shown) < 200*time.Millisecond {
		return
	}
	p.shown, p.visible = time.Now(), true
	fmt.Fprintf(p.w, "\r%s: %d of %d\x1b[K", p.what, p.done, p.total)
}

// clear removes the line, so that results stand on an empty one.
func (p *progress) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.visible {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.visible = false
	}
}
