package staged

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox"
)

// Bounds on what one run may make the server do and remember. The inodes of a layer are bounded, but
// nested directories of long names still have paths of gigabytes.
const (
	maxWrites = 4096
	maxPath   = 4096 // bytes
	maxDepth  = 64   // directories
)

// lockEvery is how often a directory is tried that somebody has locked.
const lockEvery = 5 * time.Millisecond

// An applier carries the changes in an overlay's upper layer over to the workspace. The layer is
// hostile; the workspace may hold links of any kind, and may change meanwhile.
type applier struct {
	*Layer
	ctx       context.Context
	root      bool // the server is root, and so decides whose the files become
	protected []string
	layer     *dir
	left      int64 // bytes
	writes    []sandbox.Write
	pending   []*incoming    // files that are copied and not in their places yet
	held      []*dir         // directories of theirs
	deletions []deletion     // that wait for all else to be in place
	unlinked  map[inode]bool // files that lost a name here, and so were changed by nobody else
	changed   bool           // the workspace was
	cut       bool           // there were too many changes
	lost      lost
}

// Apply carries the changes of a layer over to its workspace, and returns what became of each: it is
// applied and on disk, or refused. What is left when ctx or the layer's Timeout ends is refused.
func Apply(ctx context.Context, l *Layer) []sandbox.Write {
	failed := func(why string) []sandbox.Write {
		return []sandbox.Write{{Path: ".", Op: "write", Refused: why}}
	}
	from, err := openDir(l.Upper)
	if err != nil {
		return failed(reason(errUnreadDir))
	}
	defer from.Close()
	to, err := openDir(l.Workspace.Dir)
	if errors.Is(err, errors.ErrUnsupported) {
		return failed("the kernel does not tell where file systems are mounted")
	}
	if err != nil {
		return failed("the workspace cannot be opened")
	}
	defer to.Close()
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	a := newApplier(ctx, l, from)
	a.keepMode(from, to, ".")
	if names, err := from.names(); err == nil && len(names) == 0 {
		return a.writes
	}
	a.walk(from, to, "", a.lock(to), false)
	a.flush()
	// Only now: what the command deleted may be what it moved, which is in its new place by now, and
	// whatever ends the server in between, a moved file is not gone from both of its places.
	a.deleteAll(to)
	if a.cut {
		a.report("write", ".", errMany)
	}
	if a.changed {
		if err := unix.Syncfs(int(to.Fd())); err != nil {
			a.report("write", ".", refusal("what was applied may not be on disk: "+reason(err)))
		}
	}
	return a.writes
}

func newApplier(ctx context.Context, l *Layer, from *dir) *applier {
	a := &applier{
		Layer: l, ctx: ctx, root: os.Geteuid() == 0, layer: from, left: l.MaxBytes,
		unlinked: map[inode]bool{},
		lost:     lost{sizes: map[int64]bool{}, links: map[string]bool{}},
	}
	for _, p := range slices.Concat(l.Workspace.Protected, l.Workspace.ReadOnly) {
		a.protected = append(a.protected, path.Clean(p))
	}
	return a
}

// report notes what became of a change: a nil error says that it was applied.
func (a *applier) report(op, p string, err error) {
	a.add(sandbox.Write{Path: p, Op: op, Refused: reason(err)})
}

func (a *applier) add(w sandbox.Write) {
	a.changed = a.changed || w.Refused == ""
	a.writes = append(a.writes, w)
}

// full reports whether there is no room left to report a change, and so none may be made.
func (a *applier) full() bool {
	a.cut = a.cut || len(a.writes)+len(a.pending)+len(a.deletions) >= maxWrites
	return a.cut
}

// refuse says why nothing is changed at a path, whatever the change.
func (a *applier) refuse(p string) error {
	name := path.Base(p)
	switch {
	case a.Outcome != sandbox.Exited:
		return refusal("the run ended with " + string(a.Outcome))
	case a.ctx.Err() != nil:
		return a.stopped()
	case !sandbox.Printable(name):
		return errPrint
	case isProtected(name):
		return errName
	case a.Workspace.Withhold != nil && a.Workspace.Withhold([]byte(p)):
		return errSecret
	}
	for _, q := range a.protected {
		if p == q || strings.HasPrefix(p, q+"/") {
			return errPath
		}
	}
	return nil
}

// stopped returns why nothing more is applied after the applier's context has ended.
func (a *applier) stopped() error {
	if errors.Is(a.ctx.Err(), context.DeadlineExceeded) {
		return errLate
	}
	return errCancel
}

// walk applies what is in one directory of the layer. If why is not nil, all of it is refused, and to
// may be nil. In a directory that the command replaced, everything is deleted that the layer lacks.
func (a *applier) walk(from, to *dir, p string, why error, replaced bool) {
	names, err := from.names()
	switch {
	case len(p) > maxPath || strings.Count(p, "/") >= maxDepth:
		err = errDeep
	case err != nil:
		err = errUnreadDir
	}
	if err != nil {
		a.lost.unseen = true
		a.report("write", path.Join(p, "."), err)
		return
	}
	// The files of the layer and the files of the workspace may make a repository only together.
	if why == nil && gitLike(names, to) {
		why = errGit
	}
	if replaced && to != nil {
		a.deleteLater(to, p, "", why)
	}
	for _, name := range names {
		if a.full() {
			return
		}
		at, refused := path.Join(p, name), why
		if refused == nil {
			refused = a.refuse(at)
		}
		e, err := from.stat(name)
		switch {
		case err != nil:
			a.lost.unseen = true
			a.report("write", at, errUnread)
		case e.isDir():
			a.directory(from, to, name, at, refused, replaced)
		case e.isWhiteout():
			a.deleteLater(to, p, name, refused)
		case e.isRegular() && refused != nil:
			// Without its digest: sparse files are cheap to leave and dear to read.
			a.lost.sizes[int64(e.Size)] = true
			a.add(sandbox.Write{Path: at, Op: "write", Size: int64(e.Size), Refused: reason(refused)})
		case e.isRegular():
			a.file(from, to, name, at, int64(e.Size))
		default:
			if target, err := from.readlink(name); err == nil {
				a.lost.links[target] = true
			}
			a.report("write", at, errNotRegular)
		}
	}
}

func (a *applier) directory(from, to *dir, name, p string, why error, replaced bool) {
	sub, err := from.enter(name)
	if err != nil {
		a.lost.unseen = true
		a.report("mkdir", p, errUnreadDir)
		return
	}
	defer sub.Close()
	if why != nil {
		a.report("mkdir", p, why)
		a.walk(sub, nil, p, why, false)
		return
	}
	target, err := to.enter(name)
	if err == nil {
		defer a.release(target)
		replaced = replaced || a.isOpaque(sub)
		why = a.lock(target)
		if why == nil {
			why = a.checkSame(sub, target, replaced)
		}
		if why == nil {
			a.keepMode(sub, target, p)
		}
		a.walk(sub, target, p, why, replaced)
		return
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotDir) && a.remove(to, name, p, nil) {
		target, err = a.mkdir(sub, to, name)
	}
	a.report("mkdir", p, err)
	if err == nil {
		defer a.release(target)
	}
	a.walk(sub, target, p, err, false)
}

// keepMode reports a directory whose mode the command changed: the mode decides who can reach protected
// names in it.
func (a *applier) keepMode(from, to *dir, p string) {
	if from.permissions() != to.permissions() && !a.full() {
		a.report("chmod", p, errMode)
	}
}

// checkSame keeps a server of root, which acts with more rights than the command had, out of a
// directory that somebody has put in the place of the one that the command worked in.
func (a *applier) checkSame(from, to *dir, replaced bool) error {
	if !a.root {
		return nil
	}
	// The command may have changed the mode of its own directories, and nothing else.
	uid, gid := a.inWorkspace(from.Uid, from.Gid)
	same := uid == to.Uid && gid == to.Gid &&
		(int(from.Uid) == a.UID || from.permissions() == to.permissions())
	// A directory that the command made anew shows nothing of the one that was there.
	if replaced && to.changedSince(a.Began) || !replaced && !same {
		return errChanged
	}
	return nil
}

// isOpaque reports whether the layer hides what is in the workspace's directory. It reads the mark of
// the overlay that was mounted: the other one is an ordinary attribute there, which a command can set
// on directories that it may not empty.
func (a *applier) isOpaque(d *dir) bool {
	mark := "user.overlay.opaque"
	if a.Trusted {
		mark = "trusted.overlay.opaque"
	}
	var b [1]byte
	n, err := unix.Fgetxattr(int(d.Fd()), mark, b[:])
	return err == nil && n == 1 && b[0] == 'y'
}

// mkdir makes a directory like one of the layer, which nobody else can enter until it has its owner.
func (a *applier) mkdir(like, to *dir, name string) (*dir, error) {
	if err := unix.Mkdirat(int(to.Fd()), name, 0o700); err != nil {
		return nil, err
	}
	target, err := to.enter(name)
	if err != nil {
		return nil, err
	}
	// Between the two calls, whoever may write in the workspace may have put another directory there,
	// which must not be given to somebody.
	names, err := target.names()
	if err != nil || len(names) != 0 {
		_ = target.Close()
		return nil, errors.Join(errChanged, err)
	}
	if err := errors.Join(a.own(target.File, like.File, to, nil), target.refresh()); err != nil {
		_ = target.Close()
		return nil, errors.Join(err, to.remove(name, true))
	}
	return target, nil
}

// lock keeps others from applying changes to the same directory until it is closed: each of two runs
// may leave a harmless half of what both together must not make. Other servers know of the lock too,
// and servers with a workspace inside this one. File systems without locks are used without them.
func (a *applier) lock(d *dir) error {
	if a.Outcome != sandbox.Exited {
		return nil // nothing is applied
	}
	again := time.NewTicker(lockEvery)
	defer again.Stop()
	for {
		err := unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return d.refresh() // whoever had the lock may have changed the directory
		}
		select {
		case <-a.ctx.Done():
			return errLocked
		case <-again.C:
		}
	}
}

// gitLike reports whether a directory would look like a repository without a .git, whose configuration
// git obeys wherever it is called in it: HEAD, and with it either the objects and references or the
// name of the directory that has them.
func gitLike(names []string, to *dir) bool {
	has := func(name string) bool {
		if slices.ContainsFunc(names, func(n string) bool { return fold(n) == fold(name) }) {
			return true
		}
		if to == nil {
			return false
		}
		_, err := to.stat(name)
		return err == nil
	}
	return has("HEAD") && (has("commondir") || has("objects") && has("refs"))
}
