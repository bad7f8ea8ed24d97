package report

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/policy"
)

// MaxListed is the maximum of diagnostics printed with a list; a tree of thousands of skills has thousands.
const MaxListed = 50

// Installation is the result of an installation, as printed by install --json.
type Installation struct {
	Installed []installedRow    `json:"installed"`
	Refused   []install.Refusal `json:"refused"` // with --keep-going
	LeftOut   []install.Refusal `json:"leftOut"` // skills of the source that cannot be, with --all
	Notes     []string          `json:"notes"`   // about the source
	DryRun    bool              `json:"dryRun"`

	Again func(text string) string `json:"-"` // as [Again], for Print
}

// installedRow is an installed skill: its entry in the lock file and its properties.
type installedRow struct {
	Lock   *install.Entry `json:"lock"`
	Skill  SkillRow       `json:"skill"`
	Nested []SkillRow     `json:"nested"` // skills inside it, each served separately
	Left   []Diagnostic   `json:"left"`   // files of the source that are not installed, with reasons
}

// NewInstallation describes the skills of a plan as they will be served from the state directory.
func NewInstallation(ctx context.Context, plan *install.Plan, state string, dry bool) (*Installation, error) {
	all := &Installation{
		Installed: make([]installedRow, len(plan.Changes)),
		Refused:   append([]install.Refusal{}, plan.Refused...),
		LeftOut:   append([]install.Refusal{}, plan.LeftOut...),
		Notes:     append([]string{}, plan.Notes...), DryRun: dry,
	}
	err := Each(ctx, len(plan.Changes), func(n int) {
		c := &plan.Changes[n]
		skill, nested := SkillRow{}, []SkillRow{}
		for _, sk := range plan.New.Skills {
			if sk.Path != c.Name && !strings.HasPrefix(sk.Path, c.Name+"/") {
				continue
			}
			rows := []SkillRow{NewSkillRow(ctx, plan.New, sk, policy.Allowlist{})}
			// It fails only if ctx ends, and Each returns that.
			_ = AddViolations(ctx, rows)
			row := rows[0]
			row.Tier, row.Root = c.After.Tier.String(), install.RootDir(state, c.After.Tier)
			row.Origin = OriginText(c.After)
			row.File = strings.Replace(row.File, sk.Root.Dir, row.Root, 1)
			if sk.Path == c.Name {
				skill = row
			} else {
				nested = append(nested, row)
			}
		}
		all.Installed[n] = installedRow{c.After, skill, nested, Diagnostics(c.Left)}
	})
	return all, err
}

const waitingText = "not served yet"

// MarkWaiting sets the state of the skills that are not served before a user accepts them. It is called after
// the user's decision.
func (r *Installation) MarkWaiting() {
	for i := range r.Installed {
		one := &r.Installed[i]
		if !one.Lock.Quarantined() {
			continue
		}
		one.Skill.State, one.Skill.Reasons = StateQuarantined, []string{waitingText}
		for n := range one.Nested {
			one.Nested[n].State = StateQuarantined
		}
	}
}

// Serves reports whether one of the skills is offered to models now.
func (r *Installation) Serves() bool {
	return slices.ContainsFunc(r.Installed, func(one installedRow) bool {
		return one.Skill.State == string(skills.StateEnabled)
	})
}

// MarkMissing sets the state of the skills that lack something that they require. It returns how many do.
// Skills of the plan, and installed ones, satisfy requirements; tools and servers of clients are not checked.
func (r *Installation) MarkMissing(
	plan *install.Plan, lock *install.Lock, options *skills.ScanOptions,
) (n int) {
	names := map[string]bool{}
	// Authors name other skills by their directory, without the prefix under which they are served.
	add := func(name string) { names[name], names[path.Base(name)] = true, true }
	for _, e := range lock.Skills {
		add(e.Name)
	}
	for _, sk := range plan.New.Skills {
		add(sk.Path)
		names[sk.Frontmatter.Name] = true
	}
	has := func(name string) bool { return names[name] }
	for i := range r.Installed {
		row := &r.Installed[i].Skill
		if row.Skill == nil || row.State != string(skills.StateEnabled) {
			continue
		}
		if missing := options.Missing(row.Skill, has); len(missing) > 0 {
			row.State, row.Reasons = string(skills.StateUnavailable), missing
			n++
		}
	}
	return n
}

// OriginOf returns the origin of an installed skill.
func OriginOf(e *install.Entry) *cfharness.SkillOrigin {
	o := &cfharness.SkillOrigin{Kind: string(e.Origin.Kind), Source: e.Origin.Source, Path: e.Origin.Path,
		Ref: e.Origin.Ref, Commit: e.Origin.Commit, Plugin: e.Plugin.String()}
	if e.Plugin != nil {
		o.License = e.Plugin.License
	}
	if o.Path == "." {
		o.Path = ""
	}
	return o
}

// OriginText returns the origin of an installed skill, in one line.
func OriginText(e *install.Entry) string {
	text := OriginOf(e).String()
	if e.Origin.Signer != "" {
		text += ", signed by " + e.Origin.Signer.As(e.Origin.Identity).String()
	}
	return text
}

// HintLock returns the advice for an unreadable lock file.
func HintLock(file string) string {
	return "bring back the lock file from a backup, or forget what is installed: " +
		ShellLine("mv", file, file+".bad")
}

// LockContent returns the numbers of skills and files in a lock file.
func LockContent(lock *install.Lock) string {
	files := 0
	for _, e := range lock.Skills {
		files += len(e.Files)
	}
	return Plural(len(lock.Skills), "skill") + ", " + Plural(files, "file")
}

// maxInFull is the maximum number of skills, nested ones among them, that an installation prints in full.
const maxInFull = 3

// Print prints the installed skills on out, a single skill in full and several as a table, and their problems
// on stderr.
func (r *Installation) Print(out, stderr io.Writer, columns int) error {
	PrintNotes(stderr, r.Notes)
	for _, refused := range r.Refused {
		fmt.Fprintf(stderr, "not installed: %s\n", Printable(refused.Path+": "+refused.Reason))
	}
	r.printLeftOut(stderr)
	if len(r.Installed) == 0 {
		_, err := fmt.Fprintln(stderr, "there is nothing to install")
		return err
	}
	verb := "installed"
	if r.DryRun {
		verb = "would install"
	}
	var rows []SkillRow
	for _, one := range r.Installed {
		one.Skill.Diagnostics = slices.Concat(one.Skill.Diagnostics, one.Left)
		rows = append(append(rows, one.Skill), one.Nested...)
	}
	// A repository with 60 nested skills printed 700 lines in full.
	if len(r.Installed) == 1 && len(rows) <= maxInFull {
		return r.printInFull(out, stderr, verb, rows)
	}
	return r.printTable(out, stderr, columns, verb, rows)
}

// maxLeftOut is the maximum number of skills that cannot be installed which an installation prints.
const maxLeftOut = 10

// printLeftOut prints the skills of the source that cannot be installed.
func (r *Installation) printLeftOut(stderr io.Writer) {
	if len(r.LeftOut) == 0 {
		return
	}
	fmt.Fprintf(stderr, "note: left out: %s of the source\n", Plural(len(r.LeftOut), "skill"))
	for _, one := range r.LeftOut[:min(len(r.LeftOut), maxLeftOut)] {
		fmt.Fprintf(stderr, "  %s\n", Printable(one.Path+": "+one.Reason))
	}
	if more := len(r.LeftOut) - maxLeftOut; more > 0 {
		fmt.Fprintf(stderr, "  and %d more; --json has all\n", more)
	}
}

// printInFull prints one installed skill with those nested in it.
func (r *Installation) printInFull(out, stderr io.Writer, verb string, rows []SkillRow) error {
	w := bufio.NewWriter(out)
	first := &rows[0]
	waits, state := first.State == StateQuarantined, ""
	if waits {
		state = " (" + waitingText + ")"
	}
	fmt.Fprintf(w, "%s %s%s\n", verb, Printable(first.Path), state)
	printBelow(w, "from", first.Origin)
	trust := first.Tier
	if trust == skills.TierThirdParty.String() {
		trust += ": you are asked before a script of it runs"
	}
	printBelow(w, "trust", trust)
	review := "needed, see below"
	if cmp.Or(r.Installed[0].Lock.Verdict, policy.Clean) == policy.Clean {
		review = "nothing suspicious found"
		isSecret := func(d Diagnostic) bool { return d.Code == skills.CodeSecretFile }
		if slices.ContainsFunc(diagnosticsOf(rows, skills.Warning), isSecret) {
			review = "a file that looks secret, see below; the skill is served"
		}
	}
	printBelow(w, "review", review)
	first.printFacts(w)
	for _, nested := range rows[1:] {
		fmt.Fprintf(w, "nested skill %s (%s)\n", Printable(nested.Path), nested.Tier)
		nested.printFacts(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, row := range rows {
		if row.State == string(skills.StateUnavailable) {
			fmt.Fprintf(stderr, "not served: %s\n", Printable(strings.Join(row.Reasons, "; ")))
		}
	}
	if err := WriteDiagnostics(stderr, diagnosticsOf(rows, skills.Info), MaxListed); err != nil {
		return err
	}
	if hint := first.hintAllow(); hint != "" && !waits {
		fmt.Fprintf(stderr, "hint: %s\n", r.Again(hint))
	}
	return nil
}

// printTable prints installed skills, one in each row, and below it what each asks for.
func (r *Installation) printTable(out, stderr io.Writer, columns int, verb string, rows []SkillRow) error {
	w := bufio.NewWriter(out)
	if err := PrintSkills(w, rows, columns, false); err != nil {
		return err
	}
	for i := range rows {
		if text := rows[i].powers(); text != "" {
			fmt.Fprintf(w, "  %s: %s\n", Printable(rows[i].Path), Printable(text))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	// Information is for authors, and a table of many skills would have hundreds of lines of it.
	if err := WriteDiagnostics(stderr, diagnosticsOf(rows, skills.Warning), MaxListed); err != nil {
		return err
	}
	count := Plural(len(r.Installed), "skill")
	nested := len(rows) - len(r.Installed)
	switch {
	case nested > 0 && len(r.Installed) == 1:
		count += fmt.Sprintf(" and %d nested in it", nested)
	case nested > 0:
		count += fmt.Sprintf(" and %d nested in them", nested)
	}
	const more = "see `skillsd show NAME`; no script runs until `skillsd allow`"
	fmt.Fprintf(stderr, "%s %s; %s\n", verb, count, r.Again(more))
	return nil
}

// diagnosticsOf returns the diagnostics of skills with at least some severity, by paths in the catalogue.
func diagnosticsOf(rows []SkillRow, least skills.Severity) (found []Diagnostic) {
	for i := range rows {
		for _, d := range rows[i].Diagnostics {
			if d.Severity >= least {
				d.Path = rows[i].Path + "/" + d.Path
				found = append(found, d)
			}
		}
	}
	return found
}

// hintAllow returns how a script of the skill may be allowed, or "" without scripts.
func (r *SkillRow) hintAllow() string {
	// The hint would otherwise be a command that fails.
	if _, err := policy.ParseEntry(r.Path + ":scripts/x"); err != nil && len(r.Scripts) > 0 {
		return "no script can be allowed under this name; `skillsd remove` it and install it with --name, " +
			"in letters that can be seen, without :, *, ? and ["
	}
	// Many skills have modules in scripts/ that a user would never start.
	at := slices.IndexFunc(r.Scripts, func(s ScriptRow) bool { return s.Runtime != "" && s.program })
	if at < 0 {
		at = slices.IndexFunc(r.Scripts, func(s ScriptRow) bool { return s.Runtime != "" })
	}
	if at < 0 {
		return ""
	}
	return "no script runs until you allow it:\n  skillsd allow " +
		Printable(ShellLine(r.Path+":"+r.Scripts[at].Path))
}

// PrintNotes prints the notes about a source, at most MaxListed lines.
func PrintNotes(w io.Writer, notes []string) {
	for _, note := range notes[:min(len(notes), MaxListed)] {
		fmt.Fprintf(w, "note: %s\n", Printable(note))
	}
	if more := len(notes) - MaxListed; more > 0 {
		fmt.Fprintf(w, "note: and %d more\n", more)
	}
}
