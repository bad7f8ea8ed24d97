// Package content keeps trees of files on disk so that the bytes in use are the bytes that were hashed.
//
// It is the common part of the stores of such trees, package store and package environment; package filestore
// uses its marks for files that sessions share. A tree is made under a temporary name ([Dir.Temp], [Create]),
// synced ([Sync]) and renamed: a tree with its final name is complete, also after a crash. Before it is used,
// each member is hashed by [Inspect]. Later checks compare the [Mark] of a member, which is cheaper, and hash
// it again if the mark differs. [Dir.Remove] renames a tree before it removes the files, so that its name
// never denotes a part of a tree.
//
// A file is hashed only if it is regular and no other user can write it. A symbolic link is not followed, and
// a named pipe does not block. The package does not guard against programs of the same user, which can change
// a file between check and use: a store must be out of reach of scripts.
//
// Files are 0644 or 0755, so that scripts can read them through a read-only mount. The directory of a store
// is 0700. A removal changes the modes of directories first, because earlier versions made them read-only.
//
// All functions are safe for concurrent use, also by several processes. They return system errors unless
// noted, and have no limits of their own: the caller bounds its readers.
package content

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"iter"
	"os"
	"path"
	"strings"
)

// tempPrefix is the prefix of temporary names.
const tempPrefix = "tmp-"

// Open opens the directory of a store. It makes missing directories with mode 0700, and sets this mode of the
// directories in below, which are relative to dir.
func Open(dir string, below ...string) (*os.Root, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range below {
		if err := root.MkdirAll(name, 0o700); err != nil {
			return nil, errors.Join(err, root.Close())
		}
		// The directory may have been made by hand or by a program with another umask.
		if err := root.Chmod(name, 0o700); err != nil {
			return nil, errors.Join(err, root.Close())
		}
	}
	return root, nil
}

// Dir is a directory of a store. Its entries have final names, or temporary ones while they are incomplete or
// being removed.
type Dir struct {
	root *os.Root
	name string
}

// DirOf returns the directory with a name below the root of a store.
func DirOf(root *os.Root, name string) Dir { return Dir{root, name} }

// Path returns the path of an entry below the root.
func (d Dir) Path(name string) string { return path.Join(d.name, name) }

// Temp returns the path of a new entry with a temporary name.
func (d Dir) Temp() string { return d.Path(tempPrefix + rand.Text()) }

// Names returns the final names, sorted.
func (d Dir) Names() (names []string, err error) {
	entries, err := fs.ReadDir(d.root.FS(), d.name)
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), tempPrefix) {
			names = append(names, entry.Name())
		}
	}
	return names, err
}

// RemoveTemps removes the entries with temporary names that are stale. An entry that cannot be removed only
// takes space, and stays until the next call.
func (d Dir) RemoveTemps(stale func(fs.FileInfo) bool) {
	entries, _ := fs.ReadDir(d.root.FS(), d.name)
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), tempPrefix) {
			continue
		}
		if info, err := entry.Info(); err == nil && stale(info) {
			_ = RemoveAll(d.root, d.Path(entry.Name()))
		}
	}
}

// Remove removes an entry, if it exists. The name is free at once, even if the removal stops halfway.
func (d Dir) Remove(name string) error {
	trash := d.Temp()
	err := d.discard(d.Path(name), trash)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // never stored, or another process was faster
	}
	if err != nil {
		return err
	}
	return RemoveAll(d.root, trash)
}

// discard renames an entry to a temporary path.
func (d Dir) discard(from, trash string) error {
	info, err := d.root.Lstat(from)
	if err != nil {
		return err
	}
	if info.IsDir() && info.Mode().Perm()&0o200 == 0 {
		// Some systems rename only writable directories, for their "..".
		if err := d.root.Chmod(from, 0o700); err != nil {
			return err
		}
	}
	return d.root.Rename(from, trash)
}

// Handle opens the directory of a tree, if that is still the one that was describes. The caller closes it.
//
// Errors: *DamageError if the directory was replaced.
func (d Dir) Handle(name string, was fs.FileInfo) (*os.File, error) {
	handle, err := d.root.Open(d.Path(name))
	if err != nil {
		return nil, err
	}
	now, err := handle.Stat()
	if err != nil {
		return nil, errors.Join(err, handle.Close())
	}
	// The handle is compared, not the path: what is mounted later is this directory, whatever has its name.
	if !os.SameFile(now, was) {
		return nil, errors.Join(&DamageError{"its directory was replaced"}, handle.Close())
	}
	return handle, nil
}

// RemoveAll removes a file or a directory below root. Another process may remove it at the same time.
func RemoveAll(root *os.Root, name string) error {
	err := fs.WalkDir(root.FS(), name, func(at string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			// A directory without write permission keeps its entries from being removed.
			err = root.Chmod(at, 0o700)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	return errors.Join(err, root.RemoveAll(name))
}

// Parents returns the directories that contain files, with "." for the top.
func Parents(files iter.Seq[string]) map[string]bool {
	dirs := map[string]bool{".": true}
	for file := range files {
		for dir := path.Dir(file); !dirs[dir]; dir = path.Dir(dir) {
			dirs[dir] = true
		}
	}
	return dirs
}

// Line returns the line "<head>  <path>\n" of a list of files, as sha256sum prints it: if the path has a
// backslash or a line break, it is escaped, and the line starts with a backslash. So no path can be mistaken
// for two lines.
func Line(head, path string) string {
	if strings.ContainsAny(path, "\\\n\r") {
		return `\` + head + "  " + strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`).Replace(path) + "\n"
	}
	return head + "  " + path + "\n"
}
