package skills

import (
	"path"
	"slices"
	"strings"
)

// Ignored reports whether indexes skip files and directories with this name, and scans too, except for
// [Skips]: version control, caches, backup files of editors, and what macOS and Windows add to directories
// and archives.
func Ignored(name string) bool {
	switch name {
	case ".git", HostingDir, ".hub", ".archive", "node_modules", "__pycache__", ".DS_Store", "__MACOSX":
		return true
	}
	return strings.HasSuffix(name, "~") || strings.HasPrefix(name, "._") ||
		strings.EqualFold(name, "Thumbs.db") || strings.EqualFold(name, "desktop.ini") ||
		strings.HasPrefix(name, ".") && strings.HasSuffix(name, ".swp") ||
		len(name) > 1 && name[0] == '#' && strings.HasSuffix(name, "#")
}

// IsMaterial reports whether a directory with this name, at any depth below a skill, holds files of that
// skill and no skills of its own: packages and environments that were installed there, build outputs,
// material that the author works with, such as templates and fixtures; or files of its plugin. A SKILL.md
// there was written for another purpose than to be loaded: to be copied and filled in, to be tested against,
// or for the users of a package. A user gets such a skill by naming its directory, as a root or with
// --subdir.
func IsMaterial(name string) bool { return isInstalled(name) || slices.Contains(material, name) }

var material = []string{PluginDir, "vendor", "dist", "build", "target", "templates", "template",
	"assets", "examples", "example", "references", "tests", "test", "fixtures"}

// isInstalled reports whether a directory with this name contains installed Python packages. Scans search
// none, inside of skills or outside.
func isInstalled(name string) bool {
	return name == ".venv" || name == "venv" || name == "site-packages"
}

// IsSample reports whether a file of a skill is in a directory with data that the skill is tested with, shows
// or copies. A model does not read such a file as an instruction unless SKILL.md sends it there. A file of
// its plugin is there because the skill names it, so it is not a sample.
func IsSample(file string) bool {
	if strings.HasPrefix(file, PluginDir+"/") {
		return false
	}
	dirs := strings.Split(path.Dir(file), "/")
	return slices.ContainsFunc(dirs, func(name string) bool { return slices.Contains(samples, name) })
}

var samples = []string{"tests", "test", "fixtures", "templates", "template", "examples", "example", "assets",
	"evals"}

// HostingDir is the directory with the workflows of a code host. Indexes ignore it, and scans search only
// hostedDirs of it.
const HostingDir = ".github"

var hostedDirs = []string{"skills", "plugins", "plugin"}

// Skips reports whether scans skip an entry of a directory. parent is the name of the directory, empty for
// the top of what is scanned.
func Skips(parent, name string) bool {
	switch {
	case parent == HostingDir:
		return !slices.Contains(hostedDirs, name)
	case name == HostingDir:
		return false
	}
	return Ignored(name) || isInstalled(name)
}

// skipsPath reports whether scans skip a slash-separated path below the top of what is scanned.
func skipsPath(rel string) bool {
	parent := ""
	for name := range strings.SplitSeq(rel, "/") {
		if Skips(parent, name) {
			return true
		}
		parent = name
	}
	return false
}
