package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/store/fsys"
)

// File is one file of a tree.
type File struct {
	Path       string // slash-separated, relative, fs.ValidPath
	Size       int64
	Digest     digest.Digest
	Executable bool // at its source; not part of a digest, and kept only by the first Put of a tree
}

// PathError is a path that no stored tree can have.
type PathError struct{ Path string }

func (e *PathError) Error() string { return fmt.Sprintf("path %q cannot be stored", e.Path) }

func checkFiles(files []File) error {
	for _, file := range files {
		if err := file.Digest.Validate(); err != nil {
			return fmt.Errorf("%s: %w", file.Path, err)
		}
		if _, err := filepath.Localize(file.Path); err != nil || file.Path == "." {
			return &PathError{Path: file.Path}
		}
	}
	return nil
}

// TreeDigest returns the sha256 of the lines "<hex>  <path>\n" of all files in byte order of path. These
// are the lines that sha256sum prints, so that anyone can recompute it. As there, a path with a
// backslash or a line break is escaped and its line starts with a backslash: no path can pass for two
// lines.
func TreeDigest(files []File) digest.Digest {
	sum := sha256.New()
	for _, file := range sortFiles(files) {
		line := file.Digest.Encoded() + "  " + file.Path + "\n"
		if strings.ContainsAny(file.Path, "\\\n\r") {
			escaped := strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`).Replace(file.Path)
			line = `\` + file.Digest.Encoded() + "  " + escaped + "\n"
		}
		io.WriteString(sum, line)
	}
	return digest.NewDigest(digest.SHA256, sum)
}

// Tree is a stored tree that was checked when it was returned. It is immutable.
type Tree struct {
	Digest digest.Digest
	Files  []File // sorted by Path; Executable is not set

	store *Store
	dir   fingerprint
	dirs  []member // below dir
	files []member
	seen  map[string]fingerprint // of files
}

// member is a file or directory of a tree with its fingerprint when it was checked.
type member struct {
	path string // below the tree
	mark fingerprint
}

// fingerprint shows cheaply that a file was not touched since its bytes were hashed, or that no entry was
// added to a directory or removed from it.
type fingerprint struct {
	inode        uint64
	size         int64
	mtime, ctime int64 // nanoseconds since 1970
	digest       digest.Digest
	vouched      bool // the system knows inode and ctime
	settled      bool // the last change was long enough ago for another one to have another time
}

// settling is the coarsest resolution of a file system's times.
const settling = 100 * time.Millisecond

// same reports whether the other fingerprint vouches for the same bytes.
func (f fingerprint) same(other fingerprint) bool {
	return f.vouched && f.settled && other.vouched &&
		f.inode == other.inode && f.size == other.size && f.mtime == other.mtime && f.ctime == other.ctime
}

// Tree returns a stored tree after checking it: with a walk if this process has hashed it before and
// nothing was touched since, else byte for byte.
//
// Errors: ErrNotFound, *CorruptError.
func (s *Store) Tree(ctx context.Context, want digest.Digest) (*Tree, error) {
	if want.Validate() != nil || want.Algorithm() != digest.SHA256 {
		return nil, fmt.Errorf("%w: not a sha256 digest", ErrNotFound)
	}
	s.mu.Lock()
	known := s.trees[want]
	s.mu.Unlock()
	if known != nil && known.untouched() {
		return known, nil
	}
	check := check{
		store: s,
		known: known,
		dirs:  map[string]bool{},
		tree:  &Tree{Digest: want, store: s, seen: map[string]fingerprint{}},
	}
	if err := check.run(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.trees[want] = check.tree
	s.mu.Unlock()
	return check.tree, nil
}

// check is one walk over a stored tree.
type check struct {
	store *Store
	known *Tree           // what this process hashed before, or nil
	dirs  map[string]bool // directories visited of which no file was visited yet
	tree  *Tree
	begun bool // the tree's own directory was visited
}

// run recomputes the digest of the tree, hashing only files that known does not vouch for.
func (c *check) run(ctx context.Context) error {
	dir := treeDir(c.tree.Digest)
	err := fs.WalkDir(c.store.root.FS(), dir, func(name string, entry fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		return c.visit(dir, name, entry)
	})
	if errors.Is(err, fs.ErrNotExist) {
		// A tree that another process stores at this moment was not there when the walk began; it must
		// not pass for a damaged one, which would be removed.
		if _, statErr := c.store.root.Lstat(dir); !c.begun || errors.Is(statErr, fs.ErrNotExist) {
			return ErrNotFound
		}
		return c.corrupt(".", "it changed while it was read")
	}
	if err != nil {
		return err
	}
	for empty := range c.dirs {
		return c.corrupt(empty, "no file of the tree is below it")
	}
	if got := TreeDigest(c.tree.Files); got != c.tree.Digest {
		return c.corrupt(".", "content is "+got.String())
	}
	c.tree.Files = sortFiles(c.tree.Files)
	return nil
}

func (c *check) corrupt(name, what string) error {
	return &CorruptError{Tree: c.tree.Digest, Path: name, What: what}
}

func (c *check) visit(dir, name string, entry fs.DirEntry) error {
	info, err := c.store.root.Lstat(name)
	if err != nil {
		return err
	}
	rel := strings.TrimPrefix(strings.TrimPrefix(name, dir), "/")
	switch {
	case rel == "" && info.IsDir():
		c.begun = true
		c.tree.dir = fingerprintOf(info)
		return nil
	case info.IsDir():
		c.dirs[rel] = true
		c.tree.dirs = append(c.tree.dirs, member{rel, fingerprintOf(info)})
		return nil
	case !info.Mode().IsRegular():
		return c.corrupt(path.Join(".", rel), "not a regular file")
	}
	for parent := path.Dir(rel); parent != "."; parent = path.Dir(parent) {
		delete(c.dirs, parent)
	}
	mark := fingerprintOf(info)
	if c.known != nil && c.known.seen[rel].same(mark) {
		mark.digest = c.known.seen[rel].digest
	} else if mark.digest, err = c.hash(name, rel, info); err != nil {
		return err
	}
	c.tree.seen[rel] = mark
	c.tree.files = append(c.tree.files, member{rel, mark})
	c.tree.Files = append(c.tree.Files, File{Path: rel, Size: info.Size(), Digest: mark.digest})
	return nil
}

// hash reads the file that info describes.
func (c *check) hash(name, rel string, info fs.FileInfo) (digest.Digest, error) {
	file, err := c.store.root.OpenFile(name, os.O_RDONLY|fsys.NonBlock, 0)
	if err != nil {
		return "", err
	}
	defer file.Close()
	opened, err := file.Stat()
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	if !os.SameFile(info, opened) {
		return "", c.corrupt(rel, "it changed while it was read")
	}
	size, err := io.Copy(sum, io.LimitReader(file, info.Size()+1))
	if err != nil {
		return "", err
	}
	if size != info.Size() {
		return "", c.corrupt(rel, "it changed while it was read")
	}
	return digest.NewDigest(digest.SHA256, sum), nil
}

// Open returns a handle of the tree's directory, the one that was checked. The caller closes it.
//
// Errors: *CorruptError if the directory was replaced since.
func (t *Tree) Open() (*os.File, error) {
	handle, err := t.store.root.Open(treeDir(t.Digest))
	if err != nil {
		return nil, err
	}
	info, err := handle.Stat()
	if err == nil && fingerprintOf(info).inode != t.dir.inode {
		err = &CorruptError{Tree: t.Digest, Path: ".", What: "its directory was replaced"}
	}
	if err != nil {
		return nil, errors.Join(err, handle.Close())
	}
	return handle, nil
}

// ReadFile returns the content of a file of the tree, checked against its digest.
//
// Errors: fs.ErrNotExist, *CorruptError.
func (t *Tree) ReadFile(name string) ([]byte, error) {
	mark, ok := t.seen[name]
	if !ok {
		return nil, &fs.PathError{Op: "read", Path: name, Err: fs.ErrNotExist}
	}
	file, err := t.store.root.OpenFile(path.Join(treeDir(t.Digest), name), os.O_RDONLY|fsys.NonBlock, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, mark.size+1))
	if err != nil {
		return nil, err
	}
	if digest.FromBytes(data) != mark.digest {
		return nil, &CorruptError{Tree: t.Digest, Path: name, What: "content changed"}
	}
	return data, nil
}
