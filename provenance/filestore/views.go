package filestore

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// viewRate is the average rate at which an active session writes views, in bytes per second.
const viewRate = 1 << 20

// viewFiles are the views of a session as last written. The next version copies their rows and reads only
// later events: with 100,000 events, that is 30 times faster than building the views anew, and readers of a
// view wait for it. It is not safe for concurrent use.
type viewFiles struct {
	scanPoint // the end of the events that all views include
	files     map[string]viewFile
}

// viewFile is a view on disk. It may be newer than the others if writing them failed.
type viewFile struct {
	rows  int
	end   int64 // offset in the record of the end of its events
	info  os.FileInfo
	lists []cfharness.Span // the spans of the rows
}

// write updates the views to m.
func (v *viewFiles) write(dir *os.Root, m scanPoint) (err error) {
	writers, err := v.openWriters(dir, m)
	defer func() {
		for _, w := range writers {
			err = errors.Join(err, w.discard(dir))
		}
	}()
	if err != nil || len(writers) == 0 {
		return err
	}
	after := v.scanPoint
	if slices.ContainsFunc(writers, func(w *viewWriter) bool { return w.from == 0 }) {
		// At least one view cannot be copied, so this pass reads all events.
		after = scanPoint{}
	}
	// policy-trace.json has two lists, which one pass cannot write concurrently.
	for list := range 2 {
		if err := writeLists(dir, writers, list, after, m.offset); err != nil {
			return err
		}
	}
	files := make(map[string]viewFile)
	for _, w := range writers {
		f, err := w.finish(dir)
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, cause(err))
		}
		f.end = m.offset
		files[w.name] = f
	}
	if err := fsys.SyncDir(dir, "."); err != nil {
		return err
	}
	if v.files == nil {
		v.files = make(map[string]viewFile)
	}
	maps.Copy(v.files, files)
	return nil
}

// openWriters opens a writer for each view that lacks rows of m. After an error, it returns those that are
// open.
func (v *viewFiles) openWriters(dir *os.Root, m scanPoint) (writers []*viewWriter, err error) {
	for _, name := range provenance.ViewNames() {
		old, ok := v.files[name]
		if m.tally.Rows(name) == 0 || ok && old.rows == m.tally.Rows(name) {
			continue
		}
		w := &viewWriter{name: name, rows: m.tally.Rows(name)}
		if err := w.open(dir, old, &m.tally); err != nil {
			return writers, fmt.Errorf("%s: %w", name, cause(err))
		}
		writers = append(writers, w)
	}
	return writers, nil
}

// scanPoint is a position between two events of a record.
type scanPoint struct {
	tally  fold
	offset int64
}

// writeLists writes list number list of each view in one pass over the events.
func writeLists(dir *os.Root, writers []*viewWriter, list int, from scanPoint, end int64) (err error) {
	var having []*viewWriter
	for _, w := range writers {
		if list >= len(w.Spans) {
			continue
		}
		having = append(having, w)
		w.Begin(list)
		if list < len(w.lists) {
			if err := w.Copy(w.old, w.lists[list]); err != nil {
				return cause(err)
			}
		}
	}
	if len(having) == 0 {
		return nil
	}
	f, err := openRegular(dir, provenance.EventsFile)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	sc := provenance.NewScanner(io.NewSectionReader(f, from.offset, end-from.offset))
	sc.Tally = from.tally.Tally
	at := from.offset
	for e, err := range sc.All() {
		if err != nil {
			return err
		}
		for _, w := range having {
			if at < w.from {
				// This row was copied from the old version.
				continue
			}
			if err := w.Add(list, e); err != nil {
				return err
			}
		}
		at = from.offset + sc.Offset
	}
	for _, w := range having {
		w.End(list)
	}
	return nil
}

// viewWriter writes a new version of a view.
type viewWriter struct {
	*cfharness.ViewWriter
	name  string
	rows  int
	from  int64 // events before this offset of the record are in old; 0 without old
	old   *os.File
	lists []cfharness.Span // the spans of old

	temp string // empty once it replaced the old version
	file *os.File
}

func (w *viewWriter) open(dir *os.Root, old viewFile, tally *fold) (err error) {
	w.ViewWriter, err = tally.Writer(w.name)
	if err != nil {
		return err
	}
	// Only a file that this process wrote is copied. If it was changed since, the view is built anew.
	if info, err := dir.Lstat(w.name); err == nil && old.info != nil && os.SameFile(info, old.info) &&
		info.Size() == old.info.Size() && info.ModTime().Equal(old.info.ModTime()) {
		w.old, err = openRegular(dir, w.name)
		if err == nil {
			w.from, w.lists = old.end, old.lists
		}
	}
	temp := fsys.TempPrefix + rand.Text()
	w.file, err = dir.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return errors.Join(err, w.discard(dir))
	}
	w.temp = temp
	w.Reset(w.file)
	return nil
}

// finish renames the new version to its name; the name is durable once the directory is synced.
func (w *viewWriter) finish(dir *os.Root) (viewFile, error) {
	if err := w.Close(); err != nil {
		return viewFile{}, err
	}
	if err := w.file.Sync(); err != nil {
		return viewFile{}, err
	}
	info, err := w.file.Stat()
	if err != nil {
		return viewFile{}, err
	}
	err = dir.Rename(w.temp, w.name)
	if err != nil {
		return viewFile{}, err
	}
	w.temp = ""
	return viewFile{rows: w.rows, info: info, lists: w.Spans}, nil
}

// discard closes the files of the writer and removes an unfinished version.
func (w *viewWriter) discard(dir *os.Root) error {
	var err error
	if w.file != nil {
		err = w.file.Close()
	}
	if w.old != nil {
		err = errors.Join(err, w.old.Close())
	}
	if w.temp != "" {
		err = errors.Join(err, dir.Remove(w.temp))
	}
	return err
}

// maxWriting limits how many sessions write their views concurrently. This also limits descriptors and memory
// if many sessions end together.
const maxWriting = 8

// viewPatience is how long the release of a session waits for file descriptors.
const viewPatience = 5 * time.Second

// flush updates the files derived from the record.
func (s *session) flush() error {
	if !s.enter() {
		<-s.released
		return nil
	}
	defer s.wg.Done()
	return s.writeViews()
}

// writeViews writes the views without all their rows, then session.json. With this order no view is older
// than the head in session.json.
func (s *session) writeViews() error {
	s.viewing.Lock()
	defer s.viewing.Unlock()
	s.shown.mu.Lock()
	// A quiet session holds as few descriptors as possible.
	s.closeTexts()
	s.shown.mu.Unlock()
	m, err := s.syncedPoint()
	if err != nil {
		return unavailable("write views", err)
	}
	if head := m.tally.Session.Head; head == s.views.tally.Session.Head || head.Seq == 0 {
		return nil
	}
	s.store.viewing <- struct{}{}
	defer func() { <-s.store.viewing }()
	err = s.inDir("write views", func(dir *os.Root) error {
		if err := s.views.write(dir, m); err != nil {
			return err
		}
		return s.writeSession(dir, m.tally.Session)
	})
	if err != nil {
		return err
	}
	s.views.scanPoint = m
	// The pause grows with the size of the views; otherwise a long record would be copied all the time.
	var size int64
	for _, f := range s.views.files {
		size += f.info.Size()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = time.Now().Add(time.Duration(size/viewRate) * time.Second)
	return nil
}

// patiently calls do while a session is being released. If file descriptors are exhausted, it retries.
func patiently(do func() error) error {
	for end := time.Now().Add(viewPatience); ; time.Sleep(10 * time.Millisecond) {
		err := do()
		// Other sessions that are being released free their descriptors.
		if !atLimit(err) || time.Now().After(end) {
			return err
		}
	}
}

// atLimit reports whether err means that file descriptors are exhausted.
func atLimit(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

func (s *session) writeSession(dir *os.Root, head provenance.Session) error {
	data, err := provenance.EncodePretty(head)
	if err != nil {
		return err
	}
	return s.writeFile(dir, provenance.SessionFile, data)
}
