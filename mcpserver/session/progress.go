package session

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/skillsd/skillsd/skills/policy"
)

// reportRun reports the progress of a run to its call, which asked for that, every second until stop is
// called: its duration, and the last line of output if the output is released and there are no secrets. stop
// waits for the last report.
func (r *run) reportRun() (stop func()) {
	var output *lastLine
	// A secret that spans lines is found only in the whole output.
	if r.grant.Release == policy.ReleaseObserved && r.secrets == nil {
		output = new(lastLine)
		r.cmd.Live = output
	}
	r.call.Progress("running")
	begun, done := time.Now(), make(chan struct{})
	var reporting sync.WaitGroup
	reporting.Go(func() {
		ticker := time.NewTicker(reportEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				r.call.Progress(fmt.Sprintf("running %d s%s", int(time.Since(begun).Seconds()),
					output.shown()))
			case <-done:
				return
			}
		}
	})
	return func() {
		close(done)
		reporting.Wait()
	}
}

const (
	reportEvery = time.Second

	maxLine     = 80      // most characters of a line
	maxHeldLine = 4 << 10 // most bytes that are buffered of a line without an end
)

// lastLine is a writer that keeps the last line that is not blank. It is safe for concurrent use. A nil
// lastLine has no line.
type lastLine struct {
	mu   sync.Mutex
	line []byte
	rest []byte // the line that has not ended
}

// Write never fails.
func (l *lastLine) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, p...)
	// A progress bar ends its lines with a carriage return.
	if end := bytes.LastIndexAny(l.rest, "\r\n"); end >= 0 {
		if whole := bytes.TrimSpace(l.rest[:end]); len(whole) > 0 {
			l.line = bytes.Clone(whole[bytes.LastIndexAny(whole, "\r\n")+1:])
		}
		l.rest = append(l.rest[:0], l.rest[end+1:]...)
	}
	if len(l.rest) > maxHeldLine {
		l.rest = append(l.rest[:0], l.rest[len(l.rest)-maxHeldLine:]...)
	}
	return len(p), nil
}

// shown returns the line in the form that progress messages have, without control and invisible characters,
// or "".
func (l *lastLine) shown() string {
	if l == nil {
		return ""
	}
	l.mu.Lock()
	line := string(l.line)
	l.mu.Unlock()
	// Clients print progress in terminals, where a script could otherwise send escape sequences.
	line = strings.Map(func(c rune) rune {
		if c == '\t' {
			return ' '
		}
		if !unicode.IsPrint(c) {
			return -1
		}
		return c
	}, strings.ToValidUTF8(line, "\uFFFD"))
	line = strings.TrimSpace(line)
	if line == "" {
		return ""
	}
	if cut := []rune(line); len(cut) > maxLine {
		line = string(cut[:maxLine-1]) + "…"
	}
	return "; last line: " + line
}
