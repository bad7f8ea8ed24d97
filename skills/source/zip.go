package source

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/archive"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// Zip is a zip archive as a source. Its methods are safe for concurrent use.
//
// The archive may be replaced while it is served. Every call compares the file with the one that was
// checked, and checks a new one; files that are opened from then on are of the new version. An open file
// continues to read the archive in which it was opened, or fails if that one was overwritten in place: its
// bytes never come from two versions. On systems where an open file cannot be replaced, such as Windows, the
// archive can be replaced only after Close.
type Zip struct {
	path string

	mu     sync.Mutex // one of the calls that find the archive replaced reads it
	now    *pinned    // nil until the first call
	closed bool
}

var _ skills.Source = (*Zip)(nil)

// NewZip returns the archive at a path of this machine. It opens nothing: if the archive is missing or
// refused, every later call fails until a good one replaces it.
//
// Errors of all methods: system errors, without the path; *[archive.Error]; [fs.ErrClosed].
func NewZip(path string) *Zip { return &Zip{path: path} }

// Origin returns the path.
func (z *Zip) Origin() string { return z.path }

// Open opens a file or a directory of the current archive. Files are read from their start, by one caller at
// a time.
func (z *Zip) Open(name string) (fs.File, error) {
	a, err := z.current()
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return a.Open(name)
}

// Pin returns the current archive. It keeps the file open; the garbage collector closes it.
func (z *Zip) Pin() (fs.FS, error) {
	a, err := z.current()
	if err != nil {
		return nil, err
	}
	return a, nil
}

// Version returns the SHA-256 digest of the archive's bytes. It reads them once for each version, and
// otherwise only calls stat.
func (z *Zip) Version(context.Context) (string, error) {
	a, err := z.current()
	if err != nil {
		return "", err
	}
	return a.digest()
}

// Close closes the archive. Reads in progress fail, and so does every later call.
func (z *Zip) Close() error {
	z.mu.Lock()
	defer z.mu.Unlock()
	isOpen := !z.closed && z.now != nil
	z.closed = true
	if !isOpen {
		return nil
	}
	return z.now.file.Close()
}

// current returns the archive that is at the path now, checked.
func (z *Zip) current() (*pinned, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.closed {
		return nil, fs.ErrClosed
	}
	// The stat is cheap enough for each call, and finds an archive that was replaced by a rename or
	// overwritten.
	info, err := os.Stat(z.path)
	if err != nil {
		return nil, bare(err)
	}
	if z.now != nil && z.now.is(info) && !z.now.suspect.Load() {
		return z.now, nil
	}
	file, info, err := fsys.Open(z.path)
	if err != nil {
		return nil, bare(err)
	}
	fresh := &pinned{file: file, info: info}
	fresh.digest = sync.OnceValues(fresh.hash)
	fresh.reader, err = archive.ZipWithLinks(file, info.Size())
	if err != nil {
		return nil, errors.Join(bare(err), file.Close())
	}
	fresh.links = slices.ContainsFunc(fresh.reader.File, func(f *zip.File) bool {
		return f.Mode()&fs.ModeSymlink != 0
	})
	// The directory may have been read while a program was still writing the archive.
	err = fresh.unchanged()
	if err != nil {
		return nil, errors.Join(bare(err), file.Close())
	}
	// The old file is not closed here: pinned views and open files still read it, and the garbage collector
	// closes it after them.
	z.now = fresh
	return fresh, nil
}

// bare removes the path of this machine from an error.
func bare(err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return at.Err
	}
	return err
}

// errChanged is the error of an archive that was overwritten after its directory was read.
var errChanged = errors.New("the archive was written over while it was read")

// pinned is one version of a zip file, open and checked.
type pinned struct {
	file   *os.File
	info   fs.FileInfo // of file when it was read
	reader *zip.Reader

	links   bool        // it has symbolic links
	suspect atomic.Bool // a read failed: the next call checks the archive again
	digest  func() (string, error)
}

// is reports whether info describes the file that was read.
func (a *pinned) is(info fs.FileInfo) bool {
	return os.SameFile(a.info, info) && a.sameContent(info) &&
		fsys.ChangeTime(a.info) == fsys.ChangeTime(info)
}

// sameContent reports whether info describes the same content. It ignores the change time, which changes
// when a replaced file loses its name.
func (a *pinned) sameContent(info fs.FileInfo) bool {
	return a.info.Size() == info.Size() && a.info.ModTime().Equal(info.ModTime())
}

// unchanged returns an error if the file was written to since it was read.
func (a *pinned) unchanged() error {
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

// Open opens a file or a directory. Links are followed within the archive.
func (a *pinned) Open(name string) (fs.File, error) {
	if err := a.unchanged(); err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: bare(err)}
	}
	at := name
	if a.links && fs.ValidPath(name) {
		real, _, err := Resolve(a, name)
		if err != nil {
			// A link that leads out names no file of this source; the reason would contain the text of the
			// link.
			return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		}
		at = real
	}
	opened, err := a.reader.Open(at)
	a.doubt(err)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: bare(err)}
	}
	if info, err := opened.Stat(); err == nil && info.IsDir() {
		return opened, nil
	}
	return &file{File: opened, archive: a, name: name}, nil
}

// Lstat returns the facts about a file, a directory or a link.
func (a *pinned) Lstat(name string) (fs.FileInfo, error) {
	opened, err := a.reader.Open(name)
	if err != nil {
		return nil, &fs.PathError{Op: "lstat", Path: name, Err: bare(err)}
	}
	info, err := opened.Stat()
	return info, errors.Join(err, opened.Close())
}

// ReadLink returns the text of a link.
func (a *pinned) ReadLink(name string) (string, error) {
	info, err := a.Lstat(name)
	if err != nil {
		return "", err
	}
	if info.Mode()&fs.ModeSymlink == 0 {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrInvalid}
	}
	opened, err := a.reader.Open(name)
	if err != nil {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: bare(err)}
	}
	// ZipWithLinks has read it, so it is short.
	text, err := io.ReadAll(opened)
	return string(text), errors.Join(err, opened.Close())
}

// doubt makes the next call check the archive again after an error that its bytes may have caused.
func (a *pinned) doubt(err error) {
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrInvalid) &&
		!errors.Is(err, fs.ErrClosed) {
		a.suspect.Store(true)
	}
}

// hash returns the digest of the whole file.
func (a *pinned) hash() (string, error) {
	sum := sha256.New()
	_, err := io.Copy(sum, io.NewSectionReader(a.file, 0, a.info.Size()))
	if err != nil {
		a.doubt(err)
		return "", bare(err)
	}
	// The bytes may be of two versions if the file was overwritten meanwhile.
	if err := a.unchanged(); err != nil {
		return "", err
	}
	return fmt.Sprintf("sha256:%x", sum.Sum(nil)), nil
}

// file is an open file of an archive. Package archive/zip compares its size and checksum with the archive's
// directory.
type file struct {
	fs.File
	archive *pinned
	name    string
}

// Read reads the next bytes. They are verified only once Read has returned io.EOF; after any other error
// they may not be the bytes of the file.
func (f *file) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	if err == nil {
		return n, nil
	}
	if err == io.EOF {
		// Bytes that were overwritten meanwhile are an error even if their checksum fits.
		changed := f.archive.unchanged()
		if changed == nil {
			return n, io.EOF
		}
		err = changed
	}
	f.archive.doubt(err)
	return n, &fs.PathError{Op: "read", Path: f.name, Err: bare(err)}
}
