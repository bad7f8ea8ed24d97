package mcpserver

import (
	"fmt"
	"strings"

	"github.com/skillsd/skillsd/mcpserver/session"
)

// renderRun returns the text of run_skill_script: how it ended, what it printed, what it left in /out.
func renderRun(r *session.RunResult) string {
	first := RunLine(r)
	var out, b strings.Builder
	for _, file := range r.Out {
		line := fmt.Sprintf("out: %s %d %s %s\n", oneLine(file.Name), file.Bytes, file.Digest, file.URI)
		if file.Withheld != "" {
			line = fmt.Sprintf("out: %s withheld: it is not text and holds a secret (%s)\n",
				oneLine(file.Name), file.Withheld)
		}
		if out.Len()+len(line) > 1_500 {
			out.WriteString("… more files in the session's outputs\n")
			break
		}
		out.WriteString(line)
	}
	b.WriteString(first + "\n")
	b.WriteString("stdout:\n" + RenderStream(&r.Stdout) + "stderr:\n" + RenderStream(&r.Stderr))
	b.WriteString(out.String() + RenderSkips(r) + RenderWrites(r))
	if r.Stdout.Truncated || r.Stderr.Truncated {
		b.WriteString(first + "\n")
	}
	return b.String()
}

// RenderSkips returns a line about files in /out that were not taken, or "".
func RenderSkips(r *session.RunResult) string {
	if r.OutSkips == 0 {
		return ""
	}
	text := fmt.Sprintf("out: %d left behind ", r.OutSkips) +
		"(not a regular file, a name that is not text, unreadable or too much)"
	if len(r.Skipped) > 0 {
		shown := r.Skipped[:min(len(r.Skipped), 5)]
		text += ": " + oneLine(strings.Join(shown, ", "))
		if r.OutSkips > len(shown) {
			text += ", …"
		}
	}
	return text + "\n"
}

// maxShownWrites is how many changes to a workspace an answer names.
const maxShownWrites = 20

// RenderWrites returns what became of the changes to a staged workspace, or "" without changes. Refused
// changes come first, because nobody expects them.
func RenderWrites(r *session.RunResult) string {
	var refused, applied []string
	for _, w := range r.Writes {
		line := fmt.Sprintf("%s %s", w.Op, oneLine(w.Path))
		if w.Refused != "" {
			refused = append(refused, "refused: "+line+": "+oneLine(w.Refused))
			continue
		}
		applied = append(applied, "applied: "+line)
	}
	if len(refused)+len(applied) == 0 {
		return ""
	}
	head := fmt.Sprintf("workspace: %d changes applied, %d refused\n", len(applied), len(refused))
	if r.Sealed {
		// Names are output too.
		return head
	}
	all := append(refused, applied...)
	text := strings.Join(all[:min(len(all), maxShownWrites)], "\n") + "\n"
	if more := len(all) - maxShownWrites; more > 0 {
		unlisted := 0
		if x := r.Output.Skillsd; x != nil {
			unlisted = x.WritesUnlisted
		}
		text += fmt.Sprintf("… %d more in the session's record", max(more-unlisted, 0))
		if unlisted > 0 {
			text += fmt.Sprintf(", and %d that it counts and does not name", unlisted)
		}
		text += "\n"
	}
	return head + text
}

// RunLine returns how a run ended, in one line without a newline.
func RunLine(r *session.RunResult) string {
	ms := r.Duration.Milliseconds()
	switch {
	case r.ExitWithheld && (r.Outcome == "exited" || r.Outcome == "signaled"):
		return fmt.Sprintf("ended after %d ms, exit code withheld (backend %s)", ms, r.Backend)
	case r.Outcome == "exited":
		return fmt.Sprintf("exit %d in %d ms (backend %s)", r.ExitCode, ms, r.Backend)
	case r.Outcome == "signaled":
		return fmt.Sprintf("signal %s after %d ms (backend %s)", r.Signal, ms, r.Backend)
	}
	return fmt.Sprintf("%s after %d ms (backend %s)", r.Outcome, ms, r.Backend)
}

// RenderStream returns one stream as it was released.
func RenderStream(s *session.Stream) string {
	switch {
	case s.Withheld != nil:
		return fmt.Sprintf("[withheld; handle %s]\n", s.Withheld.Handle.HandleID)
	case s.Total == 0:
		return "(empty)\n"
	case !s.Truncated:
		return withNewline(s.Head)
	}
	omitted := max(s.Total-int64(len(s.Head))-int64(len(s.Tail)), 0)
	return fmt.Sprintf("%s[… %d bytes omitted, whole stream %s]\n%s",
		withNewline(s.Head), omitted, s.Digest, withNewline(s.Tail))
}
