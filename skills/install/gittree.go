package install

import (
	"bufio"
	"context"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// gitTree is all files of a commit. The requested part of it is checked out first, and other files when they
// are needed: most commands that name a part of a large repository need none of them.
type gitTree struct {
	heldDir
	ctx context.Context // of the command: fs.FS has none
	out *checkout

	mu   sync.Mutex
	rest map[string]object          // files that are not checked out, by path
	dirs map[string]map[string]bool // names in each directory with such files
}

func newGitTree(ctx context.Context, root *os.Root, out *checkout, rest []object) *gitTree {
	t := &gitTree{heldDir: heldDir{root}, ctx: ctx, out: out, rest: map[string]object{},
		dirs: map[string]map[string]bool{}}
	for _, o := range rest {
		t.rest[o.path] = o
		for name := o.path; name != "."; name = path.Dir(name) {
			dir := path.Dir(name)
			if t.dirs[dir] == nil {
				t.dirs[dir] = map[string]bool{}
			} else if t.dirs[dir][path.Base(name)] {
				// The directories above have the name already, from an earlier file.
				break
			}
			t.dirs[dir][path.Base(name)] = true
		}
	}
	return t
}

// bring checks out some files, unless they are.
func (t *gitTree) bring(names ...string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var files []object
	for _, name := range names {
		if o, ok := t.rest[name]; ok {
			files = append(files, o)
			delete(t.rest, name)
		}
	}
	if len(files) == 0 {
		return nil
	}
	return t.out.contents(t.ctx, files, func(int, int) {})
}

// bringBelow checks out all files of a directory at once.
func (t *gitTree) bringBelow(dir string) error {
	t.mu.Lock()
	names := slices.Collect(maps.Keys(t.rest))
	t.mu.Unlock()
	return t.bring(slices.DeleteFunc(names, func(name string) bool {
		return !strings.HasPrefix(name, dir+"/")
	})...)
}

// known returns the facts about a file that is not checked out, or about a directory with one.
func (t *gitTree) known(name string) fs.FileInfo {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o, ok := t.rest[name]; ok {
		return objectInfo{o, 0}
	}
	if t.dirs[name] != nil {
		return objectInfo{object{path: name}, fs.ModeDir}
	}
	return nil
}

// Open opens a file.
func (t *gitTree) Open(name string) (fs.File, error) {
	if err := t.bring(name); err != nil {
		return nil, err
	}
	return t.heldDir.Open(name)
}

// Lstat returns the facts about a file, a directory or a link.
func (t *gitTree) Lstat(name string) (fs.FileInfo, error) {
	if info := t.known(name); info != nil {
		return info, nil
	}
	return t.heldDir.Lstat(name)
}

// Stat is Lstat that follows a link.
func (t *gitTree) Stat(name string) (fs.FileInfo, error) {
	info := t.known(name)
	if info != nil && info.Mode()&fs.ModeSymlink == 0 {
		return info, nil
	}
	if err := t.bring(name); err != nil {
		return nil, err
	}
	return t.heldDir.Stat(name)
}

// ReadLink returns the text of a link.
func (t *gitTree) ReadLink(name string) (string, error) {
	if err := t.bring(name); err != nil {
		return "", err
	}
	return t.heldDir.ReadLink(name)
}

// ReadDir lists a directory.
func (t *gitTree) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := t.heldDir.ReadDir(name)
	t.mu.Lock()
	names := slices.Collect(maps.Keys(t.dirs[name]))
	t.mu.Unlock()
	if err != nil && len(names) == 0 {
		return nil, err
	}
	isThere := make(map[string]bool, len(entries))
	for _, e := range entries {
		isThere[e.Name()] = true
	}
	for _, base := range names {
		if info := t.known(path.Join(name, base)); info != nil && !isThere[base] {
			entries = append(entries, fs.FileInfoToDirEntry(info))
		}
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

// objectInfo are the facts about a file that is not checked out.
type objectInfo struct {
	object
	dir fs.FileMode // ModeDir for a directory
}

func (i objectInfo) Name() string       { return path.Base(i.path) }
func (i objectInfo) Size() int64        { return i.size }
func (i objectInfo) ModTime() time.Time { return time.Time{} }
func (i objectInfo) IsDir() bool        { return i.dir != 0 }
func (i objectInfo) Sys() any           { return nil }

func (i objectInfo) Mode() fs.FileMode {
	switch {
	case i.dir != 0:
		return fs.ModeDir | 0o700
	case i.mode == modeLink:
		return fs.ModeSymlink | 0o777
	}
	return 0o600
}

// contents reads objects and writes them as files.
func (c *checkout) contents(ctx context.Context, files []object, progress func(done, total int)) error {
	// git answers in the order of the ids, with the bytes of the repository: cat-file applies no filter and
	// no attribute.
	var ids strings.Builder
	for _, o := range files {
		ids.WriteString(o.id + "\n")
	}
	cmd := c.repo.command(ctx, "cat-file", "--batch", "--buffer")
	cmd.Stdin = strings.NewReader(ids.String())
	return c.repo.run(ctx, cmd, func(pipe io.Reader) error {
		out := bufio.NewReaderSize(pipe, 1<<16)
		for n, o := range files {
			if err := c.content(out, o); err != nil {
				return err
			}
			progress(n+1, len(files))
		}
		return nil
	})
}
