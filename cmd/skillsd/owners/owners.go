// Package owners finds the users who can change a server's skills or programs: users besides its own and root
// with write access to the files of a skills root, or to a program.
//
// It checks owners and modes, with the members in this machine's group file. It does not know access control
// lists or groups of a directory service; a group in no list is assumed to have other members.
package owners

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills"
)

// Lookup finds the users with write access to files. It is not safe for concurrent use.
type Lookup struct {
	groupFile, passwdFile string
	groups                map[uint32]string // names, by number; "" for one without other members
}

// New returns a Lookup with the users and groups of this machine.
func New() *Lookup { return &Lookup{groupFile: "/etc/group", passwdFile: "/etc/passwd"} }

// Hint returns the advice for a root that others can change.
func Hint(root *skills.Root) string {
	return "let only those write there whom you trust with it (chmod -R go-w, chown -R), or serve it as " +
		skills.LeastTrusted().String() + "=" + root.Dir
}

// Path returns the users besides this one and root who can change the target of an absolute path, or replace
// it.
//
// Errors: system errors.
func (l *Lookup) Path(path string) (who []string, err error) {
	who, _, err = l.of(path)
	return who, err
}

// Root describes the users besides this one and root who can change a root with these skills among others,
// each with a location where they can; "" without such users. For each skill it checks the directory and the
// SKILL.md; with whole, everything in the directory.
func (l *Lookup) Root(root *skills.Root, all []*skills.Skill, whole bool) string {
	names, closed, err := l.of(root.Dir)
	if err != nil || closed {
		return "" // the scan reports the error
	}
	locations, more := map[string]string{}, map[string]int{}
	add := func(names []string, location string) {
		for _, name := range names {
			if _, known := locations[name]; known {
				more[name]++
			} else {
				locations[name] = location
			}
		}
	}
	add(names, "the directory itself, or its path")
	seen := map[string]bool{".": true}
	look := func(name string) {
		if seen[name] {
			return
		}
		seen[name] = true
		at := filepath.Join(root.Dir, filepath.FromSlash(name))
		info, err := os.Lstat(at)
		// The owner of a link can replace it, also in a sticky directory; its target is checked too.
		if err == nil && info.Mode().Type() == fs.ModeSymlink {
			add(l.at(info, true), name)
			info, err = os.Stat(at)
		}
		if err == nil {
			add(l.at(info, true), name)
		}
	}
	for _, sk := range all {
		if root.FS != nil || sk.Root.Dir != root.Dir {
			continue
		}
		// A user who can write to a directory above a skill can put another skill in its place.
		for dir := sk.Dir; !seen[dir]; dir = path.Dir(dir) {
			look(dir)
		}
		look(path.Join(sk.Dir, sk.File))
		if whole {
			_ = fs.WalkDir(os.DirFS(root.Dir), sk.Dir, func(name string, _ fs.DirEntry, err error) error {
				look(name)
				return err
			})
		}
	}
	var texts []string
	for name, location := range locations {
		text := fmt.Sprintf("%s (%s)", name, location)
		if n := more[name]; n > 0 {
			text = fmt.Sprintf("%s (%s, and %d more)", name, location, n)
		}
		texts = append(texts, text)
	}
	slices.Sort(texts)
	return strings.Join(texts, ", ")
}
