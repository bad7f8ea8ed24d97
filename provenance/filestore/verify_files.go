package filestore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

func (v *verifier) checkFile(want provenance.File) error {
	f, err := openRegular(v.dir, want.Name)
	switch {
	case errors.Is(err, provenance.ErrNotFound):
		return difference(want.Name, 1, "missing")
	case errors.Is(err, fsys.ErrNotRegular):
		return difference(want.Name, 1, "not a regular file")
	case err != nil:
		return fmt.Errorf("read %s: %w", want.Name, err)
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
	for e, err := range v.reader.events(v.id, -1) {
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

func (v *verifier) listUnrecorded() error {
	own := append(provenance.ViewNames(), provenance.EventsFile, provenance.SessionFile, provenance.LockFile, provenance.OutputsDir, provenance.ShownDir, provenance.HeadNoteFile)
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
