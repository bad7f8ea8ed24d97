package store

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/store/fsys"
)

// File is one file of a tree.
type File struct {
	Path       string        `json:"path"` // slash-separated, relative, fs.ValidPath
	Size       int64         `json:"-"`
	Digest     digest.Digest `json:"digest"`
	Executable bool          `json:"-"` // not part of the digest; the first Put of a tree determines it
}

// PathError reports a path that cannot be in a stored tree.
type PathError struct{ Path string }

func (e *PathError) Error() string { return fmt.Sprintf("path %q cannot be stored", e.Path) }

// Dirs returns the directories that contain files, with "." for the top.
func Dirs(files []File) map[string]bool {
	dirs := map[string]bool{".": true}
	for _, file := range files {
		for dir := path.Dir(file.Path); !dirs[dir]; dir = path.Dir(dir) {
			dirs[dir] = true
		}
	}
	return dirs
}

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

// TreeDigest returns the sha256 of the lines "<hex> <path>\n" of all files, sorted by path. These are the
// lines that sha256sum prints, so that anyone can recompute it. As in sha256sum, a path with a backslash or a
// line break is escaped and its line starts with a backslash, so no path can be mistaken for two lines.
func TreeDigest(files []File) digest.Digest {
	sum := sha256.New()
	for _, file := range sortFiles(files) {
		io.WriteString(sum, Line(file.Digest.Encoded(), file.Path))
	}
	return digest.NewDigest(digest.SHA256, sum)
}

// Line returns the line "<head> <path>\n" for a list of files. If the path has a backslash or a line break,
// it is escaped, and the line starts with a backslash.
func Line(head, path string) string {
	if strings.ContainsAny(path, "\\\n\r") {
		return `\` + head + "  " + strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`).Replace(path) + "\n"
	}
	return head + "  " + path + "\n"
}

// Tree is a stored tree that was verified when it was returned. It is immutable.
type Tree struct {
	Digest digest.Digest
	Files  []File // sorted by Path

	store   *Store
	dir     string   // relative to the store
	members []member // each directory before its entries, the top first
}

// member is a file or directory of a tree, as of the time it was hashed.
type member struct {
	path    string // relative to the tree
	info    fs.FileInfo
	settled bool // the last change was so long ago that a later one has another time
}

// settling is the coarsest resolution of file times.
const settling = 100 * time.Millisecond

// Tree returns a stored tree after verifying it: by stat if this process has hashed it before and nothing
// changed since, else byte for byte.
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
	tree := &Tree{Digest: want, store: s, dir: treeDir(want)}
	if err := tree.read(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.trees[want] = tree
	s.mu.Unlock()
	return tree, nil
}

// read hashes every file of the tree.
func (t *Tree) read(ctx context.Context) error {
	err := t.walk(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		// A tree that another process is storing did not exist when the walk began. It must not be reported
		// as corrupt, since it would then be removed.
		if _, gone := t.store.root.Lstat(t.dir); len(t.members) == 0 || errors.Is(gone, fs.ErrNotExist) {
			return ErrNotFound
		}
		return t.corrupt(".", "it changed while it was read")
	}
	if err != nil {
		return err
	}
	dirs := Dirs(t.Files)
	for _, m := range t.members {
		if m.info.IsDir() && !dirs[m.path] {
			return t.corrupt(m.path, "no file of the tree is below it")
		}
	}
	if got := TreeDigest(t.Files); got != t.Digest {
		return t.corrupt(".", "content is "+got.String())
	}
	t.Files = sortFiles(t.Files)
	return nil
}

// walk visits every member of the tree.
func (t *Tree) walk(ctx context.Context) error {
	// OpenRoot would follow a link.
	info, err := t.store.root.Lstat(t.dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return t.corrupt(".", "not a directory")
	}
	top, err := t.store.root.OpenRoot(t.dir)
	if err != nil {
		return err
	}
	defer top.Close()
	return fs.WalkDir(top.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err := cmp.Or(err, ctx.Err()); err != nil {
			return err
		}
		return t.visit(top, name)
	})
}

func (t *Tree) corrupt(name, what string) error {
	return &CorruptError{Tree: t.Digest, Path: name, What: what}
}

// visit reads a member of the tree; top is the directory of the tree.
func (t *Tree) visit(top *os.Root, at string) error {
	info, err := top.Lstat(at)
	if err != nil {
		return err
	}
	changed := fsys.ChangeTime(info)
	settled := changed != 0 && time.Since(time.Unix(0, changed)) > settling
	t.members = append(t.members, member{at, info, settled})
	// Users with write access could replace the bytes between check and use.
	if err := fsys.Exposed(info); err != nil {
		return t.corrupt(at, err.Error())
	}
	switch {
	case info.IsDir():
		return nil
	case !info.Mode().IsRegular():
		return t.corrupt(at, "not a regular file")
	}
	file, err := top.OpenFile(at, os.O_RDONLY|fsys.NonBlock, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	opened, err := file.Stat()
	if err != nil {
		return err
	}
	sum := sha256.New()
	size, err := io.Copy(sum, io.LimitReader(file, info.Size()+1))
	if err != nil {
		return err
	}
	if size != info.Size() || !os.SameFile(info, opened) {
		return t.corrupt(at, "it changed while it was read")
	}
	t.Files = append(t.Files, File{Path: at, Size: size, Digest: digest.NewDigest(digest.SHA256, sum),
		Executable: info.Mode()&0o111 != 0})
	return nil
}

// Open returns a handle of the verified directory of the tree. The caller closes it.
//
// Errors: *CorruptError if the directory was replaced since.
func (t *Tree) Open() (*os.File, error) {
	handle, err := t.store.root.Open(t.dir)
	if err != nil {
		return nil, err
	}
	info, err := handle.Stat()
	if err != nil {
		return nil, errors.Join(err, handle.Close())
	}
	if !os.SameFile(info, t.members[0].info) {
		return nil, errors.Join(t.corrupt(".", "its directory was replaced"), handle.Close())
	}
	return handle, nil
}

// ReadFile returns the content of a file of the tree, verified by its digest.
//
// Errors: fs.ErrNotExist, *CorruptError.
func (t *Tree) ReadFile(name string) ([]byte, error) {
	at, err := t.file(name)
	if err != nil {
		return nil, err
	}
	file, err := t.open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, t.Files[at].Size+1))
	if err != nil {
		return nil, err
	}
	if digest.FromBytes(data) != t.Files[at].Digest {
		return nil, t.corrupt(name, "content changed")
	}
	return data, nil
}

// file returns the index of a file.
func (t *Tree) file(name string) (int, error) {
	at, ok := slices.BinarySearchFunc(t.Files, name,
		func(f File, name string) int { return strings.Compare(f.Path, name) })
	if !ok {
		return 0, &fs.PathError{Op: "read", Path: name, Err: fs.ErrNotExist}
	}
	return at, nil
}

// Extend stores a tree with the files of base, verified by their digests and with their modes, and with the
// files in more, content by path; base may be nil. No path in more may be a file or directory of base.
//
// Errors: the errors of Put; *PathError; *ContentError if base changed.
func (s *Store) Extend(ctx context.Context, base *Tree, more map[string][]byte) (*Tree, error) {
	var files []File
	if base != nil {
		files = slices.Clone(base.Files)
	}
	taken := Dirs(files)
	for _, f := range files {
		taken[f.Path] = true
	}
	for name, data := range more {
		if taken[name] {
			return nil, &PathError{Path: name}
		}
		files = append(files, File{Path: name, Size: int64(len(data)), Digest: digest.FromBytes(data)})
	}
	return s.Put(ctx, files, func(name string) (io.ReadCloser, error) {
		if data, ok := more[name]; ok {
			return io.NopCloser(bytes.NewReader(data)), nil
		}
		return base.open(name)
	})
}

// open opens a file of the tree. The caller verifies its content.
func (t *Tree) open(name string) (*os.File, error) {
	return t.store.root.OpenFile(path.Join(t.dir, name), os.O_RDONLY|fsys.NonBlock, 0)
}

// Copy writes the tree into a new directory below root and verifies every digest. Files have the modes of
// stored ones. The copy is not synced: see [Batch.Copy].
//
// Errors: *ContentError if the tree changed; errors of ctx; system errors.
func (t *Tree) Copy(ctx context.Context, root *os.Root, dir string) error {
	top, err := t.store.root.OpenRoot(t.dir)
	if err != nil {
		return err
	}
	defer top.Close()
	_, err = write(ctx, root, dir, t.Files, func(name string) (io.ReadCloser, error) {
		return top.OpenFile(name, os.O_RDONLY|fsys.NonBlock, 0)
	})
	return err
}
