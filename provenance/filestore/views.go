package filestore

import (
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/skillsd/skillsd/provenance"
)

// maxWriting bounds how many sessions write their views at the same time, and with it the descriptors and
// the memory needed if many end together.
const maxWriting = 8

// viewPatience is how long a session that is being released waits for file descriptors.
const viewPatience = 5 * time.Second

// flush brings the files derived from the record up to date.
func (s *session) flush() error {
	if s.enter() != nil {
		<-s.released
		return nil
	}
	defer s.wg.Done()
	return s.writeViews()
}

// writeViews writes the views that have rows which their files lack, and session.json after them, so that no
// view is older than the head that session.json names.
func (s *session) writeViews() error {
	s.viewing.Lock()
	defer s.viewing.Unlock()
	m, err := s.mark(true)
	if err != nil {
		return unavailable("write views", err)
	}
	if head := m.tally.Session.Head; head == s.views.tally.Session.Head || head.Seq == 0 {
		return nil
	}
	s.store.viewing <- struct{}{}
	defer func() { <-s.store.viewing }()
	dir, err := s.openDir()
	if err != nil {
		return unavailable("write views", err)
	}
	defer dir.Close()
	if err := s.views.write(dir, m); err != nil {
		return err
	}
	if err := writeSession(dir, m.tally.Session); err != nil {
		return unavailable("write "+provenance.SessionFile, err)
	}
	s.views.tally, s.views.offset = m.tally, m.offset
	// Without a pause in proportion to its size, a long record would be copied all the time.
	var size int64
	for _, f := range s.views.files {
		size += f.info.Size()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = time.Now().Add(time.Duration(size/viewRate) * time.Second)
	return nil
}

// patiently calls do for a session that is being released. At the limit of descriptors, it waits until other
// sessions that are being released free theirs.
func patiently(do func() error) error {
	for end := time.Now().Add(viewPatience); ; time.Sleep(10 * time.Millisecond) {
		err := do()
		if !atLimit(err) || time.Now().After(end) {
			return err
		}
	}
}

// atLimit reports whether err says that there are no file descriptors left.
func atLimit(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

func writeSession(dir *os.Root, head provenance.Session) error {
	data, err := provenance.EncodePretty(head)
	if err != nil {
		return err
	}
	return writeFile(dir, provenance.SessionFile, data, fileMode)
}
