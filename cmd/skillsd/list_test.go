package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/skills"
)

// No line of the table is wider than asked for, but those a path or a reason makes so.
func TestPrintRowsFits(t *testing.T) {
	t.Parallel()
	rows := []report.SkillRow{
		{Path: "a", Tier: "user", State: "enabled", Description: strings.Repeat("word ", 100)},
		{Path: "team/技能", Tier: "third-party", State: "hidden", Reasons: []string{"because"}, Description: strings.Repeat("描述", 100)},
		{Path: strings.Repeat("long/", 20) + "path", Tier: "org", State: "unavailable", Description: "x\ny"},
	}
	for _, most := range []int{74, 80, 100, 200} {
		var out bytes.Buffer
		if err := report.PrintSkills(&out, rows, most, false); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			line = strings.TrimSuffix(line, "\n")
			if report.Cells(line) > most && !strings.HasSuffix(line, rows[2].Path) {
				t.Errorf("at %d: a line has %d columns: %q", most, report.Cells(line), line)
			}
		}
		for _, want := range []string{"✓ a ", "○ team/技能 ", "✗ " + rows[2].Path + "\n", "    hidden: because\n", "x y\n"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("at %d: no %q in\n%s", most, want, out.String())
			}
		}
	}
}

// Errors come first, and what is left out of a code is counted.
func TestPrintDiagnosticsMost(t *testing.T) {
	t.Parallel()
	var all []skills.Diagnostic
	for i := range 10 {
		all = append(all, skills.Diagnostic{Severity: skills.Warning, Code: skills.CodeShadowed, Path: fmt.Sprint(i)})
	}
	all = append(all, skills.Diagnostic{Severity: skills.Error, Code: skills.CodeInvalidFrontmatter, Path: "bad", Line: 3, Detail: "odd\x1b\n"})
	var out bytes.Buffer
	if err := report.WriteDiagnostics(&out, report.Diagnostics(all), 3); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	if len(lines) != 6 || !strings.HasPrefix(lines[0], "error: bad:3: invalid-frontmatter: odd  ") || !strings.HasPrefix(lines[1], "warning: 0: shadowed: ") ||
		!strings.HasPrefix(lines[4], "warning: and 7 more of shadowed") {
		t.Errorf("report.WriteDiagnostics printed\n%s", out.String())
	}
}
