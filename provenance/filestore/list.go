package filestore

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"
	"github.com/google/uuid"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// Sessions implements provenance.Reader. It takes the time a record was written from the file system.
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

// one returns a session; of one whose record is broken, as much as can be found out, with an error. It is
// nil for a directory that does not belong to a session, or to one that a process has only begun.
func (r *reader) one(id string) (*provenance.Session, error) {
	if held := r.writing(id); held != nil {
		// The store knows the session without reading its files.
		if m := held.point(); m.tally.Session.Head.Seq > 0 {
			return &m.tally.Session, nil
		}
	}
	dir, err := r.session(id)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	// The lock is checked before the record is read: a session that ends in between has not crashed.
	open := r.isHeld(dir, id)
	s, err := r.read(dir, id)
	if err == nil {
		if s.State == provenance.StateOpen && !open {
			s.State = provenance.StateCrashed
		}
		return s, nil
	}
	if s == nil {
		if s = remains(dir, id); s == nil || s.Head.Seq == 0 && r.isHeld(dir, id) {
			return nil, nil
		}
	}
	s.State = provenance.StateDamaged
	return s, err
}

// read returns a session as its events say, or what the events before the first broken one say. It does
// not read the events if session.json names the last of them.
func (r *reader) read(dir *os.Root, id string) (*provenance.Session, error) {
	var named uint64
	if s, err := readSessionFile(dir); err == nil && s.ID == id {
		if named = s.Head.Seq; named > 0 && endsWith(dir, s.Head.Hash) {
			return s, nil
		}
	}
	s, err := r.foldSession(id)
	if err == nil && s.Head.Seq < named {
		err = fmt.Errorf("session %s: %w: ends at event %d, %s names event %d",
			id, provenance.ErrCorrupt, s.Head.Seq, provenance.SessionFile, named)
	}
	return s, err
}

// foldSession counts the events of a session.
func (r *reader) foldSession(id string) (s *provenance.Session, err error) {
	var tally provenance.Tally
	for e, failed := range r.events(id, -1) {
		if err = failed; err == nil {
			err = tally.Add(e)
		}
		if err != nil {
			break
		}
	}
	if tally.Session.Head.Seq > 0 {
		return &tally.Session, err
	}
	return nil, cmp.Or(err, fmt.Errorf("session %s: %w: no event", id, provenance.ErrNotFound))
}

// endsWith reports whether the last line of the record has this hash.
func endsWith(dir *os.Root, hash string) bool {
	f, err := openRegular(dir, provenance.EventsFile)
	if err != nil {
		return false
	}
	defer f.Close()
	want := []byte(`,"hash":"` + hash + "\"}\n")
	// The hash covers the whole chain, so the last line is enough to recognize the record.
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
	lock := flock.New(filepath.Join(r.dir, id, provenance.LockFile), flock.SetFlag(os.O_RDONLY))
	free, err := lock.TryRLock()
	if err != nil {
		return false
	}
	return lock.Close() == nil && !free
}

// remains returns what the other files of a session without a readable event say, or nil if it has none.
func remains(dir *os.Root, id string) *provenance.Session {
	s, err := readSessionFile(dir)
	if err != nil || s.ID != id {
		s = &provenance.Session{ID: id}
	}
	begun := s.Head.Seq > 0
	for _, name := range []string{provenance.EventsFile, provenance.SessionFile, provenance.LockFile} {
		if _, err := dir.Lstat(name); err == nil {
			begun = true
		}
	}
	made, stamped := madeAt(id)
	if !begun && !stamped {
		return nil
	}
	if s.CreatedAt.IsZero() && stamped {
		s.CreatedAt = provenance.Stamp(made)
	}
	if info, err := fs.Stat(dir.FS(), "."); err == nil && s.CreatedAt.IsZero() {
		s.CreatedAt = provenance.Stamp(info.ModTime())
	}
	return s
}

// madeAt returns when [provenance.NewSessionID] made an id; ok is false for an id of another form.
func madeAt(id string) (at time.Time, ok bool) {
	named, ok := strings.CutPrefix(id, "ses_")
	when, err := uuid.Parse(named)
	if !ok || err != nil || when.Version() != 7 || when.String() != named {
		return time.Time{}, false
	}
	return time.Unix(when.Time().UnixTime()), true
}

// isSession reports whether a directory belongs to a session, possibly to one that never began, rather than
// being another directory whose name a session could have. A file in it says so, except for a session that
// was killed at once: its directory has no files, but a name that nothing else makes.
func (r *reader) isSession(id string) bool {
	dir, err := r.session(id)
	if err != nil {
		return false
	}
	defer dir.Close()
	if s, err := readSessionFile(dir); err == nil && s.ID == id {
		return true
	}
	for e, err := range r.events(id, -1) {
		if err == nil && e.Session == id {
			return true
		}
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
