package report

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/policy"
	sh "github.com/skillsd/skillsd/skills/script"
)

// SkillRow is a skill as printed by list --json and show --json.
type SkillRow struct {
	Path          string            `json:"path"`
	Name          string            `json:"name"`
	Description   string            `json:"description"`
	Tier          string            `json:"tier"`
	Root          string            `json:"root"`
	Origin        string            `json:"origin,omitempty"`
	File          string            `json:"file"` // relative to Root if that is not a directory
	State         string            `json:"state"`
	Reasons       []string          `json:"reasons"`
	Pinned        bool              `json:"pinned"`
	NameOnly      bool              `json:"nameOnly"`
	Form          skills.Form       `json:"form"`
	Digest        digest.Digest     `json:"digest"`
	TreeDigest    digest.Digest     `json:"treeDigest"` // empty if the files cannot be read
	LastModified  string            `json:"lastModified"`
	License       string            `json:"license,omitempty"`
	Compatibility string            `json:"compatibility,omitempty"`
	Author        string            `json:"author,omitempty"`
	Version       string            `json:"version,omitempty"`
	Tags          []string          `json:"tags"`
	AllowedTools  []string          `json:"allowedTools,omitempty"`
	Requires      *requiresRow      `json:"requires,omitempty"`
	ArgumentHint  string            `json:"argumentHint,omitempty"`
	Dependencies  []string          `json:"dependencies,omitempty"` // packages that the author names
	NotApplied    []string          `json:"notApplied,omitempty"`   // fields without effect here
	Triggers      json.RawMessage   `json:"triggers,omitempty"`
	Toolsets      json.RawMessage   `json:"toolsets,omitempty"`
	Resources     []skills.Resource `json:"resources"`
	// Taken are the resources that were installed from elsewhere in the source.
	Taken   install.TakenFiles `json:"taken,omitempty"`
	Scripts []ScriptRow        `json:"scripts"`
	// Code is the code outside scripts/ that an entry could allow, or allows.
	Code        []ScriptRow  `json:"code,omitempty"`
	Programs    []string     `json:"programs,omitempty"` // outside scripts/, without an interpreter
	Shadows     []ShadowRow  `json:"shadows"`            // hidden skills with the same path
	Diagnostics []Diagnostic `json:"diagnostics"`
	Violations  []Problem    `json:"violations"` // of the strict rules

	Skill     *skills.Skill `json:"-"` // nil if it cannot be loaded
	NeedsLook bool          `json:"-"` // a reason is for the user to act on
}

type requiresRow struct {
	Commands []string `json:"commands"`
	Env      []string `json:"env"`
	// For each text, one of its commands must exist.
	AnyCommands []string `json:"anyCommands,omitempty"`
	Platforms   []string `json:"platforms,omitempty"` // one of them
	Skills      []string `json:"skills,omitempty"`
	Tools       []string `json:"tools,omitempty"`   // of the client; skillsd cannot check them
	Servers     []string `json:"servers,omitempty"` // MCP servers of the client; skillsd cannot check them
}

// ScriptRow is a script of a skill and whether it may run.
type ScriptRow struct {
	Path    string `json:"path"`
	Runtime string `json:"runtime"`
	Allowed bool   `json:"allowed"`
	Reason  string `json:"reason,omitempty"`

	program bool // it looks like a program to start, not a module
}

// ShadowRow is a skill hidden by another one with the same path.
type ShadowRow struct {
	Root string `json:"root"`
	Tier string `json:"tier"`
}

// NewSkillRows describes all skills of a snapshot in the order of paths, including withheld ones. It reads
// several skills concurrently.
func NewSkillRows(
	ctx context.Context, snapshot *skills.Snapshot, allow policy.Allowlist, stderr io.Writer,
) ([]SkillRow, error) {
	// The lists of a snapshot are shared and must not be sorted in place.
	all := slices.Concat(snapshot.Skills, snapshot.Withheld)
	slices.SortFunc(all, func(a, b *skills.Skill) int { return cmp.Compare(a.Path, b.Path) })
	rows := make([]SkillRow, len(all))
	line := NewStatusLine(stderr)
	defer line.Clear()
	var done atomic.Int64
	err := Each(ctx, len(all), func(i int) {
		rows[i] = NewSkillRow(ctx, snapshot, all[i], allow)
		line.Count("skills read", int(done.Add(1)), len(all))
	})
	return rows, err
}

// Each calls work with 0 to n-1, concurrently on all processors.
//
// Errors: the error of ctx.
func Each(ctx context.Context, n int, work func(i int)) error {
	var next atomic.Int64
	var group sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				work(i)
			}
		})
	}
	group.Wait()
	return ctx.Err()
}

// EmptyRow returns the row of a skill without further facts; its lists are not nil.
func EmptyRow(path, name, state string) SkillRow {
	return SkillRow{
		Path: path, Name: name, State: state,
		Reasons: []string{}, Tags: []string{}, Resources: []skills.Resource{}, Scripts: []ScriptRow{},
		Shadows: []ShadowRow{}, Diagnostics: []Diagnostic{}, Violations: []Problem{},
	}
}

// NewSkillRow describes one skill. If its files cannot be read, the row lacks the facts about them.
func NewSkillRow(
	ctx context.Context, snapshot *skills.Snapshot, sk *skills.Skill, allow policy.Allowlist,
) SkillRow {
	status, front := snapshot.Status(sk), &sk.Frontmatter
	row := SkillRow{
		Path: sk.Path, Name: sk.Name(), Description: sk.Description(),
		Tier: sk.Root.Tier.String(), Root: sk.Root.Dir, Origin: sk.Root.Origin, File: SkillFile(sk),
		State: string(status.State), Reasons: append([]string{}, status.Reasons...),
		Pinned: status.Pinned, NameOnly: status.NameOnly,
		Form: sk.Form, Digest: sk.Digest,
		LastModified: sk.LastModified.UTC().Format(time.RFC3339),
		License:      front.License, Compatibility: front.Compatibility, Author: front.Author,
		Version: front.Version, Tags: append([]string{}, front.Tags...), AllowedTools: front.AllowedTools,
		ArgumentHint: front.ArgumentHint(), Dependencies: front.Dependencies(),
		NotApplied: front.NotApplied(),
		Triggers:   front.Value("triggers"), Toolsets: front.Value("toolsets"),
		Resources: []skills.Resource{}, Scripts: []ScriptRow{}, Shadows: []ShadowRow{},
		Diagnostics: Diagnostics(sk.Diagnostics), Violations: []Problem{}, Skill: sk,
	}
	r := front.Requires
	if slices.ContainsFunc(r.Lists(), func(list *[]string) bool { return len(*list) > 0 }) {
		row.Requires = &requiresRow{append([]string{}, r.Commands...), append([]string{}, r.Env...),
			r.AnyCommands, r.Platforms, r.Skills, r.Tools, r.Servers}
	}
	for _, loser := range snapshot.Shadowed {
		if loser.Path == sk.Path {
			row.Shadows = append(row.Shadows, ShadowRow{loser.Root.Dir, loser.Root.Tier.String()})
		}
	}
	index, err := sk.Index(ctx)
	if err != nil {
		// A skill whose files are unknown may contain anything.
		row.Form.Publishable = false
		row.Diagnostics = append(row.Diagnostics, Diagnostics([]skills.Diagnostic{{
			Severity: skills.Error, Code: skills.CodeUnreadableDir,
			Detail: fmt.Sprintf("the files of the skill cannot be read: %v", err),
		}})...)
		return row
	}
	row.TreeDigest, row.Form.Publishable = index.TreeDigest, index.Publishable
	row.Diagnostics = append(row.Diagnostics, Diagnostics(index.Diagnostics)...)
	row.Resources = append(row.Resources, index.Resources...)
	row.addPrograms(snapshot, sk, index, allow)
	return row
}

// addPrograms adds the scripts, the code and the programs of a skill.
func (r *SkillRow) addPrograms(
	snapshot *skills.Snapshot, sk *skills.Skill, index *skills.Index, allow policy.Allowlist,
) {
	for _, f := range index.Files {
		file := index.Resource(f.Path)
		if file == nil {
			// The skill file is not a resource.
			continue
		}
		info, isProgram := file.Program(), sh.IsProgram(f.Path, f.Executable)
		if file.Script == nil && snapshot.Nested(sk, f.Path) != nil {
			// The nested skill lists the file.
			continue
		}
		if file.Script == nil && (info == nil || info.Runtime == "") {
			if isProgram {
				r.Programs = append(r.Programs, f.Path)
			}
			continue
		}
		script := ScriptRow{Path: f.Path, Runtime: string(info.Runtime), Reason: info.Problem,
			program: isProgram}
		if info.Runtime != "" {
			entries := allow.Find(sk.Path, f.Path)
			script.Allowed, script.Reason = allowedAs(entries, file.Digest, index.TreeDigest)
		}
		if file.Script == nil {
			r.Code = append(r.Code, script)
		} else {
			r.Scripts = append(r.Scripts, script)
		}
	}
}

// OtherPrograms returns the files outside scripts/ that look like programs and that no entry allows.
func (r *SkillRow) OtherPrograms() []string {
	paths := slices.Clone(r.Programs)
	for i := range r.Code {
		if r.Code[i].program && !r.Code[i].Allowed {
			paths = append(paths, r.Code[i].Path)
		}
	}
	slices.Sort(paths)
	return paths
}

// allowedAs reports whether an entry of a script allows its current content, and if not, why.
func allowedAs(entries []policy.Entry, file, tree digest.Digest) (allowed bool, reason string) {
	if len(entries) == 0 {
		return false, "not allowed"
	}
	reason = "allowed with another digest"
	for i := range entries {
		switch entries[i].Changed(file, tree) {
		case policy.Unchanged:
			return true, ""
		// This is the nearer reason: the script itself is the one that was allowed.
		case policy.TreeChanged:
			reason = "other files of its skill changed since it was allowed"
		}
	}
	return false, reason
}

// AddViolations adds the violations of skills that are not strictly valid. It reads their files again.
func AddViolations(ctx context.Context, rows []SkillRow) error {
	return Each(ctx, len(rows), func(i int) {
		if row := &rows[i]; row.Skill != nil && !row.Form.Strict {
			row.Violations = append(row.Violations, StrictProblems(row.Skill.Violations(ctx))...)
		}
	})
}

// SkillFile returns the path of the skill's file.
func SkillFile(sk *skills.Skill) string {
	return filepath.Join(sk.Root.Dir, filepath.FromSlash(sk.Dir), sk.File)
}

// Widths of a table, in columns.
const (
	minPathColumn  = 24
	minDescription = 12
	gap            = "  "
)

// padded pads the cells of rows to the widths of their columns, except the last cell of a row.
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

// PrintSkills prints a table that fits a width of 74 columns and more, unless a path or a reason alone is
// longer: these are never truncated.
func PrintSkills(w io.Writer, rows []SkillRow, most int, paint Paint) error {
	facts := [][]string{{"TRUST", "FORM", "FILES", "RUN"}}
	paths := len("SKILL")
	for i := range rows {
		facts = append(facts, rows[i].facts())
		paths = max(paths, Cells(Printable(rows[i].Path)))
	}
	// A long path has a line of its own, so that it does not narrow all descriptions.
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
		line(row.mark(paint), Printable(row.Path), lines[i+1], row.Description)
		for _, reason := range row.Reasons {
			fmt.Fprintf(&out, "    %s: %s\n", StateWord(row.State), Printable(reason))
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// StateQuarantined is the state of an installed skill that no user has accepted.
const StateQuarantined = "quarantined"

// StateWaiting is the word for StateQuarantined in texts.
const StateWaiting = "waiting"

// StateWord returns the word for a state in texts.
func StateWord(state string) string {
	if state == StateQuarantined {
		return StateWaiting
	}
	return state
}

// StateBroken is the state of a skill that cannot be loaded.
const StateBroken = "broken"

// WithBroken adds a row with the known facts for each skill that cannot be loaded.
func WithBroken(rows []SkillRow, snapshot *skills.Snapshot) []SkillRow {
	for _, d := range snapshot.Diagnostics {
		file := path.Base(d.Path)
		if d.Severity != skills.Error || !strings.EqualFold(file, "SKILL.md") {
			continue
		}
		dir := path.Dir(d.Path)
		d.Path = file
		row := EmptyRow(dir, path.Base(dir), StateBroken)
		row.Reasons, row.Diagnostics = []string{d.Detail}, Diagnostics([]skills.Diagnostic{d})
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(a, b SkillRow) int { return strings.Compare(a.Path, b.Path) })
	return rows
}

// mark returns the state as one character.
func (r *SkillRow) mark(paint Paint) string {
	switch skills.State(r.State) {
	case skills.StateEnabled:
		// The skill is served all the same.
		if r.NeedsLook {
			return paint.Warn("!")
		}
		return paint.Good("✓")
	case skills.StateUnavailable, StateQuarantined:
		return paint.Bad("✗")
	}
	return "○"
}

// form returns the validity of the SKILL.md in one word.
func (r *SkillRow) form() string {
	switch {
	case r.Form.Strict:
		return "strict"
	case r.Form.Repaired:
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
	if r.Skill == nil && r.State != StateBroken {
		// The row is from the lock file, without a form and allowed scripts.
		return []string{r.Tier, "-", files, "-"}
	}
	allowed, all := 0, len(r.Scripts)
	for _, script := range r.Scripts {
		if script.Allowed {
			allowed++
		}
	}
	for _, code := range r.Code {
		// Most code outside of scripts/ is in modules, which no user runs.
		if code.Allowed {
			allowed++
			all++
		}
	}
	return []string{r.Tier, r.form(), files, fmt.Sprintf("%d/%d", allowed, all)}
}

// HintPrograms is the advice about programs outside scripts/.
const HintPrograms = "`skillsd allow SKILL:PATH` allows one that `skillsd show SKILL` lists with an " +
	"interpreter"

// maxCode is the most lines about code outside scripts/: many skills have hundreds of modules there.
const maxCode = 40

// PrintSkill prints everything known about a skill.
func PrintSkill(w io.Writer, row *SkillRow) error {
	row.printProperties(w)
	row.printLists(w)
	return row.printProblems(w)
}

// printProperties prints the properties of a skill, one on each line.
func (r *SkillRow) printProperties(w io.Writer) {
	fact := func(name, value string) { printFact(w, "", 14, name, value) }
	fact("skill", r.Path)
	fact("name", r.Name)
	fact("description", OneLine(r.Description))
	fact("trust", r.Tier)
	fact("directory", r.Root)
	fact("origin", r.Origin)
	fact("file", r.File)
	for _, shadow := range r.Shadows {
		fact("shadows", fmt.Sprintf("the one in %s (%s)", shadow.Root, shadow.Tier))
	}
	state := append([]string{StateWord(r.State)}, r.Reasons...)
	fact("state", r.mark(false)+" "+strings.Join(state, ", "))
	fact("form", r.form())
	fact("publishable", fmt.Sprint(r.Form.Publishable))
	fact("license", r.License)
	fact("compatibility", r.Compatibility)
	fact("author", r.Author)
	fact("version", r.Version)
	fact("tags", strings.Join(r.Tags, ", "))
	fact("allowed tools", strings.Join(r.AllowedTools, ", "))
	if r.Requires != nil {
		fact("requires", r.Requires.text())
	}
	fact("argument hint", OneLine(r.ArgumentHint))
	fact("dependencies", strings.Join(r.Dependencies, ", "))
	fact("not applied", strings.Join(r.NotApplied, ", "))
	fact("modified", r.LastModified)
	fact("digest", r.Digest.String())
	fact("content", r.TreeDigest.String())
}

// text returns the requirements in one line.
func (r *requiresRow) text() string {
	needs := slices.Concat(r.Commands, r.Env)
	add := func(what string, names []string) {
		for _, name := range names {
			needs = append(needs, what+" "+name)
		}
	}
	add("one of the commands", r.AnyCommands)
	add("the platform", r.Platforms)
	add("the skill", r.Skills)
	add("the client's tool", r.Tools)
	add("the MCP server in the client", r.Servers)
	return strings.Join(needs, ", ")
}

// printLists prints the files, the scripts and the programs of a skill.
func (r *SkillRow) printLists(w io.Writer) {
	var files, taken, scripts, code [][]string
	var programs []string
	for _, f := range r.Resources {
		files = append(files, []string{gap + Printable(f.Path), string(f.Kind), fmt.Sprintf("%8d", f.Size),
			f.Digest.String()})
	}
	for _, t := range r.Taken {
		taken = append(taken, []string{gap + Printable(t.Path), "is " + Printable(t.From)})
	}
	for i := range r.Scripts {
		scripts = append(scripts, r.Scripts[i].cells())
	}
	// Programs first, so that modules do not push them out of the list.
	outside := slices.Clone(r.Code)
	slices.SortStableFunc(outside, func(a, b ScriptRow) int { return cmp.Compare(a.rank(), b.rank()) })
	for i := range outside[:min(len(outside), maxCode)] {
		code = append(code, outside[i].cells())
	}
	for _, program := range r.Programs {
		programs = append(programs, gap+Printable(program))
	}
	printList(w, "files", padded(files))
	printList(w, "from elsewhere in its source", padded(taken))
	printList(w, "scripts", padded(scripts))
	lines := padded(code)
	if n := len(outside) - maxCode; n > 0 {
		lines = append(lines, fmt.Sprintf("%s(%d more; --json has all)", gap, n))
	}
	printList(w, "code outside scripts/, which may be allowed by its path", lines)
	printList(w, "programs outside scripts/, which no interpreter here runs", programs)
}

// printProblems prints the diagnostics and the violations of a skill.
func (r *SkillRow) printProblems(w io.Writer) error {
	// The name of the directory has three rules, and the violation of one is enough to print.
	misnamed := func(d Diagnostic) bool { return d.Code == skills.CodeNameMismatch }
	diagnostics, violations := slices.Clone(r.Diagnostics), slices.Clone(r.Violations)
	if slices.ContainsFunc(diagnostics, misnamed) {
		diagnostics = slices.DeleteFunc(diagnostics, func(d Diagnostic) bool {
			return d.Code == skills.CodeNotPublishable
		})
		violations = slices.DeleteFunc(violations, func(v Problem) bool {
			return v.Rule == ruleDirectoryName
		})
	}
	for i := range diagnostics {
		diagnostics[i].Path = r.Path + "/" + diagnostics[i].Path
	}
	if err := WriteDiagnostics(w, diagnostics, math.MaxInt); err != nil {
		return err
	}
	for _, v := range violations {
		fmt.Fprintf(w, "strict: %s\n", ProblemLine(Location(r.Path+"/"+r.Skill.File, v.Line), v.Rule,
			v.Message, v.Fix))
	}
	return nil
}

// ruleDirectoryName is the rule of validate about the name of a skill's directory.
const ruleDirectoryName = "V15"

// cells returns the line of a script in a table.
func (s *ScriptRow) cells() []string {
	verdict := "may run"
	if !s.Allowed {
		verdict = "may not run: " + Printable(s.Reason)
	}
	return []string{gap + Printable(s.Path), s.Runtime, verdict}
}

// rank returns the place of code in a list: what may run, programs, then modules.
func (s *ScriptRow) rank() int {
	switch {
	case s.Allowed:
		return 0
	case s.program:
		return 1
	}
	return 2
}

// printList prints lines below a heading, or nothing without lines.
func printList(w io.Writer, heading string, lines []string) {
	if len(lines) > 0 {
		fmt.Fprintf(w, "%s\n%s\n", heading, strings.Join(lines, "\n"))
	}
}

// printFact prints a line with a name and a value, unless the value is empty.
func printFact(w io.Writer, indent string, width int, name, value string) {
	if value != "" {
		fmt.Fprintf(w, "%s%-*s %s\n", indent, width, name, Printable(value))
	}
}

// printBelow is printFact below the line of a skill.
func printBelow(w io.Writer, name, value string) { printFact(w, "  ", 13, name, value) }

// printFacts prints the properties of a skill.
func (r *SkillRow) printFacts(w io.Writer) {
	const maxScripts = 10
	size := int64(0)
	for _, file := range r.Resources {
		size += file.Size
	}
	printBelow(w, "description", Shorten(r.Description, 62))
	printBelow(w, "files", fmt.Sprintf("%d (%d bytes besides SKILL.md)", len(r.Resources)+1, size))
	printBelow(w, "allowed tools", strings.Join(r.AllowedTools, ", "))
	var scripts []string
	for _, script := range r.Scripts {
		runtime := script.Runtime
		if runtime == "" {
			runtime = "cannot run: " + script.Reason
		}
		scripts = append(scripts, "    "+Pad(Printable(script.Path), 30)+gap+Printable(runtime))
	}
	if more := len(scripts) - maxScripts; more > 1 {
		scripts = append(scripts[:maxScripts], fmt.Sprintf("    and %d more: skillsd show %s", more,
			Printable(ShellLine(r.Path))))
	}
	printList(w, "  scripts", scripts)
}

// powers returns what a skill requests, in one line; empty without requests.
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

// BrokenError returns the reason why a skill does not load, as an error with an exit code and the remedy, or
// nil if the snapshot has no such skill. name is its path or the name of its directory.
func BrokenError(code int, snapshot *skills.Snapshot, name string) error {
	for _, row := range WithBroken(nil, snapshot) {
		if row.Path != name && row.Name != name {
			continue
		}
		d := row.Diagnostics[0]
		return exit.Errorf(code, d.Fix, "%s does not load: %s", Printable(row.Path),
			Printable(ProblemLine(Location(row.Path+"/"+d.Path, d.Line), string(d.Code), d.Detail, "")))
	}
	return nil
}

// LookupError converts an error of looking up a skill to one with an exit code and a hint. subject begins its
// text.
func LookupError(code int, subject string, err error) error {
	if missing, ok := errors.AsType[*skills.NotFoundError](err); ok {
		hint := "`skillsd list` says what is served, and what could not be read"
		if missing.Suggestion != "" {
			hint = "did you mean " + Printable(missing.Suggestion) + "?"
		} else if len(missing.Nearest) > 0 {
			hint = "skills are: " + Printable(strings.Join(missing.Nearest, ", "))
		}
		return exit.Errorf(code, hint, "%sno skill %q", subject, missing.Name)
	}
	if ambiguous, ok := errors.AsType[*skills.AmbiguousError](err); ok {
		hint := "use one of: " + Printable(strings.Join(ambiguous.Paths, ", "))
		return exit.Errorf(code, hint, "%s%q names more than one skill", subject, ambiguous.Name)
	}
	return err
}
