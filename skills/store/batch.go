package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/content"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// Batch stores trees and copies of trees with one common sync: syncing thousands of small files one by one
// takes longer than writing them. Put, Copy and Take are safe for concurrent use.
type Batch struct {
	store *Store
	root  *os.Root // destination of Copy and Take

	mu      sync.Mutex
	written []written       // not synced yet
	durable []*Tree         // synced trees with temporary names
	named   []digest.Digest // trees that are new in the store
}

// written is a directory that is not synced yet.
type written struct {
	root  *os.Root
	dir   string
	files []File
	tree  *Tree // the stored tree with a temporary name; nil for a copy
}

// Batch returns an empty batch whose copies are made below root.
func (s *Store) Batch(root *os.Root) *Batch { return &Batch{store: s, root: root} }

func (b *Batch) add(w written) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.written = append(b.written, w)
}

// Put stores a tree like [Store.Put], but it cannot be found before Commit. The result is only for Copy and
// Take; use [Store.Tree] to get the tree to use.
func (b *Batch) Put(ctx context.Context, files []File, open Opener) (*Tree, error) {
	if err := checkFiles(files); err != nil {
		return nil, err
	}
	want := TreeDigest(files)
	// A corrupt tree is written anew; the rename in Commit finds it in its place.
	tree, err := b.store.Tree(ctx, want)
	_, corrupt := errors.AsType[*CorruptError](err)
	if !corrupt && !errors.Is(err, ErrNotFound) {
		// An existing tree is returned with its final name, so Close does not remove it.
		return tree, err
	}
	tree = &Tree{Digest: want, store: b.store, dir: b.store.dirs.Temp()}
	tree.Files, err = write(ctx, b.store.root, tree.dir, files, open)
	if err != nil {
		err = fmt.Errorf("store tree %s: %w", want, err)
		return nil, errors.Join(err, content.RemoveAll(b.store.root, tree.dir))
	}
	b.add(written{b.store.root, tree.dir, files, tree})
	return tree, nil
}

// Copy makes a copy of a tree like [Tree.Copy].
func (b *Batch) Copy(ctx context.Context, t *Tree, dir string) error {
	err := t.Copy(ctx, b.root, dir)
	if err != nil {
		return err
	}
	b.add(written{b.root, dir, t.Files, nil})
	return nil
}

// Take is Copy for existing files: it renames the directory from to dir if it has exactly files with the
// names and sizes of the tree. It reports whether it did. No other process may write there, and the caller
// must ensure the digests.
//
// Errors: errors of ctx; system errors. The files of from may then have other modes.
func (b *Batch) Take(ctx context.Context, t *Tree, from, dir string) (taken bool, err error) {
	top, err := b.root.OpenRoot(from)
	if err != nil {
		return false, err
	}
	defer top.Close()
	dirs := Dirs(t.Files)
	modes := map[string]fs.FileMode{} // modes to set
	found, others := 0, false
	err = fs.WalkDir(top.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err := cmp.Or(err, ctx.Err()); err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		known, mode := dirs[name], fs.FileMode(0o755)
		if !entry.IsDir() {
			at, err := t.file(name)
			// A file with a second name could be changed through that name later.
			known = err == nil && info.Mode().IsRegular() && fsys.Names(info) == 1 &&
				info.Size() == t.Files[at].Size
			mode = content.Mode(known && t.Files[at].Executable)
		}
		// Every name is compared before any mode is changed: a directory that is not taken must stay as it
		// was.
		found++
		if !known {
			others = true
			return fs.SkipAll
		}
		if info.Mode().Perm() != mode {
			modes[name] = mode
		}
		return nil
	})
	if err != nil || others || found != len(dirs)+len(t.Files) {
		return false, err
	}
	for name, mode := range modes {
		if err := top.Chmod(name, mode); err != nil {
			return false, err
		}
	}
	// Some systems cannot rename an open directory.
	if err := errors.Join(top.Close(), b.root.Rename(from, dir)); err != nil {
		return false, err
	}
	b.add(written{b.root, dir, t.Files, nil})
	return true, nil
}

// Drop removes a copy.
func (b *Batch) Drop(dir string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.written = slices.DeleteFunc(b.written, func(w written) bool { return w.tree == nil && w.dir == dir })
	return b.root.RemoveAll(dir)
}

// Commit syncs everything that was written, and then renames the trees to their final names.
//
// Errors: errors of ctx; system errors. Close then removes the trees.
func (b *Batch) Commit(ctx context.Context) error {
	if err := b.Sync(ctx); err != nil || len(b.durable) == 0 {
		return err
	}
	for _, t := range b.durable {
		if err := b.name(ctx, t); err != nil {
			return fmt.Errorf("store tree %s: %w", t.Digest, err)
		}
	}
	b.durable = nil
	// The trees were synced before, so that no final name leads to missing bytes after a crash.
	return fsys.SyncDir(b.store.root, treesDir)
}

// name renames a tree to its final name, unless the store has it by now.
func (b *Batch) name(ctx context.Context, t *Tree) error {
	s := b.store
	temp, final := t.dir, s.treeDir(t.Digest)
	for attempt, there := 0, false; ; attempt++ {
		// rename(2) fails for a directory that is not empty, so it never replaces a tree.
		taken := s.root.Rename(temp, final)
		if taken == nil {
			if !there {
				b.named = append(b.named, t.Digest)
			}
			t.dir = final
			return nil
		}
		_, err := s.Tree(ctx, t.Digest)
		_, corrupt := errors.AsType[*CorruptError](err)
		switch {
		case err == nil:
			t.dir = final
			return content.RemoveAll(s.root, temp)
		case corrupt:
			// The tree was in the store before, so Close must not remove its replacement.
			there, err = true, s.Remove(t.Digest)
		case errors.Is(err, ErrNotFound):
			err = nil // another process has replaced a corrupt tree
		}
		if err != nil || attempt == attempts {
			return errors.Join(taken, err)
		}
	}
}

// Stored reports whether Commit stored trees that are new in the store.
func (b *Batch) Stored() bool { return len(b.named) > 0 }

// Keep makes Close keep the trees.
func (b *Batch) Keep() { b.named = nil }

// Close removes the trees that the batch stored, but not the copies.
func (b *Batch) Close() (err error) {
	for _, w := range b.written {
		if w.tree != nil {
			b.durable = append(b.durable, w.tree)
		}
	}
	for _, t := range b.durable {
		if t.dir != b.store.treeDir(t.Digest) {
			err = errors.Join(err, content.RemoveAll(b.store.root, t.dir))
		}
	}
	for _, tree := range b.named {
		err = errors.Join(err, b.store.Remove(tree))
	}
	b.written, b.durable, b.named = nil, nil, nil
	return err
}

// Sync syncs everything that was written, while the trees still have temporary names. Commit calls it too.
//
// Errors: errors of ctx; system errors.
func (b *Batch) Sync(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var unsynced []content.Written
	for _, w := range b.written {
		unsynced = append(unsynced, content.Written{Root: w.root, Dir: w.dir, Dirs: Dirs(w.files),
			Files: slices.Collect(paths(w.files))})
	}
	if err := content.Sync(ctx, unsynced...); err != nil {
		return err
	}
	for _, w := range b.written {
		if w.tree != nil {
			b.durable = append(b.durable, w.tree)
		}
	}
	b.written = nil
	return nil
}
