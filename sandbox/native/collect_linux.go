package native

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox"
)

const (
	maxOutFiles = 256
	maxOutBytes = 16 << 20 // of all files; sparse ones are larger than the file system they are in

	// Inodes are bounded, but nested directories of long names still have paths of gigabytes.
	maxPath  = 4096 // bytes
	maxDepth = 64   // directories
)

var errTooLarge = errors.New("too large")

// rootOf opens a directory handle for access that cannot leave it.
func rootOf(dir *os.File) (*os.Root, error) {
	return os.OpenRoot("/proc/self/fd/" + strconv.Itoa(int(dir.Fd())))
}

// maxSkipped is how many entries that were left behind are named.
const maxSkipped = 16

// skip counts an entry of /out that is left behind.
func skip(res *sandbox.Result, path string) {
	res.OutSkips++
	if len(res.Skipped) < maxSkipped && len(path) <= 2*maxPath { // a part of one may be a part of a secret
		res.Skipped = append(res.Skipped, path)
	}
}

// collect takes the regular files below dir and notes what it leaves behind.
func collect(dir *os.File, res *sandbox.Result) {
	root, err := rootOf(dir)
	if err != nil {
		skip(res, ".")
		return
	}
	defer func() { _ = root.Close() }()
	left := int64(maxOutBytes)
	err = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			skip(res, path)
			return nil
		case d.IsDir() && (len(path) > maxPath || strings.Count(path, "/") >= maxDepth):
			skip(res, path)
			return fs.SkipDir
		case d.IsDir():
			return nil
		case !d.Type().IsRegular() || len(res.Out) == maxOutFiles || !sandbox.Printable(path):
			skip(res, path)
			return nil
		}
		data, _, err := readRegular(root, path, left)
		if err != nil {
			skip(res, path)
			return nil
		}
		left -= int64(len(data))
		res.Out = append(res.Out, sandbox.OutFile{Name: path, Data: data})
		return nil
	})
	if err != nil {
		skip(res, ".")
	}
}

func readRegular(root *os.Root, path string, limit int64) ([]byte, fs.FileInfo, error) {
	f, err := root.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, errors.New("not a regular file")
	}
	if info.Size() > limit {
		return nil, nil, errTooLarge
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = errTooLarge
	}
	return data, info, err
}
