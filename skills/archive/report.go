package archive

import (
	"cmp"
	"fmt"
	"strings"
)

// maxProblems is how many problems an Error lists; it only counts the others.
const maxProblems = 100

// Problem is a broken rule.
type Problem struct {
	Entry  string // the name of the entry, of any bytes; empty for the archive
	Reason string // a phrase that follows the entry
}

// String returns one line without control characters.
func (p Problem) String() string {
	if p.Entry == "" {
		return "the archive " + p.Reason
	}
	name := p.Entry
	if len(name) > 100 {
		name = strings.ToValidUTF8(name[:100], "") + "…"
	}
	return fmt.Sprintf("%+q %s", name, p.Reason)
}

// Error lists why an archive is refused.
type Error struct {
	Kind     string    // tar; empty: zip
	Problems []Problem // in the order of the directory; the first 100
	More     int       // the number of others
	Large    bool      // a limit is exceeded, so that a part of the archive may be usable
}

// Error returns one line that names the first five problems.
func (e *Error) Error() string {
	const shown = 5
	texts := make([]string, 0, shown)
	for _, p := range e.Problems[:min(shown, len(e.Problems))] {
		texts = append(texts, p.String())
	}
	text := "not a usable " + cmp.Or(e.Kind, "zip") + " archive: " + strings.Join(texts, "; ")
	if rest := len(e.Problems) + e.More - len(texts); rest > 0 {
		text += fmt.Sprintf("; and %d more problems", rest)
	}
	return text
}

// add adds a problem.
func (e *Error) add(entry, format string, args ...any) {
	if len(e.Problems) == maxProblems {
		e.More++
		return
	}
	e.Problems = append(e.Problems, Problem{entry, fmt.Sprintf(format, args...)})
}

// addLarge adds a problem that is an exceeded limit.
func (e *Error) addLarge(entry, format string, args ...any) {
	e.Large = true
	e.add(entry, format, args...)
}

// failure returns e, or nil if it has no problems.
func (e *Error) failure() error {
	if len(e.Problems) == 0 {
		return nil
	}
	return e
}
