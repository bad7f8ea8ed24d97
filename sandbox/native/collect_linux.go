package native

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox"
)

const (
	maxOutFiles = 256
	maxOutBytes = 16 << 20 // of all files; sparse ones are larger than the file system they are in
)

var errTooLarge = errors.New("too large")

// rootOf opens a directory handle for access that cannot leave it.
func rootOf(dir *os.File) (*os.Root, error) {
	return os.OpenRoot("/proc/self/fd/" + strconv.Itoa(int(dir.Fd())))
}

// collect returns the regular files below dir and how many entries it left behind.
func collect(dir *os.File) (files []sandbox.OutFile, skips int) {
	root, err := rootOf(dir)
	if err != nil {
		return nil, 1
	}
	defer func() { _ = root.Close() }()
	left := int64(maxOutBytes)
	err = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			skips++
			return nil
		case d.IsDir() && (len(path) > maxPath || strings.Count(path, "/") >= maxDepth):
			skips++
			return fs.SkipDir
		case d.IsDir():
			return nil
		case !d.Type().IsRegular() || len(files) == maxOutFiles || !printable(path):
			skips++
			return nil
		}
		data, _, err := readRegular(root, path, left)
		if err != nil {
			skips++
			return nil
		}
		left -= int64(len(data))
		files = append(files, sandbox.OutFile{Name: path, Data: data})
		return nil
	})
	if err != nil {
		skips++
	}
	return files, skips
}

// printable keeps names out that could not be shown or written as JSON.
func printable(name string) bool {
	if !utf8.ValidString(name) {
		return false
	}
	for _, r := range name {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
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
