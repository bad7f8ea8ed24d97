package skills

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Refresh updates the snapshot after the files or directories at those absolute paths have changed,
// appeared or gone, and swaps it in. The paths are free of links but for their last name. What they do
// not concern is neither read nor listed. If changed is empty, or not enough to know what changed,
// everything is scanned as by [Registry.Rescan]. Skills concerned that have been indexed
// before are indexed again, so that the diff includes changes of any file.
//
// Errors: as for [Registry.Rescan].
func (r *Registry) Refresh(ctx context.Context, changed []string) (Diff, error) {
	r.scanning.Lock()
	defer r.scanning.Unlock()
	defer r.measure(time.Now())
	touched := newTouched(changed)
	for range attempts {
		if len(changed) == 0 {
			break
		}
		old := r.current.Load()
		parts, err := r.revisit(ctx, old, touched)
		if ctx.Err() != nil {
			return Diff{}, ctx.Err()
		}
		if err != nil {
			break
		}
		pairs, alike := compareParts(parts)
		if alike && len(pairs) == 0 {
			return Diff{}, nil
		}
		for _, pair := range pairs {
			indexAgain(ctx, pair.fresh)
		}
		next := func() *Snapshot {
			if alike {
				return old.exchange(pairs, r.limits.now())
			}
			return old.splice(parts, r.limits.now())
		}
		if fresh := r.swap(old, next, false); fresh != nil {
			return diff(old, fresh), nil
		}
	}
	return r.rescan(ctx, touched)
}

// errUnsure is the error of changes whose effect only a scan of everything can show.
var errUnsure = errors.New("everything must be scanned")

// revisit visits the parts of the roots that the changed paths concern.
//
// Errors: errUnsure; the error of ctx.
func (r *Registry) revisit(ctx context.Context, old *Snapshot, changed *touched) ([]part, error) {
	if old.scanState == nil {
		return nil, errUnsure
	}
	parts, err := old.parts(changed.paths)
	if err != nil {
		return nil, err
	}
	for i := range parts {
		p := &parts[i]
		s := &scanner{opts: r.opts, limits: r.limits, roots: r.roots, known: knownOf(p.was)}
		s.known.stale = changed.concern
		if err := s.revisit(ctx, p); err != nil {
			return nil, err
		}
	}
	return parts, nil
}

// indexAgain indexes a skill that had an index before, which is the only way to know whether its files
// differ. A caller that asks for the index gets its errors.
func indexAgain(ctx context.Context, sk *Skill) {
	if sk.lastIndex() != nil {
		_, _ = sk.Index(ctx)
	}
}

// touched are the paths that have changed; without any, everything may have.
type touched struct {
	paths []string
	at    map[string]bool // the paths
	above map[string]bool // the directories they are in, at any depth
}

func newTouched(paths []string) *touched {
	t := &touched{at: make(map[string]bool, len(paths)), above: make(map[string]bool, len(paths))}
	for _, path := range paths {
		path = filepath.Clean(path)
		if t.at[path] {
			continue
		}
		t.paths, t.at[path] = append(t.paths, path), true
		for dir := filepath.Dir(path); !t.above[dir]; dir = filepath.Dir(dir) {
			t.above[dir] = true
		}
	}
	return t
}

// concern reports whether a path is in the directory of a skill, or the directory is in the path.
func (t *touched) concern(sk *Skill) bool {
	if len(t.paths) == 0 || sk.place.fsys != nil {
		return true
	}
	dir := sk.place.key(sk.Root)
	for at := dir; ; at = filepath.Dir(at) {
		if t.at[at] {
			return true
		}
		if at == filepath.Dir(at) {
			return t.above[dir]
		}
	}
}

// indexAgain indexes the skills concerned.
func (t *touched) indexAgain(ctx context.Context, found []*Skill) error {
	if t == nil {
		return nil
	}
	return parallel(ctx, len(found), func() func(int) {
		return func(i int) {
			if !found[i].broken && t.concern(found[i]) {
				indexAgain(ctx, found[i])
			}
		}
	})
}

// exchanged is a skill and its replacement: another reading of the same file.
type exchanged struct{ old, fresh *Skill }

// compareParts returns the skills that were read again. alike reports whether nothing else differs: no
// skill has appeared, gone, broken or been repaired, and the diagnostics are the same.
func compareParts(parts []part) (pairs []exchanged, alike bool) {
	for i := range parts {
		p := &parts[i]
		if len(p.was) != len(p.fresh) || !slices.Equal(p.noted, p.notes) {
			return nil, false
		}
		for i, old := range p.was {
			fresh := p.fresh[i]
			if old.identity() != fresh.identity() || old.broken != fresh.broken {
				return nil, false
			}
			if old != fresh && !old.broken {
				pairs = append(pairs, exchanged{old, fresh})
			}
		}
	}
	return pairs, true
}

// maxNewer bounds the skills that differ from the tables of an earlier snapshot.
const maxNewer = 256

// exchange returns the snapshot with other readings of some skills. If possible, it takes over what was
// derived from all skills together, which makes a change of one skill among thousands cheap.
func (s *Snapshot) exchange(pairs []exchanged, now time.Time) *Snapshot {
	found := slices.Clone(s.scanned)
	fresh := make(map[*Skill]*Skill, len(pairs))
	simple := len(s.newer)+len(pairs) <= maxNewer
	for _, pair := range pairs {
		fresh[pair.old] = pair.fresh
		simple = simple && s.interchangeable(pair.old, pair.fresh)
	}
	for i, sk := range found {
		if other := fresh[sk]; other != nil {
			found[i] = other
		}
	}
	if !simple {
		return s.reassemble(found, s.scanState, now)
	}
	// Callers may use the earlier snapshot, so whatever put changes is copied.
	next := *s
	next.GeneratedAt, next.scanned, next.Skills = now, found, slices.Clone(s.Skills)
	next.statuses, next.newer = maps.Clone(s.statuses), make(map[*Skill]*Skill, len(s.newer)+len(pairs))
	maps.Copy(next.newer, s.newer)
	for _, pair := range pairs {
		next.put(pair.old, pair.fresh)
	}
	return &next
}

// put replaces a served skill in a snapshot that is being made. Paths, and so the order, are the same.
func (s *Snapshot) put(old, fresh *Skill) {
	fresh.name = old.name
	byPath := func(sk *Skill, path string) int { return strings.Compare(sk.Path, path) }
	at, _ := slices.BinarySearchFunc(s.Skills, old.Path, byPath)
	s.Skills[at], s.newer[s.byPath[old.Path]] = fresh, fresh
	if status, ok := s.statuses[old]; ok {
		delete(s.statuses, old)
		s.statuses[fresh] = status
	}
}

// latest returns the skill that replaces one of the tables, or else that one.
func (s *Snapshot) latest(sk *Skill) *Skill {
	if newer := s.newer[sk]; newer != nil {
		return newer
	}
	return sk
}

// interchangeable reports whether a skill is served and another reading of it changes nothing for
// other skills.
func (s *Snapshot) interchangeable(old, fresh *Skill) bool {
	// A name that changes may collide with another skill's, or end a collision.
	if s.Skill(old.Path) != old || old.Frontmatter.Name != fresh.Frontmatter.Name || s.opts.unusable(fresh) {
		return false
	}
	was, is := s.Status(old), s.statusOf(fresh, map[string]bool{})
	return was.State == is.State && was.Pinned == is.Pinned && was.NameOnly == is.NameOnly &&
		slices.Equal(was.Reasons, is.Reasons)
}

// reassemble makes a snapshot of other findings in the same roots.
func (s *Snapshot) reassemble(found []*Skill, scanState *scanState, now time.Time) *Snapshot {
	next := assemble(s.Roots, found, scanState.diagnostics(), s.opts, now)
	next.scanState = scanState
	return next
}
