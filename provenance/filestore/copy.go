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

// CopyFrom copies a session of another store into dir unchanged, verifies the copy and returns the report.
// The copy appears under its name only when it is complete; after an error no copy remains. If durably is
// set, the copy is on stable storage when CopyFrom returns.
//
// Errors: provenance.ErrTaken if dir has a session with this ID; the errors of from, of writing and of
// provenance.Reader.Verify, such as *provenance.VerifyError.
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
	// No session can have this name.
	part := "~copy-" + rand.Text()
	defer func() { err = errors.Join(err, root.RemoveAll(part)) }()
	if err := copyFiles(ctx, root, part, from, id, durably); err != nil {
		return nil, err
	}
	report, err = verifyCopy(ctx, filepath.Join(dir, part), id, keys)
	if err != nil {
		return nil, err
	}
	if err := root.Rename(path.Join(part, id), id); err != nil {
		return nil, err
	}
	if durably {
		if err := fsys.SyncDir(root, "."); err != nil {
			return nil, err
		}
	}
	return report, nil
}

// copyFiles writes the stored files of a session below the directory part of root, the record first.
func copyFiles(
	ctx context.Context, root *os.Root, part string, from provenance.Reader, id string, durably bool,
) error {
	write := fsys.WriteUnsyncedIn
	if durably {
		write = fsys.WriteFileIn
	}
	dirs := map[string]bool{part: true}
	copyFile := func(name string) error {
		data, err := readStored(ctx, from, id, name)
		if err != nil {
			return err
		}
		to := path.Join(part, id, name)
		dirs[path.Dir(to)] = true
		if err := root.MkdirAll(path.Dir(to), 0o700); err != nil {
			return fmt.Errorf("copy %s of session %s: %w", name, id, err)
		}
		if err := write(root, to, data, 0o600); err != nil {
			return fmt.Errorf("copy %s of session %s: %w", name, id, err)
		}
		return nil
	}
	if err := copyFile(provenance.EventsFile); err != nil {
		return err
	}
	for name, err := range from.Files(ctx, id) {
		if err != nil {
			return err
		}
		if name == provenance.EventsFile {
			continue
		}
		if err := copyFile(name); err != nil {
			return err
		}
	}
	if !durably {
		return nil
	}
	for name := range dirs {
		if err := fsys.SyncDir(root, name); err != nil {
			return err
		}
	}
	return nil
}

// readStored returns the stored bytes of a session's file.
func readStored(ctx context.Context, from provenance.Reader, id, name string) ([]byte, error) {
	r, err := from.Stored(ctx, id, name)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(r)
	err = errors.Join(err, r.Close())
	if err != nil {
		return nil, fmt.Errorf("copy %s of session %s: %w", name, id, err)
	}
	return data, nil
}

// verifyCopy verifies the only session in dir.
func verifyCopy(
	ctx context.Context, dir, id string, keys []note.Verifier,
) (*provenance.Report, error) {
	copied, err := OpenReader(dir)
	if err != nil {
		return nil, err
	}
	report, err := copied.Verify(ctx, id, keys...)
	err = errors.Join(err, copied.Close())
	if err != nil {
		return nil, err
	}
	return report, nil
}
