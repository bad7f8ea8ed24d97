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

// Limits for the work and memory that one run may cost the server. The inodes of a layer are limited, but
// nested directories with long names can still have paths of gigabytes.
const (
	maxWrites = 4096
	maxPath   = 4096 // bytes
	maxDepth  = 64   // directories
)

// lockEvery is the interval for retrying to lock a directory.
const lockEvery = 5 * time.Millisecond

// An applier applies the changes in an overlay's upper layer to the workspace. The layer is hostile; the
// workspace may contain links of any kind and may change concurrently.
type applier struct {
	*Layer
	ctx       context.Context
	root      bool // the server is root, so it decides who owns the files
	protected []string
	layer     *dir
	left      int64 // bytes
	writes    []sandbox.Write
	pending   []*incoming // files that are copied but do not have their final names yet
	held      []*dir      // directories of pending files
	deletions []deletion  // deletions that wait until everything else is applied
	// unlinked are the files that lost a name here; their changed ctime is no foreign change.
	unlinked  map[inode]bool
	unkept    map[string]error         // why nothing at a path was kept, and therefore may not be changed
	made      map[string]sandbox.State // what the applier wrote, by path
	changed   bool                     // the workspace was changed
	cut       bool                     // there were too many changes
	unapplied unapplied
}

// Apply applies the changes of a layer to its workspace and returns the outcome of each: it is applied and on
// disk, or refused. Changes that remain when ctx or the layer's Timeout ends are refused. If the workspace
// has a Keeper, Apply sets l.Kept.
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
	kept := a.keep(from, to)
	a.walk(from, to, "", a.lock(to), false)
	a.flush()
	// Deletions come last, because a deleted file may have been moved. By now it has its new name, so a crash
	// cannot make it vanish from both places.
	a.deleteAll(to)
	if a.cut {
		a.report("write", ".", errMany)
	}
	if a.changed {
		// flush syncs only the files, and this also writes their names and the directories.
		if err := unix.Syncfs(int(to.Fd())); err != nil {
			a.report("write", ".", refusal("what was applied may not be on disk: "+reason(err)))
		}
	}
	l.Kept = a.settle(kept, to)
	return a.writes
}

func newApplier(ctx context.Context, l *Layer, from *dir) *applier {
	a := &applier{
		Layer: l, ctx: ctx, root: os.Geteuid() == 0, layer: from, left: l.MaxBytes,
		unlinked:  map[inode]bool{},
		unkept:    map[string]error{},
		made:      map[string]sandbox.State{},
		unapplied: unapplied{sizes: map[int64]bool{}, links: map[string]bool{}},
	}
	for _, p := range slices.Concat(l.Workspace.Protected, l.Workspace.ReadOnly) {
		a.protected = append(a.protected, path.Clean(p))
	}
	return a
}

// report records the outcome of a change; a nil error means that it was applied.
func (a *applier) report(op, p string, err error) {
	a.add(sandbox.Write{Path: p, Op: op, Refused: reason(err)})
}

func (a *applier) add(w sandbox.Write) {
	a.changed = a.changed || w.Refused == ""
	a.writes = append(a.writes, w)
}

// full reports whether no more changes can be reported, and therefore none may be made.
func (a *applier) full() bool {
	a.cut = a.cut || len(a.writes)+len(a.pending)+len(a.deletions) >= maxWrites
	return a.cut
}

// refuse returns the reason why no change is allowed at a path, or nil.
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

// stopped returns the reason why nothing is applied after the applier's context has ended.
func (a *applier) stopped() error {
	if errors.Is(a.ctx.Err(), context.DeadlineExceeded) {
		return errLate
	}
	return errCancel
}

// walk applies the changes in one directory of the layer. If why is not nil, it refuses all of them, and to
// may be nil. In a directory that the command replaced, it deletes everything that the layer lacks.
func (a *applier) walk(from, to *dir, p string, why error, replaced bool) {
	names, err := from.names()
	switch {
	case len(p) > maxPath || depthOf(p) >= maxDepth:
		err = errDeep
	case err != nil:
		err = errUnreadDir
	}
	if err != nil {
		a.unapplied.unseen = true
		a.report("write", path.Join(p, "."), err)
		return
	}
	// The files of the layer and of the workspace may form a repository only together.
	if why == nil && gitLike(names, to) {
		why = errGit
	}
	if why == nil {
		why = a.unkept[p]
	}
	if replaced && to != nil {
		a.deleteLater(to, p, "", why)
	}
	for _, name := range names {
		if a.full() {
			return
		}
		a.change(from, to, p, name, why, replaced)
	}
}

// change applies the change of one entry of a directory in the layer, unless why is not nil.
func (a *applier) change(from, to *dir, p, name string, why error, replaced bool) {
	at := path.Join(p, name)
	if why == nil {
		why = a.refuse(at)
	}
	e, err := from.stat(name)
	switch {
	case err != nil:
		a.unapplied.unseen = true
		a.report("write", at, errUnread)
	case e.isDir():
		a.directory(from, to, name, at, why, replaced)
	case e.isWhiteout():
		a.deleteLater(to, p, name, why)
	case e.isRegular() && why != nil:
		// No digest is computed: sparse files are cheap to create and expensive to read.
		a.unapplied.sizes[int64(e.Size)] = true
		a.add(sandbox.Write{Path: at, Op: "write", Size: int64(e.Size), Refused: reason(why)})
	case e.isRegular():
		a.file(from, to, name, at, int64(e.Size))
	default:
		if target, err := from.readlink(name); err == nil {
			a.unapplied.links[target] = true
		}
		a.report("write", at, errNotRegular)
	}
}

// depthOf returns how many directories are between the workspace and an entry.
func depthOf(p string) int { return strings.Count(p, "/") }

func (a *applier) directory(from, to *dir, name, p string, why error, replaced bool) {
	sub, err := from.enter(name)
	if err != nil {
		a.unapplied.unseen = true
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
		a.made[p] = target.state()
		defer a.release(target)
	}
	a.walk(sub, target, p, err, false)
}

// keepMode reports a directory with a mode that the command changed. The mode is not applied.
func (a *applier) keepMode(from, to *dir, p string) {
	// The mode decides who can access protected names in the directory.
	if from.permissions() != to.permissions() && !a.full() {
		a.report("chmod", p, errMode)
	}
}

// checkSame returns an error if another process replaced the directory that the command worked in.
func (a *applier) checkSame(from, to *dir, replaced bool) error {
	// Only a root server has more rights than the command had.
	if !a.root {
		return nil
	}
	// The command could change only the mode, and only of its own directories.
	uid, gid := a.inWorkspace(from.Uid, from.Gid)
	same := uid == to.Uid && gid == to.Gid &&
		(int(from.Uid) == a.UID || from.permissions() == to.permissions())
	// If the command created the directory, it does not show the attributes of the earlier one.
	if replaced && to.changedSince(a.Began) || !replaced && !same {
		return errChanged
	}
	return nil
}

// isOpaque reports whether the layer hides the workspace's directory. It reads the mark of the mounted kind
// of overlay. The mark of the other kind is an ordinary attribute there, which a command can set on
// directories that it may not empty.
func (a *applier) isOpaque(d *dir) bool {
	mark := "user.overlay.opaque"
	if a.Trusted {
		mark = "trusted.overlay.opaque"
	}
	var b [1]byte
	n, err := unix.Fgetxattr(int(d.Fd()), mark, b[:])
	return err == nil && n == 1 && b[0] == 'y'
}

// mkdir creates a directory like one of the layer. Only its owner can enter it until its mode is set.
func (a *applier) mkdir(like, to *dir, name string) (*dir, error) {
	if err := unix.Mkdirat(int(to.Fd()), name, 0o700); err != nil {
		return nil, err
	}
	target, err := to.enter(name)
	if err != nil {
		return nil, err
	}
	// Between the two calls, another process may have replaced the directory, and such a directory must not
	// get a new owner.
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

// lock locks a directory until it is closed, so that no other run's changes are applied to it meanwhile. The
// lock also excludes other servers, and servers with a workspace inside this one.
func (a *applier) lock(d *dir) error {
	if a.Outcome != sandbox.Exited {
		// Nothing is applied.
		return nil
	}
	again := time.NewTicker(lockEvery)
	defer again.Stop()
	for {
		// Two runs could each create one harmless half of a repository.
		err := unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		// A file system without locks is used without them.
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			// The previous holder may have changed the directory.
			return d.refresh()
		}
		select {
		case <-a.ctx.Done():
			return errLocked
		case <-again.C:
		}
	}
}

// gitLike reports whether a directory would look like a repository without a .git directory, whose
// configuration git obeys when it is run there: it has HEAD, and either the objects and references or the
// name of their directory.
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
