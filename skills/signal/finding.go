package signal

import (
	"fmt"
	"strings"
)

// finding is the number of findings of a kind in a file, and the first line. The plain ones are more than
// worth knowing.
type finding struct{ count, line, last, plain, plainLine int }

// count counts a finding in the current line that is worth knowing.
func (s *Scanner) count(kind Kind) { s.countAt(kind, s.line) }

func (s *Scanner) countAt(kind Kind, line int) {
	s.found[kind].count++
	s.found[kind].last = line
	if s.found[kind].line == 0 {
		s.found[kind].line = line
	}
}

// countPlain counts a finding that a user should look at.
func (s *Scanner) countPlain(kind Kind, line int) {
	s.countAt(kind, line)
	s.found[kind].plain++
	if s.found[kind].plainLine == 0 {
		s.found[kind].plainLine = line
	}
}

// countIf counts a finding that a user should look at if plain is set.
func (s *Scanner) countIf(plain bool, kind Kind, line int) {
	if plain {
		s.countPlain(kind, line)
	} else {
		s.countAt(kind, line)
	}
}

// wordings are the texts of signals: a noun that gets a number, and the rest of the phrase.
var wordings = [kinds]struct{ noun, rest string }{
	Comment: {"HTML comment", " with more than a mark for programs"},
	Pipe:    {"command", " to run what is downloaded or decoded"},
	Dynamic: {"command", " that some clients run while they load a skill; they are text here"},
	Phrase:  {"line", " with words known from attempts to take over a model"},
	Config:  {"line", " to change the configuration of an agent"},
	Unasked: {"thing", " that other programs run by themselves"},
}

// countsOfInvisible returns the number of characters of each class.
func (s *Scanner) countsOfInvisible() string {
	var counts []string
	for class, n := range s.invisible {
		if n > 0 {
			counts = append(counts, plural(n, classNames[class]))
		}
	}
	return strings.Join(counts, ", ")
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
