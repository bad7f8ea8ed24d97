package main

import (
	"bytes"
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

// backupPath is where the file is kept as it was before the last change.
func (f *clientFile) backupPath() string { return f.Path + ".skillsd-backup" }

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

// replace keeps what was read beside the file, if there was any, and puts text in its place.
func (f *clientFile) replace(text []byte) error {
	if f.there {
		if err := writeClientFile(f.backupPath(), f.text, f.mode); err != nil {
			return err
		}
	} else if !f.Shared {
		if err := os.MkdirAll(filepath.Dir(f.Path), 0o700); err != nil {
			return err
		}
	}
	if err := f.unchanged(); err != nil {
		return err
	}
	return writeClientFile(f.Path, text, f.mode)
}

// restore puts back what is kept beside the file, or removes the file when nothing was there before
// setup made it. Nothing of setup is left.
func (f *clientFile) restore(backup []byte) error {
	if err := f.unchanged(); err != nil {
		return err
	}
	if backup == nil {
		return os.Remove(f.Path)
	}
	if err := writeClientFile(f.Path, backup, f.mode); err != nil {
		return err
	}
	return os.Remove(f.backupPath())
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
