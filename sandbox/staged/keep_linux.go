package staged

import (
	"errors"
	"fmt"
	"io/fs"
	"path"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox"
)

// Limits for what is kept of one run.
const (
	maxKeptBytes   = 64 << 20
	maxKeptEntries = 10_000
)

// A keeping is the list of what a run may be about to change.
type keeping struct {
	changes []sandbox.Change
	created int // of changes, those of entries that the workspace lacks
	bytes   int64
	problem string // why the changes cannot be undone
}

func (k *keeping) add(p string, before sandbox.State) {
	if k.problem != "" {
		return
	}
	k.changes = append(k.changes, sandbox.Change{Path: p, Before: before})
	k.bytes += before.Size
	if before.Kind == sandbox.KindNone {
		k.created++
	}
	switch {
	case len(k.changes)-k.created > maxKeptEntries:
		k.problem = fmt.Sprintf("it changed more than %d files", maxKeptEntries)
	case k.bytes > maxKeptBytes:
		k.problem = fmt.Sprintf("the files that it changed have more than %d MiB", maxKeptBytes>>20)
	}
}

// keep gives the Keeper of the workspace everything that the layer's changes may replace or delete. It
// returns nil if there is no Keeper or nothing to keep.
func (a *applier) keep(from, to *dir) *keeping {
	if a.Workspace.Keeper == nil || a.Outcome != sandbox.Exited {
		return nil
	}
	k := &keeping{}
	// This may be more than is then changed, because the rules for changes are applied later.
	a.gather(k, from, to, "", false)
	if len(k.changes) == 0 {
		return nil
	}
	if k.problem == "" && a.keepContents(k, to) != nil {
		k.problem = "there was no room to keep the files that it changed"
	}
	if k.problem == "" && a.Workspace.Keeper.Plan(k.changes) != nil {
		k.problem = "the files that it changed could not be kept"
	}
	return k
}

// gather lists what is in the workspace at the paths that are in the layer, like walk. to is nil for a
// directory that the workspace lacks. In a directory that the command replaced, all entries are listed.
func (a *applier) gather(k *keeping, from, to *dir, p string, replaced bool) {
	names, err := from.names()
	if err != nil || len(p) > maxPath || depthOf(p) >= maxDepth {
		// walk refuses these changes.
		return
	}
	if gitLike(names, to) {
		a.unkept[p] = errGit
		return
	}
	inLayer := make(map[string]bool, len(names))
	for _, name := range names {
		inLayer[name] = true
		at := path.Join(p, name)
		// Each created entry is one change of walk, which makes no more than these.
		if k.problem != "" || k.created >= maxWrites {
			return
		}
		// A command must not reach the limits with changes that are refused anyway.
		if a.refuse(at) != nil {
			continue
		}
		e, err := from.stat(name)
		switch {
		case err != nil:
		case e.isDir():
			a.gatherDirectory(k, from, to, name, at, replaced)
		case e.isWhiteout():
			a.gatherDeleted(k, to, name, at)
		case e.isRegular():
			a.gatherReplaced(k, to, name, at)
		}
	}
	if replaced && to != nil {
		a.gatherHidden(k, to, p, inLayer)
	}
}

// gatherHidden lists the entries of a directory of the workspace that the layer's directory lacks.
func (a *applier) gatherHidden(k *keeping, to *dir, p string, inLayer map[string]bool) {
	hidden, err := to.names()
	if err != nil {
		return
	}
	for _, name := range hidden {
		if at := path.Join(p, name); !inLayer[name] && a.refuse(at) == nil {
			a.gatherDeleted(k, to, name, at)
		}
	}
}

// gatherReplaced lists an entry of the workspace in whose place the command has a file.
func (a *applier) gatherReplaced(k *keeping, to *dir, name, p string) {
	if to != nil {
		e, err := to.stat(name)
		if err == nil && e.isDir() {
			// The whole directory makes way.
			a.gatherDeleted(k, to, name, p)
			return
		}
	}
	a.gatherTree(k, to, name, p, 0)
}

// gatherDeleted lists an entry of the workspace that the command deleted, and everything below it. It reports
// whether the deletion is possible. If it is not, it is refused later even if it is possible then.
func (a *applier) gatherDeleted(k *keeping, to *dir, name, p string) bool {
	if to != nil {
		if err := a.refuseTree(to, name, p); err != nil {
			// Nothing is kept for it.
			a.unkept[p] = err
			return false
		}
	}
	a.gatherTree(k, to, name, p, 0)
	return true
}

func (a *applier) gatherDirectory(k *keeping, from, to *dir, name, p string, replaced bool) {
	sub, err := from.enter(name)
	if err != nil {
		return
	}
	defer sub.Close()
	if to == nil {
		k.add(p, sandbox.State{Kind: sandbox.KindNone})
		a.gather(k, sub, nil, p, false)
		return
	}
	target, err := to.enter(name)
	if err == nil {
		defer target.Close()
		a.gather(k, sub, target, p, replaced || a.isOpaque(sub))
		return
	}
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errNotDir) {
		return
	}
	if a.gatherDeleted(k, to, name, p) {
		a.gather(k, sub, nil, p, false)
	}
}

// gatherTree lists an entry of the workspace and everything below it. to may be nil.
func (a *applier) gatherTree(k *keeping, to *dir, name, p string, depth int) {
	none := sandbox.State{Kind: sandbox.KindNone}
	if to == nil {
		k.add(p, none)
		return
	}
	e, err := to.stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		k.add(p, none)
		return
	case err != nil, e.Mnt_id != to.mount, depth > maxBelow, k.problem != "":
		// Such entries are not changed.
		return
	}
	st := e.state()
	if e.isLink() {
		st.Target, _ = to.readlink(name)
	}
	k.add(p, st)
	if !e.isDir() {
		return
	}
	sub, err := to.enter(name)
	if err != nil {
		return
	}
	defer sub.Close()
	names, err := sub.names()
	if err != nil {
		return
	}
	for _, below := range names {
		a.gatherTree(k, sub, below, path.Join(p, below), depth+1)
	}
}

// keepContents gives the content of the listed files to the Keeper. A file that cannot be read has no digest
// afterwards.
func (a *applier) keepContents(k *keeping, top *dir) error {
	if err := a.Workspace.Keeper.Room(k.bytes); err != nil {
		return err
	}
	for i := range k.changes {
		before := &k.changes[i].Before
		if before.Kind != sandbox.KindFile {
			continue
		}
		if a.ctx.Err() != nil {
			return a.stopped()
		}
		in, name, err := top.parent(k.changes[i].Path)
		if err != nil {
			continue
		}
		f, err := in.open(name)
		_ = in.Close()
		if err != nil {
			continue
		}
		before.Digest, err = a.Workspace.Keeper.Keep(f)
		_ = f.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// settle returns the changes of a keeping that were made, with what is there now.
func (a *applier) settle(k *keeping, top *dir) *sandbox.Kept {
	if k == nil {
		return nil
	}
	kept := &sandbox.Kept{Problem: k.problem}
	for _, c := range k.changes {
		now, made := a.made[c.Path]
		if !made {
			// An entry that was not written is unchanged, or was deleted.
			if c.Before.Kind == sandbox.KindNone || !gone(top, c.Path) {
				continue
			}
			now = sandbox.State{Kind: sandbox.KindNone}
		}
		c.After = &now
		kept.Changes = append(kept.Changes, c)
	}
	return kept
}

// gone reports whether there is nothing at a path of the workspace.
func gone(top *dir, p string) bool {
	in, name, err := top.parent(p)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotDir)
	}
	defer in.Close()
	_, err = in.stat(name)
	return errors.Is(err, fs.ErrNotExist)
}

// state returns the state of an entry, without the digest of a file and the target of a link.
func (e *entry) state() sandbox.State {
	st := sandbox.State{Kind: sandbox.KindOther, UID: e.Uid, GID: e.Gid}
	switch e.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		st.Kind, st.Mode, st.Size = sandbox.KindFile, e.permissions(), int64(e.Size)
	case unix.S_IFDIR:
		st.Kind, st.Mode = sandbox.KindDir, e.permissions()|uint32(e.Mode)&unix.S_ISVTX
	case unix.S_IFLNK:
		st.Kind = sandbox.KindLink
	}
	return st
}
