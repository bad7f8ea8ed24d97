package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

const fileMode = 0o600

// put writes a file of the session durably.
func (s *session) put(ctx context.Context, name string, data []byte) (provenance.File, error) {
	if err := s.enter(); err != nil {
		return provenance.File{}, err
	}
	defer s.wg.Done()
	f := provenance.File{Name: name, Size: int64(len(data)), Digest: digest.FromBytes(data)}
	dir, err := s.openDir()
	if err != nil {
		return provenance.File{}, unavailable("put "+name, err)
	}
	defer dir.Close()
	switch {
	case strings.HasPrefix(name, provenance.OutputsDir+"/"):
		err = s.putOutput(ctx, dir, f, data)
	case f.Size >= minShared:
		if err = s.share(dir, name, f.Digest, data); err == nil {
			err = fsys.SyncDir(dir, ".")
		}
	default:
		err = writeFile(dir, name, data, fileMode)
	}
	switch {
	case errors.Is(err, provenance.ErrInvalid), errors.Is(err, provenance.ErrUnavailable):
		return provenance.File{}, err
	case err != nil:
		return provenance.File{}, unavailable("put "+name, err)
	}
	return f, nil
}

// makeSession opens the directory of a session, creating it if needed.
func makeSession(root *os.Root, id string) (*os.Root, error) {
	if err := makeDir(root, id); err != nil {
		return nil, unavailable("create session directory", err)
	}
	dir, err := root.OpenRoot(id)
	if err != nil {
		return nil, unavailable("open session directory", err)
	}
	return dir, nil
}

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
