package staged

import (
	"cmp"
	"crypto/sha256"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox"
)

// A deletion waits until what the command made is in place: it may be what was moved from here.
type deletion struct {
	dir  string
	at   inode  // of the directory in the workspace
	name string // or "" for what the directory hides
}

// whiteout notes that an entry of a directory is to be deleted.
func (a *applier) whiteout(to *place, dir, name, refused string) {
	if refused != "" || to == nil {
		a.add(sandbox.Write{Path: path.Join(dir, name), Op: "delete", Refused: refused})
		return
	}
	a.deletions = append(a.deletions, deletion{dir: dir, at: to.was.inode(), name: name})
}

// hide notes that a directory hides what is not of the command's making.
func (a *applier) hide(to *place, dir, refused string) {
	if refused != "" {
		a.add(sandbox.Write{Path: cmp.Or(dir, "."), Op: "delete", Refused: refused})
		return
	}
	a.deletions = append(a.deletions, deletion{dir: dir, at: to.was.inode()})
}

// deleteAll makes the deletions that wait. Whatever ends it before, nothing that was moved is gone from
// both of its places.
func (a *applier) deleteAll(to *place) {
	a.lost.more = a.lost.more || a.cut
	rest := a.deletions
	a.deletions = nil // each is told from here on
	for len(rest) > 0 {
		n := 1
		for n < len(rest) && rest[n].at == rest[0].at && rest[n].dir == rest[0].dir {
			n++
		}
		a.deleteIn(to, rest[:n])
		rest = rest[n:]
	}
}

// deleteIn makes deletions of one directory.
func (a *applier) deleteIn(top *place, deletions []deletion) {
	dir := deletions[0].dir
	to, why := a.again(top, dir, deletions[0].at)
	if to != nil && to != top {
		defer func() {
			a.finish(to)
			to.close()
		}()
		if why == "" {
			a.open(to, dir)
		}
	}
	for _, d := range deletions {
		switch {
		case a.full():
			return
		case d.name != "":
			a.remove(to, d.name, path.Join(dir, d.name), why)
		case why != "":
			a.add(sandbox.Write{Path: cmp.Or(dir, "."), Op: "delete", Refused: why})
		default:
			from, err := a.lost.from.OpenRoot(cmp.Or(dir, "."))
			if err != nil {
				a.add(sandbox.Write{Path: cmp.Or(dir, "."), Op: "delete", Refused: "the changes cannot be read"})
				continue
			}
			a.removeHidden(from, to, dir)
			_ = from.Close()
		}
	}
}

// again enters a directory of the workspace once more and locks it, or says why not.
func (a *applier) again(top *place, dir string, want inode) (at *place, refused string) {
	if dir == "" {
		return top, ""
	}
	at = top
	for name := range strings.SplitSeq(dir, "/") {
		next, err := at.enter(name)
		if at != top {
			at.close()
		}
		if err != nil {
			return nil, reason(err)
		}
		at = next
	}
	if at.was.inode() != want {
		at.close()
		return nil, errChanged.Error()
	}
	return at, a.lock(at)
}

// lost is what of the command's making is not in the workspace, and may be what it moved there.
type lost struct {
	from  *os.Root              // the layer
	files map[int64][]*lostFile // by size
	links map[string]bool       // by what they name
	more  bool                  // there is what nobody looked at
}

// A lostFile is a file of the layer.
type lostFile struct {
	path string
	sum  *[sha256.Size]byte // of what is in it; nil before it was read
}

func (l *lost) file(path string, size int64) {
	if l.files == nil {
		l.files = map[int64][]*lostFile{}
	}
	l.files[size] = append(l.files[size], &lostFile{path: path})
}

func (l *lost) link(target string) {
	if l.links == nil {
		l.links = map[string]bool{}
	}
	l.links[target] = true
}

// maxCompared is the size up to which files are compared by what is in them, else by size alone.
const maxCompared = 1 << 20

// moved reports whether an entry of the workspace may be what was moved to where it is not applied. One
// that was changed besides is not known again.
func (a *applier) moved(dir *place, name string, e *entry) bool {
	switch {
	case e.isDir():
		return false
	case a.lost.more:
		return true
	case e.Mode&unix.S_IFMT == unix.S_IFLNK:
		target, err := dir.root.Readlink(name)
		return err != nil || a.lost.links[target]
	case !e.isRegular() || e.Size == 0:
		return false
	}
	same := a.lost.files[int64(e.Size)]
	if len(same) == 0 || e.Size > maxCompared {
		return len(same) > 0
	}
	sum, err := sumOf(dir.root, name)
	if err != nil {
		return true
	}
	for _, f := range same {
		if f.sum == nil {
			if f.sum, err = sumOf(a.lost.from, f.path); err != nil {
				return true
			}
		}
		if *f.sum == *sum {
			return true
		}
	}
	return false
}

func sumOf(root *os.Root, name string) (*[sha256.Size]byte, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxCompared+1))
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	return &sum, nil
}
