// Package fsys opens, reads, writes and syncs single files with the care that files of other programs
// require.
//
// Opening never blocks: a named pipe that replaces a file between two calls does not block the reader. Only
// regular files are read, and never more than the caller allows. Writing replaces a file atomically: after a
// crash the name has either the old or the new content.
//
// Functions that end in "In" accept names below an open directory, and refuse a name that is a symbolic link.
// The others accept a path of the operator and follow links.
//
//	data, err := fsys.ReadFileIn(root, "lock.yaml", 1<<20)
//	err = fsys.WriteFile(path, data, 0o600)
//
// The package does not decide which users are trusted: callers check owners and modes with [Exposed], on the
// information of the open file.
package fsys

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// TempPrefix is the prefix of files that are being written. Such a file that no process writes is a leftover
// of a crash and may be removed.
const TempPrefix = ".tmp-"

// ErrNotRegular: a file is not a regular file.
var ErrNotRegular = errors.New("not a regular file")

// TooLongError reports a file that is longer than the caller allows.
type TooLongError struct{ Limit int64 }

func (e *TooLongError) Error() string { return fmt.Sprintf("longer than %d bytes", e.Limit) }

// Open opens a regular file for reading and returns its file info. Links are followed.
//
// Errors: system errors; *fs.PathError with ErrNotRegular.
func Open(name string) (*os.File, fs.FileInfo, error) {
	file, err := os.OpenFile(name, os.O_RDONLY|NonBlock, 0)
	return regular(name, file, err)
}

// OpenIn opens a regular file below root for reading and returns its file info. A name that is a link is
// refused; links in the directories before it are followed by the rules of root.
//
// Errors: system errors; *fs.PathError with ErrNotRegular.
func OpenIn(root *os.Root, name string) (*os.File, fs.FileInfo, error) {
	info, err := root.Lstat(name)
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, &fs.PathError{Op: "open", Path: name, Err: ErrNotRegular}
	}
	// Another file may replace this one now. A file renamed to this name is as good, so the opened file is
	// checked rather than compared.
	file, err := root.OpenFile(name, os.O_RDONLY|NonBlock, 0)
	return regular(name, file, err)
}

// regular returns an open regular file with its file info. It closes any other file.
func regular(name string, file *os.File, err error) (*os.File, fs.FileInfo, error) {
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		file.Close()
		return nil, nil, &fs.PathError{Op: "open", Path: name, Err: ErrNotRegular}
	}
	return file, info, nil
}

// Exists reports whether a name exists, even one of a link that leads nowhere. A name that cannot be looked
// up does not exist.
func Exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

// ExistsIn is Exists for a name below root.
func ExistsIn(root *os.Root, name string) bool {
	_, err := root.Lstat(name)
	return err == nil
}

// Below returns the relative path from dir to path, and whether path is dir or below it. No link is resolved.
func Below(dir, path string) (rel string, below bool) {
	rel, err := filepath.Rel(dir, path)
	return rel, err == nil && filepath.IsLocal(rel)
}

// ReadAll reads r to its end. It fails if there are more than limit bytes.
//
// Errors: errors of r; *TooLongError.
func ReadAll(r io.Reader, limit int64) ([]byte, error) {
	return readAll(r, 0, limit)
}

// readAll is ReadAll with the expected size.
func readAll(r io.Reader, size, limit int64) ([]byte, error) {
	data := bytes.NewBuffer(make([]byte, 0, max(0, min(size, limit))+bytes.MinRead))
	_, err := data.ReadFrom(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(data.Len()) > limit {
		return nil, &TooLongError{Limit: limit}
	}
	return data.Bytes(), nil
}

// Ending returns a reader of r, a regular file of size bytes. It returns io.EOF with the read that reaches
// the size and leaves room in the buffer, which saves a final empty read. A file that has grown is read to
// its end, unless it grew after that read.
func Ending(r io.Reader, size int64) io.Reader { return &ending{r, size} }

type ending struct {
	r    io.Reader
	left int64
}

func (e *ending) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	e.left -= int64(n)
	// A full buffer does not show whether the file has more bytes.
	if e.left == 0 && 0 < n && n < len(p) && err == nil {
		err = io.EOF
	}
	return n, err
}

// ReadFile reads a regular file of at most limit bytes. Links are followed. check, if not nil, may reject the
// open file before it is read.
//
// Errors: system errors; *fs.PathError with ErrNotRegular, *TooLongError or the error of check.
func ReadFile(name string, limit int64, check func(fs.FileInfo) error) ([]byte, error) {
	file, info, err := Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if check != nil {
		if err := check(info); err != nil {
			return nil, &fs.PathError{Op: "read", Path: name, Err: err}
		}
	}
	return read(name, file, limit)
}

// ReadFileIn reads a regular file of at most limit bytes below root. A name that is a link is refused.
//
// Errors: system errors; *fs.PathError with ErrNotRegular or *TooLongError.
func ReadFileIn(root *os.Root, name string, limit int64) ([]byte, error) {
	file, _, err := OpenIn(root, name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return read(name, file, limit)
}

func read(name string, file *os.File, limit int64) ([]byte, error) {
	size := int64(0)
	if info, err := file.Stat(); err == nil {
		size = info.Size()
	}
	data, err := readAll(file, size, limit)
	if long, ok := errors.AsType[*TooLongError](err); ok {
		err = &fs.PathError{Op: "read", Path: name, Err: long}
	}
	return data, err
}

// WriteFile atomically replaces a file, sets its mode regardless of the umask, and syncs it. Its directory
// must exist. A name that is a link is replaced, not its target.
//
// Errors: system errors.
func WriteFile(name string, data []byte, mode fs.FileMode) error {
	return writeFile(name, data, mode, true)
}

// WriteNew writes a file under a name that does not exist yet. Other processes see the whole file or none.
//
// Errors: fs.ErrExist; system errors.
func WriteNew(name string, data []byte, mode fs.FileMode) error {
	temp := filepath.Join(filepath.Dir(name), TempPrefix+rand.Text())
	if err := WriteFile(temp, data, mode); err != nil {
		return err
	}
	// A rename would replace the file of a process that was faster.
	err := os.Link(temp, name)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return errors.Join(err, os.Remove(temp))
	}
	return os.Rename(temp, name) // the file system has no hard links
}

// WriteUnsynced is WriteFile without a sync: after a crash the name may have another content. It is for files
// whose readers detect incomplete content.
//
// Errors: system errors.
func WriteUnsynced(name string, data []byte, mode fs.FileMode) error {
	return writeFile(name, data, mode, false)
}

func writeFile(name string, data []byte, mode fs.FileMode, durably bool) error {
	dir, err := os.OpenRoot(filepath.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	err = writeFileIn(dir, filepath.Base(name), data, mode, durably)
	if err != nil {
		return err
	}
	if !durably {
		return nil
	}
	return SyncDir(dir, ".")
}

// WriteFileIn atomically replaces a file below root and sets its mode regardless of the umask. The content is
// synced before the rename; the rename is synced once [SyncDir] has synced the directory, which must exist.
//
// Errors: system errors. The file is then unchanged.
func WriteFileIn(root *os.Root, name string, data []byte, mode fs.FileMode) error {
	return writeFileIn(root, name, data, mode, true)
}

// WriteUnsyncedIn is WriteFileIn without a sync: after a crash the name may have another content. The caller
// must sync the file before anything depends on it.
//
// Errors: system errors. The file is then unchanged.
func WriteUnsyncedIn(root *os.Root, name string, data []byte, mode fs.FileMode) error {
	return writeFileIn(root, name, data, mode, false)
}

func writeFileIn(
	root *os.Root, name string, data []byte, mode fs.FileMode, durably bool,
) (err error) {
	// The temporary file is in the directory of its name, because a rename cannot cross file systems.
	temp := path.Join(path.Dir(name), TempPrefix+rand.Text())
	// The file is private until it has its mode: another user must not open it early.
	file, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, root.Remove(temp))
		}
	}()
	if err := errors.Join(fill(file, data, mode, durably), file.Close()); err != nil {
		return err
	}
	return root.Rename(temp, name)
}

// fill writes the content and the mode of a new file.
func fill(file *os.File, data []byte, mode fs.FileMode, durably bool) error {
	if _, err := file.Write(data); err != nil {
		return err
	}
	// The mode given to open is subject to the umask.
	if err := file.Chmod(mode); err != nil {
		return err
	}
	if !durably {
		return nil
	}
	return file.Sync()
}
