package detect

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// errWritten is the error of a program that a script may have written, or of a path that it may have led
// elsewhere.
var errWritten = errors.New("is reached by way of the workspace, where scripts may write")

// Writable is a directory that scripts may write, but for directories in it that they may only read. The
// paths are absolute, and ReadOnly has no links in them.
type Writable struct {
	Dir      string
	ReadOnly []string
}

// holds reports whether a script may write below a path that has no links, or decide where it leads.
func (w *Writable) holds(path string) bool {
	return below(path, w.Dir) && !slices.ContainsFunc(w.ReadOnly,
		func(dir string) bool { return below(path, dir) })
}

// LeadsThrough reports whether scripts may decide where an absolute path leads, links followed, or write
// there.
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
			return true // nobody can say where it leads
		}
		name := rest[0]
		rest = rest[1:]
		if name == "" || name == "." {
			continue
		}
		next := filepath.Join(at, name)
		target, err := os.Readlink(next)
		if err != nil {
			// Nobody can rename what a directory that is only read lies in.
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
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return w.holds(at)
}

// Writable keeps f from programs that a script could have written: directories that lead through one of
// dirs are not searched, and an interpreter that lies there or has modules there is refused. Writable must
// be called before the first Find.
func (f *Finder) Writable(dirs ...Writable) {
	f.writable = append(f.writable, dirs...)
	f.dirs = outside(f.dirs, f.writable)
}

// outside returns the directories that do not lead through those that are writable.
func outside(dirs []string, writable []Writable) []string {
	return slices.DeleteFunc(slices.Clone(dirs), func(dir string) bool { return leadsThrough(dir, writable) })
}

func leadsThrough(path string, writable []Writable) bool {
	return slices.ContainsFunc(writable, func(w Writable) bool { return w.LeadsThrough(path) })
}

// unwritten refuses a path that leads through a directory that scripts may write.
func (f *Finder) unwritten(path string) error {
	if leadsThrough(path, f.writable) {
		return errWritten
	}
	return nil
}

// ProgramDirs returns, without links, the directories of a workspace that scripts must not write because the
// server looks there for programs: the directories of path, a list as in PATH, and the directories of the
// programs named, with the whole installation that they belong to.
func ProgramDirs(workspace, path string, named []string) (dirs []string) {
	workspace, err := filepath.EvalSymlinks(workspace)
	if err != nil || !filepath.IsAbs(workspace) { // there is none
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
