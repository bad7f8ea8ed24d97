package staged

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox"
)

// A mode is what a directory of the workspace gets once all changes are in it.
type mode struct {
	set  bool
	told bool // as a change; else the directory gets its own mode again
	bits uint32
	path string
}

// settle notes which mode a directory of the workspace gets that the command worked in. One that was
// copied up for what is below has the mode it had.
func (a *applier) settle(self *os.File, target *place, p string) {
	var st unix.Stat_t
	e, err := target.statx("", unix.AT_EMPTY_PATH) // again, since it is locked
	if err = errors.Join(err, unix.Fstat(int(self.Fd()), &st)); err != nil {
		a.chmodRefused(p, err)
		return
	}
	target.was = e
	old, asked := uint32(target.was.Mode), st.Mode&0o777
	changed := target.was.changedSince(a.Began)
	if !changed {
		a.open(target, p)
	}
	if asked == old&0o777 || a.full() {
		return
	}
	if err := a.keepsMode(target, p); err != nil || changed {
		if err == nil {
			err = errChanged
		}
		a.chmodRefused(p, err)
		return
	}
	bits := old&0o7700 | asked&0o755 | asked&old&0o022
	if bits&0o777 != asked {
		a.chmodRefused(p, errShared)
	}
	if bits != old&0o7777 {
		target.then = mode{set: true, told: true, bits: bits, path: p}
	}
}

// keepsMode says why the mode of a directory stays: who may enter it decides who reaches what no
// command changes.
func (a *applier) keepsMode(target *place, p string) error {
	for _, q := range a.protected {
		if strings.HasPrefix(q, p+"/") {
			return errHolds
		}
	}
	return a.holds(target, 0)
}

// holds says whether something protected lies below a directory.
func (a *applier) holds(dir *place, depth int) error {
	if depth > maxBelow {
		return errDeep
	}
	if a.ctx.Err() != nil {
		return a.stopped()
	}
	entries, err := fs.ReadDir(dir.root.FS(), ".")
	if err != nil {
		return err
	}
	if gitLike(entries, nil) {
		return errGit
	}
	for _, e := range entries {
		if isProtected(e.Name()) {
			return errHolds
		}
		if !e.IsDir() {
			continue
		}
		sub, err := dir.enter(e.Name())
		if err != nil {
			return err
		}
		err = a.holds(sub, depth+1)
		sub.close()
		if err != nil {
			return err
		}
	}
	return nil
}

// open lets a server of an ordinary user's change what is in a directory of his that he had closed to
// himself, as the command must have done to change it.
func (a *applier) open(p *place, path string) {
	old := uint32(p.was.Mode) & 0o7777
	if old&0o300 != 0o300 && a.opens(p) && unix.Fchmod(int(p.self.Fd()), old|0o300) == nil {
		p.then = mode{set: true, bits: old, path: path}
	}
}

// opens reports whether open may change the directory's mode.
func (a *applier) opens(p *place) bool {
	return !a.root && int(p.was.Uid) == os.Geteuid() && a.Outcome == sandbox.Exited &&
		p.was.Attributes&unchangeable == 0 && !p.was.changedSince(a.Began)
}

// finish gives a directory its mode.
func (a *applier) finish(p *place) {
	if !p.then.set {
		return
	}
	err := unix.Fchmod(int(p.self.Fd()), p.then.bits)
	switch {
	case err != nil:
		a.chmodRefused(p.then.path, err)
	case p.then.told:
		a.add(sandbox.Write{Path: p.then.path, Op: "chmod"})
	}
}

// top tells that the mode of the workspace itself, which is the operator's grant, does not change.
func (a *applier) top(to *place) {
	var st unix.Stat_t
	if err := unix.Fstat(int(a.Upper.Fd()), &st); err == nil && st.Mode&0o777 != uint32(to.was.Mode)&0o777 && !to.was.changedSince(a.Began) {
		a.chmodRefused(".", errTop)
	}
}

func (a *applier) chmodRefused(p string, err error) {
	a.add(sandbox.Write{Path: p, Op: "chmod", Refused: reason(err)})
}
