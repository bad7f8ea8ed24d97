package main

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// scriptView is what a script in a sandbox saw of the user's files. It finds the arguments of a run that name
// such files under names that the script does not have for them, and how the script can be shown them.
type scriptView struct {
	dir     string // from which relative arguments are meant, without links
	mounted string // the directory of the workspace, without links; empty if the script had none
	cwd     string // the working directory that the user gave the script, empty for none
	// shows reports whether a directory can be a workspace.
	shows func(dir string) bool
}

// tempDir is the directory for temporary files; a sandbox has its own.
const tempDir = "/tmp"

// hints returns a line for each argument that names a file which the script did not see under that name: the
// first ones with files below the directory, and one with a file elsewhere.
func (v *scriptView) hints(args []string) (hints []string) {
	for _, file := range mcpserver.Unseen(args, v.cwd, v.dir, v.mounted) {
		switch {
		case file.Inside != "":
			hints = append(hints, file.Arg+" is "+file.Inside+" for the script")
		case !leadsOut(v.dir, file.Arg): // else elsewhere has it
			hints = append(hints, file.Arg+" does not exist for the script, which sees no files of yours: "+
				v.wayBelow(file.Arg))
		}
	}
	if hint := v.elsewhere(args); hint != "" {
		hints = append(hints, hint)
	}
	return hints
}

// wayBelow returns how the script can be shown a file below the directory.
func (v *scriptView) wayBelow(arg string) string {
	if !v.shows(v.dir) {
		return v.wayTo(arg)
	}
	const way = "add --workspace . to show it this directory"
	inside, isBelow := fsys.Below(v.dir, wholeArg(v.dir, arg))
	if isBelow && !filepath.IsLocal(arg) {
		return way + ", and name the file " + filepath.ToSlash(inside)
	}
	return way
}

// leadsOut reports whether an argument is a link, or below one, that leads out of a directory.
func leadsOut(dir, arg string) bool {
	_, isBelow := fsys.Below(dir, config.Resolved(wholeArg(dir, arg)))
	return !isBelow
}

// wholeArg returns the absolute path of an argument that names a file from dir.
func wholeArg(dir, arg string) string {
	if filepath.IsAbs(arg) {
		return filepath.Clean(arg)
	}
	return filepath.Join(dir, arg)
}

// wayTo returns how the script can be shown the file of an argument, which is outside of what it can be shown
// with the directory.
func (v *scriptView) wayTo(arg string) string {
	whole := wholeArg(v.dir, arg)
	home, _ := os.UserHomeDir()
	parent, name, mode := filepath.Dir(arg), filepath.Base(arg), ""
	if real := config.Resolved(whole); fsys.Exists(whole) && leadsOut(filepath.Dir(whole), whole) {
		whole, parent, name = real, filepath.Dir(real), filepath.Base(real) // of the link
	}
	if !fsys.Exists(whole) {
		mode = ":staged" // the script makes it
	}
	at := filepath.Dir(whole)
	if config.IsDir(whole) {
		at, parent, name = whole, filepath.Join(parent, name), "."
	}
	if slices.Contains([]string{filepath.Clean(home), os.TempDir(), tempDir}, at) || !v.shows(at) {
		// The other files there are not for the script.
		return "move it to a directory that the script may see, and give that with --workspace"
	}
	return "to show it, --workspace " + report.ShellLine(parent+mode) + " -- " + report.ShellLine(name)
}

// elsewhere returns a hint about the first argument that names a file of the user outside of the directory
// and of the workspace, or "": a run has one workspace, so that the others are left out.
func (v *scriptView) elsewhere(args []string) string {
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	for _, written := range args {
		arg := mcpserver.FileArg(written)
		if arg == "" {
			continue
		}
		file := v.lookAt(arg)
		if !file.isOwn(home) || v.sees(file) || file.leadsUp && v.cwd != "" {
			continue
		}
		way := v.wayTo(arg)
		switch {
		case file.leadsUp:
			return arg + " leads elsewhere for the script: " + way
		case file.exists && isIn(file.whole, v.dir, v.mounted):
			return arg + " leads to " + file.real + ", which the script does not see: " + way
		}
		return arg + " does not exist for the script: " + way
	}
	return ""
}

// named is a file that an argument names.
type named struct {
	whole   string // absolute path
	real    string // with links resolved
	exists  bool
	leadsUp bool // the argument leads up from the directory
}

func (v *scriptView) lookAt(arg string) *named {
	whole := wholeArg(v.dir, arg)
	return &named{whole: whole, real: config.Resolved(whole), exists: fsys.Exists(whole),
		leadsUp: !filepath.IsAbs(arg) && !filepath.IsLocal(arg)}
}

// isOwn reports whether a file is the user's. System files have the same names in the sandbox, so that only
// names that lead up from the directory, the home directory and the directory for temporary files are of
// interest.
func (f *named) isOwn(home string) bool {
	return f.leadsUp && config.IsDir(filepath.Dir(f.whole)) ||
		f.exists && isIn(f.real, config.Resolved(home), home, os.TempDir(), tempDir)
}

// sees reports whether the script has a file in its workspace, where a name in the directory is one, too.
func (v *scriptView) sees(f *named) bool {
	return isIn(f.whole, v.dir) && isIn(f.real, v.dir) ||
		isIn(f.whole, v.mounted) && isIn(f.real, v.mounted)
}

// isIn reports whether a file is below one of places; some may be "".
func isIn(file string, places ...string) bool {
	return slices.ContainsFunc(places, func(place string) bool {
		rel, isBelow := fsys.Below(place, file)
		return place != "" && isBelow && rel != "."
	})
}
