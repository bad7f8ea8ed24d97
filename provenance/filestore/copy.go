package filestore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/mod/sumdb/note"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// CopyFrom copies a session of another store into a directory, as that one has it, and returns what there is
// to say of the copy, which appears at once. It is not there after an error. With durably, it is on the disk.
//
// Errors: provenance.ErrTaken if the directory has a session of this id, the errors of from and of
// provenance.Reader.Verify, *provenance.VerifyError for example, the errors of the disk.
func CopyFrom(
	ctx context.Context, dir string, from provenance.Reader, id string, durably bool, keys ...note.Verifier,
) (report *provenance.Report, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	if !provenance.ValidSessionID(id) {
		return nil, fmt.Errorf("copy session %.60q: %w", id, provenance.ErrNotFound)
	}
	if _, err := root.Lstat(id); !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(err, fmt.Errorf("copy session %s: %w", id, provenance.ErrTaken))
	}
	part := "~copy-" + rand.Text() // which no session can have as its name
	defer func() { err = errors.Join(err, root.RemoveAll(part)) }()
	write := fsys.WriteUnsyncedIn
	if durably {
		write = fsys.WriteFileIn
	}
	dirs := map[string]bool{part: true}
	copyFile := func(name string) error {
		r, err := from.Stored(ctx, id, name)
		if err != nil {
			return err
		}
		data, err := io.ReadAll(r)
		to := path.Join(part, id, name)
		dirs[path.Dir(to)] = true
		err = errors.Join(err, r.Close())
		if err != nil {
			return fmt.Errorf("copy %s of session %s: %w", name, id, err)
		}
		err = root.MkdirAll(path.Dir(to), 0o700)
		if err != nil {
			return fmt.Errorf("copy %s of session %s: %w", name, id, err)
		}
		err = write(root, to, data, 0o600)
		if err != nil {
			return fmt.Errorf("copy %s of session %s: %w", name, id, err)
		}
		return nil
	}
	err = copyFile(provenance.EventsFile)
	for name, failed := range from.Files(ctx, id) {
		err = errors.Join(err, failed)
		if err == nil && name != provenance.EventsFile {
			err = copyFile(name)
		}
		if err != nil {
			break
		}
	}
	for name := range dirs {
		if err == nil && durably {
			err = fsys.SyncDir(root, name)
		}
	}
	if err != nil {
		return nil, err
	}
	copied, err := OpenReader(filepath.Join(dir, part))
	if err != nil {
		return nil, err
	}
	report, err = copied.Verify(ctx, id, keys...)
	err = errors.Join(err, copied.Close())
	if err != nil {
		return nil, err
	}
	err = root.Rename(path.Join(part, id), id)
	if err != nil {
		return nil, err
	}
	if durably {
		err = fsys.SyncDir(root, ".")
	}
	if err != nil {
		return nil, err
	}
	return report, nil
}
