package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

const (
	// maxOutputs is how many bytes of outputs a session keeps by default, maxOutputFiles how many
	// files.
	maxOutputs     = 256 << 20
	maxOutputFiles = 10_000
)

// stock counts the files of a directory of a session.
type stock struct {
	mu      sync.Mutex // held while one is written
	counted bool
	files   int
	bytes   int64
}

// count reads what earlier processes left. The caller holds mu.
func (k *stock) count(dir *os.Root, name string) error {
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

// putOutput writes a kept stream, for which the oldest ones make room. One that an event names stays
// as it is.
func (s *session) putOutput(ctx context.Context, dir *os.Root, f provenance.File, data []byte) error {
	s.outputs.mu.Lock()
	defer s.outputs.mu.Unlock()
	if err := s.outputs.count(dir, provenance.OutputsDir); err != nil {
		return unavailable("count outputs", err)
	}
	before, err := dir.Lstat(f.Name)
	if err == nil {
		named, err := s.names(f.Name)
		if err != nil {
			return err
		}
		if named {
			return fmt.Errorf("put %s: %w: an event names this output", f.Name, provenance.ErrInvalid)
		}
	}
	most := s.opts.Outputs
	if s.outputs.bytes+f.Size > most || s.outputs.files >= maxOutputFiles {
		// Making room for more than the one that comes spares reading the record each time.
		if err := s.removeOutputs(ctx, dir, most/4+f.Size); err != nil {
			return err
		}
	}
	if err := writeFile(dir, f.Name, data, fileMode); err != nil {
		return unavailable("put "+f.Name, err)
	}
	if before == nil {
		s.outputs.files++
	} else {
		s.outputs.bytes -= before.Size()
	}
	s.outputs.bytes += f.Size
	return nil
}

// names reports whether an event names a file.
func (s *session) names(name string) (bool, error) {
	for e, err := range s.recorded() {
		if err != nil {
			return false, err
		}
		for _, f := range e.Files {
			if f.Name == name {
				return true, nil
			}
		}
	}
	return false, nil
}

// removeOutputs deletes the oldest outputs that events name until room bytes are free, a quarter of
// the files in any case when there are too many. An event tells of it first.
func (s *session) removeOutputs(ctx context.Context, dir *os.Root, room int64) error {
	old, err := s.keptOutputs()
	if err != nil {
		return err
	}
	var gone provenance.OutputsRemoved
	gone.Type = provenance.TypeOutputsRemoved
	left, files := s.outputs.bytes, s.outputs.files
	for _, f := range old {
		if left+room <= s.opts.Outputs && files < maxOutputFiles*3/4 {
			break
		}
		gone.Files = append(gone.Files, f)
		left -= f.Size
		files--
	}
	if len(gone.Files) == 0 {
		return nil
	}
	m, err := s.mark(markWritten)
	if err != nil {
		return unavailable("remove outputs", err)
	}
	row, err := provenance.Encode(gone)
	if err != nil {
		return err
	}
	e := &provenance.Event{
		Kind: provenance.KindOutputsRemoved, Session: s.id, Principal: m.tally.Session.Principal, Client: m.tally.Session.Client, Row: row,
		Detail: fmt.Sprintf("%d outputs of %d bytes, the oldest, made room for later ones", len(gone.Files), s.outputs.bytes-left),
	}
	if err := s.append(ctx, e); err != nil {
		return err
	}
	for _, f := range gone.Files {
		if err := dir.Remove(f.Name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return unavailable("remove "+f.Name, err)
		}
	}
	s.outputs.bytes, s.outputs.files = left, files
	return fsys.SyncDir(dir, provenance.OutputsDir)
}

// keptOutputs returns the outputs that events name and none removed, the oldest first.
func (s *session) keptOutputs() ([]provenance.File, error) {
	at := make(map[string]int)
	var all []provenance.File
	for e, err := range s.recorded() {
		if err != nil {
			return nil, err
		}
		removed, err := e.Removed()
		if err != nil {
			return nil, err
		}
		for _, f := range removed {
			if i, ok := at[f.Name]; ok {
				all[i].Name = ""
				delete(at, f.Name)
			}
		}
		for _, f := range e.Files {
			if _, ok := at[f.Name]; !ok && strings.HasPrefix(f.Name, provenance.OutputsDir+"/") {
				at[f.Name] = len(all)
				all = append(all, f)
			}
		}
	}
	kept := all[:0]
	for _, f := range all {
		if f.Name != "" {
			kept = append(kept, f)
		}
	}
	return kept, nil
}

// noteRemoved follows which outputs an event removed and none named again.
func noteRemoved(removed map[string]bool, e *provenance.Event) error {
	gone, err := e.Removed()
	for _, f := range gone {
		removed[f.Name] = true
	}
	for _, f := range e.Files {
		delete(removed, f.Name)
	}
	return err
}

// finishRemoval deletes the outputs that an event removed and a crash left. The session must be
// locked.
func finishRemoval(dir *os.Root, removed map[string]bool) error {
	for name := range removed {
		if err := dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
