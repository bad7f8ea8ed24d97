package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills"
)

// Sync is how an installation is made to be what a lock file says.
type Sync struct {
	// Lock is what it says; nil: the lock file of the installation itself, to mend what was changed. Of
	// what is installed already the earlier version stays that of this machine: the one that is replaced,
	// or else the one there was. Lock is believed in all else: whether its tiers are is for the caller.
	Lock *Lock
	// Exact removes what is installed and not in Lock.
	Exact bool
	// DropEarlier forgets earlier versions that cannot be had again. Those of a Lock from elsewhere, which
	// this machine never had, are forgotten without it.
	DropEarlier bool
	// Insecure is as in Request.
	Insecure bool
}

// Difference is a skill that is not what a lock file says.
type Difference struct {
	Name string `json:"name"`
	What string `json:"what"`
	// Earlier says that only the version that a rollback goes back to is concerned.
	Earlier bool `json:"earlier,omitempty"`
	// Lost is why the earlier version cannot be had again, and Dropped that it was forgotten.
	Lost    string `json:"lost,omitempty"`
	Dropped bool   `json:"dropped,omitempty"`

	before, after *Entry
}

// Differences tells what Sync would change, in byte order of name.
//
// Errors: those of ctx and of the system.
func (i *Installer) Differences(ctx context.Context, s Sync) ([]Difference, error) {
	want := s.Lock
	if want == nil {
		want = i.lock
	}
	var found []Difference
	for _, e := range want.Skills {
		d := Difference{Name: e.Name, before: i.lock.clash(e.Name), after: e}
		if err := i.differs(ctx, &d); err != nil {
			return nil, err
		}
		if d.What != "" {
			found = append(found, d)
		}
	}
	if s.Exact {
		for _, e := range i.lock.Skills {
			if want.clash(e.Name) == nil {
				found = append(found, Difference{Name: e.Name, What: "is installed and not in the lock file", before: e})
			}
		}
	}
	return found, nil
}

// differs says how what is installed differs from what is wanted, if it does.
func (i *Installer) differs(ctx context.Context, d *Difference) error {
	here, e := d.before, d.after
	switch {
	case here == nil:
		d.What = "is not installed"
		return nil
	case here.Name != e.Name:
		d.What = "is installed as " + here.Name
		return nil
	case here.Tree != e.Tree:
		d.What = "is of another version"
		return nil
	case here.Tier != e.Tier || here.Enabled != e.Enabled:
		d.What = "has another tier or state"
		return nil
	case here.Origin != e.Origin:
		d.What = "is from elsewhere, or another commit"
		return nil
	}
	problems, err := i.verifyPlaced(ctx, here)
	if err != nil {
		return err
	}
	now := &Entry{Name: here.Name, Tree: here.Tree}
	if problems = append(problems, i.verifyStored(ctx, now)...); len(problems) == 0 && here.Previous != nil {
		now.Previous = here.Previous
		problems = i.verifyStored(ctx, now)
		d.Earlier = len(problems) > 0
	}
	if len(problems) > 0 {
		d.What = problems[0].What
		if problems[0].Path != "" {
			d.What = problems[0].Path + " " + d.What
		}
	}
	return ctx.Err()
}

// Sync makes the installation what a lock file says: exactly its bytes, from the store, or else from
// the recorded source at the recorded commit. Where they cannot be had nothing is changed; an earlier
// version that cannot be had changes nothing else, and is told as Lost.
//
// Errors: *SourceError, *FetchError and others of the sources; those of ctx and of the system.
func (i *Installer) Sync(ctx context.Context, s Sync) (did []Difference, err error) {
	did, err = i.Differences(ctx, s)
	if err != nil || len(did) == 0 {
		return nil, err
	}
	stage, err := i.newStage()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			did, err = nil, errors.Join(err, stage.abandon())
		}
	}()
	at := &sources{stage: stage, insecure: s.Insecure, open: map[string]*fetched{}}
	defer func() { err = errors.Join(err, at.Close()) }()
	var changes []change
	for n := range did {
		d := &did[n]
		i.progress("skills restored", n, len(did))
		if d.before != nil && d.after != nil && d.before.Name != d.after.Name {
			changes = append(changes, change{before: d.before})
			d.before = nil
		}
		if d.after != nil {
			if s.Lock != nil && d.before != nil {
				d.keepEarlier()
			}
			if err := at.restore(ctx, d, s); err != nil {
				return nil, fmt.Errorf("%s: %w", d.Name, err)
			}
		}
		if !d.Earlier {
			changes = append(changes, change{d.before, d.after})
		} else if d.Dropped {
			stage.same = append(stage.same, d.after)
		}
	}
	if err := stage.settle(ctx, did); err != nil {
		return nil, err
	}
	return did, stage.commit(ctx, changes)
}

// keepEarlier has a rollback go back to what this machine had, and not to what the lock file of
// another says that it had.
func (d *Difference) keepEarlier() {
	changed := *d.after
	switch {
	case d.before.Tree != changed.Tree:
		changed.Previous = d.before.earlier(changed.Origin)
	case d.before.Previous != nil:
		before := *d.before.Previous
		if from := d.before.previousOrigin(); !from.Same(changed.Origin) {
			before.Origin = &from
		} else {
			before.Origin = nil
		}
		changed.Previous = &before
	default:
		changed.Previous = nil
	}
	d.after = &changed
}

// settle looks at what a Sync made ready: no skill takes the path of one that is served from elsewhere
// and was not served here before. What is disabled is taken from the stage then.
func (s *stage) settle(ctx context.Context, did []Difference) error {
	snapshot, err := s.scan(ctx)
	if err != nil {
		return err
	}
	paths := pathsByName(snapshot)
	for _, d := range did {
		if d.after == nil || d.Earlier {
			continue
		}
		if d.before != nil {
			err = s.i.takenSince(ctx, d.before, paths[d.Name])
		} else {
			err = s.i.taken(paths[d.Name], nil)
		}
		if err != nil {
			return &SourceError{Reason: d.Name + ": " + err.Error(), Hint: "take it from the lock file, or move what is served there"}
		}
		if !d.after.Enabled {
			if err := s.i.root.RemoveAll(s.placed(d.Name)); err != nil {
				return err
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

// restore makes the trees of a difference ready.
func (a *sources) restore(ctx context.Context, d *Difference, s Sync) error {
	e := d.after
	if !d.Earlier {
		if err := a.obtain(ctx, d.before, e); err != nil {
			return err
		}
	}
	if e.Previous == nil {
		return nil
	}
	lost := a.obtainEarlier(ctx, e)
	switch {
	case lost == nil || ctx.Err() != nil:
		return ctx.Err()
	case s.DropEarlier || s.Lock != nil:
		changed := *e
		changed.Previous = nil
		d.after, d.Dropped = &changed, true
	}
	d.Lost = lost.Error()
	return nil
}

// obtain makes the tree of an entry ready: from the store, from its place when that is intact, or from
// where it came from.
func (a *sources) obtain(ctx context.Context, here, e *Entry) error {
	s := a.stage
	if s.place(ctx, e.Name, e.Tree) == nil {
		return nil
	}
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
	version, err := s.add(ctx, sk, e.Name)
	if err != nil {
		return err
	}
	return same(e.Tree, version.Tree, e.Origin.Source)
}

// obtainEarlier stores the version before the last update again, when the store has lost it.
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
	subdir := origin.Subdir
	if subdir == "" {
		subdir = "."
	}
	key := fmt.Sprintf("%q %q %q", origin.Source, origin.Commit, subdir)
	if err := a.failed[key]; err != nil {
		return nil, err
	}
	from := a.open[key]
	if from == nil {
		at := origin
		at.Path = subdir
		var err error
		if from, err = a.stage.fetch(ctx, at, a.insecure); err != nil {
			if a.failed == nil {
				a.failed = map[string]error{}
			}
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
	return &SourceError{Reason: fmt.Sprintf("%s has another version than the lock file: tree %.19s, want %.19s", source, got, want), Hint: "bring the source back, or `skillsd remove` and install it anew"}
}

// Import reads the lock file of another machine.
//
// Errors: fs.ErrNotExist, *LockError, those of the system.
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
