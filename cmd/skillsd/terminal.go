package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/mcpserver/session"
)

// await calls read with the input of the process and waits for it until ctx is done. Input that is read
// after that is lost; so it is for the end of a command.
func (a *app) await(ctx context.Context, read func(in io.Reader) ([]byte, error)) ([]byte, error) {
	type answer struct {
		text []byte
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		text, err := read(a.in)
		answered <- answer{text, err}
	}()
	select {
	case got := <-answered:
		return got.text, got.err
	case <-ctx.Done():
		return nil, &exitError{Code: exitFailure, Err: errCanceled}
	}
}

// confirm asks a question on the terminal. Only a clear yes to a question that was written is one. Input from
// before the question is dropped: it cannot be an answer to it.
func (a *app) confirm(ctx context.Context, question string) (yes bool, err error) {
	if terminal, ok := a.in.(*os.File); ok {
		if err := report.DropTyped(terminal.Fd()); err != nil {
			return false, fmt.Errorf("ask on the terminal: %w", err)
		}
	}
	if _, err := fmt.Fprintf(a.err, "%s [y/N] ", question); err != nil {
		return false, fmt.Errorf("ask on the terminal: %w", err)
	}
	line, err := a.await(ctx, func(in io.Reader) ([]byte, error) {
		const most = 1 << 10
		text, err := bufio.NewReader(io.LimitReader(in, most)).ReadBytes('\n')
		if err == io.EOF {
			err = nil
		}
		return text, err
	})
	if err != nil || !strings.HasSuffix(string(line), "\n") {
		fmt.Fprintln(a.err)
	}
	word := strings.ToLower(strings.TrimSpace(string(line)))
	return err == nil && (word == "y" || word == "yes"), err
}

// answer asks the user at the terminal about a run.
func (a *app) answer(ctx context.Context, q *session.Question) *session.Answer {
	answer := &session.Answer{State: q.State, Action: "decline"}
	for line := range strings.SplitSeq(q.Message, "\n") {
		if _, err := fmt.Fprintln(a.err, report.Printable(line)); err != nil {
			answer.Action = "cancel"
			return answer
		}
	}
	switch yes, err := a.confirm(ctx, "Run it this once?"); {
	case err != nil:
		answer.Action = "cancel"
	case yes:
		answer.Action = "accept"
	}
	return answer
}

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
