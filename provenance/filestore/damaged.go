package filestore

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/skillsd/skillsd/provenance"
)

// listed returns a session as List has it, or nil for a directory that is none.
func listed(root *os.Root, base, id string) *provenance.Session {
	s, err := readSession(root, base, id)
	if err == nil {
		return s
	}
	dir, err := openSession(root, id)
	if err != nil {
		return nil
	}
	defer dir.Close()
	if s == nil {
		if s = remains(dir, id); s == nil {
			return nil
		}
		if s.Head.Seq == 0 && isHeld(dir, filepath.Join(base, id)) {
			return nil
		}
	}
	s.State = provenance.StateDamaged
	return s
}

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
	named, stamped := strings.CutPrefix(id, "ses_")
	when, err := uuid.Parse(named)
	stamped = stamped && err == nil && when.Version() == 7
	if !begun && !stamped {
		return nil
	}
	if s.CreatedAt.IsZero() && stamped {
		s.CreatedAt = provenance.Stamp(time.Unix(when.Time().UnixTime()))
	}
	if info, err := fs.Stat(dir.FS(), "."); err == nil && s.CreatedAt.IsZero() {
		s.CreatedAt = provenance.Stamp(info.ModTime())
	}
	return s
}
