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

// maxBelow is how many directories deep the deletion of a workspace's directory goes.
const maxBelow = 200

// A deletion waits until what the command made is in place: that may be what was moved from here.
type deletion struct {
	dir  string
	at   inode  // of the directory in the workspace
	name string // "" for everything that the layer's directory lacks
}

// deleteLater notes a deletion in a directory, or reports why it is refused.
func (a *applier) deleteLater(to *dir, p, name string, why error) {
	if why != nil {
		a.report("delete", cmp.Or(path.Join(p, name), "."), why)
		return
	}
	a.deletions = append(a.deletions, deletion{dir: p, at: to.inode(), name: name})
}

// deleteAll makes the deletions that wait.
func (a *applier) deleteAll(top *dir) {
	a.lost.unseen = a.lost.unseen || a.cut
	waiting := a.deletions
	a.deletions = nil // from here on each is reported
	for _, d := range waiting {
		if a.full() {
			return
		}
		if err := a.delete(top, d); err != nil {
			a.report("delete", cmp.Or(path.Join(d.dir, d.name), "."), err)
		}
	}
}

// delete makes a deletion, and reports it unless it returns an error.
func (a *applier) delete(top *dir, d deletion) error {
	to, err := top.reach(d.dir)
	if err != nil {
		return err
	}
	defer to.Close()
	if to.inode() != d.at {
		return errChanged
	}
	// The workspace itself stays locked all the time; another handle of it would wait for that.
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

// removeHidden deletes what a directory that the command replaced hides: as one change if all of it
// may go, else each entry by itself.
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

// remove deletes an entry of the workspace, unless it or something below it must stay, and reports that.
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

// deleteNames deletes entries of a directory. Its error says so if some are gone nevertheless.
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
		var e entry
		e, err = to.stat(name)
		if err == nil {
			a.noteUnlink(&e)
			err = to.remove(name, e.isDir())
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	*removed++
	a.changed = true
	return err
}

// refuseTree says why an entry cannot be deleted with everything in it.
func (a *applier) refuseTree(to *dir, name, p string) error {
	if err := a.refuse(p); err != nil {
		return err
	}
	if slices.ContainsFunc(a.protected, func(q string) bool { return strings.HasPrefix(q, p+"/") }) {
		return errHoldsPath
	}
	err := mayRemoveFrom(to)
	if err == nil {
		err = a.look(to, name, 0)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (a *applier) look(to *dir, name string, depth int) error {
	return a.visit(to, name, depth, func(sub *dir, below string) error { return a.look(sub, below, depth+1) })
}

// visit calls each with everything in a directory, after it has found nothing that forbids to delete
// the directory or file itself. What the kernel would keep is found beforehand, so that no deletion is
// begun that cannot be finished.
func (a *applier) visit(to *dir, name string, depth int, each func(*dir, string) error) error {
	e, err := to.stat(name)
	switch {
	case err != nil:
		return err
	case a.ctx.Err() != nil:
		return a.stopped()
	case depth > 0 && isProtected(name):
		return errHolds
	case depth > maxBelow:
		return errDeep
	case e.Mnt_id != to.mount:
		return errMounted
	case a.foreign(&e):
		return errChanged
	case a.kernelKeeps(to, &e):
		return unix.EPERM
	case a.moved(to, name, &e):
		return errMoved
	case !e.isDir():
		return nil
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
		return errGit // deleting one part would let a later run put another in its place
	case len(names) > 0:
		err = mayRemoveFrom(sub)
	}
	for _, below := range names {
		if err == nil {
			err = each(sub, below)
		}
	}
	return err
}

// lost is what the command made and is not in the workspace: a refused move must not delete what it
// moved, so nothing is deleted that may be among it.
type lost struct {
	sizes  map[int64]bool  // of files
	links  map[string]bool // by what they name
	unseen bool            // there is more that nobody looked at
}

// moved reports whether an entry of the workspace may be what was moved to where it is not applied.
// Files are compared by size alone: a deletion that is refused without need can be repeated, but one that
// is made in error cannot be undone. A file that was also changed is not recognised.
func (a *applier) moved(d *dir, name string, e *entry) bool {
	switch {
	case e.isDir():
		return false
	case a.lost.unseen:
		return true
	case e.isLink():
		target, err := d.readlink(name)
		return err != nil || a.lost.links[target]
	}
	return e.isRegular() && e.Size > 0 && a.lost.sizes[int64(e.Size)]
}

// foreign reports whether somebody else changed an entry since the run began. Taking away another name
// of a file changes it too.
func (a *applier) foreign(e *entry) bool { return e.changedSince(a.Began) && !a.unlinked[e.inode()] }

// noteUnlink notes that an entry is about to lose a name.
func (a *applier) noteUnlink(e *entry) {
	if !e.isDir() && e.Nlink > 1 {
		a.unlinked[e.inode()] = true
	}
}

// unchangeable are the attributes that keep even root from taking a file away, or one out of a directory.
const unchangeable = unix.STATX_ATTR_IMMUTABLE | unix.STATX_ATTR_APPEND

// kernelKeeps reports whether the kernel would not let an entry be taken out of d.
func (a *applier) kernelKeeps(d *dir, e *entry) bool {
	if e.Attributes&unchangeable != 0 {
		return true
	}
	user := os.Geteuid()
	return !a.root && d.Mode&unix.S_ISVTX != 0 && int(e.Uid) != user && int(d.Uid) != user
}

// mayRemoveFrom says why the kernel would let nothing be taken out of d.
func mayRemoveFrom(d *dir) error {
	if d.Attributes&unchangeable != 0 {
		return unix.EPERM
	}
	return unix.Faccessat(int(d.Fd()), ".", unix.W_OK|unix.X_OK, unix.AT_EACCESS)
}
