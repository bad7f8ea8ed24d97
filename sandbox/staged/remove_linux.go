package staged

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox"
)

// removeHidden deletes what a directory hides that the command had replaced: as one change when all
// of it may go, else each entry by itself.
func (a *applier) removeHidden(from *os.Root, to *place, p string) {
	entries, err := fs.ReadDir(to.root.FS(), ".")
	if err != nil {
		a.add(sandbox.Write{Path: p, Op: "delete", Refused: reason(err)})
		return
	}
	var names []string
	whole := ""
	for _, e := range entries {
		if _, err := from.Lstat(e.Name()); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		names = append(names, e.Name())
		if whole == "" {
			whole = a.refuseTree(to, e.Name(), path.Join(p, e.Name()))
		}
	}
	switch {
	case len(names) == 0:
	case whole != "":
		for _, name := range names {
			if a.full() {
				return
			}
			a.remove(to, name, path.Join(p, name), "")
		}
	default:
		w := sandbox.Write{Path: p, Op: "delete"}
		if err := a.delete(to, names); err != nil {
			w.Refused = err.Error()
		}
		a.add(w)
		if w.Refused == "" {
			a.add(sandbox.Write{Path: p, Op: "mkdir"})
		}
	}
}

// remove deletes an entry of the workspace unless it or something below it must stay.
func (a *applier) remove(to *place, name, p, refused string) bool {
	w := sandbox.Write{Path: p, Op: "delete", Refused: refused}
	if w.Refused == "" {
		w.Refused = a.refuseTree(to, name, p)
	}
	if w.Refused == "" {
		if err := a.delete(to, []string{name}); err != nil {
			w.Refused = err.Error()
		}
	}
	a.add(w)
	return w.Refused == ""
}

// delete deletes entries of a directory and says in its error when some are gone nevertheless.
func (a *applier) delete(to *place, names []string) error {
	a.removed = 0
	for _, name := range names {
		if err := a.deleteTree(to, name, 0); err != nil {
			if a.removed == 0 {
				return errors.New(reason(err))
			}
			return errors.New("deleted only in part: " + reason(err))
		}
	}
	return nil
}

func (a *applier) deleteTree(to *place, name string, depth int) error {
	err := a.visit(to, name, depth, func(sub *place, below string) error {
		a.open(sub, "")
		return a.deleteTree(sub, below, depth+1)
	})
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	if e, err := to.stat(name); err == nil {
		a.unlink(e)
	}
	if err := to.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	a.removed++
	a.changed = true
	return nil
}

// refuseTree says why an entry cannot be deleted with all that is in it.
func (a *applier) refuseTree(to *place, name, p string) string {
	if why := a.refuse(p); why != "" {
		return why
	}
	for _, q := range a.protected {
		if strings.HasPrefix(q, p+"/") {
			return "holds a protected path"
		}
	}
	err := a.keepsAll(to)
	if err == nil {
		err = a.look(to, name, 0)
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return reason(err)
}

func (a *applier) look(to *place, name string, depth int) error {
	return a.visit(to, name, depth, func(sub *place, below string) error { return a.look(sub, below, depth+1) })
}

// visit calls each with what is in a directory, after it has found nothing that forbids to delete
// the directory or file itself.
func (a *applier) visit(to *place, name string, depth int, each func(*place, string) error) (err error) {
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
	case e.mounted:
		return errMounted
	case a.foreign(e):
		return errChanged
	case a.keeps(to, e):
		return unix.EPERM
	case a.moved(to, name, e):
		return errMoved
	case !e.isDir():
		return nil
	}
	sub, err := to.enter(name)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			a.finish(sub)
		}
		sub.close()
	}()
	entries, err := fs.ReadDir(sub.root.FS(), ".")
	if err != nil {
		return err
	}
	if gitLike(entries, nil) {
		return errGit
	}
	if err := a.keepsAll(sub); err != nil && len(entries) > 0 && !a.opens(sub) {
		return err
	}
	for _, below := range entries {
		if err := each(sub, below.Name()); err != nil {
			return err
		}
	}
	return nil
}

// unchangeable are the attributes that keep even root from taking a file away, or one out of a directory.
const unchangeable = unix.STATX_ATTR_IMMUTABLE | unix.STATX_ATTR_APPEND

// keeps reports whether the kernel would let no entry like e be taken out of dir. What a deletion
// cannot finish it must not begin.
func (a *applier) keeps(dir *place, e *entry) bool {
	if e.Attributes&unchangeable != 0 {
		return true
	}
	user := os.Geteuid()
	return !a.root && dir.was.Mode&unix.S_ISVTX != 0 && int(e.Uid) != user && int(dir.was.Uid) != user
}

// keepsAll says why the kernel would let nothing be taken out of dir.
func (a *applier) keepsAll(dir *place) error {
	if dir.was.Attributes&unchangeable != 0 {
		return unix.EPERM
	}
	return unix.Faccessat(int(dir.self.Fd()), ".", unix.W_OK|unix.X_OK, unix.AT_EACCESS)
}
