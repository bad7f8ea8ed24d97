package source

import (
	"archive/zip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync/atomic"

	"github.com/skillsd/skillsd/skills/store/fsys"
)

// errChanged says that an archive is no longer the one whose directory was read.
var errChanged = errors.New("the archive was written over while it was read")

// archive is one version of a zip file, open and checked.
type archive struct {
	file   *os.File
	info   fs.FileInfo // of file when it was read
	reader *zip.Reader

	suspect atomic.Bool // a read failed, so that the version is checked again
	digest  func() (string, error)
}

// is reports whether a file that info describes is the one that was read.
func (a *archive) is(info fs.FileInfo) bool {
	return os.SameFile(a.info, info) && a.sameContent(info) &&
		fsys.ChangeTime(a.info) == fsys.ChangeTime(info)
}

// sameContent reports whether info describes the same content. It ignores the change time, which
// changes when a file that is replaced loses its name.
func (a *archive) sameContent(info fs.FileInfo) bool {
	return a.info.Size() == info.Size() && a.info.ModTime().Equal(info.ModTime())
}

// unchanged returns an error if the file was written to since it was read.
func (a *archive) unchanged() error {
	info, err := a.file.Stat()
	if err != nil {
		return bare(err)
	}
	if !a.sameContent(info) {
		a.suspect.Store(true)
		return errChanged
	}
	return nil
}

// Open opens a file or a directory.
func (a *archive) Open(name string) (fs.File, error) {
	err := a.unchanged()
	var opened fs.File
	if err == nil {
		opened, err = a.reader.Open(name)
		a.doubt(err)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: bare(err)}
	}
	if info, err := opened.Stat(); err == nil && info.IsDir() {
		return opened, nil
	}
	return &file{File: opened, archive: a, name: name}, nil
}

// doubt makes the next call check the archive again after an error that its bytes may have caused.
func (a *archive) doubt(err error) {
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrInvalid) &&
		!errors.Is(err, fs.ErrClosed) {
		a.suspect.Store(true)
	}
}

// hash returns the digest of the whole file.
func (a *archive) hash() (string, error) {
	sum := sha256.New()
	_, err := io.Copy(sum, io.NewSectionReader(a.file, 0, a.info.Size()))
	if err == nil {
		err = a.unchanged()
	}
	a.doubt(err)
	return fmt.Sprintf("sha256:%x", sum.Sum(nil)), bare(err)
}

// file is a file of an archive that is being read. Package archive/zip compares its size and checksum
// with the archive's directory.
type file struct {
	fs.File
	archive *archive
	name    string
}

// Read reads the next bytes. They are verified only once it has returned io.EOF: another error means that
// they are not the bytes of the file.
func (f *file) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	if err == nil {
		return n, nil
	}
	if err == io.EOF {
		if err = f.archive.unchanged(); err == nil {
			return n, io.EOF
		}
	}
	f.archive.doubt(err)
	return n, &fs.PathError{Op: "read", Path: f.name, Err: bare(err)}
}
