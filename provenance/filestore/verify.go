package filestore

import (
	"bytes"
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

	"github.com/skillsd/skillsd/provenance"
)

// maxView bounds what is read of a view, in bytes.
const maxView = 1 << 30

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
	dir      *os.Root
	id       string
	report   Report
	views    provenance.Views
	recorded map[string]provenance.File // the last record of each Put file
	names    []string                   // of recorded, in order
}

// derived is a file made from events, as found.
type derived struct {
	data    []byte
	missing bool
}

// Verify recomputes the chain of a session below dir from its bytes, every view from its events
// and the digest of every file an event names. It does not change anything and may run while a
// process writes to the session.
//
// Errors: *VerifyError for the first difference, provenance.ErrNotFound for an unknown session, or
// that of reading.
func Verify(dir, id string) (*Report, error) {
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
	v := &verifier{dir: sub, id: id, recorded: make(map[string]provenance.File)}
	if err := v.run(); err != nil {
		return nil, err
	}
	return &v.report, nil
}

// run reads derived files before the record: written later than it, they would seem ahead of it.
// session.json comes first because the views are never older than the head it names.
func (v *verifier) run() error {
	session, err := v.readDerived(provenance.SessionFile, maxSessionFile)
	if err != nil {
		return err
	}
	views := make(map[string]derived)
	for _, name := range provenance.ViewNames() {
		if views[name], err = v.readDerived(name, maxView); err != nil {
			return err
		}
	}
	var head struct {
		Head provenance.Head `json:"head"`
	}
	// A file that does not parse names no head and differs from what it must be.
	_ = json.Unmarshal(session.data, &head)
	at, err := v.readRecord(head.Head.Seq)
	if err != nil {
		return err
	}
	if err := v.checkSession(session, head.Head.Seq, at); err != nil {
		return err
	}
	for _, name := range provenance.ViewNames() {
		if err := v.checkView(name, views[name], head.Head.Seq); err != nil {
			return err
		}
	}
	for _, name := range v.names {
		if err := v.checkFile(v.recorded[name]); err != nil {
			return err
		}
	}
	return v.listUnrecorded()
}

func (v *verifier) readDerived(name string, limit int64) (derived, error) {
	data, err := readFile(v.dir, name, limit)
	switch {
	case errors.Is(err, provenance.ErrNotFound):
		return derived{missing: true}, nil
	case errors.Is(err, errNotRegular):
		return derived{}, &VerifyError{name, 1, "not a regular file"}
	case err != nil:
		return derived{}, fmt.Errorf("read %s: %w", name, err)
	}
	return derived{data: data}, nil
}

// readRecord checks the chain and returns the session as it was at event seq.
func (v *verifier) readRecord(seq uint64) (at provenance.Session, err error) {
	f, err := openRegular(v.dir, provenance.EventsFile)
	switch {
	case errors.Is(err, provenance.ErrNotFound):
		return at, &VerifyError{provenance.EventsFile, 1, "missing"}
	case errors.Is(err, errNotRegular):
		return at, &VerifyError{provenance.EventsFile, 1, "not a regular file"}
	case err != nil:
		return at, err
	}
	defer f.Close()
	v.report.Files++
	at = provenance.NoEvents(v.id)
	sc := provenance.NewScanner(f)
	for {
		e, err := sc.Next()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, provenance.ErrTorn):
			v.report.Session, v.report.Torn = sc.Tally.Session, sc.Torn
			return at, nil
		case errors.Is(err, provenance.ErrCorrupt):
			return at, &VerifyError{provenance.EventsFile, sc.Line, err.Error()}
		case err != nil:
			return at, fmt.Errorf("read %s: %w", provenance.EventsFile, err)
		case e.Session != v.id:
			return at, &VerifyError{provenance.EventsFile, sc.Line, fmt.Sprintf("event of session %q", e.Session)}
		}
		if err := v.views.Add(e); err != nil {
			return at, &VerifyError{provenance.EventsFile, sc.Line, err.Error()}
		}
		v.report.Events++
		if e.Seq == seq {
			at = sc.Tally.Session
		}
		v.record(e)
	}
}

func (v *verifier) record(e *provenance.Event) {
	for _, f := range e.Files {
		if _, ok := v.recorded[f.Name]; !ok {
			v.names = append(v.names, f.Name)
		}
		v.recorded[f.Name] = f
	}
}

func (v *verifier) checkSession(found derived, seq uint64, at provenance.Session) error {
	switch {
	case v.report.Events == 0:
		return &VerifyError{provenance.EventsFile, 1, "holds no event"}
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

// checkView compares a view with what its events make of as many rows as it has.
func (v *verifier) checkView(name string, found derived, head uint64) error {
	all := v.views.Len(name)
	n := min(countRows(name, found.data), all)
	want, err := v.views.Render(name, n)
	if err != nil {
		return err
	}
	if !bytes.Equal(found.data, want) || found.missing != (n == 0) {
		whole, err := v.views.Render(name, all)
		if err != nil {
			return err
		}
		return differs(name, found.data, whole)
	}
	if n < all {
		switch older := v.views.RowSeq(name, n) <= head; {
		case older && found.missing:
			return &VerifyError{name, 1, "missing"}
		case older:
			return &VerifyError{name, 1, fmt.Sprintf("older than %s: event %d is not in it", provenance.SessionFile, v.views.RowSeq(name, n))}
		}
		v.report.Stale = append(v.report.Stale, name)
	}
	if !found.missing {
		v.report.Files++
	}
	return nil
}

// countRows returns how many rows a view claims to have.
func countRows(name string, data []byte) int {
	var view struct {
		Activations []json.RawMessage `json:"activations"`
		Reads       []json.RawMessage `json:"reads"`
		Executions  []json.RawMessage `json:"executions"`
		Decisions   []json.RawMessage `json:"decisions"`
	}
	if json.Unmarshal(data, &view) != nil {
		return 0
	}
	switch name {
	case provenance.ActivationsFile:
		return len(view.Activations)
	case provenance.ResourceReadsFile:
		return len(view.Reads)
	case provenance.ScriptExecutionsFile:
		return len(view.Executions)
	}
	return len(view.Decisions)
}

func (v *verifier) checkFile(want provenance.File) error {
	f, err := openRegular(v.dir, want.Name)
	switch {
	case errors.Is(err, provenance.ErrNotFound):
		return &VerifyError{want.Name, 1, "missing"}
	case errors.Is(err, errNotRegular):
		return &VerifyError{want.Name, 1, "not a regular file"}
	case err != nil:
		return fmt.Errorf("read %s: %w", want.Name, err)
	}
	defer f.Close()
	d := digest.SHA256.Digester()
	size, err := io.Copy(d.Hash(), f)
	if err != nil {
		return fmt.Errorf("read %s: %w", want.Name, cause(err))
	}
	if size != want.Size {
		return &VerifyError{want.Name, 1, fmt.Sprintf("has %d bytes, the record says %d", size, want.Size)}
	}
	if got := d.Digest(); got != want.Digest {
		return &VerifyError{want.Name, 1, fmt.Sprintf("digest is %s, the record says %s", got, want.Digest)}
	}
	v.report.Files++
	return nil
}

func (v *verifier) listUnrecorded() error {
	own := append(provenance.ViewNames(), provenance.EventsFile, provenance.SessionFile, provenance.LockFile, provenance.OutputsDir)
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
			if !ok && !slices.Contains(own, name) && !strings.HasPrefix(en.Name(), tempPrefix) {
				v.report.Unrecorded = append(v.report.Unrecorded, name)
			}
		}
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
