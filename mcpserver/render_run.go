package mcpserver

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/skillsd/skillsd/mcpserver/session"
)

// Most characters of a run's output that a reply shows, of both streams together.
const (
	headShare = 24_000
	tailShare = 12_000
)

// renderRun is the text of run_skill_script: how it ended, what it printed, what it left in /out.
func renderRun(r *session.RunResult) string {
	first := runLine(r)
	var out, b strings.Builder
	for _, file := range r.Out {
		line := fmt.Sprintf("out: %s %d %s %s\n", oneLine(file.Name), file.Bytes, file.Digest, file.URI)
		if out.Len()+len(line) > 1_500 {
			out.WriteString("… more files in the session's outputs\n")
			break
		}
		out.WriteString(line)
	}
	b.WriteString(first + "\n")
	stdout, stderr := r.Stdout, r.Stderr
	head, tail := shares(len(stderr.Head)+len(stderr.Tail), len(stdout.Head)+len(stdout.Tail))
	outText, outCut := renderStream(stdout, head, tail)
	errText, errCut := renderStream(stderr, headShare-head, tailShare-tail)
	b.WriteString("stdout:\n" + outText + "stderr:\n" + errText + out.String())
	if outCut || errCut {
		b.WriteString(first + "\n")
	}
	return b.String()
}

// runLine is the first line of a run's text.
func runLine(r *session.RunResult) string {
	ms := r.Duration.Milliseconds()
	switch r.Outcome {
	case "exited":
		return fmt.Sprintf("exit %d in %d ms (backend %s)", r.ExitCode, ms, r.Backend)
	case "signaled":
		return fmt.Sprintf("signal %s after %d ms (backend %s)", r.Signal, ms, r.Backend)
	}
	return fmt.Sprintf("%s after %d ms (backend %s)", r.Outcome, ms, r.Backend)
}

// shares divides the room between stdout and stderr: each gets at least a quarter when it needs it.
func shares(stderr, stdout int) (head, tail int) {
	if stderr+stdout == 0 {
		return headShare / 2, tailShare / 2
	}
	part := min(max(float64(stdout)/float64(stdout+stderr), 0.25), 0.75)
	switch {
	case stderr < (headShare+tailShare)/4:
		part = 1 - float64(stderr+64)/float64(headShare+tailShare)
	case stdout < (headShare+tailShare)/4:
		part = float64(stdout+64) / float64(headShare+tailShare)
	}
	return int(part * headShare), int(part * tailShare)
}

// renderStream shows one stream, its middle left out when it is longer than its share, and reports
// whether anything was left out.
func renderStream(s session.Stream, head, tail int) (text string, cut bool) {
	if s.Withheld != "" {
		return fmt.Sprintf("[withheld; handle %s]\n", s.Withheld), false
	}
	if s.Total == 0 {
		return "(empty)\n", false
	}
	whole := s.Head + s.Tail
	if !s.Truncated && utf8.RuneCountInString(whole) <= head+tail {
		return withNewline(whole), false
	}
	first, last := cutText([]byte(s.Head), head), lastText(s.Tail, tail)
	if !s.Truncated {
		first, last = cutText([]byte(whole), head), lastText(whole, tail)
	}
	omitted := s.Total - int64(len(first)) - int64(len(last))
	return fmt.Sprintf("%s[… %d bytes omitted, whole stream %s]\n%s", withNewline(string(first)), max(omitted, 0), s.Digest, withNewline(last)), true
}

// lastText returns at most room characters from the end of s.
func lastText(s string, room int) string {
	start := len(s)
	for range room {
		if start == 0 {
			break
		}
		_, size := utf8.DecodeLastRuneInString(s[:start])
		start -= size
	}
	return s[start:]
}
