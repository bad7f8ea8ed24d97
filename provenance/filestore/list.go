package filestore

import (
	"bytes"
	"context"
	"errors"
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

	"github.com/skillsd/skillsd/provenance"
)

// List returns the sessions below dir, newest first, without opening them for writing. One that is
// neither ended nor held by a process is crashed; its numbers, and those of an open one, are
// counted from its events. One whose record is missing, empty, broken or shorter than session.json
// says is damaged, with as much as can still be told of it; a server that was killed before it recorded
// the first event leaves the same as one whose record was emptied. A directory that holds no file of a
// session is left out, and so is one that a process has only begun.
//
// Errors: that of reading dir; a dir that does not exist has no sessions.
func List(dir string) ([]provenance.Session, error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	var list []provenance.Session
	for _, en := range entries {
		if !en.IsDir() || !provenance.ValidSessionID(en.Name()) {
			continue
		}
		if s := listed(root, dir, en.Name()); s != nil {
			list = append(list, *s)
		}
	}
	slices.SortFunc(list, func(a, b provenance.Session) int {
		if c := b.CreatedAt.Compare(a.CreatedAt.Time); c != 0 {
			return c
		}
		return strings.Compare(b.ID, a.ID)
	})
	return list, nil
}

// Sessions implements provenance.Store. When the record of a session was written is what the file
// system says.
func (st *Store) Sessions(ctx context.Context, since time.Time) iter.Seq2[provenance.Session, error] {
	return func(yield func(provenance.Session, error) bool) {
		all, err := written(st.root)
		if err != nil {
			yield(provenance.Session{}, err)
			return
		}
		for _, w := range all {
			if !w.at.After(since) {
				return
			}
			if err := ctx.Err(); err != nil {
				yield(provenance.Session{}, err)
				return
			}
			s, err := st.one(w.id)
			if err != nil {
				s = provenance.Session{ID: w.id}
			}
			if !yield(s, err) {
				return
			}
		}
	}
}

// one returns a session, of one that this store holds without reading it.
func (st *Store) one(id string) (provenance.Session, error) {
	if s := st.held(id); s != nil {
		m, err := s.mark(markWritten)
		if err == nil && m.tally.Session.Head.Seq > 0 {
			return m.tally.Session, nil
		}
	}
	s, err := readSession(st.root, st.dir, id)
	if err != nil {
		return provenance.Session{}, err
	}
	return *s, nil
}

// readSession returns a session as its events say, with what can be read of one whose record is
// broken. The events are not read when session.json names the last of them.
func readSession(root *os.Root, base, id string) (*provenance.Session, error) {
	dir, err := openSession(root, id)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	held := isHeld(dir, filepath.Join(base, id))
	s, err := readSessionFile(dir)
	if err != nil || s.ID != id || s.Head.Seq == 0 || !endsWith(dir, s.Head.Hash) {
		var named uint64
		if err == nil && s.ID == id {
			named = s.Head.Seq
		}
		if s, err = foldSession(root, id); s == nil {
			return nil, err
		}
		if err == nil && s.Head.Seq < named {
			err = fmt.Errorf("session %s: %w: ends at event %d, %s names event %d", id, provenance.ErrCorrupt, s.Head.Seq, provenance.SessionFile, named)
		}
	}
	if s.State == provenance.StateOpen && !held {
		s.State = provenance.StateCrashed
	}
	return s, err
}

// foldSession counts the events of a session.
func foldSession(root *os.Root, id string) (*provenance.Session, error) {
	var tally provenance.Tally
	var failed error
	for e, err := range readEvents(root, id, -1) {
		if err == nil {
			err = tally.Add(e)
		}
		if err != nil {
			failed = err
			break
		}
	}
	if tally.Session.Head.Seq == 0 {
		if failed == nil {
			failed = fmt.Errorf("session %s: %w: no event", id, provenance.ErrNotFound)
		}
		return nil, failed
	}
	return &tally.Session, failed
}

// endsWith reports whether the last line of the record has this hash.
func endsWith(dir *os.Root, hash string) bool {
	f, err := openRegular(dir, provenance.EventsFile)
	if err != nil {
		return false
	}
	defer f.Close()
	want := []byte(`,"hash":"` + hash + "\"}\n")
	info, err := f.Stat()
	if err != nil || info.Size() < int64(len(want)) {
		return false
	}
	tail := make([]byte, len(want))
	_, err = f.ReadAt(tail, info.Size()-int64(len(want)))
	return (err == nil || errors.Is(err, io.EOF)) && bytes.Equal(tail, want)
}

// isHeld reports whether a process has the session open for writing.
func isHeld(dir *os.Root, base string) bool {
	if info, err := dir.Lstat(provenance.LockFile); err != nil || !info.Mode().IsRegular() {
		return false
	}
	lock := flock.New(filepath.Join(base, provenance.LockFile), flock.SetFlag(os.O_RDONLY))
	free, err := lock.TryRLock()
	if err != nil {
		return false
	}
	return lock.Close() == nil && !free
}
