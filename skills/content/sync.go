package content

import (
	"context"
	"errors"
	"iter"
	"maps"
	"os"
	"path"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/skillsd/skillsd/skills/store/fsys"
)

// FewFiles is the number of files up to which [Sync] syncs them one by one: syncing the file system would
// also wait for the writes of other programs.
const FewFiles = 256

// Written is a directory that is not synced yet.
type Written struct {
	Root  *os.Root
	Dir   string          // below Root
	Files []string        // below Dir, regular files
	Dirs  map[string]bool // below Dir, and "." for Dir
}

// Sync syncs the files and directories of all that was written. The names of the written directories are
// durable once the caller has synced the directories that contain them.
//
// Errors: errors of ctx; system errors.
func Sync(ctx context.Context, written ...Written) error {
	type parent struct {
		root *os.Root
		dir  string
	}
	parents, files := map[parent]bool{}, 0
	for _, w := range written {
		parents[parent{w.Root, path.Dir(w.Dir)}] = true
		files += len(w.Files)
	}
	if files > FewFiles {
		var dirs []*os.File
		for p := range parents {
			dir, err := p.root.Open(p.dir)
			if err != nil {
				return err
			}
			defer dir.Close()
			dirs = append(dirs, dir)
		}
		// One sync of the file system takes less than thousands of syncs of files.
		if done, err := fsys.SyncWhole(dirs); done || err != nil {
			return err
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	// Most of the time is spent waiting for the disk, where one flush serves all waiting files.
	group.SetLimit(32)
	for _, w := range written {
		for some := range slices.Chunk(w.Files, 16) {
			group.Go(func() error { return syncAll(ctx, w, slices.Values(some), fsys.SyncFile) })
		}
		// A synced file survives a crash only if its directories were synced too.
		group.Go(func() error { return syncAll(ctx, w, maps.Keys(w.Dirs), fsys.SyncDir) })
	}
	return group.Wait()
}

// syncAll syncs members of a written directory one by one.
func syncAll(
	ctx context.Context, w Written, names iter.Seq[string], sync func(*os.Root, string) error,
) error {
	top, err := w.Root.OpenRoot(w.Dir)
	if err != nil {
		return err
	}
	defer top.Close()
	for name := range names {
		if err := errors.Join(ctx.Err(), sync(top, name)); err != nil {
			return err
		}
	}
	return nil
}
