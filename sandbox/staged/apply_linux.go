package staged

import (
	"context"
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
	*Layer
	ctx       context.Context
	root      bool // the server is root, and answers for whose the files become
	protected []string
	left      int64
	writes    []sandbox.Write
	waiting   []incoming     // files that are copied and not yet in their places
	held      []*place       // directories of theirs
	removed   int            // entries of the deletion that is going on
	changed   bool           // the workspace was
	unlinked  map[inode]bool // files that lost a name here, and so were changed by nobody else
	cut       bool           // there were too many changes
	deletions []deletion     // that wait for all else to be in place
	lost      lost
}

// Apply returns what became of each change: applied and on disk, or refused. What is left when ctx
// or the time for it ends is refused.
func Apply(ctx context.Context, l *Layer) []sandbox.Write {
	nothing := func(why string) []sandbox.Write { return []sandbox.Write{{Path: ".", Op: "write", Refused: why}} }
	from, err := rootOf(l.Upper)
	if err != nil {
		return nothing("the changes cannot be read")
	}
	defer func() { _ = from.Close() }()
	to, err := openPlace(l.Workspace.Dir)
	if errors.Is(err, unix.ENOSYS) {
		return nothing("the kernel does not tell where file systems are mounted")
	}
	if err != nil {
		return nothing("the workspace cannot be opened")
	}
	defer to.close()
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	a := &applier{unlinked: map[inode]bool{}, Layer: l, ctx: ctx, root: os.Geteuid() == 0, left: l.MaxBytes}
	a.lost.from = from
	for _, p := range l.Workspace.Protected {
		a.protected = append(a.protected, path.Clean(p))
	}
	a.top(to)
	if entries, err := fs.ReadDir(from.FS(), "."); err == nil && len(entries) == 0 {
		return a.writes
	}
	why := a.lock(to)
	if why == "" {
		a.open(to, ".")
	}
	a.dir(from, to, "", why, false)
	a.flush()
	a.deleteAll(to)
	a.finish(to)
	if a.cut {
		a.add(sandbox.Write{Path: ".", Op: "write", Refused: "there are more changes than are applied"})
	}
	if a.changed {
		if err := unix.Syncfs(int(to.self.Fd())); err != nil {
			a.add(sandbox.Write{Path: ".", Op: "write", Refused: "what was applied may not be on disk: " + reason(err)})
		}
	}
	return a.writes
}

// dir applies the entries of one directory, to a nil one those that are refused. A refusal reaches
// everything below it. What of the workspace's is hidden, the command had deleted.
func (a *applier) dir(from *os.Root, to *place, dir, refused string, hidden bool) {
	if len(dir) > maxPath || strings.Count(dir, "/") >= maxDepth {
		a.lost.more = true
		a.add(sandbox.Write{Path: dir, Op: "write", Refused: "what is below is too deep"})
		return
	}
	entries, err := fs.ReadDir(from.FS(), ".")
	if err != nil {
		a.lost.more = true
		a.add(sandbox.Write{Path: path.Join(dir, "."), Op: "write", Refused: "the changes cannot be read"})
		return
	}
	if refused == "" && gitLike(entries, to) {
		refused = errGit.Error()
	}
	if hidden && to != nil {
		a.hide(to, dir, refused)
	}
	for _, e := range entries {
		if a.full() {
			return
		}
		p := path.Join(dir, e.Name())
		why := refused
		if why == "" {
			why = a.refuse(p)
		}
		info, err := from.Lstat(e.Name())
		if err != nil {
			a.lost.more = true
			a.add(sandbox.Write{Path: p, Op: "write", Refused: "the change cannot be read"})
			continue
		}
		switch {
		case info.Mode().IsRegular() && why != "":
			// Without its digest: sparse files are cheap to leave and dear to read.
			a.lost.file(p, info.Size())
			a.add(sandbox.Write{Path: p, Op: "write", Size: info.Size(), Refused: why})
		case info.IsDir():
			a.directory(from, to, e.Name(), p, why, hidden)
		case info.Mode().IsRegular():
			a.file(from, to, e.Name(), p, info.Size())
		case isWhiteout(info):
			a.whiteout(to, dir, e.Name(), why)
		default:
			if target, err := from.Readlink(e.Name()); err == nil {
				a.lost.link(target)
			}
			a.add(sandbox.Write{Path: p, Op: "write", Refused: "not a regular file or directory"})
		}
	}
}

func (a *applier) add(w sandbox.Write) {
	a.changed = a.changed || w.Refused == ""
	a.writes = append(a.writes, w)
}

// full reports that there is no more room for what becomes of a change, and so none may be made.
func (a *applier) full() bool {
	a.cut = a.cut || len(a.writes)+len(a.waiting)+len(a.deletions) >= maxWrites
	return a.cut
}

func (a *applier) refuse(p string) string {
	name := path.Base(p)
	switch {
	case a.Outcome != sandbox.Exited:
		return "the run ended with " + string(a.Outcome)
	case a.ctx.Err() != nil:
		return a.stopped().Error()
	case !sandbox.Printable(name):
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

// isOpaque reads the mark of the overlay that was mounted. The other is an ordinary attribute there,
// which a command sets on directories that it may not empty.
func (a *applier) isOpaque(dir *os.File) bool {
	mark := "user.overlay.opaque"
	if a.Trusted {
		mark = "trusted.overlay.opaque"
	}
	var b [1]byte
	n, err := unix.Fgetxattr(int(dir.Fd()), mark, b[:])
	return err == nil && n == 1 && b[0] == 'y'
}

func (a *applier) directory(from *os.Root, to *place, name, p, refused string, hidden bool) {
	sub, self, err := openLayer(from, name)
	if err != nil {
		a.lost.more = true
		a.add(sandbox.Write{Path: p, Op: "mkdir", Refused: "the changes cannot be read"})
		return
	}
	defer func() { _, _ = sub.Close(), self.Close() }()
	if refused != "" {
		a.add(sandbox.Write{Path: p, Op: "mkdir", Refused: refused})
		a.dir(sub, nil, p, refused, false)
		return
	}
	hidden = hidden || a.isOpaque(self)
	target, err := to.enter(name)
	if err == nil {
		why := a.lock(target)
		if why == "" {
			why = a.refuseTarget(self, target, hidden)
		}
		if why == "" {
			a.settle(self, target, p)
		}
		a.dir(sub, target, p, why, hidden)
		a.release(target)
		return
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotDir) && a.remove(to, name, p, "") {
		target, err = a.mkdir(self, to, name)
	}
	w := sandbox.Write{Path: p, Op: "mkdir"}
	if err != nil {
		w.Refused = reason(err)
		a.add(w)
		a.dir(sub, nil, p, w.Refused, false)
		return
	}
	a.add(w)
	a.dir(sub, target, p, "", false)
	a.release(target)
}

// refuseTarget says why a server of root's leaves a directory alone: it would act with more rights
// than the command had, if somebody has put another directory in the place of the one that the
// command worked in.
func (a *applier) refuseTarget(self *os.File, target *place, hidden bool) string {
	if !a.root {
		return ""
	}
	var st unix.Stat_t
	e, err := target.statx("", unix.AT_EMPTY_PATH)
	if err = errors.Join(err, unix.Fstat(int(self.Fd()), &st)); err != nil {
		return reason(err)
	}
	same := st.Uid == e.Uid && st.Gid == e.Gid && (int(st.Uid) == a.UID || st.Mode&0o777 == uint32(e.Mode)&0o777)
	if hidden && e.changedSince(a.Began) || !hidden && !same {
		return errChanged.Error()
	}
	return ""
}

// openLayer opens a directory of the layer, which nothing changes any more.
func openLayer(from *os.Root, name string) (*os.Root, *os.File, error) {
	sub, err := from.OpenRoot(name)
	if err != nil {
		return nil, nil, err
	}
	self, err := sub.Open(".")
	if err != nil {
		return nil, nil, errors.Join(err, sub.Close())
	}
	return sub, self, nil
}

// mkdir makes a directory like self, that only its owner can enter until it is his.
func (a *applier) mkdir(self *os.File, to *place, name string) (*place, error) {
	if err := to.root.Mkdir(name, 0o700); err != nil {
		return nil, err
	}
	target, err := to.enter(name)
	if err != nil {
		return nil, err
	}
	// Who may write in the workspace may have put another directory in its place, which is not to change hands.
	if entries, err := fs.ReadDir(target.root.FS(), "."); err != nil || len(entries) != 0 {
		target.close()
		return nil, errors.Join(errChanged, err)
	}
	if err := a.own(target.self, self, to, nil); err != nil {
		target.close()
		return nil, errors.Join(err, to.root.Remove(name))
	}
	return target, nil
}
