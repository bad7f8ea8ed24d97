package filestore

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// allocate creates a file of allocated blocks; when it returns, the file has no name. On file systems that
// cannot allocate blocks, the file is empty.
func allocate(root *os.Root, name string, bytes int64) (io.Closer, error) {
	// A server that is killed between making a named file and removing its name would leave the file.
	f, err := root.OpenFile(".", os.O_RDWR|unix.O_TMPFILE, fileMode)
	// Some file systems have no files without a name.
	if err != nil {
		f, err = root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, fileMode)
		if err != nil {
			return nil, err
		}
		err = root.Remove(name)
	}
	for err == nil {
		err = unix.Fallocate(int(f.Fd()), 0, 0, bytes)
		// The Go runtime preempts goroutines with signals, and these interrupt a long fallocate.
		if errors.Is(err, unix.EINTR) {
			err = nil
			continue
		}
		if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
			err = nil
		}
		break
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
