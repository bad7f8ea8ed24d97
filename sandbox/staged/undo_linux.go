package staged

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox"
)

const (
	errLater   = refusal("changed since the run")
	errUnended = refusal("what the run left there is not recorded")
	errGone    = refusal("its content is no longer kept")
	errUnkept  = refusal("it could not be read before the run changed it")
	errHasMore = refusal("it has files that the run did not make")
	errAbove   = refusal("what was in the place of its directory cannot be returned")
)

// Run returns the entries. What it cannot return is refused with a reason.
//
// Errors: the workspace cannot be opened.
func (u *Undo) Run(ctx context.Context) ([]Undone, error) {
	top, err := openDir(u.Dir)
	if err != nil {
		return nil, err
	}
	defer top.Close()
	ctx, cancel := context.WithTimeout(ctx, u.Timeout)
	defer cancel()
	r := &undoer{Undo: u, ctx: ctx, top: top, going: map[string]bool{}, refused: map[string]bool{},
		checked: map[string]error{},
		a:       newApplier(ctx, &Layer{Outcome: sandbox.Exited, Timeout: u.Timeout}, nil)}
	changes := slices.Clone(u.Changes)
	slices.SortFunc(changes, func(a, b sandbox.Change) int { return strings.Compare(a.Path, b.Path) })
	r.stay = map[string]bool{}
	for _, c := range changes {
		r.stay[c.Path] = r.stay[path.Dir(c.Path)] || r.available(c.Before) != nil
	}
	// Entries that make way for a returned one come first, and those in a directory before it.
	for _, c := range slices.Backward(changes) {
		r.each(c, true)
	}
	for _, c := range changes {
		r.each(c, false)
	}
	if r.changed {
		err = unix.Syncfs(int(top.Fd()))
	}
	slices.SortStableFunc(r.done, func(a, b Undone) int { return strings.Compare(a.Path, b.Path) })
	return r.done, err
}

// An undoer is an Undo that is being carried out.
type undoer struct {
	*Undo
	ctx     context.Context
	top     *dir
	a       *applier        // for its locks and owners
	going   map[string]bool // entries that are removed, or would be
	refused map[string]bool
	stay    map[string]bool  // entries that are not returned, so nothing below them is removed
	checked map[string]error // of kept contents, by digest
	done    []Undone
	changed bool
}

// each handles one entry: if first is set, it removes what does not belong there, else it returns what was
// there.
func (r *undoer) each(c sandbox.Change, first bool) {
	done := Undone{Path: c.Path}
	op, err := r.entry(c, first, &done)
	if op == "" && err == nil {
		return
	}
	done.Op, done.Refused = op, reason(err)
	if first && err == nil && c.Before.Kind != sandbox.KindNone {
		// The second pass reports what takes its place.
		return
	}
	if !first && r.refused[c.Path] {
		// The first pass has reported it.
		return
	}
	r.refused[c.Path] = err != nil
	r.done = append(r.done, done)
}

// entry returns what was done with an entry, or would be in a dry run; "" for nothing.
func (r *undoer) entry(c sandbox.Change, first bool, done *Undone) (op string, err error) {
	if err := checkPath(c.Path); err != nil {
		return "write", err
	}
	if r.ctx.Err() != nil {
		return "write", r.a.stopped()
	}
	to, name, err := r.top.parent(c.Path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotDir) {
		// A directory above is missing, or is yet to be returned.
		if first || c.Before.Kind == sandbox.KindNone {
			return "", nil
		}
		if r.DryRun {
			return opOf(c.Before), r.available(c.Before)
		}
		return opOf(c.Before), err
	}
	if err != nil {
		return opOf(c.Before), err
	}
	defer to.Close()
	if !r.DryRun {
		if err := r.a.lock(to); err != nil {
			return opOf(c.Before), err
		}
	}
	return r.entryIn(to, name, c, first, done)
}

// entryIn is entry in the directory of the entry, which is locked.
func (r *undoer) entryIn(to *dir, name string, c sandbox.Change, first bool, done *Undone) (string, error) {
	op := opOf(c.Before)
	now, at, err := r.now(to, name)
	if err != nil {
		return op, err
	}
	// The first pass has removed it, or would have.
	if r.going[c.Path] {
		if c.Before.Kind == sandbox.KindNone {
			return "", nil
		}
		return op, r.put(to, name, c.Before, inode{})
	}
	if now.Same(c.Before) {
		return "", nil
	}
	replaces := now.Kind != sandbox.KindNone && now.Kind != c.Before.Kind
	if first && !replaces {
		return "", nil
	}
	done.Changed = c.After == nil || !now.Same(*c.After)
	if err := r.mayReturn(c, done.Changed); err != nil {
		return op, err
	}
	if !replaces {
		return op, r.put(to, name, c.Before, at)
	}
	if !first {
		return op, errLater
	}
	if c.Before.Kind != sandbox.KindNone && gitLike([]string{name}, to) {
		// put would refuse it.
		return op, errGit
	}
	return "delete", r.remove(to, name, c.Path, now)
}

// mayReturn returns why an entry is not returned to its state before the run; nil if it is.
func (r *undoer) mayReturn(c sandbox.Change, changedSince bool) error {
	switch {
	case r.Force || !changedSince:
	case c.After == nil:
		return errUnended
	default:
		return errLater
	}
	if err := r.available(c.Before); err != nil {
		return err
	}
	if r.stay[path.Dir(c.Path)] {
		return errAbove
	}
	return nil
}

// checkPath refuses a path that no change of a run can have.
func checkPath(p string) error {
	for name := range strings.SplitSeq(p, "/") {
		switch {
		case name == "" || name == "." || name == "..":
			return errPath
		case !sandbox.Printable(name):
			return errPrint
		case isProtected(name):
			return errName
		}
	}
	return nil
}

func opOf(before sandbox.State) string {
	switch before.Kind {
	case sandbox.KindNone:
		return "delete"
	case sandbox.KindDir:
		return "mkdir"
	case sandbox.KindLink:
		return "link"
	}
	return "write"
}

// now returns the state of an entry, and its inode if there is one.
func (r *undoer) now(to *dir, name string) (st sandbox.State, at inode, err error) {
	e, err := to.stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return sandbox.State{Kind: sandbox.KindNone}, at, nil
	}
	if err != nil {
		return st, at, err
	}
	if e.Mnt_id != to.mount {
		return st, at, errMounted
	}
	st = e.state()
	switch st.Kind {
	case sandbox.KindLink:
		st.Target, err = to.readlink(name)
	case sandbox.KindFile:
		st.Digest, err = digestOf(r.ctx, to, name)
	}
	return st, e.inode(), err
}

// digestOf returns the digest of a file.
func digestOf(ctx context.Context, in *dir, name string) (string, error) {
	f, err := in.open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return sumOf(ctx, f)
}

// sumOf returns the digest of all that in has, unless the context ends before.
func sumOf(ctx context.Context, in io.Reader) (string, error) {
	sum := sha256.New()
	if _, err := io.Copy(sum, &untilDone{ctx, in}); err != nil {
		return "", err
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), nil
}

// untilDone reads until a context ends.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

func (u *untilDone) Read(p []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, errLate
	}
	return u.r.Read(p)
}

// available returns an error if the content of an entry is missing or was changed. Nothing may make way for
// such an entry.
func (r *undoer) available(before sandbox.State) error {
	switch before.Kind {
	case sandbox.KindOther:
		return errNotRegular
	case sandbox.KindFile:
	default:
		return nil
	}
	if before.Digest == "" {
		return errUnkept
	}
	err, known := r.checked[before.Digest]
	if !known {
		err = r.check(before.Digest)
		r.checked[before.Digest] = err
	}
	return err
}

// check compares a kept content with its digest.
func (r *undoer) check(digest string) error {
	f, err := r.Open(digest)
	if err != nil {
		return errGone
	}
	defer f.Close()
	sum, err := sumOf(r.ctx, f)
	if err != nil && r.ctx.Err() != nil {
		return err
	}
	if err != nil || sum != digest {
		return errGone
	}
	return nil
}

// remove removes an entry that the run made. Of a directory only an empty one is removed.
func (r *undoer) remove(to *dir, name, p string, now sandbox.State) error {
	if now.Kind == sandbox.KindDir {
		if err := r.empty(to, name, p); err != nil {
			return err
		}
	}
	r.going[p] = true
	if r.DryRun {
		return nil
	}
	err := to.remove(name, now.Kind == sandbox.KindDir)
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
		return errHasMore
	}
	r.changed = r.changed || err == nil
	return err
}

// empty returns an error if a directory has entries that stay.
func (r *undoer) empty(to *dir, name, p string) error {
	sub, err := to.enter(name)
	if err != nil {
		return err
	}
	defer sub.Close()
	names, err := sub.names()
	for _, below := range names {
		if !r.going[path.Join(p, below)] {
			return errHasMore
		}
	}
	return err
}

// put returns an entry. at is the inode of the entry that is there, if there is one.
func (r *undoer) put(to *dir, name string, before sandbox.State, at inode) error {
	if gitLike([]string{name}, to) {
		return errGit
	}
	if r.DryRun {
		return nil
	}
	var err error
	switch before.Kind {
	case sandbox.KindDir:
		err = r.putDir(to, name, before, at)
	case sandbox.KindLink:
		err = r.putLink(to, name, before)
	default:
		err = r.putFile(to, name, before)
	}
	r.changed = r.changed || err == nil
	return err
}

func (r *undoer) putDir(to *dir, name string, before sandbox.State, at inode) error {
	err := unix.Mkdirat(int(to.Fd()), name, 0o700)
	if err != nil && (!errors.Is(err, fs.ErrExist) || at == inode{}) {
		return err
	}
	made := err == nil
	d, err := to.enter(name)
	if err != nil {
		return err
	}
	defer d.Close()
	if made {
		at = inode{}
	}
	return r.likeBefore(d, before, at)
}

// likeBefore gives a directory the owner and the permissions that it had. at is the inode that was there
// before, or zero for a new directory.
func (r *undoer) likeBefore(d *dir, before sandbox.State, at inode) error {
	mode := before.Mode&0o1777 | uint32(d.Mode)&unix.S_ISGID
	if at != (inode{}) {
		// Another process may have put a different directory in its place, and such a directory must not be
		// changed.
		if d.inode() != at || r.a.root && (d.Uid != before.UID || d.Gid != before.GID) {
			return errLater
		}
		return unix.Fchmod(int(d.Fd()), mode)
	}
	names, err := d.names()
	if err != nil || len(names) != 0 {
		return errors.Join(errLater, err)
	}
	if r.a.root {
		if d.Uid != 0 || d.permissions() != 0o700 {
			return errLater
		}
		if err := d.Chown(int(before.UID), int(before.GID)); err != nil {
			return err
		}
	}
	return unix.Fchmod(int(d.Fd()), mode)
}

func (r *undoer) putLink(to *dir, name string, before sandbox.State) error {
	temp := ".skillsd-" + rand.Text()
	if err := unix.Symlinkat(before.Target, int(to.Fd()), temp); err != nil {
		return err
	}
	var err error
	if r.a.root {
		err = unix.Fchownat(int(to.Fd()), temp, int(before.UID), int(before.GID), unix.AT_SYMLINK_NOFOLLOW)
	}
	if err == nil {
		err = unix.Renameat(int(to.Fd()), temp, int(to.Fd()), name)
	}
	if err != nil {
		_ = to.remove(temp, false)
	}
	return err
}

func (r *undoer) putFile(to *dir, name string, before sandbox.State) (err error) {
	content, err := r.Open(before.Digest)
	if err != nil {
		return errGone
	}
	defer content.Close()
	in := &incoming{to: to, name: name, temp: ".skillsd-" + rand.Text()}
	old := in.replaced()
	defer old.close()
	if err := in.create(); err != nil {
		return err
	}
	defer func() {
		err = cmp.Or(err, in.f.Close())
		if err != nil {
			in.discard()
		}
	}()
	sum, err := sumOf(r.ctx, io.TeeReader(content, in.f))
	if err != nil {
		return err
	}
	if sum != before.Digest {
		// A changed content is not written.
		return errGone
	}
	if err := r.owned(in, old, before); err != nil {
		return err
	}
	if err := in.f.Sync(); err != nil {
		return err
	}
	return in.enter()
}

// owned gives a returned file its owner, its permissions and the access list of the file that it replaces.
func (r *undoer) owned(in *incoming, old *outgoing, before sandbox.State) error {
	if r.a.root {
		if err := in.f.Chown(int(before.UID), int(before.GID)); err != nil {
			return err
		}
	} else {
		// A group that this user is not in stays the user's own.
		_ = in.f.Chown(-1, int(before.GID))
	}
	if old != nil {
		if err := CopyAccessList(in.f, old.f); err != nil {
			return err
		}
	}
	return unix.Fchmod(int(in.f.Fd()), before.Mode&0o777)
}
