package skills

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/skillsd/skillsd/skills/frontmatter"
)

// Limits of the search for signals. What lies beyond them is served all the same.
const (
	maxSignalFile  = 1 << 20 // bytes of one file
	maxSignalSkill = 4 << 20 // bytes of all files of a skill
	maxSignals     = 50      // diagnostics of one skill
	maxSignalLine  = 4096    // bytes of a line that are looked at together
	maxSignalClose = 1 << 16 // bytes of lines of a file that are looked at closer
)

// The signals that are counted, in the order of their diagnostics.
const (
	atInvisible = iota
	atComment
	atPipe
	atDynamic
	atPhrase
	signalKinds
)

// finding is how often something was found in a file, and in which line first.
type finding struct{ count, line int }

// signals searches text that comes in pieces, line by line, for what a reader of a skill should know
// of. Where the pieces are cut makes no difference.
type signals struct {
	markdown bool
	left     int // bytes that may still be looked at
	closer   int // bytes of lines that may still be looked at closer

	line      int    // the number of the line being read, from 1
	rest      []byte // what is known of it
	found     [signalKinds]finding
	invisible [invisibleKinds]int
	fence     fence
	command   command
}

// begin forgets what was seen and prepares for a file of which at most limit bytes are looked at.
func (s *signals) begin(file string, limit int) {
	name := strings.ToLower(file)
	markdown := strings.HasSuffix(name, ".md") || strings.HasSuffix(name, ".markdown") || strings.HasSuffix(name, ".mdx")
	*s = signals{markdown: markdown, left: min(limit, maxSignalFile), closer: maxSignalClose, line: 1, rest: s.rest[:0], command: command{text: s.command.text[:0]}}
}

// add looks at the next piece. It keeps no part of it.
func (s *signals) add(piece []byte) {
	piece = piece[:min(len(piece), s.left)]
	s.left -= len(piece)
	for len(piece) > 0 {
		room := maxSignalLine - len(s.rest)
		end := bytes.IndexByte(piece[:min(len(piece), room)], '\n')
		switch {
		case end >= 0:
			s.whole(piece[:end])
			s.line++
			piece = piece[end+1:]
		case len(piece) < room:
			s.rest = append(s.rest, piece...)
			return
		default:
			s.part(piece[:room])
			piece = piece[room:]
		}
	}
}

// whole looks at a line of which rest holds the beginning.
func (s *signals) whole(tail []byte) {
	if len(s.rest) == 0 {
		s.look(tail)
		return
	}
	s.rest = append(s.rest, tail...)
	s.look(s.rest)
	s.rest = s.rest[:0]
}

// part looks at a line that is too long as far as it is known, up to its last whole character.
func (s *signals) part(tail []byte) {
	s.rest = append(s.rest, tail...)
	cut := len(s.rest)
	for back := 1; back < utf8.UTFMax; back++ {
		if at := cut - back; utf8.RuneStart(s.rest[at]) {
			if !utf8.FullRune(s.rest[at:]) {
				cut = at
			}
			break
		}
	}
	if s.rest[cut-1] == '\r' {
		cut-- // a line may end behind it
	}
	s.look(s.rest[:cut])
	s.rest = append(s.rest[:0], s.rest[cut:]...)
}

// look searches a line, or a part of one.
func (s *signals) look(line []byte) {
	if s.markdown && s.fence.line(line) {
		s.count(atDynamic)
	}
	seen := group(0)
	for i := 1; i < len(line); i++ {
		if hint := pairs.first[line[i-1]] & pairs.second[line[i]]; hint != 0 {
			seen |= s.check(line, i-1, hint)
		}
	}
	// A control character at the end has no pair; a carriage return there belongs to the line's end.
	if last := len(line) - 1; last >= 0 && line[last] != '\r' && isControl(line[last]) {
		s.invisible[controlCharacter]++
		s.count(atInvisible)
	}
	if seen&fetches != 0 || len(s.command.text) > 0 {
		s.shell(line)
	}
	if seen&phrases != 0 && s.may(line) && hasPhrase(line) {
		s.count(atPhrase)
	}
}

// may takes the cost of a closer look at a line from what is left.
func (s *signals) may(line []byte) bool {
	s.closer -= len(line)
	return s.closer >= 0
}

// check looks closer at what begins with the pair of bytes at line[at].
func (s *signals) check(line []byte, at int, hint uint32) group {
	switch found := pairs.match(line, at, hint); found {
	case unseen:
		if kind := invisibleAt(line, at); kind >= 0 && !(s.line == 1 && at == 0 && bytes.HasPrefix(line, []byte("\ufeff"))) {
			s.invisible[kind]++
			s.count(atInvisible)
		}
		return 0
	case comment:
		if s.markdown && !s.fence.open() && !inCode(line[:at]) && !isMarker(line[at+len("<!--"):]) {
			s.count(atComment)
		}
		return 0
	case dynamic:
		if s.markdown && isDynamic(line, at) {
			s.count(atDynamic)
		}
		return 0
	default:
		return found
	}
}

func (s *signals) count(kind int) { s.countAt(kind, s.line) }

func (s *signals) countAt(kind, line int) {
	if s.found[kind].count++; s.found[kind].line == 0 {
		s.found[kind].line = line
	}
}

// shell looks for a download that is handed to a shell, in a command that may go on in the next
// line. The cells of a table are looked at one by one.
func (s *signals) shell(line []byte) {
	if row := bytes.TrimLeft(line, " \t"); s.markdown && len(row) > 0 && row[0] == '|' && len(s.command.text) == 0 {
		for cell := range cells(row) {
			s.command.add(cell, s.line)
			s.run()
		}
		return
	}
	if more := s.command.add(line, s.line); !more {
		s.run()
	}
}

// run judges the command that was collected.
func (s *signals) run() {
	if s.may(s.command.text) && pipeToShell.Match(s.command.text) {
		s.countAt(atPipe, s.command.line)
	}
	s.command.text = s.command.text[:0]
}

// end returns what was found in the file, a diagnostic for each kind.
func (s *signals) end(path string) []Diagnostic {
	if len(s.rest) > 0 {
		s.look(s.rest)
		if s.left > 0 && s.rest[len(s.rest)-1] == '\r' {
			s.invisible[lineBreak]++
			s.count(atInvisible)
		}
		s.rest = s.rest[:0]
	}
	if len(s.command.text) > 0 {
		s.run()
	}
	var out []Diagnostic
	for kind, found := range s.found {
		if found.count == 0 {
			continue
		}
		d := Diagnostic{Path: path, Line: found.line}
		switch kind {
		case atInvisible:
			d.Severity, d.Code, d.Detail = s.unseen()
		case atComment:
			d.Severity, d.Code, d.Detail = Info, CodeHTMLComment, plural(found.count, "HTML comment")+" with more than a mark for programs"
		case atPipe:
			d.Severity, d.Code, d.Detail = Warning, CodePipeToShell, plural(found.count, "command")+" to run what is downloaded or decoded"
		case atDynamic:
			d.Severity, d.Code, d.Detail = Info, CodeDynamicCommand, plural(found.count, "command")+" that some clients run while they load a skill; they are text here"
		case atPhrase:
			d.Severity, d.Code, d.Detail = Warning, CodeInjectionPhrase, plural(found.count, "line")+" with words known from attempts to take over a model"
		}
		if found.count > 1 {
			d.Detail += "; this is the first"
		}
		out = append(out, d)
	}
	return out
}

// unseen words the diagnostic of invisible text, with the count of every kind.
func (s *signals) unseen() (Severity, Code, string) {
	severity := Info
	var counts []string
	for kind, n := range s.invisible {
		if n > 0 {
			counts = append(counts, plural(n, invisibleNames[kind]))
			if kind != zeroWidth {
				severity = Warning
			}
		}
	}
	return severity, CodeInvisibleText, strings.Join(counts, ", ")
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// hooks returns the line of the frontmatter's field hooks, 0 when there is none.
func (s *Skill) hooks(data []byte) int {
	if !bytes.Contains(s.Frontmatter.JSON, []byte(`"hooks":`)) || s.Frontmatter.Value("hooks") == nil {
		return 0
	}
	return frontmatter.LineOf(data, "hooks")
}
