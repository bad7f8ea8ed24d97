package native

import (
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native/pidone"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

const (
	maxOutFiles = 256
	maxOutBytes = 16 << 20 // of all files; a sparse file may be larger than its file system

	// Inodes are limited, but nested directories with long names can still have paths of gigabytes.
	maxPath  = 4096 // bytes
	maxDepth = 64   // directories
)

// maxSkipped is how many skipped entries are named.
const maxSkipped = 16

// skip records a skipped entry of /out, and keeps the first names.
func skip(res *sandbox.Result, path string) {
	res.OutSkips++
	// A part of a name may be a part of a secret, so a long name is left out.
	if len(res.Skipped) < maxSkipped && len(path) <= 2*maxPath {
		res.Skipped = append(res.Skipped, path)
	}
}

// collect reads the regular files below dir and records the entries that it skips.
func collect(dir *os.File, res *sandbox.Result) {
	root, err := os.OpenRoot("/proc/self/fd/" + strconv.Itoa(int(dir.Fd())))
	if err != nil {
		skip(res, ".")
		return
	}
	defer root.Close()
	left := int64(maxOutBytes)
	err = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			// One unreadable entry must not hide the others.
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
		data, err := readFile(root, path, left)
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

func readFile(root *os.Root, name string, limit int64) ([]byte, error) {
	f, info, err := fsys.OpenIn(root, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// Sparse files are cheap to create and expensive to read.
	if info.Size() > limit {
		return nil, &fsys.TooLongError{Limit: limit}
	}
	return fsys.ReadAll(f, limit)
}

// unpack applies the rules of collect to the files that a guest sent.
func unpack(data []byte, res *sandbox.Result) {
	if len(data) == 0 {
		return
	}
	files, skips, err := pidone.Unpack(data)
	if err != nil {
		skip(res, ".")
		return
	}
	slices.SortFunc(files, func(a, b pidone.File) int { return strings.Compare(a.Name, b.Name) })
	size := 0
	for i, f := range files {
		size += len(f.Data)
		// A guest can send any name, such as one that leads out of the directory or one that it has sent
		// before.
		if !fs.ValidPath(f.Name) || f.Name == "." || !sandbox.Printable(f.Name) ||
			i > 0 && files[i-1].Name == f.Name || len(res.Out) == maxOutFiles || size > maxOutBytes {
			skip(res, f.Name)
			continue
		}
		res.Out = append(res.Out, sandbox.OutFile{Name: f.Name, Data: f.Data})
	}
	// The guest does not send the names.
	res.OutSkips += skips
}
