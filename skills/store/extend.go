package store

import (
	"bytes"
	"context"
	"io"
	"os"
	"path"
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/store/fsys"
)

// Extend stores a tree of its own with the files of base, checked against their digests and with their
// modes, and with more, content by path; a nil base has none. No path of more may be one of base, or a
// directory in it.
//
// Errors: errors of Put; *PathError; *ContentError if base changed.
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

// open opens a file of the tree, whose content the caller checks.
func (t *Tree) open(name string) (*os.File, error) {
	return t.store.root.OpenFile(path.Join(treeDir(t.Digest), name), os.O_RDONLY|fsys.NonBlock, 0)
}

// Copy writes the tree into a directory below root that does not exist yet, durable and with every digest
// checked. Files have the modes of stored ones.
//
// Errors: *ContentError if the tree changed; errors of ctx; system errors.
func (t *Tree) Copy(ctx context.Context, root *os.Root, dir string) error {
	return write(ctx, root, dir, 0o755, t.Files,
		func(name string) (io.ReadCloser, error) { return t.open(name) })
}
