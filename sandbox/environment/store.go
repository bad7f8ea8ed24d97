package environment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/content"
	"github.com/skillsd/skillsd/skills/pattern"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// Errors that callers branch on.
var (
	// ErrNotMade is the error if the store does not have an environment.
	ErrNotMade = errors.New("environment is not made")
	// ErrUnwritable is the error of a store that cannot be written.
	ErrUnwritable = errors.New("store of environments cannot be written")
	// ErrInUse is the error of Remove if another process has the environment open.
	ErrInUse = errors.New("environment is in use")
)

// ChangedError reports that a stored environment changed since it was made.
type ChangedError struct {
	Name string // of the tree
	Path string // below it, "." for the whole
	What string
}

func (e *ChangedError) Error() string {
	return fmt.Sprintf("environment %s: %s: %s", e.Name, e.Path, e.What)
}

const (
	blobsDir     = "blobs"
	treesDir     = "trees"
	marksDir     = "marks"
	downloadsDir = "downloads"
	tempDir      = "tmp" // for incomplete files
)

// Store is a directory of environments: contents in blobs, each once; trees of hard links to them; packed
// packages in downloads; and in marks the [content.Mark] of each member of a tree when a process hashed it.
type Store struct {
	root   *os.Root
	dir    string
	made   content.Dir // the trees
	temps  content.Dir
	making *os.File // holds the store's lock; nil: this process only reads

	mu    sync.Mutex
	known map[string]bool  // blobs that this process hashed
	trees map[string]*Tree // that this process verified
}

// Open opens the store at dir, and makes the directory with mode 0700. A caller that makes or removes
// environments calls [Store.Lock] first.
//
// Errors: ErrUnwritable.
func Open(dir string) (*Store, error) {
	root, err := content.Open(dir, ".", blobsDir, treesDir, marksDir, downloadsDir, tempDir)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrUnwritable, err)
	}
	return &Store{
		root: root, dir: dir, made: content.DirOf(root, treesDir), temps: content.DirOf(root, tempDir),
		known: map[string]bool{}, trees: map[string]*Tree{},
	}, nil
}

// Close releases the store and its lock. Open trees stay usable.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, t := range s.trees {
		errs = append(errs, t.top.Close())
	}
	clear(s.trees)
	if s.making != nil {
		errs = append(errs, s.making.Close())
	}
	return errors.Join(append(errs, s.root.Close())...)
}

// Dir returns the store's directory on this machine, for operators only.
func (s *Store) Dir() string { return s.dir }

func blobName(sum digest.Digest, executable bool) string {
	name := path.Join(blobsDir, sum.Encoded())
	if executable {
		name += ".x"
	}
	return name
}

// Put stores a content, unless the store has it.
//
// Errors: errors of r; system errors.
func (s *Store) Put(r io.Reader, executable bool) (digest.Digest, int64, error) {
	// Most files are small, and environments share most of them: a content that the store has is not
	// written.
	var head bytes.Buffer
	size, err := io.CopyN(&head, r, 1<<20)
	if err != nil && err != io.EOF {
		return "", 0, err
	}
	if err == io.EOF {
		if sum := digest.FromBytes(head.Bytes()); s.has(sum, executable) {
			return sum, size, nil
		}
	}
	temp, sum, size, err := s.temp(content.Mode(executable), io.MultiReader(&head, r))
	if err != nil {
		return "", 0, err
	}
	if s.has(sum, executable) {
		return sum, size, s.root.Remove(temp)
	}
	name := blobName(sum, executable)
	if err := s.root.Rename(temp, name); err != nil {
		return "", 0, errors.Join(err, s.root.Remove(temp))
	}
	s.mu.Lock()
	s.known[name] = true
	s.mu.Unlock()
	return sum, size, nil
}

// temp makes a file with the rest of r and a temporary name.
func (s *Store) temp(mode fs.FileMode, r io.Reader) (name string, sum digest.Digest, size int64, err error) {
	name = s.temps.Temp()
	sum, size, err = content.Create(s.root, name, r, func([]byte) fs.FileMode { return mode })
	return name, sum, size, err
}

// place gives a file with a temporary name its final one. After a crash, no part of it has that name.
func (s *Store) place(temp, name string) error {
	err := fsys.SyncFile(s.root, temp)
	if err == nil {
		err = s.root.Rename(temp, name)
	}
	if err != nil {
		return errors.Join(err, s.root.Remove(temp))
	}
	return nil
}

// has reports whether the store has a content.
func (s *Store) has(sum digest.Digest, executable bool) bool {
	name := blobName(sum, executable)
	s.mu.Lock()
	known := s.known[name]
	s.mu.Unlock()
	if known {
		_, err := s.root.Lstat(name)
		return err == nil
	}
	// Each process hashes a content once before it uses it, so that a content that a crash damaged is
	// replaced.
	found, err := content.Inspect(s.root, name)
	known = err == nil && found.Digest == sum && (found.Info.Mode()&0o111 != 0) == executable
	s.mu.Lock()
	s.known[name] = known
	s.mu.Unlock()
	return known
}

// treeName matches the name of a tree: a digest and, for derived files, a variant.
var treeName = pattern.New(`^[0-9a-f]{64}(-[0-9a-z]{1,32})?$`)

// nameOf returns the name of the tree of a manifest, with the files that are derived for a variant, such
// as an interpreter; variant may be empty.
func nameOf(manifest, variant digest.Digest) string {
	if variant == "" {
		return manifest.Encoded()
	}
	return manifest.Encoded() + "-" + variant.Encoded()[:16]
}

// Stage is an incomplete tree.
type Stage struct {
	store   *Store
	dir     string
	base    Manifest
	derived Manifest
	check   func(*Entry) error // of base
}

// Stage makes the tree of a manifest, whose contents the store has.
//
// Errors: errors of ctx; system errors.
func (s *Store) Stage(ctx context.Context, m Manifest) (*Stage, error) {
	return s.stage(ctx, m, (*Entry).check)
}

// StageRoot makes the tree of the manifest of a root file system. Its links may lead anywhere: they are
// followed only in a sandbox, where the tree is the root.
//
// Errors: errors of ctx; system errors.
func (s *Store) StageRoot(ctx context.Context, m Manifest) (*Stage, error) {
	return s.stage(ctx, m, (*Entry).checkRoot)
}

func (s *Store) stage(ctx context.Context, m Manifest, check func(*Entry) error) (*Stage, error) {
	st := &Stage{store: s, dir: s.made.Temp(), base: m, check: check}
	if err := s.root.Mkdir(st.dir, 0o755); err != nil {
		return nil, err
	}
	for _, e := range m {
		err := ctx.Err()
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", e.Path, err), st.Close())
		}
		err = st.put(e)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", e.Path, err), st.Close())
		}
	}
	return st, nil
}

// put adds an entry to the tree.
func (st *Stage) put(e Entry) error {
	if err := st.check(&e); err != nil {
		return err
	}
	root, name := st.store.root, path.Join(st.dir, e.Path)
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	if e.Kind == Link {
		return root.Symlink(e.Target, name)
	}
	blob := blobName(e.Digest, e.Kind == Exec)
	err := root.Link(blob, name)
	if !errors.Is(err, syscall.EMLINK) {
		return err
	}
	// The blob has the most hard links that the file system allows: a copy replaces it.
	if err := st.store.renew(blob); err != nil {
		return err
	}
	return root.Link(blob, name)
}

// renew replaces a blob by a copy without other links.
func (s *Store) renew(blob string) error {
	from, info, err := fsys.OpenIn(s.root, blob)
	if err != nil {
		return err
	}
	defer from.Close()
	temp, _, _, err := s.temp(info.Mode().Perm(), from)
	if err != nil {
		return err
	}
	return s.root.Rename(temp, blob)
}

// Add adds a file that is derived from others; it is not part of the environment's digest.
//
// Errors: fs.ErrExist; errors of r; system errors.
func (st *Stage) Add(at string, executable bool, r io.Reader) error {
	sum, size, err := st.store.Put(r, executable)
	if err != nil {
		return err
	}
	e := Entry{Kind: File, Digest: sum, Size: size, Path: at}
	if executable {
		e.Kind = Exec
	}
	st.derived = append(st.derived, e)
	return st.put(e)
}

// Link adds a link, which is not part of the environment's digest and may lead anywhere.
//
// Errors: fs.ErrExist; system errors.
func (st *Stage) Link(at, target string) error {
	name := path.Join(st.dir, at)
	if err := st.store.root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	st.derived = append(st.derived, Entry{Kind: Link, Target: target, Path: at})
	return st.store.root.Symlink(target, name)
}

// Open opens the incomplete tree, for a program that derives files. The caller closes it.
func (st *Stage) Open() (*os.File, error) { return st.store.root.Open(st.dir) }

// Close removes the tree, unless it was sealed.
func (st *Stage) Close() error { return content.RemoveAll(st.store.root, st.dir) }

// Seal makes the tree durable and readable for all users, and renames it. It replaces a tree with the same
// name.
//
// Errors: errors of ctx; system errors.
func (st *Stage) Seal(ctx context.Context, variant digest.Digest) (*Tree, error) {
	s, name := st.store, nameOf(st.base.Digest(), variant)
	var paths, files []string
	for _, e := range slices.Concat(st.base, st.derived) {
		paths = append(paths, e.Path)
		if e.Kind != Link {
			files = append(files, e.Path)
		}
	}
	dirs := content.Parents(slices.Values(paths))
	// The umask may have removed bits, and the command of a root server runs as another user.
	for dir := range dirs {
		if err := s.root.Chmod(path.Join(st.dir, dir), 0o755); err != nil {
			return nil, err
		}
	}
	// After a crash, no tree may have its final name without its files.
	err := content.Sync(ctx, content.Written{Root: s.root, Dir: st.dir, Files: files, Dirs: dirs})
	if err != nil {
		return nil, err
	}
	if err := s.Remove(name); err != nil {
		return nil, err
	}
	t := &Tree{Name: name, Digest: st.base.Digest(), store: s}
	for dir := range dirs {
		t.members = append(t.members, member{Entry: Entry{Kind: directory, Path: dir}})
	}
	for _, e := range st.base {
		t.members = append(t.members, member{Entry: e})
	}
	for _, e := range st.derived {
		t.members = append(t.members, member{Entry: e, derived: true})
	}
	t.sort()
	if err := s.root.Rename(st.dir, s.made.Path(name)); err != nil {
		return nil, err
	}
	if err := fsys.SyncDir(s.root, treesDir); err != nil {
		return nil, err
	}
	// Until this time has passed, the marks of the files cannot be trusted.
	time.Sleep(content.Settling)
	return t.first(ctx)
}

// Remove removes a tree by its name, if it exists, and closes this process's Tree of it. The caller holds
// the store's lock.
//
// Errors: ErrInUse if another process has it open; system errors.
func (s *Store) Remove(name string) error {
	if !treeName().MatchString(name) {
		return nil
	}
	s.mu.Lock()
	if t := s.trees[name]; t != nil {
		_ = t.top.Close()
		delete(s.trees, name)
	}
	s.mu.Unlock()
	top, err := s.root.Open(s.made.Path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	defer top.Close()
	if !fsys.LockAlone(top) {
		return ErrInUse
	}
	if err := s.made.Remove(name); err != nil {
		return err
	}
	err = s.root.Remove(path.Join(marksDir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Download returns the stored file of a package, or nil. algorithm and sum, in hexadecimal digits, are in
// the lock; the caller compares the content with them.
func (s *Store) Download(algorithm, sum string) *os.File {
	file, _, err := fsys.OpenIn(s.root, downloadName(algorithm, sum))
	if err != nil {
		return nil
	}
	return file
}

func downloadName(algorithm, sum string) string {
	return path.Join(downloadsDir, filepath.Base(algorithm+"-"+sum))
}

// Keep stores the file of a package. r fails before its end if the content does not have the digest sum;
// then nothing is stored.
//
// Errors: errors of r; system errors.
func (s *Store) Keep(algorithm, sum string, r io.Reader) error {
	temp, _, _, err := s.temp(0o600, r)
	if err != nil {
		return err
	}
	return s.place(temp, downloadName(algorithm, sum))
}
