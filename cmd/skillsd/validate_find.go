package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/config"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/frontmatter"
	"github.com/skillsd/skillsd/skills/source"
)

// candidate is something validate gives a verdict on: a skill, or a place that hides some.
type candidate struct {
	shown       string              // its directory as the user named it
	dir         string              // on this machine, or in fsys
	fsys        fs.FS               // of a root that is no directory
	name        string              // of the directory, with fsys
	file        string              // SKILL.md, skill.md, or empty when it is not known
	diagnostics []skills.Diagnostic // of loading it; paths relative to the directory
	place       bool                // no skill: the diagnostics are the verdict
}

// boundless are limits on a scan that no collection reaches, and no loop passes.
const (
	boundlessDepth = 256
	boundlessDirs  = 5_000_000
)

// find lists what is to be checked, by path. Skills are those a scan of the directories finds.
func (o *validateOptions) find(ctx context.Context, dirs []string) ([]candidate, error) {
	roots, err := o.validateRoots(dirs)
	if err != nil {
		return nil, err
	}
	options := o.Roots.ScanOptions()
	options.MaxDepth = cmp.Or(options.MaxDepth, boundlessDepth)
	options.MaxDirs, options.MaxFiles = cmp.Or(options.MaxDirs, boundlessDirs), cmp.Or(options.MaxFiles, boundlessDirs)
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
			below = []candidate{{shown: shown, dir: root.Dir, fsys: root.FS, name: root.Name}}
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
		return nil, usageError("give one or the other", "--skills-root does not go with directories to check")
	}
	var roots []skills.Root
	for _, dir := range dirs {
		if dir == "" {
			return nil, usageError("give a directory", "the name of a directory is empty")
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
			root.FS, root.Name = source.NewZip(absolute), strings.TrimSuffix(filepath.Base(absolute), filepath.Ext(absolute))
		}
		roots = append(roots, root)
	}
	return roots, nil
}

// candidates are the skills of a scan, those that could not be loaded and the places it could not
// look into.
func (o *validateOptions) candidates(snapshot *skills.Snapshot, shown string) []candidate {
	root := &snapshot.Roots[0]
	at := func(dir string) candidate { return candidateAt(root, dir, shown) }
	var found []candidate
	label := "" // of a root that is a skill itself, whose path has its name in front
	for _, sk := range slices.Concat(snapshot.Skills, snapshot.Shadowed, snapshot.Withheld) {
		c := candidateOf(sk, shown)
		if sk.Dir == "." {
			label = sk.Path
		}
		found = append(found, c)
	}
	for _, d := range snapshot.Diagnostics {
		dir, file := path.Split(d.Path)
		dir = strings.TrimSuffix(dir, "/")
		switch {
		case d.Severity == skills.Error && (file == "SKILL.md" || file == "skill.md"):
			c := at(o.dirBelow(root, dir, file, label))
			c.file, d.Path = file, file
			c.diagnostics = []skills.Diagnostic{d}
			found = append(found, c)
		case slices.Contains([]skills.Code{skills.CodeUnreadableDir, skills.CodeScanLimit, skills.CodeMaxDepth, skills.CodeInvalidPath}, d.Code):
			c := at(d.Path)
			if info, err := os.Lstat(c.dir); err == nil && root.FS == nil && info.Mode()&fs.ModeSymlink != 0 {
				o.note(c.shown, d)
				continue
			}
			d.Path = ""
			c.place, c.diagnostics = true, []skills.Diagnostic{d}
			found = append(found, c)
		case d.Code == skills.CodeUnreadableRoot && d.Severity == skills.Error:
			d.Path = ""
			found = append(found, candidate{shown: shown, place: true, diagnostics: []skills.Diagnostic{d}})
		case d.Code == skills.CodeUnreadableRoot:
			o.note(d.Path, d)
		case d.Code == skills.CodeOutsideRoot:
			o.note(at(d.Path).shown, d)
		}
	}
	return found
}

// candidateOf is a skill that was loaded.
func candidateOf(sk *skills.Skill, shown string) candidate {
	c := candidateAt(sk.Root, sk.Dir, shown)
	c.file, c.diagnostics = sk.File, sk.Diagnostics
	return c
}

// candidateAt is a directory below a root that is called shown.
func candidateAt(root *skills.Root, dir, shown string) candidate {
	if dir == "." {
		dir = ""
	}
	c := candidate{shown: joinPath(shown, dir), dir: filepath.Join(root.Dir, filepath.FromSlash(dir))}
	if root.FS != nil {
		c.fsys, c.dir, c.name = root.FS, path.Join(".", dir), path.Base(dir)
		if dir == "" {
			c.name = root.Name
		}
	}
	if shown == "." && dir != "" {
		c.shown = dir
	}
	return c
}

// note says what was not looked into and is no fault of a skill: links that lead nowhere, or out.
func (o *validateOptions) note(place string, d skills.Diagnostic) {
	fmt.Fprintf(o.app.err, "note: %s\n", problemLine(place, string(d.Code), d.Detail, d.Code.Fix()))
}

// dirBelow is the directory below a root of a skill that could not be loaded. A root that is a skill
// itself gives its paths a name in front that is no directory.
func (o *validateOptions) dirBelow(root *skills.Root, dir, file, label string) string {
	if label == "" {
		if info, err := lstat(root, file); err != nil || info.IsDir() {
			return dir
		}
		label, _, _ = strings.Cut(dir, "/")
	}
	if dir == label {
		return "."
	}
	return strings.TrimPrefix(dir, label+"/")
}

func lstat(root *skills.Root, name string) (fs.FileInfo, error) {
	if root.FS != nil {
		return fs.Stat(root.FS, name)
	}
	return os.Lstat(filepath.Join(root.Dir, name))
}

// check gives the verdict on a candidate.
func (c *candidate) check(ctx context.Context, lenient bool) verdict {
	v := verdict{Dir: c.shown, File: c.file, place: c.place, Errors: []problem{}}
	if c.place || lenient && c.file != "" {
		v.Errors = lenientProblems(c.diagnostics, c.file)
		if c.place && !lenient {
			// What could not be looked into may hold skills that are not valid.
			for i := range v.Errors {
				v.Errors[i].Severity = ""
			}
		}
		v.Valid = !slices.ContainsFunc(v.Errors, func(p problem) bool { return p.Severity != skills.Warning.String() })
		return v
	}
	v.Errors = append(v.Errors, strictProblems(c.violations(ctx))...)
	v.Valid = len(v.Errors) == 0
	return v
}

// violations applies the strict rules.
func (c *candidate) violations(ctx context.Context) []frontmatter.Violation {
	if c.fsys == nil {
		return skills.ValidateDir(ctx, c.dir)
	}
	if c.file == "" {
		return []frontmatter.Violation{{Rule: "V3", Message: "Missing required file: SKILL.md", Fix: "add a file SKILL.md"}}
	}
	data, err := readAll(c.fsys, path.Join(c.dir, c.file))
	if err != nil {
		return []frontmatter.Violation{{Rule: "V3", Message: fmt.Sprintf("%s cannot be read: %v", c.file, err), Fix: skills.CodeUnreadableSkill.Fix()}}
	}
	return frontmatter.Validate(c.name, c.file, data)
}

func readAll(fsys fs.FS, name string) ([]byte, error) {
	info, err := fs.Stat(fsys, name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, skills.ErrNotFile
	}
	file, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(file, skills.MaxSkillFile+1))
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	if len(data) > skills.MaxSkillFile {
		return nil, skills.ErrTooLarge
	}
	return data, nil
}

// lenientProblems are the warnings and errors of loading a skill.
func lenientProblems(diagnostics []skills.Diagnostic, file string) []problem {
	problems := []problem{}
	for _, d := range diagnostics {
		if d.Severity == skills.Info {
			continue
		}
		p := problem{Rule: string(d.Code), Severity: d.Severity.String(), Line: d.Line, Message: d.Detail, Fix: d.Code.Fix()}
		if d.Path != file {
			p.File = d.Path
		}
		problems = append(problems, p)
	}
	return problems
}
