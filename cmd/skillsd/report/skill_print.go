package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills"
)

// Widths of a table, in columns.
const (
	minPathColumn  = 24
	minDescription = 12
	gap            = "  "
)

// padded pads the cells of rows to the widths of their columns, except for the last one of a row.
func padded(rows [][]string) []string {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], Cells(cell))
		}
	}
	lines := make([]string, len(rows))
	for n, row := range rows {
		for i, cell := range row {
			lines[n] += Pad(cell, widths[i]) + gap
		}
		lines[n] = strings.TrimRight(lines[n], " ")
	}
	return lines
}

// PrintSkills prints a table that fits a width of 74 columns and more, unless a path or a reason alone
// is longer: these are never cut.
func PrintSkills(w io.Writer, rows []SkillRow, most int) error {
	facts := [][]string{{"TIER", "VERDICT", "FILES", "RUN"}}
	paths := len("SKILL")
	for i := range rows {
		facts = append(facts, rows[i].facts())
		paths = max(paths, Cells(Printable(rows[i].Path)))
	}
	// A long path has a line of its own, so that it does not take the columns of all descriptions.
	paths = min(paths, max(minPathColumn, most/3))
	lines := padded(facts)
	width := 0
	for _, line := range lines {
		width = max(width, Cells(line))
	}
	left := max(minDescription, most-2-paths-width-2*len(gap))
	var out strings.Builder
	line := func(mark, path, facts, description string) {
		if Cells(path) > paths {
			path += "\n" + Pad("", paths+2)
		}
		fmt.Fprintln(&out, mark+" "+Pad(path, paths)+gap+Pad(facts, width)+gap+Shorten(description, left))
	}
	line(" ", "SKILL", lines[0], "DESCRIPTION")
	for i := range rows {
		row := &rows[i]
		line(row.mark(), Printable(row.Path), lines[i+1], row.Description)
		for _, reason := range row.Reasons {
			fmt.Fprintf(&out, "    %s: %s\n", row.State, Printable(reason))
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// mark returns the state as one character.
func (r *SkillRow) mark() string {
	switch skills.State(r.State) {
	case skills.StateEnabled:
		return "✓"
	case skills.StateUnavailable:
		return "✗"
	}
	return "○"
}

// verdict returns the verdict as one word.
func (r *SkillRow) verdict() string {
	switch {
	case r.Verdict.Strict:
		return "strict"
	case r.Verdict.Repaired:
		return "repaired"
	}
	return "lenient"
}

// facts returns the narrow cells of a table.
func (r *SkillRow) facts() []string {
	files := "?"
	if r.TreeDigest != "" {
		files = fmt.Sprint(len(r.Resources) + 1)
	}
	if r.State == string(skills.StateDisabled) && r.Skill == nil {
		return []string{r.Tier, "-", files, "-"} // the row is from the lock file, which has neither
	}
	allowed := 0
	for _, script := range r.Scripts {
		if script.Allowed {
			allowed++
		}
	}
	return []string{r.Tier, r.verdict(), files, fmt.Sprintf("%d/%d", allowed, len(r.Scripts))}
}

// PrintSkill prints all that is known of a skill.
func PrintSkill(w io.Writer, row *SkillRow) error {
	fact := func(name, value string) { printFact(w, "", 14, name, value) }
	fact("skill", row.Path)
	fact("name", row.Name)
	fact("description", OneLine(row.Description))
	fact("tier", row.Tier)
	fact("root", row.Root)
	fact("origin", row.Origin)
	fact("file", row.File)
	for _, shadow := range row.Shadows {
		fact("shadows", fmt.Sprintf("the one in %s (%s)", shadow.Root, shadow.Tier))
	}
	fact("state", row.mark()+" "+strings.Join(append([]string{row.State}, row.Reasons...), ", "))
	fact("verdict", row.verdict())
	fact("publishable", fmt.Sprint(row.Verdict.Publishable))
	fact("license", row.License)
	fact("compatibility", row.Compatibility)
	fact("author", row.Author)
	fact("version", row.Version)
	fact("tags", strings.Join(row.Tags, ", "))
	fact("allowed tools", strings.Join(row.AllowedTools, ", "))
	if r := row.Requires; r != nil {
		fact("requires", strings.Join(slices.Concat(r.Commands, r.Env), ", "))
	}
	fact("modified", row.LastModified)
	fact("digest", row.Digest.String())
	fact("tree", row.TreeDigest.String())
	var files, scripts [][]string
	for _, r := range row.Resources {
		files = append(files, []string{gap + Printable(r.Path), string(r.Kind), fmt.Sprintf("%8d", r.Size),
			r.Digest.String()})
	}
	for _, script := range row.Scripts {
		verdict := "may run"
		if !script.Allowed {
			verdict = "may not run: " + Printable(script.Reason)
		}
		scripts = append(scripts, []string{gap + Printable(script.Path), script.Runtime, verdict})
	}
	printList(w, "files", padded(files))
	printList(w, "scripts", padded(scripts))
	diagnostics := slices.Clone(row.Diagnostics)
	for i := range diagnostics {
		diagnostics[i].Path = row.Path + "/" + diagnostics[i].Path
	}
	if err := WriteDiagnostics(w, diagnostics, math.MaxInt); err != nil {
		return err
	}
	for _, v := range row.Violations {
		fmt.Fprintf(w, "strict: %s\n", ProblemLine(PlaceAt(row.Path+"/"+row.Skill.File, v.Line), v.Rule,
			v.Message, v.Fix))
	}
	return nil
}

// printList prints lines below a heading, nothing without lines.
func printList(w io.Writer, heading string, lines []string) {
	if len(lines) > 0 {
		fmt.Fprintf(w, "%s\n%s\n", heading, strings.Join(lines, "\n"))
	}
}

// printFact prints a line of a name and a value, if there is one.
func printFact(w io.Writer, indent string, width int, name, value string) {
	if value != "" {
		fmt.Fprintf(w, "%s%-*s %s\n", indent, width, name, Printable(value))
	}
}

// printBelow prints a line of a name and a value, if there is one, below the line of a skill.
func printBelow(w io.Writer, name, value string) { printFact(w, "  ", 13, name, value) }

// printFacts prints what a skill is.
func (r *SkillRow) printFacts(w io.Writer) {
	size := int64(0)
	for _, file := range r.Resources {
		size += file.Size
	}
	printBelow(w, "description", Shorten(r.Description, 62))
	printBelow(w, "verdict", r.verdict())
	printBelow(w, "files", fmt.Sprintf("%d (%d bytes besides SKILL.md)", len(r.Resources)+1, size))
	printBelow(w, "allowed tools", strings.Join(r.AllowedTools, ", "))
	printBelow(w, "tree", r.TreeDigest.String())
	var scripts []string
	for _, script := range r.Scripts {
		runtime := script.Runtime
		if runtime == "" {
			runtime = "cannot run: " + script.Reason
		}
		scripts = append(scripts, "    "+Pad(Printable(script.Path), 30)+gap+Printable(runtime))
	}
	printList(w, "  scripts", scripts)
}

// powers returns what a skill asks for, in one line; empty for nothing.
func (r *SkillRow) powers() string {
	var parts []string
	if len(r.AllowedTools) > 0 {
		parts = append(parts, "allowed-tools "+strings.Join(r.AllowedTools, ", "))
	}
	if len(r.Scripts) > 0 {
		parts = append(parts, Plural(len(r.Scripts), "script"))
	}
	return strings.Join(parts, "; ")
}
