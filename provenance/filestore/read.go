package filestore

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gofrs/flock"

	"github.com/skillsd/skillsd/provenance"
)

// maxSessionFile bounds what is read of a session.json, in bytes.
const maxSessionFile = 1 << 20

// List returns the sessions below dir, newest first, without opening them for writing. One that is
// neither ended nor held by a process is crashed; its numbers, and those of an open one, are
// counted from its events. A directory without a readable event is left out.
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
		s, err := readSession(root, dir, en.Name())
		if err == nil {
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

func readSession(root *os.Root, base, id string) (*provenance.Session, error) {
	dir, err := openSession(root, id)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	held := isHeld(base, id)
	s, err := readSessionFile(dir)
	if err == nil && s.ID == id && s.State == provenance.StateEnded && !held {
		return s, nil
	}
	var tally provenance.Tally
	for e, err := range readEvents(root, id, -1) {
		if err == nil {
			err = tally.Add(e)
		}
		if err != nil {
			// What comes before a broken line still says which session this is.
			break
		}
	}
	if tally.Session.Head.Seq == 0 {
		return nil, fmt.Errorf("session %s: %w", id, provenance.ErrNotFound)
	}
	if tally.Session.State == provenance.StateOpen && !held {
		tally.Session.State = provenance.StateCrashed
	}
	return &tally.Session, nil
}

func readSessionFile(dir *os.Root) (*provenance.Session, error) {
	data, err := readFile(dir, provenance.SessionFile, maxSessionFile)
	if err != nil {
		return nil, err
	}
	var s provenance.Session
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("%w: %v", provenance.ErrCorrupt, err)
	}
	return &s, nil
}

// isHeld reports whether a process has the session open for writing.
func isHeld(base, id string) bool {
	lock := flock.New(filepath.Join(base, id, provenance.LockFile), flock.SetFlag(os.O_RDONLY))
	free, err := lock.TryRLock()
	if err != nil {
		return false
	}
	return lock.Close() == nil && !free
}

// ReadEvents yields the events of a session below dir in order, checking the chain, without
// opening it for writing. A torn last line ends the iteration without an error.
//
// Errors: provenance.ErrNotFound, provenance.ErrCorrupt.
func ReadEvents(dir, id string) iter.Seq2[*provenance.Event, error] {
	return func(yield func(*provenance.Event, error) bool) {
		root, err := os.OpenRoot(dir)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("session %.60q: %w", id, provenance.ErrNotFound)
		}
		if err != nil {
			yield(nil, err)
			return
		}
		defer root.Close()
		for e, err := range readEvents(root, id, -1) {
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// readEvents yields the events in the first limit bytes, or all when limit is negative.
func readEvents(root *os.Root, id string, limit int64) iter.Seq2[*provenance.Event, error] {
	return func(yield func(*provenance.Event, error) bool) {
		dir, err := openSession(root, id)
		if err != nil {
			yield(nil, err)
			return
		}
		defer dir.Close()
		f, err := openRegular(dir, provenance.EventsFile)
		if err != nil {
			yield(nil, fmt.Errorf("session %s: %s: %w", id, provenance.EventsFile, err))
			return
		}
		defer f.Close()
		var r io.Reader = f
		if limit >= 0 {
			r = io.LimitReader(f, limit)
		}
		sc := provenance.NewScanner(r)
		for {
			e, err := sc.Next()
			if errors.Is(err, io.EOF) || errors.Is(err, provenance.ErrTorn) {
				return
			}
			if err != nil {
				yield(nil, fmt.Errorf("session %s: %s:%d: %w", id, provenance.EventsFile, sc.Line, err))
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// readFile reads a regular file of at most limit bytes.
func readFile(dir *os.Root, name string, limit int64) ([]byte, error) {
	f, err := openRegular(dir, name)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s is over %d bytes", name, limit)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, cause(err)
	}
	return data, nil
}
