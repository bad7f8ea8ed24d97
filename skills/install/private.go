package install

import (
	"path"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills"
)

// clientDirs are the hidden directories of clients. Authors publish files in some directories below them, and
// others hold the settings of a user, which may contain secrets.
var clientDirs = []string{".claude", ".agents", ".codex", ".cursor", ".gemini", ".opencode",
	skills.HostingDir}

var publishedDirs = []string{"skills", "plugins", "plugin", "agents", "commands", "rules"}

// private reports whether a file or a directory of the source may hold data that its author never gave away,
// by its path without links: version control, caches, and in a directory of this machine also hidden files
// such as .env, and directories that other users cannot enter. A link or a name in a skill would give them to
// a model.
func (t *taker) private(real string, isDir bool) bool {
	segments := strings.Split(real, "/")
	own := common(segments, t.at)
	requested := 0 // segments that the user named
	if skills.InDir(t.f.origin.Path, real) && t.f.origin.Path != "." {
		requested = strings.Count(t.f.origin.Path, "/") + 1
	}
	for n := requested; n < len(segments); n++ {
		below := ""
		if n+1 < len(segments) {
			below = segments[n+1]
		}
		isHeld := isDir || below != ""                          // the segment is a directory
		isLocal := t.f.origin.Kind == KindDirectory && n >= own // and the skill itself is not in it
		if isKept(segments[n], isLocal) && !(isHeld && isPublished(segments[n], below)) {
			return true
		}
		if isLocal && isHeld && t.isClosed(strings.Join(segments[:n+1], "/")) {
			return true
		}
	}
	return false
}

// isKept reports whether authors keep what has a name to themselves: files of version control and caches, and
// on this machine hidden files too.
func isKept(name string, isLocal bool) bool {
	// File systems may ignore case.
	return skills.Ignored(name) || skills.Ignored(strings.ToLower(name)) ||
		isLocal && (name[0] == '.' || hasShortName(name))
}

// isClosed reports whether other users cannot enter a directory of the source.
func (t *taker) isClosed(dir string) bool {
	info, err := t.f.all.Lstat(dir)
	return err != nil || info.Mode()&0o001 == 0 && !t.into.hides
}

// hidesAll reports whether the user's umask keeps every new file from other users, and the skill was written
// under it. The mode of a file then does not show whether its owner meant to keep it. A stranger who made an
// archive chose the modes in it, but only the user sets the umask.
func (t *taker) hidesAll() bool {
	if umask()&0o005 != 0o005 {
		return false
	}
	// In a tree with files for other users, such as one that was made under another umask, the owner hid each
	// file that is not for them.
	info, err := t.f.all.Lstat(path.Join(t.at, t.into.skill.File))
	return err == nil && info.Mode()&0o004 == 0
}

// isPublished reports whether authors publish the entry with a name in a hidden directory; an empty name
// means the directory, whose entries are judged one by one.
func isPublished(dir, below string) bool {
	if slices.Contains(clientDirs, dir) && (below == "" || slices.Contains(publishedDirs, below)) {
		return true
	}
	return slices.ContainsFunc(skills.PluginManifests, func(file string) bool {
		return path.Dir(file) == dir && dir != "." && (below == "" || path.Base(file) == below)
	})
}

// common returns the number of first segments that a path shares with another.
func common(segments []string, other string) int {
	n := 0
	for name := range strings.SplitSeq(other, "/") {
		if n == len(segments) || segments[n] != name {
			break
		}
		n++
	}
	return n
}

// hasShortName reports whether a name may be the second one that Windows gives to a file: .git is GIT~1.
func hasShortName(name string) bool {
	_, after, ok := strings.Cut(name, "~")
	return ok && after != "" && '0' <= after[0] && after[0] <= '9'
}

// refused notes a file that is left out since it may be private.
func (c *contents) refused(name string) { c.private = append(c.private, name) }
