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
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/content"
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
func Dirs(files []File) map[string]bool { return content.Parents(paths(files)) }

func paths(files []File) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range files {
			if !yield(files[i].Path) {
				return
			}
		}
	}
}

func checkFiles(files []File) error {
	for _, file := range files {
		if err := file.Digest.Validate(); err != nil {
			return fmt.Errorf("%s: %w", file.Path, err)
		}
		// Names such as NUL on Windows are devices and not files.
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
		io.WriteString(sum, content.Line(file.Digest.Encoded(), file.Path))
	}
	return digest.NewDigest(digest.SHA256, sum)
}

// Tree is a stored tree that was verified when it was returned. It is immutable.
type Tree struct {
	Digest digest.Digest
	Files  []File // sorted by Path

	store   *Store
	dir     string      // relative to the store
	top     fs.FileInfo // of its directory
	members []member    // each directory before its entries, the top first
}

// member is a file or directory of a tree, with its mark when it was hashed.
type member struct {
	path string // relative to the tree
	dir  bool
	mark content.Mark
}

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
	tree := &Tree{Digest: want, store: s, dir: s.treeDir(want)}
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
		// The digest is of files alone, so that an added empty directory would not change it.
		if m.dir && !dirs[m.path] {
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

// damaged returns a reason why a member is not what was stored as the error of its tree.
func (t *Tree) damaged(name string, err error) error {
	if d, ok := errors.AsType[*content.DamageError](err); ok {
		return t.corrupt(name, d.What)
	}
	return err
}

// visit reads a member of the tree; top is the directory of the tree.
func (t *Tree) visit(top *os.Root, at string) error {
	found, err := content.Inspect(top, at)
	if err != nil {
		return t.damaged(at, err)
	}
	info := found.Info
	t.members = append(t.members, member{at, info.IsDir(), found.Mark})
	switch {
	case at == ".":
		t.top = info
		return nil
	case info.IsDir():
		return nil
	case !info.Mode().IsRegular():
		return t.corrupt(at, "not a regular file")
	}
	t.Files = append(t.Files, File{Path: at, Size: info.Size(), Digest: found.Digest,
		Executable: info.Mode()&0o111 != 0})
	return nil
}

// untouched reports whether every file and directory of a verified tree still has its mark. The times of a
// directory change with its entries, so directories are not listed.
func (t *Tree) untouched() bool {
	top, err := t.Open()
	if err != nil {
		return false
	}
	defer top.Close()
	for i := range t.members {
		if m := &t.members[i]; !m.mark.Holds(top, m.path) {
			return false
		}
	}
	return true
}

// Open returns a handle of the verified directory of the tree. The caller closes it.
//
// Errors: *CorruptError if the directory was replaced since.
func (t *Tree) Open() (*os.File, error) {
	handle, err := t.store.dirs.Handle(t.Digest.Encoded(), t.top)
	if err != nil {
		return nil, t.damaged(".", err)
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
	// The limit keeps a file that was replaced by a huge one from filling the memory.
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
