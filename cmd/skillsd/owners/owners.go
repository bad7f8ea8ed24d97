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
	w := &writers{lookup: l, dir: root.Dir, seen: map[string]bool{".": true},
		locations: map[string]string{}, more: map[string]int{}}
	w.add(names, "the directory itself, or its path")
	for _, sk := range all {
		if root.FS != nil || sk.Root.Dir != root.Dir {
			continue
		}
		// A user who can write to a directory above a skill can put another skill in its place.
		for dir := sk.Dir; !w.seen[dir]; dir = path.Dir(dir) {
			w.look(dir)
		}
		w.look(path.Join(sk.Dir, sk.File))
		if whole {
			_ = fs.WalkDir(os.DirFS(root.Dir), sk.Dir, func(name string, _ fs.DirEntry, err error) error {
				w.look(name)
				return err
			})
		}
	}
	return w.String()
}

// writers are the users who can change files of a root.
type writers struct {
	lookup *Lookup
	dir    string
	seen   map[string]bool // names below dir that were looked at

	locations map[string]string // where a user can change something first
	more      map[string]int    // number of a user's other locations
}

// add adds a location for each user.
func (w *writers) add(names []string, location string) {
	for _, name := range names {
		if _, known := w.locations[name]; known {
			w.more[name]++
		} else {
			w.locations[name] = location
		}
	}
}

// look adds the users who can change a file or directory below the root, once for each name.
func (w *writers) look(name string) {
	if w.seen[name] {
		return
	}
	w.seen[name] = true
	at := filepath.Join(w.dir, filepath.FromSlash(name))
	info, err := os.Lstat(at)
	// The owner of a link can replace it, also in a sticky directory; its target is checked too.
	if err == nil && info.Mode().Type() == fs.ModeSymlink {
		w.add(w.lookup.at(info, true), name)
		info, err = os.Stat(at)
	}
	if err == nil {
		w.add(w.lookup.at(info, true), name)
	}
}

// String returns the users by name, each with a location.
func (w *writers) String() string {
	var texts []string
	for name, location := range w.locations {
		text := fmt.Sprintf("%s (%s)", name, location)
		if n := w.more[name]; n > 0 {
			text = fmt.Sprintf("%s (%s, and %d more)", name, location, n)
		}
		texts = append(texts, text)
	}
	slices.Sort(texts)
	return strings.Join(texts, ", ")
}
