// Package store keeps trees of files by digest on disk: what is executed is what was hashed.
//
// A tree is a directory named by its tree digest. Put copies files into a temporary directory,
// checks the digest of every byte on its way, syncs and renames: a tree that has a name is
// complete, and bytes without their digest never get one. Files are 0644, or 0755 if they are
// programs: executable where they came from, or with the first bytes of a script or of a program for
// Linux, since collections often lose the mode. Directories are 0755, the store itself 0700. Scripts see
// them through a read-only mount; with read-only modes their copies could not be written either.
//
// Before a tree is used it is walked: a file that is missing, extra, of another size or touched since
// it was checked is hashed again, and a difference is a *[CorruptError]. A process hashes a tree in
// full before it uses it for the first time, so it finds what a crash left behind.
//
// The store does not guard against its own user: a program that may write below its directory and
// waits for the moment between check and use can change a tree. Keep it where no script can reach it.
// All methods are safe for concurrent use, also by several processes.
//
//	trees, err := store.Open(dir)
//	tree, err := trees.Put(ctx, files, func(path string) (io.ReadCloser, error) { return root.Open(path) })
//	handle, err := tree.Open() // to mount
package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/store/fsys"
)

// Errors that callers branch on.
var (
	// ErrNotFound is the error of a tree that is not in the store.
	ErrNotFound = errors.New("tree is not in the store")
	// ErrUnwritable is the error of a store that cannot be written.
	ErrUnwritable = errors.New("store cannot be written")
)

// CorruptError is a stored tree whose content no longer has its digest. Put stores it anew.
type CorruptError struct {
	Tree digest.Digest
	Path string // below the tree, "." for the whole
	What string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("stored tree %s: %s: %s", e.Tree, e.Path, e.What)
}

// ContentError is a file whose content does not have its digest and size: it changed since it was
// hashed.
type ContentError struct {
	Path      string
	Want, Got digest.Digest // equal if only the size is wrong
}

func (e *ContentError) Error() string {
	return fmt.Sprintf("content is %s, want %s", e.Got, e.Want)
}

const (
	treesDir   = "trees"
	tempPrefix = "tmp-"
	// tempLife is the age of a temporary directory at which the process that made it must be dead.
	tempLife = time.Hour
)

// Store is a directory of trees.
type Store struct {
	root *os.Root
	dir  string
	lock *os.File // the directory, locked for sharing while the store is open

	mu    sync.Mutex
	trees map[digest.Digest]*Tree // checked by this process
}

// Open opens the store below dir, which it makes with mode 0700, and removes what dead processes
// left unfinished.
//
// Errors: ErrUnwritable.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("%w: %v", ErrUnwritable, err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	s := &Store{root: root, dir: dir, trees: map[digest.Digest]*Tree{}}
	temp := tempName()
	err = root.MkdirAll(treesDir, 0o700)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %v", ErrUnwritable, err), root.Close())
	}
	err = root.Chmod(treesDir, 0o700)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %v", ErrUnwritable, err), root.Close())
	}
	err = root.Mkdir(temp, 0o700) // proves that a tree can be stored
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %v", ErrUnwritable, err), root.Close())
	}
	_ = root.Remove(temp) // which another process may have done, taking it for a leftover
	s.lock, err = root.Open(".")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %v", ErrUnwritable, err), root.Close())
	}
	s.removeStale(fsys.LockAlone(s.lock))
	fsys.ShareLock(s.lock)
	return s, nil
}

// Close releases the store's handle. Trees that are open stay usable.
func (s *Store) Close() error {
	return errors.Join(s.lock.Close(), s.root.Close())
}

// Dir returns the directory of the trees on this machine, for operators only.
func (s *Store) Dir() string { return filepath.Join(s.dir, treesDir) }

// removeStale removes temporary directories of dead processes: all if no other process has the store
// open, else old ones. A directory that cannot be removed costs space only and is left to the next
// start.
func (s *Store) removeStale(alone bool) {
	entries, err := fs.ReadDir(s.root.FS(), treesDir)
	if err != nil {
		return
	}
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), tempPrefix) {
			continue
		}
		if info, err := entry.Info(); err == nil && (alone || time.Since(info.ModTime()) > tempLife) {
			_ = s.remove(path.Join(treesDir, entry.Name()))
		}
	}
}

// remove deletes a directory of the store, whose directories earlier versions made read-only. Another process
// may delete it at the same time.
func (s *Store) remove(dir string) error {
	err := fs.WalkDir(s.root.FS(), dir, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			err = s.root.Chmod(name, 0o700)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	return errors.Join(err, s.root.RemoveAll(dir))
}

func tempName() string { return path.Join(treesDir, tempPrefix+rand.Text()) }

func treeDir(tree digest.Digest) string { return path.Join(treesDir, tree.Encoded()) }

// Opener opens a file of a tree by its path, to be read from its start.
type Opener func(path string) (io.ReadCloser, error)

// Putter is a [Store] or a [Batch].
type Putter interface {
	Put(ctx context.Context, files []File, open Opener) (*Tree, error)
}

// Put stores the tree of files, whose content open returns, and returns it checked. A tree that is
// there already is not written again; one that is corrupt is replaced. If anything fails, nothing is
// stored.
//
// Errors: *ContentError for content without its digest, *PathError for a path no tree can have.
func (s *Store) Put(ctx context.Context, files []File, open Opener) (*Tree, error) {
	if err := checkFiles(files); err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		tree, err := s.put(ctx, files, open)
		// Another process that replaces a corrupt tree may take away the one just stored.
		if attempt == attempts || !errors.Is(err, ErrNotFound) {
			return tree, err
		}
	}
}

// attempts is how often a tree is stored again because another process has removed it.
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

// Remove deletes a tree, if it is there. A caller that has it open can read it no longer. A call that
// stores the same tree at this moment stores it anew.
//
// Errors: system errors.
func (s *Store) Remove(tree digest.Digest) error {
	if tree.Validate() != nil {
		return nil
	}
	// It is moved out of the way first, so that its name is free even if the removal stops halfway.
	s.mu.Lock()
	delete(s.trees, tree)
	s.mu.Unlock()
	trash := tempName()
	err := s.root.Rename(treeDir(tree), trash)
	if err == nil {
		err = s.remove(trash)
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil // another process was faster
	}
	return err
}

// write copies all files into dir, which it makes, with modes that all may read. It returns them in byte
// order of path, and as executable as they are there.
func write(
	ctx context.Context, root *os.Root, dir string, files []File, open Opener,
) (copied []File, err error) {
	if err := root.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	// Below root, each name would be resolved from there, a directory at a time.
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
	for name := range dirs {
		if err := into.Chmod(name, 0o755); err != nil {
			return nil, err
		}
	}
	return copied, nil
}

func modeOf(executable bool) fs.FileMode {
	if executable {
		return 0o755
	}
	return 0o644
}

var buffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// copyFile writes one file, which must have its digest and its size, and makes it executable if it is a
// program.
func copyFile(root *os.Root, file *File, open Opener) (err error) {
	from, err := open(file.Path)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := root.OpenFile(file.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o400)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	buf := buffers.Get().(*[32 << 10]byte)
	defer buffers.Put(buf)
	sum := sha256.New()
	both := io.MultiWriter(to, sum)
	// One byte more than the size shows that the file has grown.
	content := io.LimitReader(from, file.Size+1)
	n, err := io.ReadFull(content, buf[:])
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return err
	}
	if bytes.HasPrefix(buf[:n], []byte("#!")) || bytes.HasPrefix(buf[:n], []byte("\x7fELF")) {
		file.Executable = true
	}
	if _, err := both.Write(buf[:n]); err != nil {
		return err
	}
	rest, err := io.CopyBuffer(both, content, buf[:])
	if err != nil {
		return err
	}
	if got := digest.NewDigest(digest.SHA256, sum); int64(n)+rest != file.Size || got != file.Digest {
		return &ContentError{Path: file.Path, Want: file.Digest, Got: got}
	}
	return to.Chmod(modeOf(file.Executable))
}

// sortFiles returns files in byte order of their paths.
func sortFiles(files []File) []File {
	return slices.SortedFunc(slices.Values(files),
		func(a, b File) int { return strings.Compare(a.Path, b.Path) })
}

// ErrInUse is the error of a Sweep while another process has the store open, or may have it open.
var ErrInUse = errors.New("store is in use")

// Sweep removes the trees that are not needed, and returns how many it removed. needed deletes the others
// from the set of all trees. It does so only while no other process has the store open; a process that
// opens it waits until Sweep is done. The caller must not have a tree in use.
//
// Errors: ErrInUse, the error of needed; errors of ctx; system errors.
func (s *Store) Sweep(
	ctx context.Context, needed func(trees map[digest.Digest]bool) error,
) (removed int, err error) {
	// The attempt to lock it alone may have lost the shared lock, so it is shared again in any case.
	defer fsys.ShareLock(s.lock)
	if !fsys.LockAlone(s.lock) {
		return 0, ErrInUse
	}
	entries, err := fs.ReadDir(s.root.FS(), treesDir)
	if err != nil {
		return 0, err
	}
	trees := map[digest.Digest]bool{}
	for _, entry := range entries {
		tree := digest.NewDigestFromEncoded(digest.SHA256, entry.Name())
		if entry.IsDir() && tree.Validate() == nil {
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
