package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

const (
	// maxOutputs is the default limit for the outputs of a session, in bytes; maxOutputFiles limits their
	// number.
	maxOutputs     = 256 << 20
	maxOutputFiles = 10_000
)

// usedSpace is the number and size of the files in a directory of a session.
type usedSpace struct {
	mu      sync.Mutex // held while a file is written
	counted bool
	files   int
	bytes   int64
}

// count adds the files that earlier processes left. The caller holds mu.
func (k *usedSpace) count(dir *os.Root, name string) error {
	if k.counted {
		return nil
	}
	entries, err := fs.ReadDir(dir.FS(), name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, en := range entries {
		info, err := en.Info()
		if err != nil {
			return err
		}
		k.files++
		k.bytes += info.Size()
	}
	k.counted = true
	return nil
}

// putOutput writes a kept stream, after deleting the oldest streams if space is needed. It does not replace a
// stream that an event names.
func (s *session) putOutput(ctx context.Context, dir *os.Root, f provenance.File, data []byte) error {
	s.outputs.mu.Lock()
	defer s.outputs.mu.Unlock()
	if err := s.outputs.count(dir, provenance.OutputsDir); err != nil {
		return err
	}
	before, err := dir.Lstat(f.Name)
	if err == nil {
		// A Put may be repeated if its event was not written, but an output that an event names is evidence.
		kept, err := s.keptOutputs()
		if err != nil {
			return err
		}
		if slices.ContainsFunc(kept, func(k provenance.File) bool { return k.Name == f.Name }) {
			return fmt.Errorf("put %s: %w: an event names this output", f.Name, provenance.ErrInvalid)
		}
	}
	most := s.opts.Outputs
	if s.outputs.bytes+f.Size > most || s.outputs.files >= maxOutputFiles {
		// Freeing more than this output needs makes reading the record less frequent.
		if err := s.removeOutputs(ctx, dir, most/4+f.Size); err != nil {
			return err
		}
	}
	if err := writeOutput(dir, f.Name, data); err != nil {
		return err
	}
	s.store.ledger.add(s.id, "", f.Size, f.Size)
	if before == nil {
		s.outputs.files++
	} else {
		s.outputs.bytes -= before.Size()
	}
	s.outputs.bytes += f.Size
	return nil
}

// writeOutput writes a file that no event names yet, so nothing reads a partial file that a crash left.
// Unlike writeFile, it syncs the file under its final name: that sync mostly puts the directory entry on disk
// too.
func writeOutput(dir *os.Root, name string, data []byte) error {
	if err := makeDir(dir, provenance.OutputsDir); err != nil {
		return err
	}
	if err := writeUnsynced(dir, name, data, fileMode); err != nil {
		return err
	}
	if err := syncFile(dir, name); err != nil {
		return err
	}
	return fsys.SyncDir(dir, provenance.OutputsDir)
}

// removeOutputs deletes the oldest outputs that events name until need bytes are free, and at least a quarter
// of the files if there are too many. First it records an event that names them.
func (s *session) removeOutputs(ctx context.Context, dir *os.Root, need int64) error {
	old, err := s.keptOutputs()
	if err != nil {
		return err
	}
	gone := provenance.OutputsRemoved{Type: provenance.TypeOutputsRemoved}
	left, files := s.outputs.bytes, s.outputs.files
	for _, f := range old {
		if left+need <= s.opts.Outputs && files < maxOutputFiles*3/4 {
			break
		}
		gone.Files = append(gone.Files, f)
		left -= f.Size
		files--
	}
	if len(gone.Files) == 0 {
		return nil
	}
	info := s.point().tally.Session
	row, err := provenance.Encode(gone)
	if err != nil {
		return err
	}
	e := &provenance.Event{
		Kind: provenance.KindOutputsRemoved, Session: s.id, Principal: info.Principal,
		Client: info.Client, Row: row,
		Detail: fmt.Sprintf("%d outputs of %d bytes, the oldest, made room for later ones",
			len(gone.Files), s.outputs.bytes-left),
	}
	// The event comes first. After a crash in between, load deletes the files it names, and Verify has an
	// explanation for those already missing.
	if err := s.append(ctx, e); err != nil {
		return err
	}
	for _, f := range gone.Files {
		if err := dir.Remove(f.Name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return unavailable("remove "+f.Name, err)
		}
	}
	s.store.ledger.add(s.id, "", left-s.outputs.bytes, left-s.outputs.bytes)
	s.outputs.bytes, s.outputs.files = left, files
	return fsys.SyncDir(dir, provenance.OutputsDir)
}

// keptOutputs returns the outputs that events name and no later event removed, oldest first.
func (s *session) keptOutputs() (kept []provenance.File, err error) {
	named := make(map[string]bool)
	for e, err := range s.store.events(s.id) {
		if err != nil {
			return nil, err
		}
		removed, err := e.Removed()
		if err != nil {
			return nil, err
		}
		for _, f := range removed {
			delete(named, f.Name)
		}
		if len(removed) > 0 {
			kept = slices.DeleteFunc(kept, func(f provenance.File) bool { return !named[f.Name] })
		}
		for _, f := range e.Files {
			if !named[f.Name] && strings.HasPrefix(f.Name, provenance.OutputsDir+"/") {
				named[f.Name] = true
				kept = append(kept, f)
			}
		}
	}
	return kept, nil
}
