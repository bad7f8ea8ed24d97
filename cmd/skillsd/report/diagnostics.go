package report

import (
	"fmt"
	"io"
	"slices"

	"github.com/skillsd/skillsd/skills"
)

// Diagnostic is a diagnostic with what to do about it.
type Diagnostic struct {
	skills.Diagnostic
	Fix string `json:"fix,omitempty"`
}

// Diagnostics adds to diagnostics what to do about them.
func Diagnostics(diagnostics []skills.Diagnostic) []Diagnostic {
	rows := make([]Diagnostic, len(diagnostics))
	for i, d := range diagnostics {
		rows[i] = Diagnostic{d, d.Code.Fix()}
	}
	return rows
}

// Notable leaves out diagnostics that are for information only, and puts the paths of the others below
// prefix.
func Notable(prefix string, rows []Diagnostic) []Diagnostic {
	var kept []Diagnostic
	for _, row := range rows {
		if row.Severity != skills.Info {
			row.Path = prefix + row.Path
			kept = append(kept, row)
		}
	}
	return kept
}

// WriteDiagnostics writes diagnostics, one a line, at most most of them, errors first.
func WriteDiagnostics(w io.Writer, rows []Diagnostic, most int) error {
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b Diagnostic) int { return int(b.Severity) - int(a.Severity) })
	for _, row := range rows[:min(len(rows), most)] {
		if _, err := fmt.Fprintf(w, "%s: %s\n", row.Severity, row.Text()); err != nil {
			return err
		}
	}
	if len(rows) > most {
		_, err := fmt.Fprintf(w, "and %d more; `skillsd doctor` and --json have all\n", len(rows)-most)
		return err
	}
	return nil
}

// Text returns the diagnostic in one line: PLACE: CODE: detail (fix: …).
func (r *Diagnostic) Text() string {
	return ProblemLine(PlaceAt(r.Path, r.Line), string(r.Code), r.Detail, r.Fix)
}

// PlaceAt returns a path with a line, as editors and compilers write it.
func PlaceAt(path string, line int) string {
	if line > 0 {
		return fmt.Sprintf("%s:%d", path, line)
	}
	return path
}

// ProblemLine returns one problem on one line. Its parts may be foreign text.
func ProblemLine(place, rule, message, fix string) string {
	text := rule + ": " + message
	if place != "" {
		text = place + ": " + text
	}
	if fix != "" {
		text += " (fix: " + fix + ")"
	}
	return Printable(text)
}
