package filestore

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// viewRate is how many bytes of views an active session writes in a second, on average.
const viewRate = 1 << 20

// viewFiles are the views of a session as they were last written. Their rows are copied into the next
// version, so that writing it reads the later events only: for 100,000 events, that is 30 times faster
// than making the views from all of them, and whoever reads a view waits for it. It is not safe for
// concurrent use.
type viewFiles struct {
	tally  fold  // of the events that are in all views
	offset int64 // end of those events in the record
	files  map[string]viewFile
}

// viewFile is a view on disk. If the others could not be written, it is ahead of them.
type viewFile struct {
	rows  int
	end   int64 // of its events in the record
	info  os.FileInfo
	lists []span // of the rows, in the order of the frame
}

type span struct{ start, end int64 }

// pause returns the minimum time between two rewrites of a session's views, so that a long record is
// not copied all the time.
func (v *viewFiles) pause() time.Duration {
	var size int64
	for _, f := range v.files {
		size += f.info.Size()
	}
	return time.Duration(size/viewRate) * time.Second
}

// write brings the views up to m.
func (v *viewFiles) write(dir *os.Root, m mark) (err error) {
	var writers []*viewWriter
	defer func() {
		for _, w := range writers {
			err = errors.Join(err, w.discard(dir))
		}
	}()
	whole := false
	for _, name := range provenance.ViewNames() {
		old, ok := v.files[name]
		if m.tally.Rows(name) == 0 || ok && old.rows == m.tally.Rows(name) {
			continue
		}
		w := &viewWriter{name: name, rows: m.tally.Rows(name)}
		if err := w.open(dir, old, &m.tally); err != nil {
			return unavailable("write "+name, err)
		}
		writers = append(writers, w)
		whole = whole || w.from == 0
	}
	if len(writers) == 0 {
		return nil
	}
	after := scanPoint{tally: v.tally, offset: v.offset}
	if whole {
		// One view has nothing to copy, so the pass starts at the first event for all of them.
		after = scanPoint{}
	}
	// policy-trace.json has two lists, which cannot be written side by side in one pass.
	for list := range 2 {
		if err := writeLists(dir, writers, list, after, m.offset); err != nil {
			return fmt.Errorf("write views: %w", err)
		}
	}
	if v.files == nil {
		v.files = make(map[string]viewFile)
	}
	for _, w := range writers {
		f, err := w.finish(dir)
		if err != nil {
			return unavailable("write "+w.name, err)
		}
		f.end = m.offset
		v.files[w.name] = f
	}
	return nil
}

// scanPoint is a place between two events of a record.
type scanPoint struct {
	tally  fold
	offset int64
}

// writeLists writes the list with an index of each view that has one, in one pass over the events.
func writeLists(dir *os.Root, writers []*viewWriter, list int, from scanPoint, end int64) (err error) {
	var having []*viewWriter
	for _, w := range writers {
		if list < len(w.frame.Lists) {
			having = append(having, w)
			if err := w.begin(list); err != nil {
				return err
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
	for {
		at := from.offset + sc.Offset
		e, err := sc.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		for _, w := range having {
			if err := w.add(list, e, at); err != nil {
				return err
			}
		}
	}
	for _, w := range having {
		w.end(list)
	}
	return nil
}

// viewWriter writes the next version of a view.
type viewWriter struct {
	name  string
	rows  int
	from  int64 // events before this offset of the record are in old; 0 if there is none to copy
	until int64 // events from this offset on are left out; 0 if none are
	old   *os.File
	lists []span // of old
	frame *cfharness.Frame

	temp  string // empty once it has replaced the old version
	file  *os.File
	out   *bufio.Writer
	at    int64
	spans []span
	buf   bytes.Buffer
}

func (w *viewWriter) open(dir *os.Root, old viewFile, tally *fold) (err error) {
	if w.frame, err = tally.Frame(w.name); err != nil {
		return err
	}
	w.spans = make([]span, len(w.frame.Lists))
	// Rows are copied only from the file that this process wrote: one that was changed is made again.
	if info, err := dir.Lstat(w.name); err == nil && old.info != nil && os.SameFile(info, old.info) &&
		info.Size() == old.info.Size() && info.ModTime().Equal(old.info.ModTime()) {
		if w.old, err = openRegular(dir, w.name); err == nil {
			w.from, w.lists = old.end, old.lists
		}
	}
	temp := fsys.TempPrefix + rand.Text()
	if w.file, err = dir.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode); err != nil {
		return errors.Join(err, w.discard(dir))
	}
	w.temp, w.out = temp, bufio.NewWriterSize(w.file, 64<<10)
	return nil
}

// begin writes what comes before the later rows of a list, including the copied ones.
func (w *viewWriter) begin(list int) error {
	w.write(w.frame.Lists[list].Before)
	w.spans[list].start = w.at
	if list < len(w.lists) {
		s := w.lists[list]
		n, err := io.Copy(w.out, io.NewSectionReader(w.old, s.start, s.end-s.start))
		if err == nil && n != s.end-s.start {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return cause(err)
		}
		w.at += n
	}
	return nil
}

// add writes the row of an event that begins at an offset of the record.
func (w *viewWriter) add(list int, e *provenance.Event, offset int64) error {
	l := &w.frame.Lists[list]
	row := l.Row(e)
	if offset < w.from || w.until > 0 && offset >= w.until || len(row) == 0 {
		return nil
	}
	w.buf.Reset()
	if err := l.Append(&w.buf, row, w.at == w.spans[list].start); err != nil {
		return err
	}
	w.write(w.buf.Bytes())
	return nil
}

func (w *viewWriter) end(list int) {
	w.spans[list].end = w.at
	w.write(w.frame.Lists[list].After(w.at > w.spans[list].start))
}

// write leaves its error to finish, which flushes.
func (w *viewWriter) write(data []byte) {
	n, _ := w.out.Write(data)
	w.at += int64(n)
}

// finish puts the version in its place.
func (w *viewWriter) finish(dir *os.Root) (viewFile, error) {
	w.write(w.frame.Tail)
	err := w.out.Flush()
	if err == nil {
		err = w.file.Sync()
	}
	var info fs.FileInfo
	if err == nil {
		info, err = w.file.Stat()
	}
	if err == nil {
		err = dir.Rename(w.temp, w.name)
	}
	if err != nil {
		return viewFile{}, err
	}
	w.temp = ""
	return viewFile{rows: w.rows, info: info, lists: w.spans}, fsys.SyncDir(dir, ".")
}

// discard closes the files of the writer, and removes a version that was not finished.
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
