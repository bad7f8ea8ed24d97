package install

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/errgroup"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/store"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// Problem is a difference between the lock file and the files on disk.
type Problem struct {
	Name string `json:"name"`           // of the skill
	Path string `json:"path,omitempty"` // of the file in the skill; empty for the whole skill
	What string `json:"what"`

	Kind ProblemKind `json:"kind"`
	Dir  string      `json:"dir,omitempty"` // for ProblemStray: relative to the state directory
}

// ProblemKind is the way to repair a problem.
type ProblemKind string

// The kinds of problems.
const (
	ProblemContent ProblemKind = "content" // Sync repairs it
	ProblemEarlier ProblemKind = "earlier" // Sync repairs it, or drops the version with DropEarlier
	ProblemStray   ProblemKind = "stray"   // was never installed; must be removed by hand
)

// Verify compares every byte of the installed skills, in the served directories and in the store, with the
// lock file. It also finds entries of the served directories that are not in the lock file. Problems are
// sorted by name and path. If ctx ends, it returns the problems found so far. done is the number of
// completely verified skills.
//
// Errors: errors of ctx; system errors.
func (i *Installer) Verify(ctx context.Context) (problems []Problem, done int, err error) {
	var mu sync.Mutex
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(parallel())
	for _, e := range i.lock.Skills {
		group.Go(func() error {
			if err := within.Err(); err != nil {
				return err
			}
			found, err := i.verifyEntry(within, e)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				// done includes only skills that were read completely.
				return err
			}
			problems = append(problems, found...)
			done++
			i.progress("skills verified", done, len(i.lock.Skills))
			return nil
		})
	}
	err = group.Wait()
	strays, stray := i.strays()
	problems = append(problems, strays...)
	slices.SortFunc(problems, func(a, b Problem) int {
		return slices.Compare([]string{a.Name, a.Path, a.What}, []string{b.Name, b.Path, b.What})
	})
	return problems, done, errors.Join(err, stray)
}

// verifyEntry compares the served and stored files of a skill with its entry. Problems of the earlier version
// come last.
func (i *Installer) verifyEntry(ctx context.Context, e *Entry) ([]Problem, error) {
	found, err := i.verifyServed(ctx, e)
	found = append(found, i.verifyStored(ctx, e.Name, e.Tree, ProblemContent)...)
	if e.Previous != nil {
		found = append(found, i.verifyStored(ctx, e.Name, e.Previous.Tree, ProblemEarlier)...)
	}
	return found, errors.Join(err, ctx.Err())
}

// verifyStored checks a tree of a skill in the store. kind is ProblemEarlier for the earlier version.
func (i *Installer) verifyStored(
	ctx context.Context, name string, tree digest.Digest, kind ProblemKind,
) []Problem {
	_, err := i.cfg.Trees.Tree(ctx, tree)
	if err == nil || ctx.Err() != nil {
		return nil
	}
	p := Problem{Name: name, Kind: kind, What: "the stored tree "}
	if kind == ProblemEarlier {
		p.What += "of the earlier version "
	}
	corrupt, changed := errors.AsType[*store.CorruptError](err)
	if changed && corrupt.Path != "." {
		p.Path = corrupt.Path
	}
	switch {
	case changed:
		p.What += "changed: " + corrupt.What
	case errors.Is(err, store.ErrNotFound):
		p.What += "is missing"
	default:
		p.What += "cannot be read: " + err.Error()
	}
	return []Problem{p}
}

// verifyServed compares the served directory of a skill with its entry.
//
// Errors: errors of ctx; system errors.
func (i *Installer) verifyServed(ctx context.Context, e *Entry) ([]Problem, error) {
	whole := func(what string) []Problem {
		return []Problem{{Name: e.Name, What: what, Kind: ProblemContent}}
	}
	dir := servedDir(e.Tier, e.Name)
	info, err := i.root.Lstat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) && e.Served():
		return whole("is missing from the served directory"), nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	// Content that was not accepted, or is disabled, must not be served, whatever its bytes.
	case e.Quarantined():
		return whole("is served although it was not accepted"), nil
	case !e.Served():
		return whole("is served although it is disabled"), nil
	case !info.IsDir():
		return whole("is not a directory"), nil
	}
	root, err := i.root.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return e.verifyFiles(ctx, root)
}

// verifyFiles compares the files in a directory with an entry.
//
// Errors: errors of ctx.
func (e *Entry) verifyFiles(ctx context.Context, root *os.Root) (problems []Problem, err error) {
	add := func(path, what string) {
		problems = append(problems, Problem{Name: e.Name, Path: path, What: what, Kind: ProblemContent})
	}
	want := make(map[string]digest.Digest, len(e.Files))
	for _, f := range e.Files {
		want[f.Path] = f.Digest
	}
	dirs := store.Dirs(e.Files)
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		switch sum, known := want[name]; {
		case err != nil:
			add(name, "cannot be read")
			return fs.SkipDir
		case entry.IsDir():
			if !dirs[name] {
				add(name, "is a directory that was not installed")
			}
		case !known:
			add(name, "was not installed")
		case !entry.Type().IsRegular():
			add(name, "is not a regular file")
		// Last, since it reads the file. An unreadable file has no digest and differs too.
		case hashFile(root, name) != sum:
			add(name, "changed")
		}
		delete(want, name)
		return nil
	})
	// Every file that was found is deleted from want.
	for name := range want {
		add(name, "is missing")
	}
	return problems, err
}

// hashFile returns the digest of a regular file, or "" if it cannot be read.
func hashFile(root *os.Root, name string) digest.Digest {
	file, _, err := fsys.OpenIn(root, name)
	if err != nil {
		return ""
	}
	defer file.Close()
	sum, _ := digest.FromReader(file)
	return sum
}

// strays returns the entries of the served directories that are not in the lock file.
func (i *Installer) strays() ([]Problem, error) {
	var problems []Problem
	for _, tier := range skills.Tiers() {
		dir := installedDir + "/" + tier.String()
		entries, err := fs.ReadDir(i.root.FS(), dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			below, err := i.straysAt(tier, dir, entry)
			if err != nil {
				return nil, err
			}
			problems = append(problems, below...)
		}
	}
	return problems, nil
}

// straysAt returns an entry of the served directory of a tier if it is not in the lock file; of the directory
// of a group, its entries.
func (i *Installer) straysAt(
	tier skills.Tier, dir string, entry fs.DirEntry,
) (problems []Problem, err error) {
	names := []string{entry.Name()}
	if i.lock.isGroup(entry.Name(), tier) && entry.IsDir() {
		below, err := fs.ReadDir(i.root.FS(), dir+"/"+entry.Name())
		if err != nil {
			return nil, err
		}
		names = nil
		for _, one := range below {
			names = append(names, entry.Name()+"/"+one.Name())
		}
	}
	for _, name := range names {
		if e := i.lock.Find(name); e == nil || e.Tier != tier {
			problems = append(problems, Problem{Name: strings.ToValidUTF8(name, "�"),
				What: "is in " + dir + " and not in the lock file",
				Kind: ProblemStray, Dir: dir + "/" + name})
		}
	}
	return problems, nil
}

// isGroup reports whether skills of a tier are installed as NAME/SKILL.
func (l *Lock) isGroup(name string, tier skills.Tier) bool {
	return slices.ContainsFunc(l.Skills, func(e *Entry) bool {
		return e.Tier == tier && strings.HasPrefix(e.Name, name+"/")
	})
}

// Inspection is the result of Inspect.
type Inspection struct {
	Lock     *Lock
	Problems []Problem // as returned by Verify
	Verified int       // skills verified completely; not all if the time ran out
	// Busy is set if another command is changing the installation, so that nothing was verified.
	Busy bool
	// Interrupted is set if a command was interrupted; the next command undoes it.
	Interrupted bool
}

// Inspect verifies an installation without changing anything or waiting: it does not undo an interrupted
// command, and stops after the time most. Other commands wait for it. It ignores Git and Waiting of cfg.
//
// Errors: *LockError for a lock file that cannot be read; errors of ctx; system errors.
func Inspect(ctx context.Context, cfg Config, most time.Duration) (found *Inspection, err error) {
	found = &Inspection{Lock: &Lock{}}
	guard := flock.New(filepath.Join(cfg.State, workDir, guardName), flock.SetPermissions(0o600))
	got, failed := guard.TryRLock()
	found.Busy = !got && failed == nil
	if found.Busy {
		return found, nil
	}
	defer func() { err = errors.Join(err, guard.Unlock()) }()
	// The guard cannot be locked if nothing was ever installed or its directory is not writable. The lock
	// file is complete even then, since it is only ever replaced by a rename.
	found.Lock, err = ReadLock(LockFile(cfg.State))
	if err != nil {
		return found, err
	}
	root, err := os.OpenRoot(cfg.State)
	if errors.Is(err, fs.ErrNotExist) {
		return found, nil
	} else if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	_, missing := root.Lstat(journal)
	found.Interrupted = missing == nil
	within, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	i := &Installer{cfg: cfg, root: root, lock: found.Lock}
	found.Problems, found.Verified, err = i.Verify(within)
	// A time that ran out is not a failure: Verified shows how many skills were read.
	if within.Err() != nil && ctx.Err() == nil {
		err = nil
	}
	return found, err
}

// Collect removes the stored trees that neither the lock file nor other records need, and returns their
// number. used deletes the trees that are still needed from a set. If another process, such as a server, has
// the store open, Collect removes nothing and returns no error.
//
// Errors: the error of used; errors of ctx; system errors.
func (i *Installer) Collect(
	ctx context.Context, used func(trees map[digest.Digest]bool) error,
) (removed int, err error) {
	removed, err = i.cfg.Trees.Sweep(ctx, func(trees map[digest.Digest]bool) error {
		for _, e := range i.lock.Skills {
			delete(trees, e.Tree)
			if e.Previous != nil {
				delete(trees, e.Previous.Tree)
			}
		}
		if len(trees) == 0 {
			// A call of used is costly.
			return nil
		}
		return used(trees)
	})
	if errors.Is(err, store.ErrInUse) {
		err = nil
	}
	return removed, err
}
