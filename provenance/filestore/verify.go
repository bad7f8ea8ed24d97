package filestore

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"golang.org/x/mod/sumdb/note"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// verifier is one run of Verify.
type verifier struct {
	reader   *reader
	dir      *os.Root
	id       string
	report   provenance.Report
	views    []*viewCheck
	pending  cfharness.Pending
	shown    shownCheck
	recorded map[string]provenance.File   // the last record of each file that was Put and not removed
	names    []string                     // keys of recorded, in order of recording
	wanted   map[uint64]*provenance.Event // by sequence number, if the record has them
	enrolled bool                         // head.note states that the register names the session
}

// Verify implements provenance.Reader. It may run while a process writes to the session.
func (r *reader) Verify(_ context.Context, id string, keys ...note.Verifier) (*provenance.Report, error) {
	dir, err := r.session(id)
	if errors.Is(err, provenance.ErrCorrupt) {
		return nil, difference(provenance.EventsFile, 1, err.Error())
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	v := &verifier{reader: r, dir: dir, id: id, recorded: make(map[string]provenance.File)}
	v.shown.named = make(map[digest.Digest]shownText)
	if err := v.run(keys); err != nil {
		return nil, err
	}
	return &v.report, nil
}

// run compares the record of the session with its register line, its note and the files derived from it.
func (v *verifier) run(keys []note.Verifier) (err error) {
	defer func() { err = errors.Join(err, v.closeViews()) }()
	d, err := v.readDerived(keys)
	if err != nil {
		return err
	}
	v.wanted = map[uint64]*provenance.Event{d.signed.Seq: nil}
	if is := d.register.Sessions[v.id]; is != nil {
		v.wanted[is.Events] = nil
	}
	// Files that are written after the record was read would seem ahead of it, so it is read after them.
	var heads cfharness.Heads
	at, err := v.readRecord(&heads, d.head)
	if err != nil {
		return err
	}
	if err := v.checkNote(d.signed, len(keys) > 0); err != nil {
		return err
	}
	if err := v.checkRegister(d.register, v.wanted[d.signed.Seq], len(keys) > 0); err != nil {
		return err
	}
	if err := v.checkSession(d.session, d.head, at); err != nil {
		return err
	}
	if err := v.checkViews(&heads, d.head); err != nil {
		return err
	}
	for _, check := range []func() error{
		v.checkRecorded, v.checkShown, v.checkOriginals, v.listUnrecorded,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// derived are the files that a server writes after the events they describe, as of before the record is read.
type derived struct {
	signed   provenance.Head // from head.note, or zero
	register *provenance.Register
	session  []byte // session.json; nil if it does not exist
	head     uint64 // the event that session.json names, or 0
}

// readDerived reads the files derived from the record, and opens the views.
func (v *verifier) readDerived(keys []note.Verifier) (d derived, err error) {
	d.signed, err = v.readNote(keys)
	if err != nil {
		return d, err
	}
	// The register was written before the note, and names no event that the record lacks.
	d.register, err = v.reader.Register(context.Background(), keys...)
	if err != nil {
		return d, err
	}
	// Views are never older than the head in session.json, so session.json is read first.
	d.session, err = v.read(provenance.SessionFile, maxSessionFile)
	if err != nil {
		return d, err
	}
	var session struct {
		Head provenance.Head `json:"head"`
	}
	// A file that does not parse names no head; checkSession finds that it differs.
	_ = json.Unmarshal(d.session, &session)
	d.head = session.Head.Seq
	for _, name := range provenance.ViewNames() {
		c, err := v.openView(name)
		v.views = append(v.views, c)
		if err != nil {
			return d, err
		}
	}
	return d, nil
}

func (v *verifier) closeViews() (err error) {
	for _, c := range v.views {
		if c.file != nil {
			err = errors.Join(err, c.file.Close())
		}
	}
	return err
}

// open opens a file of the session, or returns nil if it does not exist.
func (v *verifier) open(name string) (*os.File, error) {
	f, err := openRegular(v.dir, name)
	switch {
	case errors.Is(err, provenance.ErrNotFound):
		return nil, nil
	case errors.Is(err, fsys.ErrNotRegular):
		return nil, difference(name, 1, "not a regular file")
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return f, nil
}

// read reads a file of at most limit bytes, or returns nil if it does not exist.
func (v *verifier) read(name string, limit int64) ([]byte, error) {
	f, err := v.open(name)
	if f == nil {
		return nil, err
	}
	data, err := readAll(f, name, limit)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	// The result must not be nil if the file is empty.
	return append([]byte{}, data...), nil
}

// readRecord checks the chain, compares the rows of the views, and returns the session state after event seq.
func (v *verifier) readRecord(heads *cfharness.Heads, seq uint64) (at provenance.Session, err error) {
	f, err := v.open(provenance.EventsFile)
	if err != nil {
		return at, err
	}
	if f == nil {
		return at, difference(provenance.EventsFile, 1, "missing")
	}
	defer f.Close()
	v.report.Files++
	at = provenance.NoEvents(v.id)
	sc := provenance.NewScanner(f)
	for e, err := range sc.All() {
		if err != nil && !errors.Is(err, provenance.ErrCorrupt) {
			return at, fmt.Errorf("read %s: %w", provenance.EventsFile, err)
		}
		if err != nil {
			return at, difference(provenance.EventsFile, sc.Line, err.Error())
		}
		if err := v.event(e); err != nil {
			return at, difference(provenance.EventsFile, sc.Line, err.Error())
		}
		if err := heads.Add(e); err != nil {
			return at, difference(provenance.EventsFile, sc.Line, err.Error())
		}
		for _, c := range v.views {
			if err := c.follow(heads, e); err != nil {
				return at, err
			}
		}
		if e.Seq == seq {
			at = sc.Tally.Session
		}
		if _, ok := v.wanted[e.Seq]; ok {
			v.wanted[e.Seq] = e
		}
	}
	// A torn last line is not a difference: another process may be writing it.
	v.report.Session, v.report.Torn, v.report.Unfinished = sc.Tally.Session, sc.Torn, slices.Clone(v.pending)
	return at, nil
}

// event adds an event to the report and to the files that the session has at this point.
func (v *verifier) event(e *provenance.Event) error {
	if e.Session != v.id {
		return fmt.Errorf("event of session %q", e.Session)
	}
	v.report.Events++
	v.pending.Add(e)
	v.shown.add(e)
	removed, err := e.Removed()
	if err != nil {
		return err
	}
	for _, f := range removed {
		if v.recorded[f.Name] != f {
			return fmt.Errorf("removes %q, but no event records such a file", f.Name)
		}
		delete(v.recorded, f.Name)
		v.names = slices.DeleteFunc(v.names, func(name string) bool { return name == f.Name })
		v.report.Removed++
	}
	for _, f := range e.Files {
		if _, ok := v.recorded[f.Name]; !ok {
			v.names = append(v.names, f.Name)
		}
		v.recorded[f.Name] = f
	}
	return nil
}

// checkSession compares session.json with the session state after event seq. found is nil if there is no
// session.json.
func (v *verifier) checkSession(found []byte, seq uint64, at provenance.Session) error {
	switch {
	case v.report.Events == 0:
		return difference(provenance.EventsFile, 1,
			"holds no event: the server was killed before it recorded the first, or the record was emptied")
	case found == nil:
		return difference(provenance.SessionFile, 1, "missing")
	case seq > uint64(v.report.Events):
		return difference(provenance.EventsFile, v.report.Events+1,
			fmt.Sprintf("missing: %s names event %d", provenance.SessionFile, seq))
	}
	v.report.Files++
	want, err := provenance.EncodePretty(at)
	if err != nil {
		return err
	}
	c := comparer{r: bufio.NewReader(bytes.NewReader(found)), line: 1}
	_, _ = c.Write(want)
	_ = c.end()
	if c.what != "" {
		return difference(provenance.SessionFile, c.line, c.what)
	}
	if seq < uint64(v.report.Events) {
		v.report.Stale = append(v.report.Stale, provenance.SessionFile)
	}
	return nil
}

// difference returns a difference between the record and a file.
func difference(file string, line int, what string) *provenance.VerifyError {
	return &provenance.VerifyError{File: file, Line: line, What: what}
}

// checkRecorded compares the files that events record with their digests.
func (v *verifier) checkRecorded() error {
	for _, name := range v.names {
		err := v.checkFile(v.recorded[name])
		// Another process may have removed outputs since the record was read.
		if err != nil && !v.removedSince(name) {
			return err
		}
	}
	return nil
}

// checkFile compares a file with its digest, and with its size unless that is negative.
func (v *verifier) checkFile(want provenance.File) error {
	f, err := v.open(want.Name)
	if err != nil {
		return err
	}
	if f == nil {
		return difference(want.Name, 1, "missing")
	}
	defer f.Close()
	d := digest.SHA256.Digester()
	size, err := io.Copy(d.Hash(), f)
	if err != nil {
		return fmt.Errorf("read %s: %w", want.Name, cause(err))
	}
	if size != want.Size && want.Size >= 0 {
		return difference(want.Name, 1, fmt.Sprintf("has %d bytes, the record says %d", size, want.Size))
	}
	if got := d.Digest(); got != want.Digest {
		return difference(want.Name, 1, fmt.Sprintf("digest is %s, the record says %s", got, want.Digest))
	}
	v.report.Files++
	return nil
}

// removedSince reports whether a process removed an output after the record was read.
func (v *verifier) removedSince(name string) bool {
	for e, err := range v.reader.events(v.id) {
		if err != nil {
			return false
		}
		if e.Seq <= uint64(v.report.Events) {
			continue
		}
		removed, _ := e.Removed()
		for _, f := range removed {
			if f.Name == name {
				return true
			}
		}
	}
	return false
}

// listUnrecorded reports the files that neither an event records nor the store writes.
func (v *verifier) listUnrecorded() error {
	own := append(provenance.ViewNames(), provenance.EventsFile, provenance.SessionFile, provenance.LockFile,
		provenance.OutputsDir, provenance.ShownDir, provenance.OriginalsDir, provenance.HeadNoteFile)
	for _, parent := range []string{".", provenance.OutputsDir} {
		entries, err := fs.ReadDir(v.dir.FS(), parent)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("list %s: %w", parent, cause(err))
		}
		for _, en := range entries {
			name := path.Join(parent, en.Name())
			_, ok := v.recorded[name]
			if !ok && !slices.Contains(own, name) && !strings.HasPrefix(en.Name(), fsys.TempPrefix) {
				v.report.Unrecorded = append(v.report.Unrecorded, name)
			}
		}
	}
	return nil
}

// maxHeadNote limits the size of a head.note, in bytes.
const maxHeadNote = 64 << 10

// readNote returns the head that head.note signs, or the zero Head if there is no note.
func (v *verifier) readNote(keys []note.Verifier) (provenance.Head, error) {
	found, err := v.read(provenance.HeadNoteFile, maxHeadNote)
	if err != nil || found == nil {
		return provenance.Head{}, err
	}
	head, enrolled, err := provenance.OpenHead(v.id, found, keys...)
	v.enrolled = enrolled
	if err != nil {
		return head, difference(provenance.HeadNoteFile, 1, err.Error())
	}
	for _, key := range keys {
		if _, _, err := provenance.OpenHead(v.id, found, key); err == nil {
			v.report.SignedBy = key.Name()
		}
	}
	v.report.Files++
	return head, nil
}

// checkNote compares the signed head with the record. With a key, the note must cover the whole record.
func (v *verifier) checkNote(signed provenance.Head, keyed bool) error {
	why := "the session has not ended; sessions are signed when they end"
	if v.report.Session.State == provenance.StateEnded {
		why = "the session ended but is not signed: the server had no key, was killed before it signed, " +
			"or the note was removed"
	}
	switch {
	case signed.Seq == 0 && keyed:
		return difference(provenance.HeadNoteFile, 1, "missing: "+why)
	case signed.Seq == 0:
		return nil
	case signed.Seq > uint64(v.report.Events):
		return difference(provenance.EventsFile, v.report.Events+1,
			fmt.Sprintf("missing: %s names event %d", provenance.HeadNoteFile, signed.Seq))
	case v.wanted[signed.Seq].Hash != signed.Hash:
		return difference(provenance.EventsFile, int(signed.Seq),
			fmt.Sprintf("not the event that %s signs: the hashes differ", provenance.HeadNoteFile))
	case keyed && signed.Seq < uint64(v.report.Events):
		return difference(provenance.EventsFile, int(signed.Seq)+1,
			fmt.Sprintf("not signed: %s covers the events up to %d", provenance.HeadNoteFile, signed.Seq))
	}
	return nil
}
