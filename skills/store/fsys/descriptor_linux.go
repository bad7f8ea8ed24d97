package fsys

import (
	"io"
	"io/fs"
	"strings"
	"syscall"
	"time"
)

// File returns an open regular file by its descriptor, which it owns. An *os.File would try to register it
// with the poller, which does not support regular files.
func File(fd int, name string) fs.File { return descriptor{fd, name} }

type descriptor struct {
	fd   int
	name string
}

func (f descriptor) Close() error { return syscall.Close(f.fd) }

func (f descriptor) Read(p []byte) (n int, err error) {
	for {
		n, err = syscall.Read(f.fd, p)
		if err != syscall.EINTR {
			break
		}
	}
	if n == 0 && err == nil && len(p) > 0 {
		err = io.EOF
	}
	return max(n, 0), err
}

func (f descriptor) Stat() (fs.FileInfo, error) {
	info := &described{name: f.name}
	if err := syscall.Fstat(f.fd, &info.stat); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: f.name, Err: err}
	}
	return info, nil
}

type described struct {
	name string
	stat syscall.Stat_t
}

func (i *described) Name() string       { return i.name[strings.LastIndexByte(i.name, '/')+1:] }
func (i *described) Size() int64        { return i.stat.Size }
func (i *described) ModTime() time.Time { return time.Unix(i.stat.Mtim.Unix()) }
func (i *described) IsDir() bool        { return i.Mode().IsDir() }
func (i *described) Sys() any           { return &i.stat }

func (i *described) Mode() fs.FileMode {
	mode := fs.FileMode(i.stat.Mode & 0o777)
	switch i.stat.Mode & syscall.S_IFMT {
	case syscall.S_IFREG:
	case syscall.S_IFDIR:
		mode |= fs.ModeDir
	case syscall.S_IFLNK:
		mode |= fs.ModeSymlink
	default:
		mode |= fs.ModeIrregular
	}
	return mode
}
