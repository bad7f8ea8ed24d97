package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/skills"
)

// diagnosticRow is a diagnostic with what to do about it.
type diagnosticRow struct {
	skills.Diagnostic
	Fix string `json:"fix,omitempty"`
}

func diagnosticRows(diagnostics []skills.Diagnostic) []diagnosticRow {
	rows := make([]diagnosticRow, len(diagnostics))
	for i, d := range diagnostics {
		rows[i] = diagnosticRow{d, d.Code.Fix()}
	}
	return rows
}

// notable leaves out what is only worth knowing, and puts the paths of the others below prefix.
func notable(prefix string, rows []diagnosticRow) []diagnosticRow {
	var kept []diagnosticRow
	for _, row := range rows {
		if row.Severity != skills.Info {
			row.Path = prefix + row.Path
			kept = append(kept, row)
		}
	}
	return kept
}

// printDiagnostics prints diagnostics, one a line, at most most of them, errors first.
func printDiagnostics(w io.Writer, rows []diagnosticRow, most int) error {
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b diagnosticRow) int { return int(b.Severity) - int(a.Severity) })
	for _, row := range rows[:min(len(rows), most)] {
		if _, err := fmt.Fprintf(w, "%s: %s\n", row.Severity, row.line()); err != nil {
			return err
		}
	}
	if len(rows) > most {
		_, err := fmt.Fprintf(w, "and %d more; `skillsd doctor` and --json have all\n", len(rows)-most)
		return err
	}
	return nil
}

// line is PLACE: CODE: detail (fix: …).
func (r *diagnosticRow) line() string {
	return problemLine(placeAt(r.Path, r.Line), string(r.Code), r.Detail, r.Fix)
}

// placeAt is a path with a line, as editors and compilers write it.
func placeAt(path string, line int) string {
	if line > 0 {
		return fmt.Sprintf("%s:%d", path, line)
	}
	return path
}

// problemLine is one problem on one line. Its parts may be foreign text.
func problemLine(place, rule, message, fix string) string {
	text := rule + ": " + message
	if place != "" {
		text = place + ": " + text
	}
	if fix != "" {
		text += " (fix: " + fix + ")"
	}
	return report.Printable(text)
}
