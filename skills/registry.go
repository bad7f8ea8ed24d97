package skills

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Registry holds the current snapshot of some roots. Its methods are safe for concurrent use; a returned
// snapshot does not change. Snapshots are swapped as a whole, so a caller that uses one [Registry.Snapshot]
// throughout never mixes two generations.
//
// A skill with an unchanged SKILL.md is reused from the previous snapshot, and its index is a hint for the
// next [Skill.Index].
//
// Lock order: scanning, then swapping. scanning is held while directories are read, swapping only while a
// snapshot is assembled and swapped in, so that [Registry.RescanSkill] does not wait for a scan. Readers take
// no lock.
type Registry struct {
	roots   []Root       // shared by all snapshots, so that their skills can be
	opts    *ScanOptions // with defaults
	current atomic.Pointer[Snapshot]

	scanning, swapping sync.Mutex

	walks []*walk  // walks of the last scan; guarded by scanning
	found []*Skill // the skills in walks; guarded by scanning

	scans, took atomic.Int64 // number of scans, and their total time in nanoseconds
	rescanned   atomic.Pointer[func()]
	scanned     atomic.Bool

	gone map[string]bool // paths and names of removed skills; guarded by swapping
}

// maxGone bounds the number of removed skills in gone.
const maxGone = 4096

// publish swaps a snapshot in and records the skills that it removes. r.swapping is held.
func (r *Registry) publish(next *Snapshot, removed ...*Skill) {
	for _, sk := range removed {
		if r.gone == nil {
			r.gone = map[string]bool{}
		}
		// The map affects only the wording of refusals, so it may be incomplete: a directory that makes and
		// removes skills for ever must not fill the memory.
		if len(r.gone) < maxGone {
			r.gone[sk.Path], r.gone[sk.name] = true, true
		}
	}
	r.current.Store(next)
}

// Removed reports whether a skill with this path or name was served by this registry and is no longer served.
func (r *Registry) Removed(nameOrPath string) bool {
	r.swapping.Lock()
	defer r.swapping.Unlock()
	now := r.current.Load()
	// A skill that came back, or another that took the name, is served.
	return r.gone[nameOrPath] && now.Skill(nameOrPath) == nil && len(now.byName[nameOrPath]) == 0
}

// NewRegistry returns a registry with an empty snapshot. [Registry.Rescan] fills it.
func NewRegistry(roots []Root, opts *ScanOptions) *Registry {
	r := &Registry{roots: slices.Clone(roots), opts: opts.withDefaults()}
	r.current.Store(assemble(r.roots, nil, nil, r.opts))
	r.OnRescan(func() {})
	return r
}

// Snapshot returns the current snapshot, never nil.
func (r *Registry) Snapshot() *Snapshot { return r.current.Load() }

// Diff lists the paths that differ between two snapshots, sorted. A skill is changed if its SKILL.md, root or
// directory differs, or if its other files differ and both snapshots have indexed them.
type Diff struct {
	Added, Removed, Changed []string
}

// Empty reports whether nothing differs.
func (d Diff) Empty() bool { return len(d.Added)+len(d.Removed)+len(d.Changed) == 0 }

// Rescan scans the roots and swaps the result in. If it fails, the last good snapshot stays. A root that was
// readable and no longer is keeps its skills, with a diagnostic; with StrictRoots it is an error instead.
//
// Errors: the errors of [Scan].
func (r *Registry) Rescan(ctx context.Context) (Diff, error) { return r.rescan(ctx, nil, false) }

// maxChanged bounds the number of changed paths: with more, a full scan is cheaper.
const maxChanged = 256

// Refresh updates the snapshot after files or directories at these absolute paths were changed, created or
// removed, and swaps it in. Only the last element of a path may be a link. Directories that no path affects
// are neither read nor listed. If changed is empty, everything is scanned as by [Registry.Rescan]. Affected
// skills that were indexed before are indexed again, so that the diff includes changes of any file.
//
// Errors: the errors of [Registry.Rescan].
func (r *Registry) Refresh(ctx context.Context, changed []string) (Diff, error) {
	if len(changed) > maxChanged {
		changed = nil
	}
	return r.rescan(ctx, changed, true)
}

// Searched returns the directories, other than skills, in which the last scan looked for skills. They are
// absolute, with links resolved, in no order. Roots with FS have none.
func (r *Registry) Searched() []string {
	r.scanning.Lock()
	defer r.scanning.Unlock()
	var dirs []string
	for _, w := range r.walks {
		if w.area.location.fsys != nil {
			continue
		}
		top := w.area.location.onDisk()
		for rel, v := range w.visits {
			if len(v.skills) == 0 {
				dirs = append(dirs, filepath.Join(top, filepath.FromSlash(rel)))
			}
		}
	}
	return dirs
}

// Scanned reports whether a scan has succeeded.
func (r *Registry) Scanned() bool { return r.scanned.Load() }

// Scans returns how many scans Rescan and Refresh made, including failed ones, and their total time.
func (r *Registry) Scans() (n int, took time.Duration) {
	return int(r.scans.Load()), time.Duration(r.took.Load())
}

// rescan scans the directories that changed paths affect, or everything without changed paths. With index,
// skills that were read again are indexed before the swap.
func (r *Registry) rescan(ctx context.Context, changed []string, index bool) (Diff, error) {
	r.scanning.Lock()
	defer r.scanning.Unlock()
	began := time.Now()
	defer func() {
		r.took.Add(int64(time.Since(began)))
		r.scans.Add(1)
	}()
	old := r.current.Load()
	// Otherwise the scan would reuse readings that RescanSkill has replaced since.
	r.remember(old.scanned)
	s := &scanner{opts: r.opts, roots: r.roots, known: r.walks}
	for _, path := range changed {
		s.changed = append(s.changed, filepath.Clean(path))
	}
	if err := s.scan(ctx); err != nil {
		return Diff{}, err
	}
	if index {
		err := parallel(ctx, len(s.read), func() func(int) {
			return func(i int) {
				// Only an index shows whether other files differ. Callers of Index get its errors.
				if sk := s.read[i]; !sk.broken && sk.lastIndex() != nil {
					_, _ = sk.Index(ctx)
				}
			}
		})
		if err != nil {
			return Diff{}, err
		}
	}
	r.swapping.Lock()
	defer r.swapping.Unlock()
	now, found := r.current.Load(), slices.Clone(s.found)
	for i, sk := range now.scanned {
		if sk == old.scanned[i] {
			continue
		}
		// RescanSkill may have swapped in a reading meanwhile, which may be newer or older than the scan's.
		if at := slices.IndexFunc(found, sk.isAt); at >= 0 && found[at].mark.ctime <= sk.mark.ctime {
			found[at] = sk
		}
	}
	// They are kept even if the snapshot is not replaced: the next refresh needs the listings of this scan.
	r.walks, r.found = s.walks, s.found
	r.scanned.Store(true)
	// An equal snapshot is not replaced, since callers cache results per snapshot.
	if len(changed) > 0 && slices.Equal(found, now.scanned) && slices.Equal(s.notes, now.scan) &&
		slices.Equal(s.dirs(), now.dirs) {
		return Diff{}, nil
	}
	fresh := now.after(found, s.notes)
	fresh.dirs, fresh.listings, fresh.began = s.dirs(), s.listings(), began
	d := diff(now, fresh)
	removed := make([]*Skill, len(d.Removed))
	for i, path := range d.Removed {
		removed[i] = now.Skill(path)
	}
	r.publish(fresh, removed...)
	return d, nil
}

// remember replaces the skills of the last scan by the skills of the current snapshot: some were read again
// since, or got another name.
func (r *Registry) remember(current []*Skill) {
	replaced := map[*Skill]*Skill{}
	for i, sk := range r.found {
		if current[i] != sk {
			replaced[sk] = current[i]
		}
	}
	r.found = current
	if len(replaced) == 0 {
		return
	}
	for _, w := range r.walks {
		for _, v := range w.visits {
			for i, sk := range v.skills {
				v.skills[i] = cmp.Or(replaced[sk], sk)
			}
		}
	}
}

// OnRescan sets the function that RescanSkill calls when it may have swapped a snapshot in. The next scan
// would not report this change.
func (r *Registry) OnRescan(changed func()) { r.rescanned.Store(&changed) }

// RescanSkill reads one skill again and swaps it in. If it cannot be loaded, the snapshot stays.
//
// Errors: *frontmatter.Error; the errors of [Skill.Read]; ErrNotFound also if the current skill is not
// served, because a requirement is missing or it is not strictly valid.
func (r *Registry) RescanSkill(ctx context.Context, sk *Skill) (*Skill, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// The file is read before the lock, so that a slow disk delays no other swap.
	fresh := &Skill{Path: sk.Path, Root: sk.Root, Dir: sk.Dir, File: sk.File, location: sk.location,
		opts: sk.opts, state: newIndexState(sk.lastIndex())}
	data, m, err := fresh.readLinked(nil)
	if err != nil {
		return nil, fmt.Errorf("read %s again: %w", sk.Path, err)
	}
	err = fresh.parse(data, m)
	if err != nil {
		return nil, fmt.Errorf("read %s again: %w", sk.Path, err)
	}
	defer (*r.rescanned.Load())() // runs after the unlock
	r.swapping.Lock()
	defer r.swapping.Unlock()
	old := r.current.Load()
	at := slices.IndexFunc(old.scanned, sk.isAt)
	if at < 0 {
		return nil, fmt.Errorf("read %s again: %w", sk.Path, ErrNotFound)
	}
	found := slices.Clone(old.scanned)
	found[at] = fresh
	next := old.after(found, old.scan)
	next.dirs, next.listings, next.began = old.dirs, old.listings, old.began
	r.current.Store(next)
	fresh = next.scanned[at]
	// The new text may lack a requirement, be disabled by its name or lose to another skill.
	if next.Skill(sk.Path) != fresh {
		return nil, fmt.Errorf("read %s again: it is not served any more: %w", sk.Path, ErrNotFound)
	}
	return fresh, nil
}

// attempts is how often a skill that keeps changing is indexed.
const attempts = 3

// Index returns the index of a skill of a snapshot. If the skill changed since the scan, it is read again and
// swapped in, so that all results are of one version; the returned skill then differs from sk.
//
// Errors: the errors of [Skill.Index] and [Registry.RescanSkill]; *DriftError for a skill that keeps
// changing.
func (r *Registry) Index(ctx context.Context, sk *Skill) (*Skill, *Index, error) {
	for attempt := 1; ; attempt++ {
		index, err := sk.Index(ctx)
		if err == nil {
			return sk, index, nil
		}
		if _, drift := errors.AsType[*DriftError](err); !drift || attempt == attempts {
			return nil, nil, err
		}
		sk, err = r.RescanSkill(ctx, sk)
		if err != nil {
			return nil, nil, err
		}
	}
}

func diff(old, fresh *Snapshot) (d Diff) {
	for i, sk := range fresh.Skills {
		// Without additions and removals equal skills have equal positions, which saves the look-up.
		if i < len(old.Skills) && old.Skills[i] == sk {
			continue
		}
		was := old.Skill(sk.Path)
		switch {
		case was == nil:
			d.Added = append(d.Added, sk.Path)
		case was != sk && differ(was, sk):
			d.Changed = append(d.Changed, sk.Path)
		}
	}
	// With equal numbers none can have been removed, and the second pass over thousands of skills is saved.
	if len(old.Skills)+len(d.Added) == len(fresh.Skills) {
		return d
	}
	for _, sk := range old.Skills {
		if fresh.Skill(sk.Path) == nil {
			d.Removed = append(d.Removed, sk.Path)
		}
	}
	slices.SortFunc(d.Removed, strings.Compare)
	return d
}

// Differs reports whether a later reading of the skill at the same path would be a change in a [Diff].
func (s *Skill) Differs(later *Skill) bool { return s != later && differ(s, later) }

func differ(was, is *Skill) bool {
	before, after := was.lastIndex(), is.indexed()
	return was.Digest != is.Digest || !was.isAt(is) ||
		before != nil && after != nil && before.TreeDigest != after.TreeDigest
}
