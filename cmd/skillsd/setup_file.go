package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// maxClientFile is the longest file of a client that is edited, in bytes. Claude Code keeps a history
// in its own.
const maxClientFile = 64 << 20

// clientFile is a file that a client reads its servers from.
type clientFile struct {
	Path string
	// Shared is a file of a project, which may be somebody else's: a link there could lead anywhere.
	Shared bool

	mode  fs.FileMode // of a file that is made
	there bool
	text  []byte
}

// maxBackups is how many files as they were before are kept beside one.
const maxBackups = 99

// backupPath is where the file is kept as it was before a change: the first of all as
// FILE.skillsd-backup.
func (f *clientFile) backupPath(n int) string {
	if n == 1 {
		return f.Path + ".skillsd-backup"
	}
	return fmt.Sprintf("%s.skillsd-backup-%d", f.Path, n)
}

// backups are the kept files, in the order in which they were made.
func (f *clientFile) backups() (paths []string) {
	for n := 1; n <= maxBackups; n++ {
		if path := f.backupPath(n); existing(path) {
			paths = append(paths, path)
		}
	}
	return paths
}

// keep writes what was read beside the file, never over what is kept there, and returns where it is.
func (f *clientFile) keep() (string, error) {
	for n := 1; n <= maxBackups; n++ {
		path := f.backupPath(n)
		if !existing(path) {
			return path, writeClientFile(path, f.text, f.mode)
		}
		if text, _, err := readClientFile(path); err == nil && bytes.Equal(text, f.text) {
			return path, nil
		}
	}
	return "", &exitError{Code: exitFailure, Err: fmt.Errorf("%d files as they were are kept beside %s", maxBackups, f.Path),
		Hint: "remove those that are not needed any more: rm " + shellLine([]string{f.Path}) + ".skillsd-backup-*"}
}

// read reads the file, which may be missing. A link is followed where the file is the user's own, and
// what it leads to is what is edited.
func (f *clientFile) read() error {
	info, err := os.Lstat(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		if f.Shared {
			return fmt.Errorf("%s is a link, which is not followed in a project", f.Path)
		}
		if f.Path, err = filepath.EvalSymlinks(f.Path); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	f.text, f.mode, err = readClientFile(f.Path)
	f.there = err == nil
	return err
}

func readClientFile(path string) ([]byte, fs.FileMode, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|openNonblock, 0)
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("%s is no regular file", path)
	}
	text, err := io.ReadAll(io.LimitReader(file, maxClientFile+1))
	if err == nil && len(text) > maxClientFile {
		err = fmt.Errorf("%s is longer than %d bytes", path, maxClientFile)
	}
	return text, info.Mode().Perm(), err
}

// unchanged is an error when the file is no longer what was read: a client that runs may have written
// it meanwhile.
func (f *clientFile) unchanged() error {
	text, _, err := readClientFile(f.Path)
	if errors.Is(err, fs.ErrNotExist) && !f.there {
		return nil
	}
	if err == nil && (!f.there || !bytes.Equal(text, f.text)) {
		err = fmt.Errorf("%s was changed by another program meanwhile; run this again", f.Path)
	}
	return err
}

// replace puts text in the place of the file, which is what was read until then.
func (f *clientFile) replace(ctx context.Context, text []byte) error {
	if !f.there && !f.Shared {
		if err := os.MkdirAll(filepath.Dir(f.Path), 0o700); err != nil {
			return err
		}
	}
	unlock, err := lockEdit(ctx, f.Path)
	if err != nil {
		return err
	}
	defer unlock()
	if err := f.unchanged(); err != nil {
		return err
	}
	return writeClientFile(f.Path, text, f.mode)
}

// restore puts back what is kept in backup, or removes the file when that is empty because nothing was
// there before setup made it.
func (f *clientFile) restore(ctx context.Context, text []byte, backup string) error {
	unlock, err := lockEdit(ctx, f.Path)
	if err != nil {
		return err
	}
	defer unlock()
	if err := f.unchanged(); err != nil {
		return err
	}
	if backup == "" {
		return os.Remove(f.Path)
	}
	if err := writeClientFile(f.Path, text, f.mode); err != nil {
		return err
	}
	return os.Remove(backup)
}

// writeClientFile writes a file whole or not at all.
func writeClientFile(path string, text []byte, mode fs.FileMode) (err error) {
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(temp.Name())
		}
	}()
	_, err = temp.Write(text)
	if err = errors.Join(err, temp.Chmod(mode), temp.Sync(), temp.Close()); err != nil {
		return err
	}
	return os.Rename(temp.Name(), path)
}
