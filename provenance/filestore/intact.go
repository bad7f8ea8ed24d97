package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"github.com/skillsd/skillsd/provenance"
)

// intact reports why the file that is written to is no longer the record of the session, whole and by
// its name: what was appended to it then would be lost, or would stand behind what is not the record's.
// Another process that writes between this and the append is not noticed before the next one.
func (s *session) intact() error {
	open, err := s.record.Stat()
	if err != nil {
		return err
	}
	named, err := s.store.root.Lstat(path.Join(s.id, provenance.EventsFile))
	switch {
	case err == nil && !os.SameFile(named, open), errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s was removed, moved or replaced", provenance.EventsFile)
	case err != nil && unlinked(open):
		return errReplaced
	case s.log.suspect:
		// After a write that failed half-way the log cuts the file itself.
		return nil
	case open.Size() != s.log.offset:
		return fmt.Errorf("%s has %d bytes, not the %d that were recorded: another process changed it", provenance.EventsFile, open.Size(), s.log.offset)
	}
	return nil
}
