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

// ScanOptions are the optional parts of a scan. The zero value and nil are fine.
type ScanOptions struct {
	// AllowRoots are directories outside of the roots into which links in a root may lead.
	AllowRoots []string
	// StrictRoots makes a root that cannot be read an error; otherwise it is a diagnostic.
	StrictRoots bool
	// AllowShadow lets an earlier root win over a later one of a more trusted tier.
	AllowShadow bool

	// StrictSkills serves only skills that the reference validator accepts.
	StrictSkills bool
	// Disabled, Pinned and NameOnly are the operator's choices: paths or names of skills. A name
	// means every skill that has it.
	Disabled, Pinned, NameOnly []string
	// HasCommand and HasEnv report whether the host has what skills require: a command on PATH, a
	// variable that is set. nil: not checked. They are called by one goroutine at a time.
	HasCommand, HasEnv func(name string) bool

	MaxDepth int // levels of directories below a root; 0: 8
	// MaxDirs is the most directories below a root, those inside of skills not counted; 0: 20,000.
	// Inside of the skills of a level at most ten times as many are searched for nested skills.
	MaxDirs int
	// MaxFiles is the most files of a skill, and the most directories looked at for skills nested
	// in it; 0: 2,000.
	MaxFiles int
	// MaxTree is the most bytes of the files of a skill together; 0: 256 MiB.
	MaxTree int64

	// Cache has the digests of files that have not been touched since it was saved; nil: none.
	Cache *Cache
	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

// limits are the options of a scan with their defaults, shared by its skills.
type limits struct {
	depth, dirs, files int
	tree               int64
	cache              *Cache
	now                func() time.Time
}

func (o *ScanOptions) limits() *limits {
	l := &limits{depth: 8, dirs: 20_000, files: 2_000, tree: 256 << 20, now: time.Now}
	if o == nil {
		return l
	}
	l.cache = o.Cache
	if o.MaxDepth > 0 {
		l.depth = o.MaxDepth
	}
	if o.MaxDirs > 0 {
		l.dirs = o.MaxDirs
	}
	if o.MaxFiles > 0 {
		l.files = o.MaxFiles
	}
	if o.MaxTree > 0 {
		l.tree = o.MaxTree
	}
	if o.Now != nil {
		l.now = o.Now
	}
	return l
}

// Scan reads the SKILL.md of every skill below the roots. What is wrong with a skill or a root is
// a diagnostic; the others are served. The result does not depend on the order in which directories
// are listed, unless a limit on entries is passed.
//
// A real directory wins over a link to it, whatever tier the link is in; a directory that is reached in
// two ways is one skill, of the more trusted way. Of two skills with equal paths the one of the more
// trusted tier wins, then the one of the earlier root.
//
// Errors: the error of ctx; a root that cannot be read, with StrictRoots; ErrExhausted, because an
// incomplete scan must not replace a complete one.
func Scan(ctx context.Context, roots []Root, opts *ScanOptions) (*Snapshot, error) {
	if opts == nil {
		opts = &ScanOptions{}
	}
	s := &scanner{opts: opts, limits: opts.limits(), roots: slices.Clone(roots)}
	if err := s.scan(ctx); err != nil {
		return nil, err
	}
	return s.snapshot(), nil
}

func (s *scanner) scan(ctx context.Context) error {
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
		if err := s.scanRoot(ctx, &s.roots[i], owners); err != nil {
			return err
		}
	}
	s.carryLinked()
	return s.followLinks(ctx)
}

func (s *scanner) snapshot() *Snapshot {
	snapshot := assemble(s.roots, s.found, s.diagnostics(), s.opts, s.limits.now())
	scanState := s.scanState
	snapshot.scanState = &scanState
	return snapshot
}

// scanner collects what a scan finds. It belongs to one goroutine; the walk hands it results.
type scanner struct {
	opts    *ScanOptions
	limits  *limits
	roots   []Root
	allowed []string // real directories
	walked  []string // real directories whose trees have been walked
	found   []*Skill // in the order of roots, then of walks, then of paths
	links   []link
	scanState
	known      *known    // nil: nothing is
	before     *Snapshot // the one to be replaced; nil for none
	unreadable []*Root   // could be read before
	kept       map[*Root]*atomic.Int64
}

// keptOf returns the counter of the bytes of frontmatter that are kept of a root.
func (s *scanner) keptOf(root *Root) *atomic.Int64 {
	if s.kept == nil {
		s.kept = map[*Root]*atomic.Int64{}
	}
	if s.kept[root] == nil {
		s.kept[root] = &atomic.Int64{}
	}
	return s.kept[root]
}

func (s *scanner) note(severity Severity, code Code, path, format string, args ...any) {
	s.notes = append(s.notes, note{Diagnostic: diagnose(severity, code, path, format, args...)})
}

// owners returns the root to which each real directory belongs that is given as a root, by whatever
// name: the more trusted one if there are several, else the first.
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
		if other := owners[dir]; other == nil || !s.opts.AllowShadow && root.Tier < other.Tier {
			owners[dir] = root
		}
	}
	return owners
}

// scanRoot walks the real directories of a root, unless they belong to another one.
func (s *scanner) scanRoot(ctx context.Context, root *Root, owners map[string]*Root) error {
	a := &area{
		root:  root,
		path:  root.Prefix,
		place: place{fsys: root.FS, rel: "."},
		label: filepath.Base(root.Dir),
	}
	var top folder
	var err error
	if root.FS != nil {
		a.label = cmp.Or(root.Name, a.label)
		top, err = fsFolder(root.FS)
	} else if a.place.base, err = realDir(root.Dir); err == nil {
		if absolute, err := filepath.Abs(root.Dir); err == nil {
			a.label = filepath.Base(absolute)
		}
		top, err = openBase(a.place.base)
	}
	if err != nil {
		if s.opts.StrictRoots || errors.Is(cause(err), ErrExhausted) {
			return fmt.Errorf("skills root %s: %w", root.Dir, cause(err))
		}
		if s.carryRoot(root, err) {
			return nil
		}
		s.note(Error, CodeUnreadableRoot, root.Dir, "the root cannot be read: %v", cause(err))
		return nil
	}
	defer top.close()
	if root.FS == nil {
		owner := owners[a.place.base]
		if owner != nil && owner != root || slices.Contains(s.walked, a.place.base) {
			return nil
		}
		s.walked = append(s.walked, a.place.base)
	}
	return s.walk(ctx, a, top)
}

// realDir returns the absolute path of a directory, free of links.
func realDir(dir string) (string, error) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(absolute)
}

// walk visits an area level by level, each level in parallel, so that limits fall on the same
// directories every time.
func (s *scanner) walk(ctx context.Context, a *area, top folder) error {
	s.walks = append(s.walks, walk{area: a})
	return s.visit(ctx, &s.walks[len(s.walks)-1], top, ".")
}

// visit visits a directory of a walk's area, whose folder is top, and those below it.
func (s *scanner) visit(ctx context.Context, w *walk, top folder, rel string) error {
	a, depth, before := w.area, w.area.depth, len(s.found)
	if rel != "." {
		depth += 1 + strings.Count(rel, "/")
	}
	defer func() { w.found += len(s.found) - before }()
	for level := []string{rel}; len(level) > 0; depth++ {
		if depth > s.limits.depth {
			w.cut = true
			s.note(Warning, CodeMaxDepth, join(a.path, level[0]),
				"%d directories below depth %d are not scanned", len(level), s.limits.depth)
			return nil
		}
		// Sorted, a limit leaves out the same directories however they are listed.
		slices.Sort(level)
		if w.dirs += len(level); w.dirs > s.limits.dirs {
			w.cut = true
			level = level[:max(0, len(level)-(w.dirs-s.limits.dirs))]
			s.note(Error, CodeScanLimit, a.path,
				"there are more than %d directories; the others are not scanned", s.limits.dirs)
		}
		visits := make([]visit, len(level))
		var opened atomic.Int64
		kept := s.keptOf(a.root)
		err := parallel(ctx, len(level), func() func(int) {
			v := &visitor{
				area:   a,
				top:    top,
				limits: s.limits,
				known:  s.known,
				opened: &opened,
				kept:   kept,
			}
			return func(i int) { visits[i] = v.visit(level[i], depth) }
		})
		if err != nil {
			return err
		}
		visited := level
		level = nil
		for i := range visits {
			if visits[i].err != nil {
				return fmt.Errorf("scan %s: %w", join(a.path, visited[i]), visits[i].err)
			}
			s.found = append(s.found, visits[i].skills...)
			for _, d := range visits[i].diagnostics {
				s.notes = append(s.notes, note{d, a, visited[i]})
			}
			s.links = append(s.links, visits[i].links...)
			level = append(level, visits[i].dirs...)
		}
		if w.dirs > s.limits.dirs {
			return nil
		}
	}
	return nil
}

// parallel calls the functions that worker makes, one for each processor, with 0 to n-1.
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

func isNotDir(err error) bool {
	return err != nil && (errors.Is(err, syscall.ENOTDIR) || errors.Is(err, fs.ErrNotExist))
}

// carryRoot takes over what the scan before found in a root that cannot be read any more, and reports
// whether it could be read then.
func (s *scanner) carryRoot(root *Root, err error) bool {
	if !s.carry(func(a *area) bool { return a.root == root && !a.linked }) {
		return false
	}
	s.unreadable = append(s.unreadable, root)
	s.note(Error, CodeUnreadableRoot, root.Dir,
		"the root cannot be read: %v; its skills are served as they were", cause(err))
	return true
}

// carryLinked takes over the trees behind links of roots that cannot be read any more. Like every link
// they come after the roots.
func (s *scanner) carryLinked() {
	s.carry(func(a *area) bool { return a.linked && slices.Contains(s.unreadable, a.root) })
}

// carry takes over the walks of some areas from the scan before, and reports whether there are any.
func (s *scanner) carry(wanted func(a *area) bool) bool {
	if s.before == nil || s.before.scanState == nil {
		return false
	}
	found, any := s.before.scanned, false
	for _, w := range s.before.scanState.walks {
		mine := found[:w.found]
		found = found[w.found:]
		if !wanted(w.area) {
			continue
		}
		any = true
		s.walks, s.found = append(s.walks, w), append(s.found, mine...)
		if dir := w.area.onDisk(); dir != "" {
			s.walked = append(s.walked, dir)
		}
		for _, n := range s.before.scanState.notes {
			if n.area == w.area {
				s.notes = append(s.notes, n)
			}
		}
	}
	return any
}
