package filestore

import (
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// remains tells of a session without a readable event what its other files do, or nil when it has none.
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

// madeAt is when an id was made by [provenance.NewSessionID]; ok is false for an id of another form.
func madeAt(id string) (at time.Time, ok bool) {
	named, ok := strings.CutPrefix(id, "ses_")
	when, err := uuid.Parse(named)
	if !ok || err != nil || when.Version() != 7 || when.String() != named {
		return time.Time{}, false
	}
	return time.Unix(when.Time().UnixTime()), true
}

// isSession reports whether a directory is one of a session, maybe of one that never began, and nothing
// that merely lies beside them under a name that a session could have: it has a file that says so. The
// directory of a session that was killed at once has none, but a name that nobody else gives.
func (r *reader) isSession(id string) bool {
	dir, err := r.session(id)
	if err != nil {
		return false
	}
	defer dir.Close()
	if s, err := readSessionFile(dir); err == nil && s.ID == id || r.beginsRecord(id) {
		return true
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

// beginsRecord reports whether the first line of a record is an event of the session.
func (r *reader) beginsRecord(id string) bool {
	for e, err := range r.events(id, -1) {
		return err == nil && e.Session == id
	}
	return false
}
