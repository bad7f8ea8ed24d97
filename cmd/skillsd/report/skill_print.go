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
	MinPathColumn  = 24
	MinDescription = 12
	Gap            = "  "
)

// PrintSkills prints a table that fits a width of 74 columns and more, unless a path or a reason alone
// is longer: these are never cut.
func PrintSkills(w io.Writer, rows []SkillRow, most int) error {
	facts := make([][4]string, 0, len(rows)+1)
	facts = append(facts, [4]string{"TIER", "VERDICT", "FILES", "RUN"})
	paths := len("SKILL")
	for i := range rows {
		facts = append(facts, rows[i].facts())
		paths = max(paths, Cells(Printable(rows[i].Path)))
	}
	// A long path has a line of its own, so that it does not take the columns of all descriptions.
	paths = min(paths, max(MinPathColumn, most/3))
	var widths [4]int
	left := most - 2 - paths
	for column := range widths {
		for _, row := range facts {
			widths[column] = max(widths[column], Cells(row[column]))
		}
		left -= len(Gap) + widths[column]
	}
	left = max(MinDescription, left-len(Gap))
	line := func(mark, path string, facts [4]string, description string) error {
		text := mark + " " + Pad(path, paths)
		if Cells(path) > paths {
			text = mark + " " + path + "\n" + Pad("", paths+2)
		}
		for column, fact := range facts {
			text += Gap + Pad(fact, widths[column])
		}
		_, err := fmt.Fprintln(w, text+Gap+description)
		return err
	}
	if err := line(" ", "SKILL", facts[0], "DESCRIPTION"); err != nil {
		return err
	}
	for i := range rows {
		row := &rows[i]
		if err := line(row.mark(), Printable(row.Path), facts[i+1],
			Shorten(row.Description, left)); err != nil {
			return err
		}
		for _, reason := range row.Reasons {
			if _, err := fmt.Fprintf(w, "    %s: %s\n", row.State, Printable(reason)); err != nil {
				return err
			}
		}
	}
	return nil
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

// facts returns the narrow cells of a table.
func (r *SkillRow) facts() [4]string {
	files := "?"
	if r.TreeDigest != "" {
		files = fmt.Sprint(len(r.Resources) + 1)
	}
	allowed := 0
	for _, script := range r.Scripts {
		if script.Allowed {
			allowed++
		}
	}
	if r.State == string(skills.StateDisabled) && r.Skill == nil {
		return [4]string{r.Tier, "-", files, "-"} // the row is from the lock file, which has neither
	}
	return [4]string{r.Tier, r.Verdict.word(), files, fmt.Sprintf("%d/%d", allowed, len(r.Scripts))}
}

// PrintSkill prints all that is known of a skill.
func PrintSkill(w io.Writer, row *SkillRow) error {
	fact := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%-14s %s\n", name, Printable(value))
		}
	}
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
	fact("verdict", row.Verdict.word())
	fact("publishable", fmt.Sprint(row.Verdict.Publishable))
	fact("license", row.License)
	fact("compatibility", row.Compatibility)
	fact("author", row.Author)
	fact("version", row.Version)
	fact("tags", strings.Join(row.Tags, ", "))
	fact("allowed tools", strings.Join(row.AllowedTools, ", "))
	if r := row.Requires; r != nil {
		fact("requires", strings.Join(append(slices.Clone(r.Commands), r.Env...), ", "))
	}
	fact("modified", row.LastModified)
	fact("digest", row.Digest.String())
	fact("tree", row.TreeDigest.String())
	printFiles(w, row)
	diagnostics := make([]Diagnostic, len(row.Diagnostics))
	for i, d := range row.Diagnostics {
		d.Path = row.Path + "/" + d.Path
		diagnostics[i] = d
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

func printFiles(w io.Writer, row *SkillRow) {
	const most = 60
	paths := 0
	for _, r := range row.Resources {
		paths = max(paths, min(Cells(Printable(r.Path)), most))
	}
	if len(row.Resources) > 0 {
		fmt.Fprintln(w, "files")
	}
	for _, r := range row.Resources {
		fmt.Fprintf(w, "  %s  %-9s %8d  %s\n", Pad(Printable(r.Path), paths), r.Kind, r.Size, r.Digest)
	}
	if len(row.Scripts) > 0 {
		fmt.Fprintln(w, "scripts")
	}
	for _, script := range row.Scripts {
		verdict := "may run"
		if !script.Allowed {
			verdict = "may not run: " + Printable(script.Reason)
		}
		fmt.Fprintf(w, "  %s  %-9s %s\n", Pad(Printable(script.Path), paths), script.Runtime, verdict)
	}
}

// PrintFact prints a line of a name and a value, if there is one.
func PrintFact(w io.Writer, name, value string) {
	if value != "" {
		fmt.Fprintf(w, "  %-13s %s\n", name, Printable(value))
	}
}

// PrintFacts prints what a skill is.
func (r *SkillRow) PrintFacts(w io.Writer) {
	size := int64(0)
	for _, file := range r.Resources {
		size += file.Size
	}
	PrintFact(w, "description", Shorten(r.Description, 62))
	PrintFact(w, "verdict", r.Verdict.word())
	PrintFact(w, "files", fmt.Sprintf("%d (%d bytes besides SKILL.md)", len(r.Resources)+1, size))
	PrintFact(w, "allowed tools", strings.Join(r.AllowedTools, ", "))
	PrintFact(w, "tree", r.TreeDigest.String())
	if len(r.Scripts) > 0 {
		fmt.Fprintln(w, "  scripts")
	}
	for _, script := range r.Scripts {
		runtime := script.Runtime
		if runtime == "" {
			runtime = "cannot run: " + script.Reason
		}
		fmt.Fprintf(w, "    %s  %s\n", Pad(Printable(script.Path), 30),
			Printable(runtime))
	}
}

// Powers returns what a skill asks for, in one line; empty for nothing.
func (r *SkillRow) Powers() string {
	var parts []string
	if len(r.AllowedTools) > 0 {
		parts = append(parts, "allowed-tools "+strings.Join(r.AllowedTools, ", "))
	}
	if len(r.Scripts) > 0 {
		parts = append(parts, Plural(len(r.Scripts), "script"))
	}
	return strings.Join(parts, "; ")
}
