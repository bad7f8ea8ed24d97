package skills

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Registry holds the current snapshot of some roots. Its methods are safe for concurrent use;
// snapshots that were handed out stay as they are.
type Registry struct {
	roots   []Root
	opts    *ScanOptions
	current atomic.Pointer[Snapshot]

	scanning sync.Mutex // serialises Rescan
}

// NewRegistry returns a registry with an empty snapshot. [Registry.Rescan] fills it.
func NewRegistry(roots []Root, opts *ScanOptions) *Registry {
	if opts == nil {
		opts = &ScanOptions{}
	}
	r := &Registry{roots: slices.Clone(roots), opts: opts}
	r.current.Store(assemble(r.roots, nil, nil, opts, opts.limits().now()))
	return r
}

// Snapshot returns the current snapshot, never nil.
func (r *Registry) Snapshot() *Snapshot { return r.current.Load() }

// Diff names the paths that differ between two snapshots, sorted. Changed skills are those whose
// SKILL.md, root or place differ; other files are not compared.
type Diff struct {
	Added, Removed, Changed []string
}

// Empty reports that nothing differs.
func (d Diff) Empty() bool { return len(d.Added)+len(d.Removed)+len(d.Changed) == 0 }

// Rescan scans the roots and swaps the result in. When it fails the last good snapshot stays.
//
// Errors: those of [Scan].
func (r *Registry) Rescan(ctx context.Context) (Diff, error) {
	r.scanning.Lock()
	defer r.scanning.Unlock()
	// A skill that RescanSkill swaps in meanwhile may be more recent than the scan's reading of it;
	// then the scan is repeated, but not for ever.
	for attempt := 0; ; attempt++ {
		old := r.current.Load()
		fresh, err := Scan(ctx, r.roots, r.opts)
		if err != nil {
			return Diff{}, err
		}
		if attempt == 2 {
			r.current.Store(fresh)
			return diff(old, fresh), nil
		}
		if r.current.CompareAndSwap(old, fresh) {
			return diff(old, fresh), nil
		}
	}
}

// RescanSkill reads one skill again and swaps it in. When it cannot be loaded the snapshot stays.
//
// Errors: *FrontmatterError and those of [Skill.Read].
func (r *Registry) RescanSkill(ctx context.Context, sk *Skill) (*Skill, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	data, facts, err := readLinked(sk.place, sk.File, nil)
	fresh := &Skill{Path: sk.Path, Root: sk.Root, Dir: sk.Dir, File: sk.File, place: sk.place, limits: sk.limits}
	if err == nil {
		err = fresh.parse(data, facts)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s again: %w", sk.Path, err)
	}
	key := sk.place.key(sk.Root)
	for {
		old := r.current.Load()
		found := slices.Clone(old.scanned)
		at := slices.IndexFunc(found, func(other *Skill) bool { return other.Path == sk.Path && other.place.key(other.Root) == key })
		if at < 0 {
			return nil, fmt.Errorf("read %s again: %w", sk.Path, ErrNotFound)
		}
		// The roots of every scan are values of their own.
		fresh.Root, fresh.name = found[at].Root, ""
		found[at] = fresh
		if next := assemble(old.Roots, found, old.scan, old.opts, r.opts.limits().now()); r.current.CompareAndSwap(old, next) {
			return fresh, nil
		}
	}
}

func diff(old, fresh *Snapshot) (d Diff) {
	for _, sk := range fresh.Skills {
		was := old.byPath[sk.Path]
		switch {
		case was == nil:
			d.Added = append(d.Added, sk.Path)
		case was.Digest != sk.Digest || was.Root.Dir != sk.Root.Dir || was.Root.Tier != sk.Root.Tier || was.place.rel != sk.place.rel || was.place.base != sk.place.base:
			d.Changed = append(d.Changed, sk.Path)
		}
	}
	for _, sk := range old.Skills {
		if fresh.byPath[sk.Path] == nil {
			d.Removed = append(d.Removed, sk.Path)
		}
	}
	slices.SortFunc(d.Removed, strings.Compare)
	return d
}
