package detect

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// errWritten is the error for a program that a script may have written, or whose path a script may have
// redirected.
var errWritten = errors.New("has a path through the workspace, where scripts may write")

// Writable is a directory in which scripts may write, except in its ReadOnly directories. All paths are
// absolute, and the paths in ReadOnly contain no links.
type Writable struct {
	Dir      string
	ReadOnly []string
}

// holds reports whether a script may write below a path without links, or redirect that path.
func (w *Writable) holds(path string) bool {
	return below(path, w.Dir) && !slices.ContainsFunc(w.ReadOnly,
		func(dir string) bool { return below(path, dir) })
}

// LeadsThrough reports whether scripts may write at an absolute path, or redirect it. It follows links.
func (w *Writable) LeadsThrough(path string) bool {
	if w.Dir == "" || !strings.HasPrefix(path, "/") {
		return false
	}
	if real, err := filepath.EvalSymlinks(w.Dir); err == nil && real != w.Dir {
		w = &Writable{real, w.ReadOnly}
	}
	at, rest := "/", strings.Split(path, "/")
	for steps := 0; len(rest) > 0; steps++ {
		if steps > maxSteps {
			// There are too many links to be resolved.
			return true
		}
		name := rest[0]
		rest = rest[1:]
		if name == "" || name == "." {
			continue
		}
		next := filepath.Join(at, name)
		target, err := os.Readlink(next)
		if err != nil {
			// A parent of a read-only directory cannot be renamed.
			onTheWay := slices.ContainsFunc(w.ReadOnly, func(dir string) bool { return below(dir, next) })
			at = next
			if !onTheWay && w.holds(at) {
				return true
			}
			continue
		}
		if w.holds(next) {
			return true
		}
		at, rest = followed(next, target, rest)
	}
	return w.holds(at)
}

// followed returns the directory from which the target of a link is resolved, and the elements of the path
// from there: those of the target, whose directories are then examined too, and the ones after the link.
func followed(link, target string, after []string) (dir string, rest []string) {
	dir = filepath.Dir(link)
	if filepath.IsAbs(target) {
		dir = "/"
	}
	return dir, append(strings.Split(target, "/"), after...)
}

// Writable excludes programs that a script could have written: f does not search directories with paths
// through one of dirs, and refuses an interpreter that is in one or has modules in one. Writable must be
// called before the first Find.
func (f *Finder) Writable(dirs ...Writable) {
	f.writable = append(f.writable, dirs...)
	f.dirs = outside(f.dirs, f.writable)
}

// outside returns the directories with paths that do not lead through a writable directory.
func outside(dirs []string, writable []Writable) []string {
	return slices.DeleteFunc(slices.Clone(dirs), func(dir string) bool { return leadsThrough(dir, writable) })
}

func leadsThrough(path string, writable []Writable) bool {
	return slices.ContainsFunc(writable, func(w Writable) bool { return w.LeadsThrough(path) })
}

// unwritten returns an error for a path that leads through a directory in which scripts may write.
func (f *Finder) unwritten(path string) error {
	if leadsThrough(path, f.writable) {
		return errWritten
	}
	return nil
}

// ProgramDirs returns the directories of a workspace that scripts must not write because the server searches
// them for programs, with their links resolved. They are the directories in path, a list as in PATH, and the
// whole installations of the programs in named.
func ProgramDirs(workspace, path string, named []string) (dirs []string) {
	workspace, err := filepath.EvalSymlinks(workspace)
	// There is no workspace.
	if err != nil || !filepath.IsAbs(workspace) {
		return nil
	}
	searched := filepath.SplitList(path)
	for _, program := range named {
		searched = append(searched, filepath.Dir(program))
	}
	for _, dir := range searched {
		dir, err := filepath.EvalSymlinks(dir)
		if err != nil || !filepath.IsAbs(dir) || !below(dir, workspace) || dir == workspace {
			continue
		}
		if top := filepath.Dir(dir); filepath.Base(dir) == "bin" && top != workspace {
			dir = top
		}
		if !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}
