// Package authoring does what authors need for their skills: it checks them by the rules of the Agent Skills
// reference validator, or by what a server would load of them, and writes them so that others can install
// them, as an archive, as the files of a web site, as a plugin, or into a registry. A skill that cannot be
// installed is not published.
package authoring

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

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/frontmatter"
	"github.com/skillsd/skillsd/skills/install"
)

// Verdict is the result for one skill, as printed by validate --json, or for a directory that may contain
// skills.
type Verdict struct {
	Dir    string           `json:"dir"`            // as given by the user
	File   string           `json:"file,omitempty"` // SKILL.md or skill.md; empty without one
	Valid  bool             `json:"valid"`          // set by Check, as Errors is
	Errors []report.Problem `json:"errors"`

	skill       *skills.Skill // nil for a directory, and for an unread file
	at          string        // path of something that is not a skill; empty in an archive
	diagnostics []skills.Diagnostic
	isDir       bool // not a skill: the diagnostics are the verdict
}

// IsSkill reports whether the verdict is about a skill, and not about a directory that could not be read.
func (v *Verdict) IsSkill() bool { return !v.isDir }

// Search finds the skills to check.
type Search struct {
	Process *config.Process
	Roots   *config.RootOptions
	Notef   func(format string, args ...any) // writes a note about what is no fault of a skill
}

// Find returns what to check, by path and not yet checked: the skills that a scan of the given directories
// finds, or those that would be served if none is given.
//
// Errors: *exit.Error for directories that do not fit the options; errors of the scan.
func (s *Search) Find(ctx context.Context, given []string) ([]Verdict, error) {
	roots, err := s.roots(given)
	if err != nil {
		return nil, err
	}
	options := s.Roots.ScanOptions()
	// Limits that no collection reaches, but that stop a loop.
	const depth, dirs = 256, 5_000_000
	options.MaxDepth = cmp.Or(options.MaxDepth, depth)
	options.MaxDirs, options.MaxFiles = cmp.Or(options.MaxDirs, dirs), cmp.Or(options.MaxFiles, dirs)
	var found []Verdict
	for _, root := range roots {
		shown := root.Origin
		root.Origin, root.Prefix = "", ""
		if root.FS == nil && !config.IsDir(root.Dir) {
			found = append(found, Verdict{Dir: shown, at: root.Dir})
			continue
		}
		if len(given) == 0 {
			// Directories on the command line are checked by their bytes: an author has just changed them.
			options.Cache = s.Roots.Cache(s.Process, []skills.Root{root})
		}
		snapshot, err := config.Scan(ctx, s.Process, []skills.Root{root}, options)
		if err != nil {
			return nil, err
		}
		below := s.candidates(snapshot, shown)
		if len(below) == 0 && len(given) > 0 {
			below = []Verdict{{Dir: shown}}
			if root.FS == nil {
				below[0].at = root.Dir
			}
		}
		found = append(found, below...)
	}
	slices.SortStableFunc(found, func(a, b Verdict) int { return strings.Compare(a.Dir, b.Dir) })
	same := func(a, b Verdict) bool { return a.Dir == b.Dir && !a.isDir && !b.isDir }
	// A directory may be given twice, or be below another one.
	return slices.CompactFunc(found, same), nil
}

// roots returns the roots to check, with the user's spelling as their origin.
func (s *Search) roots(dirs []string) ([]skills.Root, error) {
	if len(dirs) == 0 {
		roots, err := s.Roots.Resolve(s.Process)
		if err == nil && len(roots) == 0 {
			err = s.Roots.NoRoots(s.Process)
		}
		for i := range roots {
			roots[i].Origin = roots[i].Dir
		}
		return roots, err
	}
	if s.Process.Cfg.OriginOf("skills-root").Kind == config.FromFlag {
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
		root, err := given.Given(s.Process)
		if err != nil {
			return nil, err
		}
		root[0].Origin = cmp.Or(strings.TrimRight(filepath.ToSlash(dir), "/"), "/")
		roots = append(roots, root...)
	}
	return roots, nil
}

// candidates returns the skills of a scan of one root, those that could not be loaded, and the directories
// that it could not read. shown is the root in the user's spelling.
func (s *Search) candidates(snapshot *skills.Snapshot, shown string) []Verdict {
	at := scanned{root: &snapshot.Roots[0], shown: shown, broken: map[string]*skills.Skill{}}
	for _, sk := range snapshot.Broken() {
		at.broken[report.JoinPath(sk.Path, sk.File)] = sk
	}
	var found []Verdict
	for _, sk := range slices.Concat(snapshot.Skills, snapshot.Shadowed, snapshot.Withheld) {
		found = append(found, Verdict{Dir: at.place(sk.Dir), File: sk.File, skill: sk,
			diagnostics: sk.Diagnostics})
	}
	for _, d := range snapshot.Diagnostics {
		v, isNote, location := at.judge(&d)
		if isNote {
			s.Notef("note: %s", report.ProblemLine(location, string(d.Code), d.Detail, d.Fix()))
		}
		if v != nil {
			d.Path = v.File
			v.diagnostics = []skills.Diagnostic{d}
			found = append(found, *v)
		}
	}
	return found
}

// scanned is a root that was scanned.
type scanned struct {
	root   *skills.Root
	shown  string                   // the root in the user's spelling
	broken map[string]*skills.Skill // those that were not loaded, by the path of their files
}

// place returns a directory below the root in the user's spelling.
func (s *scanned) place(dir string) string {
	switch {
	case dir == "" || dir == ".":
		return s.shown
	case s.shown == ".":
		return dir
	}
	return report.JoinPath(s.shown, dir)
}

// isLink reports whether a name below the root is a link on disk.
func (s *scanned) isLink(name string) bool {
	if s.root.FS != nil {
		return false
	}
	info, err := os.Lstat(filepath.Join(s.root.Dir, filepath.FromSlash(name)))
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

// judge returns the verdict that a diagnostic of the scan stands for, or nil. A diagnostic that is no fault
// of a skill is a note about a location.
func (s *scanned) judge(d *skills.Diagnostic) (v *Verdict, isNote bool, location string) {
	_, file := path.Split(d.Path)
	isUnread := slices.Contains([]skills.Code{
		skills.CodeUnreadableDir, skills.CodeScanLimit, skills.CodeMaxDepth, skills.CodeInvalidPath,
	}, d.Code)
	switch {
	case d.Severity == skills.Error && strings.EqualFold(file, "SKILL.md"):
		return s.notLoaded(d), false, ""
	case d.Code == skills.CodeUnreadableRoot && d.Severity == skills.Error:
		return &Verdict{Dir: s.shown, isDir: true}, false, ""
	case d.Code == skills.CodeUnreadableRoot:
		return nil, true, d.Path
	case d.Code == skills.CodeOutsideRoot || isUnread && s.isLink(d.Path):
		// A broken link, or one that leads out, is not a fault of a skill.
		return nil, true, s.place(d.Path)
	case isUnread:
		return &Verdict{Dir: s.place(d.Path), isDir: true}, false, ""
	}
	return nil, false, ""
}

// notLoaded returns the verdict on a skill file that could not be loaded.
func (s *scanned) notLoaded(d *skills.Diagnostic) *Verdict {
	dir, file := path.Split(d.Path)
	sk := s.broken[d.Path]
	if sk != nil {
		dir = sk.Dir
	}
	v := &Verdict{Dir: s.place(strings.TrimSuffix(dir, "/")), File: file, skill: sk}
	// A skill that the user named directly may be a link to a sibling.
	if d.Code == skills.CodeOutsideRoot && (dir == "" || dir == ".") && s.root.FS == nil {
		v.skill, v.at = nil, s.root.Dir
	}
	return v
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

// Check completes the verdict, with signals if they are wanted: what makes an installation wait for a review.
// A verdict may be checked while others are.
func (v *Verdict) Check(ctx context.Context, lenient, signals bool) {
	if v.isDir || lenient && v.File != "" {
		v.Errors = v.diagnosed(lenient)
	} else {
		v.Errors = v.violations(ctx)
	}
	v.Errors = append(v.Errors, inFiles(ctx, v.skill, signals)...)
	isFault := func(p report.Problem) bool { return p.Severity != skills.Warning.String() }
	v.Valid = !slices.ContainsFunc(v.Errors, isFault)
}

// diagnosed returns what the scan reported. It is never nil.
func (v *Verdict) diagnosed(lenient bool) []report.Problem {
	problems := []report.Problem{}
	for _, d := range v.diagnostics {
		if d.Severity == skills.Info {
			continue
		}
		p := report.Problem{Rule: string(d.Code), Line: d.Line, Message: d.Detail, Fix: d.Fix()}
		if lenient {
			p.Severity = d.Severity.String() // else a fault: it may hide invalid skills
		}
		if d.Path != v.File {
			p.File = d.Path
		}
		problems = append(problems, p)
	}
	return problems
}

// violations returns what breaks the strict rules.
func (v *Verdict) violations(ctx context.Context) []report.Problem {
	switch {
	case v.skill != nil:
		return report.StrictProblems(v.skill.Violations(ctx))
	case v.at != "":
		return report.StrictProblems(skills.ValidateDir(ctx, v.at))
	case v.File == "":
		return report.StrictProblems(frontmatter.MissingFile())
	}
	d := v.diagnostics[0]
	return []report.Problem{{Rule: "V3", Fix: d.Fix(),
		Message: fmt.Sprintf("%s cannot be read: %s", v.File, d.Detail)}}
}
