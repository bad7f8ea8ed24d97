package doctor

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
)

// weights order the areas of problems with the same verdict: problems that keep scripts from running come
// before findings of single skills.
var weights = []string{"serve", "configuration", "state", "records", "sandbox", "allowlist", "roots",
	"installed",
	"skill"}

func weight(area string) int {
	if i := slices.Index(weights, area); i >= 0 {
		return i
	}
	return len(weights)
}

// Print writes the verdict, then the problems, most important first, and then the other checks: all of them
// with verbose, else without details.
func Print(w io.Writer, checks []Check, columns int, paint report.Paint, verbose bool) error {
	p := &printer{columns: columns, paint: paint}
	fmt.Fprintln(&p.out, verdict(checks, paint))
	sorted, left := byImportance(checks), 0
	for len(sorted) > 0 {
		c, taken := &sorted[0], 1
		switch {
		case !verbose && c.file != "":
			taken = alike(sorted, func(other *Check) bool { return other.file == c.file })
			shown := *c
			if more := taken - 1; more > 0 {
				shown.Hint = strings.TrimPrefix(c.Hint+fmt.Sprintf("; %d more with --verbose", more), "; ")
			}
			p.print(c.Fact, &shown)
		case verbose || c.brief == "" && !c.detail:
			p.print(c.Fact, c)
		case c.detail:
			left++
		default:
			taken = alike(sorted, func(other *Check) bool {
				return other.Area == c.Area && other.brief != ""
			})
			var briefs []string
			for i := range sorted[:taken] {
				briefs = append(briefs, sorted[i].brief)
			}
			left += taken
			p.print(strings.Join(briefs, ", "), c)
		}
		sorted = sorted[taken:]
	}
	if left > 0 {
		fmt.Fprintf(&p.out, "more: `skillsd doctor --verbose` prints %s in full, with digests\n",
			report.Plural(left, "check"))
	}
	_, err := io.WriteString(w, p.out.String())
	return err
}

// byImportance returns the failures, then the warnings, each by the weight of its area, and then the others.
func byImportance(checks []Check) []Check {
	sorted := slices.Clone(checks)
	severity := []string{OK, Warn, Fail}
	slices.SortStableFunc(sorted, func(a, b Check) int {
		if n := slices.Index(severity, b.Verdict) - slices.Index(severity, a.Verdict); n != 0 ||
			a.Verdict == OK {
			return n
		}
		return weight(a.Area) - weight(b.Area)
	})
	return sorted
}

// printer prints checks.
type printer struct {
	out     strings.Builder
	columns int
	paint   report.Paint
}

// print prints a text about a check, with its verdict and its hint.
func (p *printer) print(text string, c *Check) {
	words := map[string]string{OK: p.paint.Good(OK), Warn: p.paint.Warn(Warn), Fail: p.paint.Bad(Fail)}
	hint := c.Hint
	if c.remark && hint != "" {
		text, hint = text+" (fix: "+hint+")", ""
	}
	whole := report.Wrap(c.Verdict+" "+c.Label()+": "+report.Printable(text), p.columns)
	rest := strings.TrimPrefix(whole, c.Verdict)
	fmt.Fprintln(&p.out, words[c.Verdict]+rest)
	if hint != "" {
		fmt.Fprintf(&p.out, "hint: %s\n", report.Printable(hint))
	}
}

// alike returns how many of the first checks have the verdict of the first one, and are the same to a
// function; the first is.
func alike(checks []Check, same func(other *Check) bool) int {
	n := 1
	for n < len(checks) && checks[n].Verdict == checks[0].Verdict && same(&checks[n]) {
		n++
	}
	return n
}

// verdict summarizes in one line what a server with these options could do. It is ready only if a script may
// run.
func verdict(checks []Check, paint report.Paint) string {
	count := map[string]int{}
	runs, skills := 0, 0
	for i := range checks {
		count[checks[i].Verdict]++
		skills += checks[i].skills
		if checks[i].Script != "" && checks[i].Verdict == OK {
			runs++
		}
	}
	remarks := ""
	if count[Warn] > 0 {
		remarks = "; " + report.Plural(count[Warn], "warning")
	}
	switch {
	case count[Fail] > 0:
		return paint.Bad("not ready") + ": " + report.Plural(count[Fail], "failure") + " to fix first"
	case runs == 0 && skills == 0:
		return paint.Warn("no skills yet") + " (to install one: skillsd install SOURCE)" + remarks
	case runs == 0:
		return paint.Warn("skills can be read; no script may run yet") +
			" (to allow one: skillsd allow SKILL:SCRIPT)" + remarks
	case remarks != "":
		return paint.Warn("ready") + ": " + report.Plural(runs, "script") + " may run" + remarks
	}
	return paint.Good("ready") + ": " + report.Plural(runs, "script") + " may run"
}
