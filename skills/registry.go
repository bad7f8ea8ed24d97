package skills

import (
	"context"
	"errors"
	"fmt"
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
// Locks: scanning, then assembling. scanning is held while directories are read, assembling only while
// a snapshot is made and swapped in.
type Registry struct {
	roots   []Root // shared by all snapshots, so that their skills can be
	opts    *ScanOptions
	limits  *limits
	current atomic.Pointer[Snapshot]

	scanning   sync.Mutex // serialises Rescan and Refresh
	assembling sync.Mutex // serialises what makes a snapshot and swaps it in

	scans, took atomic.Int64 // of Rescan and Refresh; nanoseconds
}

// NewRegistry returns a registry with an empty snapshot. [Registry.Rescan] fills it.
func NewRegistry(roots []Root, opts *ScanOptions) *Registry {
	if opts == nil {
		opts = &ScanOptions{}
	}
	r := &Registry{roots: slices.Clone(roots), opts: opts, limits: opts.limits()}
	r.current.Store(assemble(r.roots, nil, nil, opts, r.limits.now()))
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

// attempts is how often a scan is repeated if another swap came before it, until its result is taken
// anyway.
const attempts = 3

// Rescan scans the roots and swaps the result in. If it fails, the last good snapshot stays. If a root
// could be read before and cannot be read any more, it keeps its skills, with a diagnostic; with
// StrictRoots it is an error instead.
//
// Errors: as for [Scan].
func (r *Registry) Rescan(ctx context.Context) (Diff, error) {
	r.scanning.Lock()
	defer r.scanning.Unlock()
	defer r.measure(time.Now())
	return r.rescan(ctx, nil)
}

func (r *Registry) measure(start time.Time) {
	r.took.Add(int64(time.Since(start)))
	r.scans.Add(1)
}

// Scans returns how often Rescan or Refresh scanned the roots, with success or without, and how long
// it took in total.
func (r *Registry) Scans() (n int, took time.Duration) {
	return int(r.scans.Load()), time.Duration(r.took.Load())
}

// rescan is Rescan with scanning held. It indexes the skills that the touched paths concern before the
// swap.
func (r *Registry) rescan(ctx context.Context, touched *touched) (Diff, error) {
	// If RescanSkill swaps a skill in meanwhile, that may be more recent than the scan's reading of it.
	// Then the scan is repeated, but not for ever.
	for attempt := 1; ; attempt++ {
		old := r.current.Load()
		s := &scanner{
			opts:   r.opts,
			limits: r.limits,
			roots:  r.roots,
			known:  knownOf(old.scanned),
			before: old,
		}
		if err := s.scan(ctx); err != nil {
			return Diff{}, err
		}
		if err := touched.indexAgain(ctx, s.found); err != nil {
			return Diff{}, err
		}
		if fresh := r.swap(old, s.snapshot, attempt == attempts); fresh != nil {
			return diff(old, fresh), nil
		}
	}
}

// swap makes a snapshot and swaps it in if old is still the current one, or in any case with force. It
// returns nil if nothing was swapped in.
func (r *Registry) swap(old *Snapshot, assemble func() *Snapshot, force bool) *Snapshot {
	r.assembling.Lock()
	defer r.assembling.Unlock()
	if r.current.Load() != old && !force {
		return nil
	}
	fresh := assemble()
	r.current.Store(fresh)
	return fresh
}

// RescanSkill reads one skill again and swaps it in. If it cannot be loaded, the snapshot stays.
//
// Errors: *frontmatter.Error; as for [Skill.Read]; ErrNotFound also if the skill as it is now is not
// served, because it requires what is missing or is not strictly valid.
func (r *Registry) RescanSkill(ctx context.Context, sk *Skill) (*Skill, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	data, facts, err := readLinked(sk.place, sk.File, nil)
	fresh := &Skill{
		Path:   sk.Path,
		Root:   sk.Root,
		Dir:    sk.Dir,
		File:   sk.File,
		place:  sk.place,
		limits: sk.limits,
		hint:   sk.lastIndex(),
	}
	if err == nil {
		err = fresh.parse(data, facts)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s again: %w", sk.Path, err)
	}
	r.assembling.Lock()
	defer r.assembling.Unlock()
	old := r.current.Load()
	at := slices.IndexFunc(old.scanned, func(other *Skill) bool {
		return other.Path == sk.Path && other.Root == sk.Root && other.place.rel == sk.place.rel &&
			other.place.base == sk.place.base
	})
	if at < 0 {
		return nil, fmt.Errorf("read %s again: %w", sk.Path, ErrNotFound)
	}
	next := old.exchange([]exchanged{{old.scanned[at], fresh}}, r.limits.now())
	r.current.Store(next)
	fresh = next.scanned[at]
	if next.Skill(sk.Path) != fresh {
		return nil, fmt.Errorf("read %s again: it is not served any more: %w", sk.Path, ErrNotFound)
	}
	return fresh, nil
}

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
		if sk, err = r.RescanSkill(ctx, sk); err != nil {
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
	before, after := was.lastIndex(), is.indexed.Load()
	return was.Digest != is.Digest || was.Root != is.Root ||
		was.place.rel != is.place.rel || was.place.base != is.place.base ||
		before != nil && after != nil && before.TreeDigest != after.TreeDigest
}
