package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills"
)

// Sync is how an installation is made equal to a lock file.
type Sync struct {
	// Lock is that file; nil: the lock file of the installation itself, to repair what was changed. The
	// earlier version of a skill that is installed stays the one of this machine: the version that is
	// replaced, or else the one there was. All else is taken from Lock: the caller decides whether its
	// tiers are trusted.
	Lock *Lock
	// Exact removes skills that are not in Lock.
	Exact bool
	// DropEarlier forgets earlier versions that cannot be fetched again. Earlier versions of a Lock from
	// elsewhere, which this machine never had, are forgotten without it.
	DropEarlier bool
	// Insecure is as in Request.
	Insecure bool
}

// Sync compares the installation with a lock file. The plan makes the installation equal to it: exactly
// the same bytes, from the store, or else from the recorded source at the recorded commit. If they
// cannot be had, applying it changes nothing; an earlier version that cannot be had prevents no other
// change and is reported as Lost.
//
// Errors: errors of ctx; system errors; of Apply, also *SourceError, *FetchError and other errors of
// sources.
func (i *Installer) Sync(ctx context.Context, s Sync) (*Plan, error) {
	p := &Plan{i: i}
	want := s.Lock
	if want == nil {
		want = i.lock
	}
	for _, e := range want.Skills {
		c := Change{Name: e.Name, Before: i.lock.clash(e.Name), After: e}
		if err := i.compare(ctx, &c); err != nil {
			return nil, err
		}
		if c.What == "" {
			continue
		}
		switch {
		case c.Earlier:
			c.After = c.Before
		case s.Lock != nil && c.Before != nil:
			c.After = c.After.keepingEarlier(c.Before)
		}
		p.Changes = append(p.Changes, c)
	}
	if s.Exact {
		for _, e := range i.lock.Skills {
			if want.clash(e.Name) == nil {
				p.Changes = append(p.Changes,
					Change{Name: e.Name, Before: e, What: "is installed and not in the lock file"})
			}
		}
	}
	p.prepare = func(ctx context.Context) error { return p.obtainAll(ctx, s) }
	return p, nil
}

// compare says how an installed skill differs from the entry that is wanted, if it does.
func (i *Installer) compare(ctx context.Context, c *Change) error {
	here, e := c.Before, c.After
	// The entries are compared first: if they differ, no file needs to be read.
	switch {
	case here == nil:
		c.What = "is not installed"
	case here.Name != e.Name:
		c.What = "is installed as " + here.Name
	case here.Tree != e.Tree:
		c.What = "is of another version"
	case here.Tier != e.Tier || here.Enabled != e.Enabled:
		c.What = "has another tier or state"
	case here.Origin != e.Origin:
		c.What = "is from elsewhere, or another commit"
	}
	if c.What != "" {
		return nil
	}
	problems, err := i.verifyPlaced(ctx, here)
	if err != nil {
		return err
	}
	problems = append(problems, i.verifyStored(ctx, here.Name, here.Tree, ProblemContent)...)
	if len(problems) == 0 && here.Previous != nil {
		problems = i.verifyStored(ctx, here.Name, here.Previous.Tree, ProblemEarlier)
		c.Earlier, c.lockOnly = len(problems) > 0, len(problems) > 0
	}
	if len(problems) > 0 {
		c.What = problems[0].What
		if problems[0].Path != "" {
			c.What = problems[0].Path + " " + c.What
		}
	}
	return ctx.Err()
}

// obtainAll makes the trees of a Sync ready.
func (p *Plan) obtainAll(ctx context.Context, s Sync) (err error) {
	at := &sources{stage: p.stage, insecure: s.Insecure, open: map[string]*fetched{},
		failed: map[string]error{}}
	defer func() { err = errors.Join(err, at.Close()) }()
	for n := range p.Changes {
		c := &p.Changes[n]
		p.i.progress("skills restored", n, len(p.Changes))
		if c.After == nil {
			continue
		}
		if !c.Earlier {
			if err := at.obtain(ctx, c.Before, c.After); err != nil {
				return fmt.Errorf("%s: %w", c.Name, err)
			}
		}
		if c.After.Previous == nil {
			continue
		}
		lost := at.obtainEarlier(ctx, c.After)
		// A fetch that was canceled does not mean that the version is lost.
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if lost != nil {
			c.Lost, c.Dropped = lost.Error(), s.DropEarlier || s.Lock != nil
		}
		if c.Dropped {
			// The entry may belong to the caller's Lock.
			changed := *c.After
			changed.Previous = nil
			c.After = &changed
		}
	}
	snapshot, err := p.stage.scan(ctx)
	if err != nil {
		return err
	}
	paths := pathsByName(snapshot)
	for _, c := range p.Changes {
		if err := p.i.taken(ctx, c.Before, paths[c.Name]); err != nil {
			return &SourceError{
				Reason: c.Name + ": " + err.Error(),
				Hint:   "take it from the lock file, or move what is served there",
			}
		}
	}
	return nil
}

// sources are those that a Sync has fetched. Close releases them.
type sources struct {
	stage    *stage
	insecure bool
	open     map[string]*fetched
	failed   map[string]error // a source that cannot be had is asked once
}

func (a *sources) Close() (err error) {
	for _, from := range a.open {
		err = errors.Join(err, from.Close())
	}
	return err
}

// obtain makes the tree of an entry ready: from the store, from its place if that is intact, or from
// where it came from.
func (a *sources) obtain(ctx context.Context, here, e *Entry) error {
	s := a.stage
	if s.place(ctx, e.Name, e.Tree) == nil {
		return nil
	}
	// place may have failed after it had copied some of the files.
	if err := s.i.root.RemoveAll(s.placed(e.Name)); err != nil {
		return err
	}
	if here != nil && here.Tree == e.Tree && s.rescue(ctx, here) == nil {
		return s.place(ctx, e.Name, e.Tree)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	sk, err := a.find(ctx, e.Origin)
	if err != nil {
		return err
	}
	version, _, err := s.add(ctx, sk, e.Name)
	if err != nil {
		return err
	}
	// A directory or an archive has no commit, so it may have changed since the entry was written.
	return same(e.Tree, version.Tree, e.Origin.Source)
}

// obtainEarlier stores the version before the last update again if the store has lost it.
func (a *sources) obtainEarlier(ctx context.Context, e *Entry) error {
	if _, err := a.stage.i.cfg.Trees.Tree(ctx, e.Previous.Tree); err == nil {
		return nil
	}
	origin := e.previousOrigin()
	sk, err := a.find(ctx, origin)
	if err != nil {
		return err
	}
	index, err := sk.Index(ctx)
	if err != nil {
		return err
	}
	if err := same(e.Previous.Tree, index.TreeDigest, origin.Source); err != nil {
		return err
	}
	_, err = a.stage.store(ctx, sk, index)
	return err
}

// find returns the skill of an origin, from its source at the recorded commit.
func (a *sources) find(ctx context.Context, origin Origin) (*skills.Skill, error) {
	at := origin
	at.Path = cmp.Or(origin.Subdir, ".")
	key := fmt.Sprintf("%q %q %q", at.Source, at.Commit, at.Path)
	if err := a.failed[key]; err != nil {
		return nil, err
	}
	from := a.open[key]
	if from == nil {
		var err error
		if from, err = a.stage.fetch(ctx, at, a.insecure); err != nil {
			a.failed[key] = err
			return nil, err
		}
		a.open[key] = from
	}
	return from.find(origin.Path)
}

func same(want, got digest.Digest, source string) error {
	if want == got {
		return nil
	}
	return &SourceError{
		Reason: fmt.Sprintf("%s has another version than the lock file: tree %.19s, want %.19s",
			source, got, want),
		Hint: "bring the source back, or `skillsd remove` and install it anew",
	}
}

// Import reads the lock file of another machine.
//
// Errors: fs.ErrNotExist, *LockError; system errors.
func Import(file string) (*Lock, error) {
	file, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return ReadLock(file)
}
