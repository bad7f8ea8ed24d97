package store

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/store/fsys"
)

// Extend stores a tree of its own with the files of base, checked against their digests and with their
// modes, and with more, content by path; a nil base has none. No path of more may be one of base, or a
// directory in it.
//
// Errors: errors of Put; *PathError; *ContentError or *CorruptError if base changed.
func (s *Store) Extend(ctx context.Context, base *Tree, more map[string][]byte) (*Tree, error) {
	var files []File
	if base != nil {
		var err error
		if files, err = base.withModes(); err != nil {
			return nil, err
		}
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

// open opens a file of the tree, whose content the caller checks.
func (t *Tree) open(name string) (*os.File, error) {
	return t.store.root.OpenFile(path.Join(treeDir(t.Digest), name), os.O_RDONLY|fsys.NonBlock, 0)
}

// Copy writes the tree into a directory below root that does not exist yet, durable and with every digest
// checked. Files have the modes of stored ones.
//
// Errors: *ContentError or *CorruptError if the tree changed; errors of ctx; system errors.
func (t *Tree) Copy(ctx context.Context, root *os.Root, dir string) error {
	files, err := t.withModes()
	if err != nil {
		return err
	}
	return write(ctx, root, dir, 0o755, files, func(name string) (io.ReadCloser, error) { return t.open(name) })
}

// withModes returns the files of the tree with what is stored of their modes.
func (t *Tree) withModes() ([]File, error) {
	files := make([]File, 0, len(t.Files))
	for _, f := range t.Files {
		info, err := t.store.root.Lstat(path.Join(treeDir(t.Digest), f.Path))
		if errors.Is(err, fs.ErrNotExist) {
			err = &CorruptError{Tree: t.Digest, Path: f.Path, What: "it is gone"}
		}
		if err != nil {
			return nil, err
		}
		f.Executable = info.Mode()&0o111 != 0
		files = append(files, f)
	}
	return files, nil
}
