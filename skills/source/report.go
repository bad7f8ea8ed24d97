package source

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxProblems is how many problems are kept; the rest is counted.
const maxProblems = 100

// Problem is a rule that an archive breaks.
type Problem struct {
	Entry  string // its name, which may hold anything; empty for the archive
	Reason string // a phrase that follows the entry
}

// String returns one line without control characters.
func (p Problem) String() string {
	if p.Entry == "" {
		return "the archive " + p.Reason
	}
	name := p.Entry
	if len(name) > 100 {
		cut := 100
		for cut > 90 && !utf8.RuneStart(name[cut]) {
			cut--
		}
		name = name[:cut] + "…"
	}
	return fmt.Sprintf("%+q %s", name, p.Reason)
}

// ArchiveError says why an archive is not used. It is immutable.
type ArchiveError struct {
	Problems []Problem // in the order of the directory; the first 100
	More     int       // how many others there are
}

// Error returns one line that names the first five problems.
func (e *ArchiveError) Error() string {
	const shown = 5
	texts := make([]string, 0, shown)
	for _, p := range e.Problems[:min(shown, len(e.Problems))] {
		texts = append(texts, p.String())
	}
	text := "not a usable zip archive: " + strings.Join(texts, "; ")
	if rest := len(e.Problems) + e.More - len(texts); rest > 0 {
		text += fmt.Sprintf("; and %d more problems", rest)
	}
	return text
}

// report collects what is wrong with an archive.
type report struct{ err ArchiveError }

func (r *report) add(entry, format string, args ...any) {
	if len(r.err.Problems) == maxProblems {
		r.err.More++
		return
	}
	r.err.Problems = append(r.err.Problems, Problem{entry, fmt.Sprintf(format, args...)})
}

// failure returns nil if nothing is wrong.
func (r *report) failure() error {
	if len(r.err.Problems) == 0 {
		return nil
	}
	return &r.err
}
