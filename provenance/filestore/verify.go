package filestore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/mod/sumdb/note"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// Report is what Verify found in a session whose record and files agree.
type Report struct {
	Session provenance.Session // as its events say
	Events  int
	Files   int // files checked, events.jsonl and session.json among them
	// Stale are the views that equal those of an earlier point of the record, which happens when
	// they were not written again before a crash, or yet.
	Stale []string
	// Unrecorded are files that no event names, such as those of a Put whose event was not written.
	Unrecorded []string
	// NotKept is how many texts that models were shown are not in the session's directory, of those its
	// events name: it did not keep such, had no more room, or its record does not say.
	NotKept int
	// Removed is how many outputs were deleted to make room for later ones, as events say.
	Removed int
	// Unfinished are the output ids of scripts that were requested and have no outcome, as those that
	// ran when the server was killed, or run now.
	Unfinished []string
	// Signed says that a key given signed the last event.
	Signed bool
	// Torn is the length in bytes of a torn last line, which is no part of the record.
	Torn int64
}

// VerifyError is the first difference between the record of a session and its files.
type VerifyError struct {
	File string
	Line int // from 1; 1 also when the difference has no line
	What string
}

// Error returns "<file>:<line>: <what>".
func (e *VerifyError) Error() string {
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.What)
}

// verifier is one run of Verify.
type verifier struct {
	root     *os.Root // of all sessions
	dir      *os.Root
	id       string
	report   Report
	views    []*viewCheck
	pending  cfharness.Pending
	shown    shownCheck
	recorded map[string]provenance.File // the last record of each Put file that was not removed
	names    []string                   // of recorded, in order
}

// derived is a file made from events, as found.
type derived struct {
	data    []byte
	missing bool
}

// Verify recomputes the chain of a session below dir from its bytes, every view from its events
// and the digest of every file an event names. With keys, one of them must have signed the last
// event. What models were shown must be there as far as the record says that it is kept. It does not
// change anything and may run while a process writes to the session.
//
// Errors: *VerifyError for the first difference, provenance.ErrNotFound for an unknown session, or
// that of reading.
func Verify(dir, id string, keys ...note.Verifier) (*Report, error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("session %.60q: %w", id, provenance.ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	defer root.Close()
	sub, err := openSession(root, id)
	if err != nil {
		return nil, err
	}
	defer sub.Close()
	v := &verifier{root: root, dir: sub, id: id, recorded: make(map[string]provenance.File)}
	if err := v.run(keys); err != nil {
		return nil, err
	}
	return &v.report, nil
}

// run reads derived files before the record: written later than it, they would seem ahead of it.
// session.json comes first because the views are never older than the head it names.
func (v *verifier) run(keys []note.Verifier) (err error) {
	signed, err := v.readNote(keys)
	if err != nil {
		return err
	}
	session, err := v.readDerived(provenance.SessionFile, maxSessionFile)
	if err != nil {
		return err
	}
	defer func() {
		for _, c := range v.views {
			err = errors.Join(err, c.close())
		}
	}()
	for _, name := range provenance.ViewNames() {
		c, err := v.openView(name)
		if err != nil {
			return err
		}
		v.views = append(v.views, c)
	}
	var head struct {
		Head provenance.Head `json:"head"`
	}
	// A file that does not parse names no head and differs from what it must be.
	_ = json.Unmarshal(session.data, &head)
	at, hash, err := v.readRecord(head.Head.Seq, signed.Seq)
	if err == nil {
		err = v.checkNote(signed, hash, len(keys) > 0)
	}
	if err != nil {
		return err
	}
	if err := v.checkSession(session, head.Head.Seq, at); err != nil {
		return err
	}
	if err := v.checkViews(head.Head.Seq); err != nil {
		return err
	}
	for _, name := range v.names {
		err := v.checkFile(v.recorded[name])
		if err != nil && v.removedSince(name) {
			continue
		}
		if err != nil {
			return err
		}
	}
	if err := v.checkShown(); err != nil {
		return err
	}
	return v.listUnrecorded()
}

func (v *verifier) readDerived(name string, limit int64) (derived, error) {
	data, err := readFile(v.dir, name, limit)
	switch {
	case errors.Is(err, provenance.ErrNotFound):
		return derived{missing: true}, nil
	case errors.Is(err, fsys.ErrNotRegular):
		return derived{}, &VerifyError{name, 1, "not a regular file"}
	case err != nil:
		return derived{}, fmt.Errorf("read %s: %w", name, err)
	}
	return derived{data: data}, nil
}

// readRecord checks the chain and returns the session as it was at event seq, and the hash of the
// event that was signed.
func (v *verifier) readRecord(seq, signed uint64) (at provenance.Session, hash string, err error) {
	f, err := openRegular(v.dir, provenance.EventsFile)
	switch {
	case errors.Is(err, provenance.ErrNotFound):
		return at, "", &VerifyError{provenance.EventsFile, 1, "missing"}
	case errors.Is(err, fsys.ErrNotRegular):
		return at, "", &VerifyError{provenance.EventsFile, 1, "not a regular file"}
	case err != nil:
		return at, "", err
	}
	defer f.Close()
	v.report.Files++
	at = provenance.NoEvents(v.id)
	sc := provenance.NewScanner(f)
	var heads cfharness.Heads
	for {
		e, err := sc.Next()
		if err == nil {
			err = heads.Add(e)
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, provenance.ErrTorn):
			v.report.Session, v.report.Torn, v.report.Unfinished = sc.Tally.Session, sc.Torn, v.pending.IDs()
			for _, c := range v.views {
				if err := c.finish(&heads, sc.Offset); err != nil {
					return at, "", err
				}
			}
			return at, hash, nil
		case errors.Is(err, provenance.ErrCorrupt):
			return at, "", &VerifyError{provenance.EventsFile, sc.Line, err.Error()}
		case err != nil:
			return at, "", fmt.Errorf("read %s: %w", provenance.EventsFile, err)
		}
		if err := v.event(e); err != nil {
			return at, "", &VerifyError{provenance.EventsFile, sc.Line, err.Error()}
		}
		for _, c := range v.views {
			if err := c.follow(&heads, e.Seq, sc.Offset); err != nil {
				return at, "", err
			}
		}
		if e.Seq == seq {
			at = sc.Tally.Session
		}
		if e.Seq == signed {
			hash = e.Hash
		}
	}
}

func (v *verifier) event(e *provenance.Event) error {
	if e.Session != v.id {
		return fmt.Errorf("event of session %q", e.Session)
	}
	v.report.Events++
	v.pending.Add(e)
	v.shown.add(e)
	return v.record(e)
}

func (v *verifier) record(e *provenance.Event) error {
	removed, err := e.Removed()
	if err != nil {
		return err
	}
	for _, f := range removed {
		if v.recorded[f.Name] != f {
			return fmt.Errorf("removes %q, which no event names so", f.Name)
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

func (v *verifier) checkSession(found derived, seq uint64, at provenance.Session) error {
	switch {
	case v.report.Events == 0:
		return &VerifyError{provenance.EventsFile, 1, "holds no event: the server was killed before it recorded the first, or the record was emptied"}
	case found.missing:
		return &VerifyError{provenance.SessionFile, 1, "missing"}
	case seq > uint64(v.report.Events):
		return &VerifyError{
			provenance.EventsFile, v.report.Events + 1,
			fmt.Sprintf("missing: %s names event %d", provenance.SessionFile, seq),
		}
	}
	v.report.Files++
	want, err := provenance.EncodePretty(at)
	if err != nil {
		return err
	}
	if !bytes.Equal(found.data, want) {
		return differs(provenance.SessionFile, found.data, want)
	}
	if seq < uint64(v.report.Events) {
		v.report.Stale = append(v.report.Stale, provenance.SessionFile)
	}
	return nil
}

// differs names the first line of found that is not in want.
func differs(name string, found, want []byte) *VerifyError {
	have, need := bytes.SplitAfter(found, []byte("\n")), bytes.SplitAfter(want, []byte("\n"))
	line := 0
	for line < len(have) && line < len(need) && bytes.Equal(have[line], need[line]) {
		line++
	}
	what := "differs from the events"
	if line == len(have) || line == len(have)-1 && len(have[line]) == 0 {
		what = "cut short"
	}
	return &VerifyError{name, line + 1, what}
}
