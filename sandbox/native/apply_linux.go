package native

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox"
)

// Bounds on what one run may make the server do and remember. A layer's inodes are bounded, but
// nested directories of long names still have paths of gigabytes.
const (
	maxWrites = 4096
	maxPath   = 4096 // bytes
	maxDepth  = 64   // directories
)

// An applier carries the changes in an overlay's upper layer over to the workspace itself. The
// layer is hostile; the workspace may hold links of any kind, and none is followed.
type applier struct {
	protected []string
	ended     bool // the run ended by itself
	outcome   sandbox.Outcome
	left      int64
	writes    []sandbox.Write
}

func apply(upper *os.File, ws sandbox.Workspace, outcome sandbox.Outcome, most int64) []sandbox.Write {
	a := &applier{outcome: outcome, ended: outcome == sandbox.Exited, left: most}
	for _, p := range ws.Protected {
		a.protected = append(a.protected, path.Clean(p))
	}
	from, err := rootOf(upper)
	if err != nil {
		return []sandbox.Write{{Path: ".", Op: "write", Refused: "the changes cannot be read"}}
	}
	defer func() { _ = from.Close() }()
	to, err := rootOf(ws.Dir)
	if err != nil {
		return []sandbox.Write{{Path: ".", Op: "write", Refused: "the workspace cannot be opened"}}
	}
	defer func() { _ = to.Close() }()
	a.dir(from, to, "", "")
	if len(a.writes) > maxWrites {
		a.add(sandbox.Write{Path: ".", Op: "write", Refused: "too many changes: the rest was not applied"})
	}
	return a.writes
}

// dir applies the entries of one directory. A refusal reaches everything below it.
func (a *applier) dir(from, to *os.Root, dir, refused string) {
	if len(dir) > maxPath || strings.Count(dir, "/") >= maxDepth {
		a.add(sandbox.Write{Path: dir, Op: "write", Refused: "what is below is too deep"})
		return
	}
	entries, err := fs.ReadDir(from.FS(), ".")
	if err != nil {
		a.add(sandbox.Write{Path: path.Join(dir, "."), Op: "write", Refused: "the changes cannot be read"})
		return
	}
	if refused == "" && gitLike(entries, to) {
		refused = "would make or change a git repository"
	}
	for _, e := range entries {
		if len(a.writes) > maxWrites {
			return
		}
		p := path.Join(dir, e.Name())
		why := refused
		if why == "" {
			why = a.refuse(p)
		}
		info, err := from.Lstat(e.Name())
		if err != nil {
			a.add(sandbox.Write{Path: p, Op: "write", Refused: "the change cannot be read"})
			continue
		}
		switch {
		case info.Mode().IsRegular() && why != "":
			// Without its digest: sparse files are cheap to leave and dear to read.
			a.add(sandbox.Write{Path: p, Op: "write", Size: info.Size(), Refused: why})
		case info.IsDir():
			a.directory(from, to, e.Name(), p, why)
		case info.Mode().IsRegular():
			a.file(from, to, e.Name(), p)
		case isWhiteout(info):
			a.remove(to, e.Name(), p, why)
		default:
			a.add(sandbox.Write{Path: p, Op: "write", Refused: "not a regular file or directory"})
		}
	}
}

func (a *applier) add(w sandbox.Write) {
	switch n := len(a.writes); {
	case n < maxWrites:
		a.writes = append(a.writes, w)
	case n == maxWrites:
		a.writes = append(a.writes, sandbox.Write{Path: ".", Op: "write", Refused: "there are more changes than are applied"})
	}
}

func (a *applier) refuse(p string) string {
	name := path.Base(p)
	switch {
	case !a.ended:
		return "the run ended with " + string(a.outcome)
	case !printable(name):
		return "name with control or invalid characters"
	case isProtected(name):
		return "protected name"
	}
	for _, q := range a.protected {
		if p == q || strings.HasPrefix(p, q+"/") {
			return "protected path"
		}
	}
	return ""
}

func isWhiteout(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0
}

func isOpaque(dir *os.Root) bool {
	f, err := dir.Open(".")
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	var b [1]byte
	for _, attr := range []string{"user.overlay.opaque", "trusted.overlay.opaque"} {
		if n, err := unix.Fgetxattr(int(f.Fd()), attr, b[:]); err == nil && n == 1 && b[0] == 'y' {
			return true
		}
	}
	return false
}

func (a *applier) directory(from, to *os.Root, name, p, refused string) {
	sub, err := from.OpenRoot(name)
	if err != nil {
		a.add(sandbox.Write{Path: p, Op: "mkdir", Refused: "the changes cannot be read"})
		return
	}
	defer func() { _ = sub.Close() }()
	if refused != "" {
		a.add(sandbox.Write{Path: p, Op: "mkdir", Refused: refused})
		a.dir(sub, nil, p, refused)
		return
	}
	target, err := enter(to, name)
	switch {
	case err == nil:
		if isOpaque(sub) {
			a.removeHidden(sub, target, p)
		}
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotDir) && a.remove(to, name, p, ""):
		w := sandbox.Write{Path: p, Op: "mkdir"}
		if err = to.Mkdir(name, 0o755); err == nil {
			target, err = enter(to, name)
		}
		if err != nil {
			w.Refused = reason(err)
		} else {
			adopt(target, to)
		}
		a.add(w)
	}
	if target == nil {
		a.dir(sub, nil, p, "its directory could not be made")
		return
	}
	defer func() { _ = target.Close() }()
	a.dir(sub, target, p, "")
}

var errNotDir = errors.New("not a directory")

// enter opens a directory that is no link and was none when it was opened.
func enter(root *os.Root, name string) (*os.Root, error) {
	want, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !want.IsDir() {
		return nil, errNotDir
	}
	sub, err := root.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	got, err := sub.Stat(".")
	if err != nil || !os.SameFile(want, got) {
		return nil, errors.Join(errNotDir, sub.Close())
	}
	return sub, nil
}

// removeHidden deletes what an opaque directory hides: the command had replaced the directory.
func (a *applier) removeHidden(sub, target *os.Root, p string) {
	entries, err := fs.ReadDir(target.FS(), ".")
	if err != nil {
		a.add(sandbox.Write{Path: p, Op: "delete", Refused: reason(err)})
		return
	}
	for _, e := range entries {
		if _, err := sub.Lstat(e.Name()); errors.Is(err, fs.ErrNotExist) {
			q := path.Join(p, e.Name())
			a.remove(target, e.Name(), q, a.refuse(q))
		}
	}
}

// remove deletes an entry of the workspace unless something below it is protected.
func (a *applier) remove(to *os.Root, name, p, refused string) bool {
	w := sandbox.Write{Path: p, Op: "delete", Refused: refused}
	if w.Refused == "" && to != nil {
		w.Refused = a.refuseBelow(to, name, p)
	}
	if w.Refused == "" {
		if err := to.RemoveAll(name); err != nil {
			w.Refused = reason(err)
		}
	}
	a.add(w)
	return w.Refused == ""
}

func (a *applier) refuseBelow(to *os.Root, name, p string) string {
	for _, q := range a.protected {
		if q == p || strings.HasPrefix(q, p+"/") {
			return "holds a protected path"
		}
	}
	found := ""
	err := fs.WalkDir(to.FS(), name, func(q string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if isProtected(path.Base(q)) {
			found = "holds a protected name"
			return fs.SkipAll
		}
		return nil
	})
	if err != nil {
		return reason(err)
	}
	return found
}

func (a *applier) file(from, to *os.Root, name, p string) {
	data, info, err := readRegular(from, name, max(a.left, 0))
	w := sandbox.Write{Path: p, Op: "write"}
	if err != nil {
		w.Refused = reason(err)
		a.add(w)
		return
	}
	sum := sha256.Sum256(data)
	w.Size, w.Digest = int64(len(data)), "sha256:"+hex.EncodeToString(sum[:])
	if st, err := to.Lstat(name); err == nil && st.IsDir() && !a.remove(to, name, p, "") {
		w.Refused = "a directory is in its place"
	}
	if w.Refused == "" {
		a.left -= w.Size
		if err := replace(to, name, data, info.Mode().Perm()&0o755); err != nil {
			w.Refused = reason(err)
		}
	}
	a.add(w)
}

// replace puts a whole file in place of whatever name is.
func replace(to *os.Root, name string, data []byte, mode fs.FileMode) (err error) {
	temp := ".skillsd-" + rand.Text()
	f, err := to.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = to.Remove(temp)
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		err = errors.Join(chownLike(f, to), f.Chmod(mode), f.Sync())
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return to.Rename(temp, name)
}

// chownLike gives what a root server writes to the owner of the directory it is in.
func chownLike(f *os.File, dir *os.Root) error {
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := dir.Stat(".")
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	return f.Chown(int(st.Uid), int(st.Gid))
}

func adopt(dir, parent *os.Root) {
	f, err := dir.Open(".")
	if err != nil {
		return
	}
	_ = chownLike(f, parent) // a directory of root's is usable, only less convenient
	_ = f.Close()
}

// reason is the public part of an error: what failed, without paths.
func reason(err error) string {
	var errno syscall.Errno
	switch {
	case errors.Is(err, errTooLarge):
		return "all changes together are too large"
	case errors.Is(err, errNotDir):
		return errNotDir.Error()
	case errors.As(err, &errno):
		return errno.Error()
	}
	return "cannot be applied"
}
