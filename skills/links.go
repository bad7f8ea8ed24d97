package skills

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// link is a symbolic link that may lead to a directory.
type link struct {
	area  *area
	rel   string // below the area
	path  string // in the catalogue
	dir   string // below Root.Dir
	depth int
}

func (l *link) onDisk() string {
	return filepath.Join(l.area.place.base, filepath.FromSlash(join(l.area.place.rel, l.rel)))
}

// names returns the path that a link names, whether it exists or not.
func (l *link) names() string {
	name := l.onDisk()
	target, err := os.Readlink(name)
	if err != nil || filepath.IsAbs(target) {
		return filepath.Clean(target)
	}
	return filepath.Join(filepath.Dir(name), target)
}

// followLinks walks the directories to which links lead and that no walk has seen. They may have links
// themselves; every walk begins at a directory not walked before, so loops end. Links of more trusted
// roots go first: a directory belongs to the first link that leads there.
func (s *scanner) followLinks(ctx context.Context) error {
	waiting, followed := map[Tier][]link{}, map[*Root]int{}
	for {
		for _, l := range s.links {
			tier := l.area.root.Tier
			if s.opts.AllowShadow {
				tier = 0 // the order of roots decides
			}
			waiting[tier] = append(waiting[tier], l)
		}
		s.links = nil
		if len(waiting) == 0 {
			return nil
		}
		tier := slices.Min(slices.Collect(maps.Keys(waiting)))
		l := waiting[tier][0]
		if waiting[tier] = waiting[tier][1:]; len(waiting[tier]) == 0 {
			delete(waiting, tier)
		}
		root := l.area.root
		if followed[root]++; followed[root] > s.limits.dirs {
			if followed[root] == s.limits.dirs+1 {
				s.note(Error, CodeScanLimit, root.Dir,
					"there are more than %d links; the others are not followed", s.limits.dirs)
			}
			continue
		}
		if err := s.followLink(ctx, &l); err != nil {
			return err
		}
	}
}

// followLink walks the directory that a link leads to, if it is to be walked.
func (s *scanner) followLink(ctx context.Context, l *link) error {
	a, top, err := s.resolve(l)
	if errors.Is(cause(err), ErrExhausted) {
		return fmt.Errorf("scan %s: %w", l.path, cause(err))
	}
	if err != nil {
		s.note(Warning, CodeUnreadableDir, l.path, "the link cannot be followed: %v", cause(err))
		return nil
	}
	if a == nil {
		return nil
	}
	defer top.close()
	return s.walk(ctx, a, top)
}

// resolve returns the area behind a link, nil if there is nothing to walk.
func (s *scanner) resolve(l *link) (*area, folder, error) {
	target, err := filepath.EvalSymlinks(l.onDisk())
	if err != nil {
		s.seen, s.named = append(s.seen, l.onDisk()), append(s.named, l.names())
		return nil, nil, err
	}
	s.seen, s.named = append(s.seen, l.onDisk()), append(s.named, target)
	if s.hasWalked(target) {
		return nil, nil, nil
	}
	base := ""
	for _, dir := range append([]string{l.area.place.base}, s.allowed...) {
		if within(dir, target) {
			base = dir
			break
		}
	}
	if base == "" {
		s.note(Warning, CodeOutsideRoot, l.path,
			"the link %q leads out of its root and of every allowed root; "+
				"--allow-root with the directory it leads to, or one above that, serves it",
			filepath.Join(l.area.root.Dir, filepath.FromSlash(l.dir)))
		return nil, nil, nil
	}
	rel, err := filepath.Rel(base, target)
	if err != nil {
		return nil, nil, err
	}
	rel = filepath.ToSlash(rel)
	top, err := openBase(base)
	if err != nil {
		return nil, nil, err
	}
	defer top.close()
	below, err := descend(top, rel)
	if isNotDir(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	s.walked = append(s.walked, target)
	a := &area{
		root:   l.area.root,
		path:   l.path,
		dir:    l.dir,
		place:  place{base: base, rel: rel},
		depth:  l.depth,
		linked: true,
	}
	return a, below, nil
}

// hasWalked reports whether a real directory was part of an earlier walk. A directory below a name that
// walks skip was not.
func (s *scanner) hasWalked(target string) bool {
	for _, dir := range s.walked {
		if !within(dir, target) {
			continue
		}
		rel, err := filepath.Rel(dir, target)
		if err == nil && !slices.ContainsFunc(strings.Split(filepath.ToSlash(rel), "/"), skipped) {
			return true
		}
	}
	return false
}
