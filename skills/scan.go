package skills

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// ScanOptions are the options of a scan. The zero value and nil are valid.
type ScanOptions struct {
	// AllowRoots are directories outside of the roots into which links in a root may lead.
	AllowRoots []string
	// StrictRoots makes a root that cannot be read an error; otherwise it is a diagnostic.
	StrictRoots bool
	// AllowShadow lets an earlier root win over a later one of a more trusted tier.
	AllowShadow bool

	// StrictSkills serves only skills that the reference validator accepts.
	StrictSkills bool
	// Disabled, Pinned and NameOnly are chosen by the operator: paths or names of skills. A name selects
	// every skill with it.
	Disabled, Pinned, NameOnly []string
	// HasCommand and HasEnv report whether the host has a required command on PATH, or a required variable.
	// nil: not checked. Calls do not overlap.
	HasCommand, HasEnv func(name string) bool
	// Platform is the GOOS of the host, for skills that require one; empty: neither the platform nor required
	// skills are checked.
	Platform string
	// HasSecret reports whether the operator configured a secret for scripts of the skill at path under the
	// name of a required variable, which the server's environment then need not have. nil: no secrets.
	HasSecret func(path, name string) bool

	MaxDepth int // levels of directories below a root; 0: 8
	// MaxDirs is the maximum number of directories below a root, without those inside of skills; 0: 20,000.
	// Inside of the skills of a level, at most ten times as many are searched for nested skills.
	MaxDirs int
	// MaxFiles is the maximum number of files of a skill, and of directories searched for skills nested in
	// it; 0: 2,000.
	MaxFiles int
	// MaxTree is the maximum total size of the files of a skill, in bytes; 0: 256 MiB.
	MaxTree int64

	// Cache holds facts of earlier scans; nil: no cache.
	Cache *Cache
	// Now is the clock; nil: time.Now.
	Now func() time.Time
	// Progress is called after each directory, concurrently; nil: not called.
	Progress func()
}

// withDefaults returns a copy with all limits and functions set.
func (o *ScanOptions) withDefaults() *ScanOptions {
	set := ScanOptions{}
	if o != nil {
		set = *o
	}
	set.MaxDepth = cmp.Or(max(set.MaxDepth, 0), 8)
	set.MaxDirs = cmp.Or(max(set.MaxDirs, 0), 20_000)
	set.MaxFiles = cmp.Or(max(set.MaxFiles, 0), 2_000)
	set.MaxTree = cmp.Or(max(set.MaxTree, 0), 256<<20)
	if set.Now == nil {
		set.Now = time.Now
	}
	if set.Progress == nil {
		set.Progress = func() {}
	}
	return &set
}

// Scan reads the SKILL.md of every skill below the roots. A problem of a skill or a root becomes a
// diagnostic; the other skills are served. The result does not depend on the order of directory listings,
// unless a limit on entries is exceeded.
//
// A real directory takes precedence over a link to it, in any tier; a directory that is reached in two ways
// is one skill, of the more trusted way. Of two skills with equal paths, the one of the more trusted tier
// wins, then the one of the earlier root.
//
// Errors: the error of ctx; a root that cannot be read, with StrictRoots; ErrExhausted, because an incomplete
// scan must not replace a complete one.
func Scan(ctx context.Context, roots []Root, opts *ScanOptions) (*Snapshot, error) {
	began := time.Now()
	s := &scanner{opts: opts.withDefaults(), roots: slices.Clone(roots)}
	if err := s.scan(ctx); err != nil {
		return nil, err
	}
	snapshot := assemble(s.roots, s.found, s.notes, s.opts)
	// A watcher compares changes with the start of the scan: a file written while a long scan ran may have
	// been read before the write.
	snapshot.dirs, snapshot.listings, snapshot.began = s.dirs(), s.listings(), began
	return snapshot, nil
}

// scan scans the roots, and again without the cache if the cache turns out to be wrong.
func (s *scanner) scan(ctx context.Context) error {
	err := s.once(ctx)
	cache := s.opts.Cache
	if err != nil || cache == nil || !cache.lied.Swap(false) {
		return err
	}
	// Nothing of the first pass is kept: if one record was wrong, every fact taken from the file may be.
	*s = scanner{opts: s.opts, roots: s.roots}
	err = s.once(ctx)
	s.note(Warning, CodeCacheWrong, cache.file,
		"the scan cache disagreed with a file on disk; it was discarded")
	return err
}

func (s *scanner) once(ctx context.Context) error {
	s.unreadable, s.kept = map[*Root]bool{}, map[*Root]*atomic.Int64{}
	for _, dir := range s.opts.AllowRoots {
		real, err := realDir(dir)
		if err != nil {
			s.note(Warning, CodeUnreadableRoot, dir, "the allowed root cannot be read: %v", cause(err))
			continue
		}
		s.allowed = append(s.allowed, real)
	}
	owners := s.owners()
	for i := range s.roots {
		// With one budget for all roots, a project that is opened could use it up and so hide the user's
		// skills.
		s.kept[&s.roots[i]] = &atomic.Int64{}
		if err := s.scanRoot(ctx, &s.roots[i], owners); err != nil {
			return err
		}
	}
	// Links come after all roots, because a real directory takes precedence over a link to it in any tier.
	return s.followLinks(ctx)
}

// dirs returns the real directories that were walked.
func (s *scanner) dirs() []string {
	var dirs []string
	for _, w := range s.walks {
		if w.area.location.fsys == nil {
			dirs = append(dirs, w.area.location.onDisk())
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// listings returns the listings of all visited directories.
func (s *scanner) listings() (all [][]listing) {
	for _, w := range s.walks {
		for _, v := range w.visits {
			if len(v.listings) > 0 {
				all = append(all, v.listings)
			}
		}
	}
	return all
}

// scanner collects the results of a scan. It belongs to one goroutine, which merges the results of parallel
// visits.
type scanner struct {
	opts    *ScanOptions // with defaults
	roots   []Root
	allowed []string // real directories
	walked  []string // real directories that were walked with their subdirectories
	walks   []*walk
	found   []*Skill // in the order of roots, then of walks, then of paths
	read    []*Skill // the skills in found that were not reused from an earlier scan
	notes   []Diagnostic
	links   []link
	kept    map[*Root]*atomic.Int64 // bytes of frontmatter kept per root

	// The walks of the previous scan, and the paths on disk that changed since; if empty, all may have
	// changed.
	known      []*walk
	changed    []string
	unreadable map[*Root]bool // roots that were readable before
}

// walk is a walked tree with the results for each directory. A later scan reuses the unchanged ones.
type walk struct {
	area   *area
	visits map[string]*visit // by the directory, relative to the area
}

func (s *scanner) note(severity Severity, code Code, path, format string, args ...any) {
	s.notes = append(s.notes, diagnose(severity, code, path, format, args...))
}

// owners returns, for each real directory that is configured as a root under any name, the root that owns it:
// the more trusted one if there are several, else the first.
func (s *scanner) owners() map[string]*Root {
	owners := map[string]*Root{}
	for i := range s.roots {
		root := &s.roots[i]
		if root.FS != nil {
			continue
		}
		dir, err := realDir(root.Dir)
		if err != nil {
			continue // scanRoot reports it
		}
		// If the first root owned the directory, a project that lists it too could lower the tier of the
		// user's skills.
		if other := owners[dir]; other == nil || !s.opts.AllowShadow && root.Tier < other.Tier {
			owners[dir] = root
		}
	}
	return owners
}

// scanRoot walks the real directories of a root, unless another root owns them.
func (s *scanner) scanRoot(ctx context.Context, root *Root, owners map[string]*Root) error {
	a, top, err := openArea(root)
	if err != nil {
		reason := cause(err)
		if errors.Is(err, syscall.ENOTDIR) {
			reason = errNotDirectory
		}
		missing := root.Awaited && errors.Is(err, fs.ErrNotExist)
		// Without free descriptors nothing is known about the root. Taken as empty, it would take its skills
		// from the running sessions.
		if s.opts.StrictRoots && !missing || errors.Is(reason, ErrExhausted) {
			return fmt.Errorf("skills root %s: %w", root.Dir, reason)
		}
		// A root that is unreadable for a while must not take its skills from running sessions.
		if w := s.earlier(root, root.Prefix, false); w != nil {
			s.unreadable[root] = true
			s.note(Error, CodeUnreadableRoot, root.Dir,
				"the directory cannot be read: %v; its skills are served as they were", reason)
			return s.walk(ctx, w.area, nil)
		}
		if missing {
			return nil
		}
		s.note(Error, CodeUnreadableRoot, root.Dir, "the directory cannot be read: %v", reason)
		return nil
	}
	defer top.close()
	if root.FS == nil {
		owner := owners[a.location.base]
		if owner != nil && owner != root || slices.Contains(s.walked, a.location.base) {
			return nil
		}
	}
	return s.walk(ctx, a, top)
}

// openArea opens the directory or the file system of a root.
func openArea(root *Root) (*area, folder, error) {
	a := &area{root: root, path: root.Prefix, location: location{fsys: root.FS, rel: "."},
		label: filepath.Base(root.Dir)}
	if root.FS != nil {
		a.label = cmp.Or(root.Name, a.label)
		top, err := fsFolder(root.FS)
		return a, top, err
	}
	base, err := realDir(root.Dir)
	if err != nil {
		return nil, nil, err
	}
	a.location.base = base
	// The label keeps the name that the operator gave, even if it is a link.
	if absolute, err := filepath.Abs(root.Dir); err == nil {
		a.label = filepath.Base(absolute)
	}
	top, err := openBase(base)
	return a, top, err
}

// errNotDirectory is the error for a root that is a file.
var errNotDirectory = errors.New("it is not a directory of skills, but a file")

// realDir returns the absolute path of a directory, with links resolved.
func realDir(dir string) (string, error) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(absolute)
}

// walk visits an area level by level, each level in parallel, so that limits always cut the same directories.
// Unchanged results are reused from an earlier scan; top is nil if all of them are.
func (s *scanner) walk(ctx context.Context, a *area, top folder) error {
	old, changed := s.recall(a)
	w := &walk{area: a, visits: make(map[string]*visit, len(old))}
	s.walks = append(s.walks, w)
	if a.location.fsys == nil {
		s.walked = append(s.walked, a.location.onDisk())
	}
	for depth, level := a.depth, []string{"."}; len(level) > 0; depth++ {
		if depth > s.opts.MaxDepth {
			s.note(Warning, CodeMaxDepth, join(a.path, level[0]),
				"%d directories below depth %d are not scanned", len(level), s.opts.MaxDepth)
			return nil
		}
		// Sorted, so that a limit cuts the same directories in any order of listing.
		slices.Sort(level)
		over := len(w.visits)+len(level) > s.opts.MaxDirs
		if over {
			level = level[:s.opts.MaxDirs-len(w.visits)]
			s.note(Error, CodeScanLimit, cmp.Or(a.path, a.root.Dir),
				"there are more than %d directories; the others are not scanned", s.opts.MaxDirs)
		}
		var again []string
		for _, rel := range level {
			v := old[rel]
			if v == nil || v.outdated(rel, changed) {
				again = append(again, rel)
				continue
			}
			w.visits[rel] = v
			for _, sk := range v.skills {
				// Reused skills hold their memory too, so they use up the budget.
				s.kept[a.root].Add(int64(len(sk.Frontmatter.JSON)))
			}
		}
		visits := make([]*visit, len(again))
		var opened atomic.Int64
		err := parallel(ctx, len(again), func() func(int) {
			v := &visitor{area: a, top: top, opts: s.opts, opened: &opened, kept: s.kept[a.root]}
			return func(i int) {
				visits[i] = v.visit(again[i], depth, old[again[i]])
				s.opts.Progress()
			}
		})
		if err != nil {
			return err
		}
		for i, v := range visits {
			if v.err != nil {
				return fmt.Errorf("scan %s: %w", join(a.path, again[i]), v.err)
			}
			w.visits[again[i]], s.read = v, append(s.read, v.skills...)
		}
		// Results are merged in the order of the sorted level, not in the order in which the goroutines
		// finished.
		var next []string
		for _, rel := range level {
			v := w.visits[rel]
			s.found, s.links = append(s.found, v.skills...), append(s.links, v.links...)
			s.notes, next = append(s.notes, v.diagnostics...), append(next, v.dirs...)
		}
		if over {
			return nil
		}
		level = next
	}
	return nil
}

// earlier returns the walk of the previous scan that began at a path of a root, or nil.
func (s *scanner) earlier(root *Root, path string, linked bool) *walk {
	for _, w := range s.known {
		if w.area.root == root && w.area.path == path && w.area.linked == linked {
			return w
		}
	}
	return nil
}

// recall returns the results of the previous scan for an area, and the changed paths relative to it.
func (s *scanner) recall(a *area) (old map[string]*visit, changed []string) {
	w := s.earlier(a.root, a.path, a.linked)
	if w == nil || w.area.location.base != a.location.base || w.area.location.rel != a.location.rel {
		return nil, nil
	}
	old = w.visits
	switch {
	// The files cannot be compared now, so the previous result stays.
	case s.unreadable[a.root]:
		return old, nil
	// Without known changes, everything may have changed.
	case len(s.changed) == 0:
		return old, []string{"."}
	// A changed source is scanned without changed paths.
	case a.location.fsys != nil:
		return old, nil
	}
	top := a.location.onDisk()
	for _, path := range s.changed {
		// A change above the area may have replaced the whole of it.
		if within(path, top) {
			return old, []string{"."}
		}
		if within(top, path) {
			rel := strings.TrimPrefix(filepath.ToSlash(path[len(top):]), "/")
			if !skipsPath(rel) {
				changed = append(changed, rel)
			}
		}
	}
	return old, changed
}

// parallel calls worker on each of several goroutines, and the functions it returns with each of 0 to n-1.
func parallel(ctx context.Context, n int, worker func() func(int)) error {
	var next atomic.Int64
	var group sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		group.Go(func() {
			work := worker()
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				work(i)
			}
		})
	}
	group.Wait()
	return ctx.Err()
}

// within reports whether path is dir or below it. Both must be free of links and not end in a separator,
// except for a root directory.
func within(dir, path string) bool {
	const separator = string(filepath.Separator)
	// The separator keeps /a/skills from containing /a/skills-old.
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, separator)+separator)
}
