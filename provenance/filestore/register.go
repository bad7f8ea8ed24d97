package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"golang.org/x/mod/sumdb/note"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// registerLock is the lock for adding lines to the register.
const registerLock = provenance.RegisterFile + ".lock"

// register is the state of the register of sessions that a reader or store remembers between uses.
type register struct {
	mu     sync.Mutex
	last   []byte // the last line added
	end    int64  // offset of the end of that line in the file
	read   *provenance.Register
	readOf string // identifies the file and the keys used to read it
}

// enroll appends lines to the register and syncs it. It refuses a register without the line that was added
// last.
//
// Errors: provenance.ErrCorrupt, or the error of writing.
func (r *reader) enroll(signer note.Signer, wait time.Duration,
	lines ...provenance.RegisterLine) (err error) {
	reg := &r.register
	reg.mu.Lock()
	defer reg.mu.Unlock()
	for _, name := range []string{provenance.RegisterFile, registerLock} {
		if err := checkRegular(r.root, name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	lock := flock.New(filepath.Join(r.dir, registerLock), flock.SetPermissions(fileMode))
	if err := waitLock(lock, wait, 2*time.Millisecond); err != nil {
		// The verb is %v, because the session itself is not held.
		return fmt.Errorf("lock the register of sessions: %v", err)
	}
	defer lock.Close()
	f, err := r.root.OpenFile(provenance.RegisterFile, os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return cause(err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	before, end, err := lastLine(f)
	if err != nil {
		return err
	}
	// Another signature would hide that the register was rolled back.
	if !reg.continues(f, end) {
		return fmt.Errorf("%w: %s was cut or replaced", provenance.ErrCorrupt, provenance.RegisterFile)
	}
	var data []byte
	for i := range lines {
		before, err = lines[i].Sign(before, signer)
		if err != nil {
			return err
		}
		data = append(data, before...)
	}
	if err := r.appendSynced(f, data, end); err != nil {
		return errors.Join(cause(err), f.Truncate(end))
	}
	reg.last, reg.end = before, end+int64(len(data))
	return nil
}

// continues reports whether a register of end bytes has the line that was added last. The caller holds mu.
func (reg *register) continues(f io.ReaderAt, end int64) bool {
	if reg.last == nil {
		return true
	}
	was := make([]byte, len(reg.last))
	_, err := f.ReadAt(was, reg.end-int64(len(was)))
	return err == nil && end >= reg.end && bytes.Equal(was, reg.last)
}

// appendSynced writes lines at the end of the register, and syncs it.
func (r *reader) appendSynced(f *os.File, lines []byte, end int64) error {
	if _, err := f.WriteAt(lines, end); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if end > 0 {
		return nil
	}
	// The file may be new.
	return fsys.SyncDir(r.root, ".")
}

// lastLine returns the last line of a register, or nil for an empty one, and the offset of its end. It
// truncates a torn line, which was never acknowledged.
func lastLine(f *os.File) (line []byte, end int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return nil, 0, cause(err)
	}
	// A torn line and the whole line before it fit into this part.
	start := max(0, info.Size()-2*provenance.MaxRegisterLine)
	tail, err := io.ReadAll(io.NewSectionReader(f, start, info.Size()-start))
	if err != nil {
		return nil, 0, cause(err)
	}
	whole := tail[:bytes.LastIndexByte(tail, '\n')+1]
	end = start + int64(len(whole))
	if end < info.Size() {
		if err := f.Truncate(end); err != nil {
			return nil, 0, cause(err)
		}
	}
	if len(whole) == 0 {
		if start > 0 {
			return nil, 0, fmt.Errorf("%w: %s has no line at its end", provenance.ErrCorrupt,
				provenance.RegisterFile)
		}
		return nil, 0, nil
	}
	return whole[bytes.LastIndexByte(whole[:len(whole)-1], '\n')+1:], end, nil
}

// Register implements provenance.Reader.
func (r *reader) Register(_ context.Context, keys ...note.Verifier) (*provenance.Register, error) {
	if r.root == nil {
		return &provenance.Register{}, nil
	}
	reg := &r.register
	reg.mu.Lock()
	defer reg.mu.Unlock()
	f, err := openRegular(r.root, provenance.RegisterFile)
	switch {
	case errors.Is(err, provenance.ErrNotFound):
		return &provenance.Register{}, nil
	case errors.Is(err, fsys.ErrNotRegular):
		return nil, difference(provenance.RegisterFile, 1, "not a regular file")
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", provenance.RegisterFile, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, cause(err)
	}
	// The result is reused, because verifying all sessions compares each with the register.
	of := fmt.Sprint(info.Size(), info.ModTime())
	for _, key := range keys {
		of += fmt.Sprintf(" %s+%08x", key.Name(), key.KeyHash())
	}
	if reg.read != nil && reg.readOf == of {
		return reg.read, nil
	}
	// Another server may append a line meanwhile, which may still be torn.
	found, err := provenance.ReadRegister(io.LimitReader(f, info.Size()), keys...)
	if err != nil {
		return found, err
	}
	reg.read, reg.readOf = found, of
	return found, nil
}

// Missing implements provenance.Reader.
func (r *reader) Missing(ctx context.Context,
	keys ...note.Verifier) (map[string]*provenance.Registered, error) {
	reg, err := r.Register(ctx, keys...)
	if err != nil {
		return nil, err
	}
	missing := make(map[string]*provenance.Registered)
	for id, s := range reg.Sessions {
		if s.Deleted {
			continue
		}
		if _, err := r.root.Lstat(id); errors.Is(err, fs.ErrNotExist) {
			missing[id] = s
		}
	}
	return missing, nil
}

// note adds starts, resumptions and ends of a session to the register. The events are on stable storage.
func (s *session) note(events []*provenance.Event) error {
	var lines []provenance.RegisterLine
	for _, e := range events {
		what := provenance.RegisterStarted
		switch {
		case e.Kind == provenance.KindSessionEnded:
			what = provenance.RegisterEnded
		case e.Seq > 1:
			what = provenance.RegisterResumed
		}
		lines = append(lines, provenance.RegisterLine{Time: provenance.Stamp(s.opts.Now()), What: what,
			Session: s.id, Events: e.Seq, Hash: e.Hash})
	}
	return s.store.enroll(s.opts.Signer, s.opts.LockWait, lines...)
}

// marks reports whether the register gets a line for e.
func marks(e *provenance.Event) bool {
	return e.Seq == 1 || e.Kind == provenance.KindSessionResumed || e.Kind == provenance.KindSessionEnded
}

// checkRegistered refuses to continue a record that is shorter than in the register.
func (s *session) checkRegistered() error {
	last := s.log.tally.Session.Head.Seq
	if s.opts.Signer == nil || last == 0 {
		return nil
	}
	reg, err := s.store.Register(context.Background())
	if err != nil {
		return fmt.Errorf("%w: %v", provenance.ErrCorrupt, err)
	}
	// Another event would hide the difference.
	if is := reg.Sessions[s.id]; is != nil && is.Events > last {
		return fmt.Errorf("%w: ends at event %d, line %d of %s names event %d", provenance.ErrCorrupt, last,
			is.Line, provenance.RegisterFile, is.Events)
	}
	return nil
}

// checkRegister compares the record with the register. signed is the event that head.note names.
func (v *verifier) checkRegister(reg *provenance.Register, signed *provenance.Event, keyed bool) error {
	is := reg.Sessions[v.id]
	switch {
	case is != nil && is.Again > 0:
		return difference(provenance.RegisterFile, is.Again,
			"session "+v.id+" had as many events before: it was rolled back or created again")
	case is != nil && is.Events > uint64(v.report.Events):
		return difference(provenance.EventsFile, v.report.Events+1,
			fmt.Sprintf("missing: line %d of %s names event %d", is.Line, provenance.RegisterFile, is.Events))
	case is != nil && is.Events > 0 && v.wanted[is.Events].Hash != is.Hash:
		return difference(provenance.EventsFile, int(is.Events),
			fmt.Sprintf("not the event in line %d of %s: the hashes differ", is.Line,
				provenance.RegisterFile))
	case signed == nil || is != nil && is.Events >= signed.Seq:
		return nil
	// A session that was signed before the store had a register is not missing from it.
	case v.enrolled || reg.Lines > 0 && signed.Time.After(reg.Began.Time):
		return difference(provenance.RegisterFile, reg.Lines+1,
			fmt.Sprintf("missing: session %s was signed at event %d, "+
				"when the register named it", v.id, signed.Seq))
	}
	v.report.Unregistered = keyed
	return nil
}

// noteDeleted adds the deletion of a session to the register, if the register names the session. In a dry run
// it only checks whether it could.
func (r *reader) noteDeleted(ctx context.Context, id string, opts provenance.CollectOptions) error {
	reg, err := r.Register(ctx)
	if err != nil {
		return err
	}
	switch is := reg.Sessions[id]; {
	case is == nil || is.Deleted:
		return nil
	case opts.Signer == nil:
		return provenance.ErrRegistered
	case opts.DryRun:
		return nil
	}
	return r.enroll(opts.Signer, time.Second, provenance.RegisterLine{Time: provenance.Stamp(time.Now()),
		What: provenance.RegisterDeleted, Session: id})
}
