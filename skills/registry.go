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

// Registry has the current snapshot of some roots. Its methods are safe for concurrent use; a returned
// snapshot does not change. A snapshot is swapped in as a whole, so a caller that takes
// everything from one [Registry.Snapshot] never sees a mixture of two generations.
//
// Nothing is read twice without need: a skill whose SKILL.md has not been touched is taken from the
// snapshot before, and what was known of its other files is a hint for the next [Skill.Index].
//
// Locks: scanning, then swapping. scanning is held while directories are read, swapping only while a snapshot
// is made and swapped in, so that [Registry.RescanSkill] does not wait for a scan. Readers take no lock.
type Registry struct {
	roots   []Root       // shared by all snapshots, so that their skills can be
	opts    *ScanOptions // with defaults
	current atomic.Pointer[Snapshot]

	scanning, swapping sync.Mutex

	walks []*walk  // of the last scan; guarded by scanning, as is found
	found []*Skill // the skills in walks

	scans, took atomic.Int64 // of Rescan and Refresh; nanoseconds
	rescanned   atomic.Pointer[func()]
	scanned     atomic.Bool

	gone map[string]bool // paths and names of skills that were served; guarded by swapping
}

// maxGone is how many names of skills that were removed are remembered.
const maxGone = 4096

// publish swaps a snapshot in, and remembers what is no longer served. r.swapping is held.
func (r *Registry) publish(next *Snapshot, removed ...*Skill) {
	for _, sk := range removed {
		if r.gone == nil {
			r.gone = map[string]bool{}
		}
		if len(r.gone) < maxGone {
			r.gone[sk.Path], r.gone[sk.name] = true, true
		}
	}
	r.current.Store(next)
}

// Removed reports whether a skill of that path or name was served by this registry, and no skill is now.
func (r *Registry) Removed(nameOrPath string) bool {
	r.swapping.Lock()
	defer r.swapping.Unlock()
	now := r.current.Load()
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

// Diff names the paths that differ between two snapshots, sorted. Changed skills are those whose
// SKILL.md, root or place differ, and those whose other files differ where both snapshots know
// them.
type Diff struct {
	Added, Removed, Changed []string
}

// Empty reports whether nothing differs.
func (d Diff) Empty() bool { return len(d.Added)+len(d.Removed)+len(d.Changed) == 0 }

// Rescan scans the roots and swaps the result in. If it fails, the last good snapshot stays. If a root
// could be read before and cannot be read any more, it keeps its skills, with a diagnostic; with
// StrictRoots it is an error instead.
//
// Errors: as for [Scan].
func (r *Registry) Rescan(ctx context.Context) (Diff, error) { return r.rescan(ctx, nil, false) }

// maxChanged bounds the changed paths: with more, a scan of everything is cheaper.
const maxChanged = 256

// Refresh updates the snapshot after the files or directories at those absolute paths have changed,
// appeared or gone, and swaps it in. The paths are free of links but for their last name. Directories
// that they do not concern are neither read nor listed. If changed is empty, everything is
// scanned as by [Registry.Rescan]. Skills concerned that have been indexed before are indexed again, so
// that the diff includes changes of any file.
//
// Errors: as for [Registry.Rescan].
func (r *Registry) Refresh(ctx context.Context, changed []string) (Diff, error) {
	if len(changed) > maxChanged {
		changed = nil
	}
	return r.rescan(ctx, changed, true)
}

// Scanned reports whether some scan has succeeded.
func (r *Registry) Scanned() bool { return r.scanned.Load() }

// Scans returns how often Rescan or Refresh scanned the roots, with success or without, and how long
// it took in total.
func (r *Registry) Scans() (n int, took time.Duration) {
	return int(r.scans.Load()), time.Duration(r.took.Load())
}

// rescan scans what changed paths concern, without any everything. With index, what was read again is
// indexed before the swap.
func (r *Registry) rescan(ctx context.Context, changed []string, index bool) (Diff, error) {
	r.scanning.Lock()
	defer r.scanning.Unlock()
	defer func(start time.Time) {
		r.took.Add(int64(time.Since(start)))
		r.scans.Add(1)
	}(time.Now())
	old := r.current.Load()
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
				// Only the index shows whether other files differ. Whoever asks for it gets its errors.
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
		// RescanSkill may have swapped in a reading meanwhile that is more recent than the scan's, or less.
		if at := slices.IndexFunc(found, sk.isAt); at >= 0 && found[at].mark.ctime <= sk.mark.ctime {
			found[at] = sk
		}
	}
	r.walks, r.found = s.walks, s.found
	r.scanned.Store(true)
	// A snapshot that is the same stays, since much is kept by snapshot.
	if len(changed) > 0 && slices.Equal(found, now.scanned) && slices.Equal(s.notes, now.scan) &&
		slices.Equal(s.dirs(), now.dirs) {
		return Diff{}, nil
	}
	fresh := now.after(found, s.notes)
	fresh.dirs, fresh.listings = s.dirs(), s.listings()
	d := diff(now, fresh)
	removed := make([]*Skill, len(d.Removed))
	for i, path := range d.Removed {
		removed[i] = now.Skill(path)
	}
	r.publish(fresh, removed...)
	return d, nil
}

// remember puts the skills of the current snapshot in the places of those that were found: some have been
// read again since, or have another name.
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

// OnRescan sets what RescanSkill calls when it may have swapped a snapshot in: the next scan finds no
// difference then.
func (r *Registry) OnRescan(changed func()) { r.rescanned.Store(&changed) }

// RescanSkill reads one skill again and swaps it in. If it cannot be loaded, the snapshot stays.
//
// Errors: *frontmatter.Error; as for [Skill.Read]; ErrNotFound also if the skill as it is now is not
// served, because it requires what is missing or is not strictly valid.
func (r *Registry) RescanSkill(ctx context.Context, sk *Skill) (*Skill, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	fresh := &Skill{Path: sk.Path, Root: sk.Root, Dir: sk.Dir, File: sk.File, place: sk.place, opts: sk.opts,
		state: newIndexState(sk.lastIndex())}
	data, m, err := fresh.readLinked(nil)
	if err != nil {
		return nil, fmt.Errorf("read %s again: %w", sk.Path, err)
	}
	err = fresh.parse(data, m)
	if err != nil {
		return nil, fmt.Errorf("read %s again: %w", sk.Path, err)
	}
	defer (*r.rescanned.Load())() // when the lock is free
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
	next.dirs, next.listings = old.dirs, old.listings
	r.current.Store(next)
	fresh = next.scanned[at]
	if next.Skill(sk.Path) != fresh {
		return nil, fmt.Errorf("read %s again: it is not served any more: %w", sk.Path, ErrNotFound)
	}
	return fresh, nil
}

// attempts is how often a skill is indexed that changes again and again.
const attempts = 3

// Index returns the index of a skill of a snapshot. If the skill changed since it was read, it is read
// again and swapped in, so that all results are of one version; the skill returned is then another one.
//
// Errors: as for [Skill.Index] and [Registry.RescanSkill]; *DriftError for a skill that changes again
// and again.
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

// Differs reports whether a later reading of a skill, of the same path, describes something else: a
// [Diff] would name it as changed.
func (s *Skill) Differs(later *Skill) bool { return s != later && differ(s, later) }

func differ(was, is *Skill) bool {
	before, after := was.lastIndex(), is.indexed()
	return was.Digest != is.Digest || !was.isAt(is) ||
		before != nil && after != nil && before.TreeDigest != after.TreeDigest
}
