package skills

import (
	"bytes"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/skillsd/skillsd/skills/store/fsys"
)

// folder is an open directory for the walk of a scan. It never follows a link.
type folder interface {
	// list returns the entries that matter to a scan, unsorted: directories, links, and any entry with the
	// name of a skill file. If there are more than limit, more is true.
	list(limit int) (entries []entry, more bool, err error)
	// sub opens a subdirectory.
	sub(name string) (folder, error)
	// read returns the content of a file that list reported as regular, in buf if it fits. The mark is not
	// settled.
	read(name string, limit int64, buf []byte) ([]byte, mark, error)
	// mark returns the current mark of a file that list reported as regular. It is not settled.
	mark(name string) (mark, error)
	// look returns the mark of the file or directory at a slash-separated path below, without following a
	// final link. The mark is unknown if the file does not exist, or if look is not cheaper than opening it.
	// Earlier links in the path are followed, so look can only confirm that a known file is unchanged.
	look(path string) mark
	// barren reports whether a subdirectory is known to have neither directories nor a skill file, and
	// returns its mark from before that check.
	barren(name string) (mark, bool)
	close()
}

// entry is a directory entry; mode has only type bits.
type entry struct {
	name string
	mode fs.FileMode
}

const (
	upperFile = "SKILL.md"
	lowerFile = "skill.md"
)

// nestedFiles are the skill files of nested skills. Other spellings are found at the top of a skill only:
// most directories in skills are not listed, so each name costs a call.
var nestedFiles = []string{upperFile, lowerFile, "SKILL.MD", "Skill.md"}

// relevant reports whether an entry matters to a scan.
func relevant(name string, mode fs.FileMode) bool {
	return strings.EqualFold(name, upperFile) || mode&(fs.ModeDir|fs.ModeSymlink) != 0 && !Ignored(name) ||
		name == HostingDir && mode.IsDir()
}

// descend opens a directory below f. The path must not contain links.
func descend(f folder, rel string) (folder, error) {
	// f belongs to the caller and stays open; only directories that were opened on the way are closed.
	at, opened := f, false
	for name := range strings.SplitSeq(rel, "/") {
		next, err := at.sub(name)
		if opened {
			at.close()
		}
		if err != nil {
			return nil, err
		}
		at, opened = next, true
	}
	return at, nil
}

// genericFolder reads through an os.Root or an fs.FS, on systems without a faster implementation.
type genericFolder struct {
	tree tree
	rel  string
	own  bool // close closes tree
}

func (g genericFolder) close() {
	if g.own {
		g.tree.close()
	}
}

func (g genericFolder) mark(name string) (mark, error) {
	info, err := g.tree.lstat(path.Join(g.rel, name))
	if err != nil {
		return mark{}, err
	}
	if !info.Mode().IsRegular() {
		return mark{}, ErrNotFile
	}
	return markOf(info), nil
}

func (g genericFolder) look(string) mark { return mark{} }

func (g genericFolder) barren(string) (mark, bool) { return mark{}, false }

func (g genericFolder) list(limit int) (entries []entry, more bool, err error) {
	all, err := g.tree.list(g.rel)
	if err == io.EOF {
		err = nil
	}
	for _, e := range all {
		if !relevant(e.Name(), e.Type()) {
			continue
		}
		if len(entries) == limit {
			return entries, true, nil
		}
		entries = append(entries, entry{e.Name(), e.Type()})
	}
	return entries, false, err
}

func (g genericFolder) sub(name string) (folder, error) {
	rel := name
	if name != "." {
		rel = path.Join(g.rel, name)
	}
	// The name was a directory when it was listed; if it was replaced by a link since, opening it would
	// follow the link.
	info, err := g.tree.lstat(rel)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, &fs.PathError{Op: "open", Path: filepath.FromSlash(rel), Err: fs.ErrNotExist}
	}
	return genericFolder{tree: g.tree, rel: rel}, nil
}

func (g genericFolder) read(name string, limit int64, buf []byte) ([]byte, mark, error) {
	// readTree follows links, which a folder must not.
	if _, err := g.mark(name); err != nil {
		return nil, mark{}, err
	}
	return readTree(g.tree, path.Join(g.rel, name), limit, buf)
}

// readTree reads a regular file of a tree and follows links within the tree.
func readTree(t tree, name string, limit int64, buf []byte) ([]byte, mark, error) {
	file, info, err := openFile(t, name)
	if err != nil {
		return nil, mark{}, err
	}
	defer file.Close()
	data, err := readLimited(file, info.Size(), limit, buf)
	return data, markOf(info), err
}

// readLimited reads r to its end. size is its expected size.
//
// Errors: ErrTooLarge.
func readLimited(r io.Reader, size, limit int64, buf []byte) ([]byte, error) {
	if size > limit {
		return nil, ErrTooLarge
	}
	// One byte more than the limit shows that a file grew after its size was read.
	data := bytes.NewBuffer(buf[:0])
	data.Grow(int(max(size, 0)) + bytes.MinRead)
	_, err := data.ReadFrom(io.LimitReader(fsys.Ending(r, size), limit+1))
	if err != nil {
		return data.Bytes(), cause(err)
	}
	if int64(data.Len()) > limit {
		return data.Bytes(), ErrTooLarge
	}
	return data.Bytes(), nil
}

// mark is the stat data that shows whether a file changed since it was read.
type mark struct {
	size         int64
	mtime, ctime int64 // nanoseconds since 1970
	inode, dev   uint64
	known        bool // the system provides all of the above
	settled      bool // the file had not changed for settleTime when it was read
}

// settleTime is how long a file must have been unchanged for its times to identify its bytes: two changes
// within the resolution of a clock look the same.
const settleTime = 2 * time.Second

// readAt returns the mark of a file that was read at now.
func (m mark) readAt(now time.Time) mark {
	m.settled = now.UnixNano()-max(m.mtime, m.ctime) >= int64(settleTime)
	return m
}

// vouches reports whether a file whose mark is now has the same bytes as when m was made. Times can miss a
// change: a write through a shared mapping need not update them.
func (m mark) vouches(now mark) bool {
	// Whether now is settled does not matter: the bytes were read when m was made.
	now.settled = m.settled
	return m == now && m.known && m.settled
}

// component returns an error for names that the kernel would resolve to another directory.
func component(name string) error {
	if name == "" || name == ".." || strings.ContainsAny(name, "/\x00") {
		return &fs.PathError{Op: "openat", Path: name, Err: fs.ErrInvalid}
	}
	return nil
}
