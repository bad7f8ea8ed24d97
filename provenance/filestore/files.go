package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

const fileMode = 0o600

// openSession opens the directory of an existing session.
func openSession(root *os.Root, id string) (*os.Root, error) {
	if !provenance.ValidSessionID(id) {
		return nil, fmt.Errorf("session %.60q: %w", id, provenance.ErrNotFound)
	}
	dir, err := root.OpenRoot(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("session %s: %w", id, provenance.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("session %s: %w", id, cause(err))
	}
	return dir, nil
}

// writeFile replaces name by data. After a crash, it is the old file or the new one.
func writeFile(dir *os.Root, name string, data []byte, mode fs.FileMode) error {
	parent := path.Dir(name)
	if err := makeDir(dir, parent); err != nil {
		return err
	}
	if err := fsys.WriteFileIn(dir, name, data, mode); err != nil {
		return err
	}
	return fsys.SyncDir(dir, parent)
}

// makeDir creates a directory durably if it does not exist.
func makeDir(dir *os.Root, name string) error {
	err := dir.Mkdir(name, 0o700)
	if err == nil {
		return fsys.SyncDir(dir, ".")
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// removeTemps deletes the temporary files of a writeFile that a crash interrupted. The session must be
// locked.
func removeTemps(dir *os.Root) error {
	for _, parent := range []string{".", provenance.OutputsDir, provenance.ShownDir} {
		entries, err := fs.ReadDir(dir.FS(), parent)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		for _, en := range entries {
			if strings.HasPrefix(en.Name(), fsys.TempPrefix) {
				if err := dir.Remove(path.Join(parent, en.Name())); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// checkRegular returns an error if name is neither a regular file nor absent.
func checkRegular(dir *os.Root, name string) error {
	info, err := dir.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return cause(err)
	case !info.Mode().IsRegular():
		return fsys.ErrNotRegular
	}
	return nil
}

// openRegular opens a regular file for reading. It refuses links and devices, and does not block on a named
// pipe. Errors: provenance.ErrNotFound, fsys.ErrNotRegular.
func openRegular(dir *os.Root, name string) (*os.File, error) {
	f, _, err := fsys.OpenIn(dir, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, provenance.ErrNotFound
	}
	return f, cause(err)
}
