package content

import (
	"crypto/sha256"
	"io"
	"io/fs"
	"os"
	"sync"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/store/fsys"
)

// DamageError is the reason why a member of a tree is not what was stored.
type DamageError struct{ What string } // a clause

func (e *DamageError) Error() string { return e.What }

// Mode returns the mode of stored files.
func Mode(executable bool) fs.FileMode {
	if executable {
		return 0o755
	}
	return 0o644
}

// buffer is large enough for most files: they are read and written by one call each.
type buffer [32 << 10]byte

var buffers = sync.Pool{New: func() any { return new(buffer) }}

// Create makes a file below root with the rest of r, and returns its digest and size. mode chooses the mode
// from the first bytes of the file. The file is not synced; if Create fails, it is removed.
//
// Errors: errors of r; fs.ErrExist; system errors.
func Create(
	root *os.Root, name string, r io.Reader, mode func(head []byte) fs.FileMode,
) (sum digest.Digest, size int64, err error) {
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o400)
	if err != nil {
		return "", 0, err
	}
	sum, size, err = fill(file, r, mode)
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		_ = root.Remove(name)
		return "", 0, err
	}
	return sum, size, nil
}

// fill writes the content and the mode of a new file.
func fill(
	file *os.File, r io.Reader, mode func(head []byte) fs.FileMode,
) (sum digest.Digest, size int64, err error) {
	buf := buffers.Get().(*buffer)
	defer buffers.Put(buf)
	hash := sha256.New()
	both := io.MultiWriter(file, hash)
	n, err := io.ReadFull(r, buf[:])
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return "", 0, err
	}
	chosen := mode(buf[:n])
	if _, err := both.Write(buf[:n]); err != nil {
		return "", 0, err
	}
	rest, err := io.CopyBuffer(both, r, buf[:])
	if err != nil {
		return "", 0, err
	}
	// The mode is set last, so that the file is readable for others only once it is complete.
	return digest.NewDigest(digest.SHA256, hash), int64(n) + rest, file.Chmod(chosen)
}

// Found is a file, directory or link of a tree.
type Found struct {
	Info   fs.FileInfo   // as of before it was hashed
	Digest digest.Digest // of a regular file
	Target string        // of a link
	// Mark is the mark of the member as it was hashed. It is zero if a later change could leave it the same:
	// if the member changed less than [Settling] before, or if the system has no marks.
	Mark Mark
}

// Inspect hashes a regular file below root, or reads the target of a link.
//
// Errors: *DamageError if another user can change the member, or if it changed meanwhile; system errors.
func Inspect(root *os.Root, name string) (*Found, error) {
	info, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	f := &Found{Info: info, Mark: settled(MarkOf(info))}
	// Another user could replace the bytes between check and use.
	if err := fsys.Exposed(info); err != nil {
		return nil, &DamageError{err.Error()}
	}
	switch {
	case info.Mode().Type() == fs.ModeSymlink:
		f.Target, err = root.Readlink(name)
		return f, err
	case !info.Mode().IsRegular():
		return f, nil
	}
	file, err := root.OpenFile(name, os.O_RDONLY|fsys.NonBlock, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	opened, err := file.Stat()
	if err != nil {
		return nil, err
	}
	hash := sha256.New()
	// One byte more than the size shows that the file grew.
	size, err := io.Copy(hash, io.LimitReader(file, info.Size()+1))
	if err != nil {
		return nil, err
	}
	// Another file may have taken the name between Lstat and open.
	if size != info.Size() || !os.SameFile(info, opened) {
		return nil, &DamageError{"it changed while it was read"}
	}
	f.Digest = digest.NewDigest(digest.SHA256, hash)
	return f, nil
}
