package main

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/frontmatter"
	"github.com/skillsd/skillsd/skills/source"
)

// validateOptions are the flags of validate.
type validateOptions struct {
	app     *app
	Roots   config.RootOptions
	Lenient bool
	JSON    bool
}

func newValidateCmd(a *app) *cobra.Command {
	opts := &validateOptions{app: a}
	cmd := &cobra.Command{
		Use:   "validate [DIR...]",
		Short: "Check skills by the strict rules and say what to mend",
		Long: "Check every skill in the given directories, or in the roots that would be served, by the\n" +
			"rules of the Agent Skills reference validator. DIR is a skill, its SKILL.md, or a folder\n" +
			"with skills below.\n\n" +
			"Each problem is one line, DIR/SKILL.md:LINE: RULE: message (fix: ...). With --lenient the\n" +
			"rules are those of loading: what would not be served, and what is repaired or odd. The exit\n" +
			"code is 3 when a skill is invalid, with --lenient when one would not load.",
		RunE: runE(opts.run),
	}
	opts.Roots.Register(cmd.Flags())
	cmd.Flags().BoolVar(&opts.Lenient, "lenient", false,
		"report what would not load or is repaired, instead of the strict rules")
	cmd.Flags().BoolVar(&opts.JSON, "json", false, "print JSON")
	return cmd
}

// verdict is what was found of one skill, as validate --json prints it.
type verdict struct {
	Dir    string           `json:"dir"`
	File   string           `json:"file,omitempty"` // SKILL.md or skill.md; empty for what has none
	Valid  bool             `json:"valid"`
	Errors []report.Problem `json:"errors"`

	place bool // not a skill, but a place that may hide some
}

func (o *validateOptions) run(ctx context.Context, dirs []string) error {
	found, err := o.find(ctx, dirs)
	if err != nil {
		return err
	}
	result := &validateReport{all: []verdict{}, options: o}
	line := report.NewStatusLine(o.app.err)
	defer line.Clear()
	var checked atomic.Int64
	if len(found) == 0 {
		fmt.Fprintln(o.app.err, "note: the roots hold no skills")
	}
	// Thousands of skills are checked at the same time and printed in order, a part at a time.
	const part = 512
	for done := 0; done < len(found); done += part {
		verdicts := make([]verdict, min(part, len(found)-done))
		err := report.Each(ctx, len(verdicts), func(i int) {
			verdicts[i] = found[done+i].check(ctx, o.Lenient)
			line.Count("skills checked", int(checked.Add(1)), len(found))
		})
		if err != nil {
			return err
		}
		if report.IsTerminal(o.app.out) {
			line.Clear()
		}
		if err := result.add(verdicts); err != nil {
			return err
		}
	}
	line.Clear()
	return result.end()
}

// validateReport prints verdicts and counts them.
type validateReport struct {
	options          *validateOptions
	all              []verdict // for JSON
	skills, valid    int
	errors, warnings int
}

func (r *validateReport) add(verdicts []verdict) error {
	for i := range verdicts {
		v := &verdicts[i]
		r.count(v)
		if r.options.JSON {
			r.all = append(r.all, *v)
			continue
		}
		for _, p := range v.Errors {
			place := report.JoinPath(v.Dir, v.File)
			if p.File != "" {
				place = report.JoinPath(v.Dir, p.File)
			}
			line := report.ProblemLine(report.PlaceAt(place, p.Line), p.Rule, p.Message, p.Fix)
			if _, err := fmt.Fprintln(r.options.app.out, line); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *validateReport) count(v *verdict) {
	if !v.place {
		r.skills++
		if v.Valid {
			r.valid++
		}
	}
	for _, p := range v.Errors {
		if p.Severity == skills.Warning.String() {
			r.warnings++
		} else {
			r.errors++
		}
	}
}

// end prints the counts and chooses the exit code.
func (r *validateReport) end() error {
	if r.options.JSON {
		if err := report.WriteJSON(r.options.app.out, r.all); err != nil {
			return err
		}
	}
	all := report.Plural(r.skills, "skill")
	text := fmt.Sprintf("%d of %s strictly valid; %s", r.valid, all, report.Plural(r.errors, "problem"))
	if r.options.Lenient {
		text = fmt.Sprintf("%d of %s loadable; %s, %s", r.valid, all,
			report.Plural(r.errors, "error"), report.Plural(r.warnings, "warning"))
	}
	fmt.Fprintln(r.options.app.err, text)
	if r.errors > 0 {
		return &exit.Error{Code: exit.Problems}
	}
	return nil
}

// candidate is something that validate gives a verdict on: a skill, or a place that may hide some.
type candidate struct {
	shown       string        // its directory as the user named it
	file        string        // SKILL.md, skill.md, or empty if there is none
	skill       *skills.Skill // nil for a place, and for a file that was not read
	dir         string        // of what is not a skill, on this machine; empty if it is in an archive
	diagnostics []skills.Diagnostic
	place       bool // not a skill: the diagnostics are the verdict
}

// Limits that no collection reaches, but that still stop a loop.
const (
	unlimitedDepth = 256
	unlimitedDirs  = 5_000_000
)

// find returns what is to be checked, by path. Skills are those that a scan of the directories finds.
func (o *validateOptions) find(ctx context.Context, dirs []string) ([]candidate, error) {
	roots, err := o.validateRoots(dirs)
	if err != nil {
		return nil, err
	}
	options := o.Roots.ScanOptions()
	options.MaxDepth = cmp.Or(options.MaxDepth, unlimitedDepth)
	options.MaxDirs = cmp.Or(options.MaxDirs, unlimitedDirs)
	options.MaxFiles = cmp.Or(options.MaxFiles, unlimitedDirs)
	var found []candidate
	for _, root := range roots {
		if info, err := os.Stat(root.Dir); root.FS == nil && (err != nil || !info.IsDir()) {
			found = append(found, candidate{shown: root.Origin, dir: root.Dir})
			continue
		}
		shown := root.Origin
		root.Origin, root.Prefix = "", ""
		snapshot, err := skills.Scan(ctx, []skills.Root{root}, options)
		if err != nil {
			return nil, err
		}
		below := o.candidates(snapshot, shown)
		if len(below) == 0 && len(dirs) > 0 {
			empty := candidate{shown: shown}
			if root.FS == nil {
				empty.dir = root.Dir
			}
			below = []candidate{empty}
		}
		found = append(found, below...)
	}
	slices.SortStableFunc(found, func(a, b candidate) int { return strings.Compare(a.shown, b.shown) })
	same := func(a, b candidate) bool { return a.shown == b.shown && !a.place && !b.place }
	return slices.CompactFunc(found, same), nil
}

// validateRoots returns the roots to check, with the words of the user as their origin.
func (o *validateOptions) validateRoots(dirs []string) ([]skills.Root, error) {
	if len(dirs) == 0 {
		roots, err := o.Roots.Resolve(&o.app.Process)
		if err == nil && len(roots) == 0 {
			err = config.ErrNoRoots()
		}
		for i := range roots {
			roots[i].Origin = roots[i].Dir
		}
		return roots, err
	}
	if len(o.Roots.Specs) > 0 {
		return nil, exit.Usagef("give one or the other",
			"--skills-root does not go with directories to check")
	}
	var roots []skills.Root
	for _, dir := range dirs {
		if dir == "" {
			return nil, exit.Usagef("give a directory", "the name of a directory is empty")
		}
		shown := filepath.ToSlash(dir)
		if name := filepath.Base(dir); strings.EqualFold(name, "SKILL.md") {
			if info, err := os.Stat(dir); err == nil && info.Mode().IsRegular() {
				dir = filepath.Dir(dir)
				shown = filepath.ToSlash(dir)
			}
		}
		absolute, err := filepath.Abs(dir)
		if err != nil {
			return nil, err
		}
		if shown = strings.TrimRight(shown, "/"); shown == "" {
			shown = "/"
		}
		root := skills.Root{Dir: absolute, Tier: skills.TierUser, Origin: shown}
		if config.IsArchive(absolute) {
			root.FS = source.NewZip(absolute)
			root.Name = strings.TrimSuffix(filepath.Base(absolute), filepath.Ext(absolute))
		}
		roots = append(roots, root)
	}
	return roots, nil
}

// candidates returns the skills of a scan, those that could not be loaded, and the places that it
// could not look into.
func (o *validateOptions) candidates(snapshot *skills.Snapshot, shown string) []candidate {
	root := &snapshot.Roots[0]
	at := func(dir string) string {
		switch {
		case dir == "" || dir == ".":
			return shown
		case shown == ".":
			return dir
		}
		return report.JoinPath(shown, dir)
	}
	var found []candidate
	broken := map[string]*skills.Skill{}
	for _, sk := range slices.Concat(snapshot.Skills, snapshot.Shadowed, snapshot.Withheld) {
		c := candidate{shown: at(sk.Dir), file: sk.File, skill: sk, diagnostics: sk.Diagnostics}
		found = append(found, c)
	}
	for _, sk := range snapshot.Broken() {
		broken[report.JoinPath(sk.Path, sk.File)] = sk
	}
	places := []skills.Code{
		skills.CodeUnreadableDir, skills.CodeScanLimit, skills.CodeMaxDepth, skills.CodeInvalidPath,
	}
	for _, d := range snapshot.Diagnostics {
		dir, file := path.Split(d.Path)
		c := candidate{shown: at(strings.TrimSuffix(dir, "/")), file: file, skill: broken[d.Path]}
		switch {
		case d.Severity == skills.Error && (file == "SKILL.md" || file == "skill.md"):
			if c.skill != nil {
				c.shown = at(c.skill.Dir)
			}
			d.Path = file
			c.diagnostics = []skills.Diagnostic{d}
			found = append(found, c)
		case slices.Contains(places, d.Code) && isLink(root, d.Path):
			// A link that leads nowhere is not a fault of a skill.
			o.note(at(d.Path), d)
		case slices.Contains(places, d.Code):
			c = candidate{shown: at(d.Path), place: true}
			d.Path = ""
			c.diagnostics = []skills.Diagnostic{d}
			found = append(found, c)
		case d.Code == skills.CodeUnreadableRoot && d.Severity == skills.Error:
			d.Path = ""
			found = append(found, candidate{shown: shown, place: true, diagnostics: []skills.Diagnostic{d}})
		case d.Code == skills.CodeUnreadableRoot:
			o.note(d.Path, d)
		case d.Code == skills.CodeOutsideRoot:
			o.note(at(d.Path), d)
		}
	}
	return found
}

// isLink reports whether a path below a root is a symbolic link.
func isLink(root *skills.Root, name string) bool {
	if root.FS != nil {
		return false
	}
	info, err := os.Lstat(filepath.Join(root.Dir, filepath.FromSlash(name)))
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

// note prints what was not read and is not a fault of a skill: links that lead nowhere, or out.
func (o *validateOptions) note(place string, d skills.Diagnostic) {
	fmt.Fprintf(o.app.err, "note: %s\n", report.ProblemLine(place, string(d.Code), d.Detail, d.Code.Fix()))
}

// check returns the verdict on a candidate.
func (c *candidate) check(ctx context.Context, lenient bool) verdict {
	v := verdict{Dir: c.shown, File: c.file, place: c.place, Errors: []report.Problem{}}
	if c.place || lenient && c.file != "" {
		v.Errors = lenientProblems(c.diagnostics, c.file)
		if c.place && !lenient {
			// A place that could not be read may have skills that are not valid.
			for i := range v.Errors {
				v.Errors[i].Severity = ""
			}
		}
		fault := func(p report.Problem) bool { return p.Severity != skills.Warning.String() }
		v.Valid = !slices.ContainsFunc(v.Errors, fault)
		return v
	}
	v.Errors = append(v.Errors, report.StrictProblems(c.violations(ctx))...)
	v.Valid = len(v.Errors) == 0
	return v
}

// violations applies the strict rules.
func (c *candidate) violations(ctx context.Context) []frontmatter.Violation {
	switch {
	case c.skill != nil:
		return c.skill.Violations(ctx)
	case c.dir != "":
		return skills.ValidateDir(ctx, c.dir)
	case c.file == "":
		return frontmatter.MissingFile()
	}
	d := c.diagnostics[0]
	message := fmt.Sprintf("%s cannot be read: %s", c.file, d.Detail)
	return []frontmatter.Violation{{Rule: "V3", Message: message, Fix: d.Code.Fix()}}
}

// lenientProblems returns the warnings and errors of loading a skill as problems.
func lenientProblems(diagnostics []skills.Diagnostic, file string) []report.Problem {
	problems := []report.Problem{}
	for _, d := range diagnostics {
		if d.Severity == skills.Info {
			continue
		}
		p := report.Problem{
			Rule:     string(d.Code),
			Severity: d.Severity.String(),
			Line:     d.Line,
			Message:  d.Detail,
			Fix:      d.Code.Fix(),
		}
		if d.Path != file {
			p.File = d.Path
		}
		problems = append(problems, p)
	}
	return problems
}
