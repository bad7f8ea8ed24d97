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
	"github.com/skillsd/skillsd/skills/install"
)

// validateOptions are the flags of validate.
type validateOptions struct {
	app           *app
	Roots         config.RootOptions
	Lenient, JSON bool
	Format        string
}

func newValidateCmd(a *app) *cobra.Command {
	opts := &validateOptions{app: a}
	cmd := &cobra.Command{
		Use:   "validate [DIR...]",
		Short: "Check skills by the strict rules, with a fix for each problem",
		Long: "Check every skill in the given directories, or all that would be served, by the rules " +
			"of the Agent Skills reference validator. DIR is a skill, its SKILL.md, or a folder with " +
			"skills below.\n\n" +
			"Each problem is one line, DIR/SKILL.md:LINE: RULE: message (fix: ...). --lenient reports " +
			"what would not be served, what is repaired or odd, and what makes an installation wait " +
			"for a review, instead. The exit code is 3 if a skill is invalid, with --lenient if one " +
			"would not load.",
		RunE: runE(opts.run),
	}
	opts.Roots.Register(cmd.Flags())
	opts.Roots.RegisterCache(cmd.Flags())
	cmd.Flags().BoolVar(&opts.Lenient, "lenient", false,
		"report what would not load or is repaired, instead of the strict rules")
	cmd.Flags().BoolVar(&opts.JSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&opts.Format, "format", formatText,
		"print `WORD`: text, or sarif for programs that show problems in the source, with warnings about "+
			"what makes an installation wait for a look")
	cmd.MarkFlagsMutuallyExclusive("json", "format")
	return cmd
}

// The words of --format.
const formatText, formatSARIF = "text", "sarif"

// verdict is the result for one skill, as printed by validate --json, or for a directory that may contain
// skills.
type verdict struct {
	Dir    string           `json:"dir"`            // as given by the user
	File   string           `json:"file,omitempty"` // SKILL.md or skill.md; empty without one
	Valid  bool             `json:"valid"`
	Errors []report.Problem `json:"errors"`

	skill       *skills.Skill // nil for a directory, and for an unread file
	at          string        // path of something that is not a skill; empty in an archive
	diagnostics []skills.Diagnostic
	isDir       bool // not a skill: the diagnostics are the verdict
}

func (o *validateOptions) run(ctx context.Context, dirs []string) error {
	if !slices.Contains([]string{formatText, formatSARIF}, o.Format) {
		return exit.Usagef("give --format text or --format sarif", "--format %s is unknown", o.Format)
	}
	found, err := o.find(ctx, dirs)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		o.app.notef("note: there are no skills")
	}
	line := report.NewStatusLine(o.app.err)
	var checked atomic.Int64
	err = report.Each(ctx, len(found), func(i int) {
		found[i].check(ctx, o.Lenient, o.Lenient || o.Format == formatSARIF)
		line.Count("skills checked", int(checked.Add(1)), len(found))
	})
	line.Clear()
	if err != nil {
		return err
	}
	if o.JSON {
		if err := report.WriteJSON(o.app.out, append([]verdict{}, found...)); err != nil {
			return err
		}
	}
	all, valid, errors, warnings := 0, 0, 0, 0
	var findings []report.Finding
	for _, v := range found {
		if !v.isDir {
			all++
		}
		if !v.isDir && v.Valid {
			valid++
		}
		for _, p := range v.Errors {
			if p.Severity == skills.Warning.String() {
				warnings++
			} else {
				errors++
			}
			path := report.JoinPath(v.Dir, cmp.Or(p.File, v.File))
			findings = append(findings, report.Finding{Path: path, Problem: p})
			if !o.JSON && o.Format == formatText {
				location := report.Location(path, p.Line)
				o.app.printf("%s\n", report.ProblemLine(location, p.Rule, p.Message, p.Fix))
			}
		}
	}
	if o.Format == formatSARIF {
		if err := report.WriteSARIF(o.app.out, readBuild().Version, findings); err != nil {
			return err
		}
	}
	of := fmt.Sprintf("%d of %s", valid, report.Plural(all, "skill"))
	if o.Lenient {
		o.app.notef("%s loadable; %s, %s", of, report.Plural(errors, "error"),
			report.Plural(warnings, "warning"))
	} else {
		o.app.notef("%s strictly valid; %s", of, report.Plural(errors, "problem"))
	}
	if errors > 0 {
		return &exit.Error{Code: exit.Problems}
	}
	return nil
}

// find returns what to check, by path: the skills that a scan of the directories finds.
func (o *validateOptions) find(ctx context.Context, given []string) ([]verdict, error) {
	roots, err := o.validateRoots(given)
	if err != nil {
		return nil, err
	}
	options := o.Roots.ScanOptions()
	// Limits that no collection reaches, but that stop a loop.
	const depth, dirs = 256, 5_000_000
	options.MaxDepth = cmp.Or(options.MaxDepth, depth)
	options.MaxDirs, options.MaxFiles = cmp.Or(options.MaxDirs, dirs), cmp.Or(options.MaxFiles, dirs)
	var found []verdict
	for _, root := range roots {
		shown := root.Origin
		root.Origin, root.Prefix = "", ""
		if root.FS == nil && !config.IsDir(root.Dir) {
			found = append(found, verdict{Dir: shown, at: root.Dir})
			continue
		}
		if len(given) == 0 {
			// Directories on the command line are checked by their bytes: an author has just changed them.
			options.Cache = o.Roots.Cache(&o.app.Process, []skills.Root{root})
		}
		snapshot, err := config.Scan(ctx, &o.app.Process, []skills.Root{root}, options)
		if err != nil {
			return nil, err
		}
		below := o.candidates(snapshot, shown)
		if len(below) == 0 && len(given) > 0 {
			below = []verdict{{Dir: shown}}
			if root.FS == nil {
				below[0].at = root.Dir
			}
		}
		found = append(found, below...)
	}
	slices.SortStableFunc(found, func(a, b verdict) int { return strings.Compare(a.Dir, b.Dir) })
	same := func(a, b verdict) bool { return a.Dir == b.Dir && !a.isDir && !b.isDir }
	// A directory may be given twice, or be below another one.
	return slices.CompactFunc(found, same), nil
}

// validateRoots returns the roots to check, with the user's spelling as their origin.
func (o *validateOptions) validateRoots(dirs []string) ([]skills.Root, error) {
	if len(dirs) == 0 {
		roots, err := o.Roots.Resolve(&o.app.Process)
		if err == nil && len(roots) == 0 {
			err = o.Roots.NoRoots(&o.app.Process)
		}
		for i := range roots {
			roots[i].Origin = roots[i].Dir
		}
		return roots, err
	}
	if o.app.Cfg.OriginOf("skills-root").Kind == config.FromFlag {
		return nil, exit.Usagef("give one or the other",
			"--skills-root does not go with directories to check")
	}
	var roots []skills.Root
	for _, dir := range dirs {
		if dir == "" {
			return nil, exit.Usagef("give a directory", "the name of a directory is empty")
		}
		if strings.EqualFold(filepath.Base(dir), "SKILL.md") {
			if info, err := os.Stat(dir); err == nil && info.Mode().IsRegular() {
				dir = filepath.Dir(dir)
			}
		}
		given := config.RootOptions{Specs: []string{skills.TierUser.String() + "=" + dir}}
		root, err := given.Given(&o.app.Process)
		if err != nil {
			return nil, err
		}
		root[0].Origin = cmp.Or(strings.TrimRight(filepath.ToSlash(dir), "/"), "/")
		roots = append(roots, root...)
	}
	return roots, nil
}

// candidates returns the skills of a scan, those that could not be loaded, and the directories that it could
// not read.
func (o *validateOptions) candidates(snapshot *skills.Snapshot, shown string) []verdict {
	at := func(dir string) string {
		switch {
		case dir == "" || dir == ".":
			return shown
		case shown == ".":
			return dir
		}
		return report.JoinPath(shown, dir)
	}
	var found []verdict
	for _, sk := range slices.Concat(snapshot.Skills, snapshot.Shadowed, snapshot.Withheld) {
		found = append(found, verdict{Dir: at(sk.Dir), File: sk.File, skill: sk, diagnostics: sk.Diagnostics})
	}
	broken := map[string]*skills.Skill{}
	for _, sk := range snapshot.Broken() {
		broken[report.JoinPath(sk.Path, sk.File)] = sk
	}
	root := &snapshot.Roots[0]
	isLink := func(name string) bool {
		info, err := os.Lstat(filepath.Join(root.Dir, filepath.FromSlash(name)))
		return root.FS == nil && err == nil && info.Mode()&fs.ModeSymlink != 0
	}
	unread := []skills.Code{
		skills.CodeUnreadableDir, skills.CodeScanLimit, skills.CodeMaxDepth, skills.CodeInvalidPath,
	}
	for _, d := range snapshot.Diagnostics {
		name := d.Path
		dir, file := path.Split(name)
		add := func(v verdict) {
			d.Path = v.File
			v.diagnostics = []skills.Diagnostic{d}
			found = append(found, v)
		}
		note := func(location string) {
			o.app.notef("note: %s", report.ProblemLine(location, string(d.Code), d.Detail, d.Fix()))
		}
		switch {
		case d.Severity == skills.Error && strings.EqualFold(file, "SKILL.md"):
			if sk := broken[name]; sk != nil {
				dir = sk.Dir
			}
			v := verdict{Dir: at(strings.TrimSuffix(dir, "/")), File: file, skill: broken[name]}
			// A skill that the user named directly may be a link to a sibling.
			if d.Code == skills.CodeOutsideRoot && (dir == "" || dir == ".") && root.FS == nil {
				v.skill, v.at = nil, root.Dir
			}
			add(v)
		case d.Code == skills.CodeUnreadableRoot && d.Severity == skills.Error:
			add(verdict{Dir: shown, isDir: true})
		case d.Code == skills.CodeUnreadableRoot:
			note(name)
		case d.Code == skills.CodeOutsideRoot || slices.Contains(unread, d.Code) && isLink(name):
			// A broken link, or one that leads out, is not a fault of a skill.
			note(at(name))
		case slices.Contains(unread, d.Code):
			add(verdict{Dir: at(name), isDir: true})
		}
	}
	return found
}

// inFiles returns warnings about the files of a skill, which may be nil: scripts that cannot run because of
// their form, files that look secret and, with signals, what makes an installation wait for a look.
func inFiles(ctx context.Context, sk *skills.Skill, signals bool) (problems []report.Problem) {
	if sk == nil {
		return nil
	}
	index, err := sk.Index(ctx)
	if err != nil {
		return nil // the skill file has the verdict
	}
	for i := range index.Resources {
		file := &index.Resources[i]
		if file.Script != nil && file.Script.Fix() != "" {
			problems = append(problems, report.Problem{Rule: "script-misread", File: file.Path,
				Severity: skills.Warning.String(), Message: "it is not run: " + file.Script.Problem,
				Fix: file.Script.Fix()})
		}
	}
	found := index.Diagnostics
	if signals {
		found = install.Weigh(ctx, sk, index, found)
	}
	for _, d := range found {
		if d.Severity == skills.Info || !signals && d.Code != skills.CodeSecretFile {
			continue
		}
		p := report.Problem{Rule: string(d.Code), Severity: d.Severity.String(), Line: d.Line,
			Message: d.Detail, Fix: d.Fix()}
		if d.Path != sk.File {
			p.File = d.Path
		}
		problems = append(problems, p)
	}
	return problems
}

// check completes the verdict, with signals if they are wanted.
func (v *verdict) check(ctx context.Context, lenient, signals bool) {
	v.Errors = []report.Problem{}
	switch {
	case v.isDir || lenient && v.File != "":
		for _, d := range v.diagnostics {
			if d.Severity == skills.Info {
				continue
			}
			p := report.Problem{Rule: string(d.Code), Line: d.Line, Message: d.Detail, Fix: d.Fix()}
			if lenient || !v.isDir {
				p.Severity = d.Severity.String() // else a fault: it may hide invalid skills
			}
			if d.Path != v.File {
				p.File = d.Path
			}
			v.Errors = append(v.Errors, p)
		}
	case v.skill != nil:
		v.Errors = report.StrictProblems(v.skill.Violations(ctx))
	case v.at != "":
		v.Errors = report.StrictProblems(skills.ValidateDir(ctx, v.at))
	case v.File == "":
		v.Errors = report.StrictProblems(frontmatter.MissingFile())
	default:
		d := v.diagnostics[0]
		v.Errors = append(v.Errors, report.Problem{Rule: "V3", Fix: d.Fix(),
			Message: fmt.Sprintf("%s cannot be read: %s", v.File, d.Detail)})
	}
	v.Errors = append(v.Errors, inFiles(ctx, v.skill, signals)...)
	isFault := func(p report.Problem) bool { return p.Severity != skills.Warning.String() }
	v.Valid = !slices.ContainsFunc(v.Errors, isFault)
}
