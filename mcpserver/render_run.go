package mcpserver

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/skills/script"
)

// renderRun returns the text of run_skill_script: how the script ended, what the call got wrong, its files in
// /out and its changes, and its output. Some clients show users only the last lines, so the output comes last
// or, after a failure, the errors. The last line of a truncated text repeats how the script ended.
func renderRun(r *session.RunResult, mistakes string) string {
	first := RunLine(r)
	streams := []struct {
		name string
		*session.Stream
	}{{"stderr", &r.Stderr}, {"stdout", &r.Stdout}}
	if !r.ExitWithheld && !r.Opaque && (r.Outcome != "exited" || r.ExitCode != 0) {
		slices.Reverse(streams)
	}
	text := first + "\n" + mistakes + RenderMissing(r) + renderOut(r) + RenderSkips(r) + RenderWrites(r)
	printed := ""
	for _, stream := range streams {
		if stream.Total > 0 || stream.Withheld != nil {
			printed += stream.name + ":\n" + RenderStream(stream.Stream)
		}
	}
	if printed == "" && len(r.Out) == 0 {
		printed = "The script printed nothing.\n"
	}
	text += printed
	if r.Stdout.Truncated || r.Stderr.Truncated {
		text += first + "\n"
	}
	return text
}

const (
	maxOutLines = 1_500 // characters of the lines about files in /out, without the contents
	maxOutLinks = 20    // links to files in an answer
)

// renderOut returns one line for each file in /out, and the texts that are shown.
func renderOut(r *session.RunResult) string {
	var b strings.Builder
	used := 0
	for i, file := range r.Out {
		shown := session.OutShown{}
		if i < len(r.OutShown) {
			shown = r.OutShown[i]
		}
		line := fmt.Sprintf("out: %s, %d bytes, %s", oneLine(file.Name), file.Bytes, file.URI)
		if shown.HostPath != "" {
			line += ", " + oneLine(shown.HostPath)
		}
		switch {
		case file.Withheld != "":
			line = fmt.Sprintf("out: %s withheld: it is not text and holds a secret (%s)",
				oneLine(file.Name), file.Withheld)
		case shown.Picture != nil:
			line += fmt.Sprintf(", a picture of %d x %d pixels", shown.Picture.Width, shown.Picture.Height)
		}
		used += len(line)
		if used > maxOutLines {
			b.WriteString("… more files in the session's outputs\n")
			break
		}
		b.WriteString(line)
		if shown.Text != "" {
			b.WriteString(":\n" + strings.TrimSuffix(shown.Text, "\n"))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// outBlocks returns what follows the text of a run: pictures, and links to the other files that are not
// shown.
func outBlocks(r *session.RunResult) (blocks []mcp.Content) {
	links := 0
	for i, shown := range r.OutShown {
		file := &r.Out[i]
		switch {
		case file.Withheld != "" || shown.Text != "":
		case shown.Picture != nil:
			blocks = append(blocks, imageBlock(shown.Picture))
		case links < maxOutLinks:
			link := mcp.NewResourceLink(file.URI, oneLine(file.Name), "", "application/octet-stream")
			link.Size = &file.Bytes
			blocks, links = append(blocks, link), links+1
		}
	}
	return blocks
}

// missingWords describe what a script lacked, by code, and who can change that. {name} is its name.
var missingWords = map[string]string{
	script.MissingDependency: "the script needs a module that the packages of this server do not have: " +
		"{name}" + byPackages,
	script.MissingLibrary: "the script needs a shared library that the machine of this server does not " +
		"have: {name}" + byPackages,
	script.MissingProgram: "the script needs a program that scripts do not find here: {name}" + byPackages,
	script.MissingProxy: "the script needs an interpreter that reaches the hosts of its entry: {name}" +
		byPackages,
	script.NoNetwork: "the script needs the network, and has none: {name}. Another call does not change " +
		"that: the user can provide packages (skillsd help env) or grant hosts " +
		"(skillsd help allow)",
	script.OwnModule: "the skill has the module at {name}, which is not where scripts import from: that " +
		"is the directory of the script, and that of the skill. Another call does not change that: its " +
		"author can move it",
	script.OwnFile: "the script looked for a file of its skill in the directory in which it started: it " +
		"is at {name}. Call again with that path as an argument if it takes one, else with cwd {cwd}",
	script.ReadOnly: "the script wrote to {name}, which is read-only. Call again with a path below /out " +
		"for what it writes: files there are returned",
	script.LineEndings: "a program that the script starts has CRLF line endings, with which it does not " +
		"run: {name}. Another call does not change that: its author can convert it " +
		"(sed -i 's/\\r$//' FILE)",
}

const byPackages = ". Another call does not change that: the user can provide it (skillsd help env)"

// RenderMissing returns a line about what a failed script lacked, for a model and its user, or "".
func RenderMissing(r *session.RunResult) string {
	x := r.Output.Skillsd
	if x == nil || x.Missing == nil {
		return ""
	}
	text, name := missingWords[x.Missing.Code], oneLine(x.Missing.Name)
	if name == "" {
		text = strings.Replace(text, ": {name}", "", 1)
	}
	fill := strings.NewReplacer("{name}", name, "{cwd}", oneLine(x.Missing.CWD))
	return x.Missing.Code + ": " + fill.Replace(text) + ".\n"
}

// RenderSkips returns a line about files in /out that were not collected, or "".
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

// maxShownWrites is the maximum number of workspace changes that an answer lists.
const maxShownWrites = 20

// RenderWrites returns the result of the changes to a staged workspace, or "" without changes. Refused
// changes come first, because users do not expect them.
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
	changes := "changes"
	if len(applied) == 1 {
		changes = "change"
	}
	head := fmt.Sprintf("workspace: %d %s applied, %d refused\n", len(applied), changes, len(refused))
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
	return head + text + renderKept(r)
}

// renderKept returns the line that shows whether the user can undo the changes of a run.
func renderKept(r *session.RunResult) string {
	x, who := r.Output.Skillsd, "the user"
	if r.Remote {
		who = "the operator"
	}
	switch {
	case x == nil || x.Kept == nil:
		return ""
	case x.Kept.Problem != "":
		return who + " cannot undo these changes: " + x.Kept.Problem + "\n"
	}
	return who + " can undo these changes with `skillsd undo`\n"
}

// RunLine returns how a run ended, in one line without a newline.
func RunLine(r *session.RunResult) string {
	ms := r.Duration.Milliseconds()
	const nothing = "nothing else of the run is shown"
	switch {
	case r.Opaque && r.Outcome == "exited" && !r.ExitWithheld:
		return fmt.Sprintf("exit 0; %s (backend %s)", nothing, r.Backend)
	case r.Opaque && r.Outcome == "exited":
		return fmt.Sprintf("ended; %s (backend %s)", nothing, r.Backend)
	case r.Opaque:
		return fmt.Sprintf("%s; %s (backend %s)", r.Outcome, nothing, r.Backend)
	case r.ExitWithheld && (r.Outcome == "exited" || r.Outcome == "signaled"):
		return fmt.Sprintf("ended after %d ms, exit code withheld (backend %s)", ms, r.Backend)
	case r.Outcome == "exited":
		return fmt.Sprintf("exit %d in %d ms (backend %s)", r.ExitCode, ms, r.Backend)
	case r.Outcome == "signaled":
		return fmt.Sprintf("signal %s after %d ms (backend %s)", r.Signal, ms, r.Backend)
	}
	return fmt.Sprintf("%s after %d ms (backend %s)", r.Outcome, ms, r.Backend)
}

// RenderStream returns the released part of one stream.
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

func withNewline(s string) string {
	if s == "" || strings.HasSuffix(s, "\n") {
		return s
	}
	return s + "\n"
}
