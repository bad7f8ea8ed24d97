package filestore

import (
	"errors"
	"fmt"
	"io"

	"github.com/skillsd/skillsd/provenance"
)

// flushLater writes the views in the background. A failure is met again by the next reader and
// when the session is closed.
func (s *session) flushLater() {
	if s.enter() != nil {
		return
	}
	go func() {
		defer s.wg.Done()
		_ = s.writeViews()
	}()
}

// flush brings the files derived from the record up to date.
func (s *session) flush() error {
	if err := s.enter(); err != nil {
		<-s.released
		return nil
	}
	defer s.wg.Done()
	return s.writeViews()
}

// writeViews writes the views that have rows the files lack, and session.json after them, so that
// no view is older than the head session.json names.
func (s *session) writeViews() error {
	<-s.viewing
	defer func() { s.viewing <- struct{}{} }()
	m, err := s.mark(markSynced)
	if err != nil {
		return unavailable("write views", err)
	}
	if m.session.Head == s.flushed || m.session.Head.Seq == 0 {
		return nil
	}
	views, err := s.fold(m.offset)
	if err != nil {
		return fmt.Errorf("write views: %w", err)
	}
	for _, name := range provenance.ViewNames() {
		n := views.Len(name)
		if n == s.written[name] {
			continue
		}
		data, err := views.Render(name, n)
		if err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		if err := writeFile(s.dir, name, data); err != nil {
			return unavailable("write "+name, err)
		}
		s.written[name] = n
	}
	if err := s.writeSession(m.session); err != nil {
		return unavailable("write "+provenance.SessionFile, err)
	}
	s.flushed = m.session.Head
	return nil
}

func (s *session) writeSession(head provenance.Session) error {
	data, err := provenance.EncodePretty(head)
	if err != nil {
		return err
	}
	return writeFile(s.dir, provenance.SessionFile, data)
}

// fold reads the first size bytes of the record.
func (s *session) fold(size int64) (*provenance.Views, error) {
	f, err := openRegular(s.dir, provenance.EventsFile)
	if err != nil {
		return nil, err
	}
	var views provenance.Views
	sc := provenance.NewScanner(io.LimitReader(f, size))
	for err == nil {
		var e *provenance.Event
		if e, err = sc.Next(); err == nil {
			err = views.Add(e)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return &views, errors.Join(err, f.Close())
}
