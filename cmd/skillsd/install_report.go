package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/policy"
)

// installReport is what install tells, as install --json prints it.
type installReport struct {
	Installed []installedRow    `json:"installed"`
	Refused   []install.Refusal `json:"refused"` // with --keep-going
	Notes     []string          `json:"notes"`   // on the source
	DryRun    bool              `json:"dryRun"`
}

// installedRow is an installed skill: what the lock file says and what the skill is.
type installedRow struct {
	Lock  *install.Entry `json:"lock"`
	Skill skillRow       `json:"skill"`
	// Left are the files of the source that are not installed, and why.
	Left []diagnosticRow `json:"left"`
}

// newInstallReport describes the skills of a plan.
func (a *app) newInstallReport(ctx context.Context, plan *install.Plan) (*installReport, error) {
	state, err := a.stateDir()
	if err != nil {
		return nil, err
	}
	report := &installReport{Installed: make([]installedRow, len(plan.Entries)), Refused: append([]install.Refusal{}, plan.Refused...), Notes: append([]string{}, plan.Notes...)}
	err = each(ctx, len(plan.Entries), func(n int) {
		e := plan.Entries[n]
		report.Installed[n] = newInstalledRow(ctx, state, plan.Snapshot, plan.Snapshot.Skill(e.Name), e, plan.Left[e.Name])
	})
	return report, err
}

// newInstalledRow describes a skill that lies in a stage as it will be served.
func newInstalledRow(ctx context.Context, state string, snapshot *skills.Snapshot, sk *skills.Skill, e *install.Entry, left []skills.Diagnostic) installedRow {
	rows := []skillRow{newSkillRow(ctx, snapshot, sk, noScripts())}
	_ = addViolations(ctx, rows) // it ends early only when ctx does
	row := rows[0]
	row.Tier, row.Root, row.Origin = e.Tier.String(), install.RootDir(state, e.Tier), originText(e)
	row.File = strings.Replace(row.File, sk.Root.Dir, row.Root, 1)
	return installedRow{Lock: e, Skill: row, Left: diagnosticRows(left)}
}

// print tells what is installed on stdout, and what is odd about it on stderr.
func (r *installReport) print(a *app) error {
	a.printNotes(r.Notes)
	for _, refused := range r.Refused {
		fmt.Fprintf(a.err, "not installed: %s\n", printable(refused.Path+": "+refused.Reason))
	}
	verb := "installed"
	if r.DryRun {
		verb = "would install"
	}
	if len(r.Installed) == 1 {
		return r.Installed[0].print(a, verb)
	}
	rows := make([]skillRow, len(r.Installed))
	var found []diagnosticRow
	for n := range r.Installed {
		rows[n] = r.Installed[n].Skill
		found = append(found, notable(rows[n].Path+"/", rows[n].Diagnostics)...)
		found = append(found, notable(rows[n].Path+"/", r.Installed[n].Left)...)
	}
	if err := printRows(a.out, rows, a.columns(a.out)); err != nil {
		return err
	}
	if err := printDiagnostics(a.err, found, maxListed); err != nil {
		return err
	}
	_, err := fmt.Fprintf(a.err, "%s %s; `skillsd show NAME` has more, no script may run before `skillsd allow`\n", verb, plural(len(rows), "skill"))
	return err
}

// print tells of one skill what it is and what it could do.
func (r *installedRow) print(a *app, verb string) error {
	fmt.Fprintf(a.out, "%s %s (%s)\n", verb, printable(r.Lock.Name), r.Lock.Tier)
	r.facts(a.out)
	diagnostics := append(append([]diagnosticRow{}, r.Skill.Diagnostics...), r.Left...)
	for i := range diagnostics {
		diagnostics[i].Path = r.Skill.Path + "/" + diagnostics[i].Path
	}
	if err := printDiagnostics(a.err, diagnostics, maxListed); err != nil {
		return err
	}
	for _, v := range r.Skill.Violations {
		fmt.Fprintf(a.err, "strict: %s\n", problemLine(placeAt(r.Skill.Path+"/SKILL.md", v.Line), v.Rule, v.Message, v.Fix))
	}
	if _, err := policy.ParseEntry(r.Lock.Name + ":scripts/x"); err != nil && len(r.Skill.Scripts) > 0 {
		fmt.Fprintln(a.err, "hint: no script can be allowed under this name; `skillsd remove` it and install it with --name, in lower-case letters and digits with single hyphens")
		return nil
	}
	for _, script := range r.Skill.Scripts {
		if script.Runtime != "" {
			fmt.Fprintf(a.err, "hint: no script may run before it is allowed:\n  skillsd allow %s:%s\n", printable(r.Lock.Name), printable(script.Path))
			break
		}
	}
	return nil
}

// facts prints what a skill is.
func (r *installedRow) facts(w io.Writer) {
	fact := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "  %-13s %s\n", name, printable(value))
		}
	}
	links, size := 0, int64(0)
	for _, file := range r.Skill.Resources {
		size += file.Size
	}
	for _, d := range r.Left {
		if d.Code == skills.CodeResourceOutside {
			links++
		}
	}
	fact("from", r.Skill.Origin)
	fact("description", shorten(r.Skill.Description, 62))
	fact("verdict", r.Skill.Verdict.word())
	fact("files", fmt.Sprintf("%d (%d bytes beside SKILL.md)", len(r.Lock.Files), size))
	if links > 0 {
		fact("links", fmt.Sprintf("%d lead out of the skill and are left out", links))
	}
	fact("allowed tools", strings.Join(r.Skill.AllowedTools, ", "))
	fact("tree", r.Skill.TreeDigest.String())
	if len(r.Skill.Scripts) > 0 {
		fmt.Fprintln(w, "  scripts")
	}
	for _, script := range r.Skill.Scripts {
		runtime := script.Runtime
		if runtime == "" {
			runtime = "cannot run: " + script.Reason
		}
		fmt.Fprintf(w, "    %s  %s\n", pad(printable(script.Path), 30), printable(runtime))
	}
}

// printNotes prints what is worth knowing of a source, at most maxListed lines.
func (a *app) printNotes(notes []string) {
	for _, note := range notes[:min(len(notes), maxListed)] {
		fmt.Fprintf(a.err, "note: %s\n", printable(note))
	}
	if more := len(notes) - maxListed; more > 0 {
		fmt.Fprintf(a.err, "note: and %d more\n", more)
	}
}
