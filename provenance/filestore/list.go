package filestore

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"
	"github.com/google/uuid"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// Sessions implements provenance.Reader. The time a record was written is the modification time of its file.
func (r *reader) Sessions(ctx context.Context, since time.Time) iter.Seq2[provenance.Session, error] {
	return func(yield func(provenance.Session, error) bool) {
		if r.root == nil {
			return
		}
		entries, err := fs.ReadDir(r.root.FS(), ".")
		if err != nil {
			yield(provenance.Session{}, fmt.Errorf("list sessions: %w", cause(err)))
			return
		}
		for _, w := range written(r.root, entries) {
			if !w.at.After(since) {
				return
			}
			if err := ctx.Err(); err != nil {
				yield(provenance.Session{}, err)
				return
			}
			if s, err := r.one(w.id); s != nil && !yield(*s, err) {
				return
			}
		}
	}
}

// one returns a session. If its record is broken, one returns as much of the session as can be read, and an
// error. It returns nil for a directory that does not belong to a session or has no event yet.
func (r *reader) one(id string) (*provenance.Session, error) {
	if held := r.writing(id); held != nil {
		// The store has the state of an open session in memory.
		if m := held.point(); m.tally.Session.Head.Seq > 0 {
			return &m.tally.Session, nil
		}
	}
	dir, err := r.session(id)
	if errors.Is(err, provenance.ErrCorrupt) {
		return &provenance.Session{ID: id, State: provenance.StateDamaged}, err
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	// The lock is checked before the record is read, because a session that ends in between has not crashed.
	open := r.isHeld(dir, id)
	s, err := r.read(dir, id)
	if err != nil {
		if s == nil {
			s = remains(dir, id)
			// A process that holds the lock may be about to record the first event.
			if s == nil || s.Head.Seq == 0 && r.isHeld(dir, id) {
				return nil, nil
			}
		}
		s.State = provenance.StateDamaged
		return s, err
	}
	if s.State == provenance.StateOpen && !open {
		s.State = provenance.StateCrashed
	}
	return s, nil
}

// read returns a session as of its last event, or as of the event before the first broken one. It does not
// read the events if session.json names the last of them.
func (r *reader) read(dir *os.Root, id string) (*provenance.Session, error) {
	var named uint64
	if s, err := readSessionFile(dir); err == nil && s.ID == id {
		named = s.Head.Seq
		if named > 0 && endsWith(dir, s.Head.Hash) {
			return s, nil
		}
	}
	s, err := r.foldSession(id)
	if err != nil {
		return s, err
	}
	if s.Head.Seq < named {
		return s, fmt.Errorf("session %s: %w: ends at event %d, %s names event %d",
			id, provenance.ErrCorrupt, s.Head.Seq, provenance.SessionFile, named)
	}
	return s, nil
}

// foldSession returns the session state folded from its events.
func (r *reader) foldSession(id string) (*provenance.Session, error) {
	s, err := r.fold(id, func(*provenance.Event) bool { return true })
	if s.Head.Seq > 0 {
		return &s, err
	}
	return nil, cmp.Or(err, fmt.Errorf("session %s: %w: no event", id, provenance.ErrNotFound))
}

// endsWith reports whether the last event of the record has this hash.
func endsWith(dir *os.Root, hash string) bool {
	f, err := openRegular(dir, provenance.EventsFile)
	if err != nil {
		return false
	}
	defer f.Close()
	want := []byte(`,"hash":"` + hash + "\"}\n")
	// The hash covers the whole chain, so the last line identifies the record.
	if _, err := f.Seek(-int64(len(want)), io.SeekEnd); err != nil {
		return false
	}
	tail, err := io.ReadAll(f)
	return err == nil && bytes.Equal(tail, want)
}

// isHeld reports whether a process has the session open for writing.
func (r *reader) isHeld(dir *os.Root, id string) bool {
	if info, err := dir.Lstat(provenance.LockFile); err != nil || !info.Mode().IsRegular() {
		return false
	}
	// The default flags would create the lock file, and a reader must write nothing.
	lock := flock.New(filepath.Join(r.dir, id, provenance.LockFile), flock.SetFlag(os.O_RDONLY))
	free, err := lock.TryRLock()
	if err != nil {
		return false
	}
	return lock.Close() == nil && !free
}

// remains returns a session without a readable event, from its other files, or nil if these do not belong to
// a session.
func remains(dir *os.Root, id string) *provenance.Session {
	s, err := readSessionFile(dir)
	if err != nil || s.ID != id {
		s = &provenance.Session{ID: id}
	}
	begun := slices.ContainsFunc([]string{provenance.EventsFile, provenance.SessionFile, provenance.LockFile},
		func(name string) bool {
			_, err := dir.Lstat(name)
			return err == nil
		})
	made, stamped := madeAt(id)
	if !begun && !stamped {
		return nil
	}
	if info, err := dir.Stat("."); err == nil && !stamped {
		made = info.ModTime()
	}
	if s.CreatedAt.IsZero() {
		s.CreatedAt = provenance.Stamp(made)
	}
	return s
}

// madeAt returns the time at which [provenance.NewSessionID] created id; ok is false if it did not.
func madeAt(id string) (at time.Time, ok bool) {
	named, ok := strings.CutPrefix(id, "ses_")
	when, err := uuid.Parse(named)
	if !ok || err != nil || when.Version() != 7 || when.String() != named {
		return time.Time{}, false
	}
	return time.Unix(when.Time().UnixTime()), true
}

// isSession reports whether a directory belongs to a session, including one that never began. A file in it
// proves that, unless the process was killed at once: then the directory is empty, but its name has the form
// of an ID that only this program generates.
func (r *reader) isSession(id string) bool {
	dir, err := r.session(id)
	if err != nil {
		return false
	}
	defer dir.Close()
	if s, err := readSessionFile(dir); err == nil && s.ID == id {
		return true
	}
	for e, err := range r.events(id) {
		if err == nil && e.Session == id {
			return true
		}
		// Every event names its session, so the first one is enough.
		break
	}
	regular := func(name string) bool {
		info, err := dir.Lstat(name)
		return err == nil && info.Mode().IsRegular()
	}
	_, made := madeAt(id)
	locked := regular(provenance.LockFile)
	if locked && (made || regular(provenance.EventsFile)) {
		return true
	}
	entries, err := fs.ReadDir(dir.FS(), ".")
	return err == nil && (made || locked) && !slices.ContainsFunc(entries, func(en fs.DirEntry) bool {
		return en.Name() != provenance.LockFile && !strings.HasPrefix(en.Name(), fsys.TempPrefix)
	})
}

// trashPrefix begins the name of a directory that is being deleted; no session ID begins with it.
const trashPrefix = "~gc-"

// Collect implements provenance.Reader. It deletes a session by renaming its directory and removing the
// renamed directory; after a crash in between, the next call removes it. It ignores directories other than
// sessions.
func (r *reader) Collect(
	ctx context.Context, opts provenance.CollectOptions,
) ([]provenance.Collected, error) {
	if r.root == nil {
		return nil, nil
	}
	entries, err := fs.ReadDir(r.root.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", cause(err))
	}
	if !opts.DryRun {
		if err := r.removeLeftovers(entries); err != nil {
			return nil, err
		}
	}
	var gone []provenance.Collected
	var total int64
	seen := make(map[fileID]bool)
	for i, w := range r.byLastCall(entries) {
		if err := ctx.Err(); err != nil {
			return gone, err
		}
		if opts.Total > 0 {
			size, err := r.size(w.id, seen)
			if err != nil && !errors.Is(err, provenance.ErrNotFound) {
				return gone, fmt.Errorf("measure session %s: %w", w.id, err)
			}
			total += size
		}
		if i < opts.Keep || !w.at.Before(opts.Before) && (opts.Total == 0 || total <= opts.Total) {
			continue
		}
		c := provenance.Collected{ID: w.id, Written: w.at}
		c.Bytes, c.Err = r.collect(ctx, w.id, opts)
		gone = append(gone, c)
	}
	if opts.DryRun {
		return gone, nil
	}
	return gone, emptyPool(r.root)
}

// removeLeftovers deletes the directories of sessions that were being deleted, or had not begun, when their
// process was killed.
func (r *reader) removeLeftovers(entries []fs.DirEntry) error {
	for _, en := range entries {
		if !strings.HasPrefix(en.Name(), trashPrefix) {
			continue
		}
		if err := r.root.RemoveAll(en.Name()); err != nil {
			return fmt.Errorf("collect sessions: %w", cause(err))
		}
	}
	return removeUnbegun(r.dir, r.root)
}

// byLastCall returns all sessions, the one with the latest call first. The time of writing is not enough: a
// server that exits writes to all its sessions at once.
func (r *reader) byLastCall(entries []fs.DirEntry) []writtenAt {
	all := written(r.root, entries)
	all = slices.DeleteFunc(all, func(w writtenAt) bool { return !r.isSession(w.id) })
	for i := range all {
		all[i].called = r.called(&all[i])
	}
	slices.SortStableFunc(all, func(a, b writtenAt) int { return b.called.Compare(a.called) })
	return all
}

// size returns how many bytes a session uses, without files in seen. It adds the session's shared files to
// seen.
func (r *reader) size(id string, seen map[fileID]bool) (int64, error) {
	dir, err := r.session(id)
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	return usage(dir, func(_ string, info fs.FileInfo, free bool) bool {
		id, known := identity(info)
		first := known && !free && !seen[id]
		if first {
			seen[id] = true
		}
		return free || first
	})
}

type writtenAt struct {
	id     string
	at     time.Time
	called time.Time // time of the client's last call; set by Collect only
}

// maxCalled limits how much of the end of a record is searched for the last call, in bytes.
const maxCalled = 16 << 20

// called returns the time of the client's last call in the record, or else the time the record was written.
func (r *reader) called(w *writtenAt) time.Time {
	f, err := openRegular(r.root, path.Join(w.id, provenance.EventsFile))
	if err != nil {
		return w.at
	}
	defer f.Close()
	info, err := f.Stat()
	for n := int64(4 << 10); err == nil && n <= maxCalled; n *= 16 {
		start := max(0, info.Size()-n)
		var tail []byte
		tail, err = io.ReadAll(io.NewSectionReader(f, start, info.Size()-start))
		if at := provenance.LastCall(tail); !at.IsZero() {
			return at
		}
		if start == 0 {
			break
		}
	}
	return w.at
}

// written returns all sessions with the time their record was written, latest first. Without a record, it is
// the time of the directory.
func written(root *os.Root, entries []fs.DirEntry) []writtenAt {
	var all []writtenAt
	for _, en := range entries {
		if !en.IsDir() || !provenance.ValidSessionID(en.Name()) {
			continue
		}
		info, err := root.Lstat(path.Join(en.Name(), provenance.EventsFile))
		if err != nil {
			info, err = root.Lstat(en.Name())
			if err != nil {
				continue
			}
		}
		all = append(all, writtenAt{id: en.Name(), at: info.ModTime()})
	}
	slices.SortFunc(all, func(a, b writtenAt) int {
		return cmp.Or(b.at.Compare(a.at), strings.Compare(b.id, a.id))
	})
	return all
}

// collect deletes a session if its lock is free.
func (r *reader) collect(ctx context.Context, id string,
	opts provenance.CollectOptions) (size int64, err error) {
	dir, err := r.session(id)
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	if opts.DryRun {
		if r.isHeld(dir, id) {
			return 0, provenance.ErrHeld
		}
		if err := r.noteDeleted(ctx, id, opts); err != nil {
			return 0, err
		}
		return usage(dir, nil)
	}
	if err := checkRegular(dir, provenance.LockFile); err != nil {
		return 0, fmt.Errorf("%s: %w", provenance.LockFile, err)
	}
	if opts.Release != nil && !opts.Release(ctx, id) {
		return 0, provenance.ErrHeld
	}
	lock := flock.New(filepath.Join(r.dir, id, provenance.LockFile), flock.SetPermissions(fileMode))
	free, err := lock.TryLock()
	if err != nil {
		return 0, cause(err)
	}
	if !free {
		return 0, provenance.ErrHeld
	}
	// The lock is held until the directory is renamed, so that a process that waits for it detects the
	// deletion.
	defer func() { err = errors.Join(err, lock.Close()) }()
	size, err = usage(dir, nil)
	if err != nil {
		return 0, err
	}
	// The deletion is in the register before it happens. After a crash in between, Missing would otherwise
	// report the session.
	if err := r.noteDeleted(ctx, id, opts); err != nil {
		return 0, err
	}
	// Renaming first makes the deletion atomic for readers; trash is not a session's name.
	trash := trashPrefix + rand.Text()
	if err := r.root.Rename(id, trash); err != nil {
		return 0, cause(err)
	}
	if err := fsys.SyncDir(r.root, "."); err != nil {
		return 0, cause(err)
	}
	return size, cause(r.root.RemoveAll(trash))
}

// emptyPool removes the pool files without a link in a session. Where the number of links is unknown, it
// removes all of them, and later sessions write files of their own.
func emptyPool(root *os.Root) error {
	entries, err := fs.ReadDir(root.FS(), pool)
	for _, en := range entries {
		info, failed := en.Info()
		if failed == nil {
			if n, known := links(info); known && n > 1 {
				continue
			}
			failed = root.Remove(path.Join(pool, en.Name()))
		}
		if failed != nil && !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, cause(failed))
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("collect shared files: %w", cause(err))
	}
	return nil
}
