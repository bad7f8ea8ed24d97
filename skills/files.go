package skills

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"

	"github.com/skillsd/skillsd/skills/store"
)

// maxFileDepth is the maximum depth of directories in a skill.
const maxFileDepth = 32

// candidate is a file in the directory of a skill.
type candidate struct {
	path string
	err  error // why it is left out, or nil
}

// lister walks the directory of a skill. It follows links that stay within it, so a file may be listed under
// several names; a link to a directory on the path of the walk is not followed.
type lister struct {
	tree  tree
	opts  *ScanOptions
	self  string // the skill file, exempt from the limits
	files []candidate
	dirs  int
	open  []string // the directories from the top to the current one
	more  bool     // a limit was exceeded
}

// listFiles returns the files below the directory of a skill, sorted by path: the skill file self and all
// others, including the files of nested skills. more is true if a limit was exceeded.
func listFiles(ctx context.Context, t tree, opts *ScanOptions, self string) (
	files []candidate, more bool, err error) {
	l := &lister{tree: t, opts: opts, self: self, files: []candidate{{path: self}}}
	if err := l.walk(ctx, "."); err != nil {
		return nil, false, err
	}
	slices.SortFunc(l.files, func(a, b candidate) int { return strings.Compare(a.path, b.path) })
	return l.files, l.more, nil
}

func (l *lister) walk(ctx context.Context, dir string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.dirs++
	if l.dirs > l.opts.MaxFiles || len(l.open) > maxFileDepth {
		l.more = true
		return nil
	}
	entries, err := l.tree.list(dir)
	// With some entries, the rest of a partly readable directory is ignored.
	if err != nil && len(entries) == 0 {
		if dir == "." {
			return cause(err)
		}
		if !errors.Is(err, io.EOF) {
			// The directory becomes a file that was left out, so that Verify does not report it as drift.
			l.files = append(l.files, candidate{dir, cause(err)})
		}
		return nil
	}
	l.more = l.more || len(entries) >= maxList
	l.open = append(l.open, dir)
	defer func() { l.open = l.open[:len(l.open)-1] }()
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, entry := range entries {
		if Ignored(entry.Name()) || dir == "." && entry.Name() == l.self {
			continue
		}
		// Sorted, so that the limit cuts the same files each time.
		if len(l.files) >= l.opts.MaxFiles {
			l.more = true
			return nil
		}
		if err := l.entry(ctx, join(dir, entry.Name()), entry.Type()); err != nil {
			return err
		}
	}
	return nil
}

func (l *lister) entry(ctx context.Context, name string, mode fs.FileMode) error {
	c := candidate{path: name}
	clean, err := CleanPath(name)
	switch {
	case err != nil || clean != name:
		c.err = errUnusableName
	case mode.IsDir():
		return l.walk(ctx, name)
	case mode&fs.ModeSymlink != 0:
		info, err := l.tree.stat(name)
		if err == nil && info.IsDir() {
			// Following a link to a directory that contains it would never end.
			if slices.ContainsFunc(l.open, func(above string) bool { return l.same(above, info) }) {
				return nil
			}
			return l.walk(ctx, name)
		}
		c.err = cause(err)
		if err == nil && !info.Mode().IsRegular() {
			c.err = ErrNotFile
		}
	case !mode.IsRegular():
		c.err = ErrNotFile
	}
	l.files = append(l.files, c)
	return nil
}

func (l *lister) same(dir string, info fs.FileInfo) bool {
	above, err := l.tree.stat(dir)
	if err != nil {
		return false
	}
	// os.SameFile cannot compare the infos of an fs.FS.
	a, b := markOf(above), markOf(info)
	return a.known && b.known && a.dev == b.dev && a.inode == b.inode || os.SameFile(above, info)
}

var errUnusableName = errors.New("the name cannot be part of a path")

// leftOut returns the diagnostic for a file that is left out of the index.
func leftOut(c candidate) Diagnostic {
	switch {
	case errors.Is(c.err, errUnusableName):
		// The name itself could break a line of the output.
		dir := path.Dir(strings.ToValidUTF8(c.path, "?"))
		return diagnose(Warning, CodeInvalidPath, dir,
			"a file has a name that no path can hold: %s", quoted(path.Base(c.path)))
	case errors.Is(c.err, ErrOutsideRoot):
		return diagnose(Warning, CodeResourceOutside, c.path, "the link leads out of the skill")
	case errors.Is(c.err, ErrTooLarge):
		return diagnose(Warning, CodeResourceSize, c.path, "the file is larger than the limit")
	}
	return diagnose(Warning, CodeUnreadableResource, c.path, "the file cannot be read: %v", c.err)
}

// foldPath maps all paths that are the same name on some file system to the same text: it ignores case, and
// whether an accented letter is one character or two.
func foldPath(path string) string {
	return norm.NFC.String(strings.ToLower(strings.ToUpper(norm.NFKD.String(path))))
}

// isPlain reports whether a path folds to itself, as most paths do.
func isPlain(path string) bool {
	return !strings.ContainsFunc(path, func(r rune) bool { return r >= 0x80 || 'A' <= r && r <= 'Z' })
}

// collisions calls report for each path that folds to the same text as an earlier one, with the first of
// them. The paths must be unique.
func collisions(paths []string, report func(path, first string)) {
	// Paths that fold to themselves cannot collide with each other.
	if !slices.ContainsFunc(paths, func(path string) bool { return !isPlain(path) }) {
		return
	}
	first := make(map[string]string, len(paths))
	for _, path := range paths {
		folded := path
		if !isPlain(path) {
			folded = foldPath(path)
		}
		if other, taken := first[folded]; taken {
			report(path, other)
		} else {
			first[folded] = path
		}
	}
}

// maxNameNotes is the maximum number of diagnostics about file names per skill.
const maxNameNotes = 20

// fileNames returns the diagnostics for names that collide, or are not allowed, on other systems.
func fileNames(files []store.File) (notes []Diagnostic) {
	paths := make([]string, len(files))
	for i := range files {
		paths[i] = files[i].Path
	}
	collisions(paths, func(path, first string) {
		if len(notes) < maxNameNotes {
			notes = append(notes, diagnose(Warning, CodeNameCollision, path,
				"%q differs only by case or by the form of a letter; some systems keep one of the two",
				first))
		}
	})
	for _, path := range paths {
		if len(notes) < maxNameNotes && slices.ContainsFunc(strings.Split(path, "/"), reserved) {
			notes = append(notes, diagnose(Info, CodeUnportableName, path,
				"Windows has no file of this name"))
		}
	}
	return notes
}

// reserved reports whether Windows reserves a name for a device or does not allow it.
func reserved(name string) bool {
	// Windows drops a final dot or space, so the name would be another file's.
	if last := name[len(name)-1]; last == '.' || last == ' ' || strings.ContainsAny(name, `<>:"|?*`) {
		return true
	}
	// A device has the same name with any extension: "nul.txt" is NUL.
	stem, _, _ := strings.Cut(name, ".")
	stem = strings.TrimRight(stem, " ")
	if len(stem) != 3 && len(stem) != 4 {
		return false
	}
	stem = strings.ToUpper(stem)
	switch stem {
	case "CON", "PRN", "AUX", "NUL":
		return true
	}
	return len(stem) == 4 && (stem[:3] == "COM" || stem[:3] == "LPT") && '1' <= stem[3] && stem[3] <= '9'
}
