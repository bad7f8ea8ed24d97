package staged

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxBelow is the maximum depth of a directory tree that can be deleted.
const maxBelow = 200

// A deletion is deferred until the command's other changes are applied, because one of them may be the moved
// file.
type deletion struct {
	dir  string
	at   inode  // of the directory in the workspace
	name string // "" for all entries that the layer's directory lacks
}

// deleteLater defers a deletion in a directory, or reports why it is refused.
func (a *applier) deleteLater(to *dir, p, name string, why error) {
	if why != nil {
		a.report("delete", cmp.Or(path.Join(p, name), "."), why)
		return
	}
	a.deletions = append(a.deletions, deletion{dir: p, at: to.inode(), name: name})
}

// deleteAll performs the deferred deletions.
func (a *applier) deleteAll(top *dir) {
	a.unapplied.unseen = a.unapplied.unseen || a.cut
	waiting := a.deletions
	// From here on, each deletion is reported instead.
	a.deletions = nil
	for _, d := range waiting {
		if a.full() {
			return
		}
		if err := a.delete(top, d); err != nil {
			a.report("delete", cmp.Or(path.Join(d.dir, d.name), "."), err)
		}
	}
}

// delete performs a deletion, and reports it unless it returns an error.
func (a *applier) delete(top *dir, d deletion) error {
	to, err := top.reach(d.dir)
	if err != nil {
		return err
	}
	defer to.Close()
	if to.inode() != d.at {
		return errChanged
	}
	// The workspace's top directory is locked already, and locking another handle of it would block.
	if d.dir != "" {
		if err := a.lock(to); err != nil {
			return err
		}
	}
	if d.name != "" {
		a.remove(to, d.name, path.Join(d.dir, d.name), nil)
		return nil
	}
	from, err := a.layer.reach(d.dir)
	if err != nil {
		return errUnreadDir
	}
	defer from.Close()
	return a.removeHidden(from, to, d.dir)
}

// removeHidden deletes the entries hidden by a directory that the command replaced: as one change if all may
// be deleted, otherwise each entry by itself.
func (a *applier) removeHidden(from, to *dir, p string) error {
	names, err := to.names()
	if err != nil {
		return err
	}
	var why error
	names = slices.DeleteFunc(names, func(name string) bool {
		if _, err := from.stat(name); !errors.Is(err, fs.ErrNotExist) {
			return true
		}
		if why == nil {
			why = a.refuseTree(to, name, path.Join(p, name))
		}
		return false
	})
	switch {
	case len(names) == 0:
	case why != nil:
		for _, name := range names {
			if a.full() {
				break
			}
			a.remove(to, name, path.Join(p, name), nil)
		}
	default:
		err := a.deleteNames(to, names...)
		a.report("delete", p, err)
		if err == nil {
			a.report("mkdir", p, nil)
		}
	}
	return nil
}

// remove deletes an entry of the workspace, unless it or something below it must stay, and reports the
// outcome.
func (a *applier) remove(to *dir, name, p string, why error) (done bool) {
	if why == nil {
		why = a.refuseTree(to, name, p)
	}
	if why == nil {
		why = a.deleteNames(to, name)
	}
	a.report("delete", p, why)
	return why == nil
}

// deleteNames deletes entries of a directory. If it fails after some are deleted, the error states that.
func (a *applier) deleteNames(to *dir, names ...string) error {
	removed := 0
	for _, name := range names {
		if err := a.deleteTree(to, name, 0, &removed); err != nil {
			if removed > 0 {
				return refusal("deleted only in part: " + reason(err))
			}
			return err
		}
	}
	return nil
}

func (a *applier) deleteTree(to *dir, name string, depth int, removed *int) error {
	err := a.visit(to, name, depth, func(sub *dir, below string) error {
		return a.deleteTree(sub, below, depth+1, removed)
	})
	if err == nil {
		err = a.unlink(to, name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	*removed++
	a.changed = true
	return nil
}

// unlink deletes a file or an empty directory.
func (a *applier) unlink(to *dir, name string) error {
	e, err := to.stat(name)
	if err != nil {
		return err
	}
	a.noteUnlink(&e)
	return to.remove(name, e.isDir())
}

// refuseTree returns the reason why an entry cannot be deleted with everything below it, or nil.
func (a *applier) refuseTree(to *dir, name, p string) error {
	if err := cmp.Or(a.refuse(p), a.unkept[p]); err != nil {
		return err
	}
	if slices.ContainsFunc(a.protected, func(q string) bool { return strings.HasPrefix(q, p+"/") }) {
		return errHoldsPath
	}
	if err := mayRemoveFrom(to); err != nil {
		return err
	}
	err := a.look(to, name, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (a *applier) look(to *dir, name string, depth int) error {
	return a.visit(to, name, depth, func(sub *dir, below string) error { return a.look(sub, below, depth+1) })
}

// visit checks that a directory or file may be deleted, then calls each for every entry of the directory. It
// also checks for entries that the kernel would refuse to delete, so that no deletion starts that cannot be
// completed.
func (a *applier) visit(to *dir, name string, depth int, each func(*dir, string) error) error {
	e, err := to.stat(name)
	if err != nil {
		return err
	}
	if err := a.mayDelete(to, name, depth, &e); err != nil || !e.isDir() {
		return err
	}
	sub, err := to.enter(name)
	if err != nil {
		return err
	}
	defer sub.Close()
	names, err := sub.names()
	switch {
	case err != nil:
		return err
	case gitLike(names, nil):
		// Deleting one part would let a later run replace it.
		return errGit
	case len(names) == 0:
		return nil
	}
	if err := mayRemoveFrom(sub); err != nil {
		return err
	}
	for _, below := range names {
		if err := each(sub, below); err != nil {
			return err
		}
	}
	return nil
}

// mayDelete returns the reason why an entry is not deleted, whatever is below it, or nil.
func (a *applier) mayDelete(to *dir, name string, depth int, e *entry) error {
	switch {
	case a.ctx.Err() != nil:
		return a.stopped()
	case depth > 0 && isProtected(name):
		return errHolds
	case depth > maxBelow:
		return errDeep
	case e.Mnt_id != to.mount:
		return errMounted
	case a.foreign(e):
		return errChanged
	case a.kernelKeeps(to, e):
		return unix.EPERM
	case a.moved(to, name, e):
		return errMoved
	default:
		return nil
	}
}

// unapplied describes entries that the command created but that are not in the workspace. If a move was
// refused, its source must not be deleted, so no entry is deleted that may be one of them.
type unapplied struct {
	sizes  map[int64]bool  // of files
	links  map[string]bool // by target
	unseen bool            // there are entries that could not be examined
}

// moved reports whether an entry of the workspace may be the source of a refused move. Files are compared
// only by size. A file that was also changed is not recognized.
func (a *applier) moved(d *dir, name string, e *entry) bool {
	switch {
	case e.isDir():
		return false
	case a.unapplied.unseen:
		return true
	case e.isLink():
		target, err := d.readlink(name)
		return err != nil || a.unapplied.links[target]
	}
	// An unnecessary refusal can be repeated, but a wrong deletion cannot be undone.
	return e.isRegular() && e.Size > 0 && a.unapplied.sizes[int64(e.Size)]
}

// foreign reports whether another process changed an entry since the run began. Unlinking another name of a
// file also changes its ctime, so files unlinked here are excluded.
func (a *applier) foreign(e *entry) bool { return e.changedSince(a.Began) && !a.unlinked[e.inode()] }

// noteUnlink records that an entry is about to lose a name.
func (a *applier) noteUnlink(e *entry) {
	if !e.isDir() && e.Nlink > 1 {
		a.unlinked[e.inode()] = true
	}
}

// unchangeable are the attributes that prevent even root from deleting a file, or an entry of a directory.
const unchangeable = unix.STATX_ATTR_IMMUTABLE | unix.STATX_ATTR_APPEND

// kernelKeeps reports whether the kernel would refuse to delete an entry of d.
func (a *applier) kernelKeeps(d *dir, e *entry) bool {
	if e.Attributes&unchangeable != 0 {
		return true
	}
	user := os.Geteuid()
	return !a.root && d.Mode&unix.S_ISVTX != 0 && int(e.Uid) != user && int(d.Uid) != user
}

// mayRemoveFrom returns an error if the kernel would refuse to delete any entry of d.
func mayRemoveFrom(d *dir) error {
	if d.Attributes&unchangeable != 0 {
		return unix.EPERM
	}
	return unix.Faccessat(int(d.Fd()), ".", unix.W_OK|unix.X_OK, unix.AT_EACCESS)
}
