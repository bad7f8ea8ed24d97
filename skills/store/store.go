// Package store stores trees of files by digest on disk, so that the executed files are the hashed ones.
//
// A tree is a directory named by its tree digest. Put copies files into a temporary directory, verifies the
// digest of each, syncs and renames: a tree with its final name is complete, and bytes without their digest
// never get there. Files are 0644, or 0755 if they are programs: executable in their source, or with the
// first bytes of a script or of a Linux program, since collections often lose the mode. Directories are 0755,
// the store itself 0700. Scripts access them through a read-only mount; with read-only modes their copies
// would be read-only too.
//
// Before a tree is used it is walked: a file that is missing, extra, of another size or touched since the
// last check is hashed again, and a difference is a *[CorruptError]. A process hashes a tree completely
// before its first use, so it finds damage by a crash.
//
// The store does not guard against its own user: a program with write access to its directory can change a
// tree between check and use. The directory must be out of reach of scripts. All methods are safe for
// concurrent use, also by several processes.
//
//	trees, err := store.Open(dir)
//	tree, err := trees.Put(ctx, files, func(path string) (io.ReadCloser, error) { return root.Open(path) })
//	handle, err := tree.Open() // to mount
package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/content"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// Errors that callers branch on.
var (
	// ErrNotFound: the tree is not in the store.
	ErrNotFound = errors.New("tree is not in the store")
	// ErrUnwritable: the store cannot be written.
	ErrUnwritable = errors.New("store cannot be written")
)

// CorruptError reports a stored tree whose content no longer has its digest. Put replaces it.
type CorruptError struct {
	Tree digest.Digest
	Path string // relative to the tree; "." for the whole tree
	What string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("stored tree %s: %s: %s", e.Tree, e.Path, e.What)
}

// ContentError reports a file whose content does not have the expected digest and size: it changed since it
// was hashed.
type ContentError struct {
	Path      string
	Want, Got digest.Digest // equal if only the size is wrong
}

func (e *ContentError) Error() string {
	return fmt.Sprintf("content is %s, want %s", e.Got, e.Want)
}

const (
	treesDir = "trees"
	// tempLife is the age at which a temporary directory must be a leftover of a dead process.
	tempLife = time.Hour
)

// Store is a directory of trees.
type Store struct {
	root *os.Root
	dir  string
	dirs content.Dir // of the trees
	lock *os.File    // the directory, with a shared lock while the store is open

	mu    sync.Mutex
	trees map[digest.Digest]*Tree // verified by this process
}

// Open opens the store below dir, creates dir with mode 0700 if missing, and removes leftovers of dead
// processes.
//
// Errors: ErrUnwritable.
func Open(dir string) (*Store, error) {
	root, err := content.Open(dir, treesDir)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrUnwritable, err)
	}
	s := &Store{root: root, dir: dir, dirs: content.DirOf(root, treesDir), trees: map[digest.Digest]*Tree{}}
	temp := s.dirs.Temp()
	err = root.Mkdir(temp, 0o700) // proves that the store is writable
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %v", ErrUnwritable, err), root.Close())
	}
	_ = root.Remove(temp) // another process may have removed it as a leftover
	s.lock, err = root.Open(".")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %v", ErrUnwritable, err), root.Close())
	}
	// If no other process has the store open, all temporary directories are leftovers.
	alone := fsys.LockAlone(s.lock)
	s.dirs.RemoveTemps(func(info fs.FileInfo) bool { return alone || time.Since(info.ModTime()) > tempLife })
	fsys.ShareLock(s.lock)
	return s, nil
}

// Close releases the store's handle. Open trees stay usable.
func (s *Store) Close() error {
	return errors.Join(s.lock.Close(), s.root.Close())
}

// Dir returns the path of the directory with the trees, for operators only.
func (s *Store) Dir() string { return filepath.Join(s.dir, treesDir) }

func (s *Store) treeDir(tree digest.Digest) string { return s.dirs.Path(tree.Encoded()) }

// Opener opens a file of a tree by its path, positioned at its start.
type Opener func(path string) (io.ReadCloser, error)

// Putter is a [Store] or a [Batch].
type Putter interface {
	Put(ctx context.Context, files []File, open Opener) (*Tree, error)
}

// Put stores the tree of files, whose content open returns, and returns it verified. An existing tree is not
// written again; a corrupt one is replaced. On an error, nothing is stored.
//
// Errors: *ContentError for content without its digest, *PathError for a path that cannot be stored.
func (s *Store) Put(ctx context.Context, files []File, open Opener) (*Tree, error) {
	if err := checkFiles(files); err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		tree, err := s.put(ctx, files, open)
		// Another process that replaces a corrupt tree may remove the new one.
		if attempt == attempts || !errors.Is(err, ErrNotFound) {
			return tree, err
		}
	}
}

// attempts is how often storing a tree is tried if another process removes it.
const attempts = 3

func (s *Store) put(ctx context.Context, files []File, open Opener) (*Tree, error) {
	b := s.Batch(nil)
	tree, err := b.Put(ctx, files, open)
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	err = b.Commit(ctx)
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return s.Tree(ctx, tree.Digest)
}

// Remove removes a tree, if it exists. A caller that has it open can no longer read it. A concurrent Put of
// the same tree stores it again.
//
// Errors: system errors.
func (s *Store) Remove(tree digest.Digest) error {
	if tree.Validate() != nil {
		return nil
	}
	s.mu.Lock()
	// Another process may store the tree again, with other files behind the remembered marks.
	delete(s.trees, tree)
	s.mu.Unlock()
	return s.dirs.Remove(tree.Encoded())
}

// write copies all files into dir, which it creates, with modes that let every user read them. It returns the
// files sorted by path, with Executable as written.
func write(
	ctx context.Context, root *os.Root, dir string, files []File, open Opener,
) (copied []File, err error) {
	if err := root.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	// Relative to root, each name would be resolved from there, one directory at a time.
	into, err := root.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, into.Close()) }()
	dirs := Dirs(files)
	for _, name := range slices.Sorted(maps.Keys(dirs)) {
		if name == "." {
			continue
		}
		if err := into.Mkdir(name, 0o700); err != nil {
			return nil, err
		}
	}
	copied = sortFiles(files)
	for n := range copied {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := copyFile(into, &copied[n], open); err != nil {
			return nil, fmt.Errorf("%s: %w", copied[n].Path, err)
		}
	}
	// Modes are set last: files are created while no other user can enter their directories.
	for name := range dirs {
		if err := into.Chmod(name, 0o755); err != nil {
			return nil, err
		}
	}
	return copied, nil
}

// copyFile writes one file, which must have its digest and size, and makes it executable if it is a program.
func copyFile(root *os.Root, file *File, open Opener) error {
	from, err := open(file.Path)
	if err != nil {
		return err
	}
	defer from.Close()
	// One byte more than the size shows that the file grew.
	got, size, err := content.Create(root, file.Path, io.LimitReader(from, file.Size+1),
		func(head []byte) fs.FileMode {
			if bytes.HasPrefix(head, []byte("#!")) || bytes.HasPrefix(head, []byte("\x7fELF")) {
				file.Executable = true
			}
			return content.Mode(file.Executable)
		})
	if err != nil {
		return err
	}
	if size != file.Size || got != file.Digest {
		return &ContentError{Path: file.Path, Want: file.Digest, Got: got}
	}
	return nil
}

// sortFiles returns files sorted by path.
func sortFiles(files []File) []File {
	return slices.SortedFunc(slices.Values(files),
		func(a, b File) int { return strings.Compare(a.Path, b.Path) })
}

// ErrInUse is the error of Sweep if another process has, or may have, the store open.
var ErrInUse = errors.New("store is in use")

// Sweep removes the trees that are not needed, and returns their number. needed deletes the needed ones from
// the set of all trees. Sweep fails if another process has the store open; a process that opens it waits
// until Sweep is done. The caller must not have a tree in use.
//
// Errors: ErrInUse, the error of needed; errors of ctx; system errors.
func (s *Store) Sweep(
	ctx context.Context, needed func(trees map[digest.Digest]bool) error,
) (removed int, err error) {
	// A failed attempt to get the exclusive lock may have lost the shared one, so it is acquired again in any
	// case.
	defer fsys.ShareLock(s.lock)
	if !fsys.LockAlone(s.lock) {
		return 0, ErrInUse
	}
	names, err := s.dirs.Names()
	if err != nil {
		return 0, err
	}
	trees := map[digest.Digest]bool{}
	for _, name := range names {
		tree := digest.NewDigestFromEncoded(digest.SHA256, name)
		if tree.Validate() == nil {
			trees[tree] = true
		}
	}
	if err := needed(trees); err != nil {
		return 0, err
	}
	for tree := range trees {
		if err := ctx.Err(); err != nil {
			return removed, err
		}
		if err := s.Remove(tree); err != nil {
			return removed, err
		}
		removed++
	}
	return removed, nil
}
