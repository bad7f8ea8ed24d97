package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/frontmatter"
)

// Diagnostic is a diagnostic with its remedy.
type Diagnostic struct {
	skills.Diagnostic
	Fix string `json:"fix,omitempty"`
}

// Diagnostics adds the remedies to diagnostics.
func Diagnostics(diagnostics []skills.Diagnostic) []Diagnostic {
	rows := make([]Diagnostic, len(diagnostics))
	for i, d := range diagnostics {
		rows[i] = Diagnostic{d, d.Fix()}
	}
	return rows
}

// Notable drops diagnostics that are only for information, and puts the paths of the others below prefix.
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

// WriteDiagnostics writes diagnostics, one per line, errors first and at most most per code; a further line
// for each code has the number of the others.
func WriteDiagnostics(w io.Writer, rows []Diagnostic, most int) error {
	type group struct {
		skills.Severity
		skills.Code
	}
	groups := map[group][]Diagnostic{}
	var order []group // in order of first occurrence
	for _, row := range rows {
		g := group{row.Severity, row.Code}
		if groups[g] == nil {
			order = append(order, g)
		}
		groups[g] = append(groups[g], row)
	}
	slices.SortStableFunc(order, func(a, b group) int { return int(b.Severity) - int(a.Severity) })
	var out strings.Builder
	for _, g := range order {
		of := groups[g]
		for _, row := range of[:min(len(of), most)] {
			fmt.Fprintf(&out, "%s: %s\n", row.Severity, row.Text())
		}
		if more := len(of) - most; more > 0 {
			fmt.Fprintf(&out, "%s: and %d more of %s; `skillsd doctor` and --json have all\n", g.Severity,
				more,
				g.Code)
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// Text returns the diagnostic in one line: PLACE: CODE: detail (fix: …).
func (r *Diagnostic) Text() string {
	return ProblemLine(Location(r.Path, r.Line), string(r.Code), r.Detail, r.Fix)
}

// Problem is a violated rule.
type Problem struct {
	Rule     string `json:"rule"`
	Severity string `json:"severity,omitempty"` // with --lenient; the strict rules have errors only
	File     string `json:"file,omitempty"`     // if it is not the skill's SKILL.md
	Line     int    `json:"line,omitempty"`
	Message  string `json:"message"`
	Fix      string `json:"fix,omitempty"`
}

// StrictProblems returns violations as problems.
func StrictProblems(violations []frontmatter.Violation) []Problem {
	problems := make([]Problem, len(violations))
	for i, v := range violations {
		problems[i] = Problem{Rule: v.Rule, Line: v.Line, Message: v.Message, Fix: v.Fix}
	}
	return problems
}

// JoinPath joins two parts with a slash, unless one is empty. The user's own spelling stays.
func JoinPath(dir, name string) string {
	if dir == "" || name == "" || strings.HasSuffix(dir, "/") {
		return dir + name
	}
	return dir + "/" + name
}

// Location returns a path with a line, as compilers print it.
func Location(path string, line int) string {
	if line > 0 {
		return fmt.Sprintf("%s:%d", path, line)
	}
	return path
}

// ProblemLine returns one problem on one line. Its parts may be foreign text.
func ProblemLine(location, rule, message, fix string) string {
	text := rule + ": " + message
	if location != "" {
		text = location + ": " + text
	}
	if fix != "" {
		text += " (fix: " + fix + ")"
	}
	return Printable(text)
}
