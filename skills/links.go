package skills

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// link is a symbolic link that may lead to a directory.
type link struct {
	area  *area
	rel   string // below the area
	path  string // in the catalogue
	dir   string // below Root.Dir
	depth int
}

// followLinks walks the directories behind links that no walk has visited. They may contain further links;
// every walk begins at a directory that was not walked before, so loops end. Links of more trusted roots go
// first: a directory belongs to the first link that leads to it.
func (s *scanner) followLinks(ctx context.Context) error {
	tier := func(l link) Tier {
		if s.opts.AllowShadow {
			return 0 // the order of roots decides
		}
		return l.area.root.Tier
	}
	waiting, followed := s.links, map[*Root]int{}
	slices.SortStableFunc(waiting, func(a, b link) int { return cmp.Compare(tier(a), tier(b)) })
	for s.links = nil; len(waiting) > 0; s.links = nil {
		l := waiting[0]
		root := l.area.root
		// Each root has its own limit: a project with many links must not keep the links of other roots from
		// being followed.
		followed[root]++
		if followed[root] <= s.opts.MaxDirs {
			if err := s.followLink(ctx, &l); err != nil {
				return err
			}
		} else if followed[root] == s.opts.MaxDirs+1 {
			s.note(Error, CodeScanLimit, root.Dir,
				"there are more than %d links; the others are not followed", s.opts.MaxDirs)
		}
		// The new links belong to the same root, so they come after other links of its tier.
		at, _ := slices.BinarySearchFunc(waiting[1:], tier(l)+1,
			func(other link, t Tier) int { return cmp.Compare(tier(other), t) })
		waiting = slices.Insert(waiting[1:], at, s.links...)
	}
	return nil
}

// followLink walks the directory behind a link, unless it was walked already.
func (s *scanner) followLink(ctx context.Context, l *link) error {
	if s.unreadable[l.area.root] {
		if w := s.earlier(l.area.root, l.path, true); w != nil {
			return s.walk(ctx, w.area, nil)
		}
		return nil
	}
	a, top, err := s.resolve(l)
	switch {
	case errors.Is(cause(err), ErrExhausted):
		return fmt.Errorf("scan %s: %w", l.path, cause(err))
	case err != nil:
		s.note(Warning, CodeUnreadableDir, l.path, "the link cannot be followed: %v", cause(err))
		return nil
	case a == nil:
		return nil
	}
	defer top.close()
	return s.walk(ctx, a, top)
}

// resolve returns the area behind a link, or nil if there is nothing to walk.
func (s *scanner) resolve(l *link) (*area, folder, error) {
	base := l.area.location.base
	target, err := filepath.EvalSymlinks(filepath.Join(l.area.location.onDisk(), filepath.FromSlash(l.rel)))
	if err != nil || s.hasWalked(target) {
		return nil, nil, err
	}
	if !within(base, target) {
		allowed := append(slices.Clip(s.allowed), sharedSkills(base)...)
		at := slices.IndexFunc(allowed, func(dir string) bool { return within(dir, target) })
		if at < 0 {
			s.note(Warning, CodeOutsideRoot, l.path,
				"the link %q leads out of its directory of skills; "+
					"--allow-root with the directory it leads to, or one above that, serves it",
				filepath.Join(l.area.root.Dir, filepath.FromSlash(l.dir)))
			return nil, nil, nil
		}
		// Reads are confined to the directory that allowed the target, not to the root of the link.
		base = allowed[at]
	}
	rel := cmp.Or(strings.Trim(filepath.ToSlash(target[len(base):]), "/"), ".")
	top, err := openBase(base)
	if err != nil {
		return nil, nil, err
	}
	defer top.close()
	below, err := descend(top, rel)
	// A link to a file has no directory to walk, and a target may vanish after it was resolved.
	if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	return &area{root: l.area.root, path: l.path, dir: l.dir, location: location{base: base, rel: rel},
		depth:  l.depth,
		linked: true}, below, nil
}

// sharedSkills returns the directory from which installers link skills into the root at a directory with
// links resolved: PROJECT/.agents/skills for PROJECT/.claude/skills. Both belong to the project, or to the
// home directory of the user, so no option is needed.
func sharedSkills(root string) []string {
	client := filepath.Dir(root)
	// A root of any other form is the operator's own choice; directories of clients need not be next to it.
	if filepath.Base(root) != "skills" || !strings.HasPrefix(filepath.Base(client), ".") {
		return nil
	}
	shared := filepath.Join(filepath.Dir(client), ".agents", "skills")
	// A link there may lead anywhere.
	if real, err := filepath.EvalSymlinks(shared); err != nil || real != shared {
		return nil
	}
	return []string{shared}
}

// hasWalked reports whether an earlier walk included a real directory. Directories below ignored names were
// not included.
func (s *scanner) hasWalked(target string) bool {
	return slices.ContainsFunc(s.walked, func(dir string) bool {
		return within(dir, target) &&
			!skipsPath(strings.TrimPrefix(filepath.ToSlash(target[len(dir):]), "/"))
	})
}
